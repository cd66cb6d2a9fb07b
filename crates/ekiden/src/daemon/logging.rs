//! The log on standard error. What a level promises:
//!
//! | level | promise |
//! |---|---|
//! | error | action needed |
//! | warn | degraded, or rejected by configuration |
//! | info | decisions at start, reload and stop |
//! | debug | one or two lines a connection |
//! | trace | more |

use crate::print::warn;
use ekiden_config::Log;
use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use ekiden_model::resources::initial_rate::{Allowance, Bucket};
use ekiden_model::units::Span;
use ekiden_proxy::LogThrottle;
use std::collections::HashMap;
use std::io::IsTerminal as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tracing::{Event, Level, Metadata};
use tracing_log::NormalizeEvent as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt;
use tracing_subscriber::layer::{Context, Filter, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};
use tracing_subscriber::{Layer, reload};

/// Changes the level of a log that runs.
#[derive(Debug)]
pub(crate) struct LogLevel(reload::Handle<Targets, tracing_subscriber::Registry>);

/// Begins logging. `EKIDEN_LOG` overrides the level, for all or by module
/// (`debug`, `warn,ekiden_proxy=trace`).
/// Errors: when a log has already begun in this process.
pub(crate) fn start(log: &Log) -> Result<LogLevel, TryInitError> {
    let (filter, level) = reload::Layer::new(filter(&log.level));
    let terminal = std::io::stderr().is_terminal();
    let color = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let lines = fmt::layer().with_writer(std::io::stderr).with_target(false).with_ansi(color);
    let registry = tracing_subscriber::registry().with(filter);
    let thinning = Thinning::default();
    if log.format == "json" {
        registry.with(thinned(lines.json().flatten_event(true), &thinning)).try_init()?;
    } else {
        registry.with(thinned(lines, &thinning)).try_init()?;
    }
    thinning.say_left_out();
    Ok(LogLevel(level))
}

/// Lines of one place in the relay's own code: so many at once, then one a second. Most places have a stricter limit of
/// their own; this holds for those that forgot it, too.
const OWN: Allowance = Allowance { interval: Span::from_secs(1), burst: 200 };

/// Between two times that the log says what was left out of it.
const LEFT_OUT: Duration = Duration::from_secs(10);

/// Libraries log each frame of a hostile peer and each failed write to a full disk. Of their warnings and errors,
/// this passes one line every ten seconds from each place in their code. Of the relay's own lines at level `info` and
/// above it passes what [`OWN`] allows, but all of the audit log's, for which this log stands in.
#[derive(Clone, Default)]
struct Thinning(Arc<Mutex<HashMap<Place, Lines>>>);

/// Target, file and line.
type Place = (String, Option<String>, Option<u32>);

/// The lines of one place.
#[derive(Default)]
struct Lines {
    library: LogThrottle,
    own: Bucket,
    left_out: u64,
}

impl<S> Filter<S> for Thinning {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    // once for each event; `enabled` is asked twice for those of the `log` crate
    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        let normalized = event.normalized_metadata();
        let about = normalized.as_ref().unwrap_or_else(|| event.metadata());
        if about.target().starts_with("ekiden_admin::audit") {
            return true;
        }
        let is_own = about.target().starts_with("ekiden");
        let least = if is_own { Level::INFO } else { Level::WARN };
        if *about.level() > least {
            return true;
        }
        let place = (about.target().to_owned(), about.file().map(str::to_owned), about.line());
        let mut places = locked(&self.0);
        let lines = places.entry(place).or_default();
        if !is_own {
            return lines.library.is_due();
        }
        let is_due = lines.own.takes(clock::now(), &OWN);
        lines.left_out += u64::from(!is_due);
        is_due
    }
}

impl Thinning {
    /// Places in the relay's own code, and how many of their lines were left out since the last call.
    fn take_left_out(&self) -> Vec<(String, u64)> {
        let mut places = locked(&self.0);
        let left_out = places.iter_mut().filter(|(_, lines)| lines.left_out > 0);
        let left_out = left_out.map(|((target, _, line), lines)| {
            let place = line.map_or_else(|| target.clone(), |line| format!("{target}:{line}"));
            (place, std::mem::take(&mut lines.left_out))
        });
        left_out.collect()
    }

    /// Says it now and then, until the process ends.
    fn say_left_out(self) {
        let saying = move || {
            loop {
                std::thread::sleep(LEFT_OUT);
                for (place, lines) in self.take_left_out() {
                    tracing::warn!(
                        "{lines} lines of {place} were left out of this log: more than one a second"
                    );
                }
            }
        };
        if let Err(error) = std::thread::Builder::new().name("left-out".to_owned()).spawn(saying) {
            tracing::warn!(%error, "lines that are left out of this log are not counted in it");
        }
    }
}

