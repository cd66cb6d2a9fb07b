//! Flow control: a limit for each flow, and one for all together.

use super::super::flow::Flow;
use super::{EARLY, GivenUp, Tunnel};
use crate::frame::reason::Reason;
use crate::frame::{Carries, Frame, Hello};
use ekiden_model::control::scheduler::Scheduler;
use ekiden_model::units::{self, Span, Time};

/// Time after which the memory of a flow whose bytes nobody reads, or hardly, is reclaimed.
const STALLED: Span = Span::from_secs(10);
/// A peer has little credit for so long before such flows are looked for, and again after each look.
const SHORT: Span = Span::from_secs(2);
/// The peer gets more of the total in steps of an eighth of the memory. Where it has less than that left, in steps of so small
/// a part, and of at least so many bytes: each is a frame.
const SMALL_PART: u64 = 64;
const SMALL_STEP: u64 = 64 * 1024;
/// The part of the memory that a flow begins with, and the most of it, bytes.
const FIRST_PART: u64 = 32;
const MOST_FIRST: u64 = 4 << 20;
/// HELLOs with news that a peer may send at once, and how long until one more. An Ekiden peer sends two where its receive
/// rate changes, and looks for changes once a second.
const HELLOS: u64 = 64;
const HELLO_AFTER: Span = Span::from_millis(250);

/// What a peer may do so often, and no more.
#[derive(Debug, Default)]
pub(super) struct Tolerance {
    /// When as many may come at once as at the beginning.
    full: Time,
}

impl Tolerance {
    /// Another came; `false` where there were more than `most` at once, and one each `after`.
    pub(super) fn allows(&mut self, now: Time, most: u64, after: Span) -> bool {
        self.full = self.full.max(now) + after;
        self.full.since(now) <= after.saturating_mul(most)
    }
}

/// The peer's HELLOs. One with a larger window walks all flows, so those with news are few.
#[derive(Debug, Default)]
pub(super) struct Hellos {
    /// The largest window of them: limits never fall.
    pub(super) window: u64,
    news: Tolerance,
    /// Flows that were walked for them.
    #[cfg(test)]
    pub(super) walked: u64,
}

fn offer(scheduler: &mut Scheduler, flow: &mut Flow) {
    let more = flow.sending.offer_more();
    if more > 0 {
        scheduler.on_waiting(flow.turns, units::Bytes::new(more));
    }
}

/// Bytes of such a step, where so many are free. A quarter of these where that is more than the least step: else the
/// peer could stand still beside them.
fn step(memory: u64, free: u64, is_short: bool) -> u64 {
    let most = memory / 8;
    let small = (memory / SMALL_PART).min(free / 4).max(SMALL_STEP);
    if is_short { small.min(most) } else { most }
}

impl Tunnel {
    /// The peer's terms and its credit, at first or again. One without news costs nothing more than other frames.
    pub(super) fn on_terms(&mut self, now: Time, hello: Hello) {
        let before = self.greeting.as_ref();
        let same_rate = before.is_some_and(|before| before.receive == hello.receive);
        let understands = |hello: &Hello| (hello.repairs, hello.coded);
        let same_kind = before.map(understands) == Some(understands(&hello));
        let more = hello.window > self.hellos.window || hello.total > self.total_limit;
        if same_rate && same_kind && !more {
            return;
        }
        if !self.hellos.news.allows(now, HELLOS, HELLO_AFTER) {
            return self.fail("the peer changed its terms by HELLO too often".to_owned());
        }
        self.total_limit = self.total_limit.max(hello.total);
        self.raise_window(hello.window);
        self.greeting = Some(hello);
        if !same_rate {
            self.agree(now);
        }
    }

    /// Each flow may be sent so far before any credit, those that are there too.
    fn raise_window(&mut self, window: u64) {
        if window <= self.hellos.window {
            return;
        }
        self.hellos.window = window;
        for flow in self.flows.values_mut() {
            flow.sending.limit = flow.sending.limit.max(window);
            offer(&mut self.scheduler, flow);
            #[cfg(test)]
            {
                self.hellos.walked += 1;
            }
        }
    }

    /// Flows that were walked for the peer's HELLOs.
    #[cfg(test)]
    pub(in crate::core) const fn walked(&self) -> u64 {
        self.hellos.walked
    }

    /// A flow's bytes that may be in flight or wait here: six times the path's, within half of the
    /// memory. Bytes after a loss wait for a retransmission, which may be lost too: at 5 % loss and
    /// 1,000 packets a round trip, one in every eighth round trip is lost three times.
    pub(super) fn window(&self) -> u64 {
        let rtt = self.rtt().unwrap_or(Span::from_millis(100)) + Span::from_millis(100);
        let bytes =
            u128::from(self.terms.receive.as_bytes_per_second()) * u128::from(rtt.as_nanos()) * 6
                / 1_000_000_000;
        let most = (self.limits.memory.as_u64() / 2).max(64 * 1024);
        u64::try_from(bytes).unwrap_or(u64::MAX).clamp((256 * 1024).min(most), most)
    }

