//! A house, its router and the Internet, each in a namespace of its own, and what runs there.
//!
//! ```text
//! lan  c0 192.168.77.2, fd77::2 ── eth1 .1  gateway  eth0 9.9.9.1 ── u0 9.9.9.2, 2620:fe::2  up
//!      a second address: 172.16.5.2                                  nginx, an echo, a greeter
//! ```

use ekiden_linux::host::sysctl;
use ekiden_linux::links::netlink::{End, Netlink};
use ekiden_linux::namespaces::netns::{Netns, place};
use ekiden_testkit::{Daemon, Home, PATIENCE, eventually, wait_for};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::thread;

pub(crate) const SERVER: &str = "9.9.9.2";
pub(crate) const SERVER_V6: &str = "2620:fe::2";
pub(crate) const CLIENT: &str = "192.168.77.2";
pub(crate) const CLIENT_V6: &str = "fd77::2";

/// Answers each byte with itself.
pub(crate) const ECHO: u16 = 7;
/// Speaks first, and then answers each byte with itself.
pub(crate) const GREETER: u16 = 2222;

/// How long nothing must come where nothing may.
pub(crate) const PATIENCE_OF_SILENCE: std::time::Duration = std::time::Duration::from_millis(300);

/// What each configuration begins with.
const COMMON: &str = "control = \"DIR/ekiden.sock\"\n[management]\nlisten = \"off\"\n\
    [log]\naccess = \"DIR/access\"\n";
const RULE: &str = "[[rule]]\nfrom = [\"192.168.77.0/24\", \"fd77::/64\"]\naction = \"allow\"\n";

pub(crate) struct Network {
    pub(crate) lan: Netns,
    pub(crate) gateway: Netns,
    pub(crate) up: Netns,
    nginx: Child,
    _folder: tempfile::TempDir,
}

impl Network {
    pub(crate) fn build() -> Result<Self, String> {
        let netns = || Netns::new().map_err(|error| error.to_string());
        let (lan, gateway, up) = (netns()?, netns()?, netns()?);
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let nginx = Command::new("true").spawn().map_err(|error| error.to_string())?;
        let mut this = Self { lan, gateway, up, nginx, _folder: folder };
        this.connect(("c0", &this.lan), ("eth1", &this.gateway))?;
        this.connect(("u0", &this.up), ("eth0", &this.gateway))?;
        for (netns, script) in [
            (
                &this.gateway,
                "ip link set lo up; ip addr add 192.168.77.1/24 dev eth1; ip addr add fd77::1/64 dev eth1 nodad; \
                 ip addr add 9.9.9.1/24 dev eth0; ip addr add 2620:fe::1/64 dev eth0 nodad; \
                 ip route add 172.16.5.0/24 dev eth1",
            ),
            (&this.lan, LAN_ADDRESSES),
            (
                &this.up,
                "ip link set lo up; ip addr add 9.9.9.2/24 dev u0; ip addr add 2620:fe::2/64 dev u0 nodad; \
                 ip route add default via 9.9.9.1; ip -6 route add default via 2620:fe::1",
            ),
        ] {
            this.shell(netns, script)?;
        }
        this.gateway
            .run(|| {
                sysctl::write("net.ipv4.ip_forward", "1")?;
                sysctl::write("net.ipv6.conf.all.forwarding", "1")?;
                sysctl::write("net.ipv4.conf.all.rp_filter", "0")?;
                sysctl::write("net.ipv4.conf.eth0.rp_filter", "0")
            })
            .and_then(|done| done)
            .map_err(|error| error.to_string())?;
        this.nginx = this.start_nginx()?;
        this.start_speakers()?;
        Ok(this)
    }

    /// Joins two devices.
    pub(crate) fn connect(&self, a: (&str, &Netns), b: (&str, &Netns)) -> Result<(), String> {
        let netlink = Netlink::here().map_err(|error| error.to_string())?;
        let mac = |name: &str| {
            let n = name.bytes().fold(0_u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte));
            [2, 0, 0, 0, 7, n]
        };
        let end = |(name, netns)| End { name, mac: mac(name), netns };
        netlink.veth(&end(a), &end(b), 1500, None, 1000).map_err(|error| error.to_string())?;
        for (name, netns) in [a, b] {
            let there = Netlink::open(netns).map_err(|error| error.to_string())?;
            there.up(name).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    pub(crate) fn shell(&self, netns: &Netns, script: &str) -> Result<String, String> {
        let mut command = Command::new("sh");
        command.args(["-e", "-c", script]).stdin(Stdio::null());
        place(&mut command, netns).map_err(|error| error.to_string())?;
        let output = command.output().map_err(|error| error.to_string())?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(format!("{script}: {}", String::from_utf8_lossy(&output.stderr))),
        }
    }

