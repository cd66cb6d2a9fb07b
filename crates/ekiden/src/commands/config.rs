//! `ekiden check` and `ekiden config`: reads a configuration and prints its problems or its values.

use super::doctor::Finding;
use super::doctor::gateway::judge;
use super::kernel::gateway;
use super::machine;
use crate::daemon::{alerts, orders, state};
use crate::print::{count, out, warn};
use crate::{cli, exit};
use ekiden_config::{self as config, Overrides, Problem, Severity};
use ekiden_linux::links::divert::DivertFacts;
use ekiden_proxy::settings::Settings;
use ekiden_tunnel::trust::Store;

/// `ekiden check`. Returns the exit code.
pub(crate) fn check(args: &cli::Check) -> u8 {
    let mut loaded = config::load(args.file.as_deref(), &Overrides::default());
    // what the daemon would refuse at its start, too
    let mut settings = loaded.reading.settings.clone();
    if loaded.reading.is_usable()
        && let Err(why) = orders::settle(&mut settings)
    {
        loaded.reading.problems.push(Problem::general(Severity::Error, why, ""));
    }
    if loaded.reading.is_usable()
        && let Err(why) = alerts::settings(&loaded.reading, &settings)
    {
        loaded.reading.problems.push(Problem::general(Severity::Error, why, ""));
    }
    if loaded.reading.is_usable() {
        loaded.reading.problems.extend(gateway_problems(&settings));
        check_peers(&mut loaded);
        machine::judge(&mut loaded);
    }
    let reading = &loaded.reading;
    let code = if reading.is_usable() { exit::FINE } else { exit::NOT_FINE };
    let file = loaded.file.as_ref().map(|file| file.display().to_string());
    if args.json {
        let document = serde_json::json!({
            "file": file, "usable": reading.is_usable(), "problems": reading.problems,
        });
        return out(&format!("{document:#}\n")).max(code);
    }
    let mut text = config::render_all(&reading.problems);
    let errors = reading.problems.iter().filter(|problem| problem.is_error()).count();
    let warnings = reading.problems.len() - errors;
    if !text.is_empty() {
        text.push('\n');
    }
    text.push_str(&match (&file, reading.problems.len()) {
        (None, 0) => "no configuration file: using defaults\n".to_owned(),
        (Some(file), 0) => format!("{file}: no problems\n"),
        (file, _) => {
            let file = file.as_deref().unwrap_or("no file");
            format!(
                "{file}: {}, {}\n",
                count(errors as u64, "error"),
                count(warnings as u64, "warning")
            )
        }
    });
    out(&text).max(code)
}

/// Peers that upstreams name. No warning where this user cannot read the list of peers.
fn check_peers(loaded: &mut config::Loaded) {
    let folder = loaded.reading.draft.tunnel.state.clone().or_else(state::directory);
    let Some(Ok(peers)) = folder.map(|folder| Store::new(folder).peers()) else { return };
    let names: Vec<&str> = peers.iter().map(|peer| peer.name.as_str()).collect();
    loaded.check_peers(&names);
}

/// What stands in the way of the gateway on this machine. The daemon starts all the same, and connections
/// pass by.
fn gateway_problems(settings: &Settings) -> Vec<Problem> {
    let Some(plan) = gateway::plan_to_judge(settings) else { return Vec::new() };
    let mut found = Vec::new();
    judge(&DivertFacts::look(&plan), &plan, &mut found);
    let problem = |finding: Finding| {
        let Finding { what, why, mend, .. } = finding;
        let hint = mend.map_or_else(|| why.clone(), |mend| format!("{why}\n{mend}"));
        Problem::general(Severity::Warning, format!("gateway: {what}"), hint)
    };
    let matters = |finding: &Finding| finding.severity > super::doctor::Severity::Note;
    found.into_iter().filter(matters).map(problem).collect()
}

/// `ekiden config show`. Returns the exit code.
pub(crate) fn show(args: &cli::ConfigArgs, defaults: bool, json: bool) -> u8 {
    let loaded = if defaults {
        config::Loaded { file: None, text: String::new(), reading: config::read("", "") }
    } else {
        config::load(args.config.as_deref(), &args.overrides())
    };
    let file = loaded.file.as_ref().map(|file| file.display().to_string());
    let reading = &loaded.reading;
    // an unusable configuration has no effective values
    if !reading.is_usable() {
        warn(&config::render_all(&reading.problems));
        return exit::NOT_FINE;
    }
    if json {
        out(&format!("{:#}\n", config::show_json(reading, file.as_deref())))
    } else {
        out(&config::show(reading, file.as_deref()))
    }
}
