//! Window, estimates and waiting of one connection over time, as seed 0's Fig. 6 shows them.

use ekiden_model::tcp::Sender;
use ekiden_model::units::{Span, Time};
use ekiden_simulator::observer::{Delivery, Trouble};
use std::collections::BTreeMap;

/// So much is kept before the first time-out …
const BEFORE: f64 = 10.0;
/// … and so much in all, in seconds: a screen's width of acknowledgements.
const KEPT: f64 = 60.0;

/// Of every connection, until it is known which has the most time-outs.
#[derive(Debug, Default)]
pub(super) struct Timelines {
    flows: BTreeMap<u32, Timeline>,
}

#[derive(Debug, Default)]
struct Timeline {
    window: Vec<[f64; 2]>,
    smoothed: Vec<[f64; 2]>,
    rto: Vec<[f64; 2]>,
    queue: Vec<[f64; 2]>,
    timeouts: Vec<[f64; 2]>,
}

impl Timelines {
    /// A write's time in routers, at the time of its delivery.
    pub(super) fn delivered(&mut self, delivery: &Delivery) {
        let at = seconds(delivery.written + delivery.end_to_end);
        let flow = self.flows.entry(delivery.flow).or_default();
        flow.queue.push([at, milliseconds(delivery.router)]);
    }

    pub(super) fn acknowledged(&mut self, at: Time, flow: u32, sender: &Sender) {
        self.flows.entry(flow).or_default().look(seconds(at), sender);
    }

    pub(super) fn troubled(&mut self, at: Time, flow: u32, trouble: Trouble, sender: &Sender) {
        let flow = self.flows.entry(flow).or_default();
        if trouble == Trouble::Timeout {
            flow.timeouts.push([seconds(at), 1.0]);
        }
        flow.look(seconds(at), sender);
    }

    /// Those of the connection with the most time-outs, the first of equals, around its first one;
    /// nothing where no connection has any.
    pub(super) fn series(&self) -> BTreeMap<String, Vec<[f64; 2]>> {
        let mut chosen: Option<&Timeline> = None;
        for flow in self.flows.values() {
            if flow.timeouts.len() > chosen.map_or(0, |best| best.timeouts.len()) {
                chosen = Some(flow);
            }
        }
        let Some(flow) = chosen else { return BTreeMap::new() };
        let begin = flow.timeouts.first().map_or(0.0, |[at, _]| (at - BEFORE).max(0.0));
        let kept = |points: &[[f64; 2]]| -> Vec<[f64; 2]> {
            let inside = |point: &&[f64; 2]| (begin..begin + KEPT).contains(&point[0]);
            points.iter().filter(inside).copied().collect()
        };
        [
            ("cwnd_segments", &flow.window),
            ("srtt_ms", &flow.smoothed),
            ("rto_ms", &flow.rto),
            ("queue_ms", &flow.queue),
            ("timeout", &flow.timeouts),
        ]
        .into_iter()
        .map(|(name, points)| (name.to_owned(), kept(points)))
        .collect()
    }
}

impl Timeline {
    fn look(&mut self, at: f64, sender: &Sender) {
        let snapshot = sender.snapshot();
        self.window.push([at, snapshot.window]);
        self.smoothed.push([at, milliseconds(snapshot.smoothed)]);
        self.rto.push([at, milliseconds(snapshot.rto)]);
    }
}

fn seconds(at: Time) -> f64 {
    at.as_nanos() as f64 / 1e9
}

fn milliseconds(span: Span) -> f64 {
    span.as_nanos() as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_connection_with_the_most_time_outs_is_kept_around_its_first() {
        let mut timelines = Timelines::default();
        assert!(timelines.series().is_empty());
        for (flow, times) in [(1, &[5.0][..]), (2, &[100.0, 120.0]), (3, &[7.0, 8.0])] {
            let timeline = timelines.flows.entry(flow).or_default();
            timeline.timeouts = times.iter().map(|at| [*at, 1.0]).collect();
            timeline.window = (0..300).map(|at| [f64::from(at), f64::from(flow)]).collect();
        }
        let series = timelines.series();
        assert_eq!(series["timeout"], [[100.0, 1.0], [120.0, 1.0]]);
        let window = &series["cwnd_segments"];
        assert_eq!((window.first(), window.len()), (Some(&[90.0, 2.0]), 60));
    }
}
