//! Loss recovery with selective acknowledgements as it was first simulated: Fall and Floyd 1996, «sack1»
//! of ns-2. What is in flight is counted up and down, not looked up; each hole is filled once; the
//! timer takes everything back to the first outstanding segment.

use super::{Acknowledgement, Block, DUPLICATES, Ranges};

/// What the sender has to do about an acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing.
    Nothing,
    /// It acknowledges something new, outside recovery.
    New,
    /// A first or second duplicate: one new segment may go.
    Duplicate,
    /// A loss: reduce, and send the first outstanding segment again.
    Enter,
    /// Something new within recovery.
    Partial,
    /// All that was outstanding when recovery began has arrived.
    Exit,
}

/// What is known.
#[derive(Debug, Clone)]
pub(super) struct Piping {
    sacked: Ranges,
    count: u32,
    /// Segments in flight, during recovery.
    pipe: i64,
    recovering: bool,
    /// Everything below was sent before the last loss; `None` before the first and after a recovery.
    recover: Option<u64>,
    /// Everything below has been considered for filling.
    considered: u64,
    /// Since a timeout nothing new was acknowledged: duplicates say nothing.
    after_timeout: bool,
    /// Segments that may be sent for the last event outside recovery.
    pub(super) budget: u32,
    /// The first outstanding segment is to be sent again.
    pub(super) resend: bool,
}

impl Piping {
    pub(super) fn new() -> Self {
        Self {
            sacked: Ranges::default(),
            count: 0,
            pipe: 0,
            recovering: false,
            recover: None,
            considered: 0,
            after_timeout: false,
            budget: u32::MAX,
            resend: false,
        }
    }

    pub(super) const fn recovering(&self) -> bool {
        self.recovering
    }

    pub(super) const fn timed_out(&self) -> bool {
        self.after_timeout
    }

    /// Segments beyond the control's window that the first two duplicates allow.
    pub(super) fn extra(&self) -> u64 {
        if self.recovering || self.count >= DUPLICATES { 0 } else { self.count.into() }
    }

    /// Segments thought to be in flight.
    pub(super) const fn pipe(&self) -> i64 {
        self.pipe
    }

    /// An acknowledgement; `una` and `max` are as before it.
    pub(super) fn on_ack(
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

    /// Takes the blocks in; says whether they tell anything new.
    fn take(&mut self, ack: &Acknowledgement) -> bool {
        let mut news = false;
        for block in ack.blocks.as_slice().iter().filter(|block| block.start >= ack.ack) {
            self.sacked.missing(*block, |_| news = true);
            self.sacked.insert(*block);
        }
        news
    }

    /// The next hole to be filled, from `una` on; it counts as filled.
    pub(super) fn hole(&mut self, una: u64, mss: u64) -> Option<Block> {
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

    /// A segment left during recovery.
    pub(super) const fn on_sent(&mut self) {
        self.budget = self.budget.saturating_sub(1);
        if self.recovering {
            self.pipe += 1;
        }
    }

    /// The repetition with which recovery begins is not counted as in flight.
    pub(super) const fn on_first(&mut self) {
        self.resend = false;
        self.pipe -= 1;
    }

    /// The timer fired; `max` has been sent.
    pub(super) fn on_timeout(&mut self, max: u64) {
        self.leave();
        self.recover = Some(max);
        self.after_timeout = true;
    }
}
