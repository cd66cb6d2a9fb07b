//! The task that takes samples and writes them down.

use super::{History, STEP};
use crate::{AT_END, Shared};
use ekiden_linux::host::panics::restarted;
use ekiden_proxy::observe::status::Summary;
use jiff::Timestamp;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Each nth sample all are written to disk: once a minute. The first is written at once.
const SAVE: u32 = 6;

/// A recording that goes on until it is stopped.
#[derive(Debug)]
pub(crate) struct Recording {
    history: Arc<History>,
    task: JoinHandle<()>,
}

impl Recording {
    /// Begins; `None`, with a line in the log, where the folder cannot be used.
    pub(crate) fn start(folder: &Path, shared: Arc<Shared>) -> Option<Self> {
        let history = match History::open(folder.to_owned()) {
            Ok(history) => Arc::new(history),
            Err(error) => {
                tracing::warn!("no history for the dashboard: {}: {error}", folder.display());
                return None;
            }
        };
        let _once = shared.dashboard.history.set(Arc::clone(&history));
        let of = Arc::clone(&history);
        let record = move || record(Arc::clone(&of), Arc::clone(&shared));
        let task = tokio::spawn(restarted("the dashboard's history", record));
        Some(Self { history, task })
    }

    /// Ends it, and writes what is not on disk yet. A disk that hangs is given up.
    pub(crate) async fn stop(&self) {
        self.task.abort();
        let history = Arc::clone(&self.history);
        // the log has why it failed
        let saving = tokio::task::spawn_blocking(move || save(&history));
        if tokio::time::timeout(AT_END, saving).await.is_err() {
            let seconds = AT_END.as_secs();
            tracing::warn!("the disk did not take the dashboard's history within {seconds} s");
        }
    }
}

async fn record(history: Arc<History>, shared: Arc<Shared>) {
    let mut unsaved = SAVE - 1;
    loop {
        tokio::time::sleep(until_next(Timestamp::now())).await;
        // while the relay starts there is nothing to record
        let Ok(Summary { status, .. }) = shared.status.summary(0).await else { continue };
        let unix = u64::try_from(Timestamp::now().as_second()).unwrap_or(0);
        unsaved += u32::from(history.sample(unix, Instant::now(), &status));
        if unsaved >= SAVE {
            let history = Arc::clone(&history);
            let saved = tokio::task::spawn_blocking(move || save(&history)).await;
            if let (Ok(saved), Ok(running)) = (saved, shared.status.running()) {
                running.handle.alerts().on_saved("history", saved);
            }
            unsaved = 0;
        }
    }
}

/// Errors: in words; the log has them.
fn save(history: &History) -> Result<(), String> {
    history.save().map_err(|error| {
        tracing::warn!(%error, "the dashboard's history cannot be written; the next minute tries again");
        error.to_string()
    })
}

/// Until a moment after the next full step of the day's clock, so that each step gets one sample.
fn until_next(now: Timestamp) -> Duration {
    let nanos = now.as_nanosecond().rem_euclid(i128::from(STEP) * 1_000_000_000);
    let passed = Duration::from_nanos(u64::try_from(nanos).unwrap_or(0));
    Duration::from_secs(STEP) - passed + Duration::from_millis(50)
}

#[cfg(test)]
mod tests {
    use super::super::tests::saved_until;
    use super::*;

    #[tokio::test]
    async fn a_disk_that_hangs_does_not_hold_up_a_stop() {
        let folder = tempfile::tempdir().unwrap();
        let history = Arc::new(History::open(folder.path().to_owned()).unwrap());
        let (go, saving) = saved_until(&history);
        let task = tokio::spawn(std::future::pending::<()>());
        let recording = Recording { history, task };
        tokio::time::pause();
        let stopping = tokio::spawn(async move { recording.stop().await });
        // it comes to where it waits; the clock does not go on by itself while a thread works
        tokio::task::yield_now().await;
        tokio::time::advance(AT_END + Duration::from_secs(1)).await;
        stopping.await.unwrap();
        // a runtime that waits for the disk never says so
        go.send(()).unwrap();
        saving.join().unwrap();
    }

    #[test]
    fn samples_are_taken_after_each_full_step() {
        let at = |millis| until_next(Timestamp::from_millisecond(millis).unwrap()).as_millis();
        assert_eq!((at(20_000), at(25_000), at(29_999)), (10_050, 5_050, 51));
    }
}
