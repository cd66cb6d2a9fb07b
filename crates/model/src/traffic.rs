//! What kind of traffic a connection carries, judged by the size of its bursts.

use crate::units::{Span, Time};

/// The verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Nothing has been seen yet.
    Unknown,
    /// Small bursts with pauses: keystrokes, echoes, requests.
    Interactive,
    /// Bytes without end: downloads, redraws.
    Bulk,
}

/// A silence of this length ends a burst.
const PAUSE: Span = Span::from_millis(500);
/// A burst above this is bulk: more than a screenful of text or a small page's worth of requests.
const LARGE: u64 = 64 * 1024;
/// So much a second is no burst, however long it goes on: somebody who types without a pause, and the echo.
const TRICKLE: u64 = 8 * 1024;

/// Follows one connection, both directions together.
///
/// Bias: a download is called interactive until it has moved 64 KiB, and so is one slower than 64 kbit/s for
/// ever; a terminal that prints a large file is called bulk until the burst after its next pause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bursts {
    last: Time,
    bytes: u64,
}

impl Bursts {
    /// A connection that has moved nothing.
    #[must_use]
    pub const fn new(now: Time) -> Self {
        Self { last: now, bytes: 0 }
    }

    /// `bytes` moved now.
    pub fn on_moved(&mut self, now: Time, bytes: u64) {
        let passed = now.since(self.last);
        if passed >= PAUSE {
            self.bytes = 0;
        }
        // while it is a burst: what is bulk stays so until it pauses
        if self.bytes <= LARGE {
            let trickled = passed.as_nanos() / 1_000 * TRICKLE / 1_000_000;
            self.bytes = self.bytes.saturating_sub(trickled);
        }
        self.last = now;
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// The class as of the last movement.
    #[must_use]
    pub const fn class(&self) -> Class {
        match self.bytes {
            0 => Class::Unknown,
            1..=LARGE => Class::Interactive,
            _ => Class::Bulk,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_download_is_bulk_and_a_terminal_interactive() {
        let mut bursts = Bursts::new(Time::ZERO);
        assert_eq!(bursts.class(), Class::Unknown);
        for i in 0..1000 {
            bursts.on_moved(Time::ZERO + Span::from_millis(600 * i), 100);
        }
        assert_eq!(bursts.class(), Class::Interactive);
        for i in 0..10_000 {
            bursts.on_moved(Time::ZERO + Span::from_millis(600_000 + 100 * i), 128);
        }
        assert_eq!(bursts.class(), Class::Interactive, "somebody types without a pause");
        for i in 0..100 {
            bursts.on_moved(Time::ZERO + Span::from_millis(1_700_000 + i), 1460);
        }
        assert_eq!(bursts.class(), Class::Bulk);
    }
}
