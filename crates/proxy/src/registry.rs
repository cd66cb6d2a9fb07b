//! Every live connection, so that it can be looked at and ended.

mod report;

use crate::accounts::{Directory, Member};
use crate::households;
use crate::resources::Resources;
use crate::seen_leg::SeenLeg;
use crate::status::ConnectionStatus;
use crate::world::NamedLeg;
use ekiden_linux::clock;
use ekiden_linux::socket;
use ekiden_model::scheduler::Lane;
use ekiden_model::traffic::{Bursts, Class};
use ekiden_model::units::{Span, Time};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;

/// What a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Protocol {
    New,
    Http,
    Connect,
    Socks5,
    Socks4a,
    Tunnel,
    Udp,
    Tls,
}

const PROTOCOLS: [&str; 8] =
    ["new", "http", "connect", "socks5", "socks4a", "tunnel", "udp", "tls"];

impl Protocol {
    pub(crate) const fn name(self) -> &'static str {
        PROTOCOLS[self as usize]
    }
}

/// Where a connection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum State {
    Reading,
    Connecting,
    Relaying,
    HalfClosed,
    Idle,
    Closing,
}

const STATES: [&str; 6] = ["reading", "connecting", "relaying", "half-closed", "idle", "closing"];

/// Sums over all connections since the start.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) accepted: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) bytes_up: AtomicU64,
    pub(crate) bytes_down: AtomicU64,
}

/// The live connections, by number.
#[derive(Debug)]
pub(crate) struct Registry {
    next: AtomicU64,
    live: Mutex<BTreeMap<u64, Arc<Entry>>>,
    /// The most at once since this was asked last.
    most: AtomicUsize,
    pub(crate) totals: Totals,
    pub(crate) resources: Arc<Resources>,
    /// Whoever knows which households may be served.
    directory: Option<Arc<dyn Directory>>,
}

/// A live connection's place in the register; leaving the scope strikes it out.
#[derive(Debug)]
pub(crate) struct Registered {
    pub(crate) entry: Arc<Entry>,
    registry: Arc<Registry>,
}

/// A connection whose bytes do not move for so long may be stuck: three time-outs take 1.4 s at least.
const STALLED: Span = Span::from_secs(1);

/// Two minutes are longer than any of the kernel's time-outs; what is stuck was seen by then.
const SILENT: Span = Span::from_secs(120);

/// So many bytes relayed have sent segments of full size.
const TELLING: u64 = 64 * 1024;

/// What is known of one live connection.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) id: u64,
    pub(crate) client: SocketAddr,
    since: Time,
    protocol: AtomicU8,
    state: AtomicU8,
    requests: AtomicU64,
    bytes_up: AtomicU64,
    bytes_down: AtomicU64,
    bytes_spliced: AtomicU64,
    detail: Mutex<Detail>,
    /// Numbers of the client's and the upstream leg as their buffers are managed; 0 for none.
    pub(crate) legs: [AtomicU64; 2],
    /// It was closed to make room for another.
    pub(crate) evicted: AtomicBool,
    /// A tunnel that counts as idle.
    pub(crate) silent: AtomicBool,
    pub(crate) task: OnceLock<AbortHandle>,
    /// It is to end, if its task was not known yet when that was decided.
    ended: AtomicBool,
    /// Its place in its household.
    pub(crate) share: Mutex<Weak<households::Member>>,
}

#[derive(Debug)]
struct Detail {
    bursts: Bursts,
    /// Where its legs stand that share a rate held in the kernel.
    lane: Lane,
    last: Time,
    destination: Option<String>,
    through: Arc<[String]>,
    /// Why it goes this way.
    route: Option<Arc<str>>,
    /// The household it belongs to.
    member: Option<Arc<Member>>,
    client: Option<SeenLeg>,
    upstream: Option<SeenLeg>,
}

impl Registry {
    pub(crate) fn new(resources: Arc<Resources>, directory: Option<Arc<dyn Directory>>) -> Self {
        let (next, live) = (AtomicU64::new(0), Mutex::default());
        let (most, totals) = (AtomicUsize::new(0), Totals::default());
        Self { next, live, most, totals, resources, directory }
    }

    pub(crate) fn enter(self: &Arc<Self>, client: SocketAddr) -> Registered {
        let now = clock::now();
        let entry = Arc::new(Entry {
            id: self.next.fetch_add(1, Relaxed) + 1,
            client,
            since: now,
            protocol: AtomicU8::new(Protocol::New as u8),
            state: AtomicU8::new(State::Reading as u8),
            requests: AtomicU64::new(0),
            bytes_up: AtomicU64::new(0),
            bytes_down: AtomicU64::new(0),
            bytes_spliced: AtomicU64::new(0),
            detail: Mutex::new(Detail {
                bursts: Bursts::new(now),
                lane: Lane::Interactive,
                last: now,
                destination: None,
                through: Arc::new([]),
                route: None,
                member: None,
                client: None,
                upstream: None,
            }),
            legs: [AtomicU64::new(0), AtomicU64::new(0)],
            evicted: AtomicBool::new(false),
            silent: AtomicBool::new(false),
            task: OnceLock::new(),
            ended: AtomicBool::new(false),
            share: Mutex::default(),
        });
        self.totals.accepted.fetch_add(1, Relaxed);
        let mut live = locked(&self.live);
        live.insert(entry.id, Arc::clone(&entry));
        self.most.fetch_max(live.len(), Relaxed);
        drop(live);
        Registered { entry, registry: Arc::clone(self) }
    }

