//! The controller over the model's own link, with a sender that always has something to send.

mod late;
mod limits;
mod recovery;
mod rounds;
mod screens;
mod sharing;

use super::*;
use crate::control::pacing::Pacer;
use crate::network::link::{Bound, Change, Discipline, Link, Loss, Packet, Serialiser};
use crate::testing::*;

const SIZE: Bytes = Bytes::new(1_500);
/// Silence after which a packet is sent as a probe.
const PROBE: Span = Span::from_secs(1);

fn mbit(n: f64) -> Rate {
    Rate::from_bits_per_second((n * 1e6) as u64)
}

fn loss(percent: f64) -> Loss {
    Share::from_parts_per_billion((percent * 1e7) as u64).unwrap_or(Share::NONE).into()
}

fn packet(id: u64, bytes: u32) -> Packet {
    Packet::new(id, bytes)
}

fn at(seconds: f64) -> Time {
    Time::from_nanos((seconds * 1e9) as u64)
}

#[derive(Debug, Default)]
struct Observation {
    arrived: Vec<u64>,
    offered: Vec<u64>,
    dropped: Vec<u64>,
    /// Waited in the queue, by packet: when it arrived, and how long.
    waited: Vec<(Time, Span)>,
}

struct Path {
    rate: f64,
    rtt: f64,
    loss: f64,
    queue: u64,
    /// At certain seconds: rate, rtt, loss.
    changes: Vec<(f64, f64, f64, f64)>,
    acks: late::Acks,
}

impl Path {
    fn link(&self) -> crate::network::link::Config {
        let half = |rtt: f64| Span::from_nanos((rtt * 5e8) as u64);
        let mut schedule = Vec::new();
        for (when, rate, rtt, lost) in &self.changes {
            let when = Span::from_nanos((when * 1e9) as u64);
            schedule.push((when, Change::Serialiser(Serialiser::Rate(mbit(*rate)))));
            schedule.push((when, Change::Delay(half(*rtt))));
            schedule.push((when, Change::Loss(loss(*lost))));
        }
        crate::network::link::Config {
            discipline: Discipline::DropTail(Bound::Bytes(Bytes::new(self.queue))),
            serialiser: Serialiser::Rate(mbit(self.rate)),
            delay: half(self.rtt),
            loss: loss(self.loss),
            seed: 7,
            schedule,
            ..crate::network::link::Config::default()
        }
    }
}

fn run(config: Config, path: &Path, seconds: u64) -> (Observation, RateHold) {
    drive(config, path, seconds, false)
}

impl Path {
    fn is(&self, now: Time) -> (f64, f64) {
        let last = self.changes.iter().rfind(|change| at(change.0) <= now);
        last.map_or((self.rate, self.rtt), |change| (change.1, change.2))
    }
}

/// `informed`: a sender that knows the path as of the last acknowledged packet, the earliest
/// possible.
fn drive(config: Config, path: &Path, seconds: u64, informed: bool) -> (Observation, RateHold) {
    let hold = RateHold::new(config, Time::ZERO);
    drive_on(hold, path, seconds, informed, |_| true, |_, _| ())
}

