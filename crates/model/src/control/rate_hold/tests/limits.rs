//! Pauses, silence, the breaker, another allotment: what limits the rate beside the line.

use super::mbit;
use crate::control::rate_hold::{Breaker, Config, Mode, RateHold, breaker};
use crate::testing::*;

const PACKET: Bytes = Bytes::new(1_500);
const RTT: Span = ms(100);

/// A path that loses so many of ten, with nothing else on it.
struct Sender {
    hold: RateHold,
    now: Time,
    lost: u64,
    number: u64,
}

impl Sender {
    fn new(mode: Mode) -> Self {
        let config = Config { mode, ..Config::new(mbit(12.0)) };
        Self { hold: RateHold::new(config, Time::ZERO), now: Time::ZERO, lost: 0, number: 0 }
    }

    /// Sends at the rate for so long, in flights of a round trip each.
    fn send(&mut self, span: Span) {
        let until = self.now + span;
        while self.now < until {
            self.hold.on_deadline(self.now);
            let gap = PACKET.as_u64() * 8_000_000_000 / self.hold.rate().as_bits_per_second();
            let end = self.now + RTT;
            let mut sent = Vec::new();
            while self.now < end {
                let epoch = self.hold.on_sent(self.now, PACKET);
                sent.push((
                    self.now,
                    crate::control::rate_hold::SentBytes { epoch, bytes: PACKET },
                ));
                self.now += Span::from_nanos(gap);
            }
            for (when, told) in sent {
                self.now = self.now.max(when + RTT);
                self.number += 1;
                if self.number % 10 < self.lost {
                    self.hold.on_lost(self.now, told);
                } else {
                    self.hold.on_acked(self.now, told, Some(RTT));
                }
            }
        }
        self.hold.on_deadline(self.now);
    }

    fn pause(&mut self, span: Span) {
        self.now += span;
        self.hold.on_deadline(self.now);
    }
}

#[test]
fn after_a_pause_half_is_sent_on_a_shared_line() {
    let mut sender = Sender::new(Mode::Shared);
    sender.send(Span::from_secs(2));
    sender.pause(Span::from_secs(50));
    assert_eq!(sender.hold.rate(), mbit(12.0), "nobody else was seen");
    sender.send(Span::from_secs(2));
    sender.hold.reacted_at = Some(sender.now);
    sender.pause(Span::from_secs(5));
    assert_eq!(sender.hold.rate(), mbit(6.0));
    assert!(sender.hold.snapshot().resting);
    sender.send(Span::from_secs(1));
    assert_eq!(sender.hold.rate(), mbit(12.0));
    let mut sender = Sender::new(Mode::Dedicated { line: mbit(12.0) });
    sender.send(Span::from_secs(2));
    sender.pause(Span::from_secs(50));
    assert_eq!(sender.hold.rate(), mbit(12.0));
}

#[test]
fn silence_leaves_a_tenth_until_something_is_heard() {
    let mut sender = Sender::new(Mode::Dedicated { line: mbit(12.0) });
    sender.send(Span::from_secs(1));
    let epoch = sender.hold.on_sent(sender.now, PACKET);
    sender.pause(ms(2_999));
    assert!(!sender.hold.snapshot().silent);
    sender.pause(ms(2));
    assert_eq!(sender.hold.rate(), mbit(1.2));
    let told = crate::control::rate_hold::SentBytes { epoch, bytes: PACKET };
    sender.hold.on_acked(sender.now, told, None);
    assert_eq!(sender.hold.rate(), mbit(12.0));
    // nothing under way is no silence
    sender.pause(Span::from_secs(60));
    assert!(!sender.hold.snapshot().silent);
}

#[test]
fn next_tunnel_inherits_the_open_breaker() {
    let mut sender = Sender::new(Mode::Shared);
    sender.send(Span::from_secs(1));
    sender.lost = 7;
    sender.send(Span::from_secs(4));
    let seen = sender.hold.snapshot().breaker;
    assert!(matches!(seen.open, Some((breaker::Trip::HalfLost, _))), "{seen:?}");
    assert_eq!(sender.hold.rate(), mbit(1.2));
    let kept: Breaker = sender.hold.breaker().clone();
    let mut next = Sender::new(Mode::Shared);
    next.now = sender.now;
    *next.hold.breaker() = kept;
    assert_eq!(next.hold.rate(), mbit(1.2));
    next.pause(Span::from_secs(60));
    assert!(!next.hold.breaker().is_open());
}

#[test]
fn new_allotment_keeps_path_estimates() {
    let mut sender = Sender::new(Mode::Shared);
    sender.lost = 1;
    sender.send(Span::from_secs(5));
    let loss = sender.hold.snapshot().loss;
    sender.hold.set_allotted(sender.now, mbit(4.0));
    assert_eq!(sender.hold.rate(), mbit(4.0));
    sender.hold.set_allotted(sender.now, mbit(40.0));
    assert_eq!(sender.hold.rate(), mbit(40.0));
    let seen = sender.hold.snapshot();
    assert!((seen.loss - loss).abs() < 1e-9 && loss > 0.08, "{seen:?}");
    assert_eq!(seen.base, RTT);
}
