//! The controller and others on one bottleneck: what each keeps.

mod bbr;

use super::{PROBE, loss, mbit};
use crate::control::pacing::Pacer;
use crate::control::rate_hold::{Config, Mode, RateHold, SentBytes};
use crate::network::link::{Bound, Discipline, Link, Offered, Packet, Serialiser};
use crate::network::tcp::preset::{Era, Flavour};
use crate::network::tcp::{Block, Receiver, ReceiverConfig, Sender};
use crate::testing::*;
use bbr::Bbr;
use std::boxed::Box;

const SIZE: Bytes = Bytes::new(1_500);
const MSS: u32 = 1_448;

/// A sender and what receives it, half a round trip apart in the direction that is not shared.
trait Party {
    /// The number of a packet that leaves now.
    fn poll(&mut self, now: Time) -> Option<u64>;
    fn on_arrived(&mut self, now: Time, number: u64);
    /// Takes in what has come back and what is due.
    fn on_deadline(&mut self, now: Time);
    fn deadline(&self, now: Time) -> Time;
}

struct Held {
    hold: RateHold,
    pacer: Pacer,
    back: Span,
    number: u64,
    flight: VecDeque<(u64, Time, SentBytes)>,
    returning: VecDeque<(Time, u64)>,
    heard: Time,
}

impl Held {
    fn new(config: Config, rtt: Span) -> Self {
        let hold = RateHold::new(config, Time::ZERO);
        let pacer = Pacer::new(hold.rate(), SIZE, Time::ZERO);
        let back = Span::from_nanos(rtt.as_nanos() / 2);
        let (flight, returning) = (VecDeque::new(), VecDeque::new());
        Self { hold, pacer, back, number: 0, flight, returning, heard: Time::ZERO }
    }

    fn has_room(&self, now: Time) -> bool {
        let cap = self.hold.in_flight_cap().as_u64();
        let in_flight = self.hold.snapshot().in_flight;
        in_flight + SIZE.as_u64() <= cap || self.probe(now) <= now
    }

    /// When a probe time-out sends though the path seems full (RFC 9002 6.2).
    fn probe(&self, now: Time) -> Time {
        if self.flight.is_empty() { now } else { self.heard + PROBE }
    }
}

impl Party for Held {
    fn poll(&mut self, now: Time) -> Option<u64> {
        self.hold.on_deadline(now);
        let rate = self.hold.rate();
        if rate != self.pacer.rate() {
            self.pacer.set_rate(now, rate, SIZE);
        }
        if !self.has_room(now) || self.pacer.next(now) > now {
            return None;
        }
        if self.flight.is_empty() || self.probe(now) <= now {
            self.heard = now;
        }
        let epoch = self.hold.on_sent(now, SIZE);
        self.pacer.on_sent(now, SIZE);
        self.number += 1;
        self.flight.push_back((self.number, now, SentBytes { epoch, bytes: SIZE }));
        Some(self.number)
    }

    fn on_arrived(&mut self, now: Time, number: u64) {
        self.returning.push_back((now + self.back, number));
    }

    fn on_deadline(&mut self, now: Time) {
        while let Some((_, id)) = self.returning.pop_front_if(|(due, _)| *due <= now) {
            self.heard = now;
            // nothing overtakes: what was sent before and did not come is lost
            while let Some((number, sent, told)) = self.flight.pop_front_if(|(n, ..)| *n <= id) {
                match number == id {
                    true => self.hold.on_acked(now, told, Some(now.since(sent))),
                    false => self.hold.on_lost(now, told),
                }
            }
        }
        self.hold.on_deadline(now);
    }

    fn deadline(&self, now: Time) -> Time {
        let send = if self.has_room(now) { self.pacer.next(now) } else { self.probe(now) };
        let come = self.returning.front().map_or(Time::NEVER, |(due, _)| *due);
        send.min(come).min(self.hold.deadline())
    }
}

