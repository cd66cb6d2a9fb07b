//! The largest packet that passes a path, and paths that silently drop larger ones (black holes,
//! RFC 2923 §2.1). [`PathMtu`] judges one connection from its kernel's state; [`Paths`] keeps a
//! leg's results by destination.
//!
//! Evidence for a black hole: full-size segments are retransmitted and none ever arrived, although
//! the handshake did. It is a suspicion, because a peer that dies just after the handshake looks
//! the same. A peer that stops answering after large segments had passed is an outage, and so is one to which other
//! connections' large segments passed lately.

mod paths;

pub use paths::{FORGOTTEN_AFTER, MOST_TROUBLED, PASSED_LATELY, PathTrouble, Paths};

/// The kernel's state of one connection (`TCP_INFO`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PathFacts {
    /// Path MTU that the route has, bytes.
    pub path_mtu: u32,
    /// Largest segment sent, bytes of payload.
    pub mss: u32,
    /// Largest segment announced to the peer, bytes of payload: what our own device and `mss` allow.
    pub announced: u32,
    /// IP and TCP headers with options, bytes.
    pub headers: u32,
    /// Payload sent and not acknowledged, bytes.
    pub in_flight: u64,
    /// The same, segments.
    pub segments: u32,
    /// Retransmission time-outs in a row.
    pub timeouts: u32,
    /// Retransmission time-outs since the start; those in a row where the kernel does not count them.
    pub timeouts_ever: u32,
    /// Payload acknowledged since the start, bytes.
    pub acked: u64,
    /// Segments delivered since the start.
    pub delivered: u64,
}

/// The estimate for a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MtuVerdict {
    /// Nothing speaks against packets of the device's size.
    Fine,
    /// Largest packet that passes, bytes: reported by a router, or found by the kernel's probing.
    Smaller(u32),
    /// Large segments seem to vanish.
    BlackHole,
}

/// What a look at a connection showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathLook {
    /// The estimate now.
    pub verdict: MtuVerdict,
    /// Its largest packets now, bytes.
    pub packet: u32,
    /// The same, if some of about that size came through since the look before.
    pub passed: Option<u32>,
}

/// Time-outs in a row after which large segments count as dropped (R1, RFC 1122 §4.2.3.5;
/// `tcp_retries1`). Linux begins to probe one later (measured: 3.5 s at 12 ms). At 10 % loss three
/// in a row fail once in a thousand.
pub const SUSPECT_AFTER: u32 = 3;

/// The path of one connection. Give it [`PathFacts`] now and then; it has no timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathMtu {
    acked: u64,
    delivered: u64,
    /// The largest packets known to have come through, bytes.
    passed: u32,
    /// The largest segment at the first look: what the peer announced and the route had then.
    at_first: Option<u32>,
    verdict: MtuVerdict,
}

impl Default for PathMtu {
    fn default() -> Self {
        Self::new()
    }
}

impl PathMtu {
    /// A connection not looked at yet.
    pub const fn new() -> Self {
        Self { acked: 0, delivered: 0, passed: 0, at_first: None, verdict: MtuVerdict::Fine }
    }

    /// A look.
    pub fn on_look(&mut self, facts: PathFacts) -> PathLook {
        let acked = facts.acked.saturating_sub(self.acked);
        let delivered = facts.delivered.saturating_sub(self.delivered);
        let mss = u64::from(facts.mss);
        let packet = facts.mss.saturating_add(facts.headers);
        // small segments in between hide large ones; then an outage may be taken for a black hole
        if acked >= mss && 2 * acked >= delivered * mss {
            self.passed = packet;
        }
        let full = facts.in_flight >= mss && 2 * facts.in_flight >= u64::from(facts.segments) * mss;
        let stuck = acked == 0 || self.acked == 0 && self.delivered == 0;
        let told = facts.path_mtu < facts.announced + facts.headers;
        // a peer may announce less than this side; only a later decrease was found on the way
        let fell = facts.mss < *self.at_first.get_or_insert(facts.mss);
        let probed = facts.timeouts_ever >= SUSPECT_AFTER && fell;
        self.verdict = if facts.timeouts >= SUSPECT_AFTER && full && stuck && self.passed < packet {
            MtuVerdict::BlackHole
        } else if self.verdict == MtuVerdict::BlackHole && acked == 0 {
            // between two time-outs nothing new was learnt
            MtuVerdict::BlackHole
        } else if probed {
            MtuVerdict::Smaller(facts.path_mtu.min(packet))
        } else if told {
            MtuVerdict::Smaller(facts.path_mtu)
        } else {
            MtuVerdict::Fine
        };
        (self.acked, self.delivered) = (facts.acked, facts.delivered);
        // for other connections this is a promise: one of them was nearly as large at least
        let full = acked >= mss && 16 * acked >= 15 * delivered * mss;
        PathLook { verdict: self.verdict, packet, passed: full.then_some(packet) }
    }