    /// On the gateway's machine; panics where it fails.
    pub(crate) fn on_gateway(&self, script: &str) -> String {
        self.shell(&self.gateway, script).unwrap()
    }

    fn start_nginx(&self) -> Result<Child, String> {
        let folder = self._folder.path();
        let dir = folder.display();
        let key = rcgen::generate_simple_self_signed(["example.org".to_owned()])
            .map_err(|error| error.to_string())?;
        let written = fs::write(folder.join("cert.pem"), key.cert.pem())
            .and_then(|()| fs::write(folder.join("key.pem"), key.signing_key.serialize_pem()))
            .and_then(|()| fs::write(folder.join("big"), vec![b'e'; 8 << 20]));
        written.map_err(|error| error.to_string())?;
        let user = if rustix::process::geteuid().is_root() { "user root;\n" } else { "" };
        let config = format!(
            "daemon off; pid {dir}/pid; error_log stderr;\n{user}events {{}}\nhttp {{ access_log off;\n\
             client_body_temp_path {dir}/b; proxy_temp_path {dir}/p; fastcgi_temp_path {dir}/f;\n\
             uwsgi_temp_path {dir}/u; scgi_temp_path {dir}/s;\n\
             server {{ listen {SERVER}:80; listen [{SERVER_V6}]:80; listen {SERVER}:443 ssl;\n\
             listen [{SERVER_V6}]:443 ssl; ssl_certificate {dir}/cert.pem; ssl_certificate_key {dir}/key.pem;\n\
             location = /big {{ root {dir}; limit_rate 1m; }}\n\
             location / {{ return 200 \"$remote_addr $scheme $host\"; }} }} }}\n"
        );
        let file = folder.join("nginx.conf");
        fs::write(&file, config).map_err(|error| error.to_string())?;
        let mut command = Command::new("nginx");
        command.arg("-c").arg(&file).stdin(Stdio::null()).stdout(Stdio::null());
        place(&mut command, &self.up).map_err(|error| error.to_string())?;
        let child = command.spawn().map_err(|error| format!("nginx: {error}"))?;
        wait_for("nginx", || {
            self.up.run(|| TcpStream::connect((SERVER, 443)).is_ok()).unwrap_or(false)
        });
        Ok(child)
    }

    fn start_speakers(&self) -> Result<(), String> {
        for (port, greeting) in [(ECHO, &b""[..]), (GREETER, b"220 hello\r\n")] {
            let bound = self.up.run(|| TcpListener::bind(("::", port)));
            let listener =
                bound.and_then(|listener| listener).map_err(|error| error.to_string())?;
            thread::spawn(move || {
                for stream in listener.incoming() {
                    let Ok(mut stream) = stream else { return };
                    thread::spawn(move || {
                        let _ = stream.write_all(greeting);
                        let Ok(mut back) = stream.try_clone() else { return };
                        let _ = std::io::copy(&mut stream, &mut back);
                        let _ = back.shutdown(std::net::Shutdown::Write);
                    });
                }
            });
        }
        Ok(())
    }

