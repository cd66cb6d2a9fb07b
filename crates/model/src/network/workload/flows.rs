//! Flows of a connection, separated by the pauses between a server's packets.
//!
//! Packets within [`THRESHOLD`] belong to one flow: of one packet (a key's echo) it is interactive,
//! of more (a window redrawn) bulk (the thin-client study, §2.1).
//!
//! Bias: the rule holds near the server alone, because queues stretch and close pauses. A
//! super-packet (TSO) counts as one packet. Two echoes within 6.3 ms count as one bulk flow.

use crate::units::{Span, Time};

/// The longest pause within a flow: 10^−2.2 s = 6.309573 ms (the thin-client study, §2.1: a month
/// of some 200 pairs of server and client).
pub const THRESHOLD: Span = Span::from_nanos(6_309_573);

/// The kind of a flow, by the number of its packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum FlowKind {
    /// One packet: text.
    Interactive,
    /// Several: a window's worth of pixels.
    Bulk,
}

/// Packets without a long pause between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    /// The first packet.
    pub begin: Time,
    /// The last packet.
    pub end: Time,
    /// At least 1.
    pub packets: u64,
    /// Of payload.
    pub bytes: u64,
}

impl Flow {
    /// Interactive is exactly one packet: of Table 1's 934 flows there are 934 packets.
    pub const fn kind(&self) -> FlowKind {
        if self.packets == 1 { FlowKind::Interactive } else { FlowKind::Bulk }
    }
}

/// Finds the flows of one connection, one direction, from its packets in the order of time:
///
/// ```
/// # use ekiden_model::network::workload::flows::{Flows, FlowKind, THRESHOLD};
/// # use ekiden_model::units::{Span, Time};
/// let mut flows = Flows::new(THRESHOLD);
/// assert_eq!(flows.on_packet(Time::ZERO, 100), None);
/// let echo = flows.on_packet(Time::ZERO + Span::from_millis(80), 1460);
/// assert_eq!(echo.map(|flow| flow.kind()), Some(FlowKind::Interactive));
/// flows.finish();
/// assert_eq!(flows.summary().flows(), 2);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flows {
    threshold: Span,
    open: Option<Flow>,
    previous: Option<FlowKind>,
    summary: Summary,
}

impl Flows {
    /// Of a connection of which nothing has been seen.
    pub fn new(threshold: Span) -> Self {
        Self { threshold, open: None, previous: None, summary: Summary::default() }
    }

    /// A packet with `payload` new bytes, ignored if 0; returns the flow it ended. `at` is at least
    /// the last packet's.
    pub fn on_packet(&mut self, at: Time, payload: u64) -> Option<Flow> {
        if payload == 0 {
            return None;
        }
        if let Some(flow) = &mut self.open
            && at.since(flow.end) <= self.threshold
        {
            flow.end = flow.end.max(at);
            flow.packets += 1;
            flow.bytes = flow.bytes.saturating_add(payload);
            return None;
        }
        let ended = self.finish();
        self.open = Some(Flow { begin: at, end: at, packets: 1, bytes: payload });
        ended
    }

    /// There are no more packets. Answers the flow that has ended by it.
    pub fn finish(&mut self) -> Option<Flow> {
        let flow = self.open.take()?;
        self.summary.on_flow(self.previous, &flow);
        self.previous = Some(flow.kind());
        Some(flow)
    }

    /// Of the flows that have ended.
    pub const fn summary(&self) -> &Summary {
        &self.summary
    }
}

/// Flows, packets and bytes of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Flows.
    pub flows: u64,
    /// Their packets.
    pub packets: u64,
    /// Their payload in bytes.
    pub bytes: u64,
}

impl Totals {
    /// Mean packets of a flow; `None` without flows.
    pub fn packets_per_flow(&self) -> Option<f64> {
        ratio(self.packets, self.flows)
    }

    /// Mean payload bytes of a packet; `None` without packets.
    pub fn bytes_per_packet(&self) -> Option<f64> {
        ratio(self.bytes, self.packets)
    }

    fn merge(&mut self, other: &Self) {
        self.flows = self.flows.saturating_add(other.flows);
        self.packets = self.packets.saturating_add(other.packets);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// From one flow to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Steps {
    /// To the same kind.
    pub stayed: u64,
    /// To the other kind.
    pub left: u64,
}

impl Steps {
    /// The share that stayed; `None` without steps.
    pub fn share(&self) -> Option<f64> {
        ratio(self.stayed, self.stayed.saturating_add(self.left))
    }

    fn merge(&mut self, other: &Self) {
        self.stayed = self.stayed.saturating_add(other.stayed);
        self.left = self.left.saturating_add(other.left);
    }
}

/// The rows of the thin-client study's Table 1, and the two-state system's probabilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Of the interactive flows.
    pub interactive: Totals,
    /// Of the bulk flows.
    pub bulk: Totals,
    /// From interactive flows to the next flow on the same connection.
    pub from_interactive: Steps,
    /// From bulk flows to the next flow on the same connection.
    pub from_bulk: Steps,
}

impl Summary {
    /// α̂: the share of interactive flows followed by another (the thin-client study, §2.1); `None`
    /// without any.
    pub fn alpha(&self) -> Option<f64> {
        self.from_interactive.share()
    }