/// The same from a state on, with data to send at certain times only; `look` sees each step.
fn drive_on(
    mut hold: RateHold,
    path: &Path,
    seconds: u64,
    informed: bool,
    has_data: impl Fn(Time) -> bool,
    mut look: impl FnMut(Time, &RateHold),
) -> (Observation, RateHold) {
    let mut pacer = Pacer::new(hold.rate(), SIZE, Time::ZERO);
    let mut link = Link::new(&path.link(), Time::ZERO);
    let mut seen = Observation::default();
    for list in [&mut seen.arrived, &mut seen.offered, &mut seen.dropped] {
        list.resize(seconds as usize + 1, 0);
    }
    // sent and not told of: number, when, told
    let mut flight: VecDeque<(u64, Time, SentBytes)> = VecDeque::new();
    // acknowledgements on their way back
    let mut back: VecDeque<(Time, u64)> = VecDeque::new();
    let mut receiver = late::Receiver::new(path.acks);
    let mut half = Span::ZERO;
    let mut number = 0;
    let mut now = Time::ZERO;
    let mut heard = Time::ZERO;
    let until = Time::ZERO + Span::from_secs(seconds);
    let changes = &path.changes;
    while now < until {
        let second = (now.as_nanos() / 1_000_000_000) as usize;
        hold.on_deadline(now);
        let (mut rate, mut cap) = (hold.rate(), hold.in_flight_cap().as_u64());
        if informed {
            let back = Span::from_nanos((path.is(now).1 * 1e9) as u64);
            let then = Time::ZERO + now.since(Time::ZERO + back);
            let (line, rtt) = path.is(then);
            rate = mbit(line * KEPT);
            cap = (line * 1e6 / 8.0 * (rtt + 0.05)) as u64;
        }
        if rate != pacer.rate() {
            pacer.set_rate(now, rate, SIZE);
        }
        look(now, &hold);
        let in_flight = hold.snapshot().in_flight;
        // a probe time-out sends though the path seems full (RFC 9002 6.2)
        let probe = in_flight > 0 && now.since(heard) > PROBE;
        let room = (in_flight + SIZE.as_u64() <= cap || probe) && has_data(now);
        if room && pacer.next(now) <= now {
            heard = if probe { now } else { heard };
            let epoch = hold.on_sent(now, SIZE);
            pacer.on_sent(now, SIZE);
            flight.push_back((number, now, SentBytes { epoch, bytes: SIZE }));
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
            let rtt = changes.iter().rfind(|c| at(c.0) <= now).map_or(path.rtt, |c| c.2);
            half = Span::from_nanos((rtt * 5e8) as u64);
            receiver.on_arrived(now, delivered.packet.id, half, &mut back);
            seen.arrived[second] += SIZE.as_u64();
            let sending = delivered.departed.since(delivered.offered);
            seen.waited.push((now, sending));
        }
        if receiver.deadline() <= now {
            receiver.send(now, half, &mut back);
        }
        while let Some((_, id)) = back.pop_front_if(|(due, _)| *due <= now) {
            heard = now;
            // nothing overtakes: what was sent before and did not come is lost
            while let Some((sent_as, sent, told)) = flight.pop_front_if(|(n, ..)| *n <= id) {
                if sent_as == id {
                    hold.on_acked(now, told, Some(now.since(sent)));
                } else {
                    hold.on_lost(now, told);
                }
            }
        }
        // outcomes may have begun a train
        if !informed && hold.rate() != pacer.rate() {
            pacer.set_rate(now, hold.rate(), SIZE);
        }
        let in_flight = hold.snapshot().in_flight;
        let cap = if informed { cap } else { hold.in_flight_cap().as_u64() };
        let room = (in_flight + SIZE.as_u64() <= cap || probe) && has_data(now);
        let send = if room { pacer.next(now) } else { Time::NEVER };
        let come = back.front().map_or(Time::NEVER, |(due, _)| *due);
        let other = link.next().min(hold.deadline()).min(receiver.deadline());
        let other = if in_flight > 0 { other.min(heard + PROBE + ms(1)) } else { other };
        now = send.min(come).min(other).max(now + Span::from_nanos(1)).min(until);
    }
    (seen, hold)
}

impl Observation {
    /// Bits a second that arrived from one second to another, in millions.
    fn goodput(&self, from: usize, to: usize) -> f64 {
        self.arrived[from..to].iter().sum::<u64>() as f64 * 8e-6 / (to - from) as f64
    }

    /// Share dropped by the queue, in per cent.
    fn drops(&self, from: usize, to: usize) -> f64 {
        let sum = |list: &[u64]| list[from..to].iter().sum::<u64>() as f64;
        100.0 * sum(&self.dropped) / sum(&self.offered)
    }

