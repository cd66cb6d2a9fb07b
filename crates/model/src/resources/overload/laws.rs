//! Buffers, register, pressure and admission together, as a proxy drives them, under each of the
//! study's schemes (algorithms/buffers A.6, §A.7).

use super::*;
use crate::resources::buffers::{Allocator, ConnectionFacts, NewConnection, Scheme};
use crate::resources::idle::{Handle, Pool, Register};
use crate::testing::*;
use std::hash::RandomState;

/// Clients and servers by number.
type Key = Pool<u8, u8>;

const MOST: u64 = 8;
const POOL: Bytes = Bytes::kib(MOST * 16);

/// A proxy's connections, without sockets.
struct Proxy {
    scheme: Scheme,
    now: Time,
    register: Register<Key, u64, RandomState>,
    pressure: Pressure,
    admission: Admission<Key>,
    allocator: Allocator,
    active: BTreeMap<u64, Key>,
    /// In the register, to be taken out when their peers speak or close.
    idle: BTreeMap<u64, Handle>,
    next_id: u64,
}

impl Proxy {
    fn new(scheme: Scheme) -> Self {
        let when_full = Watermarks { high: Share::ALL, low: Share::ALL };
        let mut proxy = Self {
            scheme,
            now: Time::ZERO,
            register: Register::new(scheme.idle(), RandomState::new()),
            pressure: Pressure::new(when_full),
            admission: Admission::new(scheme.admission()),
            allocator: Allocator::new(scheme.buffers(POOL), Time::ZERO),
            active: BTreeMap::new(),
            idle: BTreeMap::new(),
            next_id: 0,
        };
        proxy.count();
        proxy
    }

    fn count(&mut self) {
        let open = (self.active.len() + self.idle.len()) as u64;
        self.pressure.on_level(Resource::Connections, open, Some(MOST));
    }

    /// Somebody needs a connection of this key.
    fn want(&mut self, key: Key) {
        if let Some(found) = self.register.reuse(&key) {
            self.idle.remove(&found.payload).expect("it was idle");
            self.active.insert(found.payload, key);
            self.allocator.on_active(self.now, found.payload);
            return;
        }
        let idle = self.register.len();
        let verdict = self.admission.ask(self.now, key, &self.pressure, idle);
        match verdict {
            AdmissionVerdict::Proceed | AdmissionVerdict::Evict(_) => self.open(key, verdict),
            AdmissionVerdict::Wait(_) | AdmissionVerdict::Refuse { .. } => {
                let evicts = self.scheme.admission().evict;
                assert!(idle == 0 || !evicts, "whoever finds an idle connection does not wait");
            }
        }
    }

    fn open(&mut self, key: Key, verdict: AdmissionVerdict) {
        if let AdmissionVerdict::Evict(n) = verdict {
            (0..n).for_each(|_| self.evict());
        }
        let id = self.next_id;
        self.next_id += 1;
        let (send, receive) = match key {
            Pool::Client(_) => (true, false),
            Pool::Server(_) => (false, true),
        };
        self.active.insert(id, key);
        let open = NewConnection { send, receive, ..NewConnection::default() };
        self.allocator.on_open(self.now, id, open);
        self.count();
    }

    fn evict(&mut self) {
        let closed = self.register.evict().expect("there was one").payload;
        self.forget(closed);
    }

    /// An idle connection is closed; no other can be.
    fn forget(&mut self, id: u64) {
        assert!(!self.active.contains_key(&id), "an active connection is never closed");
        self.idle.remove(&id).expect("it was idle");
        self.allocator.on_close(id);
        self.count();
    }

    fn serve(&mut self) {
        while let Some((key, verdict)) = self.admission.next(&self.pressure, self.register.len()) {
            self.open(key, verdict);
        }
    }

    fn tick(&mut self) {
        while let Some(due) = self.register.due(self.now) {
            self.forget(due.payload);
        }
        // "when full" leaves nothing to be closed beforehand; other watermarks would
        while self.scheme.admission().evict && self.pressure.low() && !self.register.is_empty() {
            self.evict();
        }
        let allocator = &mut self.allocator;
        self.register.shrink(self.now, |_, id| allocator.on_shrink(*id));
        self.allocator.on_deadline(self.now);
        while self.admission.on_deadline(self.now).is_some() {}
    }

