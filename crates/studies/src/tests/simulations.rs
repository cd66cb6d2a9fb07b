//! Runs on virtual time, of several studies.

use crate::asymmetric::Asymmetric;
use crate::island::ISLAND;
use crate::proxy_pressure::ProxyPressure;
use crate::thin_client::ThinClient;
use ekiden_lab::cell::Cell;
use ekiden_lab::engine::sim::Simulated;
use ekiden_lab::engine::{Engine, EngineError, Outcome};
use ekiden_lab::study::{Sights, Study};
use ekiden_model::network::tcp::Sender;
use ekiden_model::units::Time;
use ekiden_simulator::network::topology::LinkDirection;
use ekiden_simulator::observer::{Delivery, Departure, Observer, Trouble};
use ekiden_simulator::recorder::packets::Side;

fn cell(values: &[(&str, &str)]) -> Cell {
    Cell::new("p", values.iter().copied())
}

fn island(peer: &str, relays: &str) -> Cell {
    let layout = if relays == "0" { "direct" } else { "row" };
    cell(&[
        ("peer", peer),
        ("layout", layout),
        ("relays", relays),
        ("file", "2 MiB"),
        ("rtt", "50 ms"),
        ("rate", "50 Mbit/s"),
        ("queue", "100 ms"),
        ("loss", "0.5 %"),
        ("lossy", "even"),
        ("unit", "packet"),
        ("congestion", "cubic"),
        ("window", "defaults"),
        ("cut", "20 s"),
    ])
}

/// As many thin clients as just fill the bottleneck.
fn thin_clients(scenario: &str) -> Cell {
    cell(&[
        ("scenario", scenario),
        ("era", "ns-2.28"),
        ("traffic", "intranet"),
        ("burstiness", "2.4"),
        ("pairs", "60"),
        ("minimum-rto", "100 ms"),
        ("segments", "44"),
        ("careful", "no"),
        ("clock", "exact"),
    ])
}

fn proxy(scheme: &str, change: (&str, &str)) -> Cell {
    let mut cell = cell(&[
        ("scheme", scheme),
        ("clients", "20"),
        ("knowledge", "perfect"),
        ("patience", "never"),
        ("persist", "15 s"),
        ("halving", "1 s"),
        ("pool", "256 KiB"),
        ("period", "1 s"),
        ("web", "surge"),
        ("era", "ns-2.1b9"),
    ]);
    cell.values.insert(change.0.into(), change.1.into());
    cell
}

#[derive(Debug, Default)]
struct EventCounts {
    delivered: u64,
    departed: u64,
    timeouts: Vec<(u32, Time)>,
}

impl Observer for EventCounts {
    fn delivered(&mut self, _: &Delivery) {
        self.delivered += 1;
    }

    fn departed(&mut self, _: &Departure<'_>) {
        self.departed += 1;
    }

    fn troubled(&mut self, at: Time, flow: u32, _: u8, trouble: Trouble, _: &Sender) {
        if trouble == Trouble::Timeout {
            self.timeouts.push((flow, at));
        }
    }
}

/// The study whose cells this file makes with such an axis.
fn study(cell: &Cell) -> &'static dyn Study {
    let has = |axis: &str| cell.values.contains_key(axis);
    match () {
        () if has("scenario") => &ThinClient,
        () if has("scheme") => &ProxyPressure,
        () if has("downlink") => &Asymmetric,
        () => &ISLAND,
    }
}

fn simulate(cell: &Cell, repetition: u32, seed: u64) -> Outcome {
    Simulated(study(cell)).run(cell, repetition, seed).unwrap()
}

fn record<O: Observer>(
    cell: &Cell,
    seed: u64,
    observer: impl FnOnce(&Sights) -> Result<O, EngineError>,
) -> Result<(Outcome, O), EngineError> {
    match study(cell).name() {
        "thin-client" => crate::thin_client::sim::record(cell, seed, observer),
        "proxy-pressure" => crate::proxy_pressure::sim::record(cell, seed, observer),
        "asymmetric" => crate::asymmetric::sim::record(cell, seed, observer),
        _ => crate::island::sim::record(cell, seed, observer),
    }
}

