use super::*;
use crate::testing::*;

pub(super) fn rto(config: RtoConfig) -> Rto {
    assert_eq!(config.check(), Ok(()));
    Rto::new(&config, Time::ZERO)
}

/// Without a minimum, so that the formulas are seen.
pub(super) fn bare() -> RtoConfig {
    RtoConfig { minimum: Span::ZERO, ..RtoConfig::default() }
}

fn ticks(tick: u64, phase: u64) -> RtoConfig {
    let estimator = Estimator::Ticks { tick: ms(tick), phase: ms(phase) };
    RtoConfig { estimator, initial: Span::from_secs(3), ..bare() }
}

pub(super) fn sampled(config: RtoConfig, rtts: &[u64]) -> Rto {
    let mut rto = rto(config);
    samples(&mut rto, rtts);
    rto
}

fn samples(rto: &mut Rto, rtts: &[u64]) {
    for rtt in rtts {
        rto.on_sample(at(0), at(*rtt));
    }
}

#[test]
fn after_a_reset_the_first_packet_has_three_seconds_and_its_sample_gives_three_rtts() {
    // the thin-client study, remedy 1; algorithms/thin-client B.7
    for config in [
        RtoConfig { initial: Span::from_secs(3), ..bare() },
        ticks(10, 0),
        RtoConfig { initial: Span::from_secs(3), ..RtoConfig::linux() },
    ] {
        let mut rto = sampled(config, &[40, 60, 50]);
        rto.on_timeout();
        rto.reset();
        let fresh =
            Snapshot { timeout: Span::from_secs(3), smoothed: None, variance: None, backoff: 1 };
        assert_eq!(rto.snapshot(), fresh, "{config:?}");
        samples(&mut rto, &[150]);
        assert_eq!(rto.timeout(), ms(450), "{config:?}");
    }
}

#[test]
fn with_g_of_seven_eighths_three_samples_leave_a_512th() {
    // the thin-client study, remedy 2; algorithms/thin-client B.7: (1/8)³ = 0.2 % instead of (7/8)³ = 67 %
    let smoothed = |gain| {
        let rto = sampled(RtoConfig { gain, ..bare() }, &[1_000, 0, 0, 0]);
        rto.smoothed().unwrap().as_nanos()
    };
    assert_eq!(smoothed(Gain::SEVEN_EIGHTHS), 1_000_000_000 / 512);
    assert_eq!(smoothed(Gain::EIGHTH), 1_000_000_000 / 512 * 343);
}

#[test]
fn from_the_new_srtt_a_deviation_is_one_minus_g_times_as_large() {
    let added = |gain, deviation| {
        let mut rto = sampled(RtoConfig { gain, deviation, ..bare() }, &[100]);
        let kept = rto.variance().unwrap().as_micros() * 3 / 4;
        samples(&mut rto, &[200]);
        rto.variance().unwrap().as_micros() - kept
    };
    assert_eq!(added(Gain::SEVEN_EIGHTHS, Deviation::FromOld), 25_000);
    assert_eq!(added(Gain::SEVEN_EIGHTHS, Deviation::FromNew), 25_000 / 8);
    assert_eq!(added(Gain::EIGHTH, Deviation::FromOld), 25_000);
    assert_eq!(added(Gain::EIGHTH, Deviation::FromNew), 25_000 * 7 / 8);
}

#[test]
fn minimum_applies_to_the_requested_rto() {
    let timeouts = |floor| {
        let mut rto = sampled(RtoConfig { floor, ..RtoConfig::default() }, &[100]);
        let first = rto.timeout().as_millis();
        rto.on_timeout();
        rto.on_timeout();
        (first, rto.timeout().as_millis())
    };
    assert_eq!(timeouts(Floor::BeforeBackoff), (1_000, 4_000));
    assert_eq!(timeouts(Floor::AfterBackoff), (1_000, 1_200), "4 · 300 ms");
    assert_eq!(timeouts(Floor::Variance), (1_100, 4_400));
}

#[test]
fn back_off_ends_at_the_most() {
    let mut rto = sampled(RtoConfig { most_backoff: 4, ..bare() }, &[100]);
    (0..9).for_each(|_| rto.on_timeout());
    assert_eq!((rto.backoff(), rto.timeout()), (4, ms(1_200)));
}

