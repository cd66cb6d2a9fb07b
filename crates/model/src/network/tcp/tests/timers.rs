//! The retransmission timer (RFC 6298 §5), idle times, pacing.

use super::super::preset::Flavour;
use super::super::{Acknowledgement, Pacing, Sender};
use super::script::{run, scripts};
use super::{changed, plain};
use crate::testing::*;

scripts! {
    the_timer_runs_while_something_is_outstanding: plain(Flavour::NewReno), "
        = next 0
        0 write 3
        > 0-2
        = next 1000         // 5.1
        100 ack 1
        = rto 1000 next 1100 // 5.3
        200 ack 3
        = next 0            // 5.2
    ";

    // RFC 6298 §3: Karn
    karn_only_segments_sent_once_are_measured: changed(|c| c.rto.minimum = Span::from_millis(1)), "
        0 write 1
        > 0
        1000 timer
        > 0t
        1100 ack 1
        = rto 2000          // no sample, and the back-off stays
        1200 write 1
        > 1
        1300 ack 2
        = rto 300           // 100 + 4 × 50
    ";

    // the thin-client study, first remedy: the first segment after a pause is protected by the initial time-out
    idle_resets_the_estimate_and_keeps_the_window: changed(|c| {
        c.restart_after_idle = false;
        c.reset_rto_after_idle = true;
        c.rto.initial = Span::from_secs(3);
        c.rto.minimum = Span::from_millis(100);
    }), "
        0 write 20
        > 0-9
        44 ack 10
        > 10-19
        = rto 132           // 44 + 4 × 22
        88 ack 20
        150 write 1         // not idle for long: nothing happens
        > 20
        200 ack 21
        500 write 3
        > 21-23
        = rto 3000 next 3500
        544 ack 22
        = rto 132
    ";

    segments_are_spread_over_the_round_trip: changed(|c| c.pacing = Some(Pacing { starting: 2.0, steady: 1.2 })), "
        full window
        100 ack 10          // window 11, slow start: 100 ms / (2 × 11) from one to the next
        > 10
        = next 104.545
        105 write 1
        > 11
    ";
}

#[test]
fn idle_longer_than_the_time_out_starts_slowly_again() {
    // RFC 5681 §4.1
    let mut config = plain(Flavour::NewReno);
    config.congestion.initial_window = 2.0;
    let script = |after: &str| {
        format!(
            "
        0 write 8
        > 0-1
        100 ack 1
        > 2-3
        100 ack 2
        > 4-5
        200 ack 4
        > 6-7
        300 ack 8
        5000 write 10
        {after}
        "
        )
    };
    run(&config, &script("> 8-9"));
    config.restart_after_idle = false;
    run(&config, &script("> 8-13\n= rto 1000"));
}

#[test]
fn after_a_lost_syn_the_first_data_waits_three_seconds() {
    // RFC 6298 (5.7), and RFC 5681 §3.1: one segment
    let mut sender = Sender::new(&plain(Flavour::NewReno), Time::ZERO);
    sender.on_open(Time::ZERO, 1_000_000, None, true);
    sender.on_write(Time::ZERO, 10_000);
    assert!(sender.poll(Time::ZERO).is_some());
    assert!(sender.poll(Time::ZERO).is_none());
    assert_eq!(sender.deadline(), Time::ZERO + Span::from_secs(3));
}

#[test]
fn a_window_that_is_too_small_is_probed() {
    // RFC 9293 §3.8.6.1: after a time-out, then at twice the distance each
    let mut sender = Sender::new(&plain(Flavour::NewReno), at(0));
    sender.on_write(at(0), 5_000);
    assert_eq!((sender.poll(at(0)), sender.deadline()), (None, Time::NEVER), "no handshake yet");
    sender.on_open(at(0), 300, None, false);
    assert_eq!((sender.poll(at(0)), sender.deadline()), (None, at(1_000)));
    sender.on_deadline(at(999));
    assert_eq!(sender.poll(at(999)), None);
    let probe = |sender: &mut Sender, ms, ack, window| {
        sender.on_deadline(at(ms));
        let segment = sender.poll(at(ms)).unwrap();
        assert_eq!(sender.poll(at(ms)), None, "one at a time");
        sender.on_ack(at(ms), &Acknowledgement { ack, window, ..Acknowledgement::default() });
        (segment.start, segment.len)
    };
    assert_eq!(probe(&mut sender, 1_000, 300, 0), (0, 300), "what the window takes");
    assert_eq!((sender.poll(at(1_000)), sender.deadline()), (None, at(3_000)));
    assert_eq!(probe(&mut sender, 3_000, 301, 0), (300, 1), "a byte of what waits");
    assert_eq!((sender.poll(at(3_000)), sender.deadline()), (None, at(7_000)));
    assert_eq!(probe(&mut sender, 7_000, 302, 1_000), (301, 1));
    assert_eq!(sender.poll(at(7_000)).map(|segment| segment.len), Some(1_000), "it is open");
}