    /// β̂: how often a bulk flow is followed by another.
    pub fn beta(&self) -> Option<f64> {
        self.from_bulk.share()
    }

    /// Flows of both kinds.
    pub const fn flows(&self) -> u64 {
        self.interactive.flows.saturating_add(self.bulk.flows)
    }

    /// Adds another connection's; between connections there are no steps.
    pub fn merge(&mut self, other: &Self) {
        self.interactive.merge(&other.interactive);
        self.bulk.merge(&other.bulk);
        self.from_interactive.merge(&other.from_interactive);
        self.from_bulk.merge(&other.from_bulk);
    }

    fn on_flow(&mut self, previous: Option<FlowKind>, flow: &Flow) {
        let kind = flow.kind();
        let totals = match kind {
            FlowKind::Interactive => &mut self.interactive,
            FlowKind::Bulk => &mut self.bulk,
        };
        totals.merge(&Totals { flows: 1, packets: flow.packets, bytes: flow.bytes });
        let Some(previous) = previous else { return };
        let steps = match previous {
            FlowKind::Interactive => &mut self.from_interactive,
            FlowKind::Bulk => &mut self.from_bulk,
        };
        let stayed = u64::from(previous == kind);
        steps.merge(&Steps { stayed, left: 1 - stayed });
    }
}

/// Counts are far below 2⁵³, above which a quotient would lose digits.
fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;

    const MS: Span = Span::from_millis(1);

    /// The flows of packets at these times, each of 100 bytes.
    fn cut(times: &[Time]) -> (Vec<Flow>, Summary) {
        let mut flows = Flows::new(THRESHOLD);
        let mut found: Vec<Flow> =
            times.iter().filter_map(|at| flows.on_packet(*at, 100)).collect();
        found.extend(flows.finish());
        assert_eq!(flows.finish(), None);
        (found, *flows.summary())
    }

    #[test]
    fn the_threshold_is_ten_to_the_minus_2_2() {
        assert_eq!(THRESHOLD.as_nanos(), libm::pow(10.0, -2.2 + 9.0) as u64);
    }

    #[test]
    fn only_longer_pauses_than_the_threshold_separate_flows() {
        let second = Time::ZERO + THRESHOLD;
        let (found, _) = cut(&[Time::ZERO, second]);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].packets, found[0].kind()), (2, FlowKind::Bulk));
        let (found, _) = cut(&[Time::ZERO, second + Span::from_nanos(1)]);
        assert_eq!(found.len(), 2);
        assert!(found.iter().all(|flow| flow.kind() == FlowKind::Interactive));
    }

    #[test]
    fn steps_are_counted_from_flow_to_flow() {
        // I I B I B B I
        let at = |ms: u64| Time::ZERO + MS.saturating_mul(ms);
        let times = [0, 100, 200, 201, 300, 400, 401, 402, 500, 505, 600].map(at);
        let (found, summary) = cut(&times);
        let kinds: Vec<FlowKind> = found.iter().map(Flow::kind).collect();
        use FlowKind::{Bulk as B, Interactive as I};
        assert_eq!(kinds, [I, I, B, I, B, B, I]);
        assert_eq!(summary.from_interactive, Steps { stayed: 1, left: 2 });
        assert_eq!(summary.from_bulk, Steps { stayed: 1, left: 2 });
        assert_eq!(summary.interactive, Totals { flows: 4, packets: 4, bytes: 400 });
        assert_eq!(summary.bulk, Totals { flows: 3, packets: 7, bytes: 700 });
        assert_eq!(summary.alpha(), Some(1.0 / 3.0));
        assert_eq!(summary.bulk.bytes_per_packet(), Some(100.0));
    }

    #[test]
    fn nothing_seen_is_nothing_said() {
        let mut flows = Flows::new(THRESHOLD);
        assert_eq!(flows.on_packet(Time::ZERO, 0), None, "a pure acknowledgement");
        assert_eq!(flows.finish(), None);
        let summary = *flows.summary();
        assert_eq!((summary.alpha(), summary.beta(), summary.flows()), (None, None, 0));
        assert_eq!(summary.bulk.packets_per_flow(), None);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_pauses_are_where_they_belong(
            gaps in proptest::collection::vec((0_u64..20_000_000, 1_u64..2_000), 0..200),
        ) {
            let mut flows = Flows::new(THRESHOLD);
            let (mut now, mut found) = (Time::ZERO, Vec::new());
            for (gap, bytes) in &gaps {
                now += Span::from_nanos(*gap);
                found.extend(flows.on_packet(now, *bytes));
            }
            found.extend(flows.finish());
            let packets: u64 = found.iter().map(|flow| flow.packets).sum();
            let bytes: u64 = found.iter().map(|flow| flow.bytes).sum();
            prop_assert_eq!(packets, gaps.len() as u64);
            prop_assert_eq!(bytes, gaps.iter().map(|(_, bytes)| bytes).sum::<u64>());
            for pair in found.windows(2) {
                prop_assert!(pair[1].begin.since(pair[0].end) > THRESHOLD);
            }
            let summary = flows.summary();
            prop_assert_eq!(summary.flows(), found.len() as u64);
            let steps = summary.from_interactive.stayed + summary.from_interactive.left
                + summary.from_bulk.stayed + summary.from_bulk.left;
            prop_assert_eq!(steps, summary.flows().saturating_sub(1));
        }
    }
}
