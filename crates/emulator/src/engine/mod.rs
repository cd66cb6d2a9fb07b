//! Links that run: their threads, and their reports at the end.

pub(crate) mod coalesce;
pub(crate) mod direction;
pub mod replay;
pub(crate) mod slab;
pub(crate) mod wire;
pub(crate) mod worker;
use crate::engine::direction::{Direction, Gauge, Parts, Tally};
use crate::engine::worker::Stop;
use crate::fidelity::{Evidence, Steal, Verdict, judge};
use crate::recording::{Recording, Rows};
use crate::report::{DirectionReport, LinkReport};
use crate::topology::Mode;
use ekiden_linux::host::clock::{self, Urgency};
use ekiden_linux::links::netlink::Netlink;
use ekiden_linux::links::packet::{Receiver, Sender};
use ekiden_linux::namespaces::netns::Netns;
use ekiden_model::network::link::Config;
use ekiden_model::units::{Span, Time};
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

/// Bytes of packets that may wait in the kernel: 32 MiB, some 15,000 packets of 1500 bytes.
const RING: usize = 32 << 20;
/// A super-packet's frame.
const LARGEST: usize = 65_535 + 14;

/// One link between two devices of the emulator's namespace: packets that come in by one leave by the other.
#[derive(Debug, Clone)]
pub(crate) struct Wire {
    pub(crate) name: String,
    pub(crate) devices: [String; 2],
    /// Names of the directions from the first device to the second, and back; then their links.
    pub(crate) directions: [String; 2],
    pub(crate) configs: [Config; 2],
    /// Largest IP packet, bytes.
    pub(crate) mtu: u32,
    pub(crate) mode: Mode,
}

/// What to write down of a run besides its report.
#[derive(Default)]
pub struct Record {
    /// Told of every packet.
    pub rows: Option<Rows>,
    /// A capture in pcapng.
    pub capture: Option<Box<dyn Write + Send>>,
}

type Worker = (Vec<usize>, JoinHandle<(Urgency, Vec<Tally>)>);

/// Links that run until [`Engine::finish`], or until dropped.
#[derive(Debug)]
pub(crate) struct Engine {
    wires: Vec<Wire>,
    threads: Vec<Worker>,
    stop: Arc<Stop>,
    recording: Option<Recording>,
    begun: Time,
    steal: Steal,
    gauges: Vec<Arc<Gauge>>,
    looked: EngineSnapshot,
}

/// What the last look saw, so that the next one sees what came since.
#[derive(Debug)]
struct EngineSnapshot {
    at: Vec<Evidence>,
    steal: Steal,
}

impl Engine {
    /// Starts the links on the devices of `place`. Packets come when they are due, or with a `step` up to so much late.
    /// Errors: no such device, no CAP_NET_RAW, out of resources.
    pub(crate) fn start(
        wires: Vec<Wire>,
        place: &Netns,
        record: Record,
        step: Option<Span>,
    ) -> io::Result<Self> {
        let begun = clock::now();
        let recording = (record.rows.is_some() || record.capture.is_some()).then(|| {
            let names = wires.iter().flat_map(|wire| {
                wire.directions.iter().map(|direction| format!("{} {direction}", wire.name))
            });
            Recording::start(names.collect(), begun, clock::lead(), record.rows, record.capture)
        });
        let opened = place.run(|| wires.iter().map(open).collect::<io::Result<Vec<_>>>())??;
        let mut directions = Vec::new();
        for (wire, ends) in wires.iter().zip(opened) {
            for (config, (receiver, sender)) in wire.configs.iter().zip(ends) {
                let number = directions.len() as u32;
                let recorder = recording.as_ref().map(|recording| recording.recorder(number));
                let parts = Parts { config: config.clone(), receiver, sender, recorder };
                directions.push(Direction::new(parts, wire.mtu, wire.mode == Mode::Batches, begun));
            }
        }
        let stop = Stop::new()?;
        let gauges: Vec<_> = directions.iter().map(Direction::gauge).collect();
        let threads = spread(directions, &stop, step)?;
        let steal = Steal::now();
        let looked = EngineSnapshot { at: vec![Evidence::default(); wires.len()], steal };
        Ok(Self { wires, threads, stop, recording, begun, steal, gauges, looked })
    }

