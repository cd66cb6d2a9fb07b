//! Memory and descriptors of the relays, once a second.

use crate::ledger::Ledger;
use crate::slope::Slope;
use serde::Serialize;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::time::Duration;

/// Growth that is no leak: pages an allocator keeps for each of its threads, a cache's last entries. A test of 4,000
/// connections saw 5 MB at most (`crates/ekiden/tests/it/leaks.rs`); three times that.
const MEMORY: f64 = 16e6;
/// Connections come and go by tens.
const DESCRIPTORS: f64 = 32.0;
/// A fit over less than this shows how the load came and went, and is not judged.
const JUDGED: f64 = 600.0;
/// Of the time without kills, the part in which caches and pools fill.
const WARM_UP: u32 = 4;

/// One look.
#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Duration,
    pid: i32,
    memory: u64,
    descriptors: u64,
}

/// A relay's samples.
#[derive(Debug)]
pub(crate) struct Watch {
    relay: &'static str,
    pid: Arc<AtomicI32>,
    samples: Vec<Sample>,
}

/// How late a look came that was due once a second: so long this program had no processor.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Lateness {
    last: Duration,
    pub(crate) most: Duration,
    /// All of it.
    pub(crate) sum: Duration,
}

impl Lateness {
    /// A look, a second after the last one began.
    pub(crate) fn on_look(&mut self, now: Duration) {
        let late = now.saturating_sub(self.last + Duration::from_secs(1));
        (self.last, self.most, self.sum) = (now, self.most.max(late), self.sum + late);
    }
}

/// What a relay's quantity did in its last life.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Growth {
    pub(crate) relay: &'static str,
    pub(crate) quantity: &'static str,
    /// The least and the largest value that was fitted.
    pub(crate) least: f64,
    pub(crate) most: f64,
    /// `None`: too few samples to fit.
    pub(crate) slope: Option<Slope>,
    pub(crate) slack: f64,
    /// Whether the fit is long enough to tell a leak from the load.
    pub(crate) judged: bool,
    pub(crate) holds: bool,
}

impl Watch {
    pub(crate) const fn new(relay: &'static str, pid: Arc<AtomicI32>) -> Self {
        Self { relay, pid, samples: Vec::new() }
    }

    /// Takes a sample of the process that lives, if one does.
    pub(crate) fn look(&mut self, ledger: &Ledger) {
        let pid = self.pid.load(Relaxed);
        let Some((memory, descriptors)) = read(pid) else { return };
        self.samples.push(Sample { at: ledger.now(), pid, memory, descriptors });
    }

    /// Growth between these times, after a warm-up, of the process that lived last.
    pub(crate) fn growth(&self, from: Duration, to: Duration) -> [Growth; 2] {
        let warm = from + to.saturating_sub(from) / WARM_UP;
        let last = self.samples.last().map_or(0, |sample| sample.pid);
        let fitted = |sample: &&Sample| sample.pid == last && sample.at >= warm && sample.at <= to;
        let fitted: Vec<Sample> = self.samples.iter().filter(fitted).copied().collect();
        let quantity = |quantity, slack, of: fn(&Sample) -> u64| {
            let points = fitted.iter().map(|sample| (sample.at.as_secs_f64(), of(sample) as f64));
            let points: Vec<(f64, f64)> = points.collect();
            let slope = Slope::fit(&points);
            let judged = slope.is_some_and(|slope| slope.seconds >= JUDGED);
            let values = || points.iter().map(|(_, value)| *value);
            Growth {
                relay: self.relay,
                quantity,
                least: values().reduce(f64::min).unwrap_or_default(),
                most: values().reduce(f64::max).unwrap_or_default(),
                slope,
                slack,
                judged,
                holds: slope.is_some_and(|slope| !judged || !slope.grows(slack)),
            }
        };
        [
            quantity("memory", MEMORY, |sample| sample.memory),
            quantity("descriptors", DESCRIPTORS, |sample| sample.descriptors),
        ]
    }
}

/// Resident bytes and open descriptors of a process.
fn read(pid: i32) -> Option<(u64, u64)> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count();
    Some((kib << 10, descriptors as u64))
}
