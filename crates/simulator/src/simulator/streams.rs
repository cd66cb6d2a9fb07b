//! Cross traffic: plain packets that share links with the connections and that nobody answers.

use super::{BuildError, Event, Simulator};
use crate::network::packet::{Content, Packet};
use crate::network::topology::Node;
use crate::observer::Observer;
use ekiden_model::network::workload::stream::{Stream, StreamConfig};
use ekiden_model::units::Time;

/// A stream of the simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CrossTraffic {
    /// Who sends.
    pub from: Node,
    /// Where the packets end.
    pub to: Node,
    /// When its time begins.
    pub start: Time,
    /// When packets are sent.
    pub stream: StreamConfig,
    /// Bytes of each IP packet.
    pub bytes: u32,
    /// Priority in routers that look at it: 0 first.
    pub class: u8,
}

#[derive(Debug)]
pub(super) struct Running {
    config: CrossTraffic,
    stream: Stream,
    route: u32,
}

impl<O: Observer> Simulator<O> {
    /// Adds cross traffic and returns its number. It never ends; observers see its losses only; in
    /// fair queues each stream is a flow. Fails without a way there.
    pub fn cross_traffic(&mut self, config: CrossTraffic) -> Result<u32, BuildError> {
        let route = self.add_route(config.from, config.to)?;
        let number = self.streams.len() as u32;
        self.streams.push(Running { config, stream: Stream::new(config.stream), route });
        self.schedule(number);
        Ok(number)
    }

    fn schedule(&mut self, number: u32) {
        let Some(running) = self.streams.get_mut(number as usize) else { return };
        if let Some(at) = running.stream.next_at() {
            let due = (running.config.start + at).max(self.events.now());
            self.events.push(due, Event::Stream(number));
        }
    }

    pub(super) fn on_stream_event(&mut self, now: Time, number: u32) {
        let Some(Running { config, route, .. }) = self.streams.get(number as usize) else { return };
        // flows and connections are numbered from 0
        let owner = u32::MAX - number;
        let packet = Packet::new(Content::Plain, owner, 0, config.bytes, *route, now);
        let packet = Packet { class: config.class, ..packet };
        self.launch(now, packet);
        self.schedule(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::topology::Topology;
    use ekiden_model::network::link::{Bound, Config, Discipline, Serialiser};
    use ekiden_model::network::workload::stream::Shape;
    use ekiden_model::units::{Rate, Span};

    #[test]
    fn a_stream_fills_its_share_of_a_link() {
        let mut topology = Topology::new();
        let (a, b) = (topology.host(), topology.host());
        let rate = Rate::from_bits_per_second(10_000_000);
        let config = Config {
            serialiser: Serialiser::Rate(rate),
            discipline: Discipline::DropTail(Bound::Packets(50)),
            framing: 14,
            ..Config::default()
        };
        let way = topology.way(a, b, config);
        let mut simulator = Simulator::new(topology, ());
        let stream = StreamConfig {
            rate: Rate::from_bits_per_second(4_000_000),
            wire: 1514,
            shape: Shape::Steady,
            seed: 1,
        };
        let traffic =
            CrossTraffic { from: a, to: b, start: Time::ZERO, stream, bytes: 1500, class: 1 };
        simulator.cross_traffic(traffic).unwrap();
        // 15.14 Mbit/s in all: a third is dropped
        let more = StreamConfig { rate: Rate::from_bits_per_second(11_140_000), ..stream };
        simulator.cross_traffic(CrossTraffic { stream: more, ..traffic }).unwrap();
        let refused = simulator.cross_traffic(CrossTraffic { from: b, to: a, ..traffic });
        assert_eq!(refused, Err(BuildError::NoRoute(b, a)));
        simulator.run(Time::ZERO + Span::from_secs(10));
        let link = simulator.way(way).unwrap();
        let wire = |packets: u64| packets as f64 * 1514.0 * 8.0 / 10.0 / 1e6;
        assert!((wire(link.offered) - 15.14).abs() < 0.01, "{}", wire(link.offered));
        assert!((wire(link.delivered) - 10.0).abs() < 0.1, "{}", wire(link.delivered));
        assert_eq!(simulator.totals().dropped, link.dropped);
        assert!(simulator.under_way() <= 52, "what arrived is gone");
    }
}
