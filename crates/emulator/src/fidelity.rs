//! How far the real run was from the link it stands for, and whether that matters.

use ekiden_model::units::Span;
use serde::{Deserialize, Serialize};
use std::fs;

/// The verdict on a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Packets came when they were due.
    Clean,
    /// Some came noticeably late: look at the figures before trusting fine differences.
    Noisy,
    /// Packets were lost that the link did not lose, or the machine stood still: do not use.
    Tainted,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Clean => "clean",
            Self::Noisy => "noisy",
            Self::Tainted => "tainted",
        })
    }
}

/// A packet this late means that the emulator stood still.
const STALL: Span = Span::from_millis(10);
/// Shares of packets, in parts per million, that may come more than 1 ms late.
const NOISY_LATE: u64 = 5_000;
const TAINTED_LATE: u64 = 50_000;
/// Share of the processors' time, in parts per million, that the host may take away.
const NOISY_STEAL: u64 = 10_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Evidence {
    pub(crate) packets: u64,
    /// Those handed over more than 1 ms after they were due.
    pub(crate) late: u64,
    pub(crate) latest: Span,
    /// Lost on the way into or out of the emulator.
    pub(crate) missed: u64,
    /// Processor time that the host took away, in parts per million.
    pub(crate) steal_ppm: u64,
}

/// The verdict, and why it is not better.
pub(crate) fn judge(evidence: &Evidence) -> (Verdict, Vec<String>) {
    let mut verdict = Verdict::Clean;
    let mut reasons = Vec::new();
    let mut find = |found: Verdict, reason: String| {
        verdict = verdict.max(found);
        reasons.push(reason);
    };
    let Evidence { packets, late, latest, missed, steal_ppm } = *evidence;
    if missed > 0 {
        find(Verdict::Tainted, format!("{missed} packets were lost outside the link's model"));
    }
    if latest >= STALL {
        find(Verdict::Tainted, format!("the emulator stood still: a packet came {latest} late"));
    }
    let late_ppm = (late * 1_000_000).checked_div(packets).unwrap_or(0);
    if late_ppm > NOISY_LATE {
        let found = if late_ppm > TAINTED_LATE { Verdict::Tainted } else { Verdict::Noisy };
        let (percent, tenths) = (late_ppm / 10_000, late_ppm / 1_000 % 10);
        find(found, format!("{percent}.{tenths} % of packets came more than 1 ms late"));
    }
    if steal_ppm > NOISY_STEAL {
        let percent = steal_ppm / 10_000;
        find(Verdict::Noisy, format!("the host took {percent} % of the processors' time away"));
    }
    (verdict, reasons)
}

/// The processors' time and what of it the host took away, since the machine started.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Steal {
    all: u64,
    stolen: u64,
}

impl Steal {
    pub(crate) fn now() -> Self {
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        let times = text.lines().next().unwrap_or_default().split_whitespace().skip(1);
        let times: Vec<u64> = times.filter_map(|time| time.parse().ok()).collect();
        // user nice system idle iowait irq softirq steal; guest time is in user's already
        Self { all: times.iter().take(8).sum(), stolen: times.get(7).copied().unwrap_or(0) }
    }

    /// Parts per million stolen since then.
    pub(crate) fn since(self) -> u64 {
        let now = Self::now();
        let stolen = now.stolen.saturating_sub(self.stolen);
        (stolen * 1_000_000).checked_div(now.all.saturating_sub(self.all)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINE: Evidence = Evidence {
        packets: 1000,
        late: 0,
        latest: Span::from_micros(200),
        missed: 0,
        steal_ppm: 0,
    };

    #[test]
    fn verdicts() {
        assert_eq!(judge(&FINE), (Verdict::Clean, vec![]));
        assert_eq!(judge(&Evidence::default()).0, Verdict::Clean, "nothing moved or was late");
        for (evidence, verdict) in [
            (Evidence { missed: 1, ..FINE }, Verdict::Tainted),
            (Evidence { latest: Span::from_millis(20), late: 1, ..FINE }, Verdict::Tainted),
            (Evidence { late: 5, ..FINE }, Verdict::Clean),
            (Evidence { late: 6, ..FINE }, Verdict::Noisy),
            (Evidence { late: 51, ..FINE }, Verdict::Tainted),
            (Evidence { steal_ppm: 20_000, ..FINE }, Verdict::Noisy),
        ] {
            let (found, reasons) = judge(&evidence);
            assert_eq!(found, verdict, "{evidence:?}");
            assert_eq!(reasons.is_empty(), verdict == Verdict::Clean, "{evidence:?}");
        }
    }
}
