//! Downloads that are read at 64 kbit/s, for minutes each: one client of each kind of stream over each leg. The server
//! sends as fast as it may, so what is not read yet waits in the relay.

use super::forward::Kept;
use super::{Clients, book, domain, http2, raw, target, volume};
use crate::exchange::{Failure, Order, Pace, client, patiently};
use crate::laws::{Door, Leg, SLOW};
use crate::ledger::Live;
use crate::origin::{PatternBody, Service, compare, path};
use ekiden_model::rng::Rng;
use http_body_util::BodyExt as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// What is read at once: a quarter of a second's.
const PIECE: usize = 2_000;
/// How long a download takes, in seconds: from, to.
const LASTS: (u64, u64) = (60, 150);
/// Bytes that a client sends at most.
const UP: u64 = 2_048;

/// What such a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Http,
    Connect,
    Socks,
    Tls,
    Http2,
}

/// One client of each.
pub(super) const WAYS: [Way; 5] = [Way::Http, Way::Connect, Way::Socks, Way::Tls, Way::Http2];

impl Way {
    /// In the summary.
    const fn counted(self) -> &'static str {
        match self {
            Self::Http => "slow downloads by HTTP",
            Self::Connect => "slow downloads by CONNECT",
            Self::Socks => "slow downloads by SOCKS",
            Self::Tls => "slow downloads within TLS",
            Self::Http2 => "slow downloads within HTTP/2",
        }
    }

    const fn service(self) -> Service {
        match self {
            Self::Http => Service::Http,
            _ => Service::Exchange,
        }
    }
}

/// The next download. Its client ends its direction early: a relay gives a half-closed connection two minutes after the
/// server's end, and what waits may take longer.
fn draw(rng: &mut Rng, rate: u64) -> Order {
    let lasts = LASTS.0 + rng.below(LASTS.1 - LASTS.0);
    Order { seed: rng.next_u64() & !1, up: rng.below(UP), down: SLOW * lasts, rate }
}

pub(super) async fn downloads(clients: &Clients, way: Way, leg: Leg, mut rng: Rng) {
    let (ledger, door) = (&clients.ledger, Door::Slow);
    while !clients.is_over() {
        let order = draw(&mut rng, clients.rate);
        let to = target(&mut rng, leg, way.service(), door);
        let live = ledger.begin(domain(&to.0));
        ledger.expect(order.seed, &live);
        // that future is large: it has what each kind needs
        let result = Box::pin(download(clients, way, &to, &order, &live)).await;
        match result {
            Ok(()) => ledger.on_count(way.counted()),
            Err(_) if way == Way::Http => on_chunks(clients, &order),
            Err(_) => {}
        }
        // there two relays write chunks anew
        if way == Way::Http && leg == Leg::Upstream {
            on_chunks(clients, &order);
        }
        book(clients, (door, leg), &live, volume(&order), result).await;
    }
}

/// Of bodies, some framing may have been on its way.
fn on_chunks(clients: &Clients, order: &Order) {
    clients.ledger.up(Door::Slow).on_broken_chunks(order.up);
    clients.ledger.down(Door::Slow).on_broken_chunks(order.down);
}

async fn download(
    clients: &Clients,
    way: Way,
    to: &(String, u16),
    order: &Order,
    live: &Live,
) -> Result<(), Failure> {
    let (ledger, door) = (&clients.ledger, Door::Slow);
    let stream = Slowly::new(clients.connect_narrow().await?);
    let moves = || live.on_moved();
    match way {
        Way::Http => {
            let mut kept = Kept::over(clients, door, clients.counted(stream, door)).await?;
            let body = PatternBody::new(order.upwards(), order.up, order.rate, true).boxed();
            let (name, port) = (&to.0[..], to.1);
            let path = path(order);
            let asking = kept.ask_with("POST", (name, port), &path, body, None);
            let response = patiently("an answer", asking).await?;
            let (pattern, side) = (order.downwards(), ledger.down(door));
            compare(response.into_body(), pattern, order.down, side, moves).await
        }
        Way::Connect | Way::Socks => {
            let mut stream = clients.counted(stream, door);
            match way {
                Way::Socks => drop(raw::socks(&mut stream, door, 1, to).await?),
                _ => raw::connect(&mut stream, door, to).await?,
            }
            client(stream, order, ledger, door, moves).await
        }
        Way::Tls => {
            let mut stream = clients.secure_over(stream, b"http/1.1", door).await?;
            raw::connect(&mut stream, door, to).await?;
            client(stream, order, ledger, door, moves).await
        }
        Way::Http2 => {
            for side in [ledger.up(door), ledger.down(door)] {
                side.on_own(http2::HEAD);
            }
            let sender = http2::shake(clients.secure_over(stream, b"h2", door).await?).await?;
            let connecting = http2::connect(sender, door, format!("{}:{}", to.0, to.1));
            let stream = patiently("CONNECT", connecting).await?;
            client(stream, order, ledger, door, moves).await
        }
    }
}

/// A stream that is read at [`SLOW`].
struct Slowly<T> {
    inner: T,
    pace: Pace,
    pause: Pin<Box<Sleep>>,
}

impl<T> Slowly<T> {
    fn new(inner: T) -> Self {
        let pause = Box::pin(sleep_until(Instant::now()));
        Self { inner, pace: Pace::new(SLOW), pause }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Slowly<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.pause.as_mut().poll(cx));
        let mut bytes = [0; PIECE];
        let most = buffer.remaining().min(PIECE);
        let mut piece = ReadBuf::new(&mut bytes[..most]);
        ready!(Pin::new(&mut self.inner).poll_read(cx, &mut piece))?;
        buffer.put_slice(piece.filled());
        let next = self.pace.on_sent(piece.filled().len());
        self.pause.as_mut().reset(next);
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Slowly<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    #[test]
    fn downloads_last_minutes_and_none_leaves_or_keeps_its_direction_open() {
        let mut rng = Rng::new(1);
        for _ in 0..1_000 {
            let order = draw(&mut rng, 1_000_000);
            assert!((60..150).contains(&(order.down / SLOW)), "{order:?}");
            assert_eq!(order.seed & 1, 0);
        }
    }

    #[tokio::test]
    async fn a_slow_reader_takes_a_piece_and_then_waits() {
        let (mut near, far) = tokio::io::duplex(1 << 20);
        near.write_all(&[7; 5 * PIECE]).await.unwrap();
        // far beyond the test, so that its second piece does not come
        let pace = Pace::new(1);
        let pause = Box::pin(sleep_until(Instant::now()));
        let mut slowly = Slowly { inner: far, pace, pause };
        let mut buffer = vec![0; 4 * PIECE];
        assert_eq!(slowly.read(&mut buffer).await.unwrap(), PIECE);
        assert!(buffer[..PIECE].iter().all(|byte| *byte == 7));
        let mut more = ReadBuf::new(&mut buffer);
        let waits =
            poll_fn(|cx| Poll::Ready(Pin::new(&mut slowly).poll_read(cx, &mut more).is_pending()));
        assert!(waits.await);
    }
}
