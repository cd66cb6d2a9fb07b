//! Streams of CONNECT within HTTP/2 over TLS: some connections, each with transfers beside each other.

use super::{Clients, book, credentials, domain, target, volume};
use crate::exchange::{Failure, Order, client, patiently};
use crate::laws::{Door, Leg};
use crate::origin::Service;
use bytes::Bytes;
use ekiden_model::rng::Rng;
use h2::client::SendRequest;
use h2::{RecvStream, SendStream};
use http::header::PROXY_AUTHORIZATION;
use http::{Method, Request, Version};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Transfers over one connection: rounds of some beside each other.
const ROUNDS: u64 = 3;
const STREAMS: usize = 2;
/// A head of HTTP/1.1 is longer than the one of HTTP/2 by less.
pub(super) const HEAD: u64 = 256;

pub(super) async fn exchanges(clients: &Clients, leg: Leg, mut rng: Rng) {
    let door = Door::Http2;
    let mut connection = None;
    while !clients.is_over() {
        let live = clients.ledger.begin(leg.name());
        let sender = match connection.take() {
            Some((sender, left @ 1..)) => Ok((sender, left)),
            _ => open(clients, door).await.map(|sender| (sender, 1 + rng.below(ROUNDS))),
        };
        let (sender, left) = match sender {
            Ok(opened) => opened,
            Err(error) => {
                book(clients, (door, leg), &live, 0, Err(error.into())).await;
                continue;
            }
        };
        let mut one = || {
            let order = Order::draw(&mut rng, clients.rate / STREAMS as u64);
            let to = target(&mut rng, leg, Service::Exchange, door);
            stream(clients, leg, sender.clone(), order, to)
        };
        let (first, second) = (one(), one());
        if tokio::join!(first, second) == (true, true) {
            connection = Some((sender, left - 1));
        }
    }
}

async fn open(clients: &Clients, door: Door) -> io::Result<SendRequest<Bytes>> {
    shake(clients.secure(b"h2", door).await?).await
}

/// A connection of HTTP/2 over this stream.
pub(super) async fn shake(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> io::Result<SendRequest<Bytes>> {
    // a handshake holds its stream several times
    let shaken = Box::pin(async { h2::client::handshake(stream).await.map_err(io::Error::other) });
    let (sender, connection) = patiently("HTTP/2", shaken).await?;
    // how it breaks, its streams say
    tokio::spawn(async move { drop(connection.await) });
    let ready = async { sender.ready().await.map_err(io::Error::other) };
    patiently("HTTP/2", ready).await
}

/// One transfer; whether it ended whole.
async fn stream(
    clients: &Clients,
    leg: Leg,
    sender: SendRequest<Bytes>,
    order: Order,
    (name, port): (String, u16),
) -> bool {
    let door = Door::Http2;
    let live = clients.ledger.begin(domain(&name));
    clients.ledger.expect(order.seed, &live);
    let transfer = async {
        for side in [clients.ledger.up(door), clients.ledger.down(door)] {
            side.on_own(HEAD);
        }
        let connecting = connect(sender, door, format!("{name}:{port}"));
        let stream = patiently("CONNECT", connecting).await?;
        client(stream, &order, &clients.ledger, door, || live.on_moved()).await
    };
    let result: Result<(), Failure> = transfer.await;
    let whole = result.is_ok();
    book(clients, (door, leg), &live, volume(&order), result).await;
    whole
}

/// A stream of CONNECT to this name and port.
pub(super) async fn connect(
    sender: SendRequest<Bytes>,
    door: Door,
    authority: String,
) -> io::Result<Tunnel> {
    let request = Request::builder()
        .method(Method::CONNECT)
        .version(Version::HTTP_2)
        .uri(authority)
        .header(PROXY_AUTHORIZATION, credentials(door))
        .body(())
        .map_err(io::Error::other)?;
    let mut sender = sender.ready().await.map_err(io::Error::other)?;
    let (response, up) = sender.send_request(request, false).map_err(io::Error::other)?;
    let response = response.await.map_err(io::Error::other)?;
    match response.status().as_u16() {
        200 => Ok(Tunnel { up, down: response.into_body(), early: Bytes::new() }),
        status => Err(io::Error::other(format!("CONNECT: HTTP {status}"))),
    }
}

/// A stream as a connection.
pub(super) struct Tunnel {
    up: SendStream<Bytes>,
    down: RecvStream,
    /// Received, not yet read.
    early: Bytes,
}

impl AsyncRead for Tunnel {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.early.is_empty() {
            let Some(data) = ready!(self.down.poll_data(cx)) else { return Poll::Ready(Ok(())) };
            self.early = data.map_err(io::Error::other)?;
            let came = self.early.len();
            self.down.flow_control().release_capacity(came).map_err(io::Error::other)?;
        }
        let most = self.early.len().min(buffer.remaining());
        buffer.put_slice(&self.early.split_to(most));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Tunnel {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.up.reserve_capacity(bytes.len());
        let capacity = match self.up.capacity() {
            0 => match ready!(self.up.poll_capacity(cx)) {
                Some(capacity) => capacity.map_err(io::Error::other)?,
                None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            },
            capacity => capacity,
        };
        let piece = bytes.get(..capacity).unwrap_or(bytes);
        let (length, piece) = (piece.len(), Bytes::copy_from_slice(piece));
        self.up.send_data(piece, false).map_err(io::Error::other)?;
        Poll::Ready(Ok(length))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.up.send_data(Bytes::new(), true).map_err(io::Error::other)?;
        Poll::Ready(Ok(()))
    }
}
