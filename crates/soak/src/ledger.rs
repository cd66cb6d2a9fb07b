//! What clients and servers counted, by account, and which transfers did not end whole.

use crate::laws::{Break, DOORS, Door, LEGS, Leg, Refusals};
use ekiden_testbed::load::meter::Meter;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What may be on its way to a client whose stream breaks.
const WINDOW: u64 = 4 << 20;

/// Bytes of one account in one direction.
#[derive(Debug)]
pub(crate) struct Side {
    /// All that its sender wrote, heads and framing included: the most that may be booked.
    sent: AtomicU64,
    /// Of streams, all that their receiver read.
    arrived: AtomicU64,
    /// Of streams, what their receiver compared: the least that must be booked.
    compared: AtomicU64,
    /// Framing that may have been on its way to a receiver that broke.
    unread: AtomicU64,
    /// The latter by time.
    meter: Meter,
}

impl Side {
    fn new(begun: Instant, lasts: Duration) -> Self {
        Self {
            sent: AtomicU64::new(0),
            arrived: AtomicU64::new(0),
            compared: AtomicU64::new(0),
            unread: AtomicU64::new(0),
            meter: Meter::new(begun, lasts),
        }
    }

    /// These bytes were written, or may be.
    pub(crate) fn on_sent(&self, bytes: u64) {
        self.sent.fetch_add(bytes, Relaxed);
    }

    /// A chunked stream of so many bytes broke, or went through two who write chunks anew. Who writes chunks anew makes one of each piece that it reads, which are
    /// 512 bytes or more but for the last ones.
    pub(crate) fn on_broken_chunks(&self, bytes: u64) {
        self.unread.fetch_add(bytes / 64 + 1_024, Relaxed);
    }

    /// A stream within TLS broke: a window of records of a kilobyte or more, each with 22 bytes of its own and, by
    /// HTTP/2, 9 of a frame.
    pub(crate) fn on_broken_records(&self) {
        self.unread.fetch_add(WINDOW / 1_024 * 31, Relaxed);
    }

    /// The relay booked so many bytes at most that no end sent: its own answers, or a head as the one of HTTP/1.1 that it
    /// becomes.
    pub(crate) fn on_own(&self, bytes: u64) {
        self.unread.fetch_add(bytes, Relaxed);
    }

    /// These bytes were read, heads and framing included.
    fn on_arrived(&self, bytes: u64) {
        self.arrived.fetch_add(bytes, Relaxed);
    }

    /// These bytes came and were right.
    pub(crate) fn on_compared(&self, bytes: u64) {
        self.compared.fetch_add(bytes, Relaxed);
        self.meter.add(bytes);
    }

    /// Bytes sent, and bytes compared.
    pub(crate) fn read(&self) -> (u64, u64) {
        (self.sent.load(Relaxed), self.compared.load(Relaxed))
    }

    /// Heads and framing that came, or may have been on their way when a transfer broke.
    pub(crate) fn framing(&self) -> u64 {
        let (arrived, compared) = (self.arrived.load(Relaxed), self.compared.load(Relaxed));
        arrived.saturating_sub(compared) + self.unread.load(Relaxed)
    }

    /// What was compared between these times since the beginning.
    pub(crate) fn between(&self, from: Duration, to: Duration) -> u64 {
        self.meter.between(from, to)
    }
}

/// Transfers of a door over a leg.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Transfers {
    /// That ended whole; of datagrams, those whose answer came.
    pub(crate) whole: u64,
    /// That did not; of datagrams, those without an answer in time.
    pub(crate) broken: u64,
    /// That their client left before the end.
    pub(crate) left: u64,
    /// Bytes compared, both directions.
    pub(crate) bytes: u64,
}

/// The datagrams of one association, or some questions for names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Datagrams {
    pub(crate) door: Door,
    pub(crate) leg: Leg,
    /// When the first was sent, and when the last answer was waited for.
    pub(crate) from: Duration,
    pub(crate) to: Duration,
    pub(crate) sent: u64,
    /// Those without an answer; of questions, those that were asked again.
    pub(crate) unanswered: u64,
    /// Those without an answer that were sent after one with an answer; all, where none had one.
    pub(crate) lost: u64,
    /// Answers beyond the first to the same one.
    pub(crate) duplicates: u64,
}

