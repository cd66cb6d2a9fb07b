//! FQ-CoDel (RFC 8290): deficit round robin, new flows first, with CoDel (RFC 8289) on each queue.

use super::Waiting;
use super::queue::Fifo;
use crate::units::{Bytes, Span, Time};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Parameters, with the RFC's names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FqCodelConfig {
    /// Queues that flows are hashed into. RFC 8290 §5.2.4: 1024.
    pub flows: u32,
    /// Bytes a queue may send in a round. §5.2.5: one MTU, 1514.
    pub quantum: Bytes,
    /// The delay that is acceptable for long. RFC 8289 §4.4: 5 ms.
    pub target: Span,
    /// How long it may be exceeded. RFC 8289 §4.3: 100 ms, about the longest RTT.
    pub interval: Span,
    /// Packets in all queues together. §5.2.3: 10,240.
    pub limit: u64,
    /// Bytes in all queues together. Linux: 32 MiB.
    pub memory: Bytes,
    /// Whether senders that understand marks are marked instead of dropped.
    pub ecn: bool,
}

impl Default for FqCodelConfig {
    fn default() -> Self {
        Self {
            flows: 1024,
            quantum: Bytes::new(1514),
            target: Span::from_millis(5),
            interval: Span::from_millis(100),
            limit: 10_240,
            memory: Bytes::mib(32),
            ecn: true,
        }
    }
}

/// When a whole batch of the fattest flow is thrown away at once (RFC 8290 §4.1: up to 64 packets).
const DROP_BATCH: u64 = 64;
/// CoDel leaves a queue alone that holds less than this (RFC 8289 §5.3: one MTU).
const SMALLEST: u64 = 1514;

#[derive(Debug, Clone)]
pub(super) struct FqCodel {
    config: FqCodelConfig,
    flows: Vec<Flow>,
    /// Indices into `flows`.
    new: VecDeque<u32>,
    old: VecDeque<u32>,
    pub(super) packets: u64,
    pub(super) bytes: u64,
}

#[derive(Debug, Clone, Default)]
struct Flow {
    fifo: Fifo,
    deficit: i64,
    listed: bool,
    codel: CoDel,
}

/// RFC 8289 §5.
#[derive(Debug, Clone, Copy, Default)]
struct CoDel {
    first_above: Option<Time>,
    drop_next: Time,
    count: u64,
    last_count: u64,
    dropping: bool,
}

impl FqCodel {
    pub(super) fn new(config: FqCodelConfig) -> Self {
        let flows = alloc::vec![Flow::default(); config.flows.max(1) as usize];
        Self { config, flows, new: VecDeque::new(), old: VecDeque::new(), packets: 0, bytes: 0 }
    }

    pub(super) fn push(
        &mut self,
        _now: Time,
        waiting: Waiting,
        dropped: &mut impl FnMut(&Waiting),
    ) {
        // multiplication by 2⁶⁴/φ spreads numbers that differ in their low bits
        let hash = waiting.packet.flow.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let index = (hash % self.flows.len() as u64) as u32;
        self.packets += 1;
        self.bytes += u64::from(waiting.packet.bytes);
        let flow = &mut self.flows[index as usize];
        flow.fifo.push(waiting);
        if !flow.listed {
            flow.listed = true;
            flow.deficit = self.config.quantum.as_u64().cast_signed();
            self.new.push_back(index);
        }
        // half of a flow may be less than the packet that came: until it fits
        while self.packets > self.config.limit || self.bytes > self.config.memory.as_u64() {
            self.drop_from_fattest(dropped);
        }
    }

    /// Drops half of the fattest flow, at most a batch, from its head (RFC 8290 §4.1.3). Looks at
    /// all flows, as Linux does, because the queue is rarely full.
    fn drop_from_fattest(&mut self, dropped: &mut impl FnMut(&Waiting)) {
        let fattest = self.flows.iter_mut().max_by_key(|flow| flow.fifo.bytes());
        let Some(flow) = fattest else { return };
        let goal = flow.fifo.bytes() / 2;
        for _ in 0..DROP_BATCH {
            let Some(victim) = flow.fifo.pop() else { return };
            self.packets -= 1;
            self.bytes -= u64::from(victim.packet.bytes);
            dropped(&victim);
            if flow.fifo.bytes() <= goal {
                return;
            }
        }
    }

