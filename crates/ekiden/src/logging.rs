//! The log on standard error. What a level promises:
//!
//! | level | promise |
//! |---|---|
//! | error | somebody must act |
//! | warn | degraded, or refused by configuration: look today |
//! | info | decisions at start, reload and stop |
//! | debug | one or two lines a connection |
//! | trace | more |

use crate::config::Log;
use ekiden_proxy::Seldom;
use std::io::IsTerminal as _;
use tracing::Metadata;
use tracing_subscriber::filter::dynamic_filter_fn;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::reload;
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};
use tracing_subscriber::{EnvFilter, Layer};

/// Changes the level of a log that runs.
#[derive(Debug)]
pub struct Level(reload::Handle<EnvFilter, tracing_subscriber::Registry>);

/// Begins logging. `EKIDEN_LOG` overrides the level, in the form of tracing's filters
/// (`debug`, `warn,ekiden_proxy=trace`).
///
/// # Errors
/// When a log has already begun in this process.
pub fn start(log: &Log) -> Result<Level, TryInitError> {
    let (filter, level) = reload::Layer::new(filter(&log.level));
    let terminal = std::io::stderr().is_terminal();
    let color = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let lines = fmt::layer().with_writer(std::io::stderr).with_target(false).with_ansi(color);
    let registry = tracing_subscriber::registry().with(filter);
    if log.format == "json" {
        registry.with(thinned(lines.json().flatten_event(true))).try_init()?;
    } else {
        registry.with(thinned(lines)).try_init()?;
    }
    Ok(Level(level))
}

/// A disk that fails, fails for every entry of the cache, and its library says so each time: one line now and
/// then does.
fn thinned<S>(lines: impl Layer<S>) -> impl Layer<S>
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a>,
{
    let said = Seldom::new();
    lines.with_filter(dynamic_filter_fn(move |about, _| !is_repetitive(about) || said.is_due()))
}

fn is_repetitive(about: &Metadata<'_>) -> bool {
    about.target().starts_with("foyer") && *about.level() <= tracing::Level::WARN
}

impl Level {
    /// Takes the level of a configuration that was read again.
    pub fn set(&self, log: &Log) {
        if let Err(error) = self.0.reload(filter(&log.level)) {
            tracing::error!(%error, "the log level cannot be changed");
        }
    }
}

fn filter(level: &str) -> EnvFilter {
    let asked = std::env::var("EKIDEN_LOG").ok().filter(|text| !text.is_empty());
    // libraries' own chatter belongs to trace
    let plain = if level == "trace" {
        level.to_owned()
    } else {
        format!("{level},hyper=warn,hickory=error,foyer=warn,foyer_storage=warn,foyer_memory=warn")
    };
    EnvFilter::new(asked.unwrap_or(plain))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_the_cache_s_library_says_of_each_entry_is_said_once() {
        let written = Written::default();
        let sink = written.clone();
        let lines = fmt::layer().with_writer(move || sink.clone()).with_ansi(false);
        let log = tracing_subscriber::registry().with(thinned(lines));
        tracing::subscriber::with_default(log, || {
            for entry in 0..100 {
                tracing::error!(target: "foyer_storage::engine", entry, "flush data error");
                tracing::error!(entry, "our own");
            }
        });
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.matches("flush data error").count(), 1, "{text}");
        assert_eq!(text.matches("our own").count(), 100);
    }
}
