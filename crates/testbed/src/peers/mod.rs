//! Real programs to measure against: each file writes one program's configuration and starts it.
//!
//! A [`Peer`] is a child process group on a free loopback port with a temporary folder; it accepts when it is
//! returned, and ends when dropped. Its costs sum over the process tree, since squid, dante and nginx fork.
//!
//! ```no_run
//! use ekiden_testbed::peers::{Start, squid};
//! let squid = squid::start(&Start::default())?;
//! println!("{} {} on {}: {:?}", squid.name, squid.version, squid.address, squid.usage().cpu);
//! # Ok::<(), ekiden_testbed::peers::PeerError>(())
//! ```

pub mod control;
pub mod dante;
pub mod ekiden;
pub mod haproxy;
pub mod host;
pub mod microsocks;
pub mod nginx;
pub mod ports;
pub mod process;
pub mod sing_box;
pub mod squid;
pub mod sshd;
pub mod usage;

pub use crate::peers::host::PeerHost;
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

/// How to start a peer; by default here, on loopback, not pinned, straight to destinations.
#[derive(Debug, Clone, Default)]
pub struct Start {
    /// Keep the peer, and all it starts, to this processor.
    pub cpu: Option<usize>,
    /// Where it runs; `None`: here, on loopback.
    pub place: Option<PeerHost>,
    /// The relay of the same kind that it goes through to everything.
    pub upstream: Option<SocketAddr>,
}

/// A program that runs, until dropped.
#[derive(Debug)]
pub struct Peer {
    /// As in tables: `squid`, `haproxy splice`.
    pub name: String,
    /// As the program reports it.
    pub version: String,
    /// Where it listens.
    pub address: SocketAddr,
    /// What it speaks there.
    pub protocol: Protocol,
    process: Process,
}

impl Peer {
    /// Ids of the program and all its descendants, now.
    pub fn processes(&self) -> Vec<u32> {
        usage::tree(self.process.id())
    }

    /// What the whole process tree has cost so far.
    pub fn usage(&self) -> Usage {
        Usage::of_tree(self.process.id())
    }

    /// User and system time of all its processes, those that ended and were waited for too.
    pub fn cpu_time(&self) -> Duration {
        usage::cpu_time(self.process.id())
    }

    /// Its temporary folder: configuration, logs, what it serves.
    pub fn folder(&self) -> &Path {
        self.process.folder()
    }

    /// The end of what it logged and printed, for error messages.
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// Whether it still runs.
    pub fn is_alive(&mut self) -> bool {
        self.process.is_alive()
    }

    /// Sends SIGTERM and returns whether it was gone within `patience`; if not, it is killed on drop.
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
    /// It ended, or ran and did not listen; with the end of its log.
    #[error("{0}")]
    NotListening(String),
    /// Something on this side: a temporary folder, a fork.
    #[error("starting {name}: {error}")]
    Io {
        /// Which peer.
        name: String,
        /// The kernel's error.
        error: std::io::Error,
    },
}

/// Where a program is, looked for in `PATH` and where Debian keeps daemons.
pub fn find(program: &str, debian_package: &'static str) -> Result<PathBuf, PeerError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(PathBuf::from))
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
        .ok_or_else(|| PeerError::Missing { program: program.to_owned(), debian_package })
}
