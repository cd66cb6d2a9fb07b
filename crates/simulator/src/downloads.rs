//! Many downloads from one machine whose memory for send buffers is less than they want (issue 6): buffers
//! of one size, as Linux tunes them, or by E-ATBT.
//!
//! Each has a link of its own: 1, 2, 5, 10, 20, 50 or 100 Mbit/s, 10 to 100 ms one way, a queue of 50 ms, no
//! loss but of what the queue drops. Buffers are counted as payload in all three.

use crate::connection::ConnectionConfig;
use crate::flow::{FlowConfig, Source};
use crate::random::Substreams;
use crate::simulator::{BuildError, Direction, Simulator};
use crate::topology::Topology;
use ekiden_model::buffers::{Allocator, CUBIC, Config as Sharing, Enough, Facts, Grant, Open};
use ekiden_model::link::{Bound, Config, Discipline, Serialiser};
use ekiden_model::tcp::preset::{Era, Flavour};
use ekiden_model::tcp::{Acknowledging, ReceiverConfig, SenderSnapshot};
use ekiden_model::units::{Bytes, Rate, Span, Time};

const MSS: u32 = 1_448;
const HEADER: u32 = 52;
const MBIT: [u64; 7] = [1, 2, 5, 10, 20, 50, 100];
const DELAYS: [Span; 2] = [Span::from_millis(10), Span::from_millis(100)];
const QUEUE: Span = Span::from_millis(50);
/// Between two looks at all senders.
const LOOK: Span = Span::from_millis(100);
/// The last of Linux's `tcp_wmem`.
const MOST: u64 = 4 << 20;
/// The first of them, below which nothing is cut.
const LEAST: u64 = 4 << 10;

/// How buffers come about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Buffers {
    /// All alike, whatever the memory.
    Fixed(Bytes),
    /// As Linux tunes them: twice the congestion window where the buffer was full, up to 4 MiB, while less
    /// than half of the memory is queued; from two thirds on, until it is half again, half of what each has
    /// queued; beyond all of it nothing more is taken. (`tcp_sndbuf_expand`, `sk_stream_moderate_sndbuf`;
    /// the marks are as 3 : 4 : 6, which is how `tcp_mem` is set at boot.)
    Kernel,
    /// By E-ATBT, as the proxy has it.
    Shared,
}

/// A run's parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DownloadsConfig {
    /// Of rates and delays.
    pub seed: u64,
    /// How many.
    pub downloads: u32,
    /// Of all send buffers.
    pub memory: Bytes,
    /// How buffers come about.
    pub buffers: Buffers,
}

/// What came of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DownloadsResult {
    /// Received in order, of all.
    pub bytes: u64,
    /// The most that was granted at a look; in the kernel's case, the sum of buffers as they may grow.
    pub most_granted: u64,
    /// The most that was queued at a look.
    pub most_queued: u64,
    /// Of all that can be observed.
    pub fingerprint: u64,
}

/// Runs it for so long.
///
/// # Errors
/// None that a configuration can bring about.
pub fn run(config: &DownloadsConfig, until: Span) -> Result<DownloadsResult, BuildError> {
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
        let connection = net.connect(ConnectionConfig {
            opener: server,
            acceptor: client,
            start,
            opening: Era::Linux.opening(),
            three_way: true,
            handshake_bytes: HEADER + 8,
        })?;
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
    let mut sender = Era::Linux.sender(Flavour::Sack, MSS, f64::INFINITY, Span::ZERO);
    sender.buffer = buffer;
    FlowConfig {
        sender,
        receiver: ReceiverConfig {
            mss: MSS,
            buffer: 2 * MOST,
            scale: 8,
            acknowledging: Acknowledging::LINUX,
            selective: true,
            duplicates: true,
            read_at_once: true,
        },
        header: HEADER,
        selective_header: 4,
        ecn: false,
        ack_class: 0,
        source: Source::Filled,
    }
}

/// Who changes buffers.
struct Tuning {
    buffers: Buffers,
    memory: u64,
    /// By flow.
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
            let open = Open { gamma: CUBIC, mss: MSS.into(), send: true, receive: false };
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
            let facts = Facts {
                rtt: sender.smoothed,
                rto: sender.rto,
                mss: MSS.into(),
                segments_sent: sender.count.sent,
                retransmitted: sender.count.retransmitted,
                spurious: sender.count.spurious,
                queued: *queued,
                ..Facts::default()
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
    fn the_kernel_grows_buffers_while_there_is_memory_and_cuts_them_where_there_is_none() {
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
