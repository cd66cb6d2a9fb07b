//! A flow's unacknowledged writes and what became of each; the stream itself knows offsets only.

use crate::observer::Delivery;
use ekiden_model::network::tcp::Reason;
use ekiden_model::units::{Span, Time};
use std::collections::VecDeque;

#[derive(Debug, Clone, Copy)]
struct Write {
    end: u64,
    bytes: u32,
    kind: u8,
    /// Why the copy was sent that arrived first.
    reason: Reason,
    written: Time,
    first_sent: Time,
    arrived: Time,
    host: Span,
    router: Span,
}

#[derive(Debug, Default)]
pub(crate) struct Writes {
    queue: VecDeque<Write>,
    /// Writes that were taken off the front.
    gone: u64,
    /// The next one to be sent first, to be looked up, and to be delivered: numbers from the beginning.
    unsent: u64,
    undelivered: u64,
    end: u64,
}

impl Writes {
    pub(crate) fn push(&mut self, now: Time, bytes: u32, kind: u8) {
        self.end += u64::from(bytes);
        self.queue.push_back(Write {
            end: self.end,
            bytes,
            kind,
            reason: Reason::New,
            written: now,
            first_sent: Time::NEVER,
            arrived: Time::NEVER,
            host: Span::ZERO,
            router: Span::ZERO,
        });
    }

    /// The first write that ends beyond `offset`: nearly always one of the last that were asked for.
    fn find(&self, offset: u64, guess: u64) -> usize {
        let at = guess.saturating_sub(self.gone) as usize;
        let beyond = |at: usize| self.queue.get(at).is_none_or(|write| write.end > offset);
        if beyond(at) && (at == 0 || !beyond(at - 1)) {
            return at;
        }
        self.queue.partition_point(|write| write.end <= offset)
    }

    /// What the write is called that holds this offset.
    pub(crate) fn kind_at(&self, offset: u64) -> Option<u8> {
        self.queue.get(self.find(offset, self.unsent)).map(|write| write.kind)
    }

    /// All below `end` has been sent at least once.
    pub(crate) fn on_sent(&mut self, now: Time, end: u64) {
        let mut at = self.unsent.saturating_sub(self.gone) as usize;
        while let Some(write) = self.queue.get_mut(at).filter(|write| write.end <= end) {
            write.first_sent = now;
            at += 1;
        }
        self.unsent = self.gone + at as u64;
    }

    /// A segment arrived, having spent so long in its host's and in routers' queues.
    pub(crate) fn on_arrived(
        &mut self,
        now: Time,
        from: u64,
        to: u64,
        times: [Span; 2],
        reason: Reason,
    ) {
        let [host, router] = times;
        let mut at = self.find(from, self.undelivered);
        while let Some(write) = self.queue.get_mut(at).filter(|write| write.end <= to) {
            if write.arrived == Time::NEVER {
                *write = Write { arrived: now, host, router, reason, ..*write };
            }
            at += 1;
        }
    }

    /// All below `to` is in order.
    pub(crate) fn on_delivered(&mut self, now: Time, to: u64, mut tell: impl FnMut(Delivery)) {
        let mut at = self.undelivered.saturating_sub(self.gone) as usize;
        while let Some(write) = self.queue.get(at).filter(|write| write.end <= to) {
            tell(Delivery {
                flow: 0,
                kind: write.kind,
                start: write.end - u64::from(write.bytes),
                bytes: write.bytes,
                written: write.written,
                server: write.first_sent.since(write.written) + write.host,
                router: write.router,
                client: now.since(write.arrived),
                end_to_end: now.since(write.written),
                reason: write.reason,
            });
            at += 1;
        }
        self.undelivered = self.gone + at as u64;
    }

    /// All below `una` is acknowledged: nobody will ask for it again.
    pub(crate) fn on_acknowledged(&mut self, una: u64) {
        while self.queue.pop_front_if(|write| write.end <= una).is_some() {
            self.gone += 1;
        }
        self.unsent = self.unsent.max(self.gone);
        self.undelivered = self.undelivered.max(self.gone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::from_millis(ms)
    }

    #[test]
    fn each_part_of_the_way_has_its_time() {
        let mut writes = Writes::default();
        writes.push(at(0), 100, 0);
        writes.push(at(1), 1000, 1);
        assert_eq!(writes.kind_at(99), Some(0));
        assert_eq!(writes.kind_at(100), Some(1));
        writes.on_sent(at(5), 100);
        writes.on_sent(at(7), 1100);
        // the second one comes first
        let times = [Span::ZERO, Span::from_millis(3)];
        writes.on_arrived(at(30), 100, 1100, times, Reason::New);
        let mut seen = Vec::new();
        writes.on_delivered(at(30), 0, |delivery| seen.push(delivery));
        assert!(seen.is_empty());
        writes.on_arrived(at(90), 0, 100, [Span::from_millis(1), Span::ZERO], Reason::Fast);
        writes.on_delivered(at(90), 1100, |delivery| seen.push(delivery));
        let [first, second] = seen[..] else { panic!("{seen:?}") };
        assert_eq!((first.server, first.client), (Span::from_millis(6), Span::ZERO));
        assert_eq!((first.reason, second.reason), (Reason::Fast, Reason::New));
        assert_eq!((first.start, second.start), (0, 100));
        assert_eq!((second.server, second.router), (Span::from_millis(6), Span::from_millis(3)));
        let expected = (Span::from_millis(60), Span::from_millis(89));
        assert_eq!((second.client, second.end_to_end), expected);
        writes.on_acknowledged(1100);
        assert_eq!(writes.kind_at(50), None);
        writes.push(at(100), 10, 0);
        writes.on_sent(at(100), 1110);
        assert_eq!(writes.kind_at(1100), Some(0));
    }
}
