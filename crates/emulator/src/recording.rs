//! Every packet of a run, written by a thread of its own: as rows for [`crate::engine::replay`], and as a
//! capture.

use crate::engine::wire::ETHERNET;
use ekiden_linux::links::packet::OFFLOAD;
use ekiden_model::network::link::{LossCause, Packet};
use ekiden_model::units::Time;
use ekiden_record::pcapng::Capture;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

/// Events that may wait for the writing thread; further events are dropped, and counted.
const WAITING: usize = 1 << 16;

/// What happened to a packet, in the machine's time. Numbers (`id`) are used again once a packet has left.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Event {
    Offered { at: Time, packet: Packet },
    Left { id: u64, outcome: Outcome },
}

/// What became of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Delivered.
    Delivered {
        /// When it was due, since the link began.
        due: Time,
        /// With a congestion mark.
        marked: bool,
    },
    /// Dropped from the queue.
    Dropped,
    /// Lost after it was sent.
    Lost,
    /// Still inside when the run ended.
    Inside,
}

impl From<LossCause> for Outcome {
    fn from(cause: LossCause) -> Self {
        match cause {
            LossCause::Lost => Self::Lost,
            LossCause::Dropped => Self::Dropped,
        }
    }
}

/// One packet's story.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Which direction, in the order of the engine's.
    pub direction: u32,
    /// Its place among the packets of its direction.
    pub number: u64,
    /// When it came, since the link began.
    pub offered: Time,
    /// What the link knew of it.
    pub packet: Packet,
    /// What became of it.
    pub outcome: Outcome,
}

#[derive(Debug)]
struct Message {
    direction: u32,
    /// The packet's place among those of its direction.
    number: u64,
    event: Event,
    bytes: Vec<u8>,
}

/// A direction's end of the writing thread's queue.
#[derive(Debug)]
pub(crate) struct Recorder {
    direction: u32,
    with_bytes: bool,
    to: SyncSender<Message>,
    /// Packets so far, and the place of each id in use: kept here, so that an event left out does not become
    /// another packet's.
    count: u64,
    numbers: Vec<u64>,
    left_out: Arc<AtomicU64>,
}

