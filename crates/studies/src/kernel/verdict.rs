//! Whether the machine was the limit: how busy its processors were, and how late packets were.
//!
//! Unlike the verdict on a single link, one packet 10 ms late is no stall: with a million packets on dozens of
//! links of tens to hundreds of milliseconds, the share of late packets counts, and that none was lost but by a
//! link.

use ekiden_emulator::fidelity::Verdict;
use ekiden_emulator::report::LinkReport;
use ekiden_lab::engine::Fidelity;
use std::fs;

/// Busier, and the programs wait for processors instead of links.
const MOST_BUSY: f64 = 0.9;
/// Shares of all packets that may come more than 1 ms late, as for single links.
const NOISY_LATE: f64 = 0.005;
const TAINTED_LATE: f64 = 0.05;

pub(crate) fn of_links(links: Vec<(Verdict, Vec<String>)>) -> (Fidelity, Vec<String>) {
    let of = |verdict| match verdict {
        Verdict::Clean => Fidelity::Clean,
        Verdict::Noisy => Fidelity::Noisy,
        Verdict::Tainted => Fidelity::Tainted,
    };
    let worst = links.iter().map(|(verdict, _)| of(*verdict)).max().unwrap_or_default();
    let mut reasons: Vec<String> = links.into_iter().flat_map(|(_, reasons)| reasons).collect();
    reasons.sort();
    reasons.dedup();
    (worst, reasons)
}

/// How far a run's links can be believed, and why not further. `busy` is nothing where that is not known.
pub(crate) fn judge(reports: &[LinkReport], busy: Option<f64>) -> (Fidelity, Vec<String>) {
    let directions = || reports.iter().flat_map(|report| &report.directions);
    let sum = |of: fn(&ekiden_emulator::report::DirectionReport) -> u64| directions().map(of).sum();
    judged(
        sum(|one| one.packets.delivered),
        sum(|one| one.counts.late),
        sum(|one| one.counts.missed),
        busy,
    )
}

fn judged(packets: u64, late: u64, missed: u64, busy: Option<f64>) -> (Fidelity, Vec<String>) {
    let mut found = (Fidelity::Clean, Vec::new());
    let mut find = |fidelity: Fidelity, reason: String| {
        found.0 = found.0.max(fidelity);
        found.1.push(reason);
    };
    if missed > 0 {
        find(Fidelity::Tainted, format!("{missed} packets were lost outside the links' model"));
    }
    let late = late as f64 / packets.max(1) as f64;
    if late > NOISY_LATE {
        let fidelity = if late > TAINTED_LATE { Fidelity::Tainted } else { Fidelity::Noisy };
        find(fidelity, format!("{:.1} % of packets came more than 1 ms late", late * 100.0));
    }
    if let Some(busy) = busy.filter(|busy| *busy > MOST_BUSY) {
        find(Fidelity::Tainted, format!("the processors were {:.0} % busy", busy * 100.0));
    }
    found
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Processors {
    busy: u64,
    all: u64,
}

impl Processors {
    /// Now; nothing where there is no `/proc/stat`.
    pub(crate) fn look() -> Option<Self> {
        Self::read(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// proc(5): user, nice, system, idle, iowait, irq, softirq, steal; guests are in user already.
    fn read(text: &str) -> Option<Self> {
        let line = text.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<u64> =
            line.split_whitespace().take(8).map(str::parse).collect::<Result<_, _>>().ok()?;
        let all = ticks.iter().sum();
        let idle: u64 = ticks.get(3..5)?.iter().sum();
        Some(Self { busy: all - idle, all })
    }

    /// Share of the time since then that they were busy, 0 … 1.
    pub(crate) fn busy_since(self, then: Self) -> f64 {
        let all = self.all.saturating_sub(then.all).max(1);
        self.busy.saturating_sub(then.busy) as f64 / all as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn judges_by_the_share_of_late_packets_and_any_lost() {
        assert_eq!(judged(1_000, 5, 0, Some(0.9)), (Fidelity::Clean, Vec::new()));
        assert_eq!(judged(1_000, 6, 0, None).0, Fidelity::Noisy);
        assert_eq!(judged(1_000, 51, 0, None).0, Fidelity::Tainted);
        assert_eq!(judged(1_000, 0, 1, None).0, Fidelity::Tainted);
        let (fidelity, reasons) = judged(0, 0, 0, Some(0.95));
        assert_eq!((fidelity, reasons.len()), (Fidelity::Tainted, 1));
    }

    #[test]
    fn waiting_for_a_disk_is_not_being_busy() {
        let then = Processors::read("cpu  10 0 10 70 10 0 0 0 0 0\ncpu0 1 1\n").unwrap();
        let now = Processors::read("cpu  20 0 30 130 10 5 5 0 20 0\n").unwrap();
        assert!((now.busy_since(then) - 0.4).abs() < 1e-9);
        assert_eq!(Processors::read("intr 5"), None);
        assert!(Processors::look().is_some());
    }
}
