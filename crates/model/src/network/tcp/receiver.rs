//! The receiving side: reassembly, and when to acknowledge.

use super::{Acknowledgement, Block, Blocks, MOST_BLOCKS, Ranges};
use crate::units::{Span, Time};

/// When arrivals are acknowledged (RFC 5681 §4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acknowledging {
    /// One acknowledgement for so many segments in order; 1: for each. RFC 1122 wants 2 at most.
    pub every: u32,
    /// … or after so long; RFC 1122: 500 ms at most.
    pub delay: Span,
    /// So many segments from the beginning are acknowledged each (Linux: 16).
    pub quick: u32,
}

impl Acknowledging {
    /// Each segment at once.
    pub const EACH: Self = Self { every: 1, delay: Span::ZERO, quick: 0 };
    /// Every second one, or after 40 ms; the first 16 each (Linux).
    pub const LINUX: Self = Self { every: 2, delay: Span::from_millis(40), quick: 16 };
    /// Every second one, or after 100 ms (ns-2: `TCPSink/DelAck`).
    pub const DELAYED: Self = Self { every: 2, delay: Span::from_millis(100), quick: 0 };
}

/// A receiver's parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiverConfig {
    /// Payload of a full segment, for silly-window avoidance.
    pub mss: u32,
    /// Bytes that may wait to be read; what is out of order counts once it is in order, as in 4.4BSD.
    pub buffer: u64,
    /// Bits by which the window's 16 are shifted (RFC 7323); 0 without the option.
    pub scale: u8,
    /// When to acknowledge.
    pub acknowledging: Acknowledging,
    /// Whether selective acknowledgements are sent.
    pub selective: bool,
    /// Whether what is there already is reported (RFC 2883).
    pub duplicates: bool,
    /// Bytes are read as soon as they are in order; otherwise [`Receiver::on_read`] says so.
    pub read_at_once: bool,
}

impl ReceiverConfig {
    /// Linux's, which reads at once.
    pub const fn linux(mss: u32, buffer: u64, scale: u8) -> Self {
        let (acknowledging, selective, duplicates) = (Acknowledging::LINUX, true, true);
        Self { mss, buffer, scale, acknowledging, selective, duplicates, read_at_once: true }
    }
}

/// The result of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Bytes that are in order now and were not before: from here …
    pub from: u64,
    /// … to here. A gap that was filled lets all behind it go on.
    pub to: u64,
    /// Nothing of it was new.
    pub duplicate: bool,
}

/// The receiving side of one direction.
#[derive(Debug, Clone)]
pub struct Receiver {
    config: ReceiverConfig,
    next: u64,
    read: u64,
    beyond: Ranges,
    /// Offsets in the ranges touched last, the newest first.
    recent: [u64; MOST_BLOCKS + 1],
    duplicate: Option<Block>,
    /// The advertised right edge; it never moves back (RFC 9293 §3.8.6).
    told: u64,
    acknowledged: u64,
    /// Segments in order since the last acknowledgement.
    unacknowledged: u32,
    quick: u32,
    due: bool,
    deadline: Time,
    timestamp: Option<Time>,
    marked: bool,
    segments: u64,
    duplicates: u64,
}

/// A snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ReceiverSnapshot {
    /// Bytes in order.
    pub in_order: u64,
    /// Bytes beyond a gap.
    pub beyond: u64,
    /// Bytes in order that wait to be read.
    pub unread: u64,
    /// Segments that came.
    pub segments: u64,
    /// … of them with nothing new.
    pub duplicates: u64,
}

impl Receiver {
    /// A receiver that has seen nothing; its whole buffer has been offered.
    pub fn new(config: ReceiverConfig) -> Self {
        let mut receiver = Self {
            config,
            next: 0,
            read: 0,
            beyond: Ranges::default(),
            recent: [u64::MAX; MOST_BLOCKS + 1],
            duplicate: None,
            told: 0,
            acknowledged: 0,
            unacknowledged: 0,
            quick: config.acknowledging.quick,
            due: false,
            deadline: Time::NEVER,
            timestamp: None,
            marked: false,
            segments: 0,
            duplicates: 0,
        };
        receiver.told = receiver.edge();
        receiver
    }

    /// A segment arrived with its `timestamp` (RFC 7323); `marked` by a queue, `reduced` by the
    /// sender (RFC 3168).
    pub fn on_segment(
        &mut self,
        now: Time,
        segment: Block,
        timestamp: Option<Time>,
        marked: bool,
        reduced: bool,
    ) -> Received {
        self.segments += 1;
        self.marked = marked || (self.marked && !reduced);
        // the timestamp that the next acknowledgement answers (RFC 7323 §4.3)
        if segment.start <= self.acknowledged && timestamp >= self.timestamp {
            self.timestamp = timestamp;
        }
        let before = self.next;
        let mut new = 0;
        let wanted = Block { start: segment.start.max(self.next), end: segment.end };
        self.beyond.missing(wanted, |part| new += part.len());
        if new == 0 {
            self.duplicates += 1;
            self.duplicate = self.config.duplicates.then_some(segment);
            self.due = true;
            return Received { from: before, to: before, duplicate: true };
        }
        let gap = !self.beyond.is_empty();
        if segment.start > self.next {
            self.beyond.insert(segment);
            self.touch(segment.start);
            self.due = true;
        } else {
            self.next = segment.end;
            if let Some(joined) = self.beyond.around(self.next).or_else(|| self.first_at_next()) {
                self.next = self.next.max(joined.end);
            }
            self.beyond.forget_below(self.next);
            self.in_order(now, gap);
        }
        if self.config.read_at_once {
            self.read = self.next;
        }
        Received { from: before, to: self.next, duplicate: false }
    }

