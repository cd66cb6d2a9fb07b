//! The relay as a whole: listening, accepting, reloading, stopping.

mod listening;

use crate::access_log::AccessLog;
use crate::accounts::Directory;
use crate::cache::Cache;
use crate::certificate::Certificate;
use crate::failure::Failure;
use crate::households::Households;
use crate::means::Means;
use crate::registry::{Registry, locked};
use crate::resources::{BEAT, Newcomer, Place, Resources};
use crate::seldom::Seldom;
use crate::session::{Session, serve};
use crate::settings::{Settings, Upstream, UpstreamProtocol};
use crate::status::{BudgetStatus, Explanation, Measured, Status, Totals};
use crate::tunnels::{Arrival, Tunnels, measure, reason};
use crate::udp;
use crate::world::World;
use ekiden_linux::answer::Stage;
use ekiden_linux::{clock, memory};
use ekiden_model::reclaim::Reclaim;
use ekiden_model::units::{Span, Time};
use ekiden_tunnel::driver::Incoming;
use ekiden_tunnel::frame::Carries;
use listening::{Bound, Listeners, bind, say_refused};
use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

/// Between two looks at whose connections may stay: these end within a second, with the time in which a change
/// is heard of.
const MEMBERS: Duration = Duration::from_millis(200);

/// Why a relay did not start, or did not take a new configuration.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {error}{}", hint(error))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The kernel's reason.
        error: io::Error,
    },
    /// The access log cannot be opened.
    #[error("cannot open the access log: {0}")]
    AccessLog(io::Error),
    /// The cache's folder cannot be used, or another process has it.
    #[error("{0}")]
    Cache(String),
    /// Tunnels to other relays cannot begin.
    #[error("{0}")]
    Tunnels(Box<dyn std::error::Error + Send + Sync>),
    /// The settings contradict themselves.
    #[error("{0}")]
    Settings(String),
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "; another program is there, perhaps another ekiden: choose another port with --listen"
        }
        io::ErrorKind::PermissionDenied => "; ports below 1024 need CAP_NET_BIND_SERVICE",
        io::ErrorKind::AddrNotAvailable => "; this machine does not have that address",
        _ => "",
    }
}

/// What a graceful stop came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped {
    /// Connections that came to their end.
    pub finished: u64,
    /// Connections that were cut at the limit.
    pub cut: u64,
}

/// A running relay. Dropping it stops listening; live connections go on until the runtime ends.
#[derive(Debug)]
pub struct Server {
    inner: Arc<Inner>,
    /// What it does beside serving: tidying up, the beat, letting in those who waited.
    chores: [JoinHandle<()>; 5],
}

/// A way to look at a running relay.
#[derive(Debug, Clone)]
pub struct Handle {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    world: RwLock<Arc<World>>,
    log: Arc<AccessLog>,
    registry: Arc<Registry>,
    means: Arc<Means>,
    limit: u64,
    peak: AtomicU64,
    listeners: Mutex<Listeners>,
    /// That nothing can be accepted, and that no more may be.
    no_descriptors: Seldom,
    no_room: Seldom,
    stopping: watch::Sender<bool>,
    started: Time,
    reloads: AtomicU64,
}

impl Server {
    /// Listens and begins to serve, on the current tokio runtime.
    ///
    /// A listening port of 0 is replaced by the one the kernel chose; see [`Status::listen`].
    ///
    /// # Errors
    /// [`StartError`]; then nothing is left listening.
    pub fn start(settings: Arc<Settings>) -> Result<Self, StartError> {
        Self::start_with(settings, None)
    }

    /// The same, for households that are known to `directory`; it stays over reloads.
    ///
    /// # Errors
    /// [`StartError`]; then nothing is left listening.
    pub fn start_with(
        settings: Arc<Settings>,
        directory: Option<Arc<dyn Directory>>,
    ) -> Result<Self, StartError> {
        let log = AccessLog::open(&settings.access_log).map_err(StartError::AccessLog)?;
        let (resources, turns) = Resources::new(&settings);
        let movement = settings.relay.movement;
        let cache = Cache::open(&settings.cache).map_err(StartError::Cache)?;
        let households = Households::new(&settings.households);
        let means =
            Means::new(&settings.budgets, movement, Arc::clone(&resources), households, cache);
        let (listeners, settings) = bind(settings, &BTreeMap::new())?;
        let limit = settings.budgets.connections;
        let world = World::new(settings, Arc::clone(&means), directory.clone(), None);
        let world = world.map_err(StartError::Settings)?;
        let inner = Arc::new(Inner {
            world: RwLock::new(Arc::new(world)),
            log: Arc::new(log),
            registry: Arc::new(Registry::new(resources, directory)),
            means,
            limit: limit.into(),
            peak: AtomicU64::new(0),
            listeners: Mutex::default(),
            no_descriptors: Seldom::new(),
            no_room: Seldom::new(),
            stopping: watch::Sender::new(false),
            started: clock::now(),
            reloads: AtomicU64::new(0),
        });
        inner.begin_tunnels().map_err(StartError::Tunnels)?;
        inner.accept_on(listeners);
        let chores = [
            tokio::spawn(tidy(Arc::clone(&inner))),
            tokio::spawn(Arc::clone(&inner.means.households).run()),
            tokio::spawn(beat(Arc::clone(&inner.registry))),
            tokio::spawn(members(Arc::clone(&inner.registry))),
            tokio::spawn(Arc::clone(&inner).let_in(turns)),
        ];
        Ok(Self { inner, chores })
    }