impl Recorder {
    /// Tells of an event; never waits.
    pub(crate) fn record(&mut self, event: Event, frame: &[u8]) {
        let number = self.number(&event);
        let bytes = if self.with_bytes { frame.to_vec() } else { Vec::new() };
        let message = Message { direction: self.direction, number, event, bytes };
        // a writing thread that has ended says why at the end
        if let Err(TrySendError::Full(_)) = self.to.try_send(message) {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn number(&mut self, event: &Event) -> u64 {
        let at = match event {
            Event::Offered { packet, .. } => packet.id as usize,
            Event::Left { id, .. } => *id as usize,
        };
        if let Event::Offered { .. } = event {
            self.numbers.resize(self.numbers.len().max(at + 1), 0);
            self.numbers[at] = self.count;
            self.count += 1;
        }
        self.numbers.get(at).copied().unwrap_or_default()
    }
}

/// Where rows go.
pub type Rows = Box<dyn FnMut(Row) -> io::Result<()> + Send>;

#[derive(Debug)]
pub(crate) struct Recording {
    to: SyncSender<Message>,
    with_bytes: bool,
    left_out: Arc<AtomicU64>,
    thread: JoinHandle<io::Result<()>>,
}

impl Recording {
    /// Begins with the directions' names; `wall` is the wall clock's lead over the monotonic one, ns, for the
    /// capture.
    pub(crate) fn start(
        names: Vec<String>,
        begun: Time,
        wall: u64,
        rows: Option<Rows>,
        capture: Option<Box<dyn Write + Send>>,
    ) -> Self {
        let (to, from) = sync_channel(WAITING);
        let with_bytes = capture.is_some();
        let thread = std::thread::spawn(move || {
            let book = Book { begun, rows, open: BTreeMap::new() };
            let film = capture.map(|to| Film::new(to, &names, wall)).transpose()?;
            write_all(&from, book, film)
        });
        Self { to, with_bytes, left_out: Arc::default(), thread }
    }

    pub(crate) fn recorder(&self, direction: u32) -> Recorder {
        Recorder {
            direction,
            with_bytes: self.with_bytes,
            to: self.to.clone(),
            count: 0,
            numbers: Vec::new(),
            left_out: Arc::clone(&self.left_out),
        }
    }

    /// Waits until all is written, after the directions have ended; returns the number of events left out.
    pub(crate) fn finish(self) -> io::Result<u64> {
        drop(self.to);
        let written = self.thread.join();
        written.unwrap_or_else(|_| Err(io::Error::other("the writing thread panicked")))?;
        Ok(self.left_out.load(Ordering::Relaxed))
    }
}

fn write_all(from: &Receiver<Message>, mut book: Book, mut film: Option<Film>) -> io::Result<()> {
    for message in from {
        if let Some(film) = &mut film {
            film.take(&message)?;
        }
        book.take((message.direction, message.number), message.event)?;
    }
    book.close()?;
    film.map_or(Ok(()), Film::close)
}

struct Book {
    begun: Time,
    rows: Option<Rows>,
    /// By direction and the packet's place in it.
    open: BTreeMap<(u32, u64), Row>,
}

impl Book {
    fn since_begun(&self, time: Time) -> Time {
        Time::from_nanos(time.since(self.begun).as_nanos())
    }

    fn take(&mut self, (direction, number): (u32, u64), event: Event) -> io::Result<()> {
        let outcome = match event {
            Event::Offered { at, packet } => {
                let offered = self.since_begun(at);
                let row = Row { direction, number, offered, packet, outcome: Outcome::Inside };
                self.open.insert((direction, number), row);
                return Ok(());
            }
            Event::Left { outcome: Outcome::Delivered { due, marked }, .. } => {
                Outcome::Delivered { due: self.since_begun(due), marked }
            }
            Event::Left { outcome, .. } => outcome,
        };
        match (self.open.remove(&(direction, number)), &mut self.rows) {
            (Some(row), Some(rows)) => rows(Row { outcome, ..row }),
            _ => Ok(()),
        }
    }

    fn close(mut self) -> io::Result<()> {
        if let Some(rows) = &mut self.rows {
            for row in self.open.into_values() {
                rows(row)?;
            }
        }
        Ok(())
    }
}

/// A capture with two interfaces for each direction: what came in, and what came out.
struct Film {
    capture: Capture<Box<dyn Write + Send>>,
    wall: u64,
}

impl Film {
    fn new(to: Box<dyn Write + Send>, names: &[String], wall: u64) -> io::Result<Self> {
        let mut capture = Capture::new(to, "packets into and out of an emulated link")?;
        for name in names {
            capture.interface(&format!("{name}, in"))?;
            capture.interface(&format!("{name}, out"))?;
        }
        Ok(Self { capture, wall })
    }

    fn take(&mut self, message: &Message) -> io::Result<()> {
        let (interface, at) = match message.event {
            Event::Offered { at, .. } => (message.direction * 2, at),
            Event::Left { outcome: Outcome::Delivered { due, .. }, .. } => {
                (message.direction * 2 + 1, due)
            }
            Event::Left { .. } => return Ok(()),
        };
        let packet = message.bytes.get(OFFLOAD + ETHERNET..).unwrap_or_default();
        let at = Time::from_nanos(at.as_nanos().saturating_add(self.wall));
        self.capture.packet(interface, at, packet, packet.len() as u32)
    }

    fn close(self) -> io::Result<()> {
        self.capture.into_inner().flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// Ten packets, each delivered before the next comes, so that all have the same id.
    fn tell(recorder: &mut Recorder) {
        for at in 0..10 {
            let packet =
                Packet { id: 0, bytes: 1, class: 0, flow: 0, segments: 1, ecn_capable: false };
            let at = Time::from_nanos(at);
            recorder.record(Event::Offered { at, packet }, &[]);
            let outcome = Outcome::Delivered { due: at, marked: false };
            recorder.record(Event::Left { id: 0, outcome }, &[]);
        }
    }

    #[test]
    fn counts_packets_that_are_left_out() {
        for room in 1..20 {
            let (to, from) = sync_channel(room);
            let left_out = Arc::new(AtomicU64::new(0));
            let mut recorder = Recorder {
                direction: 0,
                with_bytes: false,
                to,
                count: 0,
                numbers: Vec::new(),
                left_out: Arc::clone(&left_out),
            };
            // a writer that takes every third event while they come
            let mut got = Vec::new();
            for _ in 0..3 {
                tell(&mut recorder);
                got.extend(from.try_iter().take(3));
            }
            drop(recorder);
            got.extend(from.iter());
            assert_eq!(got.len() as u64 + left_out.load(Ordering::Relaxed), 60);
            let rows = Arc::new(Mutex::new(Vec::new()));
            let kept = Arc::clone(&rows);
            let keep: Rows = Box::new(move |row| {
                kept.lock().unwrap().push(row);
                Ok(())
            });
            let mut book = Book { begun: Time::ZERO, rows: Some(keep), open: BTreeMap::new() };
            for message in got {
                book.take((message.direction, message.number), message.event).unwrap();
            }
            book.close().unwrap();
            for row in rows.lock().unwrap().iter() {
                assert_eq!(row.offered.as_nanos(), row.number % 10, "{row:?}");
                let at = row.offered;
                let through = Outcome::Delivered { due: at, marked: false };
                assert!([through, Outcome::Inside].contains(&row.outcome), "{row:?}");
            }
        }
    }
}