struct Cubic {
    sender: Sender,
    receiver: Receiver,
    back: Span,
    number: u64,
    sent: VecDeque<(u64, Block, Time)>,
    returning: VecDeque<(Time, crate::network::tcp::Acknowledgement)>,
}

impl Cubic {
    fn new(rtt: Span) -> Self {
        let config = Era::Linux.sender(Flavour::Sack, MSS, f64::INFINITY, Span::ZERO);
        let mut sender = Sender::new(&config, Time::ZERO);
        sender.on_open(Time::ZERO, 1 << 29, None, false);
        sender.on_write(Time::ZERO, 1 << 40);
        let receiver = Receiver::new(ReceiverConfig::linux(MSS, 1 << 29, 14));
        let back = Span::from_nanos(rtt.as_nanos() / 2);
        let (sent, returning) = (VecDeque::new(), VecDeque::new());
        Self { sender, receiver, back, number: 0, sent, returning }
    }

    fn answer(&mut self, now: Time) {
        while let Some(ack) = self.receiver.poll() {
            self.returning.push_back((now + self.back, ack));
        }
    }
}

impl Party for Cubic {
    fn poll(&mut self, now: Time) -> Option<u64> {
        let segment = self.sender.poll(now)?;
        self.number += 1;
        let block = Block { start: segment.start, end: segment.end() };
        self.sent.push_back((self.number, block, now));
        Some(self.number)
    }

    fn on_arrived(&mut self, now: Time, number: u64) {
        while let Some((sent, block, when)) = self.sent.pop_front_if(|(n, ..)| *n <= number) {
            if sent == number {
                self.receiver.on_segment(now, block, Some(when), false, false);
            }
        }
        self.answer(now);
    }

    fn on_deadline(&mut self, now: Time) {
        if self.receiver.deadline() <= now {
            self.receiver.on_deadline(now);
            self.answer(now);
        }
        while let Some((_, ack)) = self.returning.pop_front_if(|(due, _)| *due <= now) {
            self.sender.on_ack(now, &ack);
        }
        if self.sender.deadline() <= now {
            self.sender.on_deadline(now);
        }
    }

    fn deadline(&self, _: Time) -> Time {
        let come = self.returning.front().map_or(Time::NEVER, |(due, _)| *due);
        come.min(self.sender.deadline()).min(self.receiver.deadline())
    }
}

struct Shared {
    rate: f64,
    rtt: Span,
    loss: f64,
    queue: u64,
}

/// Mbit/s of each between two seconds; each party begins a second after the one before.
fn share(path: &Shared, parties: &mut [Box<dyn Party>], from: u64, to: u64) -> Vec<f64> {
    let config = crate::network::link::Config {
        discipline: Discipline::DropTail(Bound::Bytes(Bytes::new(path.queue))),
        serialiser: Serialiser::Rate(mbit(path.rate)),
        delay: Span::from_nanos(path.rtt.as_nanos() / 2),
        loss: loss(path.loss),
        seed: 11,
        ..crate::network::link::Config::default()
    };
    let mut link = Link::new(&config, Time::ZERO);
    let mut bytes = vec![0_u64; parties.len()];
    let mut now = Time::ZERO;
    let until = Time::ZERO + Span::from_secs(to);
    while now < until {
        while let Some(delivered) = link.poll(now) {
            let nth = delivered.packet.flow as usize;
            parties[nth].on_arrived(now, delivered.packet.id);
            if now >= Time::ZERO + Span::from_secs(from) {
                bytes[nth] += SIZE.as_u64();
            }
        }
        link.gone(|_, _| ());
        let mut next = until;
        for (nth, party) in parties.iter_mut().enumerate() {
            let begins = Time::ZERO + Span::from_secs(nth as u64);
            if now < begins {
                next = next.min(begins);
                continue;
            }
            party.on_deadline(now);
            while let Some(id) = party.poll(now) {
                let packet = Packet { flow: nth as u64, ..Packet::new(id, 1_500) };
                let _: Offered = link.offer(now, packet);
            }
            next = next.min(party.deadline(now));
        }
        now = next.min(link.next()).max(now + Span::from_nanos(1));
    }
    bytes.iter().map(|bytes| *bytes as f64 * 8e-6 / (to - from) as f64).collect()
}

