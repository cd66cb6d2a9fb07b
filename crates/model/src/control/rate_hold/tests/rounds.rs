//! The kernel's rate holding, round by round, over the same link: one greedy connection, seen as
//! `linux/bpf/hold.bpf.c` sees it.

use super::*;
use crate::control::rate_hold::rounds::{Agreement, Round, Rounds, window};

/// What the program and TCP know of a connection; times in µs, sizes in bytes.
struct Sender {
    agreement: Agreement,
    rounds: Rounds,
    told: Round,
    began: u64,
    ends: u64,
    smoothed: u64,
    base: u64,
    /// The least round trip of the one that ends at `bucket`.
    low: u64,
    bucket: u64,
}

impl Sender {
    fn new(agreement: Agreement) -> Self {
        let (rounds, told) = (Rounds::default(), Round::default());
        let base = u64::MAX;
        Self { agreement, rounds, told, began: 0, ends: 0, smoothed: 0, base, low: 0, bucket: 0 }
    }

    /// An acknowledgement of `delivered` bytes, after `lost` were found lost; as `turn` and `judge` do it.
    fn on_acked(&mut self, now: u64, delivered: u64, lost: u64, rtt: u64) {
        self.base = self.base.min(rtt);
        self.smoothed =
            if self.smoothed == 0 { rtt } else { self.smoothed - self.smoothed / 8 + rtt / 8 };
        if now >= self.bucket {
            (self.low, self.bucket) = (rtt, now + self.smoothed);
        }
        self.low = self.low.min(rtt);
        let queue = self.agreement.queue(self.base);
        let told = &mut self.told;
        told.delivered += delivered;
        told.pressed += delivered;
        told.lost += lost;
        told.late += if rtt > self.base + queue { delivered } else { 0 };
        told.stood += if self.low > self.base + queue / 4 { delivered } else { 0 };
        told.rtt = told.rtt.max(self.smoothed);
        if now < self.ends {
            return;
        }
        let length = told.rtt.clamp(100_000, 8_000_000);
        let round = Round { now, span: now - self.began, ..std::mem::take(told) };
        if self.ends != 0 && round.span < 4 * length {
            self.rounds.judge(&self.agreement, &round);
        } else {
            self.rounds.agree(&self.agreement);
        }
        (self.began, self.ends) = (now, now + length);
    }

    fn window(&self) -> u64 {
        if self.smoothed == 0 {
            return 10;
        }
        let share = self.rounds.known(self.rounds.rate(&self.agreement));
        window(&self.agreement, share, self.smoothed, self.base, SIZE.as_u64())
    }

    fn pace(&self) -> Rate {
        Rate::from_bits_per_second(self.rounds.rate(&self.agreement) * 8)
    }
}

/// What comes of a rate of so many Mbit/s. Every second packet is acknowledged.
fn held(told: f64, path: &Path, seconds: u64) -> (Observation, Rounds) {
    let rate = (told * 125_000.0) as u64;
    let mut sender = Sender::new(Agreement { rate, ..Agreement::default() });
    let mut pacer = Pacer::new(mbit(told), SIZE, Time::ZERO);
    let mut link = Link::new(&path.link(), Time::ZERO);
    let mut seen = Observation::default();
    for list in [&mut seen.arrived, &mut seen.offered, &mut seen.dropped] {
        list.resize(seconds as usize + 1, 0);
    }
    let mut flight: VecDeque<(u64, Time)> = VecDeque::new();
    let mut back: VecDeque<(Time, u64)> = VecDeque::new();
    // packets acknowledged with the next one
    let mut unsaid = 0;
    let (mut number, mut now, mut heard) = (0, Time::ZERO, Time::ZERO);
    let until = Time::ZERO + Span::from_secs(seconds);
    while now < until {
        let second = (now.as_nanos() / 1_000_000_000) as usize;
        if sender.pace() != pacer.rate() {
            pacer.set_rate(now, sender.pace(), SIZE);
        }
        if now.since(heard) > Span::from_secs(3) {
            // a time-out
            flight.clear();
            heard = now;
        }
        let room = (flight.len() as u64) < sender.window();
        if room && pacer.next(now) <= now {
            pacer.on_sent(now, SIZE);
            flight.push_back((number, now));
            seen.offered[second] += 1;
            let packet = packet(number, 1_500);
            if link.offer(now, packet) == crate::network::link::Offered::Dropped {
                seen.dropped[second] += 1;
            }
            number += 1;
            continue;
        }
        link.gone(|_, _| ());
        while let Some(delivered) = link.poll(now) {
            let rtt = path.is(now).1;
            back.push_back((now + Span::from_nanos((rtt * 5e8) as u64), delivered.packet.id));
            seen.arrived[second] += SIZE.as_u64();
            seen.waited.push((now, delivered.departed.since(delivered.offered)));
        }
        while let Some((_, id)) = back.pop_front_if(|(due, _)| *due <= now) {
            heard = now;
            unsaid += 1;
            if unsaid < 2 {
                continue;
            }
            let (mut lost, mut sent) = (0, now);
            while let Some((nth, when)) = flight.pop_front_if(|(nth, _)| *nth <= id) {
                lost += u64::from(nth != id);
                sent = when;
            }
            // the one before it came, too
            let (lost, rtt) = (lost.saturating_sub(1), now.since(sent));
            sender.on_acked(
                now.as_nanos() / 1_000,
                unsaid * 1_500,
                lost * 1_500,
                rtt.as_nanos() / 1_000,
            );
            unsaid = 0;
        }
        let send = if room { pacer.next(now) } else { Time::NEVER };
        let come = back.front().map_or(Time::NEVER, |(due, _)| *due);
        let next = send.min(come).min(link.next()).max(now + Span::from_nanos(1));
        now = next.min(heard + Span::from_millis(3_001)).min(until);
    }
    (seen, sender.rounds)
}

