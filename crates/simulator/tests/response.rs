//! One endless flow over a link that loses packets independently, beside the closed forms of
//! `ekiden_model::control::formula`.

#![allow(clippy::unwrap_used)] // a test that cannot go on panics

use ekiden_model::control::congestion::{Algorithm, Counting, CubicConfig, SlowStart};
use ekiden_model::control::formula::{Path, cubic_window, reno_window};
use ekiden_model::network::link::{Config, Loss, LossUnit, Serialiser};
use ekiden_model::network::tcp::preset::{Era, Flavour};
use ekiden_model::network::tcp::{Acknowledging, ReceiverConfig};
use ekiden_model::units::{Rate, Share, Span, Time};
use ekiden_simulator::network::connection::ConnectionConfig;
use ekiden_simulator::network::flow::{FlowConfig, Source};
use ekiden_simulator::network::topology::Topology;
use ekiden_simulator::simulator::{Direction, Simulator};
use std::fmt::Write;

const MSS: u32 = 1460;
const RTT_MS: [u64; 3] = [10, 50, 200];
/// The path is so fast that a packet takes 1.2 µs and nothing waits: loss alone limits.
const RATE: u64 = 10_000_000_000;

/// Whose window, and how often it is told.
#[derive(Clone, Copy)]
struct Case {
    flavour: Flavour,
    algorithm: Algorithm,
    counting: Counting,
    acknowledging: Acknowledging,
}

/// What a run came to.
struct Measured {
    /// Segments sent in a round trip, those sent again included, as PFTK counts.
    window: f64,
    /// Losses that the sender saw: recoveries and timeouts.
    events: u64,
    timeouts: u64,
    sent: u64,
}

/// About so many losses, after a sixth of as many to settle, and 60 s at least.
fn measure(case: &Case, p: f64, rtt_ms: u64, expected: f64, losses: f64) -> Measured {
    let rtt = Span::from_millis(rtt_ms);
    let mut topology = Topology::new();
    let (server, client) = (topology.host(), topology.host());
    let there = Config {
        serialiser: Serialiser::Rate(Rate::from_bits_per_second(RATE)),
        delay: Span::from_nanos(rtt.as_nanos() / 2),
        seed: (p * 1e6) as u64 ^ (rtt_ms << 32),
        ..Config::default()
    };
    let share = Share::from_parts_per_billion((p * 1e9).round() as u64).unwrap();
    let loss = Loss::Independent(share, LossUnit::Packet);
    topology.link(server, client, Config { loss, ..there.clone() }, there);
    let mut simulator = Simulator::new(topology, ());
    let connection = ConnectionConfig::new(server, client, Era::Rfc);
    let connection = simulator.connect(connection).unwrap();
    let mut sender = Era::Rfc.sender(case.flavour, MSS, f64::INFINITY, Span::ZERO);
    sender.congestion.algorithm = case.algorithm;
    sender.congestion.counting = case.counting;
    sender.congestion.slow_start = SlowStart::Standard;
    // without a queue nothing but loss ends slow start, and far too late
    sender.congestion.initial_threshold = expected.max(2.0);
    let receiver = ReceiverConfig {
        acknowledging: case.acknowledging,
        selective: case.flavour == Flavour::Sack,
        duplicates: false,
        ..ReceiverConfig::linux(MSS, 1 << 30, 14)
    };
    let flow = FlowConfig::new(sender, receiver, Source::Endless { kind: 0 });
    let flow = simulator.flow(connection, Direction::FromOpener, flow).unwrap();
    let seconds = (losses / p / expected * rtt_ms as f64 / 1e3).max(60.0);
    let settled = Span::from_micros((seconds * 1e6 / 6.0) as u64);
    let counted = Span::from_micros((seconds * 1e6) as u64);
    simulator.run(Time::ZERO + settled);
    let before = simulator.sender(flow).unwrap().count;
    simulator.run(Time::ZERO + settled + counted);
    let after = simulator.sender(flow).unwrap().count;
    let sent = after.sent - before.sent;
    let timeouts = after.timeouts - before.timeouts;
    Measured {
        window: sent as f64 / seconds * rtt_ms as f64 / 1e3,
        events: after.recoveries - before.recoveries + timeouts,
        timeouts,
        sent,
    }
}