impl Datagrams {
    /// None yet.
    pub(crate) const fn none(door: Door, leg: Leg) -> Self {
        let (from, to) = (Duration::ZERO, Duration::ZERO);
        Self { door, leg, from, to, sent: 0, unanswered: 0, lost: 0, duplicates: 0 }
    }

    /// What an association lost, in a sentence.
    pub(crate) fn in_words(&self) -> String {
        let Self { from, sent, lost, .. } = self;
        let (door, leg) = (self.door.name(), self.leg.name());
        format!(
            "without a fault, {door} over the {leg} leg lost {lost} of {sent} datagrams from {from:.1?} on"
        )
    }
}

/// A transfer that lives, as both its ends see it.
#[derive(Debug)]
pub(crate) struct Live {
    begun: Instant,
    /// When its client began it, since the beginning of the traffic.
    pub(crate) from: Duration,
    /// The domain of its server's name, which says its way.
    pub(crate) domain: String,
    /// When bytes of it came last, at either end, in nanoseconds since the beginning of the traffic.
    moved: AtomicU64,
    opened: AtomicBool,
}

impl Live {
    /// Bytes came at one of its ends, so it is open.
    pub(crate) fn on_moved(&self) {
        self.moved.fetch_max(self.begun.elapsed().as_nanos() as u64, Relaxed);
        self.opened.store(true, Relaxed);
    }

    /// Whether anything has come from one end to the other.
    pub(crate) fn opened(&self) -> bool {
        self.opened.load(Relaxed)
    }

    /// When bytes of it came last; its beginning, where none did.
    pub(crate) fn moved(&self) -> Duration {
        Duration::from_nanos(self.moved.load(Relaxed))
    }
}

#[derive(Debug, Default)]
struct Entries {
    transfers: BTreeMap<(Door, Leg), Transfers>,
    breaks: Vec<Break>,
    datagrams: Vec<Datagrams>,
    questions: Vec<Datagrams>,
    wrong: Vec<String>,
    counts: BTreeMap<&'static str, u64>,
    refusals: Refusals,
}

/// All of a run.
#[derive(Debug)]
pub(crate) struct Ledger {
    begun: Instant,
    /// From clients to servers, and back, by door.
    up: Vec<Side>,
    down: Vec<Side>,
    entries: Mutex<Entries>,
    /// Transfers that live, by the seeds of their orders, for their servers.
    living: Mutex<BTreeMap<u64, Weak<Live>>>,
}

impl Ledger {
    /// An empty one; time counts from `begun`, for so long.
    pub(crate) fn new(begun: Instant, lasts: Duration) -> Arc<Self> {
        let sides = || DOORS.map(|_| Side::new(begun, lasts)).into();
        Arc::new(Self {
            begun,
            up: sides(),
            down: sides(),
            entries: Mutex::default(),
            living: Mutex::default(),
        })
    }

    /// Time since the traffic began.
    pub(crate) fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// An account's bytes to servers.
    pub(crate) fn up(&self, door: Door) -> &Side {
        &self.up[door as usize]
    }

