//! Every packet of a run, written down by a thread of its own: as rows that [`crate::replay`] reads
//! back, and as a capture that tshark reads.

use crate::wire::ETHERNET;
use ekiden_linux::packet::OFFLOAD;
use ekiden_model::link::Packet;
use ekiden_model::units::Time;
use ekiden_record::pcapng::Capture;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

/// Events that may wait for the writing thread; what comes beyond is left out, and said.
const WAITING: usize = 1 << 16;

/// What a direction tells of a packet. Numbers (`id`) are used again once a packet is gone.
#[derive(Debug, Clone, Copy)]
pub enum Event {
    /// It came in.
    Offered {
        /// When.
        at: Time,
        /// What it is.
        packet: Packet,
    },
    /// It came through.
    Delivered {
        /// The packet's number.
        id: u64,
        /// When it was due at the other end.
        due: Time,
        /// With a congestion mark.
        marked: bool,
    },
    /// It did not.
    Gone {
        /// The packet's number.
        id: u64,
        /// Lost after it was sent, and not dropped from the queue.
        lost: bool,
    },
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
    event: Event,
    bytes: Vec<u8>,
}

/// A direction's pen.
#[derive(Debug)]
pub struct Recorder {
    direction: u32,
    with_bytes: bool,
    to: SyncSender<Message>,
}

impl Recorder {
    /// Tells of an event; never waits.
    pub(crate) fn record(&self, event: Event, frame: &[u8]) {
        let bytes = if self.with_bytes { frame.to_vec() } else { Vec::new() };
        let message = Message { direction: self.direction, event, bytes };
        match self.to.try_send(message) {
            Ok(()) | Err(TrySendError::Disconnected(_)) => {}
            // the row this belongs to will be missing, which the reader of the rows notices
            Err(TrySendError::Full(_)) => {}
        }
    }
}

/// Where rows go.
pub type Rows = Box<dyn FnMut(Row) -> io::Result<()> + Send>;

/// The writing thread.
#[derive(Debug)]
pub struct Recording {
    to: SyncSender<Message>,
    with_bytes: bool,
    thread: JoinHandle<io::Result<()>>,
}

impl Recording {
    /// Begins. `names` are the directions'; `wall` is the wall clock's lead over the monotonic one in
    /// nanoseconds, for the capture's times; `begun` is when the links begin.
    #[must_use]
    pub fn start(
        names: Vec<String>,
        begun: Time,
        wall: u64,
        rows: Option<Rows>,
        capture: Option<Box<dyn Write + Send>>,
    ) -> Self {
        let (to, from) = sync_channel(WAITING);
        let with_bytes = capture.is_some();
        let thread = std::thread::spawn(move || {
            let book = Book { begun, rows, open: BTreeMap::new(), counts: BTreeMap::new() };
            let film = capture.map(|to| Film::new(to, &names, wall)).transpose()?;
            write_all(&from, book, film)
        });
        Self { to, with_bytes, thread }
    }

    /// A pen for the n-th direction.
    #[must_use]
    pub fn recorder(&self, direction: u32) -> Recorder {
        Recorder { direction, with_bytes: self.with_bytes, to: self.to.clone() }
    }

    /// Waits until everything is written; the directions must have ended.
    ///
    /// # Errors
    /// The files'.
    pub fn finish(self) -> io::Result<()> {
        drop(self.to);
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the writing thread panicked")))
    }
}

fn write_all(from: &Receiver<Message>, mut book: Book, mut film: Option<Film>) -> io::Result<()> {
    for message in from {
        if let Some(film) = &mut film {
            film.take(&message)?;
        }
        book.take(message.direction, message.event)?;
    }
    book.close()?;
    film.map_or(Ok(()), Film::close)
}

/// Rows in the making.
struct Book {
    begun: Time,
    rows: Option<Rows>,
    /// By direction and the number in use.
    open: BTreeMap<(u32, u64), Row>,
    counts: BTreeMap<u32, u64>,
}

impl Book {
    fn since_begun(&self, time: Time) -> Time {
        Time::from_nanos(time.since(self.begun).as_nanos())
    }

    fn take(&mut self, direction: u32, event: Event) -> io::Result<()> {
        let (id, outcome) = match event {
            Event::Offered { at, packet } => {
                let count = self.counts.entry(direction).or_default();
                let number = *count;
                *count += 1;
                let offered = self.since_begun(at);
                let row = Row { direction, number, offered, packet, outcome: Outcome::Inside };
                self.open.insert((direction, packet.id), row);
                return Ok(());
            }
            Event::Delivered { id, due, marked } => {
                (id, Outcome::Delivered { due: self.since_begun(due), marked })
            }
            Event::Gone { id, lost: true } => (id, Outcome::Lost),
            Event::Gone { id, lost: false } => (id, Outcome::Dropped),
        };
        match (self.open.remove(&(direction, id)), &mut self.rows) {
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
            Event::Delivered { due, .. } => (message.direction * 2 + 1, due),
            Event::Gone { .. } => return Ok(()),
        };
        let packet = message.bytes.get(OFFLOAD + ETHERNET..).unwrap_or_default();
        let at = Time::from_nanos(at.as_nanos().saturating_add(self.wall));
        self.capture.packet(interface, at, packet, packet.len() as u32)
    }

    fn close(self) -> io::Result<()> {
        self.capture.into_inner().flush()
    }
}