#[test]
fn caps_samples_at_a_day() {
    let gain = Gain { numerator: u16::MAX, denominator: u16::MAX };
    for config in [RtoConfig { gain, ..bare() }, RtoConfig::linux(), ticks(10, 0)] {
        let mut rto = rto(config);
        rto.on_sample(Time::ZERO, Time::ZERO);
        rto.on_sample(Time::ZERO, Time::NEVER);
        assert_eq!(rto.timeout(), config.maximum, "{config:?}");
    }
    let mut rto = rto(RtoConfig { gain, ..bare() });
    rto.on_sample(Time::ZERO, Time::NEVER);
    assert_eq!(rto.smoothed(), Some(Span::from_secs(86_400)));
}

#[test]
fn a_sample_in_ticks_is_the_number_of_boundaries_crossed() {
    let told = |phase, sent, now| {
        let mut rto = rto(ticks(100, phase));
        rto.on_sample(at(sent), at(now));
        rto.smoothed().unwrap().as_millis()
    };
    assert_eq!(told(0, 50, 370), 300, "100, 200, 300");
    assert_eq!(told(0, 99, 100), 100, "1 ms across a boundary is a tick");
    assert_eq!(told(0, 100, 299), 100, "199 ms between two are one");
    assert_eq!(told(0, 1, 99), 100, "at least one");
    assert_eq!(told(30, 50, 370), 300, "130, 230, 330");
    assert_eq!(told(80, 50, 370), 300, "80, 180, 280");
    assert_eq!(told(60, 50, 370), 400, "60, 160, 260, 360");
}

#[test]
fn ticks_are_shifted_as_jacobson_did() {
    let mut rto = sampled(ticks(100, 0), &[300]);
    // srtt 24/8, rttvar 6/4: (24 + 48)/8 = 9 ticks
    assert_eq!((rto.smoothed(), rto.variance()), (Some(ms(300)), Some(ms(150))));
    assert_eq!(rto.timeout(), ms(900));
    samples(&mut rto, &[500]);
    // error 2: srtt 26/8, rttvar (6 + 2 − 6/4)/4 = 7/4: (26 + 56)/8 = 10 ticks
    assert_eq!((rto.smoothed(), rto.variance()), (Some(ms(325)), Some(ms(175))));
    assert_eq!(rto.timeout(), ms(1_000));
    samples(&mut rto, &[100]);
    // error 1 − 26/8 = −2: srtt 24/8, rttvar (7 + 2 − 7/4)/4 = 8/4: (24 + 64)/8 = 11 ticks
    assert_eq!((rto.smoothed(), rto.variance()), (Some(ms(300)), Some(ms(200))));
    assert_eq!(rto.timeout(), ms(1_100));
}

#[test]
fn ticks_have_two_at_the_least() {
    let mut rto = rto(RtoConfig { initial: ms(50), ..ticks(100, 0) });
    assert_eq!(rto.timeout(), ms(200));
    // nor does rttvar ever come to less than half a tick, by shifts: 1 + 4 · 2/4
    samples(&mut rto, &[100; 20]);
    assert_eq!((rto.smoothed(), rto.timeout()), (Some(ms(100)), ms(300)));
}

#[test]
fn in_ticks_an_estimate_is_given_up_beyond_a_back_off_of_eight() {
    let mut rto = sampled(ticks(100, 0), &[300]);
    (0..3).for_each(|_| rto.on_timeout());
    assert_eq!((rto.backoff(), rto.smoothed()), (8, Some(ms(300))));
    rto.on_timeout();
    assert_eq!((rto.backoff(), rto.smoothed(), rto.timeout()), (16, None, ms(14_400)));
    samples(&mut rto, &[500]);
    assert_eq!((rto.smoothed(), rto.timeout()), (Some(ms(500)), ms(1_500)), "as the first");
}

#[test]
fn linux_waits_at_least_200_ms_longer_than_the_rtt() {
    let mut rto = sampled(RtoConfig::linux(), &[40]);
    assert_eq!(rto.timeout(), ms(240));
    for n in 1..100 {
        rto.on_sample(at(n * 40), at((n + 1) * 40));
    }
    assert_eq!(rto.timeout(), ms(240));
}

