//! How far a run is, while it runs.

use crate::inject::Happened;
use crate::ledger::Ledger;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal as _;
use std::time::Duration;

/// A bar on a terminal, a line a minute elsewhere.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    length: Duration,
    /// Minutes that were shown.
    minutes: u64,
}

impl Progress {
    pub(super) fn new(length: Duration) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = "{bar:30} {elapsed} of {msg}";
            let style = ProgressStyle::with_template(style).unwrap_or(ProgressStyle::default_bar());
            ProgressBar::new(length.as_secs()).with_style(style)
        });
        Self { bar, length, minutes: 0 }
    }

    pub(super) fn show(&mut self, ledger: &Ledger, happened: &Happened) {
        let now = ledger.now();
        let (bytes, faults) = (ledger.compared() as f64, happened.windows().len());
        let broken = ledger.breaks().len();
        let words = format!(
            "{} s: {:.1} GB compared, {:.0} Mbit/s, {faults} faults, {broken} transfers broken, {} wrong",
            self.length.as_secs(),
            bytes / 1e9,
            bytes * 8.0 / 1e6 / now.as_secs_f64(),
            ledger.wrong().len()
        );
        match &self.bar {
            Some(bar) => {
                bar.set_position(now.as_secs());
                bar.set_message(words);
            }
            None if now.as_secs() / 60 > self.minutes => {
                self.minutes = now.as_secs() / 60;
                eprintln!("soak: {} s of {words}", now.as_secs());
            }
            None => {}
        }
    }

    pub(super) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
