use super::*;
use crate::control::congestion::{Counting, Phase, SlowStart};
use crate::testing::*;

const RTT: Span = Span::from_millis(100);

fn config() -> Config {
    Config {
        initial_window: 100.0,
        initial_threshold: 100.0,
        counting: Counting::PerAck,
        slow_start: SlowStart::Standard,
        ..Config::default()
    }
}

fn pure() -> CubicConfig {
    CubicConfig { fast_convergence: false, friendly: false, ..CubicConfig::default() }
}

fn cubic(constants: CubicConfig) -> Cubic {
    Cubic::new(&config(), constants, Time::ZERO)
}

fn ack(now: Time) -> Ack {
    Ack {
        now,
        acked: 1.0,
        in_flight: 100.0,
        rtt: Some(RTT),
        smoothed: RTT,
        limited: true,
        ..Ack::default()
    }
}

/// Rounds of as many evenly spaced ACKs as the window holds, to `until`.
fn run(cubic: &mut Cubic, from: Time, until: Time) {
    let mut now = from;
    while now < until {
        cubic.on_ack(&ack(now));
        now += Span::from_nanos((RTT.as_nanos() as f64 / cubic.window()) as u64);
    }
}

#[test]
fn loss_reduces_to_seven_tenths_and_sets_k() {
    // RFC 9438 §4.6: ssthresh = flight_size · 0.7; §4.2: K = ∛((W_max − cwnd_epoch) / C) = ∛75
    let mut cubic = cubic(pure());
    cubic.on_loss(at(0), 100.0);
    assert_eq!((cubic.window(), cubic.threshold()), (70.0, 70.0));
    assert_eq!(cubic.snapshot().k, None, "the epoch begins with the first ACK");
    cubic.on_ack(&ack(at(100)));
    let snapshot = cubic.snapshot();
    assert_eq!((snapshot.w_max, snapshot.phase), (Some(100.0), Phase::Avoidance));
    assert!((snapshot.k.unwrap() - 4.217_163_326_508_746).abs() < 1e-12);
    // the threshold is at least 2
    cubic.on_loss(at(100), 1.0);
    assert_eq!((cubic.window(), cubic.threshold()), (2.0, 2.0));
}

#[test]
fn curve_passes_computed_points() {
    // 0.4 · (t − ∛75)³ + 100, computed independently
    let epoch = Epoch { began: at(0), w_max: 100.0, k: libm::cbrt(75.0), w_est: 0.0 };
    for (t, expected) in [
        (0.0, 70.0),
        (1.0, 86.680_763_835),
        (2.0, 95.640_335_687),
        (4.0, 99.995_903_439),
        (5.0, 100.191_899_339),
        (8.0, 121.652_735_140),
        (10.0, 177.353_999_088),
    ] {
        let window = epoch.window(0.4, t);
        assert!((window - expected).abs() < 1e-8, "{t} s: {window}");
    }
}

#[test]
fn the_window_follows_the_curve() {
    let mut cubic = cubic(pure());
    cubic.on_loss(at(0), 100.0);
    let mut from = at(0);
    for (ms, expected) in
        [(1_000, 86.68), (2_000, 95.64), (4_000, 100.0), (8_000, 121.65), (10_000, 177.35)]
    {
        run(&mut cubic, from, at(ms));
        from = at(ms);
        let window = cubic.window();
        assert!((window / expected - 1.0).abs() < 0.01, "{ms} ms: {window}");
    }
}

#[test]
fn one_ack_adds_its_share_of_the_way_to_the_target() {
    // RFC 9438 §4.4: (target − cwnd) / cwnd, with target = W_cubic(t + RTT)
    let mut cubic = cubic(pure());
    cubic.on_loss(at(0), 100.0);
    cubic.on_ack(&ack(at(0)));
    let target = 0.4 * (0.1 - libm::cbrt(75.0)).powi(3) + 100.0;
    assert!((cubic.window() - (70.0 + (target - 70.0) / 70.0)).abs() < 1e-12);
    // and never more than half the window
    let far = ack(at(60_000));
    let before = cubic.window();
    cubic.on_ack(&far);
    assert!((cubic.window() - (before + 0.5)).abs() < 1e-12, "{}", cubic.window() - before);
}

