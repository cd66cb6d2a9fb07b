//! All managed legs: by number, by the tick that looks at them, how many lead to each address, and what waits in those
//! of each connection.

use super::TICKS_PER_LOOK;
use super::leg::Leg;
use super::place::Place;
use super::reading::DueLook;
use ekiden_model::resources::buffers::Side;
use ekiden_model::resources::overload::{PlaceId, Source, Sources};
use ekiden_model::resources::socket_memory::{QueueProgress, ServedConnection};
use ekiden_model::units::Time;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Whose socket memory it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Holder {
    Address(Source),
    /// By number.
    Account(i64),
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(source) => source.fmt(f),
            Self::Account(id) => write!(f, "account {id}"),
        }
    }
}

/// What waits in one direction of a connection.
#[derive(Debug, Default, Clone, Copy)]
struct Direction {
    held: u64,
    /// Since when its reader accepted nothing, and the relay took nothing of what arrived.
    sent: Option<Time>,
    taken: Option<Time>,
}

impl Direction {
    /// Of several legs, the one that moved last counts.
    fn add(&mut self, side: Side, queue: QueueProgress) {
        self.held += queue.held();
        let since = match side {
            Side::Send => &mut self.sent,
            Side::Receive => &mut self.taken,
        };
        *since = (*since).max(queue.still_since());
    }

    fn still_since(&self) -> Option<Time> {
        // a full sink holds the rest back
        self.sent.or(self.taken)
    }
}

/// What waits in the legs of a client's connection, and of all within it: towards the client, and from it.
#[derive(Debug)]
struct Waiting {
    place: PlaceId,
    account: Option<i64>,
    directions: [Direction; 2],
}

#[derive(Debug, Default)]
pub(super) struct Legs {
    /// By tick and number, so that a tick walks over its own legs alone. Boxed: a map of numbers that only
    /// grow keeps half of its room empty.
    legs: BTreeMap<(u64, u64), Box<Leg>>,
    /// Outgoing legs by remote address.
    towards: HashMap<SocketAddr, u64>,
}

const fn key(id: u64) -> (u64, u64) {
    (id % TICKS_PER_LOOK, id)
}

impl Legs {
    /// Adds one, by a number that no other has.
    pub(super) fn insert(&mut self, id: u64, leg: Leg) {
        if let Some(to) = leg.to {
            *self.towards.entry(to).or_default() += 1;
        }
        self.legs.insert(key(id), Box::new(leg));
    }

    pub(super) fn remove(&mut self, id: u64) {
        let to = self.legs.remove(&key(id)).and_then(|leg| leg.to);
        if let Some(to) = to
            && let Some(count) = self.towards.get_mut(&to)
        {
            *count -= 1;
            if *count == 0 {
                self.towards.remove(&to);
            }
        }
    }

    pub(super) fn get(&self, id: u64) -> Option<&Leg> {
        self.legs.get(&key(id)).map(|leg| &**leg)
    }

    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut Leg> {
        self.legs.get_mut(&key(id)).map(|leg| &mut **leg)
    }

    pub(super) fn contains(&self, id: u64) -> bool {
        self.legs.contains_key(&key(id))
    }

