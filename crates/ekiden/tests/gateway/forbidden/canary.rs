//! Who arrives where nobody should.

use crate::network::Network;
use ekiden_linux::namespaces::netns::Netns;
use ekiden_testkit::forbidden::{self, Kind};
use ekiden_testkit::names::{answer, answer_v6};
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The canaries' port of TCP and UDP, at every address.
pub(super) const PORT: u16 = 7_080;

/// What the Internet's machine takes for itself: every address.
const EVERYWHERE: &str = "ip route del default; ip -6 route del default; ip route add 192.168.77.0/24 via 9.9.9.1; \
    ip -6 route add fd77::/64 via 2620:fe::1; ip route add local default dev lo table main; \
    ip -6 route add local default dev lo table main; echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter; \
    echo 0 >/proc/sys/net/ipv4/conf/u0/rp_filter";
const OUTSIDE: &str = "ip route add default via 9.9.9.2; ip -6 route add default via 2620:fe::2";

/// The addresses at which somebody arrived.
#[derive(Clone, Default)]
pub(super) struct Canary(Arc<Mutex<Vec<IpAddr>>>);

impl Canary {
    /// On every address of the Internet's machine, to which the gateway then sends all, and of the gateway.
    pub(super) fn start(network: &Network) -> Self {
        network.shell(&network.up, EVERYWHERE).unwrap();
        network.on_gateway(OUTSIDE);
        let this = Self::default();
        for netns in [&network.up, &network.gateway] {
            this.listen(netns);
        }
        this
    }

    pub(super) fn listen(&self, netns: &Netns) {
        let both = |netns: &Netns| {
            netns.run(|| Ok::<_, std::io::Error>((TcpListener::bind(("::", PORT))?, datagrams()?)))
        };
        let (streams, datagrams) = both(netns).unwrap().unwrap();
        let this = self.clone();
        std::thread::spawn(move || {
            for stream in streams.incoming() {
                let Ok(mut stream) = stream else { return };
                let Ok(here) = stream.local_addr() else { continue };
                this.saw(here.ip());
                let _ = stream.write_all(b"canary");
            }
        });
        let this = self.clone();
        std::thread::spawn(move || {
            // where it arrived is not asked for: no datagram may arrive
            while datagrams.recv_from(&mut [0; 99]).is_ok() {
                this.saw(Ipv4Addr::UNSPECIFIED.into());
            }
        });
    }

    fn saw(&self, at: IpAddr) {
        self.0.lock().unwrap().push(at.to_canonical());
    }

    /// Where somebody has arrived since the last call.
    pub(super) fn seen(&self) -> Vec<IpAddr> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

fn datagrams() -> std::io::Result<UdpSocket> {
    UdpSocket::bind(("::", PORT))
}

/// The number of an address in the list, the address, and what it is.
pub(crate) type Forbidden = (usize, IpAddr, Kind);

pub(super) fn list() -> Vec<Forbidden> {
    forbidden::addresses().enumerate().map(|(nth, (at, kind))| (nth, at, kind)).collect()
}

/// Those that a client's kernel sends to its router, but for private ones, which are open to private clients.
pub(crate) fn routed() -> Vec<Forbidden> {
    let is_routed = |at: IpAddr| match at.to_canonical() {
        IpAddr::V4(at) => {
            !(at.is_loopback() || at.octets()[0] == 0 || at.is_multicast() || at.is_broadcast())
        }
        IpAddr::V6(at) => {
            !(at.is_loopback()
                || at.is_unspecified()
                || at.is_multicast()
                || at.is_unicast_link_local())
        }
    };
    let mut list = list();
    list.retain(|(_, at, kind)| is_routed(*at) && *kind != forbidden::PRIVATE);
    assert!(list.len() >= 30, "{list:?}");
    list
}

/// Where nothing is forbidden: as many as arrive show that the canaries sing.
pub(super) const OPEN: &str = "[access]\nallow_destinations = [\"0.0.0.0/0\", \"::/0\"]\n";

/// Connects, sends bytes, and waits for an answer: true where the connection was reset.
pub(super) fn is_reset(netns: &Netns, to: SocketAddr, first: &[u8]) -> bool {
    let got = netns.run(|| {
        let mut stream = TcpStream::connect_timeout(&to, Duration::from_secs(5))?;
        stream.set_read_timeout(Some(ekiden_testkit::PATIENCE))?;
        let _ = stream.write_all(first);
        stream.read(&mut [0; 64])
    });
    match got.unwrap() {
        Ok(0) => panic!("{to}: ended in order"),
        Ok(_) => false,
        // perhaps before the connection was seen to be there
        Err(error) => {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{to}: {error}");
            true
        }
    }
}

/// A name server on the Internet: `aN.test` is the address of that number, and `turns.test` the server at first, then the gateway itself.
pub(super) fn name_server(network: &Network) {
    let socket = network.up.run(|| UdpSocket::bind(("9.9.9.2", 53))).unwrap().unwrap();
    let list = list();
    std::thread::spawn(move || {
        let (mut buffer, mut turns) = ([0; 1500], 0);
        while let Ok((n, from)) = socket.recv_from(&mut buffer) {
            let asked = &buffer[..n];
            let label = &asked[13..13 + usize::from(asked[12])].to_ascii_lowercase();
            let label = String::from_utf8_lossy(label).into_owned();
            let end = 12 + asked[12..].iter().position(|byte| *byte == 0).unwrap();
            let asks_v6 = asked[end + 2] == 28;
            let number = label.strip_prefix('a').and_then(|n| n.parse::<usize>().ok());
            let address = match number.and_then(|n| list.get(n)) {
                Some((_, at, _)) => Some(*at),
                None if label == "turns" && !asks_v6 => {
                    turns += 1;
                    Some(IpAddr::from(if turns == 1 { [9, 9, 9, 2] } else { [127, 0, 0, 1] }))
                }
                None => None,
            };
            let reply = match address {
                Some(IpAddr::V4(at)) if !asks_v6 => answer(asked, at, 1),
                Some(IpAddr::V6(at)) if asks_v6 => answer_v6(asked, at, 1),
                _ => ekiden_testkit::names::no_answer(asked),
            };
            let _ = socket.send_to(&reply, from);
        }
    });
}
