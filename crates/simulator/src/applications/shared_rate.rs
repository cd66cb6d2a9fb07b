//! Accounts behind one relay that shares a line by weight and holds each account to its own rate
//! (issue 9).
//!
//! ```text
//! server ══ 1 Gbit/s, 10 ms ══ relay ══ line, 5 ms ══ router ══ 100 Mbit/s, 1 ms ══ hosts
//! ```
//! The relay holds just less than the line carries, so that data waits at the relay.

use crate::applications::chain::ChainConfig;
use crate::network::connection::ConnectionConfig;
use crate::network::flow::{FlowConfig, Source};
use crate::network::topology::{Node, Topology};
use crate::simulator::{BuildError, Direction, Simulator};
use ekiden_model::network::link::{Bound, Config, Discipline, Serialiser};
use ekiden_model::network::tcp::ReceiverConfig;
use ekiden_model::network::tcp::preset::{Era, Flavour};
use ekiden_model::resources::quota::{self, Limits};
use ekiden_model::units::{Bytes, Rate, Span, Time};

const MSS: u32 = 1_448;
const HEADER: u32 = 52;
/// What each socket may hold.
const BUFFER: u64 = 256 << 10;
const ENDLESS: u64 = 1 << 50;

/// An account and what it asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Account {
    /// Downloads at a time, without end.
    pub connections: u32,
    /// What it may.
    pub limits: Limits,
}

/// A run's parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedRateConfig {
    /// What the line carries, headers included.
    pub line: Rate,
    /// What the relay sends at most, payload; `None`: it does not hold back, and the line's queue decides.
    pub relay: Option<Rate>,
    /// The accounts.
    pub homes: Vec<Account>,
}

/// What came of an account: payload received in order in the counted time, by connection.
pub type Received = Vec<u64>;

/// Runs it for so long, and counts from `from` on; no configuration brings about an error.
pub fn run(
    config: &SharedRateConfig,
    from: Span,
    until: Span,
) -> Result<Vec<Received>, BuildError> {
    let mut topology = Topology::new();
    let (server, relay, router) = (topology.host(), topology.host(), topology.router());
    let wide = link(Rate::from_bits_per_second(1_000_000_000), Span::from_millis(10));
    topology.link(server, relay, wide.clone(), wide);
    let line = link(config.line, Span::from_millis(5));
    topology.link(relay, router, line.clone(), line);
    let near = link(Rate::from_bits_per_second(100_000_000), Span::from_millis(1));
    let mut hosts = Vec::new();
    for _ in &config.homes {
        let host = topology.host();
        topology.link(router, host, near.clone(), near.clone());
        hosts.push(host);
    }
    let mut net = Simulator::new(topology, ());
    if config.relay.is_some() || config.homes.iter().any(|home| home.limits != Limits::default()) {
        net.share(quota::Config { rates: [None, config.relay] });
    }
    let mut chains = Vec::new();
    let mut start = Time::ZERO;
    for (home, host) in config.homes.iter().zip(hosts) {
        let account = net.account(home.limits);
        let mut of_home = Vec::new();
        for _ in 0..home.connections {
            let chain = download(&mut net, [host, relay, server], start)?;
            if let Some(account) = account {
                // who may not have so many has fewer
                let _ = net.limit(chain, account);
            }
            of_home.push(chain);
            start += Span::from_millis(7);
        }
        chains.push(of_home);
    }
    let received = |net: &Simulator<()>| -> Vec<Received> {
        let of = |chain: &u32| net.result(*chain).map_or(0, |result| result.bytes);
        chains.iter().map(|chains| chains.iter().map(of).collect()).collect()
    };
    net.run(Time::ZERO + from);
    let before = received(&net);
    net.run(Time::ZERO + until);
    let mut after = received(&net);
    for (after, before) in after.iter_mut().flatten().zip(before.iter().flatten()) {
        *after -= before;
    }
    Ok(after)
}

fn link(rate: Rate, delay: Span) -> Config {
    Config {
        // 50 ms, at least a few packets
        discipline: Discipline::DropTail(Bound::Bytes(Bytes::new(
            (rate.as_bytes_per_second() / 20).max(15_000),
        ))),
        serialiser: Serialiser::Rate(rate),
        delay,
        ..Config::default()
    }
}

