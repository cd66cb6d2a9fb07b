//! A stand-in with the shape of `ekiden_proxy::Server`, until that is there: it binds and accepts,
//! counts, and closes.

use ekiden_model::units::Span;
use ekiden_proxy::settings::Settings;
use ekiden_proxy::status::{Status, Totals};
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// Why a server cannot start.
#[derive(Debug)]
pub enum StartError {
    /// An address cannot be listened on.
    Listen {
        /// The address.
        address: SocketAddr,
        /// The kernel's reason.
        error: std::io::Error,
    },
    /// The access log cannot be opened.
    AccessLog(std::io::Error),
    /// The settings contradict themselves.
    Settings(String),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen { address, error } => write!(f, "cannot listen on {address}: {error}"),
            Self::AccessLog(error) => write!(f, "cannot open the access log: {error}"),
            Self::Settings(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for StartError {}

/// What became of the connections at a stop.
#[derive(Debug, Clone, Copy)]
pub struct Stopped {
    /// Ended by themselves.
    pub finished: u64,
    /// Cut at the limit.
    pub cut: u64,
}

/// A server that runs.
#[derive(Debug)]
pub struct Server {
    handle: Handle,
    tasks: JoinSet<()>,
}

/// A look at a server.
#[derive(Debug, Clone)]
pub struct Handle(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    settings: RwLock<Arc<Settings>>,
    listen: Vec<SocketAddr>,
    begun: Instant,
    accepted: AtomicU64,
    reloads: AtomicU64,
}

impl Server {
    /// Binds and accepts.
    ///
    /// # Errors
    /// When an address cannot be listened on.
    pub fn start(settings: Arc<Settings>) -> Result<Self, StartError> {
        let mut listeners = Vec::new();
        let mut listen = Vec::new();
        for address in settings.listen.iter().copied() {
            let failed = |error| StartError::Listen { address, error };
            let listener = std::net::TcpListener::bind(address).map_err(failed)?;
            listener.set_nonblocking(true).map_err(failed)?;
            let listener = TcpListener::from_std(listener).map_err(failed)?;
            listen.push(listener.local_addr().map_err(failed)?);
            listeners.push(listener);
        }
        let shared = Arc::new(Shared {
            settings: RwLock::new(settings),
            listen,
            begun: Instant::now(),
            accepted: AtomicU64::new(0),
            reloads: AtomicU64::new(0),
        });
        let mut tasks = JoinSet::new();
        for listener in listeners {
            let shared = Arc::clone(&shared);
            tasks.spawn(async move {
                loop {
                    if listener.accept().await.is_ok() {
                        shared.accepted.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        Ok(Self { handle: Handle(shared), tasks })
    }

    /// Takes new settings.
    ///
    /// # Errors
    /// When an address cannot be listened on.
    pub fn reload(&self, settings: Arc<Settings>) -> Result<(), StartError> {
        let shared = &self.handle.0;
        *shared.settings.write().unwrap_or_else(PoisonError::into_inner) = settings;
        shared.reloads.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Stops within `limit`.
    pub async fn stop(mut self, _limit: Span) -> Stopped {
        self.tasks.shutdown().await;
        Stopped { finished: 0, cut: 0 }
    }

    /// A look at it.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }
}

impl Handle {
    /// How it is now.
    #[must_use]
    pub fn status(&self) -> Status {
        let shared = &self.0;
        let settings = shared.settings.read().unwrap_or_else(PoisonError::into_inner).clone();
        let accepted = shared.accepted.load(Ordering::Relaxed);
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            name: settings.name.clone(),
            pid: std::process::id(),
            uptime_seconds: shared.begun.elapsed().as_secs_f64(),
            stopping: false,
            listen: shared.listen.clone(),
            reloads: shared.reloads.load(Ordering::Relaxed),
            totals: Totals { accepted, ..Totals::default() },
            budgets: Vec::new(),
            upstreams: Vec::new(),
            connections: Vec::new(),
        }
    }
}