    fn holds(&self) {
        let open = self.active.len() + self.idle.len();
        assert!(open as u64 <= MOST);
        assert_eq!(self.register.len(), self.idle.len());
        let told = self.allocator.snapshot();
        assert!(told.granted <= told.budget || self.scheme == Scheme::Conventional);
        let ids: Vec<u64> = told.buffers.iter().map(|row| row.id).collect();
        let mut expected: Vec<u64> = self.active.keys().chain(self.idle.keys()).copied().collect();
        expected.sort_unstable();
        assert_eq!(ids, expected, "whoever is open has a buffer and nobody else");
        let room = !self.pressure.low() || (self.scheme.admission().evict && !self.idle.is_empty());
        assert!(self.admission.waiting() == 0 || !room, "nobody waits while there is room");
    }
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Want { client: bool, peer: u8 },
    Finish { at: usize },
    Close { at: usize },
    PeerCloses { at: usize },
    Pair { a: usize, b: usize },
    Look { at: usize, rtt_ms: u64, bytes_received: u64 },
    Tick { after_ms: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let at = any::<usize>;
    let step = prop_oneof![
        8 => (any::<bool>(), 0_u8..12).prop_map(|(client, peer)| Step::Want { client, peer }),
        5 => at().prop_map(|at| Step::Finish { at }),
        1 => at().prop_map(|at| Step::Close { at }),
        1 => at().prop_map(|at| Step::PeerCloses { at }),
        2 => (at(), at()).prop_map(|(a, b)| Step::Pair { a, b }),
        4 => (at(), 1_u64..400, 0_u64..9_000_000)
            .prop_map(|(at, rtt_ms, bytes_received)| Step::Look { at, rtt_ms, bytes_received }),
        3 => (0_u64..2_500).prop_map(|after_ms| Step::Tick { after_ms }),
    ];
    proptest::collection::vec(step, 0..200)
}

fn run(scheme: Scheme, steps: &[Step]) {
    let mut proxy = Proxy::new(scheme);
    for step in steps {
        let some = |map: &BTreeMap<u64, Key>, at: usize| {
            (!map.is_empty())
                .then(|| map.iter().nth(at % map.len()).map(|(id, key)| (*id, *key)))?
        };
        match *step {
            Step::Want { client, peer } => {
                proxy.want(if client { Pool::Client(peer) } else { Pool::Server(peer) });
            }
            Step::Finish { at } => {
                if let Some((id, key)) = some(&proxy.active, at) {
                    proxy.active.remove(&id);
                    proxy.idle.insert(id, proxy.register.insert(proxy.now, key, id));
                    proxy.allocator.on_idle(id);
                }
            }
            Step::Close { at } => {
                if let Some((id, _)) = some(&proxy.active, at) {
                    proxy.active.remove(&id);
                    proxy.allocator.on_close(id);
                    proxy.count();
                }
            }
            Step::PeerCloses { at } => {
                let many = proxy.idle.len().max(1);
                let found = proxy.idle.iter().nth(at % many).map(|(id, handle)| (*id, *handle));
                if let Some((id, handle)) = found {
                    assert!(proxy.register.remove(handle).is_some_and(|idle| idle.payload == id));
                    proxy.forget(id);
                }
            }
            Step::Pair { a, b } => {
                if let (Some((a, _)), Some((b, _))) =
                    (some(&proxy.active, a), some(&proxy.active, b))
                {
                    proxy.allocator.on_pair(a, b);
                }
            }
            Step::Look { at, rtt_ms, bytes_received } => {
                if let Some((id, _)) = some(&proxy.active, at) {
                    let rtt = ms(rtt_ms);
                    let facts = ConnectionFacts {
                        rtt,
                        mss: 1_460,
                        bytes_received,
                        ..ConnectionFacts::default()
                    };
                    proxy.allocator.on_facts(proxy.now, id, &facts);
                }
            }
            Step::Tick { after_ms } => {
                proxy.now += ms(after_ms);
                proxy.tick();
            }
        }
        proxy.serve();
        proxy.holds();
    }
}

proptest! {
    #[test]
    fn limits_hold_in_every_scheme(steps in steps()) {
        Scheme::ALL.into_iter().for_each(|scheme| run(scheme, &steps));
    }
}
