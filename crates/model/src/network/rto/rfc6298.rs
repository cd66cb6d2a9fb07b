//! RFC 6298, sentence by sentence.

use super::tests::{bare, rto, sampled};
use super::*;
use crate::testing::ms;

fn sample(rto: &mut Rto, rtt: Span) {
    let sent = Time::ZERO + Span::from_secs(100);
    rto.on_sample(sent, sent + rtt);
}

#[test]
fn section_2_1_until_there_is_a_measurement_it_is_one_second() {
    let rto = rto(RtoConfig::default());
    assert_eq!((rto.timeout(), rto.smoothed(), rto.variance()), (Span::from_secs(1), None, None));
}

#[test]
fn section_2_2_the_first_measurement_gives_r_and_half_of_it() {
    let rto = sampled(bare(), &[100]);
    assert_eq!((rto.smoothed(), rto.variance()), (Some(ms(100)), Some(ms(50))));
    // SRTT + max (G, K*RTTVAR), K = 4
    assert_eq!(rto.timeout(), ms(300));
}

#[test]
fn section_2_3_a_further_measurement_moves_both_the_deviation_first() {
    let mut rto = sampled(bare(), &[100]);
    sample(&mut rto, ms(200));
    // 3/4 · 50 + 1/4 · |100 − 200|, with the SRTT before its update; 7/8 · 100 + 1/8 · 200
    assert_eq!(rto.variance(), Some(Span::from_micros(62_500)));
    assert_eq!(rto.smoothed(), Some(Span::from_micros(112_500)));
    assert_eq!(rto.timeout(), Span::from_micros(112_500 + 4 * 62_500));
}

#[test]
fn section_2_4_less_than_a_second_is_rounded_up() {
    let mut rto = sampled(RtoConfig::default(), &[100]);
    assert_eq!(rto.timeout(), Span::from_secs(1));
    sample(&mut rto, ms(2_000));
    assert!(rto.timeout() > Span::from_secs(1));
}

#[test]
fn section_2_5_a_maximum_is_60_seconds() {
    let mut rto = rto(RtoConfig::default());
    sample(&mut rto, Span::from_secs(50));
    assert_eq!(rto.timeout(), Span::from_secs(60));
}

#[test]
fn section_4_the_variance_term_is_at_least_the_clock_s_granularity() {
    let mut rto = rto(RtoConfig { granularity: ms(10), ..bare() });
    (0..200).for_each(|_| sample(&mut rto, ms(40)));
    assert_eq!(rto.timeout(), ms(50));
}

#[test]
fn section_5_5_and_5_6_the_timer_is_backed_off_and_then_expires_after_the_doubled_value() {
    let mut rto = sampled(RtoConfig::default(), &[600]);
    let timeouts: [u64; 8] = core::array::from_fn(|_| {
        rto.on_timeout();
        rto.timeout().as_millis()
    });
    // 1.8 s doubled; the maximum of (2.5) bounds it
    assert_eq!(timeouts, [3_600, 7_200, 14_400, 28_800, 57_600, 60_000, 60_000, 60_000]);
    assert_eq!(rto.backoff(), 64);
}

#[test]
fn section_5_a_new_measurement_resets_the_backoff() {
    let mut rto = sampled(RtoConfig::default(), &[600]);
    (0..4).for_each(|_| rto.on_timeout());
    sample(&mut rto, ms(600));
    // 600 + 4 · 3/4 · 300
    assert_eq!((rto.timeout(), rto.backoff()), (ms(1_500), 1));
    // and progress without a measurement does, where Karn permits it
    rto.on_timeout();
    assert_eq!(rto.timeout(), ms(3_000));
    rto.on_progress();
    assert_eq!(rto.timeout(), ms(1_500));
}

#[test]
fn section_5_7_after_a_lost_syn_data_begins_with_three_seconds() {
    let mut rto = rto(RtoConfig::default());
    rto.on_timeout();
    assert_eq!(rto.timeout(), Span::from_secs(2), "the SYN's own");
    rto.on_lost_syn();
    assert_eq!(rto.timeout(), Span::from_secs(3));
    sample(&mut rto, ms(500));
    assert_eq!(rto.timeout(), ms(1_500));
    // a longer one stays, and one that rests on a measurement too
    let mut long = self::rto(RtoConfig { initial: Span::from_secs(5), ..RtoConfig::default() });
    long.on_lost_syn();
    assert_eq!(long.timeout(), Span::from_secs(5));
    rto.on_lost_syn();
    assert_eq!(rto.timeout(), ms(1_500));
}
