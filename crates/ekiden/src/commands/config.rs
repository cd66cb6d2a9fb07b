//! `ekiden check` and `ekiden config`: reads a configuration and prints its problems or its values.

use crate::print::{count, out, warn};
use crate::{cli, exit};
use ekiden_config::{self as config, Overrides};

/// `ekiden check`. Returns the exit code.
pub(crate) fn check(args: &cli::Check) -> u8 {
    let loaded = config::load(args.file.as_deref(), &Overrides::default());
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