    pub(super) fn len(&self) -> usize {
        self.legs.len()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Leg> {
        self.legs.values().map(|leg| &**leg)
    }

    /// The most legs that lead to one address, and that address.
    pub(super) fn most_towards(&self) -> Option<(u64, SocketAddr)> {
        self.towards.iter().map(|(to, legs)| (*legs, *to)).max()
    }

    /// What the connections of clients hold as of their last looks, without those between two requests and those out of
    /// tunnels.
    pub(super) fn served(
        &self,
        sources: &Sources<Arc<Place>>,
    ) -> Vec<(PlaceId, ServedConnection<Holder>)> {
        let mut all = BTreeMap::<u64, Waiting>::new();
        for leg in self.values().filter(|leg| !leg.idle) {
            let Some(owner) = leg.activity.owner() else { continue };
            let mut root = &owner;
            while let Some(outer) = root.outer() {
                root = outer;
            }
            let Some(place) = root.place().filter(|_| !root.evicted.load(Relaxed)) else {
                continue;
            };
            let new = Waiting { place, account: None, directions: Default::default() };
            let waiting = all.entry(root.id).or_insert(new);
            waiting.account = waiting.account.or_else(|| owner.account().map(|known| known.id));
            let outgoing = usize::from(leg.to.is_some());
            for (side, direction) in [(Side::Send, outgoing), (Side::Receive, 1 - outgoing)] {
                waiting.directions[direction].add(side, leg.activity.queue(side));
            }
        }
        let of = |waiting: Waiting| {
            let [down, up] = waiting.directions;
            let address = match sources.source(waiting.place) {
                None | Some(Source::Peer(_)) => None,
                Some(source) => Some(Holder::Address(source)),
            };
            let holder = match waiting.account {
                Some(account) => Holder::Account(account),
                // its tunnel may be what holds a peer's flows up
                None => address?,
            };
            let most = if down.held >= up.held { down } else { up };
            let one = ServedConnection {
                holder,
                address,
                account: waiting.account.is_some(),
                held: down.held + up.held,
                still_since: most.still_since(),
            };
            Some((waiting.place, one))
        };
        all.into_values().filter_map(of).collect()
    }

    /// The legs that the kernel is asked about in this tick.
    pub(super) fn due(&mut self, tick: u64) -> Vec<DueLook> {
        let turn = tick % TICKS_PER_LOOK;
        let legs = self.legs.range_mut((turn, 0)..(turn + 1, 0));
        legs.filter_map(|((_, id), leg)| leg.due(*id)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::destination::Destination;
    use crate::observe::leg_stats::LegStats;
    use crate::observe::registry::ConnectionEntry;
    use crate::resources::admission::AcceptedClient;
    use crate::resources::origin::Origin;
    use crate::resources::{AdmissionPermit, Deferred, Owner, PoolKey, Resources, State};
    use crate::runtime::RuntimeConfig;
    use crate::runtime::shared::Shared;
    use crate::settings::Settings;
    use crate::transfer::buffered::BufferedStream;
    use crate::transfer::end::End;
    use ekiden_linux::host::clock;
    use ekiden_linux::host::sync::locked;
    use ekiden_linux::host::usage::Usage;
    use ekiden_linux::sockets::apply::Inherited;
    use ekiden_model::resources::buffers::NewConnection;
    use ekiden_model::resources::overload::Resource;
    use ekiden_model::units::Span;
    use std::io::{Read as _, Write as _};
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering::SeqCst;
    use std::task::{Context, Wake, Waker};
    use tokio::net::TcpStream;

    const LARGE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    const SMALL: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1));

    /// A client of an address, a request of which is served, with `sent` bytes at most on their way to it.
    struct Client {
        permit: AdmissionPermit,
        _stream: Arc<TcpStream>,
        other: std::net::TcpStream,
    }

    fn pair() -> (std::net::TcpStream, std::net::TcpStream) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        stream.set_nonblocking(true).unwrap();
        (stream, listener.accept().unwrap().0)
    }

    fn newcomer(from: IpAddr) -> AcceptedClient {
        let (stream, other) = pair();
        // who waits has not gone
        std::mem::forget(other);
        let stream = TcpStream::from_std(stream).unwrap();
        AcceptedClient::new(stream.into(), (from, 1).into(), Inherited::default())
    }