#[test]
fn by_bytes_an_ack_of_two_segments_counts_twice() {
    let counting = Counting::Bytes { limit: 2.0 };
    let mut bytes = Cubic::new(&Config { counting, ..config() }, pure(), at(0));
    let mut acks = cubic(pure());
    for cubic in [&mut bytes, &mut acks] {
        cubic.on_loss(at(0), 100.0);
        cubic.on_ack(&Ack { acked: 2.0, ..ack(at(0)) });
    }
    let (twice, once) = (bytes.window() - 70.0, acks.window() - 70.0);
    assert!((twice - 2.0 * once).abs() < 1e-12, "{twice} {once}");
}

#[test]
fn at_a_short_rtt_the_window_is_reno_s() {
    // RFC 9438 §4.3: α = 3·0.3/1.7 until cwnd_prior is reached, 1 from then on. 0.1 s at 1 ms RTT
    // are 100 rounds in which the curve gains 0.4 · … < 4 segments
    let mut cubic = Cubic::new(&config(), CubicConfig::default(), at(0));
    cubic.on_loss(at(0), 100.0);
    let mut rounds = 0;
    let mut per_round = Vec::new();
    while cubic.window() < 110.0 {
        let before = cubic.window();
        for _ in 0..cubic.window() as u64 {
            let now = at(rounds);
            cubic.on_ack(&Ack { smoothed: Span::from_millis(1), ..ack(now) });
        }
        per_round.push((before, cubic.window() - before));
        rounds += 1;
    }
    for (window, grown) in per_round {
        let expected = match window {
            ..99.0 => 0.9 / 1.7,
            100.0.. => 1.0,
            _ => continue,
        };
        // whole ACKs in a round, and a window that grows during it
        assert!((grown - expected).abs() < 0.02 * expected, "at {window}: {grown}");
    }
}

#[test]
fn windows_that_shrink_from_loss_to_loss_give_way() {
    // RFC 9438 §4.7: W_max = cwnd · (1 + β) / 2
    let mut cubic = cubic(CubicConfig { friendly: false, ..CubicConfig::default() });
    cubic.on_loss(at(0), 100.0);
    assert_eq!(cubic.snapshot().w_max, Some(100.0));
    cubic.on_loss(at(100), 70.0);
    let w_max = cubic.snapshot().w_max.unwrap();
    assert!((w_max - 59.5).abs() < 1e-12, "{w_max}");
    let mut alone = self::cubic(pure());
    alone.on_loss(at(0), 100.0);
    alone.on_loss(at(100), 70.0);
    assert_eq!(alone.snapshot().w_max, Some(70.0));
}

#[test]
fn after_a_time_out_the_curve_begins_flat() {
    // RFC 9438 §4.8: ssthresh by β, K = 0, W_max = W_est = cwnd where avoidance begins
    let mut cubic = cubic(CubicConfig::default());
    cubic.on_loss(at(0), 100.0);
    cubic.on_timeout(at(0), 10.0, false);
    assert_eq!((cubic.window(), cubic.threshold()), (1.0, 7.0));
    (0..6).for_each(|_| cubic.on_ack(&ack(at(100))));
    assert_eq!((cubic.window(), cubic.snapshot().k), (7.0, None));
    cubic.on_ack(&ack(at(200)));
    let snapshot = cubic.snapshot();
    assert_eq!((snapshot.w_max, snapshot.k), (Some(7.0), Some(0.0)));
    assert!((snapshot.w_est.unwrap() - (7.0 + 0.9 / 1.7 / 7.0)).abs() < 1e-12);
}