fn download(net: &mut Simulator<()>, nodes: [Node; 3], start: Time) -> Result<u32, BuildError> {
    let mut connections = Vec::new();
    for (number, pair) in nodes.windows(2).enumerate() {
        let [opener, acceptor] = *pair else { continue };
        let connection = net.connect(ConnectionConfig {
            start: if number == 0 { start } else { Time::NEVER },
            handshake_bytes: HEADER + 8,
            ..ConnectionConfig::new(opener, acceptor, Era::Linux)
        })?;
        for direction in [Direction::FromOpener, Direction::ToOpener] {
            // the client reads what comes; the relay what it may and can hand on
            let at_once = number == 0 || direction == Direction::FromOpener;
            net.flow(connection, direction, flow(at_once))?;
        }
        connections.push(connection);
    }
    net.chain(ChainConfig { connections, request: 100, response: ENDLESS, held: 64 << 10 })
}

fn flow(read_at_once: bool) -> FlowConfig {
    let mut sender = Era::Linux.sender(Flavour::Sack, MSS, f64::INFINITY, Span::ZERO);
    sender.buffer = BUFFER;
    let receiver = ReceiverConfig { read_at_once, ..ReceiverConfig::linux(MSS, BUFFER, 8) };
    FlowConfig { header: HEADER, ..FlowConfig::new(sender, receiver, Source::Application) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: Rate = Rate::from_bits_per_second(20_000_000);
    /// 95 % of it: what the line carries of payload, and a little less.
    const HELD: Rate = Rate::from_bits_per_second(19_000_000);

    fn seconds(n: u64) -> Span {
        Span::from_secs(n)
    }

    /// The first account's part, in per cent, and all that was received in 20 s, in Mbit/s.
    fn share(relay: Option<Rate>, homes: [(u32, u32); 2]) -> (f64, f64) {
        let home = |(connections, weight)| Account {
            connections,
            limits: Limits { weight, ..Limits::default() },
        };
        let config = SharedRateConfig { line: LINE, relay, homes: homes.map(home).into() };
        let received = run(&config, seconds(5), seconds(25)).unwrap();
        assert_eq!(received, run(&config, seconds(5), seconds(25)).unwrap(), "the same again");
        let [first, all] =
            [&received[..1], &received[..]].map(|homes| homes.iter().flatten().sum::<u64>() as f64);
        (first * 100.0 / all, all * 8.0 / 20.0 / 1e6)
    }

    #[test]
    fn ten_connections_get_what_one_gets_and_fifty_what_five_get() {
        for homes in [[(10, 1), (1, 1)], [(50, 1), (5, 1)]] {
            let (first, rate) = share(Some(HELD), homes);
            assert!((first - 50.0).abs() <= 3.0, "{homes:?}: {first} %");
            assert!(rate >= 18.6, "{homes:?}: {rate} Mbit/s of 19");
        }
        // without limits the line's queue gives to connections and not to accounts
        let (first, _) = share(None, [(10, 1), (1, 1)]);
        assert!(first > 80.0, "{first} %");
    }

    #[test]
    fn weights_of_three_and_one_are_three_quarters_and_one() {
        for connections in [[1, 10], [10, 1], [5, 50]] {
            let [first, second] = connections;
            let (share, rate) = share(Some(HELD), [(first, 3), (second, 1)]);
            assert!((share - 75.0).abs() <= 3.0, "{connections:?}: {share} %");
            assert!(rate >= 18.6, "{connections:?}: {rate} Mbit/s of 19");
        }
    }

    #[test]
    fn five_megabits_are_five_with_one_connection_and_with_fifty() {
        for connections in [1, 50] {
            let rates = [None, Some(Rate::from_bits_per_second(5_000_000))];
            let limits = Limits { rates, ..Limits::default() };
            let config = SharedRateConfig {
                line: LINE,
                relay: None,
                homes: vec![Account { connections, limits }],
            };
            let received = run(&config, seconds(5), seconds(25)).unwrap();
            let rate = received[0].iter().sum::<u64>() as f64 * 8.0 / 20.0 / 1e6;
            assert!((rate / 5.0 - 1.0).abs() <= 0.02, "{connections}: {rate} Mbit/s");
            let (least, most) = (received[0].iter().min(), received[0].iter().max());
            assert!(most.unwrap() - least.unwrap() <= 400_000, "{least:?} … {most:?}");
        }
    }
}
