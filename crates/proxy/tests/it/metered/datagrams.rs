//! The law over the doors of datagrams: what passes is what an account uses, and a quota ends to the datagram. The one for
//! which too little is left is dropped, and uses that up.

use super::carrier::Carrier;
use super::{COMMON, LATE, MUCH, SHOWN, forwarding};
use crate::accounts_limits::{of, quota, relay};
use crate::common::wire::Relay;
use crate::common::{connect, wait_until};
use crate::connect_udp::{capsule, extended, path, server, upgrade};
use crate::tls::http2;
use ekiden_proxy::settings::ExceededAction;
use ekiden_proxy::wire::http::reply::udp_connected;
use ekiden_proxy::wire::socks::write_datagram_head;
use proptest::prelude::*;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};

const DATAGRAM: usize = 1_200;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Door {
    /// UDP ASSOCIATE of SOCKS5.
    Association,
    /// UDP over HTTP/1.1.
    Upgrade,
    /// UDP over HTTP/2.
    ExtendedConnect,
    /// A forwarded port.
    Forwarded,
}

const DOORS: [Door; 4] = [Door::Association, Door::Upgrade, Door::ExtendedConnect, Door::Forwarded];

impl Door {
    /// Bytes up and down that open it to `to`: within TLS, at most.
    fn opening(self, to: SocketAddr) -> [u64; 2] {
        match self {
            Self::Association => [13, 12],
            Self::Upgrade => [upgrade(to, "").len() as u64, udp_connected().len() as u64],
            Self::ExtendedConnect => [2_000, 3_000],
            Self::Forwarded => [0, 0],
        }
    }

    /// Bytes of a datagram, with the head that this door gives it.
    fn size(self, payload: usize) -> u64 {
        let bytes = match self {
            Self::Association => 10 + payload,
            Self::Upgrade | Self::ExtendedConnect => capsule(&vec![0; payload]).len(),
            Self::Forwarded => payload,
        };
        bytes as u64
    }
}

/// Payloads to a server, and of its answer to each.
type Lengths = [(usize, usize)];

/// An association: its connection, the client's socket, and where that sends to.
fn associated(relay: SocketAddr) -> (TcpStream, UdpSocket, SocketAddr) {
    let mut stream = connect(relay);
    stream.write_all(&[5, 1, 0, 5, 3, 0, 1, 0, 0, 0, 0, 0, 0]).unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer[..4], [5, 0, 5, 0]);
    let port = u16::from_be_bytes([answer[10], answer[11]]);
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    (stream, client, ([127, 0, 0, 1], port).into())
}

/// Both directions together.
fn used(relay: &Relay) -> u64 {
    let (down, up) = of(relay);
    down + up
}

/// Sends one datagram after another, and an answer back, as long as the account has something left of `most`.
fn exchange(
    relay: &Relay,
    (lengths, most): (&Lengths, u64),
    to: &UdpSocket,
    mut send: impl FnMut(&[u8]),
) {
    let udp = || relay.status().udp;
    let passes = |moved: &dyn Fn() -> u64, nth: u64| {
        let settled = || moved() == nth || used(relay) == most;
        wait_until(settled, || format!("{:?}, {:?} of {most}", udp(), of(relay)));
        moved() == nth
    };
    let mut buffer = vec![0; 2 * DATAGRAM];
    for (nth, (up, down)) in (1..).zip(lengths) {
        send(&vec![1; *up]);
        if !passes(&|| udp().datagrams_up, nth) {
            return;
        }
        let (n, from) = to.recv_from(&mut buffer).unwrap();
        assert_eq!(n, *up);
        to.send_to(&vec![2; *down], from).unwrap();
        if !passes(&|| udp().datagrams_down, nth) {
            return;
        }
    }
}

/// `at`: the port that leads to `to`.
fn run((relay, at): (&Relay, SocketAddr), door: Door, all: (&Lengths, u64), to: &UdpSocket) {
    let server = to.local_addr().unwrap();
    match door {
        Door::Association => {
            let (_stream, client, port) = associated(relay.address);
            let head = write_datagram_head(server);
            exchange(relay, all, to, |payload| {
                client.send_to(&[&head[..], payload].concat(), port).unwrap();
            });
        }
        Door::Upgrade => {
            let mut client = relay.client();
            client.send(upgrade(server, ""));
            client.head();
            exchange(relay, all, to, |payload| {
                // it may be cut
                let _ = client.stream.write_all(&capsule(payload));
            });
        }
        Door::ExtendedConnect => {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
            runtime.unwrap().block_on(by_http2(relay, all, to));
        }
        Door::Forwarded => {
            let client = UdpSocket::bind("127.0.0.1:0").unwrap();
            exchange(relay, all, to, |payload| {
                client.send_to(payload, at).unwrap();
            });
        }
    }
}

