//! What holds for every control: one harness of random operations.

use super::*;
use crate::testing::*;

fn algorithms() -> impl Strategy<Value = Algorithm> {
    let cubic = (0.01_f64..4.0, 0.3_f64..0.95, any::<bool>(), any::<bool>());
    prop_oneof![
        2 => Just(Algorithm::Reno),
        4 => cubic.prop_map(|(c, beta, fast_convergence, friendly)| {
            Algorithm::Cubic(CubicConfig { c, beta, fast_convergence, friendly })
        }),
        3 => Just(Algorithm::WestwoodPlus),
        1 => (1.0_f64..100.0).prop_map(Algorithm::Fixed),
    ]
}

fn configs() -> impl Strategy<Value = Config> {
    let counting = prop_oneof![
        Just(Counting::PerAck),
        (1.0_f64..10.0).prop_map(|limit| Counting::Bytes { limit }),
        Just(Counting::Bytes { limit: f64::INFINITY }),
    ];
    let slow_start = prop_oneof![
        Just(SlowStart::Standard),
        Just(SlowStart::HyStartPlusPlus),
        Just(SlowStart::HyStart),
    ];
    let windows = (1.0_f64..50.0, prop_oneof![Just(f64::INFINITY), 2.0_f64..60.0]);
    (algorithms(), windows, counting, slow_start, any::<[bool; 2]>()).prop_map(
        |(algorithm, (initial_window, initial_threshold), counting, slow_start, flags)| Config {
            algorithm,
            initial_window,
            initial_threshold,
            counting,
            cut: if flags[0] { Cut::Both } else { Cut::Neither },
            slow_start,
            grow_only_when_limited: flags[1],
        },
    )
}

#[derive(Debug, Clone, Copy)]
enum Event {
    /// An ACK of so many segments, with an RTT, for a window that limits or not, in recovery or not.
    Ack {
        acked: f64,
        rtt_us: Option<u64>,
        limited: bool,
        recovering: bool,
    },
    /// A loss, with so much of the window outstanding.
    Loss {
        share: f64,
    },
    Timeout {
        share: f64,
        again: bool,
    },
    Restart,
    Undo,
}

fn events() -> impl Strategy<Value = Vec<(u64, Event)>> {
    // mostly single segments, sometimes parts and long ones
    let acked =
        prop_oneof![8 => Just(1.0), 4 => Just(2.0), 1 => 0.001_f64..1.0, 1 => 2.0_f64..300.0];
    let rtt_us = proptest::option::of(prop_oneof![Just(50_000_u64), 10_u64..400_000]);
    let often = prop_oneof![9 => Just(true), 1 => Just(false)];
    let ack = (acked, rtt_us, often, prop_oneof![9 => Just(false), 1 => Just(true)]);
    // flight above the window is what inflation makes of it
    let share = || 0.0_f64..1.5;
    let event = prop_oneof![
        60 => ack.prop_map(|(acked, rtt_us, limited, recovering)| {
            Event::Ack { acked, rtt_us, limited, recovering }
        }),
        4 => share().prop_map(|share| Event::Loss { share }),
        2 => (share(), any::<bool>()).prop_map(|(share, again)| Event::Timeout { share, again }),
        1 => Just(Event::Restart),
        3 => Just(Event::Undo),
    ];
    // a train of ACKs, a round trip, a silence
    let gap = prop_oneof![9 => 0_u64..2_000, 2 => 0_u64..100_000, 1 => 0_u64..30_000_000];
    proptest::collection::vec((gap, event), 1..250)
}

