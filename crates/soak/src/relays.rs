//! The two relays, each in a folder and on a machine of its own, and what an operator does to them.

use crate::books::kills::{self, Sums};
use crate::doors::PASSWORD;
use crate::laws::{DOORS, Door, LEGS, Leg};
use crate::network::{CLIENTS, FAR, NEAR, SERVERS};
use crate::origin::{ALERTS, Service, port};
use ekiden_emulator::topology::{Host, Topology};
use ekiden_linux::namespaces::netns::{Netns, place};
use ekiden_testkit::{Daemon, Home, wait_for};
use rustix::process::Signal;
use serde_json::Value;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

/// The near relay's port for all it speaks.
pub(crate) const PORT: u16 = 3128;
/// The near relay's port for names.
pub(crate) const NAMES: u16 = 5_353;
/// The client that the proxy names, which an account has.
pub(crate) const CLAIMED: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
/// Where the emulator's machines have their addresses.
const ADDRESSES: &str = "100.64.0.0/10";
/// Rates of the tunnel, each way.
const RATE: &str = "200 Mbit/s";
/// Of the near relay's state folder: some times what a run needs.
pub(crate) const STATE: u64 = 16 << 20;

/// A relay, which may be between two lives.
#[derive(Debug)]
pub(crate) struct Relay {
    pub(crate) name: &'static str,
    pub(crate) home: Arc<Home>,
    netns: Netns,
    daemon: Option<Daemon>,
    /// The process that lives, for who watches it; 0 between two.
    pid: Arc<AtomicI32>,
}

impl Relay {
    fn new(name: &'static str, home: Arc<Home>, netns: Netns) -> Self {
        Self { name, home, netns, daemon: None, pid: Arc::default() }
    }

    /// Starts it and waits until it answers.
    pub(crate) fn start(&mut self) -> io::Result<()> {
        let mut command = self.home.command(&["serve"]);
        place(&mut command, &self.netns)?;
        let daemon = self.home.serve_by(command);
        self.pid.store(daemon.pid().as_raw_nonzero().get(), Relaxed);
        self.daemon = Some(daemon);
        Ok(())
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.pid.store(0, Relaxed);
        self.daemon = None;
    }

