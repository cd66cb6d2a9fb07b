//! The time line of one connection around a timeout: what its sender knew and what its writes met.

use crate::thin_client::sim::outcome::Typical;
use ekiden_model::network::tcp::Sender;
use ekiden_model::units::{Span, Time};
use ekiden_simulator::observer::{Delivery, Departure, Observer, Trouble};
use std::collections::BTreeMap;

/// So long before the timeout and after it.
const AROUND: Span = Span::from_secs(10);

/// By name: seconds of the run, and a value.
pub(crate) type Series = BTreeMap<String, Vec<[f64; 2]>>;

/// Keeps, of one flow and in the 20 s around one of its timeouts:
///
/// | series | value |
/// |---|---|
/// | `cwnd_segments` | congestion window in segments, where it changes |
/// | `srtt_ms`, `rto_ms` | smoothed round trip and time-out, where they change |
/// | `queue_ms` | how long the copy of a write which arrived first spent in routers, at its delivery |
/// | `timeout` | when the timer fired; the time-out after it, in ms |
#[derive(Debug)]
pub(crate) struct Line {
    flow: u32,
    from: Time,
    until: Time,
    series: BTreeMap<&'static str, Vec<[f64; 2]>>,
}

impl Line {
    pub(crate) fn new(typical: &Typical) -> Self {
        let from = Time::ZERO + typical.timeout.since(Time::ZERO + AROUND);
        let until = typical.timeout + AROUND;
        Self { flow: typical.flow, from, until, series: BTreeMap::new() }
    }

    /// Nothing after this is kept.
    pub(crate) const fn until(&self) -> Time {
        self.until
    }

    pub(crate) fn series(self) -> Series {
        self.series.into_iter().map(|(name, values)| (name.to_owned(), values)).collect()
    }

    fn is_of_interest(&self, at: Time, flow: u32) -> bool {
        flow == self.flow && (self.from..=self.until).contains(&at)
    }

    fn push(&mut self, name: &'static str, at: Time, value: f64) {
        self.series.entry(name).or_default().push([at.since(Time::ZERO).as_secs_f64(), value]);
    }

    /// Keeps a value where it is another than the one before.
    fn note(&mut self, name: &'static str, at: Time, value: f64) {
        let last = self.series.get(name).and_then(|values| values.last());
        if last.is_none_or(|[_, last]| last.total_cmp(&value).is_ne()) {
            self.push(name, at, value);
        }
    }

    fn see(&mut self, at: Time, flow: u32, sender: &Sender) {
        if !self.is_of_interest(at, flow) {
            return;
        }
        let shown = sender.snapshot();
        self.note("cwnd_segments", at, shown.window);
        self.note("rto_ms", at, millis(shown.rto));
        // 0 is `no sample yet`
        if shown.smoothed > Span::ZERO {
            self.note("srtt_ms", at, millis(shown.smoothed));
        }
    }
}

impl Observer for Line {
    fn departed(&mut self, departure: &Departure<'_>) {
        self.see(departure.at, departure.flow, departure.sender);
    }

    fn acknowledged(&mut self, at: Time, flow: u32, sender: &Sender) {
        self.see(at, flow, sender);
    }

    fn troubled(&mut self, at: Time, flow: u32, _kind: u8, trouble: Trouble, sender: &Sender) {
        if trouble == Trouble::Timeout && self.is_of_interest(at, flow) {
            self.push("timeout", at, millis(sender.snapshot().rto));
            self.see(at, flow, sender);
        }
    }

    fn delivered(&mut self, delivery: &Delivery) {
        let at = delivery.written + delivery.end_to_end;
        if self.is_of_interest(at, delivery.flow) {
            self.push("queue_ms", at, millis(delivery.router));
        }
    }
}

fn millis(span: Span) -> f64 {
    span.as_nanos() as f64 / 1e6
}
