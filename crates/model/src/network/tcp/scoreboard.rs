//! The scoreboard of SACK loss recovery (RFC 6675), judged by order or by time (RACK, RFC 8985 §6).

use super::{Acknowledgement, Block, DUPLICATES, Ranges};
use crate::units::{Span, Time};
use alloc::collections::VecDeque;

/// A segment that was sent and not acknowledged yet; it begins where the one before ends.
#[derive(Debug, Clone, Copy)]
struct SentSegment {
    end: u64,
    /// When it was sent last.
    at: Time,
    sacked: bool,
    /// It is thought lost …
    lost: bool,
    /// … and has been sent again since.
    again: bool,
    /// It was sent more than once.
    repeated: bool,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct News {
    /// Bytes that arrived, in order or not.
    pub(crate) delivered: u64,
    /// When the latest of those was sent that was sent once only: a sample without doubt.
    pub(crate) sample: Option<Time>,
    /// Something arrived that was sent once only.
    pub(crate) original: bool,
    /// Something arrived out of order.
    pub(crate) sacked: bool,
    pub(crate) twice: Option<Block>,
}

#[derive(Debug, Clone)]
pub(crate) struct Board {
    mss: u64,
    by_time: bool,
    una: u64,
    sent: VecDeque<SentSegment>,
    sacked: Ranges,
    sacked_segments: u64,
    /// Bytes thought to be on the way (RFC 6675 "pipe").
    pub(crate) pipe: u64,
    /// Segments thought lost and not sent again yet.
    waiting: u64,
    /// None of those lies below.
    waiting_from: u64,
    /// Everything that has not arrived below this is marked as lost (by order).
    judged: u64,
    foremost: u64,
    rack: Rack,
}

/// RFC 8985 §5.2.
#[derive(Debug, Clone, Copy, Default)]
struct Rack {
    /// When and where the segment ends that was sent last among those that arrived.
    newest: Option<(Time, u64)>,
    rtt: Span,
    least: Option<Span>,
    reordering: bool,
    /// The foremost before the current acknowledgement, whose own segments were not reordered.
    before: u64,
    deadline: Option<Time>,
}

impl Board {
    pub(crate) fn new(mss: u32, by_time: bool) -> Self {
        Self {
            mss: mss.into(),
            by_time,
            una: 0,
            sent: VecDeque::new(),
            sacked: Ranges::default(),
            sacked_segments: 0,
            pipe: 0,
            waiting: 0,
            waiting_from: 0,
            judged: 0,
            foremost: 0,
            rack: Rack::default(),
        }
    }

    /// Whether something is known to have arrived out of order.
    pub(crate) fn has_holes(&self) -> bool {
        self.sacked_segments > 0
    }

    /// When segments not yet thought lost will be (RFC 8985 §6.2 step 5).
    pub(crate) fn deadline(&self) -> Time {
        self.rack.deadline.unwrap_or(Time::NEVER)
    }

    pub(crate) fn on_sent(&mut self, now: Time, end: u64) {
        let start = self.sent.back().map_or(self.una, |last| last.end);
        self.pipe += end - start;
        let fresh =
            SentSegment { end, at: now, sacked: false, lost: false, again: false, repeated: false };
        self.sent.push_back(fresh);
    }

    /// The segment that begins there was sent again.
    pub(crate) fn on_sent_again(&mut self, now: Time, start: u64) {
        let at = self.index(start);
        let len = self.len(at);
        let Some(segment) = self.sent.get_mut(at) else { return };
        segment.at = now;
        segment.repeated = true;
        if segment.lost && !segment.again {
            self.waiting -= 1;
        }
        if !segment.again && segment.lost {
            segment.again = true;
            self.pipe += len;
        }
    }

    /// Takes in an acknowledgement.
    pub(crate) fn on_ack(&mut self, now: Time, ack: &Acknowledgement) -> News {
        let mut news = News::default();
        self.rack.before = self.foremost;
        for (nth, block) in ack.blocks.as_slice().iter().enumerate() {
            if block.start < ack.ack {
                // RFC 2883: only the first block reports a duplicate
                news.twice = news.twice.or((nth == 0).then_some(*block));
            } else {
                self.sack(now, *block, &mut news);
            }
        }
        self.advance(now, ack.ack, &mut news);
        news
    }

