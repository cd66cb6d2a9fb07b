//! A hundred thin clients, mostly below half the rate: little evidence of the line, and held-back
//! acknowledgements that mislead.

use super::{SIZE, at, mbit, packet};
use crate::control::pacing::Pacer;
use crate::control::rate_hold::{Config, RateHold, SentBytes};
use crate::network::link::{self, Link, Serialiser};
use crate::network::workload::thin_client::{ThinClient, generate};
use crate::testing::*;

/// The beginning of the traces alone: tests are not optimised.
const SECONDS: f64 = 100.0;

fn packets(seed: u64) -> Vec<(Time, u64)> {
    let mut all = Vec::new();
    for client in 0..100 {
        let trace = generate(&ThinClient::intranet(), &mut Rng::new(seed + client)).unwrap();
        for write in trace.writes.iter().filter(|write| write.at < at(SECONDS)) {
            let mut left = u64::from(write.bytes);
            while left > 0 {
                let piece = left.min(1_440);
                all.push((write.at, piece + 60));
                left -= piece;
            }
        }
    }
    all.sort_unstable();
    all
}

/// Packet delays from writing to the end of a line of 10 Mbit/s and 44 ms, held at 9.8 with
/// acknowledgements at most `late`; and at a fixed 9.8 Mbit/s.
fn delays(seed: u64, late: Span) -> ([Vec<f64>; 2], RateHold) {
    let packets = packets(seed);
    let mut fixed = (Vec::new(), 0.0_f64);
    for (when, bytes) in &packets {
        let written = when.as_nanos() as f64 / 1e9;
        fixed.1 = fixed.1.max(written) + *bytes as f64 * 8.0 / 9.8e6;
        fixed.0.push(fixed.1 - written + 0.022);
    }
    let mut rng = Rng::new(seed);
    let mut hold = RateHold::new(Config::new(mbit(9.8)), Time::ZERO);
    let mut pacer = Pacer::new(hold.rate(), SIZE, Time::ZERO);
    let config = link::Config {
        serialiser: Serialiser::Rate(mbit(10.0)),
        delay: ms(22),
        ..link::Config::default()
    };
    let mut line = Link::new(&config, Time::ZERO);
    let mut coming: VecDeque<_> = packets.iter().copied().enumerate().collect();
    let mut waiting: VecDeque<(usize, u64)> = VecDeque::new();
    let mut flight: VecDeque<(usize, Time, SentBytes)> = VecDeque::new();
    let mut back: VecDeque<(Time, usize)> = VecDeque::new();
    let mut took = vec![0.0; packets.len()];
    let (mut now, mut heard) = (Time::ZERO, Time::ZERO);
    let mut left = packets.len();
    while left > 0 && now < at(SECONDS + 100.0) {
        hold.on_deadline(now);
        while let Some((nth, (_, bytes))) = coming.pop_front_if(|(_, (when, _))| *when <= now) {
            waiting.push_back((nth, bytes));
        }
        if hold.rate() != pacer.rate() {
            pacer.set_rate(now, hold.rate(), SIZE);
        }
        let cap = hold.in_flight_cap().as_u64();
        let room = hold.snapshot().in_flight + SIZE.as_u64() <= cap;
        if room
            && pacer.next(now) <= now
            && let Some((nth, bytes)) = waiting.pop_front()
        {
            let bytes = Bytes::new(bytes);
            let epoch = hold.on_sent(now, bytes);
            pacer.on_sent(now, bytes);
            flight.push_back((nth, now, SentBytes { epoch, bytes }));
            let packet = packet(nth as u64, bytes.as_u64() as u32);
            line.offer(now, packet);
            continue;
        }
        while let Some(delivered) = line.poll(now) {
            let nth = delivered.packet.id as usize;
            took[nth] = now.since(packets[nth].0).as_nanos() as f64 / 1e9;
            left -= 1;
            // in order, as acknowledgements are
            let held = Span::from_nanos(rng.below(late.as_nanos().max(1)));
            heard = heard.max(now + ms(22) + held);
            back.push_back((heard, nth));
        }
        while let Some((_, nth)) = back.pop_front_if(|(due, _)| *due <= now) {
            if let Some((_, sent, told)) = flight.pop_front_if(|(n, ..)| *n == nth) {
                hold.on_acked(now, told, Some(now.since(sent)));
            }
        }
        let send = if room && !waiting.is_empty() { pacer.next(now) } else { Time::NEVER };
        let write = coming.front().map_or(Time::NEVER, |(_, (when, _))| *when);
        let come = back.front().map_or(Time::NEVER, |(due, _)| *due);
        let next = send.min(write).min(come).min(line.next()).min(hold.deadline());
        now = next.max(now + Span::from_nanos(1));
    }
    ([took, fixed.0], hold)
}

/// In milliseconds: of a thousand, so many take less.
fn of_thousand(times: &[f64], nth: usize) -> f64 {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    times[(times.len() * nth / 1_000).min(times.len() - 1)] * 1e3
}

#[test]
fn bursts_wait_as_long_as_the_rate_makes_them() {
    // 25 ms: QUIC's acknowledgements may be held back for so long (RFC 9000 §18.2)
    for late in [0, 10, 25] {
        let ([took, fixed], hold) = delays(1, ms(late));
        let [median, most] = [500, 999].map(|nth| of_thousand(&took, nth));
        let [fixed_median, fixed_most] = [500, 999].map(|nth| of_thousand(&fixed, nth));
        std::println!(
            "{late} ms: {median:.1}, {most:.1} ms; fixed {fixed_median:.1}, {fixed_most:.1} ms"
        );
        assert!(median < 1.05 * fixed_median && most < 1.25 * fixed_most, "{:?}", hold.snapshot());
    }
}