    /// A connection of the client to a port of the server.
    pub(crate) fn dial(&self, port: u16) -> TcpStream {
        let stream = self.lan.run(|| TcpStream::connect((SERVER, port))).unwrap().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// What a client with nothing configured gets.
    pub(crate) fn curl(&self, from: &Netns, args: &[&str]) -> Output {
        let mut command = Command::new("curl");
        command.args(["-q", "-sS", "-k", "--noproxy", "*", "-m", "20"]).args(args);
        // what is not configured at the client
        for variable in ["http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"] {
            command.env_remove(variable);
        }
        place(&mut command, from).unwrap();
        command.output().unwrap()
    }

    /// The page that the client gets.
    pub(crate) fn page(&self, args: &[&str]) -> String {
        let output = self.curl(&self.lan, args);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// A datagram of the client to UDP 443, which the server answers: the answer, or the error.
    pub(crate) fn datagram(&self) -> Result<(), std::io::Error> {
        let server = self.up.run(|| UdpSocket::bind((SERVER, 443))).unwrap().unwrap();
        let client = self.lan.run(|| UdpSocket::bind(("0.0.0.0", 0))).unwrap().unwrap();
        client.connect((SERVER, 443)).unwrap();
        client.send(b"quic").unwrap();
        for socket in [&server, &client] {
            socket.set_nonblocking(true).unwrap();
        }
        eventually("an answer or an error", || {
            if let Ok((n, from)) = server.recv_from(&mut [0; 9]) {
                server.send_to(&[1; 9][..n], from).unwrap();
            }
            match client.recv(&mut [0; 9]) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => None,
                answered => Some(answered.map(drop)),
            }
        })
    }

    /// A daemon's folder; `gateway` are keys of `[gateway]`, `more` are tables.
    pub(crate) fn home(gateway: &str, more: &str) -> Arc<Home> {
        Home::new(env!("CARGO_BIN_EXE_ekiden"), &config(gateway, more))
    }

    /// A daemon on the gateway's machine.
    pub(crate) fn serve(&self, gateway: &str, more: &str) -> Daemon {
        self.serve_in(&Self::home(gateway, more))
    }

    pub(crate) fn serve_in(&self, home: &Arc<Home>) -> Daemon {
        let mut command = home.command(&["serve", "--listen", "127.0.0.1:0"]);
        place(&mut command, &self.gateway).unwrap();
        home.serve_by(command)
    }

    /// The daemon as the service runs it: a user of its own, with the capabilities of packaging/ekiden.service and without a
    /// way to more. `None`, said aloud, where that takes more than this test has.
    pub(crate) fn serve_as_nobody(&self, home: &Arc<Home>) -> Option<Daemon> {
        use std::os::unix::fs::PermissionsExt as _;
        let copy = home.path().join("ekiden-copy");
        fs::copy(env!("CARGO_BIN_EXE_ekiden"), &copy).unwrap();
        for (name, mode) in [("", 0o777), ("access", 0o666), ("log", 0o666), ("ekiden.sock", 0o777)]
        {
            let _ = fs::set_permissions(home.path().join(name), fs::Permissions::from_mode(mode));
        }
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        let own = "+net_admin,+sys_nice,+net_bind_service";
        command.args([format!("--inh-caps={own}"), format!("--ambient-caps={own}")]);
        command.args([format!("--bounding-set=-all,{own}"), "--no-new-privs".to_owned()]);
        let mut trial = Command::new("setpriv");
        if !trial.args(command.get_args()).arg("true").status().is_ok_and(|status| status.success())
        {
            assert!(std::env::var_os("CI").is_none(), "another user cannot be taken here");
            println!("SKIPPED: a daemon as another user");
            return None;
        }
        command.arg(copy);
        let mut command = home.command_of(command, &["serve", "--listen", "127.0.0.1:0"]);
        place(&mut command, &self.gateway).unwrap();
        Some(home.serve_by(command))
    }

    /// A command of the daemon's operator: what it printed.
    pub(crate) fn ask(&self, home: &Home, args: &[&str]) -> String {
        let mut command = home.command(args);
        place(&mut command, &self.gateway).unwrap();
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    }

    /// How many rules and routes of the gateway there are, and whether its table is there.
    pub(crate) fn left(&self) -> (usize, usize, bool) {
        let rules = self.on_gateway("ip -4 rule; ip -6 rule").matches("lookup 25963").count();
        let routes = self.on_gateway("ip -4 route show table all; ip -6 route show table all");
        let tables = self.on_gateway("nft list tables");
        (rules, routes.matches("table 25963").count(), tables.contains("ekiden_gateway"))
    }
}

/// The addresses and routes of the client.
pub(crate) const LAN_ADDRESSES: &str = "ip link set lo up; ip addr add 192.168.77.2/24 dev c0; \
    ip addr add fd77::2/64 dev c0 nodad; ip addr add 172.16.5.2/32 dev c0; \
    ip route add default via 192.168.77.1; ip -6 route add default via fd77::1";

/// A configuration with these keys of `[gateway]` and these tables.
pub(crate) fn config(gateway: &str, more: &str) -> String {
    format!("{COMMON}[gateway]\n{gateway}\n{more}{RULE}")
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = self.nginx.kill();
        let _ = self.nginx.wait();
    }
}

/// Sends bytes in pieces and ends; what came back until the end, or the error.
pub(crate) fn exchange(mut stream: TcpStream, pieces: &[&[u8]]) -> std::io::Result<Vec<u8>> {
    for piece in pieces {
        stream.write_all(piece)?;
    }
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut back = Vec::new();
    stream.read_to_end(&mut back)?;
    Ok(back)
}
