//! Repair with a scoreboard.

use super::script::{run, scripts};
use super::{rack, selective};
use crate::testing::*;

scripts! {
    // RFC 6675 §5: pipe counts what is in flight; three later arrivals, and the segment is sent again
    three_segments_above_mean_a_loss: selective(|_| {}), "
        full window
        100 ack 0 sack 1
        > 10                // limited transmit: one is known to have arrived
        101 ack 0 sack 1-2
        > 11
        102 ack 0 sack 1-3
        > 0s
        = cwnd 5 ssthresh 5 recoveries 1 flight 9
        103 ack 0 sack 1-4
        104 ack 0 sack 1-5
        105 ack 0 sack 1-6
        = flight 6
        106 ack 0 sack 1-7
        107 ack 0 sack 1-8
        > 12
    ";

    // RFC 6675 NextSeg (1): the lowest first
    several_holes_are_filled_in_one_round_trip: selective(|s| s.limited_transmit = false), "
        full window
        100 ack 0 sack 1
        101 ack 0 sack 3 1
        102 ack 0 sack 5 3 1
        > 0s                // 2 and 4 have fewer than three above them
        = flight 7
        103 ack 0 sack 5-6 3 1
        = flight 5          // 2 is lost, and the window full
        104 ack 0 sack 5-7 3 1
        > 2s 4s
        105 ack 0 sack 5-8 3 1
        > 10
        106 ack 0 sack 5-9 3 1
        > 11
        200 ack 2 sack 5-9 3
        > 12
        201 ack 4 sack 5-9
        > 13
        202 ack 10
        > 14
        = cwnd 5.2 recoveries 1
    ";

    // RFC 8985 §6.2: without reordering, earlier segments wait a quarter of the least round trip
    rack_judges_by_time: rack(), "
        sampled 100
        200 write 2
        > 1-2
        300 ack 1 sack 2
        = next 325          // 200 + 100 + 25
        325 timer
        > 1s
        = recoveries 1
    ";

    rack_sees_a_lost_retransmission: rack(), "
        full window
        100 ack 0 sack 1
        101 ack 0 sack 1-2
        102 ack 0 sack 1-3
        > 0s
        103 ack 0 sack 1-4
        104 ack 0 sack 1-5
        105 ack 0 sack 1-6
        > 10
        206 ack 0 sack 1-6 10 // sent at 105, after the repetition
        > 0s 7s 8s 9s 11     // 7, 8 and 9 were sent before it as well
        = timeouts 0
    ";

    // RFC 8985 §6.2 step 3: in the order of the segments, whatever the order of the blocks
    segments_of_one_ack_are_not_reordered: rack(), "
        sampled 100
        200 write 5
        > 1-5
        300 ack 2 sack 3    // 1 was acknowledged late, with what came after the loss
        301 ack 2 sack 3-4
        302 ack 2 sack 3-5  // three: no reordering window
        > 2s
    ";

    // RFC 5682 §3 in Linux's way
    late_original_proves_a_timeout_spurious: selective(|s| s.f_rto = true), "
        full window
        1000 timer
        > 0t
        = cwnd 1
        1010 ack 1          // of which of the two? new segments will tell
        > 10-11
        1011 ack 2
        > 
        = spurious 1 cwnd 10
    ";

    // RFC 3168 §6.1.2
    reacts_to_marks_once_a_window: selective(|_| {}), "
        full window
        100 ack 1 mark
        = cwnd 5 ssthresh 5
        101 ack 2 mark
        102 ack 3 mark
        103 ack 4 mark
        104 ack 5 mark
        105 ack 6 mark
        > 10!
        = cwnd 5
    ";

    // RFC 6937: no silence of half a round trip
    reduction_in_proportion: selective(|s| {
        s.proportional = true;
        s.limited_transmit = false;
    }), "
        full window
        100 ack 0 sack 1
        101 ack 0 sack 1-2
        102 ack 0 sack 1-3
        > 0s
        = ssthresh 5
        103 ack 0 sack 1-4
        104 ack 0 sack 1-5
        105 ack 0 sack 1-6
        > 10                // the reduced window is reached: one for one
        106 ack 0 sack 1-7
        > 11
        107 ack 0 sack 1-8
        > 12
        108 ack 0 sack 1-9
        > 13
        200 ack 10
        > 14
        = cwnd 5.2
    ";

    // RFC 8985 §7: after two round trips without an answer, the last segment again
    a_lost_tail_is_probed: selective(|s| {
        s.rack = true;
        s.tail_probe = true;
    }), "
        sampled 100
        200 write 4
        > 1-4
        = next 400
        400 timer
        > 4l
        500 ack 1 sack 4
        > 1s 2s             // half of four
        = timeouts 0 recoveries 1
    ";

    // RFC 8985 §7.4.2: acknowledged, and nothing came twice
    a_probe_that_repaired_the_only_loss_is_a_loss: selective(|s| s.tail_probe = true), "
        sampled 100
        200 write 4
        > 1-4
        300 ack 4
        = next 700          // 300 + 2 × 100 + 200 for a lone segment
        700 timer
        > 4l
        800 ack 5
        = ssthresh 2
    ";

    a_probe_of_a_late_segment_is_no_loss: selective(|s| s.tail_probe = true), "
        sampled 100
        200 write 4
        > 1-4
        300 ack 4
        700 timer
        > 4l
        710 ack 5 twice 4   // it was only late
        = ssthresh inf
    ";
}

#[test]
fn a_probe_goes_in_place_of_a_timeout() {
    // RFC 8985 §7.2: PTO is at most what is left of the RTO, and §8: it restarts that
    let mut config = selective(|s| s.tail_probe = true);
    config.rto.minimum = ms(200);
    let script = "
        0 write 1
        > 0
        = next 1000         // no round trip is known: 1 s, as the RTO
        100 ack 1
        200 write 1
        > 1
        = next 500          // 2 × 100 + 200 is more than an RTO of 100 + 4 × 50
        500 timer
        > 1l
        = timeouts 0 next 800
        800 timer
        > 1t
        = timeouts 1
    ";
    run(&config, script);
}
