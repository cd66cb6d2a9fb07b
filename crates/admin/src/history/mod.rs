//! What the relay and each line carried: a sample each 10 s, kept for a day, and its mean of 5 min, kept for 30 days.
//!
//! Rates are of bytes counted between two samples by a clock that does not jump; the clock of the day only says where
//! a sample belongs. Each series has a file of 276 kB, and there are 17 at most: 4.7 MB in memory and on disk.

mod recording;
mod ring;
mod series;

pub(crate) use recording::Recording;

use crate::server::Turns;
use ekiden_linux::host::state_files;
use ekiden_linux::host::sync::locked;
use ekiden_proxy::observe::status::{Status, TunnelStatus};
use ring::{Sample, VALUES};
use serde::Serialize;
use series::Series;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinError;

/// Seconds between samples.
pub(crate) const STEP: u64 = series::FINE.0;
/// Lines with a series of their own; beyond, the one that was silent longest makes room.
const MOST_LINES: usize = 16;
/// Requests that are answered at once: while the disk does not answer, each keeps a thread.
const ASKING: usize = 4;
/// The name of the series of the whole relay; no peer can have it.
pub(crate) const TOTAL: &str = "(total)";

/// What the values of a sample are.
const OF_TOTAL: [&str; VALUES] = ["down", "up", "connections", "waiting", "failed"];
const OF_LINE: [&str; VALUES] = ["down", "up", "rtt_us", "queue_us", "loss_ppm"];

/// A part of a series, for a chart.
#[derive(Debug, Serialize)]
pub(crate) struct Chart {
    /// When the first sample was taken, in seconds since 1970.
    from: u64,
    /// Seconds of a sample.
    step: u64,
    /// The values by name; null where nothing is known.
    rows: BTreeMap<&'static str, Vec<Option<u64>>>,
}

/// All series. Its lock is held for microseconds, and while a minute is written to disk.
#[derive(Debug)]
pub(crate) struct History {
    folder: PathBuf,
    state: Mutex<State>,
    asking: Turns,
}

#[derive(Debug, Default)]
struct State {
    series: BTreeMap<String, Series>,
    before: Option<(Instant, Counters)>,
}

/// What only grows, so that its growth is what was carried.
#[derive(Debug, Default)]
struct Counters {
    total: [u64; 3],
    lines: BTreeMap<String, [u64; 4]>,
}

impl Counters {
    fn of(status: &Status) -> Self {
        let totals = &status.totals;
        let up = status.tunnels.iter().filter(|line| line.up);
        Self {
            total: [totals.bytes_down, totals.bytes_up, totals.failed],
            lines: up.map(|line| (line.peer.clone(), of_line(line))).collect(),
        }
    }
}

const fn of_line(line: &TunnelStatus) -> [u64; 4] {
    [line.bytes_received, line.bytes_sent, line.packets, line.packets_lost]
}

impl History {
    /// The history in `folder`, which is made if missing. Errors: it cannot be made or read.
    pub(crate) fn open(folder: PathBuf) -> io::Result<Self> {
        state_files::make_folder(&folder)?;
        let mut state = State::default();
        state.series.insert(TOTAL.to_owned(), Series::open(folder.join("total.ring"))?);
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if let Some(peer) = peer_of(&path) {
                state.series.insert(peer.to_owned(), Series::open(path)?);
            }
        }
        while state.series.len() > MOST_LINES + 1 && state.make_room(&[]) {}
        Ok(Self { folder, state: Mutex::new(state), asking: Turns::new(ASKING) })
    }

    /// Takes a sample: `unix` is the time of day, in seconds since 1970. Whether there is one: the first status has
    /// none to be compared with.
    pub(crate) fn sample(&self, unix: u64, now: Instant, status: &Status) -> bool {
        let mut state = locked(&self.state);
        let counters = Counters::of(status);
        if let Some((at, before)) = &state.before {
            let passed = now.duration_since(*at);
            let samples = samples(status, &counters, before, passed);
            for (name, sample) in samples {
                state.put(&self.folder, status, (name, unix), &sample);
            }
        }
        state.before.replace((now, counters)).is_some()
    }

    /// Writes what is not on disk yet. Errors: the first that occurred; the rest was written.
    pub(crate) fn save(&self) -> io::Result<()> {
        let mut state = locked(&self.state);
        let mut done = Ok(());
        for series in state.series.values_mut() {
            done = done.and(series.save());
        }
        done
    }

    /// Asks on a thread that may wait: its lock may be held for the disk, and a chart takes a while. Few do at once, also
    /// where those who asked are gone. Errors: `ask` panicked.
    pub(crate) async fn ask<T: Send + 'static>(
        self: &Arc<Self>,
        ask: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let this = Arc::clone(self);
        self.asking.spawn_blocking(move || ask(&this)).await
    }

    /// The last `span` seconds of a series; `None` where there is none of this name.
    pub(crate) fn chart(&self, name: &str, now: u64, span: u64) -> Option<Chart> {
        let state = locked(&self.state);
        let (from, step, rows) = state.series.get(name)?.read(now, span);
        let names = if name == TOTAL { OF_TOTAL } else { OF_LINE };
        Some(Chart { from, step, rows: names.into_iter().zip(rows).collect() })
    }

    /// The names of all series, that of the whole relay first.
    pub(crate) fn names(&self) -> Vec<String> {
        locked(&self.state).series.keys().cloned().collect()
    }
}

