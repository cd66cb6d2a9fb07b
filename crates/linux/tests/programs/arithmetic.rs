//! The programs' arithmetic beside the model's, run where it would run for a socket.

use ekiden_model::control::congestion::{
    Ack, Algorithm, Config, Control as _, Counting, SlowStart, WestwoodPlus,
};
use ekiden_model::control::rate_hold::rounds::{self, Agreement, Round, Rounds};
use ekiden_model::units::{Span, Time};
use libbpf_rs::{ObjectBuilder, ProgramInput};
use proptest::prelude::*;
use proptest::test_runner::{Config as Cases, TestRunner};
use std::path::Path;

/// The programs of `trial.bpf.c`, which run the arithmetic alone.
fn trial(name: &str, run: impl Fn(&dyn Fn(&mut [u8]))) {
    #[repr(C, align(8))]
    struct Aligned<T: ?Sized>(T);
    static TRIAL: &Aligned<[u8]> = &Aligned(*include_bytes!("../../bpf/trial.bpf.o"));
    let object = ObjectBuilder::default().open_memory(&TRIAL.0).unwrap().load().unwrap();
    let program = object.progs_mut().find(|program| program.name() == name).unwrap();
    run(&|context| {
        let input = ProgramInput { context_in: Some(context), ..ProgramInput::default() };
        assert_eq!(program.test_run(input).unwrap().return_value, 0);
    });
}

/// Words of eight and of four bytes in a row.
#[derive(Default)]
struct Words(Vec<u8>);

impl Words {
    fn long(mut self, words: &[u64]) -> Self {
        self.0.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        self
    }