#[test]
fn recording_does_not_change_the_run() {
    let proxy = proxy("3", ("clients", "10"));
    for cell in [island("none", "0"), island("squid", "2"), thin_clients("approach 2"), proxy] {
        let plain = simulate(&cell, 0, 7);
        let (recorded, _) = record(&cell, 7, |_| Ok(EventCounts::default())).unwrap();
        assert_eq!(recorded, plain);
        assert_eq!(plain.facts["fingerprint"].len(), 16);
        assert_ne!(simulate(&cell, 0, 8).facts["fingerprint"], plain.facts["fingerprint"]);
    }
}

#[test]
fn recorder_learns_the_watched_link() {
    let mut seen = None;
    let look = |sights: &Sights| {
        seen = Some(*sights);
        Err::<(), _>(EngineError("enough".into()))
    };
    assert_eq!(record(&island("squid", "2"), 1, look).unwrap_err().0, "enough");
    let sights = seen.unwrap();
    // three links of two directions; the last one leads from the server
    assert_eq!(
        (sights.watched, sights.server, sights.flows),
        (Some(LinkDirection(5)), Side::Acceptor, 6)
    );
    let mut cell = island("none", "0");
    cell.values.insert("congestion".into(), "bbr".into());
    let report = Simulated(&ISLAND).lacks(&cell).unwrap();
    assert!(report.contains("BBR"), "{report}");
}

#[test]
fn first_run_without_remedies_has_a_time_line() {
    let cell = thin_clients("none");
    let outcome = simulate(&cell, 0, 1);
    let (_, report) = record(&cell, 1, |_| Ok(EventCounts::default())).unwrap();
    let names: Vec<_> = outcome.series.keys().map(String::as_str).collect();
    assert_eq!(names, ["cwnd_segments", "queue_ms", "rto_ms", "srtt_ms", "timeout"]);
    for values in outcome.series.values() {
        assert!(values.is_sorted_by(|[a, _], [b, _]| a <= b), "{values:?}");
        assert!(values.iter().all(|[_, value]| *value >= 0.0 && value.is_finite()));
        let (first, last) = (values[0][0], values[values.len() - 1][0]);
        assert!(last - first <= 20.0, "{first} to {last}");
    }
    // the flow is one that has a median number of timeouts, and they are its own
    let seconds = |at: Time| at.as_nanos() as f64 / 1e9;
    let [at, _] = outcome.series["timeout"][0];
    let (flow, _) = report.timeouts.iter().find(|(_, time)| seconds(*time) == at).unwrap();
    let of = |flow: u32| report.timeouts.iter().filter(|(other, _)| *other == flow).count();
    let mut counts: Vec<usize> = (0..60).map(of).filter(|count| *count > 0).collect();
    counts.sort_unstable();
    assert_eq!(of(*flow), counts[(counts.len() - 1) / 2]);
    let own = report.timeouts.iter().filter(|(other, _)| other == flow).map(|(_, at)| seconds(*at));
    let own: Vec<f64> = own.collect();
    let middle = own[(own.len() - 1) / 2];
    let around = own.iter().filter(|at| (*at - middle).abs() <= 10.0).count();
    assert_eq!(outcome.series["timeout"].len(), around);
    // no other repetition, and no other scenario, has one
    assert!(simulate(&cell, 1, 1).series.is_empty());
    assert!(simulate(&thin_clients("P"), 0, 1).series.is_empty());
}

/// A thin uplink under 100 Mbit/s, changed.
fn thin(change: &[(&str, &str)]) -> Cell {
    let ends = [
        ("lan-mtu", "1500"),
        ("rate", "1 Gbit/s"),
        ("window", "64 KiB"),
        ("congestion", "reno"),
        ("cut", "300 ms"),
    ];
    crate::asymmetric::thin_link::tests::cell(&[&ends[..], change].concat())
}

fn run(change: &[(&str, &str)]) -> Outcome {
    simulate(&thin(change), 0, 1)
}

#[test]
fn needed_uplink_is_95_percent_of_the_ack_model() {
    for (mtu, acks, model) in [("1500", "2", 2.2), ("1500", "1", 4.4), ("9000", "1", 0.733)] {
        let outcome = run(&[("mtu", mtu), ("acks", acks)]);
        let ratio = outcome.value / model;
        assert!((ratio - 0.95).abs() < 0.02, "{mtu}, {acks}: {ratio}");
        let (asked, seen) = (acks.parse::<f64>().unwrap(), outcome.figures["segments_per_ack"]);
        assert!((seen / asked - 1.0).abs() < 0.03, "{mtu}, {acks}: {seen}");
        // 52 bytes each, and 66 of 52 with framing
        let framed = outcome.figures["ack_mbit"] / outcome.figures["ack_ip_mbit"];
        assert!((framed - 66.0 / 52.0).abs() < 1e-6, "{framed}");
    }
}

