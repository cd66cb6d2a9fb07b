//! What a receiver says, and when.

use super::super::{Acknowledging, Block, Receiver, ReceiverConfig};
use crate::testing::*;

fn block(a: u64, b: u64) -> Block {
    Block { start: a * 1000, end: b * 1000 }
}

fn receiver(change: impl FnOnce(&mut ReceiverConfig)) -> Receiver {
    let mut config = ReceiverConfig::linux(1000, 20_000, 0);
    config.acknowledging = Acknowledging::EACH;
    change(&mut config);
    Receiver::new(config)
}

/// A segment arrives; what is answered at once: acknowledged segments, and blocks.
fn take(receiver: &mut Receiver, ms: u64, a: u64, b: u64) -> Option<(u64, Vec<(u64, u64)>)> {
    receiver.on_segment(at(ms), block(a, b), None, false, false);
    let ack = receiver.poll()?;
    let blocks = ack.blocks.as_slice().iter().map(|b| (b.start / 1000, b.end / 1000)).collect();
    Some((ack.ack / 1000, blocks))
}

#[test]
fn the_newest_block_comes_first() {
    // RFC 2018 §4
    let mut receiver = receiver(|_| {});
    assert_eq!(take(&mut receiver, 0, 0, 1), Some((1, Vec::new())));
    assert_eq!(take(&mut receiver, 1, 2, 3), Some((1, [(2, 3)].into())));
    assert_eq!(take(&mut receiver, 2, 6, 7), Some((1, [(6, 7), (2, 3)].into())));
    assert_eq!(take(&mut receiver, 3, 4, 5), Some((1, [(4, 5), (6, 7), (2, 3)].into())));
    assert_eq!(take(&mut receiver, 4, 3, 4), Some((1, [(2, 5), (6, 7)].into())));
    assert_eq!(take(&mut receiver, 5, 1, 2), Some((5, [(6, 7)].into())));
    assert_eq!(take(&mut receiver, 6, 5, 6), Some((7, Vec::new())));
}

#[test]
fn duplicate_segments_are_reported_once() {
    // RFC 2883 §4
    let mut receiver = receiver(|_| {});
    assert_eq!(take(&mut receiver, 0, 0, 1), Some((1, Vec::new())));
    assert_eq!(take(&mut receiver, 1, 0, 1), Some((1, [(0, 1)].into())));
    assert_eq!(take(&mut receiver, 2, 2, 3), Some((1, [(2, 3)].into())));
    assert_eq!(receiver.snapshot().duplicates, 1);
}

#[test]
fn every_second_segment_or_after_a_while() {
    // RFC 5681 §4.2
    let mut receiver = receiver(|c| c.acknowledging = Acknowledging::DELAYED);
    assert_eq!(take(&mut receiver, 0, 0, 1), None);
    assert_eq!(take(&mut receiver, 1, 1, 2), Some((2, Vec::new())));
    assert_eq!(take(&mut receiver, 10, 2, 3), None);
    assert_eq!(receiver.deadline(), at(110));
    receiver.on_deadline(at(110));
    assert_eq!(receiver.poll().map(|ack| ack.ack), Some(3000));
    // out of order, and what fills the gap: at once
    assert_eq!(take(&mut receiver, 200, 4, 5), Some((3, [(4, 5)].into())));
    assert_eq!(take(&mut receiver, 201, 3, 4), Some((5, Vec::new())));
}

#[test]
fn advertised_window_is_free_space_and_never_shrinks() {
    let mut receiver = receiver(|c| {
        c.read_at_once = false;
        c.buffer = 4000;
    });
    let window = |receiver: &mut Receiver, a, b| {
        receiver.on_segment(at(0), block(a, b), None, false, false);
        receiver.poll().map(|ack| ack.window)
    };
    assert_eq!(window(&mut receiver, 0, 1), Some(3000));
    assert_eq!(window(&mut receiver, 1, 4), Some(0));
    receiver.on_read(500);
    assert_eq!(receiver.poll(), None); // a crumb
    receiver.on_read(1500);
    assert_eq!(receiver.poll().map(|ack| ack.window), Some(2000));
}

#[test]
fn without_scaling_16_bits_are_all() {
    // RFC 7323 §2.2
    let first = |scale| {
        let mut receiver = receiver(|c| {
            c.buffer = 1 << 20;
            c.scale = scale;
        });
        receiver.on_segment(at(0), block(0, 1), None, false, false);
        receiver.poll().map(|ack| ack.window)
    };
    assert!(first(0) <= Some(65_535));
    assert!(first(7) > Some(1_000_000));
}

#[test]
fn marks_are_echoed_until_they_are_answered() {
    // RFC 3168 §6.1.3
    let mut receiver = receiver(|_| {});
    let mut echo = |a, marked, reduced| {
        receiver.on_segment(at(0), block(a, a + 1), None, marked, reduced);
        receiver.poll().map(|ack| ack.marked)
    };
    assert_eq!(echo(0, true, false), Some(true));
    assert_eq!(echo(1, false, false), Some(true));
    assert_eq!(echo(2, false, true), Some(false));
}

#[test]
fn smaller_buffer_keeps_the_advertised_window() {
    let mut receiver = receiver(|c| c.read_at_once = false);
    let told = |receiver: &mut Receiver| {
        let ack = receiver.acknowledge();
        (ack.ack / 1000, ack.window / 1000)
    };
    assert_eq!(told(&mut receiver), (0, 20));
    receiver.set_buffer(5_000);
    assert_eq!(told(&mut receiver), (0, 20));
    take(&mut receiver, 0, 0, 10);
    assert_eq!(told(&mut receiver), (10, 10));
    receiver.on_read(10_000);
    // as it would have been: the edge stays until the buffer reaches beyond it
    assert_eq!(told(&mut receiver), (10, 10));
    take(&mut receiver, 1, 10, 18);
    receiver.on_read(8_000);
    assert_eq!(told(&mut receiver), (18, 5));
    // and a larger one is told at once
    receiver.set_buffer(30_000);
    assert_eq!(receiver.poll().map(|ack| ack.window), Some(30_000));
}
