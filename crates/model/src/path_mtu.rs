//! The largest packet that passes a path, as a TCP sender comes to know of it, and the path that drops
//! larger ones without a word (RFC 2923 §2.1 calls it a black hole).
//!
//! [`PathMtu`] judges one connection from what its kernel says now and then; [`Paths`] keeps what
//! connections of one leg found, by destination.
//!
//! A sender cannot see why it hears nothing. What speaks for a black hole is that segments of full size
//! are sent again and again and none of that size ever came through, although the handshake did. A peer
//! that dies just after the handshake looks the same, so it is a suspicion. One that stops hearing after
//! large segments had passed is an outage, and is not suspected.

mod paths;

pub use paths::{FORGOTTEN_AFTER, MOST_TROUBLED, Paths, Trouble};

/// What the kernel says of one connection (`TCP_INFO`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Facts {
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

/// What is held of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing speaks against packets of the device's size.
    Fine,
    /// No larger packets than this pass, bytes: a router said so, or the kernel's probing found it.
    Smaller(u32),
    /// Large segments seem to vanish.
    BlackHole,
}

/// Time-outs in a row after which large segments are taken for dropped: RFC 1122 §4.2.3.5's R1, Linux's
/// `tcp_retries1`. Its probing begins one later, as the time is over that three take (measured: after the
/// fourth, 3.5 s at 12 ms). Where one packet in ten is lost, three
/// in a row fail once in a thousand.
pub const SUSPECT_AFTER: u32 = 3;

/// The path of one connection.
///
/// Told [`Facts`] now and then, most usefully while nothing moves; never by a timer of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathMtu {
    acked: u64,
    delivered: u64,
    /// The largest packets known to have come through, bytes.
    passed: u32,
    /// The largest segment at the first look: what the peer announced and the route had then.
    at_first: Option<u32>,
    verdict: Verdict,
}

impl Default for PathMtu {
    fn default() -> Self {
        Self::new()
    }
}