fn thinned<S>(lines: impl Layer<S>, thinning: &Thinning) -> impl Layer<S>
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a>,
{
    lines.with_filter(thinning.clone())
}

impl LogLevel {
    /// Takes the level of a configuration that was read again.
    pub(crate) fn set(&self, log: &Log) {
        if let Err(error) = self.0.reload(filter(&log.level)) {
            tracing::error!(%error, "cannot change the log level");
        }
    }
}

fn filter(level: &str) -> Targets {
    let asked = std::env::var("EKIDEN_LOG").ok().filter(|text| !text.is_empty());
    let asked = asked.and_then(|text| match text.parse() {
        Ok(levels) => Some(without_requests(levels)),
        Err(error) => {
            warn(&format!(
                "EKIDEN_LOG has no effect: {error}; write it like debug, or warn,ekiden_proxy=trace\n"
            ));
            None
        }
    });
    asked.unwrap_or_else(|| plain(level))
}

/// HTTP/2's library writes paths and authorities of requests that it refuses, with queries and passwords: it does so
/// only where it is named.
fn without_requests(levels: Targets) -> Targets {
    let is_named = |(target, _): (&str, _)| target == "h2" || target.starts_with("h2::");
    if levels.iter().any(is_named) { levels } else { levels.with_target("h2", LevelFilter::ERROR) }
}

/// Libraries' own chatter belongs to trace.
fn plain(level: &str) -> Targets {
    let level = level.parse().unwrap_or(LevelFilter::INFO);
    let all = Targets::new().with_default(level);
    if level == LevelFilter::TRACE {
        return without_requests(all);
    }
    // `foyer` are all of that name
    let quiet = [("hyper", LevelFilter::WARN), ("foyer", LevelFilter::WARN)];
    // a telephone that is off is an error to boringtun
    let silent = [
        ("h2", LevelFilter::ERROR),
        ("hickory", LevelFilter::ERROR),
        ("boringtun", LevelFilter::OFF),
    ];
    all.with_targets(quiet).with_targets(silent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn requests_that_http_2_refuses_are_logged_only_where_its_library_is_named() {
        let shows = |levels: &Targets| levels.would_enable("h2::server", &Level::DEBUG);
        for level in ["error", "info", "debug", "trace"] {
            assert!(!shows(&plain(level)), "{level}");
        }
        for (asked, is_shown) in [("debug", false), ("trace,hyper=info", false), ("h2=debug", true)]
        {
            assert_eq!(shows(&without_requests(asked.parse().unwrap())), is_shown, "{asked}");
        }
    }

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
    fn libraries_speak_at_trace_alone() {
        let info = plain("info");
        for (target, level, passes) in [
            ("ekiden_proxy::session", Level::INFO, true),
            ("ekiden_proxy::session", Level::DEBUG, false),
            ("hyper::proto", Level::WARN, true),
            ("hyper::proto", Level::INFO, false),
            ("foyer_storage::engine", Level::INFO, false),
            ("h2::proto", Level::WARN, false),
            ("hickory_resolver", Level::ERROR, true),
        ] {
            assert_eq!(info.would_enable(target, &level), passes, "{target} {level}");
        }
        assert!(plain("trace").would_enable("hyper::proto", &Level::TRACE));
    }

    #[test]
    fn repeated_lines_are_thinned_for_each_place() {
        let written = Written::default();
        let sink = written.clone();
        let lines = fmt::layer().with_writer(move || sink.clone()).with_ansi(false);
        let thinning = Thinning::default();
        let log = tracing_subscriber::registry().with(thinned(lines, &thinning));
        tracing::subscriber::with_default(log, || {
            for entry in 0..1_000 {
                tracing::error!(target: "foyer_storage::engine", entry, "flush data error");
                tracing::warn!(target: "h2::proto::ping_pong", entry, "unknown ack");
                tracing::info!(target: "ekiden_proxy", entry, "our own");
                tracing::debug!(target: "ekiden_proxy", entry, "in detail");
                tracing::error!(target: "ekiden_admin::audit::queue", entry, "a change");
            }
        });
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.matches("flush data error").count(), 1, "{text}");
        assert_eq!(text.matches("unknown ack").count(), 1, "{text}");
        // and one more for each second that this takes
        let own = text.matches("our own").count();
        assert!((200..900).contains(&own), "{own}");
        assert_eq!(text.matches("in detail").count(), 1_000);
        assert_eq!(text.matches("a change").count(), 1_000);
        let left_out = thinning.take_left_out();
        let [(place, lines)] = &left_out[..] else { panic!("{left_out:?}") };
        assert_eq!((place.starts_with("ekiden_proxy:"), *lines), (true, 1_000 - own as u64));
        assert!(thinning.take_left_out().is_empty());
    }
}
