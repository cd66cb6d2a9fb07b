//! Slow start, and repair by counting duplicates.

use super::super::preset::{Era, Flavour};
use super::super::{Decrease, Variant};
use super::script::{run, scripts};
use super::{changed, counting, plain};
use crate::testing::*;

scripts! {
    // RFC 5681 §3.1
    slow_start_opens_by_one_for_each_ack: plain(Flavour::NewReno), "
        full window
        100 ack 1
        > 10-11
        100 ack 2
        > 12-13
        = cwnd 12 flight 12
    ";

    // RFC 5681 §3.2: half, send again, inflate by three and by one for each further duplicate, deflate
    a_third_duplicate_is_a_loss: counting(Flavour::Reno, |c| c.limited_transmit = false), "
        full window
        100..101 ack 0
        = cwnd 10
        102 ack 0
        > 0f
        = cwnd 5 ssthresh 5 recoveries 1
        103..105 ack 0      // window 5 + 5: 10 are outstanding
        > 10
        106 ack 0
        > 11
        200 ack 10          // all that was there before: the inflation goes
        > 12-14
        = cwnd 5.2
    ";

    // RFC 3042: the window is not opened by them
    first_two_duplicates_release_new_segments: plain(Flavour::NewReno), "
        full window
        100 ack 0
        > 10
        101 ack 0
        > 11
        = cwnd 10
        102 ack 0           // half of ten: those two do not count
        > 0f
        = cwnd 5 ssthresh 5
    ";

    // RFC 5681 §2
    a_window_update_is_no_duplicate: counting(Flavour::Reno, |c| c.limited_transmit = false), "
        full window
        100 ack 0 window 900
        101 ack 0 window 800
        102 ack 0 window 700
        = cwnd 10 recoveries 0
    ";

    // RFC 6582 §3.2 step 3: partial acknowledgements
    new_reno_repairs_a_segment_each_round_trip: counting(Flavour::NewReno, |c| c.limited_transmit = false), "
        full window
        100..102 ack 0
        > 0f
        103..105 ack 0      // 0, 3 and 6 are missing: six duplicates in all
        > 10
        200 ack 3           // window 5 + 6 − 3 + 1: up to 3 + 9
        > 3p 11
        300 ack 6
        > 6p 12
        = recoveries 1
        400 ack 10          // the end: at most what is outstanding, and one
        > 13-14
        = cwnd 5
    ";

    // RFC 6582 §4: impatient
    only_the_first_partial_ack_restarts_the_timer: counting(Flavour::NewReno, |c| c.limited_transmit = false), "
        full window
        100 ack 1
        > 10-11
        = rto 1000 next 1100
        200..202 ack 1
        > 1f
        = next 1202
        300 ack 3
        > 3p
        = next 1300
        400 ack 5
        > 5p
        = next 1300
    ";

    // RFC 5681 §3.1 equation 4, §3.2 end: half of what was outstanding, one segment, go back
    after_a_timeout_everything_is_sent_again: plain(Flavour::NewReno), "
        full window
        1000 timer
        > 0t
        = cwnd 1 ssthresh 5 rto 2000
        1100 ack 1
        > 1t 2t
        = cwnd 2
        1200 ack 8          // the others had arrived
        > 8t 9t 10
    ";

    // RFC 5681 §3.1
    a_second_timeout_keeps_the_threshold: plain(Flavour::NewReno), "
        full window
        1000 timer
        > 0t
        3000 timer
        > 0t
        = cwnd 1 ssthresh 5 rto 4000
        7000 timer
        > 0t
        = rto 8000 ssthresh 5
    ";

    // RFC 5682 §2.1: the acknowledgement after the one of the first segment moves on
    undoes_a_spurious_timeout: counting(Flavour::NewReno, |c| c.f_rto = true), "
        full window
        1000 timer
        > 0t
        = cwnd 1
        1010 ack 1          // new segments instead of old ones
        > 10-11
        1011 ack 2
        = spurious 1 cwnd 10
        1012 ack 3          // slow start, as before
        > 12-13
    ";

    keeps_a_genuine_timeout: counting(Flavour::NewReno, |c| c.f_rto = true), "
        full window
        1000 timer
        > 0t
        1010 ack 1
        > 10-11
        1110 ack 1          // a duplicate: 1 is missing indeed
        > 1t
        = spurious 0
    ";

    reno_leaves_recovery_at_the_first_new_ack: counting(Flavour::Reno, |c| {
        c.limited_transmit = false;
        c.ack_heuristic = false;
    }), "
        full window
        100..102 ack 0
        > 0f
        110..112 ack 0
        > 10
        200 ack 3           // 3 is missing as well
        = cwnd 5.2
        201..203 ack 3      // what was sent before the loss starts no second one (careful)
        = recoveries 1
    ";

    tahoe_starts_slowly_after_a_loss: counting(Flavour::Reno, |c| {
        c.variant = Variant::Tahoe;
        c.limited_transmit = false;
    }), "
        full window
        100..102 ack 0
        > 0t
        = cwnd 1 ssthresh 5
        200 ack 5
        > 5t 6t
        = cwnd 2
    ";

    // small writes that could not be sent become full segments
    queued_data_is_resegmented: changed(|c| c.congestion.initial_window = 1.0), "
        0 write 400b
        > 0:400
        1 write 400b
        > 0.4:400
        2 write 400b        // the window is one segment
        3 write 900b
        50 ack 0.8
        > 0.8 1.8:300
    ";

    // RFC 896
    small_segments_wait_for_an_answer: changed(|c| c.nagle = true), "
        0 write 100b
        > 0:100
        1 write 100b
        2 write 100b
        50 ack 0.1          // together
        > 0.1:200
    ";

    small_segments_go_at_once_without_nagle: changed(|c| c.nagle = false), "
        0 write 100b
        > 0:100
        1 write 100b
        > 0.1:100
    ";
}

#[test]
fn ns2_takes_the_window_and_not_the_flight() {
    let config = Era::Ns235.sender(Flavour::NewReno, 1000, 64.0, Span::ZERO);
    assert_eq!(config.decrease, Decrease::FromWindow);
    let script = "
        0 write 4           // an application with little to send
        > 0-1
        100 ack 1
        > 2-3
        100 ack 2
        100 ack 4
        = cwnd 5
        200 write 5
        > 4-8
        300..302 ack 4
        > 4f
        = cwnd 2.5 ssthresh 2
        303 ack 4
        400 ack 9
        = cwnd 2.9
    ";
    run(&config, script);
}
