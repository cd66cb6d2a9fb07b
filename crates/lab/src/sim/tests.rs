use super::*;
use ekiden_model::tcp::Sender;
use ekiden_model::units::Time;
use ekiden_simulator::observer::{Delivery, Trouble};

fn cell(values: &[(&str, &str)]) -> Cell {
    let values = values.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
    Cell { part: "p".into(), values }
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

/// Counts what it is told.
#[derive(Debug, Default)]
struct Told {
    delivered: u64,
    timeouts: Vec<(u32, Time)>,
}

impl Observer for Told {
    fn delivered(&mut self, _: &Delivery) {
        self.delivered += 1;
    }

    fn troubled(&mut self, at: Time, flow: u32, _: u8, trouble: Trouble, _: &Sender) {
        if trouble == Trouble::Timeout {
            self.timeouts.push((flow, at));
        }
    }
}

#[test]
fn a_recorded_run_is_the_run() {
    let proxy = proxy("3", ("clients", "10"));
    for cell in [island("none", "0"), island("squid", "2"), thin_clients("approach 2"), proxy] {
        let run = Simulated.run(&cell, 0, 7).unwrap();
        let (recorded, _) = record(&cell, 7, |_| Ok(Told::default())).unwrap();
        assert_eq!(recorded, run);
        assert_eq!(run.facts["fingerprint"].len(), 16);
        assert_ne!(
            Simulated.run(&cell, 0, 8).unwrap().facts["fingerprint"],
            run.facts["fingerprint"]
        );
    }
}

#[test]
fn a_recorder_is_told_where_to_look() {
    let mut seen = None;
    let look = |sights: &Sights| {
        seen = Some(*sights);
        Err::<(), _>(EngineError("enough".into()))
    };
    assert_eq!(record(&island("squid", "2"), 1, look).unwrap_err().0, "enough");
    let sights = seen.unwrap();
    // three links of two directions; the last one leads from the server
    assert_eq!((sights.watched, sights.sender), (Some(Way(5)), Side::Acceptor));
    let mut cell = island("none", "0");
    cell.values.insert("congestion".into(), "bbr".into());
    let told = record(&cell, 1, |_| Ok(())).unwrap_err().0;
    assert!(told.contains("BBR"), "{told}");
}

#[test]
fn the_first_run_without_remedies_has_a_time_line() {
    let cell = thin_clients("none");
    let outcome = Simulated.run(&cell, 0, 1).unwrap();
    let (_, told) = record(&cell, 1, |_| Ok(Told::default())).unwrap();
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
    let (flow, _) = told.timeouts.iter().find(|(_, time)| seconds(*time) == at).unwrap();
    let of = |flow: u32| told.timeouts.iter().filter(|(other, _)| *other == flow).count();
    let mut counts: Vec<usize> = (0..60).map(of).filter(|count| *count > 0).collect();
    counts.sort_unstable();
    assert_eq!(of(*flow), counts[(counts.len() - 1) / 2]);
    let own = told.timeouts.iter().filter(|(other, _)| other == flow).map(|(_, at)| seconds(*at));
    let own: Vec<f64> = own.collect();
    let middle = own[(own.len() - 1) / 2];
    let around = own.iter().filter(|at| (*at - middle).abs() <= 10.0).count();
    assert_eq!(outcome.series["timeout"].len(), around);
    // no other repetition, and no other scenario, has one
    assert!(Simulated.run(&cell, 1, 1).unwrap().series.is_empty());
    assert!(Simulated.run(&thin_clients("P"), 0, 1).unwrap().series.is_empty());
}

#[test]
fn every_setting_of_the_proxy_does_something() {
    let print = |cell: &Cell| Simulated.run(cell, 0, 1).unwrap().facts["fingerprint"].clone();
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
        Simulated.run(&cell, 0, 1).unwrap()
    };
    let [refusing, patient] = ["10 s", "never"].map(|patience| crowd(patience.into()).figures);
    assert!(refusing["refused"] > 0.0 && patient["refused"] == 0.0);
    let wrong = Simulated.run(&proxy("5", ("clients", "2")), 0, 1).unwrap_err().0;
    assert!(wrong.contains("1, 2, 3 and 4"), "{wrong}");
}