impl PathMtu {
    /// A connection not looked at yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { acked: 0, delivered: 0, passed: 0, at_first: None, verdict: Verdict::Fine }
    }

    /// A look.
    pub fn on_look(&mut self, facts: Facts) -> Verdict {
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
        // a peer may announce less than we do; only what fell since was found on the way
        let fell = facts.mss < *self.at_first.get_or_insert(facts.mss);
        let probed = facts.timeouts_ever >= SUSPECT_AFTER && fell;
        self.verdict = if facts.timeouts >= SUSPECT_AFTER && full && stuck && self.passed < packet {
            Verdict::BlackHole
        } else if self.verdict == Verdict::BlackHole && acked == 0 {
            // between two time-outs nothing new was learnt
            Verdict::BlackHole
        } else if probed {
            Verdict::Smaller(facts.path_mtu.min(packet))
        } else if told {
            Verdict::Smaller(facts.path_mtu)
        } else {
            Verdict::Fine
        };
        (self.acked, self.delivered) = (facts.acked, facts.delivered);
        self.verdict
    }

    /// The last verdict.
    #[must_use]
    pub const fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// How large the packets are that came through with segments of full size, bytes; `None` while none
    /// did.
    #[must_use]
    pub fn passed(&self) -> Option<u32> {
        (self.passed > 0).then_some(self.passed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u64 = 1448;

    /// Over Ethernet, with time stamps; nothing sent yet.
    const QUIET: Facts = Facts {
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

    /// Ten full segments under way, sent again `timeouts` times.
    fn stuck(timeouts: u32) -> Facts {
        Facts { in_flight: 10 * MSS, segments: 10, timeouts, timeouts_ever: timeouts, ..QUIET }
    }

    #[test]
    fn large_segments_that_never_pass_are_a_black_hole() {
        let mut path = PathMtu::new();
        // an answer's head of 200 bytes did pass
        let head = Facts { acked: 200, delivered: 2, ..stuck(0) };
        assert_eq!(path.on_look(head), Verdict::Fine);
        for timeouts in 1..6 {
            let verdict = path.on_look(Facts { timeouts, timeouts_ever: timeouts, ..head });
            assert_eq!(verdict == Verdict::BlackHole, timeouts >= SUSPECT_AFTER, "{timeouts}");
        }
        // seen for the first time when it is long stuck
        assert_eq!(PathMtu::new().on_look(stuck(5)), Verdict::BlackHole);
        assert_eq!(
            PathMtu::new().on_look(Facts { acked: 200, delivered: 2, ..stuck(5) }),
            Verdict::BlackHole
        );
    }

    #[test]
    fn an_outage_is_none() {
        let mut path = PathMtu::new();
        let moved = Facts { acked: 100 * MSS, delivered: 100, ..stuck(0) };
        assert_eq!(path.on_look(moved), Verdict::Fine);
        assert_eq!(path.passed(), Some(1500));
        let cut = Facts { timeouts: 7, timeouts_ever: 7, ..moved };
        assert_eq!(path.on_look(cut), Verdict::Fine);
    }

    #[test]
    fn a_peer_that_does_not_answer_a_small_request_is_none() {
        let asked = Facts { in_flight: 300, segments: 1, ..stuck(6) };
        assert_eq!(PathMtu::new().on_look(asked), Verdict::Fine);
        let typed = Facts { in_flight: 3_000, segments: 60, ..stuck(6) };
        assert_eq!(PathMtu::new().on_look(typed), Verdict::Fine);
    }

    #[test]
    fn what_probing_finds_is_told() {
        let mut path = PathMtu::new();
        assert_eq!(path.on_look(stuck(4)), Verdict::BlackHole);
        let smaller = Facts { mss: 1012, timeouts: 0, ..stuck(4) };
        // not yet acknowledged
        assert_eq!(path.on_look(smaller), Verdict::BlackHole);
        let moves = Facts { acked: 20 * 1012, delivered: 20, ..smaller };
        assert_eq!(path.on_look(moves), Verdict::Smaller(1064));
        assert_eq!(path.passed(), Some(1064));
    }

    #[test]
    fn an_outage_after_small_talk_is_taken_back() {
        let mut path = PathMtu::new();
        assert_eq!(path.on_look(stuck(3)), Verdict::BlackHole);
        let moves = Facts { acked: 20 * MSS, delivered: 20, in_flight: 0, segments: 0, ..stuck(0) };
        assert_eq!(path.on_look(moves), Verdict::Fine);
    }

    #[test]
    fn an_outage_of_a_peer_that_announced_less_finds_nothing() {
        let clamped = Facts { mss: 1328, in_flight: 10 * 1328, ..stuck(0) };
        let mut path = PathMtu::new();
        assert_eq!(
            path.on_look(Facts { acked: 20 * 1328, delivered: 20, ..clamped }),
            Verdict::Fine
        );
        let cut = Facts { acked: 20 * 1328, delivered: 20, ..clamped };
        assert_eq!(path.on_look(Facts { timeouts: 5, timeouts_ever: 5, ..cut }), Verdict::Fine);
        let again = Facts { acked: 60 * 1328, delivered: 60, timeouts_ever: 5, ..clamped };
        assert_eq!(path.on_look(again), Verdict::Fine);
        // seen for the first time when it was over, nothing tells a probe from a clamp
        assert_eq!(PathMtu::new().on_look(again), Verdict::Fine);
    }

    #[test]
    fn what_a_router_said_is_told_and_a_clamp_is_not_a_path() {
        let told = Facts { path_mtu: 1400, mss: 1348, ..QUIET };
        assert_eq!(PathMtu::new().on_look(told), Verdict::Smaller(1400));
        let clamped = Facts { mss: 1188, announced: 1188, ..QUIET };
        assert_eq!(PathMtu::new().on_look(clamped), Verdict::Fine);
        let loopback = Facts { path_mtu: 65_535, mss: 32_768, announced: 65_483, ..QUIET };
        assert_eq!(PathMtu::new().on_look(loopback), Verdict::Fine);
    }

    proptest::proptest! {
        /// Whatever was seen before: where a full segment passed, time-outs alone are no black hole.
        #[test]
        fn what_passed_is_never_suspected(
            before in proptest::collection::vec((0_u64..5_000, 0_u64..5, 0_u32..9), 0..8),
            timeouts in 0_u32..100,
        ) {
            let mut path = PathMtu::new();
            let mut facts = QUIET;
            for (acked, delivered, timeouts) in before {
                facts = Facts {
                    acked: facts.acked + acked,
                    delivered: facts.delivered + delivered,
                    in_flight: 3 * MSS,
                    segments: 3,
                    timeouts,
                    ..facts
                };
                path.on_look(facts);
            }
            let passed = Facts {
                acked: facts.acked + 4 * MSS, delivered: facts.delivered + 4, timeouts: 0, ..facts
            };
            proptest::prop_assert_eq!(path.on_look(passed), Verdict::Fine);
            let cut = Facts { timeouts, in_flight: 9 * MSS, segments: 9, ..passed };
            proptest::prop_assert_eq!(path.on_look(cut), Verdict::Fine);
        }
    }
}
