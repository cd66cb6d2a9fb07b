//! What is counted of a run with a proxy.

use ekiden_model::resources::idle;
use ekiden_model::resources::overload::AdmissionSnapshot;
use ekiden_model::units::{Bytes, Span};

/// Smallest bytes of document classes: thirds of decades. The first holds all smaller ones too.
pub const CLASSES: [u64; 19] = [
    100,
    200,
    500,
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
];

/// Documents of a size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Class {
    /// How many came whole.
    pub count: u64,
    /// Their time together, from the request (handshake and waiting included) to the last byte.
    pub time: Span,
}

/// What came of a run so far.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ProxyResult {
    /// Bytes that clients received in order, of documents still under way too.
    pub bytes: u64,
    /// Documents that clients have asked for.
    pub asked: u64,
    /// … of them come whole,
    pub answered: u64,
    /// … of them refused: nobody had a place for so long,
    pub refused: u64,
    /// … and still to come.
    pub outstanding: u64,
    /// Asked for again, since the proxy closed the connection meanwhile.
    pub repeated: u64,
    /// Answered ones by size, as [`CLASSES`].
    pub classes: [Class; CLASSES.len()],
    /// Connections that were opened to the proxy or by it.
    pub opened: u64,
    /// The most there ever were at a time.
    pub most_open: u64,
    /// Ticks.
    pub ticks: u64,
    /// The largest sum of grants at a tick.
    pub most_granted: Bytes,
    /// What all could have made use of, summed over ticks, bytes.
    pub demanded: u64,
    /// Idle connections.
    pub idle: Option<idle::Snapshot>,
    /// Places.
    pub admission: Option<AdmissionSnapshot>,
}

impl ProxyResult {
    /// A document of so many bytes took so long.
    pub(super) fn add(&mut self, bytes: u64, time: Span) {
        let class = CLASSES.partition_point(|begin| *begin <= bytes).saturating_sub(1);
        if let Some(class) = self.classes.get_mut(class) {
            class.count += 1;
            class.time += time;
        }
        self.answered += 1;
    }

    /// Documents of classes from `from` to below `to` bytes: how many, and their mean time in
    /// seconds.
    pub fn mean(&self, from: u64, to: u64) -> (u64, Option<f64>) {
        let chosen = CLASSES.iter().zip(&self.classes);
        let chosen = chosen.filter(|(begin, _)| (from..to).contains(*begin));
        let (count, time) = chosen.fold((0, 0), |(count, time), (_, class)| {
            (count + class.count, time + class.time.as_nanos())
        });
        (count, (count > 0).then(|| time as f64 / 1e9 / count as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_has_its_class() {
        let mut result = ProxyResult::default();
        for (bytes, seconds) in [(1, 1), (199, 3), (200, 8), (9_999, 2), (100_000_000, 60)] {
            result.add(bytes, Span::from_secs(seconds));
        }
        assert_eq!(result.mean(0, 200), (2, Some(2.0)));
        assert_eq!(result.mean(200, 500), (1, Some(8.0)));
        assert_eq!(result.mean(5_000, 10_000), (1, Some(2.0)));
        assert_eq!(result.mean(10_000, 1_000_000), (0, None));
        assert_eq!(result.mean(1_000_000, u64::MAX), (1, Some(60.0)));
        assert_eq!(result.answered, 5);
    }
}