    /// Stops it as an operator does: its usage is settled then.
    pub(crate) fn stop(&mut self) {
        self.pid.store(0, Relaxed);
        if let Some(daemon) = self.daemon.take() {
            daemon.stop();
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(daemon) = &self.daemon {
            daemon.signal(signal);
        }
    }

    /// How it ended by itself, if it did.
    pub(crate) fn ended(&mut self) -> Option<String> {
        let status = self.daemon.as_mut()?.ended()?;
        Some(format!("the {} relay ended by itself, {status}", self.name))
    }

    /// The number of its process, kept up to date.
    pub(crate) fn pid(&self) -> Arc<AtomicI32> {
        Arc::clone(&self.pid)
    }
}

/// Whether a relay's tunnel is up.
pub(crate) fn tunnel_is_up(home: &Home) -> bool {
    let Some(status) = home.status() else { return false };
    let tunnels = status["tunnels"].as_array();
    tunnels.is_some_and(|tunnels| tunnels.iter().any(|tunnel| tunnel["up"] == true))
}

/// Both, joined, with an account for each door.
#[derive(Debug)]
pub(crate) struct Relays {
    pub(crate) near: Relay,
    pub(crate) far: Relay,
    config: NearConfig,
}

/// What the near relay's configurations are made of.
#[derive(Debug)]
struct NearConfig {
    address: Ipv4Addr,
    /// Where the machine has IPv6.
    v6: Option<Ipv6Addr>,
    far: Ipv4Addr,
    names: Ipv4Addr,
    /// Where the clients' proxy connects from.
    proxy: Ipv4Addr,
    database: String,
    certificate: PathBuf,
    key: PathBuf,
    /// Which of two is in effect.
    second: bool,
}

impl Relays {
    /// Sets both up: accounts, one of them with a quota of so many bytes, an invitation, a certificate. `small` makes the
    /// near one's state folder. Errors: a machine that the network does not have, or files that cannot be written.
    pub(crate) fn set_up(
        program: &Path,
        network: &Topology,
        database: String,
        folder: &Path,
        quota: u64,
        small: impl FnOnce(&Path) -> io::Result<()>,
    ) -> io::Result<(Self, rustls::pki_types::CertificateDer<'static>)> {
        let host = |name: &str| {
            network.host(name).ok_or_else(|| io::Error::other(format!("there is no host {name}")))
        };
        let (near, far, servers) = (host(NEAR)?, host(FAR)?, host(SERVERS)?.address());
        let (certificate, key) = (folder.join("certificate.pem"), folder.join("key.pem"));
        let names = vec!["relay.test".to_owned(), far.address().to_string()];
        let made = rcgen::generate_simple_self_signed(names).map_err(io::Error::other)?;
        fs::write(&certificate, made.cert.pem())?;
        fs::write(&key, made.signing_key.serialize_pem())?;
        let address = near.address();
        let (names, proxy) = (servers, host(CLIENTS)?.address());
        let tls =
            format!("certificate = \"{}\"\nkey = \"{}\"", certificate.display(), key.display());
        let config = NearConfig {
            address,
            v6: address_v6(near),
            far: far.address(),
            names,
            proxy,
            database,
            certificate,
            key,
            second: false,
        };
        let near_home = Home::new(program, &config.text());
        let far_home = Home::new(program, &far_config([far.address(), servers], &tls));
        fs::create_dir(near_home.path().join("state"))?;
        small(&near_home.path().join("state"))?;
        for door in DOORS {
            let address = match door {
                Door::PortForward => Some(CLAIMED),
                Door::Names => Some(proxy),
                _ => None,
            };
            let add = ["account", "add", door.name()];
            let output = match address.map(|address| address.to_string()) {
                Some(address) => near_home.run(&[&add[..], &["--address", &address]].concat()),
                None => {
                    let user = ["--user", door.name(), "--password-stdin"];
                    let quota = format!("{} MB", quota / 1_000_000);
                    let limits = ["--quota", &quota, "--on-quota-exceeded", "cut"];
                    let limits = if door == Door::Quota { &limits[..] } else { &limits[..0] };
                    let all = [&add[..], &user, limits].concat();
                    near_home.run_with(&all, &format!("{PASSWORD}\n"))
                }
            };
            succeeded(&output)?;
        }
        let address = format!("{}:4433", far.address());
        let invite = ["peer", "invite", "--name", NEAR, "--address", &address];
        let rates = ["--send", RATE, "--receive", RATE];
        let token = succeeded(&far_home.run(&[&invite[..], &rates].concat()))?;
        succeeded(&near_home.run(&["peer", "join", token.trim(), "--name", FAR, "--offline"]))?;
        // joining adds a route for everything, and half of the clients are to go directly
        near_home.configure(&config.text());
        let near = Relay::new(NEAR, near_home, near.netns().try_clone()?);
        let far = Relay::new(FAR, far_home, far.netns().try_clone()?);
        Ok((Self { near, far, config }, made.cert.der().clone()))
    }

    /// The near relay's address of version 6, if it has one.
    pub(crate) const fn address_v6(&self) -> Option<Ipv6Addr> {
        self.config.v6
    }

    /// Starts both and waits for their tunnel.
    pub(crate) fn start(&mut self) -> io::Result<()> {
        self.far.start()?;
        self.near.start()?;
        wait_for("the tunnel", || tunnel_is_up(&self.near.home));
        Ok(())
    }

