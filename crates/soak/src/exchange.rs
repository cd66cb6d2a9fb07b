//! One transfer of bytes that both ends know: a client sends an order and its stream, a server sends the stream that was
//! ordered, then how much came. Each end compares every byte.

use crate::laws::Door;
use crate::ledger::{Ledger, Side};
use ekiden_model::rng::Rng;
use ekiden_testbed::load::pattern::Pattern;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, sleep_until, timeout};

/// Nothing moves for so long: the transfer has broken. Longer than TCP needs to go on after an outage.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// The length of an encoded order.
const ORDER: usize = 40;
/// The first bytes of one.
const MARK: [u8; 8] = *b"ekidsoak";
/// The largest piece that is written or read at once.
const PIECE: usize = 64 << 10;
/// Sizes of streams are drawn between these powers of two, each power as often as the others.
const SIZES: (u64, u64) = (10, 23);
/// One stream of so many is empty, and one client of so many leaves before the end.
const SOME: u64 = 16;
/// No stream is longer.
pub(crate) const LARGEST: u64 = 1 << SIZES.1;

/// Why a transfer did not end whole.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The stream broke or stalled.
    Ended(String),
    /// The stream ended early, as one does that is whole.
    Finished(String),
    /// A byte is not the one that was sent.
    Wrong(String),
    /// The client left, as its order says.
    Left,
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Ended(error.to_string())
    }
}

/// What is to be transferred.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) seed: u64,
    /// Bytes to the server, and to the client.
    pub(crate) up: u64,
    pub(crate) down: u64,
    /// Bytes a second, each way.
    pub(crate) rate: u64,
}

impl Order {
    /// The next of a client.
    pub(crate) fn draw(rng: &mut Rng, rate: u64) -> Self {
        let mut size = || {
            if rng.below(SOME) == 0 {
                return 0;
            }
            let power = SIZES.0 + rng.below(SIZES.1 - SIZES.0);
            (1 << power) + rng.below(1 << power)
        };
        let (up, down) = (size(), size());
        Self { seed: rng.next_u64(), up, down, rate }
    }

    /// The stream to the server.
    pub(crate) fn upwards(&self) -> Pattern {
        Pattern::of(self.seed)
    }

    /// The stream to the client.
    pub(crate) fn downwards(&self) -> Pattern {
        Pattern::of(!self.seed)
    }

    fn encode(&self) -> [u8; ORDER] {
        let mut bytes = [0; ORDER];
        bytes[..8].copy_from_slice(&MARK);
        for (nth, number) in [self.seed, self.up, self.down, self.rate].iter().enumerate() {
            bytes[8 + 8 * nth..][..8].copy_from_slice(&number.to_be_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8; ORDER]) -> Option<Self> {
        let (mark, numbers) = bytes.split_at(8);
        let mut numbers = numbers.as_chunks().0.iter().map(|eight| u64::from_be_bytes(*eight));
        let mut next = || numbers.next();
        (mark == MARK).then_some(())?;
        Some(Self { seed: next()?, up: next()?, down: next()?, rate: next()? })
    }

    /// Some clients end their direction when all is sent, others when all has come.
    const fn half_closes(&self) -> bool {
        self.seed & 1 == 0
    }

    /// After how many bytes the client leaves, if it does. Bytes that it does not read make that a reset. None leaves
    /// within TLS: how much of the records had been on their way to it could not be told.
    fn leaves_after(&self, door: Door) -> Option<u64> {
        let leaves = (self.seed >> 8) % SOME == 1 && self.down > 0;
        let secure = matches!(door, Door::Tls | Door::Http2 | Door::Slow);
        (leaves && !secure).then(|| (self.seed >> 16) % self.down)
    }
}

/// When the next bytes may be sent.
#[derive(Debug)]
pub(crate) struct Pace {
    begun: Instant,
    sent: u64,
    rate: u64,
}

impl Pace {
    /// A pace of `rate` bytes a second from now on.
    pub(crate) fn new(rate: u64) -> Self {
        Self { begun: Instant::now(), sent: 0, rate: rate.max(1) }
    }