    fn advance(&mut self, now: Time, ack: u64, news: &mut News) {
        if ack <= self.una {
            return;
        }
        while let Some(first) = self.sent.front().copied().filter(|first| first.end <= ack) {
            self.sent.pop_front();
            let len = first.end - self.una;
            if first.sacked {
                self.sacked_segments -= 1;
            } else {
                self.arrived(now, &first, len, news);
            }
            self.una = first.end;
        }
        // a receiver acknowledges whole segments; a part of one is taken off
        if let Some(first) = self.sent.front().filter(|_| ack > self.una) {
            let part = ack - self.una;
            let times = u64::from(!first.lost) + u64::from(first.again);
            if !first.sacked {
                self.pipe -= part * times;
                news.delivered += part;
            }
            self.una = ack;
        }
        self.sacked.forget_below(self.una);
    }

    fn sack(&mut self, now: Time, block: Block, news: &mut News) {
        let mut parts = [Block::default(); 8];
        let mut count = 0;
        self.sacked.missing(block, |part| {
            if let Some(slot) = parts.get_mut(count) {
                *slot = part;
                count += 1;
            }
        });
        for part in parts.into_iter().take(count) {
            let mut at = self.index(part.start);
            while let Some(segment) = self.sent.get(at).copied().filter(|s| s.end <= part.end) {
                let len = self.len(at);
                if !segment.sacked {
                    self.arrived(now, &segment, len, news);
                    news.sacked = true;
                    self.sacked_segments += 1;
                    if let Some(segment) = self.sent.get_mut(at) {
                        segment.sacked = true;
                    }
                    self.sacked.insert(Block { start: segment.end - len, end: segment.end });
                }
                at += 1;
            }
        }
    }

    /// A segment arrived for the first time, as far as is known.
    fn arrived(&mut self, now: Time, segment: &SentSegment, len: u64, news: &mut News) {
        let times = u64::from(!segment.lost) + u64::from(segment.again);
        self.pipe -= len * times;
        if segment.lost && !segment.again {
            self.waiting -= 1;
        }
        news.delivered += len;
        self.foremost = self.foremost.max(segment.end);
        let took = now.since(segment.at);
        if segment.repeated {
            // which of the two arrived is not known; the later cannot have been quicker than any
            if self.rack.least.is_some_and(|least| took < least) {
                return;
            }
        } else {
            news.original = true;
            news.sample = news.sample.max(Some(segment.at));
            self.rack.least = Some(self.rack.least.map_or(took, |least| least.min(took)));
            self.rack.reordering |= segment.end < self.rack.before;
        }
        if self.rack.newest.is_none_or(|newest| (segment.at, segment.end) > newest) {
            self.rack.newest = Some((segment.at, segment.end));
            self.rack.rtt = took;
        }
    }

    /// Marks segments that must be lost by later arrivals; returns whether any were found.
    pub(crate) fn judge(&mut self, now: Time, smoothed: Span, recovering: bool) -> bool {
        if self.by_time { self.by_time(now, smoothed, recovering) } else { self.by_order() }
    }

    /// RFC 6675 IsLost: three segments, or more than two full ones' bytes, sent later arrived.
    /// Segments count, not runs, so that small ones count as the duplicates they caused.
    fn by_order(&mut self) -> bool {
        let (mut segments, mut bytes) = (0, 0);
        let mut at = self.index(self.foremost.saturating_sub(1)) + 1;
        let bound = loop {
            if at == 0 {
                return false;
            }
            at -= 1;
            let Some(segment) = self.sent.get(at) else { continue };
            if segment.sacked {
                segments += 1;
                bytes += self.len(at);
                if segments >= DUPLICATES || bytes > 2 * self.mss {
                    break segment.end - self.len(at);
                }
            }
        };
        let mut found = false;
        let mut at = self.index(self.judged.max(self.una));
        while let Some(segment) = self.sent.get(at).copied().filter(|s| s.end <= bound) {
            if !segment.sacked && !segment.lost {
                self.lose(at);
                found = true;
            }
            at += 1;
        }
        self.judged = self.judged.max(bound);
        found
    }