    /// An account's bytes to clients.
    pub(crate) fn down(&self, door: Door) -> &Side {
        &self.down[door as usize]
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client begins a transfer with a server whose name ends so.
    pub(crate) fn begin(&self, domain: &str) -> Arc<Live> {
        let from = self.now();
        Arc::new(Live {
            begun: self.begun,
            from,
            domain: domain.to_owned(),
            moved: AtomicU64::new(from.as_nanos() as u64),
            opened: AtomicBool::new(false),
        })
    }

    fn living(&self) -> MutexGuard<'_, BTreeMap<u64, Weak<Live>>> {
        self.living.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server of an order of this seed finds its transfer from now on.
    pub(crate) fn expect(&self, seed: u64, live: &Arc<Live>) {
        let mut living = self.living();
        living.retain(|_, other| other.strong_count() > 0);
        living.insert(seed, Arc::downgrade(live));
    }

    /// The transfer of an order of this seed, if its client still is there.
    pub(crate) fn live(&self, seed: u64) -> Option<Arc<Live>> {
        self.living().get(&seed)?.upgrade()
    }

    /// A transfer ended whole.
    pub(crate) fn on_whole(&self, door: Door, leg: Leg, bytes: u64) {
        let mut entries = self.entries();
        let transfers = entries.transfers.entry((door, leg)).or_default();
        transfers.whole += 1;
        transfers.bytes += bytes;
    }

    /// A client left a transfer before its end, as its order said.
    pub(crate) fn on_left(&self, door: Door, leg: Leg) {
        self.entries().transfers.entry((door, leg)).or_default().left += 1;
    }

    /// A transfer broke now.
    pub(crate) fn on_break(&self, broken: Break) {
        let mut entries = self.entries();
        entries.transfers.entry((broken.door, broken.leg)).or_default().broken += 1;
        entries.breaks.push(broken);
    }

    /// An association is over. Networks may lose datagrams, but hardly without a fault.
    pub(crate) fn on_datagrams(&self, datagrams: Datagrams) {
        let mut entries = self.entries();
        let Datagrams { door, leg, unanswered, .. } = datagrams;
        entries.transfers.entry((door, leg)).or_default().broken += unanswered;
        entries.datagrams.push(datagrams);
    }

    /// Some questions for names have answers, or were given up.
    pub(crate) fn on_questions(&self, questions: Datagrams) {
        self.entries().questions.push(questions);
    }

    /// Somebody received bytes that were not sent.
    pub(crate) fn on_wrong(&self, what: String) {
        self.entries().wrong.push(what);
    }

    /// Something that the summary counts happened.
    pub(crate) fn on_count(&self, what: &'static str) {
        *self.entries().counts.entry(what).or_default() += 1;
    }

    /// How often each such thing happened.
    pub(crate) fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.entries().counts.clone()
    }

    /// A client was refused because its account's quota is used up.
    pub(crate) fn on_refused(&self) {
        self.entries().refusals.on_refused(self.now());
    }

    /// All such refusals.
    pub(crate) fn refusals(&self) -> Refusals {
        self.entries().refusals
    }

    /// All bytes that were compared.
    pub(crate) fn compared(&self) -> u64 {
        self.up.iter().chain(&self.down).map(|side| side.read().1).sum()
    }

    /// Transfers by door and leg.
    pub(crate) fn transfers(&self) -> Vec<(Door, Leg, Transfers)> {
        let entries = self.entries();
        let of = |door, leg| entries.transfers.get(&(door, leg)).copied().unwrap_or_default();
        let all = DOORS.iter().flat_map(|door| LEGS.map(|leg| (*door, leg)));
        let taken = all.filter(|(door, leg)| door.takes(*leg));
        taken.map(|(door, leg)| (door, leg, of(door, leg))).collect()
    }

    /// Transfers that did not end whole.
    pub(crate) fn breaks(&self) -> Vec<Break> {
        self.entries().breaks.clone()
    }

    /// Every association that is over.
    pub(crate) fn datagrams(&self) -> Vec<Datagrams> {
        self.entries().datagrams.clone()
    }

    /// All questions for names.
    pub(crate) fn questions(&self) -> Vec<Datagrams> {
        self.entries().questions.clone()
    }

    /// Wrong bytes, each with its place.
    pub(crate) fn wrong(&self) -> Vec<String> {
        self.entries().wrong.clone()
    }
}

/// Which way a stream's writer sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Towards {
    Server,
    Client,
}

/// A stream whose written bytes are counted as sent, and whose read ones as arrived.
#[derive(Debug)]
pub(crate) struct Counted<T> {
    inner: T,
    ledger: Arc<Ledger>,
    door: Door,
    towards: Towards,
}

impl<T> Counted<T> {
    pub(crate) fn new(inner: T, ledger: &Arc<Ledger>, door: Door, towards: Towards) -> Self {
        Self { inner, ledger: Arc::clone(ledger), door, towards }
    }

    /// Of what is written, and of what is read.
    fn sides(&self) -> [&Side; 2] {
        let (up, down) = (self.ledger.up(self.door), self.ledger.down(self.door));
        match self.towards {
            Towards::Server => [up, down],
            Towards::Client => [down, up],
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Counted<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(cx, buffer);
        self.sides()[1].on_arrived((buffer.filled().len() - before) as u64);
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Counted<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, bytes);
        if let Poll::Ready(Ok(n)) = &written {
            self.sides()[0].on_sent(*n as u64);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
