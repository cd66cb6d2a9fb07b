//! Many downloads from one machine with less memory for send buffers than they want: buffers of one size, as
//! Linux tunes them, or by E-ATBT; all counted as payload.
//!
//! Each has a link of its own: 1 to 100 Mbit/s, 10 to 100 ms one way, a queue of 50 ms, no other loss.

use crate::download::tcp::{self, MSS};
use ekiden_model::network::link::{Bound, Config, Discipline, Serialiser};
use ekiden_model::network::tcp::{SenderConfig, SenderSnapshot};
use ekiden_model::resources::buffers::{
    Allocator, CUBIC, Config as Sharing, ConnectionFacts, Enough, Grant, NewConnection,
};
use ekiden_model::units::{Bytes, Rate, Span, Time};
use ekiden_simulator::network::flow::{FlowConfig, Source};
use ekiden_simulator::network::topology::Topology;
use ekiden_simulator::random::Substreams;
use ekiden_simulator::simulator::{BuildError, Direction, Simulator};

const MBIT: [u64; 7] = [1, 2, 5, 10, 20, 50, 100];
const DELAYS: [Span; 2] = [Span::from_millis(10), Span::from_millis(100)];
const QUEUE: Span = Span::from_millis(50);
/// Between two looks at all senders.
const LOOK: Span = Span::from_millis(100);
/// The last of Linux's `tcp_wmem`.
const MOST: u64 = 4 << 20;
/// The first of them, below which nothing is cut.
const LEAST: u64 = 4 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Buffers {
    /// All alike, independent of memory.
    Fixed(Bytes),
    /// As Linux tunes them: a full buffer grows to twice the congestion window, up to 4 MiB, while less than
    /// half of the memory is queued; from two thirds until half, each is cut to half of what it has queued;
    /// beyond all of it nothing more is taken (`tcp_sndbuf_expand`, `sk_stream_moderate_sndbuf`; marks 3 : 4 :
    /// 6 as `tcp_mem` at boot).
    Kernel,
    /// By E-ATBT, as the proxy has it.
    Shared,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DownloadsConfig {
    /// Of rates and delays.
    pub(crate) seed: u64,
    pub(crate) downloads: u32,
    /// Of all send buffers.
    pub(crate) memory: Bytes,
    pub(crate) buffers: Buffers,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct DownloadsResult {
    /// Received in order, of all.
    pub(crate) bytes: u64,
    /// The most that was granted at a look; in the kernel's case, the sum of buffers as they may grow.
    pub(crate) most_granted: u64,
    /// The most that was queued at a look.
    pub(crate) most_queued: u64,
    /// Of all that can be observed.
    pub(crate) fingerprint: u64,
}

pub(crate) fn run(config: &DownloadsConfig, until: Span) -> Result<DownloadsResult, BuildError> {
    let streams = Substreams::new(config.seed);
    let mut topology = Topology::new();
    let server = topology.host();
    let clients: Vec<_> = (0..config.downloads)
        .map(|number| {
            let mut rng = streams.of("client's path", number.into());
            let drawn = rng.below(MBIT.len() as u64) as usize;
            let mbit = MBIT.get(drawn).copied().unwrap_or(1);
            let wide = DELAYS[1].as_nanos() - DELAYS[0].as_nanos();
            let delay = Span::from_nanos(DELAYS[0].as_nanos() + rng.below(wide));
            let start = Span::from_nanos(rng.below(Span::from_secs(1).as_nanos()));
            let rate = Rate::from_bits_per_second(mbit * 1_000_000);
            let queue = mbit * 125_000 * QUEUE.as_millis() / 1_000;
            let link = Config {
                discipline: Discipline::DropTail(Bound::Bytes(Bytes::new(queue.max(3_000)))),
                serialiser: Serialiser::Rate(rate),
                delay,
                ..Config::default()
            };
            let client = topology.host();
            topology.link(server, client, link.clone(), link);
            (client, Time::ZERO + start)
        })
        .collect();
    let mut net = Simulator::new(topology, ());
    let first = first(config);
    for (client, start) in clients {
        let connection = net.connect(tcp::connection(server, client, start))?;
        net.flow(connection, Direction::FromOpener, flow(first))?;
    }
    let mut tuning = Tuning::new(config, first);
    let mut result = DownloadsResult::default();
    let mut now = Time::ZERO;
    while now < Time::ZERO + until {
        now += LOOK;
        net.run(now);
        tuning.look(&mut net, now);
        result.most_granted = result.most_granted.max(tuning.sizes.iter().sum());
        result.most_queued = result.most_queued.max(tuning.queued);
    }
    let received = (0..config.downloads).filter_map(|flow| net.receiver(flow));
    result.bytes = received.map(|receiver| receiver.in_order).sum();
    [_, result.fingerprint] = net.fingerprints();
    Ok(result)
}

/// What a buffer has at first.
fn first(config: &DownloadsConfig) -> u64 {
    match config.buffers {
        Buffers::Fixed(size) => size.as_u64(),
        // twice ten segments
        Buffers::Kernel => 20 * u64::from(MSS),
        Buffers::Shared => Bytes::kib(16).as_u64(),
    }
}

fn flow(buffer: u64) -> FlowConfig {
    let sender = SenderConfig { buffer, ..tcp::sender(MSS) };
    FlowConfig { source: Source::Filled, ..tcp::flow(sender, MSS, 2 * MOST, 8) }
}

struct Tuning {
    buffers: Buffers,
    memory: u64,
    sizes: Vec<u64>,
    queued: u64,
    under_pressure: bool,
    allocator: Allocator,
}

impl Tuning {
    fn new(config: &DownloadsConfig, first: u64) -> Self {
        let sharing = Sharing { enough: Enough::Demand, ..Sharing::new(config.memory) };
        let mut allocator = Allocator::new(sharing, Time::ZERO);
        let mut sizes = vec![first; config.downloads as usize];
        if config.buffers == Buffers::Shared {
            let open = NewConnection { gamma: CUBIC, mss: MSS.into(), send: true, receive: false };
            for id in 0..u64::from(config.downloads) {
                for change in allocator.on_open(Time::ZERO, id, open) {
                    put(&mut sizes, change.id, change.grant);
                }
            }
        }
        let (buffers, memory) = (config.buffers, config.memory.as_u64());
        Self { buffers, memory, sizes, queued: 0, under_pressure: false, allocator }
    }

    fn look(&mut self, net: &mut Simulator<()>, now: Time) {
        let flows = 0..self.sizes.len() as u32;
        let seen: Vec<(u64, SenderSnapshot)> =
            flows.map(|flow| (net.queued(flow), net.look(flow))).collect();
        self.queued = seen.iter().map(|(queued, _)| queued).sum();
        match self.buffers {
            Buffers::Fixed(_) => return,
            Buffers::Kernel => self.tune(&seen),
            Buffers::Shared => self.share(now, &seen),
        }
        for (flow, size) in (0..).zip(&self.sizes) {
            net.refill(now, flow, Bytes::new(*size));
        }
    }

    fn tune(&mut self, seen: &[(u64, SenderSnapshot)]) {
        let (low, pressure) = (self.memory / 2, self.memory / 3 * 2);
        self.under_pressure = self.queued > if self.under_pressure { low } else { pressure };
        for (size, (queued, sender)) in self.sizes.iter_mut().zip(seen) {
            let wanted = (2.0 * sender.window.max(10.0) * f64::from(MSS)) as u64;
            if self.queued > self.memory {
                *size = *queued;
            } else if self.under_pressure {
                *size = (*size).min((*queued / 2).max(LEAST));
            } else if self.queued < low && *queued + u64::from(MSS) > *size {
                *size = (*size).max(wanted.min(MOST));
            }
        }
    }

    fn share(&mut self, now: Time, seen: &[(u64, SenderSnapshot)]) {
        for (id, (queued, sender)) in (0..).zip(seen) {
            let facts = ConnectionFacts {
                rtt: sender.smoothed,
                rto: sender.rto,
                mss: MSS.into(),
                segments_sent: sender.count.sent,
                retransmitted: sender.count.retransmitted,
                spurious: sender.count.spurious,
                queued: *queued,
                ..ConnectionFacts::default()
            };
            self.allocator.on_facts(now, id, &facts);
        }
        for change in self.allocator.on_deadline(now) {
            put(&mut self.sizes, change.id, change.grant);
        }
    }
}

fn put(sizes: &mut [u64], id: u64, grant: Grant) {
    if let (Some(size), Grant::Bytes(bytes)) = (sizes.get_mut(id as usize), grant) {
        *size = bytes.as_u64();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMORY: Bytes = Bytes::kib(40 * 64);

    fn of(buffers: Buffers, seconds: u64) -> DownloadsResult {
        let config = DownloadsConfig { seed: 1, downloads: 40, memory: MEMORY, buffers };
        run(&config, Span::from_secs(seconds)).unwrap()
    }

    #[test]
    fn grants_are_within_the_memory_and_everybody_is_served() {
        for buffers in [Buffers::Fixed(Bytes::kib(64)), Buffers::Kernel, Buffers::Shared] {
            let result = of(buffers, 10);
            assert_eq!(result, of(buffers, 10), "the same again");
            assert!(result.bytes > 10 << 20, "{buffers:?} {result:?}");
            if buffers != Buffers::Kernel {
                assert!(result.most_granted <= MEMORY.as_u64(), "{buffers:?} {result:?}");
            }
        }
    }

    #[test]
    fn kernel_tuning_grows_buffers_and_cuts_them_under_pressure() {
        let config =
            DownloadsConfig { seed: 1, downloads: 1, memory: MEMORY, buffers: Buffers::Kernel };
        let mut tuning = Tuning::new(&config, first(&config));
        let sender = SenderSnapshot { window: 100.0, ..SenderSnapshot::default() };
        let mut look = |queued: u64, of_all: u64| {
            tuning.queued = of_all;
            tuning.tune(&[(queued, sender)]);
            tuning.sizes[0]
        };
        let all = MEMORY.as_u64();
        assert_eq!(look(1_000, 0), 28_960, "it was not full");
        assert_eq!(look(28_960, all / 2 + 1), 28_960, "more than half is queued");
        assert_eq!(look(28_960, 0), 289_600, "twice the window");
        assert_eq!(look(200_000, all / 3 * 2 + 1), 100_000, "pressure");
        assert_eq!(look(100_000, all / 2 + 1), 50_000, "until it is half again");
        assert_eq!(look(50_000, all / 2), 50_000);
        assert_eq!(look(60_000, all + 1), 60_000, "nothing more is taken");
    }
}