#[test]
fn relays_thin_acks_only_when_they_send_fewer() {
    // a second, in which the start weighs little
    let relays = [("relays", "2"), ("peer", "ekiden"), ("cut", "1 s")];
    let needed = |more: &[(&str, &str)]| run(&[&relays[..], more].concat()).value;
    let same = needed(&[]);
    assert!((same / 2.09 - 1.0).abs() < 0.05, "{same}");
    let jumbo = needed(&[("mtu", "9000")]);
    assert!((jumbo / 0.70 - 1.0).abs() < 0.05, "{jumbo}");
    let fewer = needed(&[("acks", "4")]);
    assert!((fewer / 1.05 - 1.0).abs() < 0.05, "{fewer}");
}

#[test]
fn cross_traffic_starves_acks_unless_they_have_priority() {
    let fast = [("downlink", "1 Gbit/s"), ("uplink", "10 Mbit/s"), ("jam-packet", "1500")];
    let steady = [("jam-shape", "steady")];
    let goodput = |more: &[(&str, &str)]| run(&[&fast[..], &steady, more].concat()).value;
    let free = goodput(&[("jam", "0 %")]);
    let half = goodput(&[("jam", "50 %")]);
    let full = goodput(&[("jam", "100 %")]);
    // of 10 Mbit/s, 1,000 needs 22
    assert!((free / 439.0 - 1.0).abs() < 0.03, "{free}");
    assert!((half / free - 0.5).abs() < 0.05, "{half} of {free}");
    assert!(full < 0.1 * free, "{full}");
    let first = goodput(&[("jam", "100 %"), ("up-queue", "ack-first")]);
    assert!(first > 0.6 * free, "{first}");
}

#[test]
fn lost_handshakes_cost_as_the_formula_predicts() {
    let short = [("uplink", "100 Mbit/s"), ("file", "64 KiB"), ("initial-rto", "1 s")];
    let mean = |loss: &str| run(&[&short[..], &[("handshake-loss", loss)]].concat());
    assert_eq!(mean("0 %").figures["extra_ms"], 0.0);
    for loss in ["5 %", "10 %"] {
        let figures = mean(loss).figures;
        let (extra, model) = (figures["extra_ms"], figures["extra_model_ms"]);
        // after a repeated SYN the first window is one segment, which takes some milliseconds more
        assert!((extra / model - 1.0).abs() < 0.02, "{loss}: {extra} for {model}");
    }
}

#[test]
fn recording_repeats_a_thin_uplink_s_run() {
    for change in [&[][..], &[("uplink", "1 Mbit/s")]] {
        let cell = thin(change);
        let (recorded, report) = record(&cell, 1, |sights| {
            assert!(sights.watched.is_some());
            Ok(EventCounts::default())
        })
        .unwrap();
        assert_eq!(recorded, simulate(&cell, 0, 1));
        assert!(report.departed > 100);
    }
}

#[test]
fn every_proxy_setting_changes_the_run() {
    let print = |cell: &Cell| simulate(cell, 0, 1).facts["fingerprint"].clone();
    let plain = print(&proxy("4", ("era", "ns-2.1b9")));
    for change in [
        ("scheme", "1"),
        ("clients", "21"),
        ("knowledge", "estimated"),
        ("persist", "5 s"),
        ("halving", "5 s"),
        ("pool", "512 KiB"),
        ("period", "5 s"),
        ("web", "clusters"),
        ("era", "linux"),
    ] {
        assert_ne!(print(&proxy("4", change)), plain, "{change:?}");
    }
    // nobody waits among so few; where many do, patience ends for some
    let crowd = |patience| {
        let mut cell = proxy("1", ("clients", "230"));
        cell.values.insert("patience".into(), patience);
        simulate(&cell, 0, 1)
    };
    let [refusing, patient] = ["10 s", "never"].map(|patience| crowd(patience.into()).figures);
    assert!(refusing["refused"] > 0.0 && patient["refused"] == 0.0);
    let wrong = Simulated(&ProxyPressure).run(&proxy("5", ("clients", "2")), 0, 1).unwrap_err().0;
    assert!(wrong.contains("1, 2, 3 and 4"), "{wrong}");
}