    /// Takes a new configuration: new connections use it, live ones keep theirs; households' limits, buffers,
    /// pressure and pool change at once, and connections in the pool are not used any more. Budgets and the cache are
    /// those of the start.
    ///
    /// # Errors
    /// [`StartError`]; then everything stays as it was.
    pub fn reload(&self, settings: Arc<Settings>) -> Result<(), StartError> {
        let inner = &self.inner;
        let log = AccessLog::open(&settings.access_log).map_err(StartError::AccessLog)?;
        let mut running = locked(&inner.listeners);
        let (listeners, settings) = bind(settings, &running)?;
        let before = inner.world();
        let (means, directory) = (Arc::clone(&inner.means), before.directory.clone());
        let world = World::new(Arc::clone(&settings), means, directory, Some(&before))
            .map_err(StartError::Settings)?;
        let client = settings.legs.get("client").cloned().unwrap_or_default();
        running.retain(|address, (listener, task)| {
            let stays = settings.listen.contains(address);
            if stays {
                // what newcomers inherit; what is no longer asked for stays as it was, but for programs of ours
                let outcomes = client.socket.apply(listener.as_fd(), Stage::Listening);
                say_refused(*address, &outcomes, &client);
            } else {
                task.abort();
            }
            stays
        });
        drop(running);
        *inner.world.write().unwrap_or_else(std::sync::PoisonError::into_inner) = Arc::new(world);
        if let Err(error) = inner.begin_tunnels() {
            tracing::error!("{error}; there are no tunnels until the next reload");
        }
        inner.log.become_other(log);
        inner.means.resources.reload(&settings);
        inner.means.households.configure(&settings.households);
        inner.accept_on(listeners);
        inner.reloads.fetch_add(1, Relaxed);
        Ok(())
    }

    /// Stops: no new connections, idle ones end, live ones may finish within `limit`.
    pub async fn stop(self, limit: Span) -> Stopped {
        let inner = &self.inner;
        inner.stop_listening();
        // before idle ones are told, or those that end at once would not be counted
        let begun = inner.registry.len() as u64;
        inner.stopping.send_replace(true);
        inner.means.resources.stop();
        let wait = async {
            while inner.registry.len() > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let cut = match tokio::time::timeout(limit.into(), wait).await {
            Ok(()) => 0,
            Err(_) => inner.registry.cut_all() as u64,
        };
        if let Some(cache) = &inner.means.cache {
            cache.close().await;
        }
        if let Some(tunnels) = inner.means.tunnels() {
            tunnels.close().await;
        }
        Stopped { finished: begun.saturating_sub(cut), cut }
    }

    /// One look.
    #[must_use]
    pub fn status(&self) -> Status {
        self.inner.status()
    }

    /// A way to look at it from elsewhere.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle { inner: Arc::clone(&self.inner) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.inner.stop_listening();
        self.inner.means.resources.stop();
        self.chores.iter().for_each(JoinHandle::abort);
    }
}

/// Gives memory back after a crowd has left, counts what households moved in a second, looks for paths that drop
/// large packets, for rates that nobody holds any more, and whether the certificate has changed.
async fn tidy(inner: Arc<Inner>) {
    let registry = &inner.registry;
    let mut reclaim = Reclaim::default();
    let mut second = tokio::time::interval(Duration::from_secs(1));
    second.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        second.tick().await;
        registry.look_at_paths();
        inner.means.households.on_second();
        let world = inner.world();
        world.certificate.iter().for_each(Certificate::look);
        world.look_at_legs();
        drop(world);
        if reclaim.on_tick(registry.len(), registry.take_most()) {
            // not in the way of those who are left
            let _ = tokio::task::spawn_blocking(memory::release).await;
        }
    }
}