    /// Keeps a connection to this address for the next request; its other end.
    fn keep(resources: &Arc<Resources>, config: &RuntimeConfig, to: &str) -> std::net::TcpStream {
        let (stream, other) = pair();
        let stream = End::from(TcpStream::from_std(stream).unwrap());
        let to: SocketAddr = to.parse().unwrap();
        let (leg, peer) = (Arc::clone(config.direct_leg()), to.ip());
        let origin = Origin {
            stats: LegStats::new(stream.downgrade(), peer, Arc::clone(&leg), None),
            managed: resources.manage(&stream, &leg.leg, Some(to)),
            incoming: BufferedStream::new(stream, Vec::new()),
            destination: None,
            asks_proxy: None,
            answer: None,
            route: Arc::clone(config.route(&Destination::parse("example.org:80", None).unwrap())),
            leg,
            through: Arc::default(),
            peer,
            keeper: SMALL.into(),
            reused: false,
            idle_since: clock::now(),
            kept_for: None,
            own: false,
        };
        let key = origin.key(Owner { client: 1, account: None });
        resources.put_idle(Box::new(origin), key);
        other
    }

    impl Client {
        fn new(resources: &Arc<Resources>, id: u64, from: IpAddr, sent: usize) -> Self {
            let (mut stream, other) = pair();
            let bytes = vec![1; 64 << 10];
            let mut left = sent;
            while left > 0
                && stream.write(&bytes[..left.min(bytes.len())]).is_ok_and(|n| {
                    left -= n;
                    n > 0
                })
            {}
            let stream = Arc::new(TcpStream::from_std(stream).unwrap());
            let entry = Arc::new(ConnectionEntry::new(id, (from, 1).into(), None));
            entry.legs[0].store(id, Relaxed);
            let place = {
                let state = &mut *locked(&resources.state);
                let leg = Leg::new(&stream, None, &NewConnection::default(), false);
                state.legs.insert(id, leg);
                state.take_place(clock::now(), from.into())
            };
            let permit = AdmissionPermit::counted(resources, place, false);
            permit.assign_to(&entry);
            permit.serve().unwrap();
            // kept as its task would keep it
            std::mem::forget(entry);
            Self { permit, _stream: stream, other }
        }

        fn is_closed(&self) -> bool {
            self.permit.place.evicted.load(SeqCst)
        }
    }

    /// Looks at all legs, and frees socket memory, of which all is in use.
    fn look(resources: &Arc<Resources>, second: u64) {
        let now = Time::ZERO + Span::from_secs(1_000 + second);
        resources.change(|state, deferred| {
            for tick in 0..TICKS_PER_LOOK {
                let seen: Vec<_> = state.legs.due(tick).iter().filter_map(DueLook::look).collect();
                state.on_readings(now, &seen);
            }
            state.pressure.on_level(Resource::SocketMemory, 100, Some(100));
            state.free_socket_memory(now, deferred);
        });
    }

    #[tokio::test]
    async fn readers_that_stopped_give_socket_memory_to_another_address() {
        let resources = Resources::new(&Settings::default(), false).0;
        let stopped = Client::new(&resources, 1, LARGE, usize::MAX);
        let mut reads = Client::new(&resources, 2, LARGE, 8 << 20);
        for second in 0..20 {
            look(&resources, second);
        }
        assert!(!stopped.is_closed(), "nobody else is there");
        let small = Client::new(&resources, 3, SMALL, 0);
        let mut some = [0; 4_096];
        for second in 20..22 {
            reads.other.read_exact(&mut some).unwrap();
            look(&resources, second);
        }
        assert!(stopped.is_closed() && !reads.is_closed() && !small.is_closed());
        let state = locked(&resources.state);
        assert_eq!((state.counts.stalled_evicted, state.counts.silent_evicted), (1, 0));
    }

    #[tokio::test]
    async fn a_newcomer_that_holds_little_does_not_wait_for_socket_memory() {
        let resources = Resources::new(&Settings::default(), false).0;
        let _held = Client::new(&resources, 1, LARGE, usize::MAX);
        let _other = Client::new(&resources, 2, SMALL, 0);
        look(&resources, 0);
        assert!(resources.admit(&newcomer(LARGE)).is_err());
        let waiting = || locked(&resources.state).admission.waiting();
        assert_eq!(waiting(), 1);
        assert!(resources.admit(&newcomer(SMALL)).is_ok());
        assert_eq!(waiting(), 1, "the large one waits on");
        // who waits is looked at again, once it holds little
        resources.change(|state, deferred: &mut Deferred| {
            state.socket_memory.on_low(
                Time::ZERO + Span::from_secs(1_001),
                ekiden_model::resources::socket_memory::SocketShortage { limit: 1, excess: 1 },
                &[],
            );
            state.serve(deferred);
        });
        assert_eq!(waiting(), 0);
    }

