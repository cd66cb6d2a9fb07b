//! One flow at one end: bytes to send, bytes received, and how each direction ends.

use crate::core::packet_queue::Packets;
use crate::core::reassembly::Assembly;
use crate::frame::reason::Reason;
use crate::frame::{Carries, Frame, Open, Opening};
use bytes::{Buf, Bytes, BytesMut};
use ekiden_model::control::classifier::{Bursts, Class, Hint};
use ekiden_model::control::repair::packets::{Decoder, Encoder};
use ekiden_model::control::repair::{Plan, Recovery};
use ekiden_model::control::scheduler::{Flow as Turns, Lane};
use ekiden_model::resources::send_queue::SendQueue;
use ekiden_model::units::{Span, Time};
use quinn_proto::StreamId;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Bytes of a burst's beginning that are sent twice. Two packets hold a keystroke's echo, a request
/// or an answer's head; more would copy the beginnings of downloads.
const COPIED: u64 = 2_800;
/// And so much of it again after every half a second: 45 kbit/s, well above a terminal's.
const AGAIN: Span = Span::from_millis(500);
/// A reader goes on where it takes one of so many bytes that wait. One that takes less in ten seconds needs more than ten
/// minutes for them.
const PART: u64 = 64;
/// Half of the ten seconds over which a reader's pace is taken.
const HALF: Span = Span::from_secs(5);
/// A reader takes about so much at a time, bytes.
const PIECE: u64 = 4_096;

/// How a direction ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// Nothing more comes: a half-close.
    Fin,
    /// The connection broke. Bytes sent before are still delivered.
    Reset(Reason, String),
}

/// What an owner's flows have waiting to be sent, in all tunnels of the peer: bytes of the memory that flows share.
#[derive(Debug, Default)]
pub(super) struct Owner {
    /// With what those behind it have.
    waiting: AtomicU64,
    /// The owner that it is behind: another relay, as one account.
    within: Option<Arc<Self>>,
}

impl Owner {
    pub(super) fn new(within: Option<Arc<Self>>) -> Self {
        Self { waiting: AtomicU64::new(0), within }
    }

    pub(super) fn waiting(&self) -> u64 {
        self.waiting.load(Relaxed)
    }

    pub(super) fn within(&self) -> Option<&Self> {
        self.within.as_deref()
    }

    fn change(&self, before: u64, now: u64) {
        if now > before {
            self.waiting.fetch_add(now - before, Relaxed);
        } else if now < before {
            self.waiting.fetch_sub(before - now, Relaxed);
        }
        if let Some(within) = &self.within {
            within.change(before, now);
        }
    }
}

/// A flow's part of what its owner has waiting, until this is dropped.
#[derive(Debug)]
pub(super) struct OwnersPart {
    owner: Arc<Owner>,
    bytes: u64,
}

impl OwnersPart {
    pub(super) fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Returns what it was before.
    pub(super) fn set(&mut self, bytes: u64) -> u64 {
        let before = std::mem::replace(&mut self.bytes, bytes);
        self.owner.change(before, bytes);
        before
    }
}