    /// These bytes were sent; when the next may be.
    pub(crate) fn on_sent(&mut self, bytes: usize) -> Instant {
        self.sent += bytes as u64;
        self.begun + Duration::from_nanos(self.sent.saturating_mul(1_000_000_000) / self.rate)
    }
}

/// What `waited` brings, or how long was waited for it.
pub(crate) fn patiently<T>(
    what: &str,
    waited: impl Future<Output = io::Result<T>>,
) -> impl Future<Output = io::Result<T>> {
    within(PATIENCE, what, waited)
}

async fn within<T>(
    patience: Duration,
    what: &str,
    waited: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    match timeout(patience, waited).await {
        Ok(result) => {
            result.map_err(|error| io::Error::new(error.kind(), format!("{what}: {error}")))
        }
        Err(_) => Err(io::Error::other(format!("{what}: nothing for {} s", patience.as_secs()))),
    }
}

/// How long a sender waits for room: kernels make it by the third of a buffer, which slow readers empty first.
fn room(door: Door) -> Duration {
    PATIENCE + door.drains()
}

async fn send(
    to: &mut (impl AsyncWrite + Unpin),
    mut pattern: Pattern,
    mut left: u64,
    order: &Order,
    patience: Duration,
) -> Result<(), Failure> {
    let (mut pace, mut rng) = (Pace::new(order.rate), Rng::new(order.seed));
    while left > 0 {
        let most = (1 + rng.below(PIECE as u64)).min(left);
        let piece = pattern.next(most as usize);
        within(patience, "sending", to.write_all(piece)).await?;
        left -= piece.len() as u64;
        sleep_until(pace.on_sent(piece.len())).await;
    }
    Ok(patiently("sending", to.flush()).await?)
}

/// Compares what comes with a stream of known length.
async fn receive(
    from: &mut (impl AsyncRead + Unpin),
    mut pattern: Pattern,
    length: u64,
    side: &Side,
    mut opened: impl FnMut(),
) -> Result<(), Failure> {
    let (mut came, mut buffer) = (0, vec![0; PIECE]);
    while came < length {
        let most = (length - came).min(PIECE as u64) as usize;
        let n = patiently("receiving", from.read(&mut buffer[..most])).await?;
        if n == 0 {
            return Err(Failure::Finished(format!("ended after {came} of {length} bytes")));
        }
        opened();
        let wrong = |at| Failure::Wrong(format!("byte {at} of {length}"));
        pattern.check(&buffer[..n]).map_err(wrong)?;
        side.on_compared(n as u64);
        came += n as u64;
    }
    Ok(())
}

/// Reads all that this buffer takes.
async fn exactly(
    what: &str,
    from: &mut (impl AsyncRead + Unpin),
    buffer: &mut [u8],
) -> Result<(), Failure> {
    let (mut came, length) = (0, buffer.len());
    while came < length {
        match patiently(what, from.read(&mut buffer[came..])).await? {
            0 => {
                let why = format!("{what}: ended after {came} of {length} bytes");
                return Err(Failure::Finished(why));
            }
            n => came += n,
        }
    }
    Ok(())
}

/// Reads the end of a stream.
async fn end(from: &mut (impl AsyncRead + Unpin)) -> Result<(), Failure> {
    match patiently("the end", from.read(&mut [0])).await? {
        0 => Ok(()),
        _ => Err(Failure::Wrong("bytes after the end".to_owned())),
    }
}

/// The client's end. `opened` is called when bytes of the server come.
pub(crate) async fn client(
    stream: impl AsyncRead + AsyncWrite,
    order: &Order,
    ledger: &Ledger,
    door: Door,
    mut opened: impl FnMut(),
) -> Result<(), Failure> {
    let (mut from, mut to) = tokio::io::split(Box::pin(stream));
    let up = async {
        patiently("sending", to.write_all(&order.encode())).await?;
        send(&mut to, order.upwards(), order.up, order, room(door)).await?;
        if order.half_closes() {
            patiently("ending", to.shutdown()).await?;
        }
        Ok(())
    };
    let leaves = order.leaves_after(door);
    let down = async {
        let length = leaves.unwrap_or(order.down);
        receive(&mut from, order.downwards(), length, ledger.down(door), &mut opened).await?;
        leaves.map_or(Ok(()), |_| Err(Failure::Left))
    };
    tokio::try_join!(up, down)?;
    let mut count = [0; 8];
    exactly("the server's count", &mut from, &mut count).await?;
    let count = u64::from_be_bytes(count);
    if count != order.up {
        return Err(Failure::Wrong(format!("the server counted {count} of {} bytes", order.up)));
    }
    if !order.half_closes() {
        patiently("ending", to.shutdown()).await?;
    }
    end(&mut from).await
}

/// The server's end. Where its client ends early, it waits for that end before it says how much came.
pub(crate) async fn server(
    stream: impl AsyncRead + AsyncWrite,
    ledger: &Ledger,
    door: Door,
) -> Result<(), Failure> {
    let (mut from, mut to) = tokio::io::split(Box::pin(stream));
    let mut order = [0; ORDER];
    patiently("an order", from.read_exact(&mut order)).await?;
    let order = Order::decode(&order).ok_or(Failure::Wrong("an order".to_owned()))?;
    let live = ledger.live(order.seed);
    let moved = || live.iter().for_each(|live| live.on_moved());
    moved();
    tokio::try_join!(
        receive(&mut from, order.upwards(), order.up, ledger.up(door), moved),
        send(&mut to, order.downwards(), order.down, &order, room(door)),
    )?;
    if order.half_closes() {
        end(&mut from).await?;
    }
    within(room(door), "the count", to.write_all(&order.up.to_be_bytes())).await?;
    patiently("ending", to.shutdown()).await?;
    if !order.half_closes() {
        end(&mut from).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Counted, Towards};
    use std::future::poll_fn;
    use std::pin::{Pin, pin};
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};
    use tokio::io::ReadBuf;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn order() -> Order {
        Order { seed: 6, up: 70_000, down: 100_000, rate: 1 << 30 }
    }

