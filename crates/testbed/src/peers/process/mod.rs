//! A child process with a folder of its own: started, waited for until it listens, ended by its id.

mod host;
mod usage;

pub use host::PeerHost;

use super::{Peer, PeerError, Protocol, Start, find, ports};
use crate::limits;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use usage::Usage;

/// How long a program may take until it listens; Chromium-busy machines need most of it.
const PATIENCE: Duration = Duration::from_secs(20);
const LOG_SHOWN: usize = 4096;

/// A peer to be: its folder and port are there, the program does not run yet.
pub(crate) struct Preparation {
    pub(crate) name: String,
    pub(crate) program: PathBuf,
    pub(crate) folder: TempDir,
    pub(crate) address: SocketAddr,
    pub(crate) version: String,
}

impl Preparation {
    /// Looks for the program, whose version `flag` prints; makes the folder, chooses the port.
    pub(crate) fn new(
        start: &Start,
        name: &str,
        (program, package): (&str, &'static str),
        flag: &str,
    ) -> Result<Self, PeerError> {
        let program = find(program, package)?;
        let version = version(&program, flag);
        Self::of_file(start, name, program, version)
    }

    pub(crate) fn of_file(
        start: &Start,
        name: &str,
        program: PathBuf,
        version: String,
    ) -> Result<Self, PeerError> {
        let made = || {
            let folder = tempfile::Builder::new().prefix("ekiden-peer-").tempdir()?;
            // Daemons give up root and must still write their logs here.
            fs::set_permissions(folder.path(), Permissions::from_mode(0o777))?;
            let mut address = match &start.place {
                Some(place) => ports::elsewhere(place.address),
                None => ports::free()?,
            };
            address.set_port(start.port.unwrap_or_else(|| address.port()));
            Ok((folder, address))
        };
        let (folder, address) = made().map_err(|error| io_error(name, error))?;
        Ok(Self { name: name.to_owned(), program, folder, address, version })
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    pub(crate) fn write(&self, file: &str, text: impl AsRef<[u8]>) -> Result<PathBuf, PeerError> {
        let path = self.path(file);
        fs::write(&path, text).map_err(|error| io_error(&self.name, error))?;
        Ok(path)
    }

    /// Starts it and waits until it accepts.
    pub(crate) fn start(
        self,
        start: &Start,
        arguments: impl IntoIterator<Item = impl Into<OsString>>,
        protocol: Protocol,
    ) -> Result<Peer, PeerError> {
        let Self { name, program, folder, address, version } = self;
        let spawned = || {
            let output = File::create(folder.path().join("output.log"))?;
            let mut command = Command::new(&program);
            command
                .args(arguments.into_iter().map(Into::into))
                .current_dir(folder.path())
                .process_group(0)
                .stdin(Stdio::null())
                .stdout(output.try_clone()?)
                .stderr(output);
            if let Some(place) = &start.place {
                (place.prepare)(&mut command);
            }
            limits::pinned(start.cpu, || command.spawn())?
        };
        let child = spawned().map_err(|error| io_error(&name, error))?;
        let mut peer = Peer { name, version, address, protocol, child, folder };
        let (id, by_udp) = (peer.child.id(), peer.protocol == Protocol::Http3Server);
        let accepts = |address: SocketAddr| match &start.place {
            _ if by_udp => has_udp(id, address.port()),
            Some(place) => (place.accepts)(address),
            None => TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_ok(),
        };
        peer.wait(accepts)?;
        Ok(peer)
    }
}

/// Whether somebody has this port by UDP where the process is. There is nothing to connect to.
fn has_udp(id: u32, port: u16) -> bool {
    let open = |file: &str| fs::read_to_string(format!("/proc/{id}/net/{file}"));
    let (v4, v6) = (open("udp").unwrap_or_default(), open("udp6").unwrap_or_default());
    let port = format!(":{port:04X}");
    let mut sockets =
        v4.lines().chain(v6.lines()).filter_map(|line| line.split_whitespace().nth(1));
    sockets.any(|local| local.ends_with(&port))
}

/// So many addresses for one program, beginning with the one chosen for it.
pub(crate) fn several(peer: &Preparation, count: usize) -> Result<Vec<SocketAddr>, PeerError> {
    let more = (1..count).map(|_| ports::free_on(Ipv4Addr::LOCALHOST));
    let all = std::iter::once(Ok(peer.address)).chain(more).take(count);
    all.collect::<io::Result<_>>().map_err(|error| io_error(&peer.name, error))
}

/// The first line that a program prints with `flag`.
pub fn version(program: &Path, flag: &str) -> String {
    let Ok(output) = Command::new(program).arg(flag).output() else { return String::new() };
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&text).lines().next().unwrap_or_default().trim().to_owned()
}

pub(crate) fn io_error(name: &str, error: io::Error) -> PeerError {
    PeerError::Io(name.to_owned(), error)
}

impl Peer {
    /// Ids of the program and all its descendants, now.
    pub fn processes(&self) -> Vec<u32> {
        usage::tree(self.child.id())
    }

    /// What the whole process tree has cost so far.
    pub fn usage(&self) -> Usage {
        Usage::of_tree(self.child.id())
    }

    /// User and system time of all its processes, those that ended and were waited for too.
    pub fn cpu_time(&self) -> Duration {
        usage::cpu_time(self.child.id())
    }

    /// Its temporary folder: configuration, logs, what it serves.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Whether it still runs.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// The end of what it logged and printed, for error messages.
    pub fn log(&self) -> String {
        let Ok(folder) = fs::read_dir(self.folder.path()) else { return String::new() };
        let mut logs: Vec<PathBuf> = folder
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|e| e == "log"))
            .collect();
        logs.sort();
        let texts = logs.iter().filter_map(|path| fs::read(path).ok());
        texts
            .map(|text| {
                let end = &text[text.len().saturating_sub(LOG_SHOWN)..];
                String::from_utf8_lossy(end).into_owned()
            })
            .collect()
    }

    /// Waits until it accepts.
    fn wait(&mut self, accepts: impl Fn(SocketAddr) -> bool) -> Result<(), PeerError> {
        let (begin, address) = (Instant::now(), self.address);
        let what = loop {
            let ended = self.child.try_wait().map_err(|error| io_error(&self.name, error))?;
            if let Some(status) = ended {
                break format!("ended with {status} instead of listening on {address}");
            }
            if accepts(address) {
                return Ok(());
            }
            if begin.elapsed() >= PATIENCE {
                break format!("did not listen on {address} within {PATIENCE:?}");
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        Err(PeerError::NotListening(format!("{} {what}:\n{}", self.name, self.log())))
    }

    /// Sends SIGTERM and returns whether it was gone within `patience`; if not, it is killed on drop.
    pub fn stop(&mut self, patience: Duration) -> bool {
        if let Some(id) = Pid::from_raw(self.child.id() as i32) {
            let _gone = kill_process(id, Signal::TERM);
        }
        let begin = Instant::now();
        while self.is_alive() {
            if begin.elapsed() > patience {
                return false;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        true
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // An ended and waited-for child's id may already be somebody else's.
        if !self.is_alive() {
            return;
        }
        // children that left the group (sshd's sessions) are descendants only while the parent lives
        let descendants = usage::tree(self.child.id());
        if let Some(group) = Pid::from_raw(self.child.id() as i32) {
            let _gone = kill_process_group(group, Signal::KILL);
        }
        for id in descendants.into_iter().skip(1).filter_map(|id| Pid::from_raw(id as i32)) {
            let _gone = kill_process(id, Signal::KILL);
        }
        let _status = self.child.wait();
    }
}