#[test]
fn linux_s_deviation_is_the_greatest_of_an_rtt_and_falls_by_a_quarter_of_the_difference() {
    let mut rto = rto(RtoConfig::linux());
    let us = Span::from_micros;
    rto.on_sample(at(0), at(1_000));
    assert_eq!(rto.timeout(), ms(3_000));
    // mean 3/4 · 2 s = 1.5 s, greatest still 2 s
    rto.on_sample(at(1_000), at(2_000));
    assert_eq!(rto.timeout(), ms(3_000));
    // mean 1.125 s is the greatest of the next: 2 − (2 − 1.125)/4
    rto.on_sample(at(2_000), at(3_000));
    assert_eq!(rto.timeout(), us(2_781_250));
    // the same RTT still: sent before it began
    rto.on_sample(at(2_500), at(3_500));
    assert_eq!(rto.timeout(), us(2_781_250));
}

#[test]
fn linux_s_deviation_grows_less_when_the_rtt_falls() {
    // four times the mean deviation: 2 s + (0.9 − 2/4) · 1 or 1/8
    for (rtt, expected) in [(1_900, 2_400), (100, 2_050)] {
        let mut rto = rto(RtoConfig::linux());
        rto.on_sample(at(0), at(1_000));
        rto.on_sample(at(900), at(900 + rtt));
        assert_eq!(rto.variance().unwrap().as_micros(), expected * 1_000 / 4, "{rtt} ms");
    }
}

#[test]
fn refuses_in_words() {
    let fine = RtoConfig::default();
    let half = Gain { numerator: 1, denominator: 2 };
    let tick = |tick, phase| Estimator::Ticks { tick: ms(tick), phase: ms(phase) };
    for (config, word) in [
        (RtoConfig { gain: Gain { numerator: 0, denominator: 8 }, ..fine }, "gain g is 0/8"),
        (RtoConfig { deviation_gain: Gain { numerator: 9, denominator: 8 }, ..fine }, "gain h"),
        (RtoConfig { initial: ms(1), ..fine }, "minimum 1 s"),
        (RtoConfig { initial: Span::from_secs(61), ..fine }, "maximum 60 s"),
        (RtoConfig { maximum: Span::MAX, ..fine }, "at most"),
        (RtoConfig { initial: Span::ZERO, ..bare() }, "above 0"),
        (RtoConfig { most_backoff: 48, ..fine }, "power of two"),
        (RtoConfig { gain: Gain::SEVEN_EIGHTHS, ..ticks(10, 0) }, "exact estimator"),
        (RtoConfig { deviation_gain: half, ..ticks(10, 0) }, "exact estimator"),
        (RtoConfig { deviations: 2, ..RtoConfig::linux() }, "k 4"),
        (RtoConfig { deviation: Deviation::FromNew, ..ticks(10, 0) }, "old smoothed RTT"),
        (RtoConfig { floor: Floor::BeforeBackoff, ..RtoConfig::linux() }, "variance"),
        (RtoConfig { floor: Floor::Variance, ..ticks(10, 0) }, "before or after"),
        (RtoConfig { estimator: tick(10, 10), ..bare() }, "phase"),
        (RtoConfig { estimator: tick(31_000, 0), ..bare() }, "two ticks"),
    ] {
        let refused = config.check().unwrap_err();
        assert!(refused.contains(word), "{refused}");
    }
}

fn configs() -> impl Strategy<Value = RtoConfig> {
    let gain = || {
        (1_u16..20, 0_u16..20).prop_map(|(n, more)| Gain { numerator: n, denominator: n + more })
    };
    let span = |most_ms: u64| (0..most_ms).prop_map(Span::from_millis);
    let limits = (span(1_500), span(3_000), span(100_000), span(50), 0_u32..12);
    let estimator = prop_oneof![
        3 => (gain(), gain(), 1_u32..8, any::<bool>(), 0..3_usize).prop_map(
            |(gain, deviation_gain, deviations, new, floor)| RtoConfig {
                gain,
                deviation_gain,
                deviations,
                deviation: if new { Deviation::FromNew } else { Deviation::FromOld },
                floor: [Floor::BeforeBackoff, Floor::AfterBackoff, Floor::Variance][floor],
                ..RtoConfig::default()
            }
        ),
        2 => (1_u64..500, any::<u64>(), any::<bool>()).prop_map(|(tick, phase, after)| RtoConfig {
            estimator: Estimator::Ticks { tick: ms(tick), phase: ms(phase % tick) },
            floor: if after { Floor::AfterBackoff } else { Floor::BeforeBackoff },
            ..RtoConfig::default()
        }),
        2 => Just(RtoConfig::linux()),
    ];
    (estimator, limits).prop_map(|(config, (minimum, initial, maximum, granularity, shift))| {
        let initial = (minimum + initial).max(ms(1));
        let (maximum, most_backoff) = (initial + maximum + ms(1_000), 1 << shift);
        RtoConfig { minimum, initial, maximum, granularity, most_backoff, ..config }
    })
}