    /// What 99 % waited less than, ms.
    fn waited(&self, from: usize, to: usize) -> f64 {
        let within = |(when, _): &&(Time, Span)| *when >= at(from as f64) && *when < at(to as f64);
        let mut all: Vec<_> =
            self.waited.iter().filter(within).map(|(_, waited)| *waited).collect();
        all.sort_unstable();
        all.get(all.len() * 99 / 100).map_or(0.0, |span| span.as_nanos() as f64 / 1e6)
    }
}

fn satellite(percent: f64) -> Path {
    Path {
        rate: 20.0,
        rtt: 0.6,
        loss: percent,
        queue: 1_500_000,
        changes: Vec::new(),
        acks: late::Acks::default(),
    }
}

/// The allotment is what the line gives: kept, whatever is lost.
#[test]
fn losses_do_not_slow_it_down() {
    for percent in [0.0, 1.0, 5.0, 10.0, 20.0] {
        let (seen, hold) = run(Config::new(mbit(20.0)), &satellite(percent), 40);
        let ceiling = 20.0 * (1.0 - percent / 100.0);
        let goodput = seen.goodput(10, 40);
        assert!(goodput > 0.97 * ceiling, "{percent} %: {goodput} of {ceiling}");
        assert!(hold.snapshot().line.is_none(), "{:?}", hold.snapshot());
        assert!(seen.drops(10, 40) < 0.1 && seen.waited(10, 40) < 10.0);
    }
}

/// Five times too much: the line's own rate is found, and its queue is left alone.
#[test]
fn finds_the_line_rate_below_the_allotment() {
    for (percent, share, wait) in
        [(0.0, 0.97, 50.0), (1.0, 0.96, 60.0), (5.0, 0.93, 120.0), (10.0, 0.85, 150.0)]
    {
        let (seen, hold) = run(Config::new(mbit(100.0)), &satellite(percent), 60);
        let ceiling = 20.0 * (1.0 - percent / 100.0);
        let goodput = seen.goodput(10, 60);
        let shown = hold.snapshot();
        assert!(goodput > share * ceiling, "{percent} %: {goodput} of {ceiling} {:?}", shown);
        assert!(seen.drops(10, 60) < 0.1, "{percent} %: {}", seen.drops(10, 60));
        assert!(seen.waited(10, 60) < wait, "{percent} %: {}", seen.waited(10, 60));
        assert!(hold.snapshot().trains > 0);
    }
}

/// On a thin line two packets that leave together are far apart at its end, and more so are their acknowledgements.
#[test]
fn thin_line_is_no_path_change() {
    let acks = late::Acks { every: 10, ..late::Acks::default() };
    for rate in [0.25, 0.5, 1.5, 4.0] {
        let path = Path { rate, rtt: 0.51, queue: (rate * 64e3) as u64, acks, ..satellite(0.0) };
        let (seen, hold) = run(Config::new(mbit(rate)), &path, 60);
        assert!(seen.goodput(10, 60) > 0.98 * rate, "{rate}: {}", seen.goodput(10, 60));
        assert_eq!(hold.jumped, Span::ZERO, "{rate}");
    }
}

/// The first is told of by an acknowledgement that leaves as it comes, the second by the next, held back for 20 ms.
#[test]
fn ack_delay_is_no_longer_path() {
    for rate in [0.25, 0.5, 1.5, 4.0, 20.0] {
        let mut hold = RateHold::new(Config::new(mbit(rate)), Time::ZERO);
        let takes = Span::from_nanos((1_500.0 * 8e3 / rate) as u64);
        let mut acked = |sent: Time, rtt: Span| {
            let epoch = hold.on_sent(sent, SIZE);
            hold.on_acked(sent + rtt, SentBytes { epoch, bytes: SIZE }, Some(rtt));
            hold.jumped
        };
        let (sent, path) = (at(1.0), ms(510));
        acked(sent, path);
        let held = path + takes + ms(20);
        assert_eq!(acked(sent + Span::from_micros(1), held), Span::ZERO, "{rate}");
        // another path is one still
        let longer = held + takes + takes + ms(50);
        assert!(acked(sent + Span::from_micros(2), longer) > Span::ZERO, "{rate}");
    }
}

