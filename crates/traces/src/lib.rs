//! Traces of connections, sent to an OpenTelemetry collector by OTLP over HTTP, as JSON.
//!
//! ```text
//! proxy: TraceQueue ─▶ batch ─▶ otlp ─▶ POST /v1/traces
//! ```
//! What waits is in the proxy's queue, which is bounded. A batch that cannot be sent is tried again for five minutes,
//! then given up and counted. Nothing here is on a connection's way.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))] // a test may fail loudly

mod attempt;
mod otlp;

use attempt::{Attempt, Exporter};
use ekiden_config::{Secret, Traces, WebhookUrl};
use ekiden_linux::host::panics::restarted;
use ekiden_model::units::Share;
use ekiden_proxy::Handle;
use ekiden_proxy::observe::traces::FinishedTrace;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// Traces that go in one request at most.
const BATCH: usize = 256;
/// After the first trace of a batch, others are waited for this long.
const GATHER: Duration = Duration::from_secs(2);
/// Between two attempts to send a batch, at first and at most.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];
/// A batch is given up after this long.
const LONGEST: Duration = Duration::from_secs(300);

/// Where traces are sent to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceSettings {
    /// `[traces]`.
    pub traces: Traces,
    /// The value of `Authorization`.
    pub authorization: Option<Secret>,
    /// The relay's name.
    pub relay: String,
}

impl TraceSettings {
    /// The collector as the log and the status show it; `None` where nothing is sent.
    pub fn collector(&self) -> Option<String> {
        let url = WebhookUrl::read(self.traces.endpoint.as_deref()?).ok()?;
        (self.traces.sample > Share::NONE).then(|| url.masked())
    }
}

/// The sending of traces; ends with its drop.
#[derive(Debug)]
pub struct TraceExport {
    settings: watch::Sender<TraceSettings>,
    handle: Handle,
    task: JoinHandle<()>,
}

impl TraceExport {
    /// Begins, on the current tokio runtime.
    pub fn start(settings: TraceSettings, handle: Handle) -> Self {
        tell(&handle, &settings);
        let (sender, receiver) = watch::channel(settings);
        let of = handle.clone();
        let send = move || run(receiver.clone(), of.clone());
        let task = tokio::spawn(restarted("the sending of traces", send));
        Self { settings: sender, handle, task }
    }

    /// Other settings from now on.
    pub fn follow(&self, settings: TraceSettings) {
        tell(&self.handle, &settings);
        self.settings.send_replace(settings);
    }
}

impl Drop for TraceExport {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn tell(handle: &Handle, settings: &TraceSettings) {
    let share = settings.traces.sample;
    handle.traces().follow(settings.collector().map(|collector| (share, collector)));
}

/// A batch on its way, over changes of the settings.
#[derive(Debug, Default)]
struct Batch {
    traces: Vec<FinishedTrace>,
    /// Since when it is tried.
    since: Option<Instant>,
}

async fn run(mut settings: watch::Receiver<TraceSettings>, handle: Handle) {
    let mut batch = Batch::default();
    loop {
        let exporter = Exporter::new(&settings.borrow_and_update());
        if exporter.is_none() {
            batch = Batch::default();
        }
        let sending = async {
            match &exporter {
                Some(exporter) => send(exporter, &handle, &mut batch).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = sending => {}
            changed = settings.changed() => if changed.is_err() { return },
        }
    }
}

/// Sends one batch, or gives it up.
async fn send(exporter: &Exporter, handle: &Handle, batch: &mut Batch) {
    let queue = handle.traces();
    if batch.traces.is_empty() {
        queue.wait().await;
        sleep(GATHER).await;
        *batch = Batch { traces: queue.take(BATCH), since: Some(Instant::now()) };
    }
    let n = batch.traces.len() as u64;
    let mut pause = PAUSES[0];
    loop {
        let (attempt, late) = (exporter.send(handle, &batch.traces).await, is_late(batch));
        match attempt {
            Attempt::Taken { rejected, why } => {
                let rejected = rejected.min(n);
                queue.on_sent(n - rejected, rejected, why);
                break;
            }
            Attempt::Refused(why) => {
                queue.on_sent(0, n, Some(why));
                break;
            }
            Attempt::Away { why, .. } if late => {
                queue.on_sent(0, n, Some(why));
                break;
            }
            Attempt::Away { why, after } => {
                tracing::debug!("traces wait for their collector: {why}");
                queue.on_sent(0, 0, Some(why));
                sleep(after.unwrap_or(pause).clamp(PAUSES[0], PAUSES[1])).await;
                pause = (2 * pause).min(PAUSES[1]);
            }
        }
    }
    *batch = Batch::default();
}

fn is_late(batch: &Batch) -> bool {
    batch.since.is_some_and(|since| since.elapsed() >= LONGEST)
}