/// A row of a table: what was measured beside what the formulas say.
struct Row {
    p: f64,
    rtt_ms: u64,
    measured: Measured,
    /// Means of the windows, in segments: without timeouts, and PFTK's.
    ideal: f64,
    pftk: f64,
    /// PFTK's with the share of losses and of timeouts that this run had, as its authors compared it
    /// with their traces.
    seen: f64,
}

impl Row {
    fn new(case: &Case, p: f64, rtt_ms: u64, losses: f64) -> Self {
        let rtt = Span::from_millis(rtt_ms);
        let each = case.acknowledging == Acknowledging::EACH;
        let b = if each { 1.0 } else { 2.0 };
        // RFC 6298's least timeout is 1 s, and the round trip does not vary
        let timeout = Span::from_secs(1);
        let window = f64::INFINITY;
        let path = Path { rtt, timeout, loss: p, segments_per_ack: b, window };
        let ideal = match case.algorithm {
            Algorithm::Cubic(cubic) => {
                let curve = cubic_window(cubic.c, cubic.beta, rtt_ms as f64 / 1e3, p);
                curve.max(reno_window(b, p))
            }
            _ => reno_window(b, p),
        };
        let measured = measure(case, p, rtt_ms, ideal, losses);
        let events = measured.events as f64 / measured.sent as f64;
        let timeouts = measured.timeouts as f64 / measured.sent as f64;
        let waiting = 1e3 / rtt_ms as f64 * timeouts;
        let seen = 1.0 / (1.0 / reno_window(b, events) + waiting);
        let pftk = path.rate() * rtt.as_secs_f64();
        Self { p, rtt_ms, measured, ideal, pftk, seen }
    }

    fn over_ideal(&self) -> f64 {
        self.measured.window / self.ideal
    }

    fn over_pftk(&self) -> f64 {
        self.measured.window / self.pftk
    }

    fn over_seen(&self) -> f64 {
        self.measured.window / self.seen
    }

    fn name(&self) -> String {
        format!("p {:e}, {} ms", self.p, self.rtt_ms)
    }
}

fn rows(case: &Case, cells: &[(f64, f64)]) -> Vec<Row> {
    let row = |(p, losses): &(f64, f64)| RTT_MS.map(|rtt_ms| Row::new(case, *p, rtt_ms, *losses));
    cells.iter().flat_map(row).collect()
}

fn table(rows: &[Row]) -> String {
    let mut table = "      p  RTT | simulated |  ideal ratio |   PFTK ratio | timeouts | PFTK as \
                     seen, ratio\n"
        .to_owned();
    for row in rows {
        let Measured { window, timeouts, events, .. } = row.measured;
        writeln!(
            table,
            "{:>7} {:>4} | {window:9.1} | {:6.1}  {:4.2} | {:6.1}  {:4.2} | {:6.1} % | {:6.1} {:4.2}",
            format!("{:e}", row.p),
            row.rtt_ms,
            row.ideal,
            row.over_ideal(),
            row.pftk,
            row.over_pftk(),
            100.0 * timeouts as f64 / events as f64,
            row.seen,
            row.over_seen(),
        )
        .unwrap();
    }
    table
}

/// Loss probabilities, and how many losses are waited for at least.
const LIKELY: [(f64, f64); 4] = [(1e-3, 300.0), (3e-3, 300.0), (1e-2, 300.0), (3e-2, 300.0)];
/// A loss in 100,000 packets is waited for long: these are for release builds, where all take
/// a minute.
const SELDOM: [(f64, f64); 2] = [(1e-5, 60.0), (1e-4, 300.0)];

const BYTES: Counting = Counting::Bytes { limit: 2.0 };

/// Reno's growth, repaired with selective acknowledgements.
const SACK: Case = Case {
    flavour: Flavour::Sack,
    algorithm: Algorithm::Reno,
    counting: BYTES,
    acknowledging: Acknowledging::EACH,
};