/// Looks at legs and shares out buffers, ten times a second.
async fn beat(registry: Arc<Registry>) {
    let mut tenth = tokio::time::interval(BEAT.into());
    tenth.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tenth.tick().await;
        registry.resources.beat(|silence| registry.silent(silence));
    }
}

/// Ends what belongs to households that may not be served any more.
async fn members(registry: Arc<Registry>) {
    let mut look = tokio::time::interval(MEMBERS);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        look.tick().await;
        registry.look_at_members();
    }
}

impl Handle {
    /// One look.
    #[must_use]
    pub fn status(&self) -> Status {
        self.inner.status()
    }

    /// Everything about one live connection, by its number; `None` when there is none of that number.
    #[must_use]
    pub fn explain(&self, connection: u64) -> Option<Explanation> {
        let entry = self.inner.registry.find(connection)?;
        Some(entry.explain(&self.inner.means.resources))
    }

    /// Measures the tunnel to a relay: as many seconds in each direction, 1 to 30, by bytes of no meaning that
    /// go beside what flows there anyway.
    pub async fn measure(&self, relay: &str, seconds: u16) -> Measured {
        let mut measured = Measured { relay: relay.to_owned(), ..Measured::default() };
        let means = &self.inner.means;
        let Some(tunnels) = means.tunnels() else {
            measured.error = Some("this relay has no tunnels".to_owned());
            return measured;
        };
        let seconds = seconds.clamp(1, measure::LONGEST);
        let resources = &means.resources;
        for (up, rate) in [(false, &mut measured.received), (true, &mut measured.sent)] {
            match tunnels.measure(resources, relay, seconds, up).await {
                Ok(found) => *rate = Some(found),
                Err(failure) => measured.error = Some(failure.text),
            }
            if measured.error.is_some() {
                break;
            }
        }
        measured.tunnel = tunnels.status().into_iter().find(|tunnel| tunnel.relay == relay);
        measured
    }

    /// The households: their limits while it runs, and what they have used.
    #[must_use]
    pub fn households(&self) -> Arc<Households> {
        Arc::clone(&self.inner.means.households)
    }

    /// Cuts every live connection off, and says how many there were.
    pub fn cut(&self) -> u64 {
        self.inner.registry.cut_all() as u64
    }
}

impl Inner {
    fn world(&self) -> Arc<World> {
        Arc::clone(&self.world.read().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    fn accept_on(self: &Arc<Self>, listeners: Vec<Bound>) {
        let mut running = locked(&self.listeners);
        for (address, listener) in listeners {
            let listener = Arc::new(listener);
            let task = tokio::spawn(Arc::clone(self).accept(Arc::clone(&listener)));
            running.insert(address, (listener, task));
        }
    }

    fn stop_listening(&self) {
        let listeners = std::mem::take(&mut *locked(&self.listeners));
        listeners.into_values().for_each(|(_, task)| task.abort());
    }

    async fn accept(self: Arc<Self>, listener: Arc<TcpListener>) {
        loop {
            let (stream, address) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    self.on_accept_error(&error).await;
                    continue;
                }
            };
            let newcomer = Newcomer { stream: Arc::new(stream), address, arrival: None };
            self.arrive(newcomer);
        }
    }

    fn arrive(&self, newcomer: Newcomer) {
        match self.means.resources.arrive(&newcomer) {
            Some(place) => self.begin(newcomer, place),
            None if self.no_room.is_due() => tracing::warn!(
                limit = self.limit,
                "there is no room for another connection; newcomers wait in turn or are refused"
            ),
            None => {}
        }
    }

