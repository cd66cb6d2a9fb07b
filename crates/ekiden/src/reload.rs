//! Reading the configuration again while the daemon runs: who may ask for it, and what becomes of it.

use crate::config::{self, Draft};
use crate::serve::Fixed;
use crate::{limits, state};
use ekiden_proxy::settings::{AccessLog, Accounts, Settings};
use std::os::unix::fs::OpenOptionsExt as _;
use tokio::sync::{mpsc, oneshot};
use tracing::{error, info, warn};

/// What became of it: what is not as it was meant, or the mistakes for which the old configuration stays.
pub(crate) type Outcome = Result<Vec<String>, Vec<String>>;

/// Asks a daemon to read its configuration again.
#[derive(Debug, Clone)]
pub(crate) struct Reloads(mpsc::Sender<Answer>);

/// Whoever asked.
#[derive(Debug)]
pub(crate) struct Answer(oneshot::Sender<Outcome>);

impl Reloads {
    /// For those who ask, and for the daemon.
    pub(crate) fn new() -> (Self, mpsc::Receiver<Answer>) {
        // one after the other: whoever comes meanwhile waits
        let (ask, asked) = mpsc::channel(1);
        (Self(ask), asked)
    }

    /// Asks, and waits until it is done.
    pub(crate) async fn ask(&self) -> Outcome {
        let stopping = |_| Err(vec!["the daemon is starting or stopping".to_owned()]);
        let (answer, done) = oneshot::channel();
        if self.0.send(Answer(answer)).await.is_err() {
            return stopping(());
        }
        done.await.unwrap_or_else(|_| stopping(()))
    }
}

impl Answer {
    /// Tells them.
    pub(crate) fn give(self, outcome: Outcome) {
        // they may have gone
        let _gone = self.0.send(outcome);
    }
}

/// Reads the configuration again, and says what is to be said of it. `Err`: the mistakes for which the old one stays.
pub(crate) fn read(fixed: &Fixed) -> Result<(Settings, Vec<String>), Vec<String>> {
    let loaded = config::load(fixed.file.as_deref(), &fixed.overrides);
    let reading = &loaded.reading;
    let (mut wrong, mut warnings) = (Vec::new(), Vec::new());
    for problem in &reading.problems {
        if problem.is_error() { &mut wrong } else { &mut warnings }.push(problem.line());
    }
    if wrong.is_empty()
        && let Err(why) = access_log(&reading.settings.access_log)
    {
        wrong.push(why);
    }
    warnings.iter().for_each(|line| warn!("{line}"));
    if !wrong.is_empty() {
        wrong.iter().for_each(|line| error!("{line}"));
        error!("the new configuration is not used; the old one holds");
        return Err(wrong);
    }
    for what in needs_restart(&reading.draft, &fixed.draft) {
        let line = format!("{what} has changed: that needs a restart");
        warn!("{line}");
        warnings.push(line);
    }
    fixed.level.set(&reading.draft.log);
    let mut settings = loaded.reading.settings;
    limits::waiting(&mut settings);
    if loaded.reading.draft.top.name.is_none() {
        settings.name.clone_from(&fixed.drawn);
    }
    if settings.tunnel.state.is_none() {
        settings.tunnel.state = state::directory();
    }
    Ok((settings, warnings))
}

/// What differs of that which is settled at the start.
fn needs_restart(new: &Draft, old: &Draft) -> Vec<&'static str> {
    let accounts =
        |settings: &Accounts| (settings.enabled, settings.database.clone(), settings.state.clone());
    let differs = [
        (new.top.control != old.top.control, "`control`"),
        (new.budgets != old.budgets, "[budgets]"),
        (new.cache != old.cache, "[cache]"),
        (new.tunnel != old.tunnel, "[tunnel]"),
        (new.management != old.management, "[management]"),
        (
            accounts(&new.accounts) != accounts(&old.accounts),
            "`enabled`, `database` or `state` of [accounts]",
        ),
        (new.relay.movement != old.relay.movement, "`relay.movement`"),
        (new.log.format != old.log.format, "`log.format`"),
    ];
    differs.into_iter().filter_map(|(differs, what)| differs.then_some(what)).collect()
}

/// Opens the access log once, so that a mistake in it is told before anything is served. Who went where
/// is nobody else's business, so a new one is not readable by all.
pub(crate) fn access_log(log: &AccessLog) -> Result<(), String> {
    let AccessLog::File(path) = log else { return Ok(()) };
    let opened = std::fs::OpenOptions::new().append(true).create(true).mode(0o640).open(path);
    opened.map(|_| info!("access log {}", path.display())).map_err(|error| {
        format!("the access log {} cannot be written: {error}; its directory must be there and belong to the user ekiden runs as", path.display())
    })
}