    /// The most connections at once since this was asked last.
    pub(crate) fn take_most(&self) -> usize {
        self.most.swap(0, Relaxed)
    }

    pub(crate) fn len(&self) -> usize {
        locked(&self.live).len()
    }

    /// Ends every live connection and says how many there were.
    pub(crate) fn cut_all(&self) -> usize {
        let live: Vec<_> = locked(&self.live).values().cloned().collect();
        live.iter().for_each(|entry| entry.end());
        live.len()
    }

    /// Ends connections of households that may not be served any more.
    pub(crate) fn look_at_members(&self) {
        let Some(directory) = &self.directory else { return };
        let live: Vec<_> = locked(&self.live).values().cloned().collect();
        let mut asked = BTreeMap::new();
        for entry in live {
            let Some(member) = entry.member() else { continue };
            let stays =
                *asked.entry(member.id).or_insert_with(|| match directory.may_stay(member.id) {
                    Ok(()) => true,
                    Err(why) => {
                        tracing::info!(account = %member.name, "its connections are ended: {why}");
                        false
                    }
                });
            if !stays {
                entry.reset_on_close();
                entry.task.get().inspect(|task| task.abort());
            }
        }
    }

    /// Looks at the paths of connections that stopped moving a short while ago: what moves is fine, and
    /// what is long silent has been looked at.
    pub(crate) fn look_at_paths(&self) {
        let now = clock::now();
        let live: Vec<_> = locked(&self.live).values().cloned().collect();
        for entry in live {
            let mut detail = locked(&entry.detail);
            let silent = now.since(detail.last);
            if silent >= STALLED && silent <= SILENT {
                detail.look();
            }
        }
    }

    /// Tunnels on which nothing moved for so long, and that are not known to be silent yet.
    pub(crate) fn silent(&self, span: Span) -> Vec<Arc<Entry>> {
        let now = clock::now();
        let live: Vec<_> = locked(&self.live).values().cloned().collect();
        let is_silent =
            |entry: &Arc<Entry>| entry.is_tunnel() && now.since(locked(&entry.detail).last) >= span;
        live.into_iter().filter(is_silent).collect()
    }

    /// One of them, by its number.
    pub(crate) fn find(&self, id: u64) -> Option<Arc<Entry>> {
        locked(&self.live).get(&id).cloned()
    }

    /// Every live connection, oldest first.
    pub(crate) fn status(&self) -> Vec<ConnectionStatus> {
        // the register is locked for the copying of pointers alone; the kernel is asked afterwards
        let live: Vec<_> = locked(&self.live).values().cloned().collect();
        live.iter().map(|entry| entry.status()).collect()
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        locked(&self.registry.live).remove(&self.entry.id);
    }
}

impl Registered {
    /// A place in the same register for a connection within this one.
    pub(crate) fn within(&self) -> Self {
        self.registry.enter(self.entry.client)
    }

    /// Counts bytes that moved, on this connection and in the sums.
    pub(crate) fn moved(&self, now: Time, up: u64, down: u64, spliced: u64) {
        let (entry, totals) = (&self.entry, &self.registry.totals);
        for (counter, n) in [
            (&entry.bytes_up, up),
            (&entry.bytes_down, down),
            (&entry.bytes_spliced, spliced),
            (&totals.bytes_up, up),
            (&totals.bytes_down, down),
        ] {
            if n > 0 {
                counter.fetch_add(n, Relaxed);
            }
        }
        {
            let mut detail = locked(&entry.detail);
            detail.last = now;
            detail.bursts.on_moved(now, up + down);
            detail.go_by_class();
        }
        if entry.silent.load(Relaxed) {
            self.registry.resources.tunnel_moved(entry);
        }
    }

    /// A request or tunnel begins.
    pub(crate) fn begin(&self, protocol: Protocol, destination: String) {
        self.entry.protocol.store(protocol as u8, Relaxed);
        self.entry.requests.fetch_add(1, Relaxed);
        self.registry.totals.requests.fetch_add(1, Relaxed);
        self.set_state(State::Connecting);
        locked(&self.entry.detail).destination = Some(destination);
    }

    /// The household it belongs to from now on.
    pub(crate) fn set_member(&self, member: Option<Arc<Member>>) {
        locked(&self.entry.detail).member = member;
    }