#[derive(Debug, Clone, Copy)]
enum Event {
    Sample(u64),
    Timeout,
    Progress,
    LostSyn,
    Reset,
}

fn events() -> impl Strategy<Value = Vec<(u64, Event)>> {
    let rtt = prop_oneof![9 => 0_u64..2_000_000, 1 => any::<u64>()];
    let event = prop_oneof![
        8 => rtt.prop_map(Event::Sample),
        4 => Just(Event::Timeout),
        1 => Just(Event::Progress),
        1 => Just(Event::LostSyn),
        1 => Just(Event::Reset),
    ];
    proptest::collection::vec((0_u64..3_000_000, event), 1..100)
}

proptest! {
    #[test]
    fn between_its_limits_and_longer_with_each_time_out(config in configs(), events in events()) {
        prop_assert_eq!(config.check(), Ok(()));
        let mut rto = rto(config);
        let mut now = Time::ZERO;
        // what the smoothed RTT lies between
        let mut seen: Option<(Span, Span)> = None;
        for (gap_us, event) in events {
            now += Span::from_micros(gap_us);
            let before = rto.timeout();
            match event {
                Event::Sample(us) => {
                    let rtt = Span::from_micros(us).min(exact::LONGEST);
                    now += rtt;
                    rto.on_sample(now - rtt, now);
                    seen = seen.map_or(Some((rtt, rtt)), |(least, most)| Some((least.min(rtt), most.max(rtt))));
                    prop_assert_eq!(rto.backoff(), 1);
                }
                Event::Timeout => {
                    rto.on_timeout();
                    prop_assert!(rto.timeout() >= before);
                    prop_assert!(rto.timeout() <= before.saturating_mul(2));
                    prop_assert!(rto.backoff() <= config.most_backoff);
                }
                Event::Progress => {
                    rto.on_progress();
                    prop_assert!(rto.timeout() <= before);
                    prop_assert_eq!(rto.backoff(), 1);
                }
                Event::LostSyn => {
                    let known = rto.smoothed().is_some();
                    rto.on_lost_syn();
                    prop_assert!(known || rto.timeout() >= Span::from_secs(3).min(config.maximum));
                    prop_assert!(!known || rto.timeout() == before);
                }
                Event::Reset => {
                    rto.reset();
                    seen = None;
                    prop_assert_eq!(rto.timeout(), config.initial.max(two_ticks(&config)));
                }
            }
            let snapshot = rto.snapshot();
            prop_assert!((config.minimum..=config.maximum).contains(&snapshot.timeout), "{:?}", snapshot);
            prop_assert_eq!(snapshot.smoothed.is_some(), snapshot.variance.is_some());
            if let (Estimator::Exact, Some((least, most))) = (config.estimator, seen) {
                prop_assert!((least..=most).contains(&snapshot.smoothed.unwrap()), "{:?}", snapshot);
            }
        }
    }

    #[test]
    fn equal_samples_leave_the_rtt_and_the_least_that_is_added(
        rtt_us in 1_u64..5_000_000, granularity_ms in 0_u64..100, minimum_ms in 0_u64..300,
    ) {
        let rtt = Span::from_micros(rtt_us);
        let (granularity, minimum) = (ms(granularity_ms), ms(minimum_ms));
        let linux = RtoConfig { minimum, ..RtoConfig::linux() };
        let exact = RtoConfig { granularity, ..bare() };
        for (config, least) in [(exact, granularity), (linux, minimum)] {
            let mut rto = rto(config);
            for n in 0..300 {
                let sent = Time::from_nanos(n * rtt.as_nanos());
                rto.on_sample(sent, sent + rtt);
            }
            let expected = (rtt + least).as_nanos();
            // less than a nanosecond of h · rttvar is no step: 3 ns remain, four times
            prop_assert!((expected..expected + 16).contains(&rto.timeout().as_nanos()), "{:?}", rto);
        }
    }
}

fn two_ticks(config: &RtoConfig) -> Span {
    match config.estimator {
        Estimator::Ticks { tick, .. } => tick + tick,
        Estimator::Exact | Estimator::Linux => Span::ZERO,
    }
}