impl Drop for OwnersPart {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[derive(Debug)]
pub(super) struct Flow {
    pub(super) ours: bool,
    pub(super) opening: Opening,
    /// The destination's answer, once it has come or was given.
    pub(super) answer: Option<Result<(), (Reason, String)>>,
    pub(super) waiting: OwnersPart,
    pub(super) turns: Turns,
    pub(super) lane: Lane,
    bursts: Bursts,
    pub(super) sending: Sending,
    pub(super) receiving: Receiving,
    pub(super) packets: Packets,
    /// Where its packets are coded.
    pub(super) coding: Option<Box<Coding>>,
    /// Nobody here has it any more; it goes once all is sent, or the peer takes nothing for long.
    pub(super) left: bool,
}

/// Both directions of a flow whose packets are coded.
#[derive(Debug, Default)]
pub(super) struct Coding {
    pub(super) encoder: Encoder<Bytes>,
    pub(super) decoder: Decoder<Bytes>,
    /// When the decoder is to be looked at.
    pub(super) look_at: Option<Time>,
}

#[derive(Debug, Default)]
pub(super) struct Sending {
    queue: VecDeque<Bytes>,
    pub(super) queued: u64,
    /// Its writer found too little room, and was not woken since.
    pub(super) waits: bool,
    /// How many of those the scheduler knows of.
    pub(super) offered: u64,
    pub(super) sent: u64,
    pub(super) limit: u64,
    pub(super) end: Option<End>,
    pub(super) ended: bool,
    /// By lane.
    pub(super) streams: [Option<StreamId>; 2],
    /// Frames sent on each of them.
    pub(super) said: [u32; 2],
    pub(super) repairs: Plan<Bytes>,
    /// When its repairs are to be looked at.
    pub(super) repair_at: Option<Time>,
    /// When the scheduler last gave it a turn.
    last: Time,
    copied: u64,
}

#[derive(Debug, Default)]
pub(super) struct Receiving {
    pub(super) assembly: Assembly,
    pub(super) recovery: Recovery<Bytes>,
    /// The limit that the peer was granted, when, and what had been taken by then.
    pub(super) granted: u64,
    pub(super) granted_at: Time,
    pub(super) granted_then: u64,
    /// How it ends, and after how many bytes.
    pub(super) end: Option<(u64, End)>,
    pub(super) ended: bool,
    /// When the reader last went on, or when nothing waited, and what it had taken by then.
    pub(super) taken_at: Time,
    taken_then: u64,
    /// When the last [`HALF`] began, and what had been taken when the one before it began, and by then.
    half_at: Time,
    halves: [u64; 2],
}

impl Flow {
    pub(super) fn new(
        now: Time,
        ours: bool,
        opening: Opening,
        (turns, owner): (Turns, Arc<Owner>),
        (limit, granted): (u64, u64),
    ) -> Self {
        let hint = Hint::of(opening.target.port, opening.dscp);
        let coding = (opening.carries == Carries::Coded).then(Box::default);
        Self {
            ours,
            opening,
            answer: None,
            waiting: OwnersPart { owner, bytes: 0 },
            turns,
            lane: Lane::Interactive,
            bursts: Bursts::hinted(now, hint),
            sending: Sending { limit, last: now, ..Sending::default() },
            receiving: Receiving {
                granted,
                granted_at: now,
                taken_at: now,
                half_at: now,
                ..Receiving::default()
            },
            packets: Packets::default(),
            coding,
            left: false,
        }
    }

    /// Whether its streams and datagrams begin with OPEN: ours, and not answered.
    pub(super) const fn is_opening(&self) -> bool {
        self.ours && self.answer.is_none()
    }

    /// The first frame of its streams and datagrams.
    pub(super) fn header(&self, id: u64) -> Frame {
        match self.is_opening() {
            true => Frame::Open(Open { flow: id, opening: self.opening.clone() }),
            false => Frame::Attach(id),
        }
    }

    /// Bytes moved, one way or the other; the lane they make it one of. Called before they count as
    /// queued.
    pub(super) fn on_moved(&mut self, now: Time, bytes: u64) -> Lane {
        if self.sending.queued > 0 {
            self.bursts.on_waited(now);
        }
        self.bursts.on_moved(now, bytes);
        self.lane = match self.bursts.class() {
            Class::Bulk => Lane::Bulk,
            Class::Unknown | Class::Interactive => Lane::Interactive,
        };
        self.lane
    }

    /// What waits to be sent: bytes, or packets.
    pub(super) fn queue(&self) -> SendQueue {
        let (bytes, packets) = (self.sending.queue(), self.packets.queue());
        SendQueue { bytes: bytes.bytes + packets.bytes, pieces: bytes.pieces + packets.pieces }
    }

    pub(super) const fn is_over(&self) -> bool {
        self.sending.ended && self.receiving.ended
    }
}

impl Receiving {
    /// The peer broke it off.
    pub(super) const fn is_reset(&self) -> bool {
        matches!(self.end, Some((_, End::Reset(..))))
    }