    /// A configuration that is cut off is refused, then the other one comes into effect.
    pub(crate) fn reload(&mut self) {
        let home = &self.near.home;
        let reloads = || home.status().and_then(|status| status["reloads"].as_u64());
        let refusals = || home.log().matches("stays in effect").count();
        let (refused, done) = (refusals(), reloads());
        let whole = self.config.text();
        home.configure(whole.trim_end().trim_end_matches('"'));
        self.near.signal(Signal::HUP);
        wait_for("a refused reload", || refusals() > refused);
        self.config.second = !self.config.second;
        home.configure(&self.config.text());
        self.near.signal(Signal::HUP);
        wait_for("a reload", || reloads() > done);
    }

    /// Fills the near relay's state folder to its last byte; returns the file that does it.
    pub(crate) fn fill_disk(&self) -> io::Result<PathBuf> {
        let path = self.near.home.path().join("state/filler");
        let mut file = OpenOptions::new().create(true).append(true).open(&path)?;
        let page = [0; 4_096];
        while file.write(&page).is_ok_and(|n| n > 0) {}
        Ok(path)
    }

    /// Sends a trial to the receiver of alerts. Errors: what came back, if it was not taken.
    pub(crate) fn try_alerts(&self) -> io::Result<()> {
        let printed = succeeded(&self.near.home.run(&["alerts", "test"]))?;
        if printed.contains("delivered") {
            return Ok(());
        }
        Err(io::Error::other(printed))
    }

    /// Waits until clients' connections are over at the near relay, for two and a half minutes at most; those that
    /// are left. What closes them counts, too, and what carries messages is counted within a second. A relay gives a half-closed
    /// connection two minutes.
    pub(crate) fn settle(&self) -> Option<String> {
        let mut left = None;
        for _ in 0..150 {
            thread::sleep(Duration::from_secs(1));
            let status = self.near.home.status().unwrap_or_default();
            left = match status["budgets"][0]["used"].as_u64() {
                Some(0) => None,
                _ => Some(status["connections"].to_string()),
            };
            if left.is_none() {
                break;
            }
        }
        thread::sleep(Duration::from_secs(2));
        left
    }

    /// What the near relay's process counted of each account since it began.
    pub(crate) fn counted(&self) -> io::Result<Sums> {
        let status = self.near.home.status().ok_or_else(|| io::Error::other("no status"))?;
        kills::counted(&status, &DOORS.map(Door::name))
    }

    /// What its journal holds of each account.
    pub(crate) fn journaled(&self) -> io::Result<Sums> {
        kills::journaled(&self.near.home.path().join("state"), DOORS.len())
    }