    pub(crate) fn set_protocol(&self, protocol: Protocol) {
        self.entry.protocol.store(protocol as u8, Relaxed);
    }

    pub(crate) fn set_state(&self, state: State) {
        self.entry.state.store(state as u8, Relaxed);
    }

    pub(crate) fn set_client_leg(&self, leg: SeenLeg) {
        let mut detail = locked(&self.entry.detail);
        detail.takes_its_place(&leg);
        detail.client = Some(leg);
    }

    /// Whether this profile is what the client's leg has.
    pub(crate) fn has_client_leg(&self, leg: &Arc<NamedLeg>) -> bool {
        locked(&self.entry.detail).client.as_ref().is_some_and(|seen| Arc::ptr_eq(&seen.leg, leg))
    }

    pub(crate) fn set_upstream_leg(&self, through: Arc<[String]>, leg: Option<SeenLeg>) {
        let mut detail = locked(&self.entry.detail);
        detail.through = through;
        leg.iter().for_each(|leg| detail.takes_its_place(leg));
        detail.upstream = leg;
    }

    pub(crate) fn set_route(&self, why: &Arc<str>) {
        locked(&self.entry.detail).route = Some(Arc::clone(why));
    }

    pub(crate) fn count_refused(&self) {
        self.registry.totals.refused.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_failed(&self) {
        self.registry.totals.failed.fetch_add(1, Relaxed);
    }

    /// When bytes last moved.
    pub(crate) fn last_moved(&self) -> Time {
        locked(&self.entry.detail).last
    }

    /// Looks at the paths once more before the sockets are closed; not for what was over at once, which has
    /// little to tell and is to be cheap.
    pub(crate) fn look_at_paths(&self) {
        let (up, down) = self.bytes();
        let lived = clock::now().since(self.entry.since);
        if up + down >= TELLING || lived >= STALLED {
            locked(&self.entry.detail).look();
        }
    }

    /// Bytes so far, from the client and to it.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.entry.bytes_up.load(Relaxed), self.entry.bytes_down.load(Relaxed))
    }
}

impl Detail {
    fn look(&mut self) {
        [&mut self.client, &mut self.upstream].into_iter().flatten().for_each(SeenLeg::look);
    }

    /// A leg that was given its profile just now stands before the others.
    fn takes_its_place(&self, leg: &SeenLeg) {
        if self.lane == Lane::Bulk {
            leg.set_lane(Lane::Bulk);
        }
    }

    /// What is bulk waits for what is not.
    fn go_by_class(&mut self) {
        let lane = match self.bursts.class() {
            Class::Bulk => Lane::Bulk,
            Class::Unknown | Class::Interactive => Lane::Interactive,
        };
        if std::mem::replace(&mut self.lane, lane) != lane {
            let legs = [&self.client, &self.upstream].into_iter().flatten();
            legs.for_each(|leg| leg.set_lane(lane));
        }
    }
}

impl Entry {
    /// Whether it is a tunnel of CONNECT or SOCKS that is open in both directions.
    fn is_tunnel(&self) -> bool {
        let protocol = self.protocol.load(Relaxed);
        let tunnels = [Protocol::Connect, Protocol::Socks5, Protocol::Socks4a];
        self.state.load(Relaxed) == State::Relaying as u8
            && !self.silent.load(Relaxed)
            && tunnels.iter().any(|tunnel| *tunnel as u8 == protocol)
    }

    /// The household it belongs to.
    pub(crate) fn member(&self) -> Option<Arc<Member>> {
        locked(&self.detail).member.clone()
    }

    /// The sockets of its legs that are open.
    pub(crate) fn streams(&self) -> Vec<Arc<TcpStream>> {
        let detail = locked(&self.detail);
        let legs = [&detail.client, &detail.upstream].into_iter().flatten();
        legs.filter_map(|leg| leg.stream.upgrade()).collect()
    }

    /// The numbers of both legs.
    pub(crate) fn leg_numbers(&self) -> [u64; 2] {
        [self.legs[0].load(Relaxed), self.legs[1].load(Relaxed)]
    }

    /// The task that serves it.
    pub(crate) fn set_task(&self, task: AbortHandle) {
        // set once, when it begins
        let _ = self.task.set(task);
        if self.ended.load(SeqCst) {
            self.end();
        }
    }

    /// Ends it: both legs are reset.
    pub(crate) fn end(&self) {
        self.ended.store(true, SeqCst);
        if let Some(task) = self.task.get() {
            self.reset_on_close();
            task.abort();
        }
    }

    /// Cut off in the middle, neither end must take it for the end of the stream.
    fn reset_on_close(&self) {
        let detail = locked(&self.detail);
        for leg in [&detail.client, &detail.upstream].into_iter().flatten() {
            leg.stream.upgrade().inspect(|stream| {
                let _ = socket::abort(stream.as_fd());
            });
        }
    }
}

/// What these locks guard is as good after a panic as before.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