/// Drives a control and holds it to what must be true at every step; answers every step's numbers.
fn run(config: &Config, events: &[(u64, Event)]) -> Vec<Snapshot> {
    let fixed = matches!(config.algorithm, Algorithm::Fixed(_));
    let mut control = Congestion::new(config, Time::ZERO);
    let (mut now, mut una, mut smoothed) = (Time::ZERO, 0, Span::ZERO);
    // window and threshold before the last reduction that can be undone
    let mut before: Option<(f64, f64)> = None;
    let mut timed_out = false;
    let mut told = Vec::new();
    for (gap_us, event) in events {
        now += Span::from_micros(*gap_us);
        let (window, threshold) = (control.window(), control.threshold());
        match *event {
            Event::Ack { acked, rtt_us, limited, recovering } => {
                // no more than was outstanding
                let acked = acked.min(window);
                una += (acked * 1_000.0) as u64;
                let rtt = rtt_us.map(Span::from_micros);
                smoothed = rtt.unwrap_or(smoothed);
                control.on_ack(&Ack {
                    now,
                    acked,
                    in_flight: window,
                    rtt,
                    smoothed,
                    limited,
                    una,
                    next: una + (window * 1_000.0) as u64,
                    recovering,
                });
                assert!(control.window() >= window, "an ACK takes nothing away");
                if recovering {
                    assert_eq!(control.window(), window, "no growth during recovery");
                }
                if config.grow_only_when_limited && !limited {
                    assert_eq!(control.window(), window, "no growth of what does not limit");
                }
                // CUBIC catches up with Reno's window at once where it has stayed behind
                let cubic = matches!(config.algorithm, Algorithm::Cubic(_));
                let slow_start = window + acked.max(1.0);
                assert!(cubic || control.window() <= slow_start, "no faster than slow start");
            }
            Event::Loss { share } => {
                before = Some((window, threshold));
                timed_out = false;
                control.on_loss(now, window * share);
                assert!(control.window() <= window, "a loss raises no window");
                assert!(control.threshold() >= 2.0);
            }
            Event::Timeout { share, again } => {
                let again = again && timed_out;
                if !again {
                    before = Some((window, threshold));
                }
                timed_out = true;
                control.on_timeout(now, window * share, again);
                assert!(control.window() <= window);
                assert!(fixed || control.window() == 1.0, "{}", control.window());
                assert!(control.threshold() >= 2.0);
                if again {
                    assert_eq!(control.threshold(), threshold, "held constant");
                }
            }
            Event::Restart => {
                control.on_restart(now);
                let expected = if fixed { window } else { window.min(config.initial_window) };
                assert_eq!((control.window(), control.threshold()), (expected, threshold));
            }
            Event::Undo => {
                control.undo(now);
                let (least, was) = before.take().unwrap_or((window, threshold));
                assert!(control.window() >= least, "{} of {least}", control.window());
                assert_eq!(control.window(), window.max(least), "no more than there was");
                if window <= least {
                    assert_eq!(control.threshold(), was);
                }
            }
        }
        let snapshot = control.snapshot();
        assert!(control.window().is_finite() && control.window() >= 1.0, "{snapshot:?}");
        assert!(!control.threshold().is_nan() && control.threshold() >= 2.0, "{snapshot:?}");
        assert_eq!((snapshot.window, snapshot.threshold), (control.window(), control.threshold()));
        let slow = matches!(snapshot.phase, Phase::SlowStart | Phase::ConservativeSlowStart);
        assert_eq!(slow, !fixed && snapshot.window < snapshot.threshold);
        for number in [snapshot.w_max, snapshot.k, snapshot.w_est, snapshot.bandwidth] {
            assert!(
                number.is_none_or(|number| number.is_finite() && number >= 0.0),
                "{snapshot:?}"
            );
        }
        told.push(snapshot);
    }
    told
}

proptest! {
    #[test]
    fn every_control_keeps_to_the_laws_and_repeats_itself(config in configs(), events in events()) {
        prop_assert_eq!(config.check(), Ok(()));
        let first = run(&config, &events);
        prop_assert_eq!(first, run(&config, &events));
    }
}

/// Debug and release, on every machine: `libm` and the four operations round the same everywhere.
#[test]
fn results_are_bit_exact() {
    let algorithm = Algorithm::Cubic(CubicConfig { friendly: false, ..CubicConfig::default() });
    let config = Config { algorithm, initial_threshold: 40.0, ..Config::default() };
    let events: Vec<(u64, Event)> = (0_u64..2_000)
        .map(|n| match n % 600 {
            599 => (10, Event::Loss { share: 1.0 }),
            _ => {
                let (rtt_us, acked) = (Some(100_000 + n % 7), 1.0 + (n % 3) as f64 / 3.0);
                (1_000, Event::Ack { acked, rtt_us, limited: true, recovering: false })
            }
        })
        .collect();
    let last = *run(&config, &events).last().unwrap();
    let bits = (last.window.to_bits(), last.k.map(f64::to_bits));
    assert_eq!(bits, (4_626_473_630_740_985_863, Some(4_612_073_365_909_090_637)), "{last:?}");
}
