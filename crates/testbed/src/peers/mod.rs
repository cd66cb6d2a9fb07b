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
pub mod diverted;
pub mod ekiden;
pub mod haproxy;
pub mod http3;
pub mod nginx;
pub mod ports;
pub mod process;
pub mod sing_box;
pub mod squid;
pub mod sshd;
pub mod threaded;
pub mod unbound;

pub use crate::peers::process::PeerHost;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Child;
use tempfile::TempDir;

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
    /// Whatever destinations speak: connections to them are diverted to it.
    Transparent,
    /// A web server.
    HttpServer,
    /// A web server by UDP alone.
    Http3Server,
    /// A name server, by UDP and TCP.
    Resolver,
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
    /// The port it listens on; `None`: a free one.
    pub port: Option<u16>,
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
    child: Child,
    folder: TempDir,
}

/// Why a peer is not there.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// The program is not installed: skip, and say so.
    #[error("{0} is not installed; on Debian: apt-get install {1}")]
    Missing(String, &'static str),
    /// It ended, or ran and did not listen; with the end of its log.
    #[error("{0}")]
    NotListening(String),
    /// Something on this side: a temporary folder, a fork.
    #[error("starting {0}: {1}")]
    Io(String, std::io::Error),
}

/// Where a program is, looked for in `PATH` and where Debian keeps daemons.
pub fn find(program: &str, debian_package: &'static str) -> Result<PathBuf, PeerError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(PathBuf::from))
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
        .ok_or_else(|| PeerError::Missing(program.to_owned(), debian_package))
}

/// Where a program is that Debian has no package of: in `PATH`, or where `go install` and `cargo install` put programs.
fn find_built(program: &str, how: &'static str) -> Result<PathBuf, PeerError> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let go = variable("GOPATH").or_else(|| variable("HOME").map(|home| home.join("go")));
    let cargo = variable("CARGO_HOME").or_else(|| variable("HOME").map(|home| home.join(".cargo")));
    let bin = |folder: Option<PathBuf>| folder.map(|folder| folder.join("bin"));
    let places = [variable("GOBIN"), bin(go), bin(cargo)];
    find(program, how).or_else(|missing| {
        let there = places.into_iter().flatten().map(|folder| folder.join(program));
        there.into_iter().find(|file| file.is_file()).ok_or(missing)
    })
}