    /// The application has read so many bytes.
    pub fn on_read(&mut self, bytes: u64) {
        self.read = self.read.saturating_add(bytes).min(self.next);
        self.tell_if_worth();
    }

    /// Sets the receive buffer's size; the advertised window stays valid (RFC 9293 §3.8.6).
    pub fn set_buffer(&mut self, bytes: u64) {
        self.config.buffer = bytes;
        self.tell_if_worth();
    }

    fn tell_if_worth(&mut self) {
        // a window update is sent when it is worth a packet (RFC 1122 §4.2.3.3)
        let opened = self.edge().saturating_sub(self.told);
        // … and no more often than arrivals are acknowledged
        let segments = u64::from(self.config.acknowledging.every.max(2));
        let worth =
            u64::from(self.config.mss).saturating_mul(segments).min(self.config.buffer / 2).max(1);
        self.due |= opened >= worth;
    }

    /// The acknowledgement to be sent now, if one is due.
    pub fn poll(&mut self) -> Option<Acknowledgement> {
        self.due.then(|| self.acknowledge())
    }

    /// An acknowledgement now, due or not: on a segment of the other direction.
    pub fn acknowledge(&mut self) -> Acknowledgement {
        self.due = false;
        self.deadline = Time::NEVER;
        self.unacknowledged = 0;
        self.acknowledged = self.next;
        self.told = self.edge();
        let blocks = self.blocks();
        Acknowledgement {
            ack: self.next,
            window: self.told - self.next,
            blocks,
            echo: self.timestamp,
            marked: self.marked,
        }
    }

    /// When a delayed acknowledgement is due.
    pub const fn deadline(&self) -> Time {
        self.deadline
    }

    /// The time has come.
    pub fn on_deadline(&mut self, now: Time) {
        self.due |= self.deadline <= now;
    }

    /// All below this offset has arrived.
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// A snapshot.
    pub fn snapshot(&self) -> ReceiverSnapshot {
        ReceiverSnapshot {
            in_order: self.next,
            beyond: self.beyond.bytes(),
            unread: self.next - self.read,
            segments: self.segments,
            duplicates: self.duplicates,
        }
    }

    fn first_at_next(&self) -> Option<Block> {
        self.beyond.as_slice().first().copied().filter(|first| first.start <= self.next)
    }

    fn in_order(&mut self, now: Time, gap: bool) {
        self.unacknowledged += 1;
        let quick = self.quick > 0;
        self.quick = self.quick.saturating_sub(1);
        // a segment that fills a gap is acknowledged immediately (RFC 5681 §4.2)
        if gap || quick || self.unacknowledged >= self.config.acknowledging.every {
            self.due = true;
        } else if self.deadline == Time::NEVER {
            self.deadline = now + self.config.acknowledging.delay;
        }
    }

    /// The right edge of what may be sent.
    fn edge(&self) -> u64 {
        let unread = self.next - self.read;
        let shift = u32::from(self.config.scale);
        let most = u64::from(u16::MAX) << shift;
        let free = self.config.buffer.saturating_sub(unread).min(most);
        let rounded = self.next + ((free >> shift) << shift);
        // not opened by crumbs
        let worth = u64::from(self.config.mss).min(self.config.buffer / 2);
        if rounded < self.told.saturating_add(worth) && self.told >= self.next {
            return self.told.max(self.next);
        }
        rounded.max(self.told)
    }

    fn touch(&mut self, offset: u64) {
        self.recent.rotate_right(1);
        self.recent[0] = offset;
    }

    fn blocks(&mut self) -> Blocks {
        let mut blocks = Blocks::default();
        if !self.config.selective {
            return blocks;
        }
        if let Some(duplicate) = self.duplicate.take() {
            blocks.push(duplicate);
        }
        let found = self.recent.iter().filter_map(|at| self.beyond.around(*at));
        for block in found {
            if !blocks.as_slice().contains(&block) {
                blocks.push(block);
            }
        }
        // a gap that was filled may leave room for ranges that were not touched lately
        for block in self.beyond.as_slice().iter().rev() {
            if blocks.as_slice().len() >= MOST_BLOCKS {
                break;
            }
            if !blocks.as_slice().contains(block) {
                blocks.push(*block);
            }
        }
        blocks
    }
}
