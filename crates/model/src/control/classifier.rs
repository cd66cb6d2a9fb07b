//! The traffic class of a connection, judged by the size of its bursts; ports and marks are hints.

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
/// A rate that is no burst, however long it lasts: continuous typing, and its echo.
const TRICKLE: u64 = 8 * 1024;

/// The same with an interactive hint: a remote desktop's screenful. A copy by ssh is larger.
const LARGE_HINTED: u64 = 256 * 1024;
const TRICKLE_HINTED: u64 = 64 * 1024;

/// The hint of a port or a mark, before anything moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hint {
    /// Believed up to 256 KiB a burst or 512 kbit/s, so that marking everything gains no more.
    Interactive,
    /// Nobody waits for single bytes: bulk from the first one on.
    Bulk,
}

impl Hint {
    /// The hint of a destination port. Interactive: 22, 23, 992 (shells), 1494, 2598, 3389, 5900 to
    /// 5909, 6000 to 6009 (ICA, RDP, VNC, X11), 53, 853 (names). Bulk: 20 (FTP), 873 (rsync), 6881
    /// to 6889 (BitTorrent). From IANA's registry, except VNC's and X's displays.
    pub const fn of_port(port: u16) -> Option<Self> {
        match port {
            22 | 23 | 53 | 853 | 992 | 1494 | 2598 | 3389 | 5900..=5909 | 6000..=6009 => {
                Some(Self::Interactive)
            }
            20 | 873 | 6881..=6889 => Some(Self::Bulk),
            _ => None,
        }
    }

    /// The hint of a DSCP of 0 to 63. Interactive: EF 46, VOICE-ADMIT 44, CS5 40, AF4x 34 to 38,
    /// CS4 32, AF2x 18 to 22 (RFC 4594, 5865). Bulk: AF1x 10 to 14, CS1 8, LE 1 (RFC 4594, 3662,
    /// 8622).
    pub const fn of_dscp(dscp: u8) -> Option<Self> {
        match dscp {
            18 | 20 | 22 | 32 | 34 | 36 | 38 | 40 | 44 | 46 => Some(Self::Interactive),
            1 | 8 | 10 | 12 | 14 => Some(Self::Bulk),
            _ => None,
        }
    }

    /// The mark, which the application has chosen, before the port.
    pub fn of(port: u16, dscp: Option<u8>) -> Option<Self> {
        dscp.and_then(Self::of_dscp).or_else(|| Self::of_port(port))
    }
}

/// Follows one connection, both directions together. Bias: a download is interactive until it has
/// moved 64 KiB, one below 64 kbit/s always (hinted: 256 KiB, 512 kbit/s). A terminal that prints a
/// large file is bulk until the burst after its next pause, a shell on a bulk port until its first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bursts {
    last: Time,
    bytes: u64,
    hint: Option<Hint>,
    /// The hint applies until the first pause.
    fresh: bool,
}

impl Bursts {
    /// A connection that has moved nothing.
    pub const fn new(now: Time) -> Self {
        Self::hinted(now, None)
    }

    /// The same, with the hint of its port and marks.
    pub const fn hinted(now: Time, hint: Option<Hint>) -> Self {
        Self { last: now, bytes: 0, hint, fresh: true }
    }

    const fn large(&self) -> u64 {
        match self.hint {
            Some(Hint::Interactive) => LARGE_HINTED,
            Some(Hint::Bulk) if self.fresh => 0,
            _ => LARGE,
        }
    }

    /// `bytes` moved now.
    pub fn on_moved(&mut self, now: Time, bytes: u64) {
        let passed = now.since(self.last);
        if passed >= PAUSE && self.bytes > 0 {
            self.bytes = 0;
            self.fresh = false;
        }
        // during a burst: bulk stays bulk until it pauses
        if self.bytes <= self.large() {
            let hinted = matches!(self.hint, Some(Hint::Interactive));
            let trickle = if hinted { TRICKLE_HINTED } else { TRICKLE };
            let trickled = passed.as_nanos() / 1_000 * trickle / 1_000_000;
            self.bytes = self.bytes.saturating_sub(trickled);
        }
        self.last = now;
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Bytes of it have waited until now: its silence was not its own, and ends no burst.
    pub fn on_waited(&mut self, now: Time) {
        self.last = self.last.max(now);
    }

    /// The class as of the last movement.
    pub const fn class(&self) -> Class {
        match self.bytes {
            0 => Class::Unknown,
            bytes if bytes <= self.large() => Class::Interactive,
            _ => Class::Bulk,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classifies_downloads_and_terminals() {
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

    #[test]
    fn a_download_that_waits_for_a_thin_line_does_not_pause() {
        let mut bursts = Bursts::new(Time::ZERO);
        for second in 0..10 {
            let now = Time::ZERO + Span::from_secs(second);
            bursts.on_waited(now);
            bursts.on_moved(now, 16 * 1024);
        }
        assert_eq!(bursts.class(), Class::Bulk);
        let now = Time::ZERO + Span::from_secs(20);
        bursts.on_moved(now, 16 * 1024);
        assert_eq!(bursts.class(), Class::Interactive, "nothing waited: it paused");
    }

    #[test]
    fn hint_raises_the_limits_only() {
        let at = |ms| Time::ZERO + Span::from_millis(ms);
        let mut desktop = Bursts::hinted(at(0), Hint::of(3389, None));
        desktop.on_moved(at(0), 200 * 1024);
        assert_eq!(desktop.class(), Class::Interactive);
        for tenth in 1..100 {
            desktop.on_moved(at(100 * tenth), 6_400);
        }
        assert_eq!(desktop.class(), Class::Interactive, "somebody watches");
        for tenth in 100..300 {
            desktop.on_moved(at(100 * tenth), 64_000);
        }
        assert_eq!(desktop.class(), Class::Bulk, "a copy");
        let mut copy = Bursts::hinted(at(0), Hint::of(873, None));
        copy.on_moved(at(0), 1);
        assert_eq!(copy.class(), Class::Bulk);
        copy.on_moved(at(600), 1);
        assert_eq!(copy.class(), Class::Interactive, "it was none");
    }

    #[test]
    fn dscp_overrides_the_port() {
        assert_eq!(Hint::of(22, None), Some(Hint::Interactive));
        assert_eq!(Hint::of(22, Some(0)), Some(Hint::Interactive));
        // scp by OpenSSH
        assert_eq!(Hint::of(22, Some(8)), Some(Hint::Bulk));
        assert_eq!(Hint::of(443, Some(46)), Some(Hint::Interactive));
        assert_eq!(Hint::of(443, None), None);
    }

    proptest::proptest! {
        /// Any pattern above 4 Mbit/s is bulk within a second, whatever the hint.
        #[test]
        fn nobody_passes_for_interactive_for_long(
            port: u16,
            dscp in proptest::option::of(0_u8..64),
            sizes in proptest::collection::vec(5_000_u64..20_000, 100..200),
        ) {
            let mut bursts = Bursts::hinted(Time::ZERO, Hint::of(port, dscp));
            for (nth, size) in sizes.iter().enumerate() {
                bursts.on_moved(Time::ZERO + Span::from_millis(10 * nth as u64), *size);
            }
            proptest::prop_assert_eq!(bursts.class(), Class::Bulk);
        }
    }
}