#[test]
fn slow_start_without_loss_begins_flat() {
    // RFC 9438 §4.10; cwnd_prior = cwnd, so that α is 1
    let mut cubic = cubic(CubicConfig::default());
    cubic.on_ack(&ack(at(0)));
    let snapshot = cubic.snapshot();
    assert_eq!((snapshot.w_max, snapshot.k), (Some(100.0), Some(0.0)));
    assert_eq!(snapshot.w_est, Some(100.01));
}

#[test]
fn undo_restores_everything() {
    // RFC 9438 §4.9.2
    let mut cubic = cubic(CubicConfig::default());
    cubic.on_loss(at(0), 100.0);
    run(&mut cubic, at(0), at(3_000));
    let before = cubic.snapshot();
    cubic.on_loss(at(3_000), 98.0);
    assert!(cubic.window() < before.window);
    cubic.undo(at(3_100));
    assert_eq!(cubic.snapshot(), before);
    run(&mut cubic, at(3_100), at(3_200));
    let before = cubic.snapshot();
    cubic.on_timeout(at(3_200), 98.0, false);
    cubic.on_timeout(at(3_800), 1.0, true);
    cubic.undo(at(4_000));
    assert_eq!(cubic.snapshot(), before);
}

#[test]
fn large_ack_reaches_the_target_only() {
    let counting = Counting::Bytes { limit: f64::INFINITY };
    let mut cubic = Cubic::new(&Config { counting, ..config() }, pure(), at(0));
    cubic.on_loss(at(0), 100.0);
    cubic.on_ack(&Ack { acked: 140.0, ..ack(at(0)) });
    let target = 0.4 * (0.1 - libm::cbrt(75.0)).powi(3) + 100.0;
    assert!((cubic.window() - target).abs() < 1e-12);
}

#[test]
fn restart_begins_an_epoch_towards_the_same_window() {
    let mut cubic = Cubic::new(&Config { initial_window: 60.0, ..config() }, pure(), at(0));
    cubic.on_ack(&ack(at(0)));
    cubic.on_loss(at(0), 60.0);
    run(&mut cubic, at(0), at(1_000));
    let w_max = cubic.snapshot().w_max;
    cubic.on_restart(at(9_000));
    assert_eq!((cubic.snapshot().k, cubic.snapshot().w_max), (None, w_max));
    run(&mut cubic, at(9_000), at(9_100));
    let (k, w_max) = (cubic.snapshot().k.unwrap(), w_max.unwrap());
    assert!(k > 0.0 && k < libm::cbrt(w_max * 0.3 / 0.4), "from higher up: {k}");
}

#[test]
fn time_without_anything_to_send_is_no_part_of_the_curve() {
    // RFC 9438 §4.2 and §5.8
    let (mut busy, mut pausing) = (cubic(pure()), cubic(pure()));
    for cubic in [&mut busy, &mut pausing] {
        cubic.on_loss(at(0), 100.0);
        run(cubic, at(0), at(2_000));
    }
    let paused = pausing.window();
    // ten seconds of a trickle that the application sets
    (20..120).for_each(|n| pausing.on_ack(&Ack { limited: false, ..ack(at(n * 100)) }));
    assert_eq!(pausing.window(), paused);
    run(&mut busy, at(2_000), at(5_000));
    run(&mut pausing, at(11_900), at(14_900));
    assert!((busy.window() - pausing.window()).abs() < 0.1, "{busy:?} {pausing:?}");
}

#[test]
fn silence_after_the_last_ack_is_no_part_of_the_curve() {
    let mut cubic = cubic(pure());
    cubic.on_loss(at(0), 100.0);
    run(&mut cubic, at(0), at(2_000));
    let began = |cubic: &Cubic| cubic.curve.epoch.unwrap().began;
    assert_eq!(began(&cubic), at(0));
    // the last ACK leaves nothing outstanding; a minute later the next data, and its ACK
    cubic.on_ack(&Ack { in_flight: 1.0, ..ack(at(2_000)) });
    cubic.on_ack(&ack(at(62_100)));
    assert_eq!(began(&cubic), at(60_000));
    cubic.on_ack(&ack(at(62_200)));
    assert_eq!(began(&cubic), at(60_000), "what is outstanding is not idle");
}