/// With `told` times the line's rate and a queue as long as the path: % of what can arrive, 99 %
/// delay in ms.
fn share(told: f64, path: &Path, from: usize, to: usize) -> (f64, f64) {
    let (seen, rounds) = held(told, path, to as u64);
    let share = 100.0 * seen.goodput(from, to) / (path.rate * (1.0 - path.loss / 100.0));
    std::println!(
        "{told} on {}, {} s, {} %: {share:.1} %, drops {:.2} %, 99 % wait less than {:.0} ms; {rounds:?}",
        path.rate,
        path.rtt,
        path.loss,
        seen.drops(from, to),
        seen.waited(from, to)
    );
    let most = if path.queue < 100_000 { 8.0 } else { 3.0 };
    assert!(seen.drops(from, to) < most, "{}", seen.drops(from, to));
    (share, seen.waited(from, to))
}

/// An allotment that is right is kept, and one that is not is found out, whatever is lost.
#[test]
fn finds_and_keeps_the_line_capacity() {
    for (rate, rtt) in [(20.0, 0.6), (4.0, 0.615), (10.0, 0.615), (50.0, 0.1)] {
        for loss in [0.0, 1.0, 5.0] {
            let queue = (rate * 125_000.0 * rtt) as u64;
            for times in [1.0, 2.0, 5.0] {
                let path = Path { rate, rtt, loss, queue, ..satellite(0.0) };
                let (share, waited) = share(rate * times, &path, 10, 60);
                assert!(share > 95.0 && waited < 150.0, "{share} %, {waited} ms");
            }
        }
    }
}

/// A queue too short to show: attempts to find more are lost.
#[test]
fn losses_reveal_a_short_queue() {
    for (loss, least) in [(0.0, 90.0), (1.0, 90.0), (5.0, 85.0)] {
        let path = Path { queue: 50_000, ..satellite(loss) };
        let (share, _) = share(40.0, &path, 10, 60);
        assert!(share > least, "{loss} %: {share} %");
    }
}

#[test]
fn follows_line_changes_both_ways() {
    for (told, rtt) in [(40.0, 0.6), (20.0, 0.6), (40.0, 0.1)] {
        let changes = std::vec![(20.0, 5.0, rtt, 1.0), (50.0, 20.0, rtt, 1.0)];
        let path = Path { changes, rtt, ..satellite(1.0) };
        let (seen, _) = held(told, &path, 80);
        assert!(seen.goodput(30, 50) > 0.95 * 4.95, "{}", seen.goodput(30, 50));
        assert!(seen.waited(32, 50) < 160.0, "{}", seen.waited(32, 50));
        assert!(seen.goodput(64, 80) > 0.93 * 19.8, "{}", seen.goodput(64, 80));
    }
}

/// A line that was a fifth and is what was agreed to again: nothing is known to be slower then.
#[test]
fn returns_to_the_agreed_rate() {
    let path = Path { changes: std::vec![(20.0, 100.0, 0.6, 0.0)], ..satellite(0.0) };
    let (seen, rounds) = held(100.0, &path, 60);
    assert!(seen.goodput(40, 60) > 95.0, "{} {rounds:?}", seen.goodput(40, 60));
    assert_eq!((rounds.line, rounds.current), (0, rounds.agreed));
}
