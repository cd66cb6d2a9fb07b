//! Hosts, routers and the links between them, and the ways through.

use ekiden_model::link::Config;
use std::collections::VecDeque;

/// A host or router, by its number in the topology.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Node(pub u32);

/// One direction of a link, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Way(pub u32);

/// One direction of a link.
#[derive(Debug, Clone)]
pub(crate) struct Directed {
    pub(crate) from: Node,
    pub(crate) to: Node,
    pub(crate) config: Config,
}

/// A network before it runs.
#[derive(Debug, Clone, Default)]
pub struct Topology {
    /// By node: whether it is a router. What waits in a router is the network's delay, what waits in a
    /// host is the host's.
    routers: Vec<bool>,
    ways: Vec<Directed>,
}

impl Topology {
    /// A network of nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a host.
    pub fn host(&mut self) -> Node {
        self.node(false)
    }

    /// Adds a router.
    pub fn router(&mut self) -> Node {
        self.node(true)
    }

    fn node(&mut self, router: bool) -> Node {
        self.routers.push(router);
        Node(self.routers.len() as u32 - 1)
    }

    /// Adds one direction of a link.
    pub fn way(&mut self, from: Node, to: Node, config: Config) -> Way {
        self.ways.push(Directed { from, to, config });
        Way(self.ways.len() as u32 - 1)
    }

    /// Adds both directions of a link: from `a` to `b`, and back.
    pub fn link(&mut self, a: Node, b: Node, there: Config, back: Config) -> [Way; 2] {
        [self.way(a, b, there), self.way(b, a, back)]
    }

    /// The way with the fewest links; of several, the one whose links were added first. `None` if there
    /// is none.
    #[must_use]
    pub fn route(&self, from: Node, to: Node) -> Option<Vec<Way>> {
        let mut reached: Vec<Option<Way>> = vec![None; self.routers.len()];
        let mut queue = VecDeque::from([from]);
        while let Some(node) = queue.pop_front() {
            if node == to {
                break;
            }
            for (number, way) in self.ways.iter().enumerate().filter(|(_, way)| way.from == node) {
                let slot = reached.get_mut(way.to.0 as usize)?;
                if slot.is_none() && way.to != from {
                    *slot = Some(Way(number as u32));
                    queue.push_back(way.to);
                }
            }
        }
        let mut route = Vec::new();
        let mut at = to;
        while at != from {
            let way = (*reached.get(at.0 as usize)?)?;
            route.push(way);
            at = self.ways.get(way.0 as usize)?.from;
        }
        route.reverse();
        Some(route)
    }

    /// Whether what this way carries waits in a router.
    pub(crate) fn is_from_router(&self, way: Way) -> bool {
        let from = self.ways.get(way.0 as usize).map(|way| way.from);
        from.and_then(|from| self.routers.get(from.0 as usize)).copied().unwrap_or(false)
    }

    pub(crate) fn ways(&self) -> &[Directed] {
        &self.ways
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_way_is_taken() {
        let mut topology = Topology::new();
        let [a, b, c, d] = std::array::from_fn(|_| topology.router());
        let [ab, _] = topology.link(a, b, Config::default(), Config::default());
        let [bc, _] = topology.link(b, c, Config::default(), Config::default());
        let [ac, ca] = topology.link(a, c, Config::default(), Config::default());
        assert_eq!(topology.route(a, c), Some(vec![ac]));
        assert_eq!(topology.route(c, a), Some(vec![ca]));
        assert_eq!(topology.route(a, b), Some(vec![ab]));
        assert_eq!(topology.route(b, c), Some(vec![bc]));
        assert_eq!(topology.route(a, d), None);
        assert_eq!(topology.route(a, a), Some(vec![]));
    }
}
