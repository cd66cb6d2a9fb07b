//! Hosts, routers and the links between them, and the ways through.

use ekiden_model::link::Config;
use std::collections::{BTreeMap, VecDeque};

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
    /// By node: the ways that lead from it to routers.
    onward: Vec<Vec<Way>>,
    /// The way from one node straight to another; of several, the first.
    direct: BTreeMap<(Node, Node), Way>,
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
        self.onward.push(Vec::new());
        Node(self.routers.len() as u32 - 1)
    }

    /// Adds one direction of a link.
    pub fn way(&mut self, from: Node, to: Node, config: Config) -> Way {
        let way = Way(self.ways.len() as u32);
        self.ways.push(Directed { from, to, config });
        if self.is_router(to)
            && let Some(onward) = self.onward.get_mut(from.0 as usize)
        {
            onward.push(way);
        }
        self.direct.entry((from, to)).or_insert(way);
        way
    }

    /// Adds both directions of a link: from `a` to `b`, and back.
    pub fn link(&mut self, a: Node, b: Node, there: Config, back: Config) -> [Way; 2] {
        [self.way(a, b, there), self.way(b, a, back)]
    }

    /// The way with the fewest links; of several, the one whose links were added first. `None` if there
    /// is none. Only routers pass on what is not for them.
    #[must_use]
    pub fn route(&self, from: Node, to: Node) -> Option<Vec<Way>> {
        let mut reached: BTreeMap<Node, Way> = BTreeMap::new();
        let mut queue = VecDeque::from([from]);
        while let Some(node) = queue.pop_front().filter(|_| from != to) {
            if let Some(way) = self.direct.get(&(node, to)) {
                reached.insert(to, *way);
                break;
            }
            for way in self.onward.get(node.0 as usize)? {
                let next = self.ways.get(way.0 as usize)?.to;
                if next != from && !reached.contains_key(&next) {
                    reached.insert(next, *way);
                    queue.push_back(next);
                }
            }
        }
        let mut route = Vec::new();
        let mut at = to;
        while at != from {
            let way = *reached.get(&at)?;
            route.push(way);
            at = self.ways.get(way.0 as usize)?.from;
        }
        route.reverse();
        Some(route)
    }

    fn is_router(&self, node: Node) -> bool {
        self.routers.get(node.0 as usize).copied().unwrap_or(false)
    }

    /// Whether what this way carries waits in a router.
    pub(crate) fn is_from_router(&self, way: Way) -> bool {
        self.ways.get(way.0 as usize).is_some_and(|way| self.is_router(way.from))
    }

    /// Whether who receives is at the end of this way.
    #[cfg(test)]
    pub(crate) fn is_to_host(&self, way: Way) -> bool {
        self.ways.get(way.0 as usize).is_some_and(|way| !self.is_router(way.to))
    }

    /// Changes each way, by its number.
    #[cfg(test)]
    pub(crate) fn for_each_way(&mut self, mut change: impl FnMut(u32, &mut Config)) {
        (0..).zip(&mut self.ways).for_each(|(number, way)| change(number, &mut way.config));
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
