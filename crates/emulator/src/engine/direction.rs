//! One direction of a running link: frames from one device, through the model's link, to another.

use crate::engine::coalesce::Growing;
use crate::engine::slab::Slab;
use crate::engine::wire;
use crate::recording::{Event, Outcome, Recorder};
use ekiden_linux::host::clock;
use ekiden_linux::links::packet::{BATCH, Receiver, Sender};
use ekiden_model::network::link::{
    Config, Link, Offered, Packet, Serialiser, Snapshot, is_acknowledgement,
};
use ekiden_model::units::{Bytes, Rate, Span, Time};
use ekiden_record::histogram::Histogram;
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Memory for packets inside one direction, enough for 10 Gbit/s at 1 s of delay; packets beyond it are dropped
/// and taint the run.
const ROOM: usize = 1 << 30;
/// A packet handed over this much after it was due is late.
pub(crate) const LATE: Span = Span::from_millis(1);

/// How often the kernel is asked, while packets come, whether it had no room for some.
const ASKED_EVERY: Span = Span::from_millis(20);

#[derive(Debug, Default)]
pub(crate) struct Gauge {
    pub(crate) packets: AtomicU64,
    /// Those more than [`LATE`] late.
    pub(crate) late: AtomicU64,
    /// How late the latest was, in nanoseconds, since somebody took the figure away.
    pub(crate) latest: AtomicU64,
    /// Packets lost on the way into or out of the emulator.
    pub(crate) missed: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) config: Config,
    pub(crate) receiver: Receiver,
    pub(crate) sender: Sender,
    /// Told of each packet, if anybody wants to know.
    pub(crate) recorder: Option<Recorder>,
}

/// What the emulator counts beside the model's link.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Counts {
    /// Packets handed over more than 1 ms late.
    pub late: u64,
    /// Packets handed over later than the link needs for one full packet.
    pub overruns: u64,
    /// Super-packets that came in.
    pub super_packets: u64,
    /// Packets handed over in one frame with others, as a network card's receive offload would.
    pub together: u64,
    /// Bare TCP acknowledgements that came in.
    pub acknowledgements: u64,
    /// Bytes of those, as IP packets.
    pub acknowledgement_bytes: u64,
    /// Frames that were not for the link: neighbour discovery, multicast.
    pub ignored: u64,
    /// Packets lost because the emulator did not come round in time, or had no room.
    pub missed: u64,
    /// Packets that the device at the far end did not take.
    pub refused: u64,
}

/// What happened in a direction, for its report; histograms in ns.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    pub(crate) link: Snapshot,
    pub(crate) queueing: Histogram,
    pub(crate) delay: Histogram,
    pub(crate) lateness: Histogram,
    pub(crate) counts: Counts,
}

#[derive(Debug)]
pub(crate) struct Direction {
    parts: Parts,
    link: Link,
    slab: Slab,
    held: usize,
    /// The last time given to the link; it never goes back.
    last: Time,
    /// Time of one full packet at the link's rate.
    packet_time: Span,
    due: Vec<(u32, Time)>,
    /// How many of those make each frame, and where their payload begins.
    frames: Vec<(usize, usize)>,
    /// Whether segments that are due together become one frame.
    coalesce: bool,
    tally: Tally,
    gauge: Arc<Gauge>,
    /// When the kernel was last asked what it had no room for.
    asked: Time,
}

impl Direction {
    /// Begins now, with an empty link. `batches`: segments due together are handed over together.
    pub(crate) fn new(parts: Parts, mtu: u32, batches: bool, now: Time) -> Self {
        let rate = match &parts.config.serialiser {
            Serialiser::Rate(rate) => *rate,
            Serialiser::Trace(trace) => trace.mean_rate(),
            Serialiser::Infinite => Rate::default(),
        };
        let packet_time = time_of(Bytes::new(mtu.into()), rate);
        Self {
            link: Link::new(&parts.config, now),
            parts,
            slab: Slab::default(),
            held: 0,
            last: now,
            packet_time,
            due: Vec::with_capacity(BATCH),
            frames: Vec::with_capacity(BATCH),
            coalesce: batches,
            tally: Tally::default(),
            gauge: Arc::default(),
            asked: now,
        }
    }

    pub(crate) fn gauge(&self) -> Arc<Gauge> {
        Arc::clone(&self.gauge)
    }

    pub(crate) const fn receiver(&self) -> &Receiver {
        &self.parts.receiver
    }

    pub(crate) fn next(&self) -> Time {
        self.link.next()
    }

    /// Takes in what has come and hands over what is due; `offset` is the wall clock's lead over the monotonic
    /// one, ns. Returns the number of packets.
    pub(crate) fn turn(&mut self, offset: u64) -> usize {
        // before the ring is looked into: what is not found there has come later
        let now = clock::now();
        let taken = self.take_in(offset, now);
        // while more waits in the ring, the link's time stays at the last packet taken: else the others would
        // reach it late at once, and uncounted
        if taken < BATCH {
            self.last = now.max(self.last);
        }
        taken + self.hand_over()
    }