    #[test]
    fn orders_are_read_as_written() {
        let order = Order::draw(&mut Rng::new(1), 1_000);
        assert_eq!(Order::decode(&order.encode()), Some(order));
        assert_eq!(Order::decode(&[0; ORDER]), None);
    }

    /// A client and a server with `between` on the way down.
    async fn exchange(between: impl Fn(u64, &mut [u8])) -> (Arc<Ledger>, Result<(), Failure>) {
        exchange_of(order(), between).await
    }

    async fn exchange_of(
        order: Order,
        between: impl Fn(u64, &mut [u8]),
    ) -> (Arc<Ledger>, Result<(), Failure>) {
        let ledger = Ledger::new(std::time::Instant::now(), HOUR);
        let (near, mut middle) = tokio::io::duplex(4_096);
        let (mut inner, far) = tokio::io::duplex(4_096);
        let far = Counted::new(far, &ledger, Door::Connect, Towards::Client);
        let near = Counted::new(near, &ledger, Door::Connect, Towards::Server);
        let pump = async {
            let (mut from_client, mut to_client) = tokio::io::split(&mut middle);
            let (mut from_server, mut to_server) = tokio::io::split(&mut inner);
            let up = async {
                let _ended = tokio::io::copy(&mut from_client, &mut to_server).await;
                let _ended = to_server.shutdown().await;
            };
            let down = async {
                let (mut at, mut buffer) = (0, [0; 1_000]);
                while let Ok(n @ 1..) = from_server.read(&mut buffer).await {
                    between(at, &mut buffer[..n]);
                    at += n as u64;
                    let _ended = to_client.write_all(&buffer[..n]).await;
                }
                let _ended = to_client.shutdown().await;
            };
            tokio::join!(up, down);
        };
        let serve = server(far, &ledger, Door::Connect);
        let both = async {
            tokio::join!(client(near, &order, &ledger, Door::Connect, || {}), serve, pump).0
        };
        let result = timeout(PATIENCE, both).await.unwrap();
        (ledger, result)
    }

    #[tokio::test]
    async fn every_byte_is_compared_and_counted() {
        let (ledger, result) = exchange(|_, _| {}).await;
        assert!(result.is_ok(), "{result:?}");
        assert_eq!(ledger.up(Door::Connect).read(), (70_000 + ORDER as u64, 70_000));
        assert_eq!(ledger.down(Door::Connect).read(), (100_000 + 8, 100_000));
    }

    #[tokio::test]
    async fn a_client_that_leaves_has_compared_what_it_read() {
        let order = Order { seed: 1 << 8 | 50_000 << 16, ..order() };
        assert_eq!(order.leaves_after(Door::Tls), None);
        assert_eq!(order.leaves_after(Door::Connect), Some(50_000));
        let (ledger, result) = exchange_of(order, |_, _| {}).await;
        assert!(matches!(result, Err(Failure::Left)), "{result:?}");
        assert_eq!(ledger.down(Door::Connect).read().1, 50_000);
    }

    #[tokio::test]
    async fn a_server_waits_for_the_end_of_a_client_that_ends_early() {
        let (mut near, far) = tokio::io::duplex(4_096);
        let ledger = Ledger::new(std::time::Instant::now(), HOUR);
        let order = Order { up: 0, down: 0, ..order() };
        assert!(order.half_closes());
        let mut served = pin!(server(far, &ledger, Door::Connect));
        near.write_all(&order.encode()).await.unwrap();
        // it has all but the end
        assert!(poll_fn(|cx| Poll::Ready(served.as_mut().poll(cx).is_pending())).await);
        let mut count = [0; 8];
        let mut buffer = ReadBuf::new(&mut count);
        let said =
            Pin::new(&mut near).poll_read(&mut Context::from_waker(Waker::noop()), &mut buffer);
        assert!(said.is_pending(), "{said:?}");
        near.shutdown().await.unwrap();
        assert!(served.await.is_ok());
        near.read_exact(&mut count).await.unwrap();
    }

    #[tokio::test]
    async fn bytes_at_the_server_open_a_transfer_and_move_it() {
        let (ledger, order) = (Ledger::new(std::time::Instant::now(), HOUR), order());
        let live = ledger.begin("direct.test");
        ledger.expect(order.seed, &live);
        assert!(!live.opened());
        let (mut near, far) = tokio::io::duplex(4_096);
        near.write_all(&order.encode()).await.unwrap();
        drop(near);
        let served = server(far, &ledger, Door::Connect).await;
        assert!(served.is_err() && live.opened() && live.moved() >= live.from);
        drop(live);
        assert!(ledger.live(order.seed).is_none());
    }

    #[tokio::test]
    async fn one_wrong_bit_is_found_with_its_place() {
        let flip = |at: u64, bytes: &mut [u8]| {
            if let Some(byte) = 50_000_u64.checked_sub(at).and_then(|at| bytes.get_mut(at as usize))
            {
                *byte ^= 1;
            }
        };
        let (_, result) = exchange(flip).await;
        let Err(Failure::Wrong(what)) = result else { panic!("{result:?}") };
        assert_eq!(what, "byte 50000 of 100000");
    }
}