    /// The last verdict.
    pub const fn verdict(&self) -> MtuVerdict {
        self.verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use MtuVerdict::{BlackHole, Fine, Smaller};

    const MSS: u64 = 1448;

    /// Over Ethernet, with time stamps; nothing sent yet.
    const QUIET: PathFacts = PathFacts {
        path_mtu: 1500,
        mss: MSS as u32,
        announced: MSS as u32,
        headers: 52,
        in_flight: 0,
        segments: 0,
        timeouts: 0,
        timeouts_ever: 0,
        acked: 0,
        delivered: 0,
    };

    /// Ten full segments in flight, retransmitted `timeouts` times.
    fn stuck(timeouts: u32) -> PathFacts {
        PathFacts { in_flight: 10 * MSS, segments: 10, timeouts, timeouts_ever: timeouts, ..QUIET }
    }

    #[test]
    fn large_segments_that_never_pass_are_a_black_hole() {
        let mut path = PathMtu::new();
        // an answer's head of 200 bytes did pass
        let head = PathFacts { acked: 200, delivered: 2, ..stuck(0) };
        assert_eq!(path.on_look(head).verdict, Fine);
        for timeouts in 1..6 {
            let look = path.on_look(PathFacts { timeouts, timeouts_ever: timeouts, ..head });
            assert_eq!(look.verdict == BlackHole, timeouts >= SUSPECT_AFTER, "{timeouts}");
        }
        // seen for the first time when it is long stuck
        assert_eq!(PathMtu::new().on_look(stuck(5)).verdict, BlackHole);
        let look = PathMtu::new().on_look(PathFacts { acked: 200, delivered: 2, ..stuck(5) });
        assert_eq!(look.verdict, BlackHole);
    }

    #[test]
    fn outage_is_no_black_hole() {
        let mut path = PathMtu::new();
        let moved = PathFacts { acked: 100 * MSS, delivered: 100, ..stuck(0) };
        let look = path.on_look(moved);
        assert_eq!(look, PathLook { verdict: Fine, packet: 1500, passed: Some(1500) });
        let cut = PathFacts { timeouts: 7, timeouts_ever: 7, ..moved };
        // what passed before does not pass now
        assert_eq!(path.on_look(cut), PathLook { passed: None, ..look });
    }

    #[test]
    fn unanswered_small_request_is_no_black_hole() {
        let asked = PathFacts { in_flight: 300, segments: 1, ..stuck(6) };
        assert_eq!(PathMtu::new().on_look(asked).verdict, Fine);
        let typed = PathFacts { in_flight: 3_000, segments: 60, ..stuck(6) };
        assert_eq!(PathMtu::new().on_look(typed).verdict, Fine);
    }

    #[test]
    fn reports_the_mtu_found_by_probing() {
        let mut path = PathMtu::new();
        assert_eq!(path.on_look(stuck(4)).verdict, BlackHole);
        let smaller = PathFacts { mss: 1012, timeouts: 0, ..stuck(4) };
        // not yet acknowledged
        assert_eq!(path.on_look(smaller).verdict, BlackHole);
        let moves = PathFacts { acked: 20 * 1012, delivered: 20, ..smaller };
        let look = PathLook { verdict: Smaller(1064), packet: 1064, passed: Some(1064) };
        assert_eq!(path.on_look(moves), look);
    }

    #[test]
    fn outage_after_small_segments_is_withdrawn() {
        let mut path = PathMtu::new();
        assert_eq!(path.on_look(stuck(3)).verdict, BlackHole);
        let moves =
            PathFacts { acked: 20 * MSS, delivered: 20, in_flight: 0, segments: 0, ..stuck(0) };
        assert_eq!(path.on_look(moves).verdict, Fine);
    }

    #[test]
    fn outage_of_a_small_mss_peer_is_no_black_hole() {
        let clamped = PathFacts { mss: 1328, in_flight: 10 * 1328, ..stuck(0) };
        let mut path = PathMtu::new();
        assert_eq!(
            path.on_look(PathFacts { acked: 20 * 1328, delivered: 20, ..clamped }).verdict,
            Fine
        );
        let cut = PathFacts { acked: 20 * 1328, delivered: 20, ..clamped };
        assert_eq!(path.on_look(PathFacts { timeouts: 5, timeouts_ever: 5, ..cut }).verdict, Fine);
        let again = PathFacts { acked: 60 * 1328, delivered: 60, timeouts_ever: 5, ..clamped };
        assert_eq!(path.on_look(again).verdict, Fine);
        // seen for the first time when it was over, nothing tells a probe from a clamp
        assert_eq!(PathMtu::new().on_look(again).verdict, Fine);
    }

    #[test]
    fn reports_a_router_mtu_but_not_an_mss_clamp() {
        let told = PathFacts { path_mtu: 1400, mss: 1348, ..QUIET };
        assert_eq!(PathMtu::new().on_look(told).verdict, Smaller(1400));
        let clamped = PathFacts { mss: 1188, announced: 1188, ..QUIET };
        assert_eq!(PathMtu::new().on_look(clamped).verdict, Fine);
        let loopback = PathFacts { path_mtu: 65_535, mss: 32_768, announced: 65_483, ..QUIET };
        assert_eq!(PathMtu::new().on_look(loopback).verdict, Fine);
    }

    proptest::proptest! {
        /// Whatever was seen before: where a full segment passed, time-outs alone are no black hole.
        #[test]
        fn sizes_that_passed_are_never_suspected(
            before in proptest::collection::vec((0_u64..5_000, 0_u64..5, 0_u32..9), 0..8),
            timeouts in 0_u32..100,
        ) {
            let mut path = PathMtu::new();
            let mut facts = QUIET;
            for (acked, delivered, timeouts) in before {
                facts = PathFacts {
                    acked: facts.acked + acked,
                    delivered: facts.delivered + delivered,
                    in_flight: 3 * MSS,
                    segments: 3,
                    timeouts,
                    ..facts
                };
                path.on_look(facts);
            }
            let passed = PathFacts {
                acked: facts.acked + 4 * MSS, delivered: facts.delivered + 4, timeouts: 0, ..facts
            };
            proptest::prop_assert_eq!(path.on_look(passed).verdict, Fine);
            let cut = PathFacts { timeouts, in_flight: 9 * MSS, segments: 9, ..passed };
            proptest::prop_assert_eq!(path.on_look(cut).verdict, Fine);
        }
    }
}
