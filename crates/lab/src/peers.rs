//! Real programs to stand beside: each file writes one program's configuration and starts it.
//!
//! A [`Peer`] runs as a child process group on a free loopback port, is waited for until it accepts,
//! and is ended by its id when dropped. Everything it writes goes into a temporary folder that goes
//! with it. [`Peer::cpu_time`] and its like sum over the whole process tree, since squid, dante and
//! nginx fork.
//!
//! ```no_run
//! use ekiden_lab::peers::{Start, squid};
//! let squid = squid::start(&Start::default())?;
//! println!("{} {} on {}: {:?}", squid.name, squid.version, squid.address, squid.usage().cpu);
//! # Ok::<(), ekiden_lab::peers::PeerError>(())
//! ```

pub mod control;
pub mod dante;
pub mod ekiden;
pub mod haproxy;
pub mod microsocks;
pub mod nginx;
pub mod place;
pub mod ports;
pub mod process;
pub mod sing_box;
pub mod squid;
pub mod sshd;
pub mod usage;

pub use place::Place;
use process::Process;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use usage::Usage;

/// What a peer speaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1 proxy: absolute-form requests and CONNECT.
    HttpProxy,
    /// SOCKS5 without authentication.
    Socks5,
    /// HTTP proxy, SOCKS5 and SOCKS4a on one port.
    AnyProxy,
    /// Forwards each connection to one of these, in turn.
    TcpForward(Vec<SocketAddr>),
    /// A web server.
    HttpServer,
    /// An SSH server.
    SshServer,
}

/// How to start a peer. The default is what a test wants: here, on loopback, no pinning, straight to
/// destinations.
#[derive(Debug, Clone, Default)]
pub struct Start {
    /// Keep the peer, and all it starts, to this processor.
    pub cpu: Option<usize>,
    /// Where it runs; `None`: here, on loopback.
    pub place: Option<Place>,
    /// The relay of the same kind that it goes through to everything.
    pub upstream: Option<SocketAddr>,
}

/// A program that runs, until dropped.
#[derive(Debug)]
pub struct Peer {
    /// As in tables: `squid`, `haproxy splice`.
    pub name: String,
    /// As the program itself says.
    pub version: String,
    /// Where it listens.
    pub address: SocketAddr,
    /// What it speaks there.
    pub protocol: Protocol,
    process: Process,
}

impl Peer {
    /// Ids of the program and all its descendants, now.
    #[must_use]
    pub fn processes(&self) -> Vec<u32> {
        usage::tree(self.process.id())
    }

    /// What the whole process tree has cost so far.
    #[must_use]
    pub fn usage(&self) -> Usage {
        Usage::of_tree(self.process.id())
    }

    /// User and system time of all its processes, those that ended and were waited for too.
    #[must_use]
    pub fn cpu_time(&self) -> Duration {
        usage::cpu_time(self.process.id())
    }

    /// User-space memory in bytes: proportional set size, where a page shared by n processes counts
    /// 1/n in each. Kernel memory such as socket buffers is not in it.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.usage().memory
    }

    /// Open descriptors of all its processes.
    #[must_use]
    pub fn descriptors(&self) -> u64 {
        self.usage().descriptors
    }

    /// Threads of all its processes.
    #[must_use]
    pub fn threads(&self) -> u64 {
        self.usage().threads
    }

    /// Its temporary folder: configuration, logs, what it serves.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.process.folder()
    }

    /// The end of what it logged and printed, for error messages.
    #[must_use]
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// Whether it still runs.
    pub fn is_alive(&mut self) -> bool {
        self.process.is_alive()
    }

    /// Ends it politely (SIGTERM) and answers whether it was gone within `patience`; a peer that is
    /// not gone is killed on drop.
    pub fn stop(&mut self, patience: Duration) -> bool {
        self.process.stop(patience)
    }
}

/// Why a peer is not there.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// The program is not installed: skip, and say so.
    #[error("{program} is not installed; on Debian: apt-get install {debian_package}")]
    Missing {
        /// The program looked for.
        program: String,
        /// Which package has it.
        debian_package: &'static str,
    },
    /// It ended instead of listening.
    #[error("{name} ended with {status} instead of listening on {address}:\n{log}")]
    Ended {
        /// Which peer.
        name: String,
        /// Its exit status.
        status: std::process::ExitStatus,
        /// Where it was to listen.
        address: SocketAddr,
        /// The end of its log.
        log: String,
    },
    /// It runs and does not listen.
    #[error("{name} did not listen on {address} within {patience:?}:\n{log}")]
    Silent {
        /// Which peer.
        name: String,
        /// Where it was to listen.
        address: SocketAddr,
        /// How long it was waited for.
        patience: Duration,
        /// The end of its log.
        log: String,
    },
    /// Something on this side: a temporary folder, a fork.
    #[error("starting {name}: {error}")]
    Io {
        /// Which peer.
        name: String,
        /// What the kernel said.
        error: std::io::Error,
    },
}

/// Where a program is, looked for in `PATH` and where Debian keeps daemons.
///
/// # Errors
/// [`PeerError::Missing`].
pub fn find(program: &str, debian_package: &'static str) -> Result<PathBuf, PeerError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(PathBuf::from))
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
        .ok_or_else(|| PeerError::Missing { program: program.to_owned(), debian_package })
}