impl State {
    fn put(&mut self, folder: &Path, status: &Status, (name, unix): (&str, u64), sample: &Sample) {
        if !self.series.contains_key(name) {
            let lines: Vec<&str> = status.tunnels.iter().map(|line| line.peer.as_str()).collect();
            if self.series.len() > MOST_LINES && !self.make_room(&lines) {
                return;
            }
            match Series::open(folder.join(format!("line-{name}.ring"))) {
                Ok(series) => drop(self.series.insert(name.to_owned(), series)),
                Err(error) => return tracing::warn!(%error, "no history of the line to {name}"),
            }
        }
        if let Some(series) = self.series.get_mut(name) {
            series.put(unix, sample);
        }
    }

    /// Forgets the line that was silent longest, but none of `kept`. Whether there was one.
    fn make_room(&mut self, kept: &[&str]) -> bool {
        let lines = self.series.iter();
        let may_go = lines.filter(|(name, _)| *name != TOTAL && !kept.contains(&name.as_str()));
        let oldest = may_go.min_by_key(|(_, series)| series.newest());
        let Some(name) = oldest.map(|(name, _)| name.clone()) else { return false };
        if let Some(series) = self.series.remove(&name)
            && let Err(error) = fs::remove_file(series.path())
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "{} cannot be removed", series.path().display());
        }
        true
    }
}

/// The peer whose line a file is of; names are as `ekiden peer invite` admits them.
fn peer_of(path: &Path) -> Option<&str> {
    let name = path.file_name()?.to_str()?.strip_prefix("line-")?.strip_suffix(".ring")?;
    ekiden_config::name(name).is_ok().then_some(name)
}

