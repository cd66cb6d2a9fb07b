//! A machine in the middle, and each of the others at the end of a link of its own.

use crate::kernel::BUFFERS_OF_LINUX;
use ekiden_emulator::topology::{HostPlan, LinkPlan, MTU, TopologyPlan};
use ekiden_model::network::link::{Bound, Config, Discipline, Loss, LossUnit, Serialiser};
use ekiden_model::rng::Rng;
use ekiden_model::units::{Bytes, Rate, Share, Span};

pub(super) const HUB: &str = "proxy";

#[derive(Debug, Clone)]
pub(super) struct FarHost {
    pub(super) name: String,
    /// Both ways.
    pub(super) rate: Rate,
    /// One way.
    pub(super) delay: Span,
    /// Each way, of single packets.
    pub(super) loss: Share,
    pub(super) queue: Bound,
    /// Whether TCP may hand over super-packets: for links that are to cost little.
    pub(super) super_packets: bool,
}

impl FarHost {
    fn link(&self, seed: u64) -> Config {
        let unit = if self.super_packets { LossUnit::SuperPacket } else { LossUnit::Packet };
        Config {
            discipline: Discipline::DropTail(self.queue),
            serialiser: Serialiser::Rate(self.rate),
            delay: self.delay,
            loss: Loss::from(self.loss).per(unit),
            seed,
            ..Config::default()
        }
    }
}

/// The network; each link loses packets by numbers of its own.
pub(super) fn plan(fars: &[FarHost], seed: u64) -> TopologyPlan {
    let mut rng = Rng::new(seed);
    let host = |name: &str| HostPlan {
        name: name.to_owned(),
        sysctls: BUFFERS_OF_LINUX.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        ..HostPlan::default()
    };
    let hub = std::iter::once(host(HUB));
    let hosts = hub.chain(fars.iter().map(|far| host(&far.name))).collect();
    let link = |far: &FarHost| LinkPlan {
        name: far.name.clone(),
        between: [HUB.to_owned(), far.name.clone()],
        mtu: MTU,
        super_packets: far.super_packets,
        one_by_one: false,
        forward: far.link(rng.next_u64()),
        backward: far.link(rng.next_u64()),
    };
    let links = fars.iter().map(link).collect();
    TopologyPlan { hosts, links, processes: Vec::new() }
}

/// A span between two, by chance.
pub(super) fn between(rng: &mut Rng, [from, to]: [Span; 2]) -> Span {
    let wide = to.as_nanos().saturating_sub(from.as_nanos());
    Span::from_nanos(from.as_nanos() + rng.below(wide.max(1)))
}

/// A queue of so many bytes, and of a full packet at least.
pub(super) fn queue_of(rate: Rate, span: Span) -> Bound {
    let bytes = rate.as_bytes_per_second() as f64 * span.as_nanos() as f64 / 1e9;
    Bound::Bytes(Bytes::new((bytes as u64).max(2 * u64::from(MTU))))
}
