//! Slow start, and repair by counting duplicates.

use super::super::preset::{Era, Flavour};
use super::super::{Decrease, Variant};
use super::script::run;
use super::{counting, plain};
use crate::units::Span;

#[test]
fn slow_start_opens_by_one_for_each_ack() {
    // RFC 5681 §3.1
    let config = plain(Flavour::NewReno);
    run(
        &config,
        "
        0 write 100
        > 0-9
        100 ack 1
        > 10-11
        100 ack 2
        > 12-13
        = cwnd 12 flight 12
    ",
    );
}

#[test]
fn a_third_duplicate_is_a_loss() {
    // RFC 5681 §3.2: half, send again, inflate by three and by one for each further duplicate, deflate
    let config = counting(Flavour::Reno, |c| c.limited_transmit = false);
    run(
        &config,
        "
        0 write 100
        > 0-9
        100 ack 0
        101 ack 0
        = cwnd 10
        102 ack 0
        > 0f
        = cwnd 5 ssthresh 5 recoveries 1
        103 ack 0
        104 ack 0           // window 5 + 5: 10 are outstanding
        105 ack 0
        > 10
        106 ack 0
        > 11
        200 ack 10          // all that was there before: the inflation goes
        > 12-14
        = cwnd 5.2
    ",
    );
}

#[test]
fn the_first_two_duplicates_let_new_segments_go() {
    // RFC 3042: the window is not opened by them
    let config = plain(Flavour::NewReno);
    run(
        &config,
        "
        0 write 100
        > 0-9
        100 ack 0
        > 10
        101 ack 0
        > 11
        = cwnd 10
        102 ack 0
        > 0f
        = cwnd 6 ssthresh 6
    ",
    );
}

#[test]
fn a_window_update_is_no_duplicate() {
    // RFC 5681 §2
    let config = counting(Flavour::Reno, |c| c.limited_transmit = false);
    run(
        &config,
        "
        0 write 100
        > 0-9
        100 ack 0 window 900
        101 ack 0 window 800
        102 ack 0 window 700
        = cwnd 10 recoveries 0
    ",
    );
}

#[test]
fn reno_leaves_recovery_at_the_first_new_ack() {
    let config = counting(Flavour::Reno, |c| {
        c.limited_transmit = false;
        c.ack_heuristic = false;
    });
    run(
        &config,
        "
        0 write 100
        > 0-9
        100 ack 0
        101 ack 0
        102 ack 0
        > 0f
        110 ack 0
        111 ack 0
        112 ack 0
        > 10
        200 ack 3           // 3 is missing as well
        = cwnd 5.2
        201 ack 3
        202 ack 3
        203 ack 3           // what was sent before the loss starts no second one (careful)
        = recoveries 1
    ",
    );
}

#[test]
fn new_reno_repairs_a_segment_each_round_trip() {
    // RFC 6582 §3.2 step 3: partial acknowledgements
    let config = counting(Flavour::NewReno, |c| c.limited_transmit = false);
    run(
        &config,
        "
        0 write 100
        > 0-9
        100 ack 0
        101 ack 0
        102 ack 0
        > 0f
        103 ack 0           // 0, 3 and 6 are missing: six duplicates in all
        104 ack 0
        105 ack 0
        > 10
        200 ack 3           // window 5 + 6 − 3 + 1: up to 3 + 9
        > 3p 11
        300 ack 6
        > 6p 12
        = recoveries 1
        400 ack 10          // the end: at most what is outstanding, and one
        > 13-14
        = cwnd 5
    ",
    );
}

#[test]
fn only_the_first_partial_ack_restarts_the_timer() {
    // RFC 6582 §4: impatient
    let config = counting(Flavour::NewReno, |c| c.limited_transmit = false);
    run(
        &config,
        "
        0 write 100
        > 0-9
        100 ack 1
        > 10-11
        = rto 1000 next 1100
        200 ack 1
        201 ack 1
        202 ack 1
        > 1f
        = next 1202
        300 ack 3
        > 3p
        = next 1300
        400 ack 5
        > 5p
        = next 1300
    ",
    );
}

