//! A client, a gateway and a server, each in a network namespace, joined by pairs of devices.
//!
//! ```text
//! client  c0 192.168.77.10 to .74 ── lan .1  gateway  up 9.9.9.1 ── s0 9.9.9.10 to .18  server
//! ```
//! There is no emulated link: TCP hands over super-packets, nothing is delayed or lost. The gateway does not
//! forward, unless it is told to: what no relay diverts goes nowhere, so that it cannot be measured by mistake.

use ekiden_linux::host::sysctl;
use ekiden_linux::links::netlink::{End, Netlink};
use ekiden_linux::namespaces::netns::{Netns, place};
use ekiden_testbed::load::generator::{Load, Servers};
use ekiden_testbed::peers::PeerHost;
use std::error::Error;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::ops::Range;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// The gateway's device of the client's network.
pub(crate) const LAN: &str = "lan";
/// The client's network.
const NETWORK: &str = "192.168.77.0/24";
const GATEWAY: Ipv4Addr = Ipv4Addr::new(192, 168, 77, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(9, 9, 9, FIRST - 1);
/// Of every server: squid intercepts HTTP alone.
const PORT: u16 = 80;
/// The last byte of the first address of clients and of servers; further ones follow. One before it is the host's own.
const FIRST: u8 = 11;
const CLIENTS: u8 = 64;
const SERVERS: u8 = 8;
/// Packets that a device may hold.
const QUEUE: u32 = 10_000;
/// How long a relay may take until it diverts.
const PATIENCE: Duration = Duration::from_secs(20);

/// It is there until dropped.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) client: Netns,
    pub(crate) gateway: Netns,
    server: Netns,
}

impl Network {
    /// Makes it; `congestion` is the congestion control of all sockets on its routes, in place of the machine's default.
    /// Errors: the kernel's, with what was being made.
    pub(crate) fn build(congestion: Option<&str>) -> Result<Self, Failure> {
        let this = Self { client: Netns::new()?, gateway: Netns::new()?, server: Netns::new()? };
        join(("c0", 1, &this.client), (LAN, 2, &this.gateway))?;
        join(("up", 3, &this.gateway), ("s0", 4, &this.server))?;
        // by route: without privileges for the whole machine, its setting takes few of them
        let control = congestion.map(|name| format!("congctl {name}")).unwrap_or_default();
        let own = |device: &str, prefix: &str, numbers: Range<u8>| -> String {
            let first = numbers.start;
            let add = |n| format!("ip addr add {prefix}.{n}/24 dev {device} noprefixroute\n");
            let route = format!(
                "ip route replace {prefix}.0/24 dev {device} src {prefix}.{first} {control}\n"
            );
            numbers.map(add).chain([route]).collect()
        };
        let clients = own("c0", "192.168.77", FIRST - 1..FIRST + CLIENTS);
        let servers = own("s0", "9.9.9", FIRST - 1..FIRST + SERVERS);
        let gateway = own(LAN, "192.168.77", 1..2) + &own("up", "9.9.9", 1..2);
        this.shell(
            &this.client,
            &format!("{clients}ip route add default via {GATEWAY} {control}"),
        )?;
        this.shell(&this.gateway, &gateway)?;
        // PEPsal comes with the client's address
        let back = format!("ip route add {NETWORK} via 9.9.9.1 {control}");
        this.shell(&this.server, &format!("{servers}{back}"))?;
        for netns in [&this.client, &this.gateway, &this.server] {
            netns.run(|| {
                Netlink::here()?.up("lo").map_err(io::Error::other)?;
                // nobody's ports run out, and no table of TIME_WAIT overflows within a window
                set("net.ipv4.ip_local_port_range", "16384 65535")?;
                set("net.ipv4.tcp_max_tw_buckets", "1000000")
            })??;
        }
        this.gateway.run(|| {
            set("net.ipv4.conf.all.rp_filter", "0")?;
            set(&format!("net.ipv4.conf.{LAN}.rp_filter"), "0")?;
            set("net.ipv4.conf.up.rp_filter", "0")?;
            set("net.ipv4.ip_forward", "0")
        })??;
        Ok(this)
    }

    /// Runs a script. Errors: what it printed.
    pub(crate) fn shell(&self, netns: &Netns, script: &str) -> Result<(), Failure> {
        let mut command = Command::new("sh");
        command.args(["-e", "-c", script]).stdin(Stdio::null());
        place(&mut command, netns)?;
        let output = command.output()?;
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned().into()),
        }
    }

    /// Has the gateway forward connections that nobody relays.
    pub(crate) fn forward(&self) -> Result<(), Failure> {
        Ok(self.gateway.run(|| set("net.ipv4.ip_forward", "1"))??)
    }

    /// Where relays run: they listen on the address of the client's network.
    pub(crate) fn gateway_host(&self) -> io::Result<PeerHost> {
        PeerHost::in_namespace(&self.gateway, IpAddr::from(GATEWAY), NETWORK, place)
    }

    /// Where a relay's upstream runs.
    pub(crate) fn server_host(&self) -> io::Result<PeerHost> {
        PeerHost::in_namespace(&self.server, IpAddr::from(SERVER), "9.9.9.0/24", place)
    }

    /// Web servers.
    pub(crate) fn servers(&self, load: Load) -> Result<Servers, Failure> {
        let addresses = (FIRST..FIRST + SERVERS).map(server).collect();
        Ok(self.server.run(|| Servers::web(load, addresses))??)
    }

    /// The addresses of clients.
    pub(crate) fn sources() -> Vec<Ipv4Addr> {
        (FIRST..FIRST + CLIENTS).map(|n| Ipv4Addr::new(192, 168, 77, n)).collect()
    }

    /// Waits until a connection of the client stands. Errors: none does.
    pub(crate) fn await_diversion(&self) -> Result<(), Failure> {
        let begin = Instant::now();
        let connect = || TcpStream::connect_timeout(&server(FIRST), Duration::from_millis(200));
        while begin.elapsed() < PATIENCE {
            if self.client.run(connect)?.is_ok() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(format!("a client's connection to {} is not diverted", server(FIRST)).into())
    }
}

fn set(name: &str, value: &str) -> io::Result<()> {
    let context = |e: io::Error| io::Error::new(e.kind(), format!("{name} = {value}: {e}"));
    sysctl::write(name, value).map_err(context)
}

const fn server(n: u8) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(9, 9, 9, n)), PORT)
}

/// A pair of devices, up; the numbers are of their hardware addresses.
fn join(a: (&str, u8, &Netns), b: (&str, u8, &Netns)) -> Result<(), Failure> {
    let end = |(name, n, netns)| End { name, mac: [2, 0, 0, 0, 7, n], netns };
    Netlink::here()?.veth(&end(a), &end(b), 1500, None, QUEUE)?;
    for (name, _, netns) in [a, b] {
        Netlink::open(netns)?.up(name)?;
    }
    Ok(())
}