    /// Offers to the link what has come in, each packet at the time the kernel got it.
    fn take_in(&mut self, offset: u64, now: Time) -> usize {
        let Self { parts, link, slab, held, last, tally, .. } = self;
        let Parts { config, receiver, recorder, .. } = parts;
        receiver.receive(BATCH, |received| {
            let id = slab.keep(received.bytes);
            let counts = &mut tally.counts;
            let Some(packet) = wire::look(received.bytes, u64::from(id)) else {
                counts.ignored += 1;
                slab.free(id);
                return;
            };
            let ip = wire::ip(received.bytes);
            let class = config.discipline.class_of(ip, packet.class);
            let packet = Packet { class, ..packet };
            if received.cut || *held + received.bytes.len() > ROOM {
                counts.missed += 1;
                slab.free(id);
                return;
            }
            let mut arrived = Time::from_nanos(received.at.saturating_sub(offset));
            if arrived > now {
                // it came since the look at the clock; or the wall clock was set back
                arrived = arrived.min(clock::now());
            }
            // the link may already have a later time
            *last = arrived.max(*last);
            *held += received.bytes.len();
            counts.super_packets += u64::from(packet.segments > 1);
            if is_acknowledgement(ip) {
                counts.acknowledgements += 1;
                counts.acknowledgement_bytes += u64::from(packet.bytes);
            }
            if let Some(recorder) = recorder {
                recorder.record(Event::Offered { at: *last, packet }, received.bytes);
            }
            let _: Offered = link.offer(*last, packet); // a drop is reported like all others, below
        })
    }

    /// Delivers the packets that are due by the link's last time; returns their number.
    fn hand_over(&mut self) -> usize {
        self.due.clear();
        while self.due.len() < BATCH {
            let Some(delivered) = self.link.poll(self.last) else { break };
            let id = delivered.packet.id as u32;
            if delivered.marked {
                wire::mark(self.slab.frame_mut(id));
            }
            self.tally.queueing.add(delivered.departed.since(delivered.offered).as_nanos());
            self.tally.delay.add(delivered.due.since(delivered.offered).as_nanos());
            if let Some(recorder) = &mut self.parts.recorder {
                let outcome = Outcome::Delivered { due: delivered.due, marked: delivered.marked };
                let event = Event::Left { id: delivered.packet.id, outcome };
                recorder.record(event, self.slab.frame(id));
            }
            self.due.push((id, delivered.due));
        }
        let Self { link, slab, held, parts, .. } = self;
        link.gone(|id, fate| {
            if let Some(recorder) = &mut parts.recorder {
                recorder.record(Event::Left { id, outcome: fate.into() }, &[]);
            }
            *held -= slab.frame(id as u32).len();
            slab.free(id as u32);
        });
        self.send(clock::now())
    }

    fn send(&mut self, now: Time) -> usize {
        self.group();
        let moved = self.due.len();
        let (mut frame, mut packet) = (0, 0);
        while frame < self.frames.len() {
            let mut first = packet;
            let frames = self.frames[frame..].iter().map(|(packets, header)| {
                let due = &self.due[first..first + packets];
                first += packets;
                due.iter().enumerate().map(|(n, (id, _))| {
                    let bytes = self.slab.frame(*id);
                    if n == 0 { bytes } else { &bytes[*header..] }
                })
            });
            let sent = match self.parts.sender.send(frames) {
                Ok(sent) => sent.max(1),
                Err(_) => {
                    self.tally.counts.refused += self.frames[frame].0 as u64;
                    1
                }
            };
            packet +=
                self.frames[frame..].iter().take(sent).map(|(packets, _)| packets).sum::<usize>();
            frame += sent;
        }
        let mut latest = 0;
        for (id, due) in self.due.drain(..) {
            let lateness = now.since(due);
            latest = lateness.as_nanos().max(latest);
            self.tally.lateness.add(lateness.as_nanos());
            self.tally.counts.late += u64::from(lateness > LATE);
            self.tally.counts.overruns +=
                u64::from(lateness > self.packet_time.max(Span::from_micros(1)));
            self.held -= self.slab.frame(id).len();
            self.slab.free(id);
        }
        if moved > 0 {
            self.show(now, latest, moved as u64);
        }
        moved
    }

    fn group(&mut self) {
        let Self { frames, due, slab, tally, .. } = self;
        frames.clear();
        let mut at = 0;
        while let Some((id, _)) = due.get(at) {
            let id = *id;
            let mut packets = 1;
            let growing = self.coalesce.then(|| Growing::new(slab.frame(id))).flatten();
            let Some(mut growing) = growing else {
                frames.push((1, 0));
                at += 1;
                continue;
            };
            let mut pushes = false;
            while let Some((next, _)) = due.get(at + packets) {
                let (first, next) = (slab.frame(id), slab.frame(*next));
                let Some(segment) = Growing::new(next) else { break };
                if !growing.add(first, next, &segment) {
                    break;
                }
                pushes = segment.pushes(next);
                packets += 1;
            }
            if packets > 1 {
                growing.seal(slab.frame_mut(id), pushes);
                tally.counts.together += packets as u64;
            }
            frames.push((packets, growing.payload()));
            at += packets;
        }
    }

    fn show(&mut self, now: Time, latest: u64, sent: u64) {
        if now.since(self.asked) > ASKED_EVERY {
            self.asked = now;
            self.tally.counts.missed += self.parts.receiver.dropped().unwrap_or(0);
        }
        // each figure stands for itself: nobody draws conclusions from their order
        let order = Ordering::Relaxed;
        self.gauge.packets.fetch_add(sent, order);
        self.gauge.late.store(self.tally.counts.late, order);
        self.gauge.latest.fetch_max(latest, order);
        self.gauge.missed.store(self.tally.counts.missed + self.tally.counts.refused, order);
    }

    /// Ends the direction: what is still inside stays undelivered.
    pub(crate) fn finish(mut self) -> Tally {
        self.tally.link = self.link.snapshot();
        self.tally.counts.missed += self.parts.receiver.dropped().unwrap_or(0);
        self.tally
    }
}

/// The time of `bytes` at `rate`; zero at no rate.
fn time_of(bytes: Bytes, rate: Rate) -> Span {
    let bits = u128::from(bytes.as_u64()) * 8 * 1_000_000_000;
    let nanos = bits.checked_div(u128::from(rate.as_bits_per_second())).unwrap_or(0);
    Span::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}