#[test]
fn tahoe_starts_slowly_after_a_loss() {
    let config = counting(Flavour::Reno, |c| {
        c.variant = Variant::Tahoe;
        c.limited_transmit = false;
    });
    run(
        &config,
        "
        0 write 100
        > 0-9
        100 ack 0
        101 ack 0
        102 ack 0
        > 0t
        = cwnd 1 ssthresh 5
        200 ack 5
        > 5t 6t
        = cwnd 2
    ",
    );
}

#[test]
fn after_a_timeout_everything_is_sent_again() {
    // RFC 5681 §3.1 equation 4, §3.2 end: half of what was outstanding, one segment, go back
    let config = plain(Flavour::NewReno);
    run(
        &config,
        "
        0 write 100
        > 0-9
        1000 timer
        > 0t
        = cwnd 1 ssthresh 5 rto 2000
        1100 ack 1
        > 1t 2t
        = cwnd 2
        1200 ack 8          // the others had arrived
        > 8t 9t 10
    ",
    );
}

#[test]
fn a_second_timeout_keeps_the_threshold() {
    // RFC 5681 §3.1
    let config = plain(Flavour::NewReno);
    run(
        &config,
        "
        0 write 100
        > 0-9
        1000 timer
        > 0t
        3000 timer
        > 0t
        = cwnd 1 ssthresh 5 rto 4000
        7000 timer
        > 0t
        = rto 8000 ssthresh 5
    ",
    );
}

#[test]
fn a_timeout_that_was_early_is_undone() {
    // RFC 5682 §2.1: the acknowledgement after the one of the first segment moves on
    let config = counting(Flavour::NewReno, |c| c.f_rto = true);
    run(
        &config,
        "
        0 write 100
        > 0-9
        1000 timer
        > 0t
        = cwnd 1
        1010 ack 1          // new segments instead of old ones
        > 10-11
        1011 ack 2
        = spurious 1 cwnd 10
        1012 ack 3          // slow start, as before
        > 12-13
    ",
    );
}

#[test]
fn a_timeout_that_was_right_is_not() {
    let config = counting(Flavour::NewReno, |c| c.f_rto = true);
    run(
        &config,
        "
        0 write 100
        > 0-9
        1000 timer
        > 0t
        1010 ack 1
        > 10-11
        1110 ack 1          // a duplicate: 1 is missing indeed
        > 1t
        = spurious 0
    ",
    );
}

#[test]
fn small_segments_wait_for_an_answer() {
    // RFC 896
    let mut config = plain(Flavour::NewReno);
    config.nagle = true;
    run(
        &config,
        "
        0 write 100b
        > 0:100
        1 write 100b
        2 write 100b
        50 ack 0.1          // together
        > 0.1:200
    ",
    );
    config.nagle = false;
    run(
        &config,
        "
        0 write 100b
        > 0:100
        1 write 100b
        > 0.1:100
    ",
    );
}

#[test]
fn what_waits_is_cut_anew() {
    // small writes that could not be sent become full segments
    let mut config = plain(Flavour::NewReno);
    config.congestion.initial_window = 1.0;
    run(
        &config,
        "
        0 write 400b
        > 0:400
        1 write 400b
        > 0.4:400
        2 write 400b        // the window is one segment
        3 write 900b
        50 ack 0.8
        > 0.8 1.8:300
    ",
    );
}

#[test]
fn ns2_takes_the_window_and_not_the_flight() {
    let config = Era::Ns235.sender(Flavour::NewReno, 1000, 64.0, Span::ZERO);
    assert_eq!(config.decrease, Decrease::FromWindow);
    run(
        &config,
        "
        0 write 4           // an application with little to send
        > 0-1
        100 ack 1
        > 2-3
        100 ack 2
        100 ack 4
        = cwnd 5
        200 write 5
        > 4-8
        300 ack 4
        301 ack 4
        302 ack 4
        > 4f
        = cwnd 2.5 ssthresh 2
        303 ack 4
        400 ack 9
        = cwnd 2.9
    ",
    );
}
