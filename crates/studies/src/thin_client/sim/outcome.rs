//! What is watched in a run, and what of it is kept.

use crate::thin_client::delays::{KINDS, tell};
use ekiden_lab::engine::Outcome;
use ekiden_model::network::tcp::Sender;
use ekiden_model::network::workload::flows::{FlowKind, Summary};
use ekiden_model::units::Time;
use ekiden_record::histogram::Histogram;
use ekiden_simulator::observer::delays::{Delays, Parts};
use ekiden_simulator::observer::{Delivery, Observer, Trouble};
use std::collections::BTreeMap;

/// Delays, and what went wrong, by kind of the first outstanding write.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    delays: Delays,
    /// Retransmission timeouts: interactive, bulk.
    timeouts: [u64; 2],
    /// Losses found by duplicate or selective acknowledgements.
    repairs: [u64; 2],
    /// Interactive writes that took longer than 300 ms.
    slow: u64,
    interactive: u64,
    /// When retransmission timers fired, by flow.
    fired: BTreeMap<u32, Vec<Time>>,
}

/// A flow that had as many timeouts as others had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Typical {
    pub(crate) flow: u32,
    /// The one in the middle.
    pub(crate) timeout: Time,
}

impl Watched {
    /// The flow with the median number of time-outs among those that have any; of two, the lower.
    pub(crate) fn typical(&self) -> Option<Typical> {
        let mut flows: Vec<_> = self.fired.iter().collect();
        flows.sort_by_key(|(flow, times)| (times.len(), **flow));
        let (flow, times) = flows.get(flows.len().checked_sub(1)? / 2)?;
        let timeout = *times.get(times.len().checked_sub(1)? / 2)?;
        Some(Typical { flow: **flow, timeout })
    }
}

impl Observer for Watched {
    fn delivered(&mut self, delivery: &Delivery) {
        self.delays.delivered(delivery);
        if delivery.kind == FlowKind::Interactive as u8 {
            self.interactive += 1;
            self.slow += u64::from(delivery.end_to_end.as_millis() >= 300);
        }
    }

    fn troubled(&mut self, at: Time, flow: u32, kind: u8, trouble: Trouble, _: &Sender) {
        if trouble == Trouble::Timeout {
            self.fired.entry(flow).or_default().push(at);
        }
        let counts = match trouble {
            Trouble::Timeout => &mut self.timeouts,
            Trouble::Duplicates => &mut self.repairs,
        };
        if let Some(count) = counts.get_mut(usize::from(kind)) {
            *count += 1;
        }
    }
}

/// The study's figures: the value is the number of timeouts per connection.
pub(crate) fn outcome(
    watched: &Watched,
    fingerprint: u64,
    pairs: u32,
    summary: &Summary,
) -> Outcome {
    let each = |count: u64| count as f64 / f64::from(pairs.max(1));
    let both = |counts: [u64; 2]| each(counts.iter().sum());
    let by_packet = |bytes: u64, packets: u64| bytes as f64 / packets.max(1) as f64;
    let [rto_interactive, rto_bulk] = watched.timeouts.map(each);
    let [dup_interactive, dup_bulk] = watched.repairs.map(each);
    let Summary { interactive, bulk, .. } = summary;
    let figures = [
        ("rto_interactive", rto_interactive),
        ("rto_bulk", rto_bulk),
        ("rto_interactive_over_bulk", rto_interactive / rto_bulk),
        ("dup", both(watched.repairs)),
        ("dup_interactive", dup_interactive),
        ("dup_bulk", dup_bulk),
        ("slow_interactive", watched.slow as f64 / watched.interactive.max(1) as f64),
        ("flows_interactive", each(interactive.flows)),
        ("flows_bulk", each(bulk.flows)),
        ("packets_bulk", each(bulk.packets)),
        ("bytes_interactive", each(interactive.bytes)),
        ("bytes_bulk", each(bulk.bytes)),
        ("packet_interactive", by_packet(interactive.bytes, interactive.packets)),
        ("packet_bulk", by_packet(bulk.bytes, bulk.packets)),
        ("alpha", summary.alpha().unwrap_or(f64::NAN)),
        ("beta", summary.beta().unwrap_or(f64::NAN)),
    ];
    let mut outcome = Outcome::of(both(watched.timeouts));
    outcome.add_figures(figures.into_iter().filter(|(_, value)| value.is_finite()));
    for (kind, name) in KINDS {
        let parts = watched.delays.kind(kind as u8).into_iter().flat_map(named);
        parts.for_each(|(part, histogram)| tell(histogram, name, part, &mut outcome));
    }
    outcome.add_fact("fingerprint", format!("{fingerprint:016x}"));
    outcome
}

fn named(parts: &Parts) -> [(&'static str, &Histogram); 4] {
    [
        ("server", &parts.server),
        ("router", &parts.router),
        ("client", &parts.client),
        ("end-to-end", &parts.end_to_end),
    ]
}
