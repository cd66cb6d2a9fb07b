//! A PostgreSQL of a test's own.

use crate::{Authority, PATIENCE};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A PostgreSQL in a temporary folder, reached through a socket there.
#[derive(Debug)]
pub struct Postgres {
    folder: TempDir,
    server: Option<Child>,
    /// Root may not run it.
    user: Option<u32>,
    /// Options of the server.
    options: Vec<String>,
    port: u16,
}

impl Postgres {
    /// Begins one; says why not where it is not installed.
    pub fn begin() -> Option<Self> {
        let mut postgres = Self::new()?;
        postgres.start();
        Some(postgres)
    }

    /// Begins one that has TLS at [`Self::secured_address`] and this authority's certificate for `localhost`; says why not
    /// where it is not installed.
    pub fn begin_secured(authority: &Authority) -> Option<Self> {
        let mut postgres = Self::new()?;
        let made = authority.certify(postgres.folder.path(), "localhost", [2020, 2100]);
        std::os::unix::fs::chown(&made.key, postgres.user, None).unwrap();
        std::fs::set_permissions(&made.key, std::fs::Permissions::from_mode(0o600)).unwrap();
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        postgres.port = free.local_addr().unwrap().port();
        drop(free);
        let files = [("ssl_cert_file", &made.certificate), ("ssl_key_file", &made.key)];
        postgres.options = vec!["listen_addresses=127.0.0.1".to_owned(), "ssl=on".to_owned()];
        let files = files.map(|(option, file)| format!("{option}={}", file.display()));
        postgres.options.extend(files);
        postgres.start();
        Some(postgres)
    }

    fn new() -> Option<Self> {
        let Some(initdb) = program("initdb") else {
            assert!(std::env::var_os("CI").is_none(), "PostgreSQL is not installed");
            eprintln!("SKIPPED: PostgreSQL is not installed; scripts/peers.sh installs it");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        let id = Command::new("id").arg("-u").output().unwrap();
        let root = String::from_utf8_lossy(&id.stdout).trim() == "0";
        let user = root.then_some(65_534); // nobody
        if let Some(user) = user {
            std::os::unix::fs::chown(folder.path(), Some(user), None).unwrap();
        }
        let options = vec!["listen_addresses=".to_owned()];
        let postgres = Self { folder, server: None, user, options, port: 5432 };
        let made = postgres
            .command(&initdb)
            .args(["--auth=trust", "--username=ekiden", "--no-sync", "--encoding=UTF8", "-D"])
            .arg(postgres.data())
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Some(postgres)
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.stdin(Stdio::null()).current_dir(self.folder.path());
        if let Some(user) = self.user {
            command.uid(user);
        }
        command
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Starts it again after [`stop`](Self::stop).
    pub fn start(&mut self) {
        let server = self
            .command(&program("postgres").unwrap())
            .arg("-D")
            .arg(self.data())
            .arg("-k")
            .arg(self.folder.path())
            .args(["-p", &self.port.to_string(), "-c", "fsync=off"])
            .args(self.options.iter().flat_map(|option| ["-c", option]))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        self.server = Some(server);
        let socket = self.folder.path().join(format!(".s.PGSQL.{}", self.port));
        let until = Instant::now() + PATIENCE;
        while std::os::unix::net::UnixStream::connect(&socket).is_err() {
            assert!(Instant::now() < until, "PostgreSQL does not come up");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Ends it at once, as a power cut would.
    pub fn stop(&mut self) {
        if let Some(mut server) = self.server.take() {
            // SIGQUIT: immediate shutdown
            let ended = Command::new("kill").args(["-QUIT", &server.id().to_string()]).status();
            assert!(ended.unwrap().success());
            server.wait().unwrap();
        }
    }

    /// The address of its port, by this name or address.
    pub fn secured_address(&self, host: &str) -> String {
        format!("postgres://ekiden@{host}:{}/postgres", self.port)
    }

    /// The address of its socket.
    pub fn address(&self) -> String {
        let host = self.folder.path().display().to_string().replace('/', "%2F");
        format!("postgres://ekiden@localhost/postgres?host={host}")
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Debian keeps PostgreSQL's programs out of `PATH`.
fn program(name: &str) -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<_> = versions.map(|version| version.path().join("bin").join(name)).collect();
    found.sort();
    let path = std::env::var_os("PATH").unwrap_or_default();
    found.extend(std::env::split_paths(&path).map(|folder| folder.join(name)));
    found.into_iter().rfind(|program| program.is_file())
}