/// Jain's index of fairness (Jain, Chiu, Hawe 1984): 1 where all have as much.
fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    sum * sum / (shares.len() as f64 * squares)
}

fn tcp(name: &str, rtt: Span) -> Box<dyn Party> {
    match name {
        "CUBIC" => Box::new(Cubic::new(rtt)),
        _ => Box::new(Bbr::new(rtt)),
    }
}

const TABLE: &str = "
| path | other | beside CUBIC | shared, all of it | Jain | shared, half | dedicated, all | dedicated, half |
|---|---|---|---|---|---|---|---|";

/// A tunnel allotted all of 20 Mbit/s, or half, and a flow that begins a second later: tunnel /
/// other over two minutes. "Beside CUBIC": CUBIC in the tunnel's place.
#[test]
fn competing_traffic_keeps_its_share() {
    let (from, to) = (40, 160);
    std::println!("{TABLE}");
    for rtt in [50, 600] {
        let span = Span::from_millis(rtt);
        for percent in [0.0, 1.0] {
            let queue = (20e6 / 8.0 * rtt as f64 / 1e3) as u64;
            let path = Shared { rate: 20.0, rtt: span, loss: percent, queue };
            for other in ["CUBIC", "BBR"] {
                let pair = share(&path, &mut [tcp("CUBIC", span), tcp(other, span)], from, to);
                let beside = |mode, allotted| {
                    let held = Held::new(Config { mode, ..Config::new(mbit(allotted)) }, span);
                    share(&path, &mut [Box::new(held), tcp(other, span)], from, to)
                };
                let dedicated = Mode::Dedicated { line: mbit(1.0) };
                let shared = [20.0, 10.0].map(|allotted| beside(Mode::Shared, allotted));
                let own = [20.0, 10.0].map(|allotted| beside(dedicated, allotted));
                let show = |shares: &[f64]| format!("{:.1} / {:.1}", shares[0], shares[1]);
                std::println!(
                    "| {rtt} ms, {percent} % | {other} | {} | {} | {:.2} | {} | {} | {} |",
                    show(&pair),
                    show(&shared[0]),
                    jain(&shared[0]),
                    show(&shared[1]),
                    show(&own[0]),
                    show(&own[1]),
                );
                for shares in &shared {
                    let least = 0.6 * pair[1].min(10.0);
                    assert!(shares[1] > least, "{rtt} ms {percent} % {other}: {shares:?}");
                    let least = 0.5 * pair[0].min(10.0);
                    assert!(shares[0] > least, "{rtt} ms {percent} % {other}: {shares:?}");
                }
                assert!(own[1][0] > 8.5, "{rtt} ms {percent} % {other}: {own:?}");
            }
        }
    }
}

/// Four connections' tunnel gets what four would, or somewhat more; over several paths, because who
/// is ahead on one is chance.
#[test]
fn weighs_as_many_connections_as_it_carries() {
    let shares = |rtt: u64| {
        let span = Span::from_millis(rtt);
        let path = Shared { rate: 20.0, rtt: span, loss: 0.0, queue: 2_500 * rtt };
        let mut held = Held::new(Config::new(mbit(20.0)), span);
        held.hold.set_connections(4);
        let four = share(&path, &mut [Box::new(held), tcp("CUBIC", span)], 40, 160);
        let mut five: [Box<dyn Party>; 5] = core::array::from_fn(|_| tcp("CUBIC", span));
        let fair = share(&path, &mut five, 40, 160);
        std::println!("{rtt} ms: {four:?}, among five {fair:?}");
        four[1]
    };
    let mut others = [40, 45, 50, 55, 60].map(shares);
    others.sort_by(f64::total_cmp);
    assert!((1.6..6.0).contains(&others[2]), "{others:?}");
}