    /// Begins with tunnels where some are wanted and there are none yet; they stay to the end.
    fn begin_tunnels(self: &Arc<Self>) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let settings = Arc::clone(&self.world().settings);
        let through = |upstream: &Upstream| upstream.protocol == UpstreamProtocol::Tunnel;
        let wanted = !settings.tunnel.listen.is_empty() || settings.upstreams.values().any(through);
        if !wanted || self.means.tunnels().is_some() {
            return Ok(());
        }
        let (tunnels, incoming) = Tunnels::start(&settings)?;
        // set once: a reload is one at a time
        let _ = self.means.tunnels.set(tunnels);
        let (inner, mut stopping) = (Arc::clone(self), self.stopping.subscribe());
        // flows are connections: none are taken in while the relay stops
        tokio::spawn(async move {
            tokio::select! {
                () = inner.take_in(incoming) => {}
                _ = stopping.wait_for(|stopping| *stopping) => {}
            }
        });
        Ok(())
    }

    /// Begins with what comes out of tunnels.
    async fn take_in(&self, mut incoming: mpsc::Receiver<Incoming>) {
        while let Some(incoming) = incoming.recv().await {
            let Some(tunnels) = self.means.tunnels() else { return };
            if incoming.opening.carries == Carries::Packets {
                self.begin_flow(incoming);
                continue;
            }
            match tunnels.pair().await {
                Ok((outside, inside)) => {
                    let Ok(address) = inside.local_addr() else { continue };
                    let newcomer = Newcomer {
                        stream: Arc::new(outside),
                        address,
                        arrival: Some(Arrival::new(incoming, inside)),
                    };
                    self.arrive(newcomer);
                }
                Err(error) => {
                    let failure = Failure::io("cannot take a flow out of a tunnel", &error);
                    incoming.flow.refuse(reason(failure.kind), failure.text);
                }
            }
        }
    }

    /// Begins with a flow of packets, which stands in the register and in the log as connections do.
    fn begin_flow(&self, incoming: Incoming) {
        self.peak.fetch_max(self.registry.len() as u64 + 1, Relaxed);
        let registered = self.registry.enter((Ipv4Addr::UNSPECIFIED, 0).into());
        let entry = Arc::clone(&registered.entry);
        let flow = udp::Served::new(self.world(), incoming, registered, Arc::clone(&self.log));
        let task = tokio::spawn(flow.serve(self.stopping.subscribe()));
        entry.set_task(task.abort_handle());
    }

    /// Begins with those whose turn it is.
    async fn let_in(self: Arc<Self>, mut turns: mpsc::UnboundedReceiver<(Newcomer, Place)>) {
        while let Some((newcomer, place)) = turns.recv().await {
            self.begin(newcomer, place);
        }
    }

    fn begin(&self, newcomer: Newcomer, place: Place) {
        let Newcomer { stream, address, arrival } = newcomer;
        self.peak.fetch_max(self.registry.len() as u64 + 1, Relaxed);
        let world = self.world();
        let managed = self.means.resources.manage(&stream, &world.client_leg.leg, None);
        let registered = self.registry.enter(address);
        let entry = Arc::clone(&registered.entry);
        entry.legs[0].store(managed.id, Relaxed);
        place.belongs_to(&entry);
        let session = Session {
            world,
            registered,
            client: stream,
            managed,
            address,
            hops: arrival.as_ref().map_or(0, |arrival| arrival.hops()),
            arrival,
            place: Mutex::default(),
            sealed: false,
            log: Arc::clone(&self.log),
            stopping: self.stopping.subscribe(),
        };
        let task = tokio::spawn(async move {
            serve(session).await;
            drop(place);
        });
        entry.set_task(task.abort_handle());
    }

    async fn on_accept_error(&self, error: &io::Error) {
        match error.raw_os_error() {
            // the client was gone before it was accepted
            Some(libc::ECONNABORTED | libc::EINTR | libc::EAGAIN | libc::EPROTO) => {}
            _ => {
                if self.no_descriptors.is_due() {
                    tracing::error!(%error, "cannot accept connections; raise the descriptor limit (LimitNOFILE, ulimit -n) or lower budgets.connections");
                }
                // what is missing comes back only when connections end
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }

    fn status(&self) -> Status {
        let world = self.world();
        let totals = &self.registry.totals;
        let connections = BudgetStatus {
            name: "connections".into(),
            used: self.registry.len() as u64,
            peak: self.peak.load(Relaxed),
            limit: self.limit,
        };
        let [pipes, memory] = self.means.status();
        let (buffers, idle, pressure) = self.means.resources.status();
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            name: world.settings.name.clone(),
            pid: std::process::id(),
            uptime_seconds: clock::now().since(self.started).as_millis() as f64 / 1e3,
            stopping: *self.stopping.borrow(),
            listen: world.settings.listen.clone(),
            reloads: self.reloads.load(Relaxed),
            totals: Totals {
                accepted: totals.accepted.load(Relaxed),
                refused: totals.refused.load(Relaxed),
                failed: totals.failed.load(Relaxed),
                requests: totals.requests.load(Relaxed),
                bytes_up: totals.bytes_up.load(Relaxed),
                bytes_down: totals.bytes_down.load(Relaxed),
            },
            budgets: vec![connections, pipes, memory],
            buffers,
            idle,
            pressure,
            cache: self.means.cache.as_ref().map(|cache| cache.status()),
            households: self.means.households.status(),
            accounts: world.directory.as_ref().map(|directory| directory.status()),
            udp: self.means.udp.status(world.settings.udp.associations.into()),
            upstreams: world.upstream_status(),
            tunnels: self.means.tunnels().map_or_else(Vec::new, Tunnels::status),
            legs: world.leg_status(),
            connections: self.registry.status(),
        }
    }
}
