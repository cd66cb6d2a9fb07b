//! Reloads: reads the configuration again while the daemon runs.

use crate::daemon::start::Fixed;
use crate::daemon::{limits, state};
use ekiden_config::{self as config, Draft, Log};
use ekiden_proxy::settings::{AccessLog, Accounts, Settings, Tunnel};
use std::os::unix::fs::OpenOptionsExt as _;
use tracing::{error, info, warn};

/// A usable configuration, not in effect yet.
pub(crate) struct Reread {
    pub(crate) settings: Settings,
    pub(crate) text: String,
    pub(crate) log: Log,
    pub(crate) warnings: Vec<String>,
}

/// Reads the configuration again and logs its problems. Nothing is changed: it may still be refused, where an address is
/// taken. `Err`: the errors because of which the old configuration, read from `old_text`, stays.
pub(crate) fn read(fixed: &Fixed, old_text: &str) -> Result<Reread, Vec<String>> {
    let loaded = config::load(fixed.file.as_deref(), &fixed.overrides);
    let reading = &loaded.reading;
    let (mut wrong, mut warnings) = (Vec::new(), Vec::new());
    for problem in &reading.problems {
        if problem.is_error() { &mut wrong } else { &mut warnings }.push(problem.line());
    }
    wrong.extend(cut_off(&loaded.text, old_text));
    if loaded.file.is_none() && !old_text.is_empty() {
        wrong.push(
            "the configuration file is gone; restore it, or restart to use the defaults".into(),
        );
    }
    if wrong.is_empty()
        && let Err(why) = access_log(&reading.settings.access_log)
    {
        wrong.push(why);
    }
    warnings.iter().for_each(|line| warn!("{line}"));
    if !wrong.is_empty() {
        wrong.iter().for_each(|line| error!("{line}"));
        error!("new configuration rejected; the old one stays in effect");
        return Err(wrong);
    }
    for what in needs_restart(&reading.draft, &fixed.draft) {
        let line = format!("change of {what} needs a restart");
        warn!("{line}");
        warnings.push(line);
    }
    let log = reading.draft.log.clone();
    let mut settings = loaded.reading.settings;
    limits::waiting(&mut settings);
    if loaded.reading.draft.top.name.is_none() {
        settings.name.clone_from(&fixed.drawn);
    }
    if settings.tunnel.state.is_none() {
        settings.tunnel.state = state::directory();
    }
    Ok(Reread { settings, text: loaded.text, log, warnings })
}

/// Why the new text looks like the old one in the middle of being saved: it is the beginning of it, and ends within a
/// line.
fn cut_off(new: &str, old: &str) -> Option<String> {
    let is_cut = new.len() < old.len() && old.starts_with(new) && !new.ends_with('\n');
    (is_cut && !new.is_empty()).then(|| {
        format!(
            "the configuration is cut off: it holds the first {} of the {} bytes in effect and ends within a line; save it again, or end its last line",
            new.len(),
            old.len()
        )
    })
}

/// The changed settings that apply only at start.
fn needs_restart(new: &Draft, old: &Draft) -> Vec<&'static str> {
    let accounts =
        |settings: &Accounts| (settings.enabled, settings.database.clone(), settings.state.clone());
    let differs = [
        (new.top.control != old.top.control, "`control`"),
        (new.budgets != old.budgets, "[budgets]"),
        (new.cache != old.cache, "[cache]"),
        (Tunnel { answer: old.tunnel.answer, ..new.tunnel.clone() } != old.tunnel, "[tunnel]"),
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

/// Opens the access log once, so that an error appears before serving. Access logs are private, so a new one is not
/// readable by everybody.
pub(crate) fn access_log(log: &AccessLog) -> Result<(), String> {
    let AccessLog::File(path) = log else { return Ok(()) };
    let opened = std::fs::OpenOptions::new().append(true).create(true).mode(0o640).open(path);
    opened.map(|_| info!("access log {}", path.display())).map_err(|error| {
        format!("the access log {} cannot be written: {error}; its directory must exist and be writable for the user of ekiden", path.display())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft(text: &str) -> Draft {
        let reading = config::read(text, "f");
        assert!(reading.is_usable());
        reading.draft
    }

    #[test]
    fn a_beginning_of_the_old_text_is_cut_off_where_it_ends_within_a_line() {
        let old = "name = \"one\"\n[timeouts]\nstop = \"10 s\"\n";
        for (new, cut) in [
            (&old[..8], true),
            ("name = \"one\"\n[timeouts]", true),
            (old, false),
            ("name = \"one\"\n", false),
            ("name = \"two\"", false),
            ("", false),
        ] {
            assert_eq!(cut_off(new, old).is_some(), cut, "{new:?}");
        }
    }

    #[test]
    fn names_the_changes_that_need_a_restart() {
        let old = draft("");
        assert_eq!(needs_restart(&old, &old), [""; 0]);
        let new =
            draft("control = \"off\"\n[budgets]\npipes = 7\n[management]\nlisten = \"off\"\n");
        assert_eq!(needs_restart(&new, &old), ["`control`", "[budgets]", "[management]"]);
        let live = draft(
            "name = \"other\"\n[timeouts]\nstop = \"1 s\"\n[sharing]\nuplink = \"1 Mbit/s\"\n",
        );
        assert_eq!(needs_restart(&live, &old), [""; 0]);
    }

    #[test]
    fn a_new_access_log_is_private_and_an_impossible_one_is_an_error() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        access_log(&AccessLog::File(path.clone())).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o007, 0);
        let error = access_log(&AccessLog::File("/nonexistent/a.log".into())).unwrap_err();
        assert!(error.contains("/nonexistent/a.log cannot be written"), "{error}");
        assert_eq!(access_log(&AccessLog::Off), Ok(()));
    }
}
