//! Whatever a link drops, delays and repeats, the stream arrives whole.

use super::super::preset::{Era, Flavour};
use super::super::{Acknowledging, Block, Receiver, ReceiverConfig, Sender, SenderConfig};
use crate::testing::*;

#[derive(Debug, Clone, Copy)]
enum Flying {
    Data(super::super::Segment, Time),
    Ack(super::super::Acknowledgement),
}

struct World {
    now: Time,
    flying: Vec<(Time, u64, Flying)>,
    sequence: u64,
    rng: Rng,
    /// Of 100: lost, and late.
    loss: u64,
    late: u64,
    /// Of 100 steps: the receiver's buffer has another size, of two segments to its first 64.
    resized: u64,
}

impl World {
    fn launch(&mut self, what: Flying) {
        if self.rng.below(100) < self.loss {
            return;
        }
        let late = if self.rng.below(100) < self.late { self.rng.below(40) } else { 0 };
        let due = self.now + ms(20 + late);
        self.sequence += 1;
        self.flying.push((due, self.sequence, what));
    }

    fn next(&mut self) -> Option<(Time, Flying)> {
        let key = |(due, sequence, _): &(Time, u64, Flying)| (*due, *sequence);
        let at = (0..self.flying.len()).min_by_key(|at| key(&self.flying[*at]))?;
        let (due, _, what) = self.flying.swap_remove(at);
        Some((due, what))
    }
}

/// How long it takes to deliver `segments`, and how many were sent.
fn deliver(config: &SenderConfig, every: u32, segments: u64, mut world: World) -> (Time, u64) {
    let acknowledging = Acknowledging { every, delay: ms(40), quick: 0 };
    let receiver = ReceiverConfig::linux(config.mss, 64 * 1000, 3);
    let mut receiver = Receiver::new(ReceiverConfig { acknowledging, ..receiver });
    let mut sender = Sender::new(config, world.now);
    sender.on_open(world.now, 64 * 1000, None, false);
    // writes of all sizes
    let wanted = segments * 1000;
    let mut written = 0;
    while written < wanted {
        let some = (1 + world.rng.below(2500)).min(wanted - written);
        sender.on_write(world.now, some);
        written += some;
    }
    let mut edge = 0;
    for _ in 0..200_000 {
        if world.resized > 0 && world.rng.below(100) < world.resized {
            receiver.set_buffer(2_000 + world.rng.below(62_001));
        }
        while let Some(segment) = sender.poll(world.now) {
            assert!(segment.len >= 1 && segment.len <= config.mss);
            assert!(segment.end() <= wanted && segment.end() > sender.acknowledged());
            world.launch(Flying::Data(segment, world.now));
        }
        while let Some(ack) = receiver.poll() {
            assert!(ack.ack + ack.window >= edge, "what was offered is taken back");
            edge = ack.ack + ack.window;
            world.launch(Flying::Ack(ack));
        }
        if sender.acknowledged() == wanted {
            assert_eq!(receiver.next(), wanted);
            assert_eq!(sender.snapshot().outstanding, 0);
            assert_eq!(sender.deadline(), Time::NEVER, "a timer of nothing");
            return (world.now, sender.snapshot().count.sent);
        }
        let arrival = world.flying.iter().map(|(due, ..)| *due).min().unwrap_or(Time::NEVER);
        let next = arrival.min(sender.deadline()).min(receiver.deadline());
        assert_ne!(next, Time::NEVER, "nothing will ever happen again");
        assert!(next >= world.now, "time goes back");
        world.now = next;
        if arrival <= next {
            match world.next() {
                Some((_, Flying::Data(segment, sent))) => {
                    let block = Block { start: segment.start, end: segment.end() };
                    receiver.on_segment(next, block, Some(sent), false, segment.reduced);
                }
                Some((_, Flying::Ack(ack))) => {
                    sender.on_ack(next, &ack);
                    let shown = sender.snapshot();
                    assert!(shown.window >= 1.0, "{shown:?}");
                    assert!(shown.outstanding <= 2 * 64 * 1000 + 10_000, "{shown:?}");
                }
                None => {}
            }
        } else {
            sender.on_deadline(next);
            receiver.on_deadline(next);
        }
    }
    panic!("{segments} segments are never delivered");
}

fn configs() -> Vec<SenderConfig> {
    let mut all = Vec::new();
    for era in [Era::Ns21b9, Era::Ns228, Era::Ns235, Era::Rfc, Era::Linux] {
        for flavour in [Flavour::Reno, Flavour::NewReno, Flavour::Sack] {
            all.push(era.sender(flavour, 1000, 64.0, ms(3)));
        }
    }
    all
}

fn world(seed: u64, loss: u64, late: u64) -> World {
    World {
        now: Time::ZERO,
        flying: Vec::new(),
        sequence: 0,
        rng: Rng::new(seed),
        loss,
        late,
        resized: 0,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn transfers_complete_with_any_receive_buffer(seed: u64, loss in 0_u64..20, resized in 1_u64..30) {
        for config in configs() {
            deliver(&config, 2, 60, World { resized, ..world(seed, loss, 0) });
        }
    }

    #[test]
    fn stream_arrives_whole(seed: u64, loss in 0_u64..40, late in 0_u64..50, every in 1_u32..4) {
        for config in configs() {
            deliver(&config, every, 60, world(seed, loss, late));
        }
    }
}

#[test]
fn without_loss_nothing_is_sent_twice() {
    for config in configs() {
        let (_, sent) = deliver(&config, 1, 500, world(1, 0, 0));
        let (_, delayed) = deliver(&config, 2, 500, world(1, 0, 0));
        // writes that waited are cut into full segments
        assert!((500..=520).contains(&sent) && (500..=520).contains(&delayed), "{sent} {delayed}");
    }
}

#[test]
fn same_seed_gives_same_run() {
    for config in configs() {
        let run = || deliver(&config, 1, 300, world(7, 5, 10));
        assert_eq!(run(), run());
    }
}