/// A peer that acknowledges nothing, and changes what it takes all the time.
#[test]
fn limits_that_change_all_the_time_pile_nothing_up() {
    let mut hold = RateHold::new(Config::new(mbit(20.0)), Time::ZERO);
    let mut now = Time::ZERO;
    hold.on_sent(now, SIZE);
    for n in 0..5_000_u32 {
        now += Span::from_millis(1);
        hold.set_allotted(now, mbit(1.0 + f64::from(n % 2)));
        hold.on_sent(now, SIZE);
    }
    assert!(hold.epochs.len() <= MOST_EPOCHS, "{}", hold.epochs.len());
    assert!(hold.rate() <= mbit(2.0), "{}", hold.rate());
}

#[test]
fn an_epoch_is_judged_by_its_own_rate() {
    let mut hold = RateHold::new(Config::new(mbit(20.0)), Time::ZERO);
    hold.line = Some(8e6);
    for purpose in
        [EpochPurpose::Train, EpochPurpose::Rest, EpochPurpose::Hold, EpochPurpose::Doubt]
    {
        hold.begin(Time::ZERO, purpose);
        let rate = hold.epochs.back().map(|epoch| epoch.rate as u64);
        assert_eq!(rate, Some(hold.rate().as_bits_per_second()), "{purpose:?}");
    }
}

/// A queue too short to show in time: losses that become fewer when less is sent.
#[test]
fn detects_a_short_queue_by_its_losses() {
    let path = Path { queue: 50_000, ..satellite(0.0) };
    let (seen, hold) = run(Config::new(mbit(40.0)), &path, 60);
    assert!(seen.goodput(10, 60) > 0.93 * 20.0, "{}", seen.goodput(10, 60));
    // trains are longer than that queue
    assert!(seen.drops(10, 60) < 3.0, "{}", seen.drops(10, 60));
    assert!(hold.snapshot().line.is_some());
}

#[test]
fn follows_capacity_up_and_down() {
    let path =
        Path { changes: vec![(20.0, 5.0, 0.6, 0.0), (40.0, 20.0, 0.6, 0.0)], ..satellite(0.0) };
    let (seen, _) = run(Config::new(mbit(100.0)), &path, 60);
    assert!(seen.goodput(26, 40) > 0.9 * 5.0, "{}", seen.goodput(26, 40));
    assert!(seen.goodput(46, 60) > 0.9 * 20.0, "{}", seen.goodput(46, 60));
}

#[test]
fn longer_path_keeps_the_rate() {
    let path = Path { changes: vec![(20.0, 20.0, 0.5, 0.0)], rtt: 0.1, ..satellite(0.0) };
    let (seen, hold) = run(Config::new(mbit(20.0)), &path, 60);
    assert!(seen.goodput(30, 60) > 0.95 * 20.0, "{}", seen.goodput(30, 60));
    let base = hold.snapshot().base;
    assert!(base.as_nanos().abs_diff(500_600_000) < 10_000_000, "{base}");
    assert_eq!(hold.snapshot().reactions, 0, "{:?}", hold.snapshot());
}

#[test]
fn compensates_losses_on_a_faster_line() {
    let mode = Mode::Dedicated { line: mbit(40.0) };
    let path = Path { rate: 40.0, queue: 3_000_000, ..satellite(10.0) };
    let (seen, hold) = run(Config { mode, ..Config::new(mbit(20.0)) }, &path, 40);
    // 20 Mbit/s arrive though a tenth is lost
    assert!((seen.goodput(10, 40) / 20.0 - 1.0).abs() < 0.03, "{}", seen.goodput(10, 40));
    assert!(hold.rate() > mbit(21.5) && hold.rate() < mbit(23.0), "{}", hold.rate());
}

