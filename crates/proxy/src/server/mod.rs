//! The relay as a whole: listening, accepting, reloading, stopping.

mod alerts;
mod diversion;
mod dns;
mod explain;
mod forwards;
mod gateway;
mod housekeeping;
mod listener;
mod orders;
mod proxy_header;
mod quic;
mod reload;
mod status;
#[cfg(feature = "wireguard")]
mod wireguard;
#[cfg(not(feature = "wireguard"))]
#[path = "wireguard/absent.rs"]
mod wireguard;

use crate::cache::Cache;
use crate::observe::access_log::AccessLog;
use crate::observe::log_throttle::LogThrottle;
use crate::observe::registry::Registry;
use crate::observe::status::Status;
use crate::policy::accounts::Directory;
use crate::policy::own_addresses;
use crate::resources::Resources;
use crate::runtime::RuntimeConfig;
use crate::runtime::shared::Shared;
use crate::settings::Settings;
pub use diversion::{Ports, divert_plan};
use dns::NamePorts;
use ekiden_linux::host::clock;
use ekiden_linux::host::memory::ProcessMemory;
use ekiden_model::units::Time;
use forwards::{ForwardedPorts, bind_forwards};
use gateway::GatewayDoor;
use housekeeping::background_tasks;
use listener::{Listeners, bind};
pub use orders::SecureStream;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use wireguard::{WireguardDoor, check_wireguard};

/// Why a relay did not start, or did not take a new configuration.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum StartError {
    #[error("cannot listen on {address}: {error}{}", hint(address, error))]
    Listen { address: SocketAddr, error: io::Error },
    #[error("cannot open the access log: {0}")]
    AccessLog(io::Error),
    /// The cache's folder is unusable, or another process holds it.
    #[error("{0}")]
    Cache(String),
    #[error("{0}")]
    Tunnels(Box<dyn std::error::Error + Send + Sync>),
    #[error("{0}")]
    Settings(String),
}

fn hint(address: &SocketAddr, error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse if address.port() == 53 => {
            "; another program answers names there, perhaps systemd-resolved or dnsmasq: `ekiden doctor` says which"
        }
        io::ErrorKind::PermissionDenied => "; ports below 1024 need CAP_NET_BIND_SERVICE",
        io::ErrorKind::AddrNotAvailable => "; this machine does not have that address",
        _ => "",
    }
}

/// The result of a graceful stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped {
    /// Connections that finished.
    pub finished: u64,
    /// Connections that were reset at the limit.
    pub cut: u64,
}

/// A running relay. Its drop stops listening; live connections go on until the runtime ends.
#[derive(Debug)]
pub struct Server {
    inner: Arc<Inner>,
    background_tasks: [JoinHandle<()>; 5],
}

/// Access to a running relay for its operator.
#[derive(Debug, Clone)]
pub struct Handle {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    config: watch::Sender<Arc<RuntimeConfig>>,
    log: Arc<AccessLog>,
    registry: Arc<Registry>,
    shared: Arc<Shared>,
    limit: u64,
    peak: AtomicU64,
    /// Of the last look at it.
    memory: Mutex<Option<ProcessMemory>>,
    listeners: Mutex<Listeners>,
    forwards: Mutex<ForwardedPorts>,
    gateway: Mutex<GatewayDoor>,
    #[cfg_attr(not(feature = "wireguard"), expect(dead_code, reason = "there is no such door"))]
    wireguard: Mutex<WireguardDoor>,
    dns: Mutex<NamePorts>,
    no_descriptors: LogThrottle,
    no_room: LogThrottle,
    stopping: watch::Sender<bool>,
    started: Time,
    reloads: AtomicU64,
    reloads_refused: AtomicU64,
    /// Since the last reload was refused, and why.
    refused_reload: Mutex<Option<(Time, Vec<String>)>>,
    /// A test wants the task to panic at which the next client arrives.
    #[cfg(test)]
    panics: std::sync::atomic::AtomicBool,
}

impl Server {
    /// Listens and begins to serve, on the current tokio runtime. The kernel chooses for port 0;
    /// see [`Status::listen`]. After [`StartError`] nothing is left listening.
    pub fn start(settings: Arc<Settings>) -> Result<Self, StartError> {
        Self::start_with(settings, None)
    }

    /// The same, with accounts from `directory`, which reloads keep.
    pub fn start_with(
        settings: Arc<Settings>,
        directory: Option<Arc<dyn Directory>>,
    ) -> Result<Self, StartError> {
        check_wireguard(&settings)?;
        own_addresses::begin();
        let log = AccessLog::open(&settings.access_log).map_err(StartError::AccessLog)?;
        let (resources, admitted) = Resources::new(&settings, directory.is_some());
        let cache = Cache::open(&settings.cache, settings.budgets.memory);
        let cache = cache.map_err(StartError::Cache)?;
        let registry = Arc::new(Registry::new(Arc::clone(&resources) as _));
        let shared = Shared::new(&settings, resources, cache);
        let (listeners, settings) = bind(settings, &BTreeMap::new())?;
        let forwards = bind_forwards(&settings, &BTreeMap::new())?;
        let limit = settings.budgets.connections;
        let config = RuntimeConfig::new(settings, Arc::clone(&shared), directory.clone(), None)
            .map_err(StartError::Settings)?;
        let inner = Arc::new(Inner {
            config: watch::Sender::new(Arc::new(config)),
            log: Arc::new(log),
            registry,
            shared,
            limit: limit.into(),
            peak: AtomicU64::new(0),
            memory: Mutex::default(),
            listeners: Mutex::default(),
            forwards: Mutex::default(),
            gateway: Mutex::default(),
            wireguard: Mutex::default(),
            dns: Mutex::default(),
            no_descriptors: LogThrottle::new(),
            no_room: LogThrottle::new(),
            stopping: watch::Sender::new(false),
            started: clock::now(),
            reloads: AtomicU64::new(0),
            reloads_refused: AtomicU64::new(0),
            refused_reload: Mutex::default(),
            #[cfg(test)]
            panics: Default::default(),
        });
        // who came before would have no limits, and stay beyond them
        if let Some(directory) = &directory {
            directory.begin(&inner.shared.quotas);
        }
        inner.start_tunnels().map_err(StartError::Tunnels)?;
        inner.accept_on(listeners);
        let settings = Arc::clone(&inner.config().settings);
        inner.forward_on(&settings, forwards);
        inner.answer_names_on(&settings);
        inner.open_gateway(&settings);
        inner.open_wireguard(&settings);
        let background_tasks = background_tasks(&inner, directory, admitted);
        Ok(Self { inner, background_tasks })
    }

    /// The current status.
    pub fn status(&self) -> Status {
        self.inner.status()
    }

    /// Access to the relay from elsewhere.
    pub fn handle(&self) -> Handle {
        Handle { inner: Arc::clone(&self.inner) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.inner.close_wireguard();
        self.inner.close_gateway();
        self.inner.stop_listening();
        self.inner.stop_answering_names();
        self.inner.shared.resources.stop();
        self.background_tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Inner {
    fn config(&self) -> Arc<RuntimeConfig> {
        Arc::clone(&self.config.borrow())
    }

    #[cfg(test)]
    fn panic_if_asked(&self) {
        let panics = self.panics.swap(false, std::sync::atomic::Ordering::AcqRel);
        assert!(!panics, "a test asked for it");
    }
}