    /// What a flow begins with of that, whose reader has not shown its pace yet. Then it goes by that ([`Tunnel::read`]): slow
    /// readers leave the memory to others, and fast ones soon have all of it.
    pub(super) fn first_window(&self) -> u64 {
        let part = self.limits.memory.as_u64() / FIRST_PART;
        self.window().min(part.clamp(EARLY, MOST_FIRST))
    }

    pub(super) fn on_credit(&mut self, flow: u64, limit: u64) {
        if let Some(known) = self.flows.get_mut(&flow) {
            known.sending.limit = known.sending.limit.max(limit);
            self.offer(flow);
        }
    }

    pub(super) fn offer(&mut self, id: u64) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        offer(&mut self.scheduler, flow);
    }

    /// So many of the peer's bytes take no room here any more.
    pub(super) fn release(&mut self, bytes: u64) {
        self.released += bytes;
        self.grant_total();
    }

    /// Grants what was released, an eighth of the memory at once. A peer that has less than that left gets less, too:
    /// where slow readers hold the rest of the memory, no more is ever released at once.
    fn grant_total(&mut self) {
        let memory = self.limits.memory.as_u64();
        let (limit, free) = (self.released + memory, memory.saturating_sub(self.held));
        if limit - self.total_granted >= step(memory, free, self.is_short()) {
            self.total_granted = limit;
            if let Some((lane, control)) = self.control() {
                lane.write(control, Frame::Total(limit).to_bytes());
            }
        }
    }

    /// So many new bytes came, or were sent and will not come.
    pub(super) fn on_came(&mut self, bytes: u64) {
        self.came += bytes;
        if self.came > self.total_granted.max(8 * EARLY) {
            return self.fail("the peer exceeded the credit of all flows together".to_owned());
        }
        self.grant_total();
    }

    /// A flow that was given up has ended after so many bytes.
    pub(super) fn count_rest(&mut self, flow: GivenUp, offset: u64) {
        self.release(offset.saturating_sub(flow.taken));
        self.on_came(offset.saturating_sub(flow.came));
    }

    /// The peer's limit for a flow's bytes; it may have received a HELLO with a larger one.
    pub(super) fn most(&self, granted: u64, carries: Carries) -> u64 {
        match carries {
            Carries::Stream => granted.max(self.promised),
            Carries::Packets | Carries::Coded => 0,
        }
    }

    /// When the peer has lacked credit for a while, gives up stalled flows until a quarter of the memory is free. First go those
    /// that would hold most of it for longest. Where slow readers hold more for good, and nobody lacks it, they stay.
    pub(super) fn relieve(&mut self, now: Time) {
        if self.has_memory() || !self.is_short() {
            self.short_since = None;
            return;
        }
        // it may be over in a moment
        if now.since(*self.short_since.get_or_insert(now)) < SHORT {
            return;
        }
        self.short_since = Some(now);
        let held = |(id, flow): (&u64, &Flow)| {
            let receiving = &flow.receiving;
            let held = receiving.assembly.held();
            let stalled = held > 0 && now.since(receiving.taken_at) > STALLED;
            stalled.then(|| (receiving.lasts(now), held, *id))
        };
        let mut stalled: Vec<(u64, u64, u64)> = self.flows.iter().filter_map(held).collect();
        stalled.sort_unstable();
        while !self.has_memory()
            && let Some((.., id)) = stalled.pop()
        {
            let words = "the flow was hardly read, and other flows need its buffer".to_owned();
            self.abort(now, id, Reason::Stalled, words);
            self.changed(id);
        }
    }

    /// Whether the peer may send less than an eighth of the memory.
    const fn is_short(&self) -> bool {
        self.total_granted.saturating_sub(self.came) < self.limits.memory.as_u64() / 8
    }

    /// Whether a quarter is free, or will be once the peer has counted flows that were given up.
    fn has_memory(&self) -> bool {
        let left = self.total_granted.saturating_sub(self.released + self.held);
        left > self.limits.memory.as_u64() / 4
    }

    pub(super) fn peer_has_room(&self) -> bool {
        self.total_sent < self.total_limit && self.lanes.iter().flatten().any(|lane| lane.connected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At 200 Mbit/s a step of 64 KiB would be 381 frames a second. To see it fail: take no more.
    #[test]
    fn steps_of_the_total_grow_with_the_memory() {
        let memory = [1_u64 << 19, 1 << 20, 16 << 20, 128 << 20];
        let small = memory.map(|memory| step(memory, memory, true));
        assert_eq!(small, [64 << 10, 64 << 10, 256 << 10, 2 << 20]);
        assert_eq!(step(1 << 18, 1 << 18, true), 32 << 10);
        assert_eq!(step(1 << 20, 1 << 20, false), 128 << 10);
        // where slow readers hold nearly all
        let free = [4_u64 << 20, 1 << 20, 100 << 10];
        assert_eq!(free.map(|free| step(128 << 20, free, true)), [1 << 20, 256 << 10, 64 << 10]);
    }
}