/// The sample of the whole relay and of each line that is up.
fn samples<'a>(
    status: &'a Status,
    now: &Counters,
    before: &Counters,
    passed: Duration,
) -> Vec<(&'a str, Sample)> {
    // after a pause of the machine, a mean over it would be said of ten seconds
    let seconds = passed.as_secs_f64();
    let whole = (1.0..=3.0 * STEP as f64).contains(&seconds);
    let rate = |now: u64, before: u64| {
        let bytes = now.checked_sub(before).filter(|_| whole)?;
        Some((bytes as f64 * 8.0 / seconds) as u64)
    };
    let [down, up, failed] = now.total;
    let used = status.budgets.iter().find(|budget| budget.name == "connections");
    let total = [
        rate(down, before.total[0]),
        rate(up, before.total[1]),
        used.map(|budget| budget.used),
        Some(status.pressure.waiting),
        failed.checked_sub(before.total[2]).filter(|_| whole),
    ];
    let mut samples = vec![(TOTAL, total)];
    for line in status.tunnels.iter().filter(|line| line.up) {
        // a tunnel that is new counts from nothing
        let Some(then) = before.lines.get(&line.peer) else { continue };
        let [received, sent, packets, lost] = of_line(line);
        let lost = lost.checked_sub(then[3]).zip(packets.checked_sub(then[2]));
        let loss = lost.filter(|(_, packets)| *packets > 0);
        let sample = [
            rate(received, then[0]),
            rate(sent, then[1]),
            Some(line.rtt_us as u64),
            Some(line.queue_us as u64),
            loss.map(|(lost, packets)| lost.saturating_mul(1_000_000) / packets),
        ];
        samples.push((&line.peer, sample));
    }
    samples
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::sync::mpsc::{Sender, channel};
    use std::thread;

    const NOW: u64 = 1_790_000_000;

    fn status(bytes: u64, peers: &[String]) -> Status {
        let mut status = crate::sample();
        status.totals.bytes_down = bytes;
        let line = |peer: &String| TunnelStatus {
            peer: peer.clone(),
            up: true,
            bytes_sent: bytes,
            rtt_us: 600_000.0,
            packets: bytes / 1_000,
            packets_lost: bytes / 100_000,
            ..TunnelStatus::default()
        };
        status.tunnels = peers.iter().map(line).collect();
        status
    }

    #[test]
    fn rates_are_of_what_was_carried_between_two_samples() {
        let dir = tempfile::tempdir().unwrap();
        let history = History::open(dir.path().join("history")).unwrap();
        let (begun, ship) = (Instant::now(), ["ship".to_owned()]);
        for n in 0..4 {
            let at = begun + Duration::from_secs(n * 10);
            history.sample(NOW + n * 10, at, &status(n * 10_000_000, &ship));
        }
        // the daemon's counters began anew, then the machine slept
        let at = |seconds| begun + Duration::from_secs(seconds);
        history.sample(NOW + 40, at(40), &status(0, &ship));
        history.sample(NOW + 50, at(4_000), &status(10_000_000, &ship));
        history.save().unwrap();
        let again = History::open(dir.path().join("history")).unwrap();
        assert_eq!(again.names(), [TOTAL, "ship"]);
        let chart = again.chart(TOTAL, NOW + 50, 60).unwrap();
        let eight = |n: u64| (7_990_000..=8_000_000).contains(&n);
        let down: Vec<bool> = chart.rows["down"].iter().map(|n| n.is_some_and(eight)).collect();
        assert_eq!(down, [false, true, true, true, false, false], "{chart:?}");
        assert_eq!(chart.rows["connections"][5], Some(3));
        let chart = again.chart("ship", NOW + 50, 60).unwrap();
        assert!(chart.rows["rtt_us"][1].is_some_and(|rtt| (599_000..=600_000).contains(&rtt)));
        assert!(chart.rows["loss_ppm"][1].is_some_and(|loss| (9_990..=10_000).contains(&loss)));
        assert!(again.chart("shop", NOW, 60).is_none());
    }

    /// Holds the history as one that is being saved, until it is told to go on.
    pub(super) fn saved_until(history: &Arc<History>) -> (Sender<()>, thread::JoinHandle<()>) {
        let ((held, is_held), (go, goes_on)) = (channel::<()>(), channel::<()>());
        let saved = Arc::clone(history);
        let saving = thread::spawn(move || {
            let _state = locked(&saved.state);
            held.send(()).unwrap();
            // a runtime that waits for the lock never says so
            let _late = goes_on.recv_timeout(Duration::from_secs(60));
        });
        is_held.recv().unwrap();
        (go, saving)
    }

    #[tokio::test]
    async fn a_request_waits_for_the_disk_and_the_thread_of_the_runtime_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let history = Arc::new(History::open(dir.path().to_owned()).unwrap());
        let (go, saving) = saved_until(&history);
        let asked = Arc::clone(&history);
        let asking = tokio::spawn(async move { asked.ask(History::names).await });
        tokio::task::yield_now().await;
        go.send(()).unwrap();
        assert_eq!(asking.await.unwrap().unwrap(), [TOTAL]);
        saving.join().unwrap();
    }

    #[tokio::test]
    async fn requests_that_are_given_up_keep_few_threads_waiting_for_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        let history = Arc::new(History::open(dir.path().to_owned()).unwrap());
        let (go, saving) = saved_until(&history);
        let begun = Arc::new(AtomicUsize::new(0));
        for _ in 0..20 {
            let (asked, begun) = (Arc::clone(&history), Arc::clone(&begun));
            let asking = tokio::spawn(async move {
                let names = move |history: &History| {
                    begun.fetch_add(1, SeqCst);
                    history.names()
                };
                asked.ask(names).await
            });
            tokio::task::yield_now().await;
            asking.abort();
        }
        go.send(()).unwrap();
        assert_eq!(history.ask(History::names).await.unwrap(), [TOTAL]);
        saving.join().unwrap();
        assert!(begun.load(SeqCst) <= ASKING, "{begun:?}");
    }

    #[test]
    fn lines_are_bounded_and_the_silent_ones_make_room() {
        let dir = tempfile::tempdir().unwrap();
        let history = History::open(dir.path().to_owned()).unwrap();
        let begun = Instant::now();
        for round in 0..3_u64 {
            let peers: Vec<_> = (0..10).map(|n| format!("p{}", round * 10 + n)).collect();
            for n in 0..2 {
                let seconds = round * 100 + n * 10;
                let at = begun + Duration::from_secs(seconds);
                history.sample(NOW + seconds, at, &status(n, &peers));
            }
            history.save().unwrap();
        }
        let names = history.names();
        assert_eq!(names.len(), MOST_LINES + 1);
        assert!(names.contains(&"p29".to_owned()) && !names.contains(&"p0".to_owned()));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), MOST_LINES + 1);
        fs::write(dir.path().join("line-..%2f.ring"), "x").unwrap();
        assert_eq!(History::open(dir.path().to_owned()).unwrap().names().len(), MOST_LINES + 1);
    }
}
