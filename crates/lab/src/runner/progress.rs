//! Progress of a batch: a bar with an estimate on a terminal, plain lines elsewhere.

use super::journal::Row;
use crate::engine::Fidelity;
use crate::engine::Task;
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Receives the progress of a batch.
pub trait Watch: Sync {
    /// Something begins that takes a while.
    fn says(&self, _what: &str) {}
    /// These are to be run; these were run before.
    fn begins(&self, _tasks: &[Task], _before: &[Row]) {}
    /// A run has ended; `last` when there is no further attempt at it.
    fn ran(&self, _row: &Row, _last: bool) {}
    /// It is over.
    fn ends(&self) {}
}

/// Tells nobody.
impl Watch for () {}

/// Tells standard error.
#[derive(Debug, Default)]
pub struct Screen {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    bar: Option<ProgressBar>,
    begun: Option<Instant>,
    message: Option<Instant>,
    left: BTreeMap<String, usize>,
    all: usize,
    done: usize,
    estimate: Estimate,
}

/// Between two plain lines.
const PLAIN_EVERY: Duration = Duration::from_secs(30);

impl Watch for Screen {
    fn says(&self, what: &str) {
        line(&format!("{what} …"));
    }

    fn begins(&self, tasks: &[Task], before: &[Row]) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        before.iter().for_each(|row| state.estimate.add(row));
        for task in tasks {
            *state.left.entry(task.cell.key()).or_default() += 1;
        }
        state.all = tasks.len();
        state.begun = Some(Instant::now());
        if std::io::stderr().is_terminal() {
            let bar = ProgressBar::new(tasks.len() as u64); // on stderr
            let style = ProgressStyle::with_template("{bar:24} {pos}/{len} runs · {msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.set_message("the first runs tell how long it takes");
            bar.enable_steady_tick(Duration::from_millis(500));
            state.bar = Some(bar);
        } else {
            line(&format!("{} runs to make", tasks.len()));
        }
    }

    fn ran(&self, row: &Row, last: bool) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.estimate.add(row);
        let key = row.cell.key();
        let trouble = match (&row.failure, &row.outcome) {
            (Some(why), _) => Some(format!("failed: {why}")),
            (None, Some(outcome)) if outcome.fidelity == Fidelity::Tainted => {
                Some(format!("tainted: {}", outcome.reasons.join("; ")))
            }
            _ => None,
        };
        if let Some(trouble) = trouble {
            let next = if last { "no further attempt" } else { "trying again" };
            let text = format!("{key}, repetition {}: {trouble}; {next}", row.repetition + 1);
            if let Some(bar) = &state.bar { bar.suspend(|| line(&text)) } else { line(&text) }
        }
        if !last {
            return;
        }
        if let Some(left) = state.left.get_mut(&key) {
            *left = left.saturating_sub(1);
        }
        state.done += 1;
        let rest = words(state.estimate.of(&state.left));
        match &state.bar {
            Some(bar) => {
                bar.set_message(format!("{rest} left · {key}"));
                bar.inc(1);
            }
            None if state.message.is_none_or(|message| message.elapsed() >= PLAIN_EVERY) => {
                line(&format!("{}/{} runs, {rest} left", state.done, state.all));
                state.message = Some(Instant::now());
            }
            None => {}
        }
    }

    fn ends(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bar) = state.bar.take() {
            bar.finish_and_clear();
        }
        let took = words(state.begun.map_or(0.0, |begun| begun.elapsed().as_secs_f64()));
        line(&format!("{}/{} runs made in {took}", state.done, state.all));
    }
}

/// How long runs take: a cell's own mean, else its part's, else that of all.
#[derive(Debug, Default)]
struct Estimate {
    means: BTreeMap<String, (f64, usize)>,
}

impl Estimate {
    fn add(&mut self, row: &Row) {
        for key in [row.cell.key(), row.cell.part.clone(), String::new()] {
            let (sum, count) = self.means.entry(key).or_default();
            *sum += row.seconds;
            *count += 1;
        }
    }

    fn of(&self, left: &BTreeMap<String, usize>) -> f64 {
        let mean = |key: &str| self.means.get(key).map(|(sum, count)| sum / *count as f64);
        left.iter()
            .map(|(key, count)| {
                let part = key.split(' ').next().unwrap_or_default();
                let one = mean(key).or_else(|| mean(part)).or_else(|| mean("")).unwrap_or(0.0);
                one * *count as f64
            })
            .sum()
    }
}

/// A duration in words.
pub fn words(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        0..90 => format!("{whole} s"),
        90..5400 => format!("{} min", (seconds / 60.0).round()),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}

fn line(text: &str) {
    // nobody is left to report a failure to
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::Cell;

    #[test]
    fn estimates_new_cells_by_their_part() {
        let cell = |part, n: u32| Cell::new(part, [("relays", &*n.to_string())]);
        let row = |cell, seconds| Row { cell, seconds, ..Row::default() };
        let mut estimate = Estimate::default();
        estimate.add(&row(cell("fast", 1), 1.0));
        estimate.add(&row(cell("slow", 1), 20.0));
        let left = [(cell("slow", 2).key(), 2), (cell("fast", 1).key(), 1)].into();
        assert_eq!(estimate.of(&left), 41.0);
        assert_eq!([59.6, 2700.0, 9000.0].map(words), ["60 s", "45 min", "2.5 h"]);
    }
}