async fn by_http2(relay: &Relay, all: (&Lengths, u64), to: &UdpSocket) {
    let (mut client, driving) = http2(&SHOWN, relay).await;
    let (_, _down, mut up) = extended(&mut client, path(to.local_addr().unwrap())).await;
    let send = |payload: &[u8]| {
        // it may be cut
        let _ = up.send_data(capsule(payload).into(), false);
    };
    tokio::task::block_in_place(|| exchange(relay, all, to, send));
    driving.abort();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 16, ..ProptestConfig::default() })]

    #[test]
    fn every_byte_of_every_door_of_datagrams_counts(
        lengths in prop::collection::vec((0..DATAGRAM, 0..DATAGRAM), 1..40),
        part in 0.0..1.0,
    ) {
        for door in DOORS {
            let to = server();
            let target = to.local_addr().unwrap();
            let (mut relay, at) = forwarding(MUCH, target);
            let carrier = (door == Door::ExtendedConnect).then(|| Carrier::before(&mut relay));
            run((&relay, at), door, (&lengths, MUCH), &to);
            let opening = door.opening(target);
            let (up, down) = carrier.map_or_else(
                || {
                    let up = lengths.iter().map(|(up, _)| door.size(*up)).sum::<u64>();
                    let down = lengths.iter().map(|(_, down)| door.size(*down)).sum::<u64>();
                    (opening[0] + up, opening[1] + down)
                },
                Carrier::moved,
            );
            let [around, late] = if door == Door::ExtendedConnect { [COMMON, LATE] } else { [0, 1] };
            let is_all = || {
                let used = of(&relay);
                used.0.abs_diff(down) <= around && used.1.abs_diff(up) <= around
            };
            // heads count within a second
            wait_until(is_all, || format!("{door:?}: {:?}, {down} and {up} moved", of(&relay)));

            let opening = opening.into_iter().sum::<u64>();
            let Some(left) = (up + down).checked_sub(opening + late + 1) else { continue };
            let most = opening + 1 + (left as f64 * part) as u64;
            let (relay, at) = forwarding(most, target);
            run((&relay, at), door, (&lengths, most), &to);
            wait_until(|| used(&relay) == most, || format!("{door:?}: {:?} of {most}", of(&relay)));
            let has_late_heads = matches!(door, Door::Upgrade | Door::ExtendedConnect);
            let before = if has_late_heads { 0 } else { opening };
            let size = |payload: usize| if has_late_heads { payload as u64 } else { door.size(payload) };
            let sizes: Vec<u64> =
                lengths.iter().flat_map(|(up, down)| [size(*up), size(*down)]).collect();
            // one that passed may be told a moment later; heads of capsules count once they have moved
            let ends_there = || {
                let udp = relay.status().udp;
                let count = (udp.datagrams_up + udp.datagrams_down) as usize;
                let passed = before + sizes[..count].iter().sum::<u64>();
                let next = sizes.get(count).copied().unwrap_or(0);
                passed == most || (passed < most && (has_late_heads || passed + next > most))
            };
            wait_until(ends_there, || format!("{door:?}: {:?} passed of {most}", relay.status().udp));
        }
    }
}

/// Else empty datagrams would carry names to a name server for nothing.
#[test]
fn heads_of_datagrams_by_socks_count_with_the_names_in_them() {
    let relay = relay(quota(MUCH, ExceededAction::Cut));
    let (_stream, client, port) = associated(relay.address);
    let label = "x".repeat(60);
    let name = format!("{label}.{label}.{label}.{label}.invalid");
    let datagram = [&[0, 0, 0, 3, name.len() as u8][..], name.as_bytes(), &[0, 53]].concat();
    client.send_to(&datagram, port).unwrap();
    let all = Door::Association.opening(port)[0] + datagram.len() as u64;
    wait_until(|| of(&relay).1 == all, || format!("{:?}, and {all} came", of(&relay)));
}
