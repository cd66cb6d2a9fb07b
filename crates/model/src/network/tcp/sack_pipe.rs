//! Loss recovery with selective acknowledgements as first simulated (Fall and Floyd 1996, ns-2's
//! "sack1"): the data in flight is counted up and down, each hole is filled once, and the timer
//! goes back to the first outstanding segment.

use super::{Acknowledgement, Block, DUPLICATES, Ranges};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Nothing,
    /// It acknowledges something new, outside recovery.
    New,
    /// A first or second duplicate: one new segment may go.
    Duplicate,
    Enter,
    Partial,
    Exit,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Piping {
    sacked: Ranges,
    count: u32,
    pub(crate) pipe: i64,
    pub(crate) recovering: bool,
    /// Everything below was sent before the last loss; `None` before the first and after a recovery.
    recover: Option<u64>,
    /// Everything below has been considered for filling.
    considered: u64,
    /// Since a timeout nothing new was acknowledged: duplicates mean nothing.
    after_timeout: bool,
    /// Segments that may be sent for the last event outside recovery.
    pub(crate) budget: u32,
    pub(crate) resend: bool,
}

impl Piping {
    pub(crate) fn new() -> Self {
        Self { budget: u32::MAX, ..Self::default() }
    }

    pub(crate) const fn timed_out(&self) -> bool {
        self.after_timeout
    }

    pub(crate) fn extra(&self) -> u64 {
        if self.recovering || self.count >= DUPLICATES { 0 } else { self.count.into() }
    }

    /// An acknowledgement; `una` and `max` are as before it.
    pub(crate) fn on_ack(
        &mut self,
        ack: &Acknowledgement,
        una: u64,
        max: u64,
        mss: u64,
    ) -> Verdict {
        if self.recovering {
            return self.on_ack_recovering(ack, una);
        }
        if ack.ack > una {
            self.sacked.clear();
            self.considered = 0;
            self.after_timeout = false;
            self.count = 0;
            self.budget = u32::MAX;
            return Verdict::New;
        }
        if self.after_timeout || !self.take(ack) {
            self.budget = 0;
            return Verdict::Nothing;
        }
        self.count += 1;
        self.budget = 0;
        if self.count < DUPLICATES {
            self.budget = 1;
            return Verdict::Duplicate;
        }
        let may = self.recover.is_none_or(|recover| una > recover) || una == 0;
        if self.count > DUPLICATES || !may {
            return Verdict::Nothing;
        }
        self.recovering = true;
        self.recover = Some(max);
        self.pipe = ((max - una) / mss) as i64 - i64::from(DUPLICATES);
        self.considered = una + mss;
        self.resend = true;
        Verdict::Enter
    }

    fn on_ack_recovering(&mut self, ack: &Acknowledgement, una: u64) -> Verdict {
        self.pipe -= 1;
        if self.recover.is_none_or(|recover| ack.ack >= recover) {
            self.leave();
            self.recover = None;
            return Verdict::Exit;
        }
        let _news = self.take(ack);
        if ack.ack > una {
            self.pipe -= 1;
            self.sacked.forget_below(ack.ack);
            return Verdict::Partial;
        }
        Verdict::Nothing
    }

    fn leave(&mut self) {
        self.recovering = false;
        self.after_timeout = false;
        self.count = 0;
        self.budget = u32::MAX;
        self.resend = false;
        self.considered = 0;
        self.sacked.clear();
    }

    /// Adds the blocks; returns whether they are new.
    fn take(&mut self, ack: &Acknowledgement) -> bool {
        let mut news = false;
        for block in ack.blocks.as_slice().iter().filter(|block| block.start >= ack.ack) {
            self.sacked.missing(*block, |_| news = true);
            self.sacked.insert(*block);
        }
        news
    }

    /// The next hole to be filled, from `una` on; it counts as filled.
    pub(crate) fn hole(&mut self, una: u64, mss: u64) -> Option<Block> {
        let from = self.considered.max(una);
        let next = self.sacked.as_slice().iter().find(|block| block.end > from)?;
        let start = if next.start <= from {
            // inside an arrived range: behind it, if another one is above
            let behind = next.end;
            self.sacked.as_slice().iter().find(|block| block.start > behind)?;
            behind
        } else {
            from
        };
        self.considered = start + mss;
        Some(Block { start, end: start + mss })
    }

    pub(crate) const fn on_sent(&mut self) {
        self.budget = self.budget.saturating_sub(1);
        if self.recovering {
            self.pipe += 1;
        }
    }

    /// The repetition with which recovery begins is not counted as in flight.
    pub(crate) const fn on_first(&mut self) {
        self.resend = false;
        self.pipe -= 1;
    }

    /// The timer fired; `max` has been sent.
    pub(crate) fn on_timeout(&mut self, max: u64) {
        self.leave();
        self.recover = Some(max);
        self.after_timeout = true;
    }
}