    /// So many bytes were taken. Single pieces of much that waits are no reason to keep it for longer.
    pub(super) const fn on_taken(&mut self, now: Time, bytes: u64) {
        let taken = self.assembly.taken();
        match self.halves_ago(now) {
            0 => {}
            1 => (self.half_at, self.halves) = (now, [self.halves[1], taken - bytes]),
            _ => (self.half_at, self.halves) = (now, [taken - bytes; 2]),
        }
        let waiting = self.assembly.complete() - taken;
        if (taken - self.taken_then).saturating_mul(PART) >= waiting {
            (self.taken_at, self.taken_then) = (now, taken);
        }
    }

    /// How many times [`HALF`] ago the last one began.
    const fn halves_ago(&self, now: Time) -> u64 {
        now.since(self.half_at).as_nanos() / HALF.as_nanos()
    }

    /// Bytes that the reader took in the last ten seconds or so; of one that has just begun, all that it took.
    pub(super) const fn lately(&self, now: Time) -> u64 {
        let taken = self.assembly.taken();
        match self.halves_ago(now) {
            0 => taken - self.halves[0],
            1 => taken - self.halves[1],
            _ => 0,
        }
    }

    /// For how long it will hold memory, beside other flows that stalled: what it holds for each piece taken lately.
    pub(super) const fn lasts(&self, now: Time) -> u64 {
        self.assembly.held() / (PIECE + self.lately(now))
    }

    /// Whether bytes or the end can be read.
    pub(super) fn is_readable(&self) -> bool {
        let at_end = |(offset, _): &(u64, End)| self.assembly.complete() >= *offset;
        self.assembly.has_ready() || self.end.as_ref().is_some_and(at_end)
    }
}

impl Sending {
    fn queue(&self) -> SendQueue {
        SendQueue { bytes: self.queued, pieces: self.queue.len() as u64 }
    }

    pub(super) fn push(&mut self, bytes: Bytes) {
        self.queued += bytes.len() as u64;
        if !bytes.is_empty() {
            self.queue.push_back(bytes);
        }
    }

    /// More waiting bytes may be sent than the scheduler knows; informs it.
    pub(super) fn offer_more(&mut self) -> u64 {
        let sendable = self.queued.min(self.limit.saturating_sub(self.sent));
        let more = sendable.saturating_sub(self.offered);
        self.offered += more;
        more
    }

    /// The next bytes to send, as many as the scheduler granted.
    pub(super) fn take(&mut self, bytes: u64) -> Bytes {
        let bytes = bytes.min(self.queued);
        self.queued -= bytes;
        self.offered = self.offered.saturating_sub(bytes);
        self.sent += bytes;
        let wanted = bytes as usize;
        match self.queue.front_mut() {
            Some(first) if first.len() > wanted => return first.split_to(wanted),
            Some(first) if first.len() == wanted => {
                return self.queue.pop_front().unwrap_or_default();
            }
            _ => {}
        }
        let mut taken = BytesMut::with_capacity(wanted);
        while taken.len() < wanted
            && let Some(first) = self.queue.front_mut()
        {
            let some = first.len().min(wanted - taken.len());
            taken.extend_from_slice(&first[..some]);
            first.advance(some);
            if first.is_empty() {
                self.queue.pop_front();
            }
        }
        taken.freeze()
    }

    pub(super) fn clear(&mut self) {
        self.queue.clear();
        self.queued = 0;
        self.offered = 0;
    }