/// A path that changes every ten seconds by chance.
fn by_chance(seed: u64) -> Path {
    let mut rng = Rng::new(seed);
    let mut draw =
        |low: f64, high: f64| low + (high - low) * rng.below(1 << 20) as f64 / (1 << 20) as f64;
    let changes = (1..12)
        .map(|n| (f64::from(n) * 10.0, draw(5.0, 40.0), draw(0.1, 0.7), draw(0.0, 5.0)))
        .collect();
    Path { changes, ..satellite(0.0) }
}

/// Beside a sender that is told: what it costs not to be.
#[test]
fn paths_that_change_by_chance() {
    let (mut held, mut told) = (Vec::new(), Vec::new());
    for seed in 0..12 {
        let path = by_chance(seed);
        let ceiling = path.changes.iter().map(|c| c.1 * (1.0 - c.3 / 100.0)).sum::<f64>() / 11.0;
        for (informed, list) in [(false, &mut held), (true, &mut told)] {
            let (seen, _) = drive(Config::new(mbit(100.0)), &path, 120, informed);
            let share = 100.0 * seen.goodput(10, 120) / ceiling;
            std::println!(
                "{seed} {}: {share:.0} %, drops {:.2} %, 99 % wait less than {:.0} ms",
                if informed { "told" } else { "held" },
                seen.drops(10, 120),
                seen.waited(10, 120)
            );
            list.push((share, seen.drops(10, 120), seen.waited(10, 120)));
        }
    }
    for (nth, (share, drops, _)) in held.iter().enumerate() {
        assert!(*share > 85.0 && *share > told[nth].0 - 11.0, "{nth}: {share} %");
        assert!(*drops < 3.0, "{nth}: {drops} % dropped");
    }
    let median = |list: &[(f64, f64, f64)]| {
        let mut waits: Vec<f64> = list.iter().map(|(_, _, wait)| *wait).collect();
        waits.sort_by(f64::total_cmp);
        waits[waits.len() / 2]
    };
    assert!(median(&held) < 700.0, "{} ms, told {} ms", median(&held), median(&told));
}

/// The line stands still for a while: what has gathered is let drain, though no more than allotted is sent.
#[test]
fn drains_the_queue_of_a_stalled_line() {
    let still = vec![(20.0, 0.001, 0.6, 0.0), (20.3, 20.0, 0.6, 0.0)];
    let (seen, hold) = run(Config::new(mbit(20.0)), &Path { changes: still, ..satellite(0.0) }, 60);
    assert!(seen.waited(30, 60) < 20.0, "{} ms", seen.waited(30, 60));
    assert!(seen.goodput(30, 60) > 0.96 * 20.0, "{}", seen.goodput(30, 60));
    assert!(hold.snapshot().base < ms(610), "{:?}", hold.snapshot());
}

#[test]
fn nothing_is_known_at_first() {
    let hold = RateHold::new(Config::new(mbit(4.0)), Time::ZERO);
    assert_eq!((hold.rate(), hold.in_flight_cap()), (mbit(4.0), Bytes::mib(64)));
    assert_eq!(hold.snapshot().line, None);
}

/// Little is sent, and told late: by a peer whose processor is busy, say. That is no slow line.
#[test]
fn little_that_is_told_late_is_no_slow_line() {
    let mut hold = RateHold::new(Config::new(mbit(20.0)), Time::ZERO);
    for tenth in 0..100 {
        let now = at(f64::from(tenth) * 0.12);
        hold.on_deadline(now);
        let bytes = Bytes::new(60);
        let epoch = hold.on_sent(now, bytes);
        let rtt = ms(if tenth < 20 { 1 } else { 70 });
        hold.on_acked(now + rtt, SentBytes { epoch, bytes }, Some(rtt));
    }
    let seen = hold.snapshot();
    assert_eq!((seen.line, seen.reactions), (None, 0), "{seen:?}");
}
