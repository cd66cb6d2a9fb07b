//! Hosts, routers and the links between them, and the ways through.

use ekiden_model::network::link::Config;
use std::collections::{BTreeMap, VecDeque};

/// A host or router, by its number in the topology.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Node(pub u32);

/// One direction of a link, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkDirection(pub u32);

#[derive(Debug, Clone)]
pub(crate) struct Directed {
    pub(crate) from: Node,
    pub(crate) to: Node,
    pub(crate) config: Config,
}

/// A network before it runs.
#[derive(Debug, Clone, Default)]
pub struct Topology {
    /// By node: whether it is a router. Waiting in one is the network's delay, else the host's.
    routers: Vec<bool>,
    pub(crate) ways: Vec<Directed>,
    /// By node: the ways that lead from it to routers.
    onward: Vec<Vec<LinkDirection>>,
    /// The way from one node straight to another; of several, the first.
    direct: BTreeMap<(Node, Node), LinkDirection>,
}

impl Topology {
    /// A network of nothing.
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
    pub fn way(&mut self, from: Node, to: Node, config: Config) -> LinkDirection {
        let way = LinkDirection(self.ways.len() as u32);
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
    pub fn link(&mut self, a: Node, b: Node, there: Config, back: Config) -> [LinkDirection; 2] {
        [self.way(a, b, there), self.way(b, a, back)]
    }

    /// The route with the fewest links, of several the first added; `None` if there is none. Only
    /// routers forward.
    pub fn route(&self, from: Node, to: Node) -> Option<Vec<LinkDirection>> {
        let mut reached: BTreeMap<Node, LinkDirection> = BTreeMap::new();
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
    pub(crate) fn is_from_router(&self, way: LinkDirection) -> bool {
        self.ways.get(way.0 as usize).is_some_and(|way| self.is_router(way.from))
    }

    /// Whether who receives is at the end of this way.
    #[cfg(test)]
    pub(crate) fn is_to_host(&self, way: LinkDirection) -> bool {
        self.ways.get(way.0 as usize).is_some_and(|way| !self.is_router(way.to))
    }

    #[cfg(test)]
    pub(crate) fn for_each_way(&mut self, mut change: impl FnMut(u32, &mut Config)) {
        (0..).zip(&mut self.ways).for_each(|(number, way)| change(number, &mut way.config));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_the_shortest_route() {
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