    fn short(mut self, words: &[u32]) -> Self {
        self.0.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        self
    }
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn short(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// One run of a group: what was agreed, and round after round.
fn runs() -> impl Strategy<Value = (Agreement, Vec<(Round, [u64; 6])>)> {
    let agreement = (
        prop_oneof![1_u64..1 << 20, 1_u64..1 << 36],
        prop_oneof![Just(0_u64), 1_u64..1 << 36],
        prop_oneof![Just(0_u32), 1_u32..1_000_000],
        prop_oneof![Just(0_u32), 50_u32..800],
        prop_oneof![Just(0_u32), 1_u32..200_000],
        any::<bool>(),
    );
    let round = (
        0_u64..3_000_000,
        0_u64..150,
        0_u64..60,
        0_u64..101,
        0_u64..101,
        0_u64..101,
        0_u64..2_000_000,
    );
    let asked =
        (0_u64..1 << 22, 0_u64..100, 1_u64..100, 0_u64..2_000_000, 0_u64..2_000_000, 0_u64..9_000);
    let rounds = prop::collection::vec((round, asked), 1..40);
    (agreement, rounds).prop_map(|((rate, line, queue, gain, nominal, dedicated), rounds)| {
        let agreement = Agreement { rate, line, queue, gain, nominal, dedicated };
        let mut now = 1_000_000;
        let round = |((span, arrived, lost, late, stood, pressed, rtt), asked): (
            (u64, u64, u64, u64, u64, u64, u64),
            _,
        )| {
            now += span;
            // percents of what the rate would bring
            let full = (u128::from(rate) * u128::from(span) / 1_000_000) as u64;
            let delivered = full / 100 * arrived;
            let told = Round {
                now,
                span,
                delivered,
                lost: full / 100 * lost,
                late: delivered / 100 * late,
                stood: delivered / 100 * stood,
                pressed: delivered / 100 * pressed,
                rtt,
            };
            let (light, weights, weight, smoothed, base, packet) = asked;
            (told, [light, weights, weight, smoothed, base, packet])
        };
        (agreement, rounds.into_iter().map(round).collect())
    })
}

pub(crate) fn judged_as_the_model_judges(_: &Path) {
    trial("judge", |run| {
        let cases = Cases { cases: 256, failure_persistence: None, ..Cases::default() };
        let outcome = TestRunner::new(cases).run(&runs(), |(agreement, told)| {
            let mut model = Rounds::default();
            for (r, [light, weights, weight, smoothed, base, packet]) in told {
                let m = model;
                let mut context = Words::default()
                    .long(&[agreement.rate, agreement.line])
                    .short(&[agreement.queue, agreement.gain, agreement.nominal])
                    .short(&[u32::from(agreement.dedicated)])
                    .long(&[0])
                    .long(&[
                        m.agreed, m.current, m.before, m.until, m.test, m.acked, m.lost, m.slot,
                        m.line, m.last, m.drained,
                    ])
                    .short(&[m.nominal, m.losses, m.reactions, m.undone, m.calm, m.step])
                    .long(&[r.now, r.span, r.delivered, r.lost, r.late, r.stood, r.pressed, r.rtt])
                    .long(&[0, light, weights, weight, 0, smoothed, base, packet, 0])
                    .long(&[weights, 0, 0])
                    .0;
                run(&mut context);
                model.judge(&agreement, &r);
                let held = Rounds {
                    agreed: long(&context, 40),
                    current: long(&context, 48),
                    before: long(&context, 56),
                    until: long(&context, 64),
                    test: long(&context, 72),
                    acked: long(&context, 80),
                    lost: long(&context, 88),
                    slot: long(&context, 96),
                    line: long(&context, 104),
                    last: long(&context, 112),
                    drained: long(&context, 120),
                    nominal: short(&context, 128),
                    losses: short(&context, 132),
                    reactions: short(&context, 136),
                    undone: short(&context, 140),
                    calm: short(&context, 144),
                    step: short(&context, 148),
                };
                prop_assert_eq!(held, model);
                let rate = model.rate(&agreement);
                let share = rounds::share(rate, light, weights, weight);
                let window = rounds::window(&agreement, share, smoothed, base, packet);
                let got = (long(&context, 216), long(&context, 248), long(&context, 280));
                prop_assert_eq!(got, (rate, share, window));
                prop_assert_eq!(long(&context, 296), rounds::first(rate, weights));
                prop_assert_eq!(long(&context, 304), model.known(share));
            }
            Ok(())
        });
        outcome.unwrap();
    });
}

pub(crate) fn filtered_as_the_model_filters(_: &Path) {
    let acks = prop::collection::vec((1_u64..200_000, 1_u64..40, 1_000_u32..400_000), 2..200);
    trial("filter", |run| {
        let cases = Cases { cases: 64, failure_persistence: None, ..Cases::default() };
        let outcome = TestRunner::new(cases).run(&acks, |acks| {
            let mut model = WestwoodPlus::new(&Config {
                algorithm: Algorithm::WestwoodPlus,
                initial_window: 1e6,
                initial_threshold: 1e6,
                counting: Counting::PerAck,
                slow_start: SlowStart::Standard,
                ..Config::default()
            });
            let (mut now, mut delivered, mut state) = (1_000_000_u64, 0_u32, vec![0_u8; 32]);
            for (after, acked, rtt) in acks {
                now += after;
                delivered += acked as u32;
                let mut context = Words(state.clone());
                context = context.long(&[now]).short(&[delivered, rtt, rtt, 1_000_000]).long(&[0]);
                run(&mut context.0);
                state.copy_from_slice(&context.0[..32]);
                model.on_ack(&Ack {
                    now: Time::ZERO + Span::from_micros(now),
                    acked: acked as f64,
                    in_flight: 100.0,
                    rtt: Some(Span::from_micros(rtt.into())),
                    smoothed: Span::from_micros(rtt.into()),
                    limited: true,
                    una: 0,
                    next: 0,
                    recovering: true,
                });
                let seen = model.snapshot();
                let bandwidth = long(&state, 16) as f64 / 1_024.0;
                let expected = seen.bandwidth.unwrap_or_default();
                prop_assert!(
                    (bandwidth - expected).abs() <= 0.02 + expected / 1e6,
                    "{bandwidth} {expected}"
                );
                prop_assert_eq!(u64::from(short(&state, 28)), seen.rtt_min.unwrap().as_micros());
                let mut after = model.clone();
                after.on_loss(Time::ZERO, 1e6);
                let threshold = long(&context.0, 56) as f64;
                let wanted = after.threshold().max(2.0);
                prop_assert!((threshold - wanted).abs() <= 1.01, "{threshold} {wanted}");
            }
            Ok(())
        });
        outcome.unwrap();
    });
}
