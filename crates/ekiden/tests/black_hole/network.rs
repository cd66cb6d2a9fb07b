//! The machines, and what runs on them.

use ekiden_emulator::topology::{
    Host, HostPlan, LinkPlan, Process, ProcessPlan, Topology, TopologyPlan,
};
use ekiden_linux::host::sysctl;
use ekiden_model::network::link::Config;
use ekiden_model::units::Span;
use std::cell::RefCell;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{fs, thread};

/// What a download has, bytes.
pub(crate) const LENGTH: usize = 200_000;

const PORT: u16 = 7000;
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Network {
    relay: RefCell<Option<Process>>,
    folder: tempfile::TempDir,
    topology: Topology,
}

impl Network {
    pub(crate) fn build() -> Result<Self, String> {
        let host = |name: &str, router| HostPlan {
            name: name.to_owned(),
            router,
            sysctls: [("net.ipv4.tcp_mtu_probing".to_owned(), "0".to_owned())].into(),
            ..HostPlan::default()
        };
        let direction = || Config { delay: Span::from_millis(2), ..Config::default() };
        let link = |a: &str, b: &str, mtu| LinkPlan {
            name: format!("{a}-{b}"),
            between: [a.to_owned(), b.to_owned()],
            mtu,
            super_packets: false,
            one_by_one: true,
            forward: direction(),
            backward: direction(),
        };
        let plan = TopologyPlan {
            hosts: vec![
                host("server", false),
                host("relay", false),
                host("near", true),
                host("far", true),
                host("client", false),
            ],
            links: vec![
                link("server", "relay", 1500),
                link("relay", "near", 1500),
                link("near", "far", 1200),
                link("far", "client", 1500),
            ],
            processes: Vec::new(),
        };
        let topology = Topology::build(&plan).map_err(|error| error.to_string())?;
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let this = Self { relay: RefCell::new(None), folder, topology };
        // what it forwards passes; what it says itself does not get there
        let relay = this.address("relay").to_string();
        this.run("near", &["ip", "rule", "add", "iif", "lo", "to", &relay, "blackhole"])?;
        Ok(this)
    }

    /// No black hole any more: what is too large is answered.
    pub(crate) fn let_routers_speak(&self) {
        let relay = self.address("relay").to_string();
        self.run("near", &["ip", "rule", "del", "iif", "lo", "to", &relay, "blackhole"]).unwrap();
    }

    fn host(&self, name: &str) -> &Host {
        self.topology.host(name).unwrap()
    }

    fn address(&self, name: &str) -> IpAddr {
        self.topology.address(name).unwrap()
    }

    fn run(&self, host: &str, words: &[&str]) -> Result<(), String> {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        self.host(host).place(&mut command).map_err(|error| error.to_string())?;
        let output = command.output().map_err(|error| format!("{}: {error}", words[0]))?;
        let why = || format!("{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        if output.status.success() { Ok(()) } else { Err(why()) }
    }

    /// A setting of the relay's machine.
    pub(crate) fn set(&self, name: &str, value: &str) {
        self.host("relay").run(|| sysctl::write(name, value)).unwrap().unwrap();
    }

    /// Starts the server, and the relay with `keys` beside what it needs.
    pub(crate) fn serve(&self, keys: &str) {
        let listener =
            self.host("server").run(|| TcpListener::bind(("0.0.0.0", PORT))).unwrap().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let _ = stream.unwrap().write_all(&[b'e'; LENGTH]);
            }
        });
        let file = self.folder.path().join("config.toml");
        let all = format!(
            "listen = [\"{}:3128\"]\ncontrol = \"{}\"\n[management]\nlisten = \"off\"\n[access]\n\
             allow_destinations = [\"100.64.0.0/10\"]\n[[rule]]\nfrom = [\"100.64.0.0/10\"]\n\
             action = \"allow\"\n{keys}",
            self.address("relay"),
            self.socket()
        );
        fs::write(&file, all).unwrap();
        let binary = env!("CARGO_BIN_EXE_ekiden");
        let plan = ProcessPlan {
            host: "relay".to_owned(),
            command: format!("exec {binary} serve --config {}", file.display()),
            ready: Some(3128),
        };
        let relay = Process::start(self.host("relay"), &plan, PATIENCE).unwrap();
        *self.relay.borrow_mut() = Some(relay);
    }

    fn socket(&self) -> String {
        self.folder.path().join("socket").display().to_string()
    }

    /// Fetches what the server has, through the relay: how many bytes come until the end, or until nothing
    /// comes for so long.
    pub(crate) fn download(&self, patience: Duration) -> JoinHandle<usize> {
        let (relay, server) = (self.address("relay"), self.address("server"));
        let relay = SocketAddr::new(relay, 3128);
        let mut stream = self.host("client").run(|| TcpStream::connect(relay)).unwrap().unwrap();
        thread::spawn(move || {
            stream.set_read_timeout(Some(patience)).unwrap();
            write!(stream, "CONNECT {server}:{PORT} HTTP/1.1\r\nHost: {server}\r\n\r\n").unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                head.push(byte[0]);
            }
            assert!(head.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&head));
            let mut got = 0;
            let mut buffer = vec![0; 65_536];
            while let Ok(n) = stream.read(&mut buffer) {
                if n == 0 {
                    break;
                }
                got += n;
            }
            got
        })
    }

    fn ask(&self, words: &[&str]) -> String {
        let socket = self.socket();
        let mut command = Command::new(env!("CARGO_BIN_EXE_ekiden"));
        command.args(words).args(["--socket", &socket]);
        self.host("relay").place(&mut command).unwrap();
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    }

    pub(crate) fn status(&self) -> serde_json::Value {
        serde_json::from_str(&self.ask(&["status", "--json"])).unwrap()
    }

    pub(crate) fn status_text(&self) -> String {
        self.ask(&["status"])
    }

    pub(crate) fn doctor(&self) -> String {
        self.ask(&["doctor"])
    }

    /// Asks until there is an answer.
    pub(crate) fn eventually<T>(&self, mut ask: impl FnMut() -> Option<T>) -> T {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(answer) = ask() {
                return answer;
            }
            assert!(Instant::now() < end, "it never came to be: {}", self.status());
            thread::sleep(Duration::from_millis(100));
        }
    }
}
