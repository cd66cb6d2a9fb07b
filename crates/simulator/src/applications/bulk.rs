//! Endless transfers over a dumbbell, to compare with other simulators (`experiments/compare`).

use crate::network::connection::ConnectionConfig;
use crate::network::dumbbell::{Dumbbell, DumbbellConfig};
use crate::network::flow::{FlowConfig, Source};
use crate::network::topology::LinkDirection;
use crate::observer::Observer;
use crate::observer::delays::Delays;
use crate::random::Substreams;
use crate::simulator::{BuildError, Direction, Simulator};
use ekiden_model::network::tcp::preset::{Era, Flavour};
use ekiden_model::network::tcp::{Acknowledging, ReceiverConfig};
use ekiden_model::units::{Rate, Span, Time};

/// Bytes of IP and TCP headers without options.
pub const HEADER: u32 = 40;

/// What is compared.
#[derive(Debug, Clone, PartialEq)]
pub struct BulkConfig {
    /// One flow for each pair of hosts.
    pub flows: u32,
    /// Of the bottleneck.
    pub rate: Rate,
    /// Of the bottleneck, one way.
    pub delay: Span,
    /// Packets that it holds, with the one that is being sent.
    pub queue: u64,
    /// Each host's link.
    pub access: (Rate, Span),
    /// By how much each sender's link is longer than the one before.
    pub apart: Span,
    /// How losses are repaired.
    pub flavour: Flavour,
    /// Whose TCP.
    pub era: Era,
    /// The receiver's window, in segments.
    pub window: u32,
    /// Payload of a segment.
    pub mss: u32,
    /// The flows begin within this time, at equal distances.
    pub starts_within: Span,
    /// Of clocks.
    pub seed: u64,
}

impl Default for BulkConfig {
    /// A hundred flows over 10 Mbit/s, 20 ms and 100 packets.
    fn default() -> Self {
        Self {
            flows: 100,
            rate: Rate::from_bits_per_second(10_000_000),
            delay: Span::from_millis(20),
            queue: 100,
            access: (Rate::from_bits_per_second(100_000_000), Span::from_millis(1)),
            apart: Span::from_nanos(1),
            flavour: Flavour::NewReno,
            era: Era::Ns235,
            window: 64,
            mss: 1460,
            starts_within: Span::from_secs(1),
            seed: 1,
        }
    }
}

/// The network, ready to run, and its bottleneck; no configuration brings about an error.
pub fn build<O: Observer>(
    config: &BulkConfig,
    observer: O,
) -> Result<(Simulator<O>, LinkDirection), BuildError> {
    // ns-2 counts the packet that is being sent as waiting
    let waiting = config.queue.saturating_sub(1);
    let bottleneck = (config.rate, config.delay);
    let mut dumbbell = DumbbellConfig::new(config.flows, config.access, bottleneck, waiting);
    dumbbell.apart = config.apart;
    let dumbbell = Dumbbell::new(&dumbbell);
    let streams = Substreams::new(config.seed);
    let mut simulator = Simulator::new(dumbbell.topology, observer);
    let hosts = dumbbell.senders.iter().zip(&dumbbell.receivers);
    for (number, (sender, receiver)) in hosts.enumerate() {
        let number = number as u64;
        let start = config.starts_within.as_nanos() * number / u64::from(config.flows.max(1));
        let connection = simulator.connect(ConnectionConfig {
            start: Time::from_nanos(start),
            three_way: false,
            ..ConnectionConfig::new(*sender, *receiver, config.era)
        })?;
        let phase = Span::from_nanos(streams.of("clock", number).below(10_000_000));
        let window = f64::from(config.window);
        let sender = config.era.sender(config.flavour, config.mss, window, phase);
        let buffer = u64::from(config.window) * u64::from(config.mss);
        let receiver = ReceiverConfig {
            acknowledging: Acknowledging::EACH,
            selective: config.flavour == Flavour::Sack,
            duplicates: false,
            ..ReceiverConfig::linux(config.mss, buffer, 7)
        };
        let source = Source::Endless { kind: 0 };
        let flow = FlowConfig { selective_header: 0, ..FlowConfig::new(sender, receiver, source) };
        simulator.flow(connection, Direction::FromOpener, flow)?;
    }
    Ok((simulator, dumbbell.bottleneck))
}

/// What is compared, of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Segments, those sent again included.
    pub sent: u64,
    /// Segments sent again.
    pub retransmitted: u64,
    /// Timeouts.
    pub timeouts: u64,
    /// Packets that the bottleneck dropped.
    pub dropped: u64,
    /// Bytes that came in order.
    pub delivered: u64,
    /// Events.
    pub events: u64,
    /// Packets of all kinds.
    pub packets: u64,
}

/// Runs it, its delays recorded; no configuration brings about an error.
pub fn run(config: &BulkConfig, until: Span) -> Result<(Counts, Delays, [u64; 2]), BuildError> {
    let (mut simulator, bottleneck) = build(config, Delays::default())?;
    simulator.run(Time::ZERO + until);
    let mut counts = Counts::default();
    for flow in 0..config.flows {
        if let (Some(sender), Some(receiver)) = (simulator.sender(flow), simulator.receiver(flow)) {
            counts.sent += sender.count.sent;
            counts.retransmitted += sender.count.retransmitted;
            counts.timeouts += sender.count.timeouts;
            counts.delivered += receiver.in_order;
        }
    }
    counts.dropped = simulator.way(bottleneck).map_or(0, |way| way.dropped);
    counts.events = simulator.totals().events;
    counts.packets = simulator.totals().packets;
    Ok((counts, simulator.observer.clone(), simulator.fingerprints()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Results stay whatever changes inside, in debug and release, on every machine.
    #[test]
    fn results_are_the_same_everywhere() {
        let config = BulkConfig { flows: 10, ..BulkConfig::default() };
        let (counts, delays, prints) = run(&config, Span::from_secs(20)).unwrap();
        let again = run(&config, Span::from_secs(20)).unwrap();
        assert_eq!((counts, delays, prints), again);
    }

    #[test]
    fn the_bottleneck_is_full() {
        let (counts, delays, _) = run(&BulkConfig::default(), Span::from_secs(30)).unwrap();
        // all that was sent and not dropped went through it
        let through = (counts.sent - counts.dropped) * 1500;
        let rate = through as f64 * 8.0 / 30.0 / 1e6;
        assert!((9.8..10.1).contains(&rate), "{rate} Mbit/s");
        let parts = delays.kind(0).unwrap();
        assert!(parts.router.summary().unwrap().mean > 50e6);
    }
}
