//! Reloads: reads the configuration again while the daemon runs.

use crate::daemon::start::{Fixed, shown};
use crate::daemon::{alerts, limits, orders, state, traces};
use ekiden_alerts::AlertSettings;
use ekiden_config::{self as config, Draft, Log};
use ekiden_linux::host::state_files;
use ekiden_proxy::settings::{AccessLog, Accounts, Settings, Tunnel};
use ekiden_traces::TraceSettings;
use std::net::SocketAddr;
use tracing::{error, info, warn};

/// In each line about a change that applies only at start.
pub(crate) const NEEDS_RESTART: &str = "needs a restart";

/// A usable configuration, not in effect yet.
pub(crate) struct Reread {
    pub(crate) settings: Settings,
    /// What the settings are made of.
    pub(crate) draft: Draft,
    pub(crate) text: String,
    pub(crate) log: Log,
    pub(crate) warnings: Vec<String>,
    pub(crate) alerts: AlertSettings,
    pub(crate) traces: TraceSettings,
    /// As [`tunnels`].
    pub(crate) tunnels: Option<Tunnel>,
    /// As [`shown`].
    pub(crate) shown: serde_json::Value,
}

/// The keys of `[tunnel]` if the configuration asks for tunnels, which then start with them.
pub(crate) fn tunnels(draft: &Draft) -> Option<Tunnel> {
    let through = |upstream: &config::draft::UpstreamDraft| upstream.url.starts_with("tunnel://");
    let wanted = !draft.tunnel.listen.is_empty() || draft.upstreams.values().any(through);
    wanted.then(|| draft.tunnel.clone())
}

/// Reads the configuration again and logs its problems. Nothing is changed: it may still be refused, where an address is
/// taken. `running`: the keys of the tunnels that run. `Err`: the errors because of which the old configuration, read from
/// `old_text`, stays.
pub(crate) fn read(
    fixed: &Fixed,
    old_text: &str,
    running: Option<&Tunnel>,
) -> Result<Reread, Vec<String>> {
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
    if wrong.is_empty() {
        wrong.extend(without_log_in(&reading.draft, &fixed.draft));
    }
    let mut settings = reading.settings.clone();
    wrong.extend(orders::settle(&mut settings).err());
    if loaded.reading.draft.top.name.is_none() {
        settings.name.clone_from(&fixed.drawn);
    }
    let traces = traces::settings(reading, &settings);
    let alerts = alerts::settings(reading, &settings).map_err(|why| wrong.push(why)).ok();
    warnings.iter().for_each(|line| warn!("{line}"));
    let (true, Some(alerts)) = (wrong.is_empty(), alerts) else {
        wrong.iter().for_each(|line| error!("{line}"));
        error!("new configuration rejected; the old one stays in effect");
        return Err(wrong);
    };
    for what in needs_restart(&reading.draft, &fixed.draft, running) {
        let line = format!("change of {what} {NEEDS_RESTART}");
        warn!("{line}");
        warnings.push(line);
    }
    let log = reading.draft.log.clone();
    let tunnels = tunnels(&reading.draft);
    limits::waiting(&mut settings);
    if settings.tunnel.state.is_none() {
        settings.tunnel.state = state::directory();
    }
    // another folder needs a restart, and has another key
    settings.wireguard.state = fixed.draft.accounts.state.clone().or_else(state::directory);
    let shown = shown(&loaded);
    let (draft, text) = (loaded.reading.draft, loaded.text);
    Ok(Reread { settings, draft, text, log, warnings, alerts, traces, tunnels, shown })
}

/// Why a configuration with accounts cannot be taken over by a daemon that was started without: clients of other machines
/// would not have to log in.
fn without_log_in(new: &Draft, started: &Draft) -> Option<String> {
    let beyond = |at: &&SocketAddr| !at.ip().to_canonical().is_loopback();
    let begins = new.accounts.enabled && !started.accounts.enabled;
    let at = new.top.listen.iter().find(beyond).filter(|_| begins)?;
    Some(format!(
        "`enabled` of [accounts] {NEEDS_RESTART}: until then clients of other machines would be served on {at} without a log-in"
    ))
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
fn needs_restart(new: &Draft, old: &Draft, running: Option<&Tunnel>) -> Vec<&'static str> {
    let accounts =
        |settings: &Accounts| (settings.enabled, settings.database.clone(), settings.state.clone());
    let tunnel =
        running.is_some_and(|old| Tunnel { answer: old.answer, ..new.tunnel.clone() } != *old);
    let differs = [
        (new.top.control != old.top.control, "`control`"),
        (new.budgets != old.budgets, "[budgets]"),
        (new.cache != old.cache, "[cache]"),
        (tunnel, "[tunnel]"),
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
    let opened = state_files::append_log(path);
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
        let needs_restart = |new, old| needs_restart(new, old, tunnels(old).as_ref());
        assert_eq!(needs_restart(&old, &old), [""; 0]);
        let new =
            draft("control = \"off\"\n[budgets]\npipes = 7\n[management]\nlisten = \"off\"\n");
        assert_eq!(needs_restart(&new, &old), ["`control`", "[budgets]", "[management]"]);
        // tunnels start with a reload, and then keep their keys
        let tunnel = draft("[tunnel]\nlisten = [\"127.0.0.1:4433\"]\n");
        assert_eq!(needs_restart(&tunnel, &old), [""; 0]);
        assert_eq!(needs_restart(&old, &tunnel), ["[tunnel]"]);
        let live = draft(
            "name = \"other\"\n[timeouts]\nstop = \"1 s\"\n[sharing]\nuplink = \"1 Mbit/s\"\n",
        );
        assert_eq!(needs_restart(&live, &old), [""; 0]);
    }

    #[test]
    fn accounts_do_not_begin_with_a_reload_where_others_connect() {
        let rule = "[[rule]]\nfrom = [\"0.0.0.0/0\"]\naction = \"allow\"\n";
        let [open, closed] = ["0.0.0.0:3128", "127.0.0.1:3128"].map(|at| {
            ["", "[accounts]\nenabled = true\n"]
                .map(|more| draft(&format!("listen = [\"{at}\"]\n{more}{rule}")))
        });
        let why = without_log_in(&open[1], &closed[0]).unwrap();
        assert!(why.contains("needs a restart") && why.contains("0.0.0.0:3128"), "{why}");
        for (new, started) in
            [(&open[1], &open[1]), (&open[0], &closed[0]), (&closed[1], &closed[0])]
        {
            assert_eq!(without_log_in(new, started), None);
        }
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