    #[tokio::test]
    async fn clients_that_wait_do_not_keep_themselves_out() {
        let mut settings = Settings::default();
        settings.pressure.waiting = 100;
        let resources = Resources::new(&settings, false).0;
        let client = newcomer(SMALL);
        let level = |state: &mut State, used| {
            let usage = state.without_waiting(Usage { used, most: Some(1_000) });
            state.pressure.on_level(Resource::Descriptors, usage.used, usage.most);
        };
        resources.change(|state, deferred| {
            level(state, 1_000);
            for _ in 0..100 {
                state.admission.wait(clock::now(), client.clone());
            }
            state.serve(deferred);
            assert_eq!(state.admission.waiting(), 100, "all are in use");
            // more than nine tenths with those who wait, and less without them
            level(state, 905);
            state.serve(deferred);
            assert_eq!(state.admission.waiting(), 0);
        });
    }

    #[tokio::test]
    async fn ports_towards_one_address_are_no_matter_of_the_others() {
        let settings = Settings::default();
        let resources = Resources::new(&settings, false).0;
        let shared = Shared::new(&settings, Arc::clone(&resources), None);
        let config = RuntimeConfig::new(Arc::new(settings), shared, None, None).unwrap();
        let (full, other) = ("192.0.2.7:443", "192.0.2.8:443");
        let mut kept = Vec::from([full, full, other].map(|to| keep(&resources, &config, to)));
        resources.change(|state, deferred| {
            state.pressure.on_level(Resource::Ports, 100, Some(100));
            let fullest = state.legs.most_towards();
            assert_eq!(fullest, Some((2, full.parse().unwrap())));
            state.free_ports(fullest.map(|(_, to)| to), deferred);
            state.relieve(deferred);
            assert_eq!(state.counts.evicted, [0, 0, 0, 0, 2]);
        });
        let kept_now = || locked(&resources.state).watchers.len();
        assert_eq!(kept_now(), 1, "the other address's");
        assert!(resources.admit(&newcomer(SMALL)).is_ok());
        // nor does another one stay
        kept.extend([full, other].map(|to| keep(&resources, &config, to)));
        assert_eq!(kept_now(), 2);
    }

    /// Whether it was woken.
    #[derive(Default)]
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, SeqCst);
        }
    }

    #[tokio::test]
    async fn a_watcher_that_is_late_does_not_wake_in_place_of_the_next_reader() {
        let settings = Settings::default();
        let resources = Resources::new(&settings, false).0;
        let shared = Shared::new(&settings, Arc::clone(&resources), None);
        let config = RuntimeConfig::new(Arc::new(settings), shared, None, None).unwrap();
        let mut server = keep(&resources, &config, "192.0.2.7:80");
        let watched = {
            let state = locked(&resources.state);
            Arc::clone(&state.watchers.first_key_value().unwrap().1.watched)
        };
        let route = config.route(&Destination::parse("example.org:80", None).unwrap());
        let origin = resources.take_idle(PoolKey::new(route, Arc::default(), None, None)).unwrap();
        let reader = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&reader));
        let asked = origin.stream().poll_read_ready(&mut Context::from_waker(&waker));
        assert!(asked.is_pending());
        // its poll was under way as the connection was taken, on another thread
        let late = Waker::from(Arc::new(Woken::default()));
        let _asked = watched.poll(&mut Context::from_waker(&late));
        server.write_all(b"HTTP/1.1").unwrap();
        // who waits by a list of its own is woken along with the one task
        origin.stream().readable().await.unwrap();
        assert!(reader.0.load(SeqCst), "it sleeps beside its answer");
    }
}