    /// Whether bytes of a burst that are sent now are to be sent twice.
    pub(super) fn copies(&mut self, now: Time, bytes: u64) -> bool {
        let passed = now.since(self.last).min(AGAIN).as_nanos();
        self.last = now;
        self.copied = self.copied.saturating_sub(COPIED * passed / AGAIN.as_nanos());
        let fits = self.copied + bytes <= COPIED;
        self.copied += if fits { bytes } else { 0 };
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ekiden_model::control::scheduler::{Config, Scheduler};

    fn flow() -> Flow {
        let mut scheduler = Scheduler::new(Config::default());
        let account = scheduler.join(1);
        let part = scheduler.divide(account).unwrap();
        let turns = scheduler.open(part, Lane::Interactive).unwrap();
        let opening = Opening::named("example.org", 80);
        Flow::new(Time::ZERO, true, opening, (turns, Arc::default()), (1_000, 1_000))
    }

    #[test]
    fn offers_as_much_as_credit_allows() {
        let mut sending = flow().sending;
        sending.push(Bytes::from(vec![1; 600]));
        sending.push(Bytes::from(vec![2; 900]));
        assert_eq!(sending.offer_more(), 1_000);
        assert_eq!(sending.offer_more(), 0);
        let taken = sending.take(700);
        assert_eq!((taken[599], taken[600], taken.len()), (1, 2, 700));
        sending.limit = 1_200;
        assert_eq!(sending.offer_more(), 200);
        assert_eq!((sending.sent, sending.queued, sending.offered), (700, 800, 500));
    }

    /// So many pieces of 1 KiB wait to be taken.
    fn waiting(pieces: u64) -> Receiving {
        let mut receiving = Receiving::default();
        for nth in 0..pieces {
            receiving.assembly.insert(nth * 1_024, Bytes::from(vec![0; 1_024]));
        }
        receiving
    }

    /// One of them is taken.
    fn take(receiving: &mut Receiving, millis: u64) {
        let bytes = receiving.assembly.take().unwrap();
        receiving.on_taken(Time::ZERO + Span::from_millis(millis), bytes.len() as u64);
    }

    /// The first half lasts from 0 s, the second from 5 s, the third from 10 s.
    #[test]
    fn a_readers_pace_is_that_of_the_last_ten_seconds() {
        let mut receiving = waiting(20);
        let lately =
            |of: &Receiving, seconds| of.lately(Time::ZERO + Span::from_secs(seconds)) / 1_024;
        (1..=9).for_each(|second| take(&mut receiving, second * 1_000));
        assert_eq!(lately(&receiving, 9), 9, "all that it took");
        (10..=12).for_each(|second| take(&mut receiving, second * 1_000));
        assert_eq!(lately(&receiving, 12), 8, "those of the 5th second to the 12th");
        assert_eq!((lately(&receiving, 16), lately(&receiving, 20)), (3, 0));
        take(&mut receiving, 40_000);
        assert_eq!(lately(&receiving, 40), 1, "nothing from before the pause");
    }

    /// One took a piece of 1 KiB every 7.25 s for ten minutes, 83 in all. Four times 17 of them were a 64th of what waited, with
    /// which it went on. Another took 8 in 8 s. To see it fail: count what each took since it last went on, 15 and 8.
    #[test]
    fn one_that_trickles_for_long_lasts_longer_than_a_slow_reader() {
        let (mut trickle, mut slow) = (waiting(1_100), waiting(1_024));
        (1..=83).for_each(|nth| take(&mut trickle, nth * 7_250));
        (1..=8).for_each(|nth| take(&mut slow, 593_000 + nth * 1_000));
        let now = Time::ZERO + Span::from_millis(601_750);
        assert_eq!((trickle.assembly.held(), slow.assembly.held()), (1_017 << 10, 1_016 << 10));
        // two pieces, and eight, beside 4 KiB
        assert_eq!((trickle.lasts(now), slow.lasts(now)), (1_017 / 6, 1_016 / 12));
    }

    #[test]
    fn the_beginning_of_a_burst_is_copied_and_no_more() {
        let mut sending = flow().sending;
        let at = |ms| Time::ZERO + Span::from_millis(ms);
        assert!(sending.copies(at(0), 1_400));
        assert!(sending.copies(at(10), 1_400));
        assert!(!sending.copies(at(20), 1_400));
        assert!(sending.copies(at(600), 1_400), "another burst");
        assert!((7..700).all(|nth| sending.copies(at(nth * 100), 64)), "a terminal");
        assert!(!(700..900).all(|nth| sending.copies(at(nth * 100), 1_400)), "no terminal");
    }

    #[test]
    fn a_download_changes_lanes() {
        let mut flow = flow();
        assert_eq!(flow.on_moved(Time::ZERO, 60_000), Lane::Interactive);
        assert_eq!(flow.on_moved(Time::ZERO, 60_000), Lane::Bulk);
        assert_eq!(flow.on_moved(Time::ZERO + Span::from_secs(1), 60), Lane::Interactive);
    }
}
