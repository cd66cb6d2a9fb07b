//! Every byte that moves on an account's behalf goes through its meter.

mod carrier;
mod datagrams;
mod discarded;
mod doors;
mod heads;
mod names;

use crate::accounts_limits::{quota, relay_with};
use crate::common::wire::Relay;
use crate::tls::Shown;
use ekiden_proxy::settings::{ExceededAction, ForwardProtocol, PortForward, SendProxy};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::{Arc, LazyLock};

/// More than any exchange needs.
const MUCH: u64 = 1 << 40;
/// What HTTP/2 needs for the fields that each head has.
const COMMON: u64 = 600;
/// Records and frames count late, some bytes of each together.
const LATE: u64 = 10_000;

static SHOWN: LazyLock<Shown> = LazyLock::new(Shown::new);

/// A port that was free a moment ago, for connections and datagrams, at an address where nothing else takes any port.
fn free_port() -> SocketAddr {
    loop {
        let at = TcpListener::bind("127.0.77.1:0").unwrap().local_addr().unwrap();
        if UdpSocket::bind(at).is_ok() {
            return at;
        }
    }
}

/// A relay whose account may use so many bytes and is cut then, and its port that leads to `to`.
fn forwarding(bytes: u64, to: SocketAddr) -> (Relay, SocketAddr) {
    let at = free_port();
    let relay = relay_with(quota(bytes, ExceededAction::Cut), |settings| {
        SHOWN.settings(settings);
        settings.forwards = vec![Arc::new(PortForward {
            listen: vec![at],
            to: to.into(),
            protocol: ForwardProtocol::Both,
            send_proxy: SendProxy::Off,
        })];
    });
    (relay, at)
}
