//! Memory and descriptors of the relays, once a second.

use crate::ledger::Ledger;
use crate::slope::Slope;
use ekiden_linux::sockets::splice::IDLE_KEPT;
use ekiden_testkit::Home;
use serde::Serialize;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::time::Duration;

/// Bytes an hour that resident memory may grow by: pages that an allocator keeps, with little of each in use. It gives
/// back where these come to a quarter.
const RESIDENT: f64 = 16e6;
/// Bytes an hour that the memory in use may grow by.
const IN_USE: f64 = 4e6;
/// Descriptors an hour. Connections come and go by tens.
const DESCRIPTORS: f64 = 32.0;
/// Descriptors that a relay may keep once all its clients have gone, beside those that it had before the first one: idle
/// pipes, of two each, and as many others as above. Pooled connections go after some seconds.
const KEPT: u64 = DESCRIPTORS as u64 + 2 * IDLE_KEPT as u64;
/// A look that comes so late shows that the machine stood still.
const STOOD: Duration = Duration::from_millis(250);
/// Looks between two at what is in use, for which the relay is asked. It looks as often itself.
const IN_USE_LOOKS: u64 = 10;
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
    home: Arc<Home>,
    looks: u64,
    /// When, in which process, and bytes in use.
    in_use: Vec<(Duration, i32, u64)>,
}

/// How late a look came that was due once a second: so long this program had no processor.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lateness {
    last: Duration,
    pub(crate) most: Duration,
    /// All of it.
    pub(crate) sum: Duration,
    /// Times in which the machine stood still.
    pub(crate) stood: Vec<(Duration, Duration)>,
}

impl Lateness {
    /// A look, a second after the last one began.
    pub(crate) fn on_look(&mut self, now: Duration) {
        let late = now.saturating_sub(self.last + Duration::from_secs(1));
        if late > STOOD {
            self.stood.push((self.last, now));
        }
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
    pub(crate) const fn new(relay: &'static str, pid: Arc<AtomicI32>, home: Arc<Home>) -> Self {
        Self { relay, pid, samples: Vec::new(), home, looks: 0, in_use: Vec::new() }
    }

    /// Takes a sample of the process that lives, if one does.
    pub(crate) fn look(&mut self, ledger: &Ledger) {
        let pid = self.pid.load(Relaxed);
        let Some((memory, descriptors)) = read(pid) else { return };
        self.samples.push(Sample { at: ledger.now(), pid, memory, descriptors });
        self.looks += 1;
        if self.looks.is_multiple_of(IN_USE_LOOKS)
            && let Some(status) = self.home.status()
            && let Some(in_use) = status["memory"]["in_use"].as_u64()
        {
            self.in_use.push((ledger.now(), pid, in_use));
        }
    }

    /// Open descriptors of the process that lives; `None` between two.
    pub(crate) fn descriptors(&self) -> Option<u64> {
        read(self.pid.load(Relaxed)).map(|(_, descriptors)| descriptors)
    }

    /// A sentence, where more are open now than a relay keeps that had so many before its first client.
    pub(crate) fn left_open(&self, before: u64) -> Option<String> {
        let now = self.descriptors()?;
        let relay = self.relay;
        is_too_many(now, before).then(|| {
            format!("{now} descriptors of the {relay} relay after its last client, {before} before the first")
        })
    }

    /// Growth between these times, after a warm-up, of the process that lived last.
    pub(crate) fn growth(&self, from: Duration, to: Duration) -> [Growth; 3] {
        let warm = from + to.saturating_sub(from) / WARM_UP;
        let last = self.samples.last().map_or(0, |sample| sample.pid);
        let fitted = |at: Duration, pid: i32| pid == last && at >= warm && at <= to;
        let of_samples = |of: fn(&Sample) -> u64| {
            let fitted = self.samples.iter().filter(|sample| fitted(sample.at, sample.pid));
            fitted.map(|sample| (sample.at.as_secs_f64(), of(sample) as f64)).collect()
        };
        let in_use = self.in_use.iter().filter(|(at, pid, _)| fitted(*at, *pid));
        let in_use = in_use.map(|(at, _, bytes)| (at.as_secs_f64(), *bytes as f64)).collect();
        // a long run whose samples are missing is judged, and does not hold
        let long = to.saturating_sub(warm).as_secs_f64() >= JUDGED;
        let quantity = |quantity, slack, points: Vec<(f64, f64)>| {
            let slope = Slope::fit(&points);
            let judged = slope.map_or(long, |slope| slope.seconds >= JUDGED);
            let values = || points.iter().map(|(_, value)| *value);
            Growth {
                relay: self.relay,
                quantity,
                least: values().reduce(f64::min).unwrap_or_default(),
                most: values().reduce(f64::max).unwrap_or_default(),
                slope,
                slack,
                judged,
                holds: !judged || slope.is_some_and(|slope| !slope.grows(slack)),
            }
        };
        [
            quantity("memory", RESIDENT, of_samples(|sample| sample.memory)),
            quantity("memory in use", IN_USE, in_use),
            quantity("descriptors", DESCRIPTORS, of_samples(|sample| sample.descriptors)),
        ]
    }
}

const fn is_too_many(now: u64, before: u64) -> bool {
    now > before + KEPT
}

/// Resident bytes and open descriptors of a process.
fn read(pid: i32) -> Option<(u64, u64)> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count();
    Some((kib << 10, descriptors as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relay_keeps_pipes_and_little_more() {
        assert!(!is_too_many(40 + 32 + 64, 40));
        assert!(is_too_many(40 + 32 + 65, 40));
    }

    #[test]
    fn late_looks_show_when_the_machine_stood_still() {
        let mut lateness = Lateness::default();
        for now in [1_000, 2_200, 3_500, 4_500] {
            lateness.on_look(Duration::from_millis(now));
        }
        let [from, to] = [2_200, 3_500].map(Duration::from_millis);
        assert_eq!(lateness.stood, [(from, to)]);
    }
}