    pub(super) fn pop(&mut self, now: Time, dropped: &mut impl FnMut(&Waiting)) -> Option<Waiting> {
        loop {
            let from_new = !self.new.is_empty();
            let index = *self.new.front().or_else(|| self.old.front())?;
            let list = if from_new { &mut self.new } else { &mut self.old };
            let flow = &mut self.flows[index as usize];
            if flow.deficit <= 0 {
                flow.deficit += self.config.quantum.as_u64().cast_signed();
                list.pop_front();
                self.old.push_back(index);
                continue;
            }
            let (packets, bytes) = (&mut self.packets, &mut self.bytes);
            let next = flow.codel.pop(now, &mut flow.fifo, &self.config, &mut |victim| {
                *packets -= 1;
                *bytes -= u64::from(victim.packet.bytes);
                dropped(victim);
            });
            let Some(next) = next else {
                list.pop_front();
                // an empty new queue goes through the old ones once, so that it cannot starve them
                if from_new && !self.old.is_empty() {
                    self.old.push_back(index);
                } else {
                    flow.listed = false;
                }
                continue;
            };
            self.packets -= 1;
            self.bytes -= u64::from(next.packet.bytes);
            flow.deficit -= i64::from(next.packet.bytes);
            return Some(next);
        }
    }
}

impl CoDel {
    /// Takes from the head; says whether it may be dropped: above the target for an interval.
    fn take(
        &mut self,
        now: Time,
        fifo: &mut Fifo,
        config: &FqCodelConfig,
    ) -> Option<(Waiting, bool)> {
        let Some(waiting) = fifo.pop() else {
            self.first_above = None;
            return None;
        };
        if now.since(waiting.offered) < config.target || fifo.bytes() <= SMALLEST {
            self.first_above = None;
            return Some((waiting, false));
        }
        match self.first_above {
            None => {
                self.first_above = Some(now + config.interval);
                Some((waiting, false))
            }
            Some(at) => Some((waiting, now >= at)),
        }
    }

    fn pop(
        &mut self,
        now: Time,
        fifo: &mut Fifo,
        config: &FqCodelConfig,
        dropped: &mut impl FnMut(&Waiting),
    ) -> Option<Waiting> {
        let Some((mut waiting, mut may_drop)) = self.take(now, fifo, config) else {
            self.dropping = false;
            return None;
        };
        if self.dropping {
            if !may_drop {
                self.dropping = false;
            }
            while self.dropping && now >= self.drop_next {
                self.count += 1;
                if config.ecn && waiting.packet.ecn_capable {
                    waiting.marked = true;
                    self.drop_next = self.law(self.drop_next, config);
                    break;
                }
                dropped(&waiting);
                let Some(next) = self.take(now, fifo, config) else {
                    self.dropping = false;
                    return None;
                };
                (waiting, may_drop) = next;
                if may_drop {
                    self.drop_next = self.law(self.drop_next, config);
                } else {
                    self.dropping = false;
                }
            }
        } else if may_drop {
            if config.ecn && waiting.packet.ecn_capable {
                waiting.marked = true;
            } else {
                dropped(&waiting);
                match self.take(now, fifo, config) {
                    Some((next, _)) => waiting = next,
                    None => return None,
                }
            }
            self.dropping = true;
            // it was dropping not long ago: go on about where it was (RFC 8289 §5.4)
            let recent = now.since(self.drop_next) < config.interval.saturating_mul(16);
            let delta = self.count.saturating_sub(self.last_count);
            self.count = if delta > 1 && recent { delta } else { 1 };
            self.drop_next = self.law(now, config);
            self.last_count = self.count;
        }
        Some(waiting)
    }

    /// The next drop, `interval / √count` later (RFC 8289 §5.2), in integers.
    fn law(&self, from: Time, config: &FqCodelConfig) -> Time {
        let interval = u128::from(config.interval.as_nanos());
        // √(interval² / count) is the same and keeps its digits
        let step = (interval * interval / u128::from(self.count.max(1))).isqrt();
        from + Span::from_nanos(step as u64)
    }
}
