//! Many pairs of hosts, one bottleneck between two routers.

use crate::network::topology::{LinkDirection, Node, Topology};
use ekiden_model::network::link::{Bound, Config, Discipline, Serialiser};
use ekiden_model::units::{Rate, Span};

/// A dumbbell's links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DumbbellConfig {
    /// Pairs of hosts.
    pub pairs: u32,
    /// Each host's link: rate and delay.
    pub access: (Rate, Span),
    /// Each sender's link is so much longer than the one before, so that no packets of different
    /// flows arrive at once and tie-breaking decides nothing.
    pub apart: Span,
    /// From the senders' router to the receivers'.
    pub bottleneck: Config,
    /// … and back.
    pub back: Config,
    /// A relay before the senders' router that holds a rate, if there is one.
    pub shaper: Option<Config>,
}

impl DumbbellConfig {
    /// `pairs` over a bottleneck of this rate and delay, with room for so many packets each way.
    pub fn new(pairs: u32, access: (Rate, Span), bottleneck: (Rate, Span), packets: u64) -> Self {
        let (rate, delay) = bottleneck;
        let config = Config {
            discipline: Discipline::DropTail(Bound::Packets(packets)),
            serialiser: Serialiser::Rate(rate),
            delay,
            ..Config::default()
        };
        Self {
            pairs,
            access,
            apart: Span::ZERO,
            bottleneck: config.clone(),
            back: config,
            shaper: None,
        }
    }
}

/// A dumbbell: who is who.
#[derive(Debug, Clone)]
pub struct Dumbbell {
    /// All of it.
    pub topology: Topology,
    /// Hosts on the senders' side.
    pub senders: Vec<Node>,
    /// Hosts on the other side.
    pub receivers: Vec<Node>,
    /// From the senders' router to the receivers'.
    pub bottleneck: LinkDirection,
    /// … and back.
    pub back: LinkDirection,
}

impl Dumbbell {
    /// Lays it out.
    pub fn new(config: &DumbbellConfig) -> Self {
        let mut topology = Topology::new();
        let (near, right) = (topology.router(), topology.router());
        let [bottleneck, back] =
            topology.link(near, right, config.bottleneck.clone(), config.back.clone());
        let left = match &config.shaper {
            None => near,
            Some(shaper) => {
                let relay = topology.router();
                topology.link(relay, near, shaper.clone(), Config::default());
                relay
            }
        };
        let (rate, delay) = config.access;
        let access = Config { serialiser: Serialiser::Rate(rate), delay, ..Config::default() };
        let mut hosts = |router: Node, apart: Span| -> Vec<Node> {
            (0..config.pairs)
                .map(|number| {
                    let host = topology.host();
                    let longer = delay + apart.saturating_mul(number.into());
                    let access = Config { delay: longer, ..access.clone() };
                    topology.link(host, router, access.clone(), access);
                    host
                })
                .collect()
        };
        let (senders, receivers) = (hosts(left, config.apart), hosts(right, Span::ZERO));
        Self { topology, senders, receivers, bottleneck, back }
    }
}