    /// What each account used, as `ekiden account usage` says: name, bytes up and down.
    pub(crate) fn usage(&self) -> io::Result<Vec<(String, u64, u64)>> {
        let of = |name: &str| {
            let printed = succeeded(&self.near.home.run(&["account", "usage", name, "--json"]))?;
            let used: Value = serde_json::from_str(&printed)?;
            let periods = used["usage"].as_array().cloned().unwrap_or_default();
            let sum = |way: &str| periods.iter().filter_map(|period| period[way].as_u64()).sum();
            Ok((name.to_owned(), sum("up"), sum("down")))
        };
        DOORS.iter().map(|door| of(door.name())).collect()
    }
}

/// A machine's address of version 6, if it takes connections.
fn address_v6(host: &Host) -> Option<Ipv6Addr> {
    let v6 = host.address_v6();
    let has = host.run(|| TcpListener::bind((v6, 0)).is_ok());
    has.unwrap_or(false).then_some(v6)
}

impl NearConfig {
    /// Two configurations that differ in listeners, legs, pools, the cache and time-outs.
    fn text(&self) -> String {
        let Self { address, v6, far, names, proxy, database, certificate, key, second } = self;
        let (certificate, key) = (certificate.display(), key.display());
        let mut more = v6.map(|v6| format!(", \"[{v6}]:{PORT}\"")).unwrap_or_default();
        if *second {
            more += &format!(", \"{address}:{}\"", PORT + 1);
        }
        let to = port(Service::Exchange, Door::PortForward);
        let forward = |leg: Leg| {
            let (port, domain) = (forwarded_port(leg), leg.domain(2));
            format!(
                "[[forward]]\nlisten = [\"{address}:{port}\"]\nto = \"forwarded.{domain}:{to}\"\n"
            )
        };
        let forwards = LEGS.map(forward).concat();
        let (lowat, kept, largest, idle) = match second {
            false => ("kernel", 1_024, "4 MiB", "75 s"),
            true => ("256 KiB", 8, "64 KiB", "60 s"),
        };
        format!(
            r#"listen = ["{address}:{PORT}"{more}]
name = "soak-near"
[management]
listen = "off"
[leg.direct]
notsent_lowat = "{lowat}"
[access]
allow_destinations = ["{ADDRESSES}"]
proxy_protocol_from = ["{proxy}"]
[accounts]
enabled = true
cleartext = true
database = "{database}"
[alerts]
webhook = "http://{names}:{ALERTS}/alerts"
after = "1 s"
[dns]
listen = ["{address}:{NAMES}"]
servers = ["{names}"]
hosts_file = false
memory = "1 MiB"
{forwards}[timeouts]
keep_alive = "{idle}"
[pool]
connections = {kept}
[cache]
memory = "24 MiB"
disk = "64 MiB"
directory = "DIR/cache"
largest = "{largest}"
[tls]
certificate = "{certificate}"
key = "{key}"
[upstream.{FAR}]
url = "tunnel://{FAR}"
[upstream.http]
url = "http://{far}:{PORT}"
[upstream.socks]
url = "socks5://{far}:{PORT}"
[upstream.tls]
url = "https://{far}:{PORT}"
ca = "{certificate}"
[[route]]
to = ["*.tunnel.test"]
through = ["{FAR}"]
[[route]]
to = ["*.http.upstream.test"]
through = ["http"]
[[route]]
to = ["*.socks.upstream.test"]
through = ["socks"]
[[route]]
to = ["*.tls.upstream.test"]
through = ["tls"]
[tunnel]
state = "DIR/state"
"#
        )
    }
}

/// The near relay's port that leads to a server over this leg.
pub(crate) const fn forwarded_port(leg: Leg) -> u16 {
    PORT + 10 + leg as u16
}

/// `tls`: its certificate and key.
fn far_config([address, names]: [Ipv4Addr; 2], tls: &str) -> String {
    format!(
        r#"listen = ["{address}:{PORT}"]
name = "soak-far"
[management]
listen = "off"
[dns]
servers = ["{names}"]
hosts_file = false
[[rule]]
peers = ["*"]
action = "allow"
allow_destinations = ["{ADDRESSES}"]
[[rule]]
from = ["{ADDRESSES}"]
action = "allow"
allow_destinations = ["{ADDRESSES}"]
[tls]
{tls}
[tunnel]
listen = ["{address}:4433"]
state = "DIR/state"
"#
    )
}

/// What a command printed. Errors: its own.
fn succeeded(output: &std::process::Output) -> io::Result<String> {
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_near_relay_listens_over_both_versions_in_each_configuration() {
        let listens = |v6, second| {
            let (address, database) = (Ipv4Addr::new(192, 0, 2, 1), String::new());
            let (certificate, key) = (PathBuf::new(), PathBuf::new());
            let (far, names, proxy) = (address, address, address);
            let config =
                NearConfig { address, v6, far, names, proxy, database, certificate, key, second };
            config.text().lines().next().unwrap().to_owned()
        };
        let v6 = Some("fd00::1".parse().unwrap());
        assert_eq!(listens(None, false), r#"listen = ["192.0.2.1:3128"]"#);
        assert_eq!(listens(v6, false), r#"listen = ["192.0.2.1:3128", "[fd00::1]:3128"]"#);
        let both = r#"listen = ["192.0.2.1:3128", "[fd00::1]:3128", "192.0.2.1:3129"]"#;
        assert_eq!(listens(v6, true), both);
    }
}
