//! Cross traffic: plain packets that share links with the connections and that nobody answers.

use super::{BuildError, Event, Simulator};
use crate::observer::Observer;
use crate::packet::{Body, Packet};
use crate::topology::Node;
use ekiden_model::units::{Span, Time};
use ekiden_model::workload::stream::{Stream, StreamConfig};

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

/// A stream while it runs.
#[derive(Debug)]
pub(super) struct Running {
    config: CrossTraffic,
    stream: Stream,
    route: u32,
}

impl<O: Observer> Simulator<O> {
    /// Adds cross traffic and says its number. It never ends, so that a run with it needs a time to
    /// end at. Observers are told of its losses alone; in fair queues each stream is a flow of its own.
    ///
    /// # Errors
    /// There is no way there.
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
        let packet = Packet {
            body: Body::Plain,
            // flows and connections are numbered from 0
            owner: u32::MAX - number,
            epoch: 0,
            bytes: config.bytes,
            segments: 1,
            next: *route,
            class: config.class,
            ecn_capable: false,
            marked: false,
            sent: now,
            host: Span::ZERO,
            router: Span::ZERO,
        };
        self.launch(now, packet);
        self.schedule(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Topology;
    use ekiden_model::link::{Bound, Config, Discipline, Serialiser};
    use ekiden_model::units::Rate;
    use ekiden_model::workload::stream::Shape;

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
        assert_eq!(
            simulator.cross_traffic(CrossTraffic { from: b, to: a, ..traffic }),
            Err(BuildError::NoRoute(b, a))
        );
        simulator.run(Time::ZERO + Span::from_secs(10));
        let link = simulator.way(way).unwrap();
        let wire = |packets: u64| packets as f64 * 1514.0 * 8.0 / 10.0 / 1e6;
        assert!((wire(link.offered) - 15.14).abs() < 0.01, "{}", wire(link.offered));
        assert!((wire(link.delivered) - 10.0).abs() < 0.1, "{}", wire(link.delivered));
        assert_eq!(simulator.totals().dropped, link.dropped);
        assert!(simulator.under_way() <= 52, "what arrived is gone");
    }
}
