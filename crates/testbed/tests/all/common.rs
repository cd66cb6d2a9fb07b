//! What end-to-end tests share: the accelerator under test, a site behind it, programs that may be missing.
//!
//! A missing program skips a test with a line on standard error; where `CI` is set it fails instead.
//! `EKIDEN_STAND_IN=squid` (or `dante`) puts another proxy in Ekiden's place, to try the tests themselves.

use ekiden_testbed::load::servers::{digest, pattern};
use ekiden_testbed::peers::{self, Peer, PeerError, Start, dante, ekiden, nginx, squid};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

pub(crate) fn skip(why: &str) {
    assert!(std::env::var_os("CI").is_none(), "missing in CI: {why}");
    let test = std::thread::current().name().unwrap_or("?").to_owned();
    eprintln!("SKIPPED: {test}: {why}");
}

/// The peer; `None`, loudly, where it is not installed; a panic where it does not run.
pub(crate) fn present<T>(peer: Result<T, PeerError>) -> Option<T> {
    match peer {
        Ok(peer) => Some(peer),
        Err(e @ PeerError::Missing { .. }) => {
            skip(&e.to_string());
            None
        }
        Err(e) => panic!("{e}"),
    }
}

/// Ekiden, with further configuration.
pub(crate) fn accelerator(more: &str) -> Option<Peer> {
    let start = Start::default();
    if let Ok(other) = std::env::var("EKIDEN_STAND_IN") {
        return match other.as_str() {
            "squid" => present(squid::start(&start)),
            "dante" => present(dante::start(&start)),
            other => panic!("no stand-in {other}"),
        };
    }
    let Some(binary) = ekiden::binary() else {
        skip("no ekiden binary: cargo build, or set EKIDEN_BIN");
        return None;
    };
    present(ekiden::start(&start, &binary, more))
}

/// A command that is ended after a minute; `None`, loudly, where it is not installed.
pub(crate) fn tool(program: &str, package: &'static str) -> Option<Command> {
    let file = present(peers::find(program, package))?;
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", "60"]).arg(file);
    // The surroundings of whoever runs the tests are not part of them.
    for name in ["http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY"]
    {
        command.env_remove(name);
    }
    for name in ["ALL_PROXY", "NO_PROXY"] {
        command.env_remove(name);
    }
    Some(command)
}

/// Runs it, and panics with all it said where it fails.
pub(crate) fn succeed(mut command: Command, proxy: &Peer) -> Output {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}\n{}\n{}{}\nproxy: {}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
        proxy.log(),
    );
    output
}

/// A web server with files.
pub(crate) struct Site {
    pub(crate) folder: TempDir,
    pub(crate) server: Peer,
}

impl Site {
    pub(crate) const FILE_BYTES: u64 = 5_000_011;

    /// With `file.bin`, of known content.
    pub(crate) fn start() -> Option<Self> {
        let folder = tempfile::Builder::new().prefix("ekiden-site-").tempdir().unwrap();
        let mut bytes = Vec::new();
        pattern(1, Self::FILE_BYTES).read_to_end(&mut bytes).unwrap();
        fs::write(folder.path().join("file.bin"), bytes).unwrap();
        let server = present(nginx::http(&Start::default(), folder.path()))?;
        Some(Self { folder, server })
    }

    pub(crate) fn hash() -> String {
        digest(pattern(1, Self::FILE_BYTES)).hash
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.server.address)
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    /// Of each request so far: method, URI, status, bytes, `Via` (`-` for none).
    pub(crate) fn requests(&self) -> Vec<Vec<String>> {
        // nginx writes a request's line when it is done with it, a moment after the client is.
        std::thread::sleep(std::time::Duration::from_millis(100));
        let log = fs::read_to_string(self.server.folder().join("access.log")).unwrap();
        log.lines().map(|l| l.split('\t').map(str::to_owned).collect()).collect()
    }
}

pub(crate) fn hash_of(file: &Path) -> String {
    digest(fs::File::open(file).unwrap()).hash
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}
