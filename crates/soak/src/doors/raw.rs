//! CONNECT, SOCKS5, CONNECT within TLS, and forwarded ports: one connection a transfer.

use super::{Clients, PASSWORD, book, credentials, domain, target, volume};
use crate::exchange::{Failure, Order, client, patiently};
use crate::laws::{Door, Leg};
use crate::origin::Service;
use crate::relays::{CLAIMED, forwarded_port};
use ekiden_model::rng::Rng;
use std::io;
use std::net::Ipv4Addr;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// The longest head of an answer.
const HEAD: usize = 4_096;

pub(super) async fn exchanges(clients: &Clients, door: Door, leg: Leg, mut rng: Rng) {
    while !clients.is_over() {
        let order = Order::draw(&mut rng, clients.rate);
        let to = target(&mut rng, leg, Service::Exchange, door);
        let live = clients.ledger.begin(match door {
            // as the relay's configuration says
            Door::PortForward => leg.domain(2),
            _ => domain(&to.0),
        });
        clients.ledger.expect(order.seed, &live);
        let moves = || live.on_moved();
        let result = transfer(clients, (door, leg), &to, &order, moves).await;
        book(clients, (door, leg), &live, volume(&order), result).await;
    }
}

/// One transfer by any of these doors.
pub(super) async fn transfer(
    clients: &Clients,
    (door, leg): (Door, Leg),
    to: &(String, u16),
    order: &Order,
    moves: impl FnMut(),
) -> Result<(), Failure> {
    if door == Door::Tls {
        let mut stream = clients.secure(b"http/1.1", door).await?;
        connect(&mut stream, door, to).await?;
        return client(stream, order, &clients.ledger, door, moves).await;
    }
    if door == Door::PortForward {
        let stream = clients.connect_by_proxy(forwarded_port(leg)).await?;
        let mut stream = clients.counted(stream, door);
        let header = proxy_header(order.seed & 2 == 0, clients.relay.port());
        patiently("the PROXY header", stream.write_all(&header)).await?;
        return client(stream, order, &clients.ledger, door, moves).await;
    }
    let mut stream = clients.counted(clients.connect().await?, door);
    match door {
        Door::Socks => drop(socks(&mut stream, door, 1, to).await?),
        _ => connect(&mut stream, door, to).await?,
    }
    client(stream, order, &clients.ledger, door, moves).await
}

/// The header of the PROXY protocol, in text or in bytes: from the client whose account it is, to anywhere.
fn proxy_header(text: bool, port: u16) -> Vec<u8> {
    let [from, to] = [CLAIMED, Ipv4Addr::new(192, 0, 2, 1)];
    if text {
        return format!("PROXY TCP4 {from} {to} 4711 {port}\r\n").into_bytes();
    }
    let signature = b"\r\n\r\n\0\r\nQUIT\n";
    // version 2, PROXY, TCP over IPv4, 12 bytes
    let kind = [0x21, 0x11, 0, 12];
    let ports = [4_711_u16.to_be_bytes(), port.to_be_bytes()].concat();
    [&signature[..], &kind, &from.octets(), &to.octets(), &ports].concat()
}

/// CONNECT (RFC 9110 section 9.3.6).
pub(super) async fn connect(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    door: Door,
    (name, port): &(String, u16),
) -> io::Result<()> {
    let authorization = credentials(door);
    let head = format!(
        "CONNECT {name}:{port} HTTP/1.1\r\nHost: {name}:{port}\r\nProxy-Authorization: {authorization}\r\n\r\n"
    );
    patiently("CONNECT", stream.write_all(head.as_bytes())).await?;
    patiently("CONNECT", stream.flush()).await?;
    answered(stream, "CONNECT", "HTTP/1.1 200 ").await
}

/// Reads the head of an answer. Errors: it does not begin so.
pub(super) async fn answered(
    stream: &mut (impl AsyncRead + Unpin),
    what: &str,
    begins: &str,
) -> io::Result<()> {
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(patiently(what, stream.read_u8()).await?);
        if answer.len() > HEAD {
            return Err(io::Error::other(format!("{what}: the answer has no end")));
        }
    }
    if answer.starts_with(begins.as_bytes()) {
        return Ok(());
    }
    let answer = String::from_utf8_lossy(&answer);
    Err(io::Error::other(format!("{what}: {}", answer.lines().next().unwrap_or_default())))
}

/// SOCKS5 with a user and a password (RFC 1928, RFC 1929): the address and port of the answer.
pub(super) async fn socks(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    door: Door,
    command: u8,
    (name, port): &(String, u16),
) -> io::Result<([u8; 4], u16)> {
    let asking = async {
        let user = door.name();
        stream.write_all(&[5, 1, 2]).await?;
        stream.flush().await?;
        let mut method = [0; 2];
        stream.read_exact(&mut method).await?;
        expect(method == [5, 2], "the method", &method)?;
        let (user, password) = (user.as_bytes(), PASSWORD.as_bytes());
        let login = [&[1, user.len() as u8], user, &[password.len() as u8], password].concat();
        stream.write_all(&login).await?;
        stream.flush().await?;
        let mut verdict = [0; 2];
        stream.read_exact(&mut verdict).await?;
        expect(verdict == [1, 0], "the log-in", &verdict)?;
        let host = [&[3, name.len() as u8], name.as_bytes()].concat();
        let request = [&[5, command, 0], &host[..], &port.to_be_bytes()].concat();
        stream.write_all(&request).await?;
        stream.flush().await?;
        let mut reply = [0; 4];
        stream.read_exact(&mut reply).await?;
        expect(reply == [5, 0, 0, 1], "the reply", &reply)?;
        let mut bound = [0; 4];
        stream.read_exact(&mut bound).await?;
        Ok((bound, stream.read_u16().await?))
    };
    patiently("SOCKS5", asking).await
}

fn expect(right: bool, what: &str, bytes: &[u8]) -> io::Result<()> {
    if right { Ok(()) } else { Err(io::Error::other(format!("{what} is {bytes:?}"))) }
}