/// … and without.
const NEW_RENO: Case = Case { flavour: Flavour::NewReno, ..SACK };

/// Every second segment acknowledged, and acknowledgements counted and not bytes: the formulas' b = 2.
const DELAYED: Case =
    Case { counting: Counting::PerAck, acknowledging: Acknowledging::DELAYED, ..SACK };

/// RFC 9438's, alone on its path (its §4.7).
const CUBIC: Case = Case {
    algorithm: Algorithm::Cubic(CubicConfig {
        c: 0.4,
        beta: 0.7,
        fast_convergence: false,
        friendly: true,
    }),
    ..SACK
};

/// What Reno's table must hold to, and why it does not agree more closely:
///
/// * √(3/2bp) is a saw tooth's, with one loss in exactly 1/p packets. It is met within 3 % where windows
///   are large: independent losses would give 7 % more (Ott, Kemperman and Mathis 1996), the round
///   trip of a recovery, in which the window does not grow, takes about as much.
/// * PFTK takes all that follows a lost segment in its round for lost too, and then 3/w of the losses
///   end in a timeout, here of 1 s or 100 round trips. Losses that are independent hardly ever bring
///   timeouts to senders of today (limited transmit, SACK, NewReno), so that PFTK is far below where
///   many losses meet short round trips, and a lower bound nearly everywhere.
/// * With the shares of losses and of timeouts that a run had, PFTK is within 22 %: the paper's own
///   error against traces is mostly that, and more.
fn hold_reno(rows: &[Row]) {
    for row in rows {
        let name = row.name();
        if row.p <= 3e-3 {
            let ratio = row.over_ideal();
            assert!((0.95..1.12).contains(&ratio), "{name}: {ratio} of the root");
        }
        let (pftk, seen) = (row.over_pftk(), row.over_seen());
        assert!(pftk > 0.93, "{name}: {pftk} of PFTK, a lower bound");
        if row.p <= 1e-3 && row.rtt_ms == 200 {
            assert!(pftk < 1.15, "{name}: {pftk} of PFTK, where timeouts are short");
        }
        assert!((0.78..1.2).contains(&seen), "{name}: {seen} of PFTK as seen");
    }
}

/// RFC 9438's equation 5 is a deterministic saw tooth's as well. Windows alone with independent
/// losses, computed in another language without packets or acknowledgements, come to 1.15–1.17 of it
/// where CUBIC follows Reno (§4.3's α of 1 above the last window; 1.04 without that rule) and to
/// 1.23–1.26 on the curve. Where more than one in a hundred is lost, a window is a few segments and a
/// timeout costs as much as many round trips.
fn hold_cubic(rows: &[Row]) {
    for row in rows {
        let ratio = row.over_ideal();
        let band = if row.p <= 3e-3 { 0.95..1.35 } else { 0.85..1.4 };
        assert!(band.contains(&ratio), "{}: {ratio} of RFC 9438's mean", row.name());
    }
}

macro_rules! agrees {
    ($likely:ident, $seldom:ident, $case:ident, $hold:ident) => {
        #[test]
        fn $likely() {
            let rows = rows(&$case, &LIKELY);
            println!("{}", table(&rows));
            $hold(&rows);
            insta::assert_snapshot!(stringify!($likely), table(&rows));
        }

        #[test]
        #[cfg_attr(debug_assertions, ignore = "minutes: cargo test --release")]
        fn $seldom() {
            let rows = rows(&$case, &SELDOM);
            println!("{}", table(&rows));
            $hold(&rows);
            insta::assert_snapshot!(stringify!($seldom), table(&rows));
        }
    };
}

agrees!(sack, sack_seldom, SACK, hold_reno);
agrees!(new_reno, new_reno_seldom, NEW_RENO, hold_reno);
agrees!(delayed, delayed_seldom, DELAYED, hold_reno);
agrees!(cubic, cubic_seldom, CUBIC, hold_cubic);