    /// The verdict on each link since it was looked at last, or since it began.
    pub(crate) fn look(&mut self) -> Vec<(Verdict, Vec<String>)> {
        let steal_ppm = self.looked.steal.since();
        self.looked.steal = Steal::now();
        let links = self.gauges.chunks(2).zip(&mut self.looked.at);
        let look = |(gauges, before): (&[Arc<Gauge>], &mut Evidence)| {
            let order = Ordering::Relaxed;
            let sum = |f: fn(&Gauge) -> &AtomicU64| gauges.iter().map(|g| f(g).load(order)).sum();
            let latest = gauges.iter().map(|gauge| gauge.latest.swap(0, order)).max().unwrap_or(0);
            let now = Evidence {
                packets: sum(|gauge| &gauge.packets),
                late: sum(|gauge| &gauge.late),
                latest: Span::from_nanos(latest),
                missed: sum(|gauge| &gauge.missed),
                steal_ppm,
            };
            let since = Evidence {
                packets: now.packets - before.packets,
                late: now.late - before.late,
                missed: now.missed - before.missed,
                ..now
            };
            *before = now;
            judge(&since)
        };
        links.map(look).collect()
    }

    /// Ends the links and reports. Errors: a thread of the emulator failed, or the record could not be written.
    pub(crate) fn finish(mut self) -> io::Result<Vec<LinkReport>> {
        self.stop.ask();
        let mut tallies: Vec<Option<Tally>> = Vec::new();
        tallies.resize_with(self.wires.len() * 2, || None);
        let mut urgency = Urgency::Ordinary;
        for (numbers, thread) in self.threads.drain(..) {
            let (urgent, done) =
                thread.join().map_err(|_| io::Error::other("an emulator thread panicked"))?;
            urgency = urgent;
            for (number, tally) in numbers.into_iter().zip(done) {
                tallies[number] = Some(tally);
            }
        }
        let left_out = self.recording.take().map_or(Ok(0), Recording::finish)?;
        let steal = self.steal.since();
        let seconds = clock::now().since(self.begun);
        let mut tallies = tallies.into_iter().map(Option::unwrap_or_default);
        Ok(self
            .wires
            .iter()
            .map(|wire| {
                let directions = wire.directions.iter().zip(&wire.configs).map(|(name, config)| {
                    let tally = tallies.next().unwrap_or_default();
                    DirectionReport::new(name, config, &tally)
                });
                LinkReport::new(wire, directions.collect(), seconds, steal, urgency)
                    .with_left_out(left_out)
            })
            .collect())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop.ask();
    }
}

type Ends = [(Receiver, Sender); 2];

fn open(wire: &Wire) -> io::Result<Ends> {
    let netlink = Netlink::here()?;
    for device in &wire.devices {
        netlink.await_sending(device).map_err(io::Error::other)?;
    }
    let largest = if wire.mode == Mode::SuperPackets { LARGEST } else { wire.mtu as usize + 14 };
    let [first, second] = &wire.devices;
    Ok([
        (Receiver::open(first, largest, RING)?, Sender::open(second)?),
        (Receiver::open(second, largest, RING)?, Sender::open(first)?),
    ])
}

/// One thread for every two processors: the others are for the programs at the link's ends.
fn spread(
    directions: Vec<Direction>,
    stop: &Arc<Stop>,
    step: Option<Span>,
) -> io::Result<Vec<Worker>> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let count = (processors / 2).clamp(1, directions.len().max(1));
    let mut groups: Vec<(Vec<usize>, Vec<Direction>)> = Vec::new();
    groups.resize_with(count, Default::default);
    for (number, direction) in directions.into_iter().enumerate() {
        let group = &mut groups[number % count];
        group.0.push(number);
        group.1.push(direction);
    }
    let start = |(numbers, directions): (Vec<usize>, Vec<Direction>)| {
        let stop = Arc::clone(stop);
        let thread = std::thread::Builder::new().name("link".to_owned());
        Ok((numbers, thread.spawn(move || worker::run(directions, &stop, step))?))
    };
    groups.into_iter().map(start).collect()
}