    /// RFC 8985 §6.2: sent before something that has arrived, by more than the reordering window.
    fn by_time(&mut self, now: Time, smoothed: Span, recovering: bool) -> bool {
        self.rack.deadline = None;
        let Some(newest) = self.rack.newest else { return false };
        let window = self.reordering_window(smoothed, recovering);
        let mut found = false;
        let mut at = 0;
        while let Some(segment) = self.sent.get(at).copied() {
            if segment.sacked {
                // over all that arrived at once
                at = self.sacked.around(segment.end - 1).map_or(at + 1, |run| self.index(run.end));
                continue;
            }
            if (segment.at, segment.end) >= newest {
                if !segment.repeated {
                    break;
                }
            } else if !segment.lost || segment.again {
                let due = segment.at + self.rack.rtt + window;
                if due <= now {
                    self.lose(at);
                    found = true;
                } else {
                    self.rack.deadline = self.rack.deadline.max(Some(due));
                }
            }
            at += 1;
        }
        found
    }

    fn reordering_window(&self, smoothed: Span, recovering: bool) -> Span {
        let seen = self.rack.reordering;
        if !seen && (recovering || self.sacked_segments >= u64::from(DUPLICATES)) {
            return Span::ZERO;
        }
        let quarter = self.rack.least.map_or(0, |least| least.as_nanos() / 4);
        Span::from_nanos(quarter.min(smoothed.as_nanos()))
    }

    pub(crate) fn lose_first(&mut self) {
        if self.sent.front().is_some_and(|first| !first.sacked && !first.lost) {
            self.lose(0);
        }
    }

    /// After a timeout: nothing that has not arrived is on the way any more.
    pub(crate) fn lose_all(&mut self) {
        for at in 0..self.sent.len() {
            let open = |s: &SentSegment| !s.sacked && (!s.lost || s.again);
            if self.sent.get(at).is_some_and(open) {
                self.lose(at);
            }
        }
        self.judged = self.sent.back().map_or(self.una, |last| last.end);
        self.rack.deadline = None;
    }

    /// The timeout was spurious: segments not retransmitted since are in flight after all.
    pub(crate) fn find_all(&mut self) {
        for at in 0..self.sent.len() {
            let len = self.len(at);
            if let Some(segment) = self.sent.get_mut(at).filter(|s| s.lost && !s.again && !s.sacked)
            {
                segment.lost = false;
                self.pipe += len;
                self.waiting -= 1;
            }
        }
        self.judged = self.una;
    }

    fn lose(&mut self, at: usize) {
        let len = self.len(at);
        let Some(segment) = self.sent.get_mut(at) else { return };
        self.pipe -= len * (u64::from(!segment.lost) + u64::from(segment.again));
        let waits = segment.lost && !segment.again;
        segment.lost = true;
        segment.again = false;
        if !waits {
            self.waiting += 1;
        }
        self.waiting_from = self.waiting_from.min(segment.end - len);
    }

    /// The first segment that is thought lost and was not sent again.
    pub(crate) fn next_lost(&mut self) -> Option<Block> {
        if self.waiting == 0 {
            self.waiting_from = u64::MAX;
            return None;
        }
        let mut at = self.index(self.waiting_from.max(self.una));
        while let Some(segment) = self.sent.get(at) {
            if segment.lost && !segment.again && !segment.sacked {
                let block = Block { start: segment.end - self.len(at), end: segment.end };
                self.waiting_from = block.start;
                return Some(block);
            }
            at += 1;
        }
        None
    }

    /// The last segment, for a probe (RFC 8985 §7.3).
    pub(crate) fn last(&self) -> Option<Block> {
        let at = self.sent.len().checked_sub(1)?;
        let end = self.sent.get(at)?.end;
        Some(Block { start: end - self.len(at), end })
    }

    /// The first segment that ends beyond this offset.
    fn index(&self, offset: u64) -> usize {
        self.sent.partition_point(|segment| segment.end <= offset)
    }

    fn len(&self, at: usize) -> u64 {
        let before = at.checked_sub(1).and_then(|before| self.sent.get(before));
        let start = before.map_or(self.una, |before| before.end);
        self.sent.get(at).map_or(0, |segment| segment.end - start)
    }
}
