//! Questions on a terminal. Where there is none, or none are wanted, defaults are taken; without a terminal, only what
//! `--yes` agrees to is done.

use crate::print::warn;
use std::fmt::Display;
use std::io::{IsTerminal as _, stderr, stdin};

/// Whom to ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asker {
    /// The person at the terminal.
    Person,
    /// Nobody, by `--yes`: defaults hold, an answer without one is an error, and all is agreed to.
    Nobody,
    /// Nobody, for want of a terminal: the same, and nothing is agreed to.
    Absent,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// Nobody is there to give one, and no option does.
    Missing(String),
    /// The terminal was closed.
    Closed(String),
}

impl Asker {
    /// Nobody where `yes` says so, or where there is no terminal.
    pub(crate) fn new(yes: bool) -> Self {
        match stdin().is_terminal() && stderr().is_terminal() {
            _ if yes => Self::Nobody,
            true => Self::Person,
            false => Self::Absent,
        }
    }

    /// The answer of the option `flag` if it is given, else of the person, else the default. Errors: there is none, or
    /// the terminal was closed.
    pub(crate) fn answer<T: Display, E: Display>(
        self,
        given: Option<T>,
        (flag, question): (&str, &str),
        default: Option<&str>,
        read: impl Fn(&str) -> Result<T, E>,
    ) -> Result<T, Unanswered> {
        if let Some(given) = given {
            return Ok(given);
        }
        if self != Self::Person {
            let Some(default) = default else {
                return Err(Unanswered::Missing(format!("{flag} is missing: {question}")));
            };
            return read(default).map_err(|why| Unanswered::Missing(format!("{flag}: {why}")));
        }
        loop {
            let shown = default.map_or_else(String::new, |default| format!(" [{default}]"));
            warn(&format!("{question}{shown}: "));
            let line = line()?;
            let text = if line.is_empty() { default.unwrap_or_default() } else { &line };
            if text.is_empty() {
                continue;
            }
            match read(text) {
                Ok(answer) => return Ok(answer),
                Err(why) => warn(&format!("  {why}\n")),
            }
        }
    }

    /// Where nobody is asked: refuses if options without a default are missing, and names all of them. Of each: whether it
    /// is given, its flag and its question.
    pub(crate) fn require(self, options: &[(bool, (&str, &str))]) -> Result<(), Unanswered> {
        let missing = options.iter().filter(|(given, _)| !given).map(|(_, option)| option);
        let missing: Vec<_> = missing.collect();
        if self == Self::Person || missing.len() < 2 {
            return Ok(());
        }
        let line = |(flag, question): &&(&str, &str)| format!("\n  {flag}: {question}");
        let lines: String = missing.iter().map(line).collect();
        Err(Unanswered::Missing(format!("these options are missing:{lines}")))
    }

    /// Whether a person agrees; `--yes` does. Errors: there is no terminal, or it was closed.
    pub(crate) fn agrees(self, question: &str) -> Result<bool, Unanswered> {
        match self {
            Self::Nobody => return Ok(true),
            Self::Absent => {
                let why = "nothing was written: there is no terminal to ask at; add --yes to do it, or --dry-run to see it alone";
                return Err(Unanswered::Missing(why.to_owned()));
            }
            Self::Person => {}
        }
        loop {
            warn(&format!("{question} [Y/n]: "));
            match line()?.to_ascii_lowercase().as_str() {
                "" | "y" | "yes" => return Ok(true),
                "n" | "no" => return Ok(false),
                _ => warn("  y or n\n"),
            }
        }
    }
}

fn line() -> Result<String, Unanswered> {
    let mut line = String::new();
    match stdin().read_line(&mut line) {
        Ok(0) => {
            warn("\n");
            Err(Unanswered::Closed("no answer; nothing was written".to_owned()))
        }
        Ok(_) => Ok(line.trim().to_owned()),
        Err(error) => Err(Unanswered::Closed(format!("no answer: {error}; nothing was written"))),
    }
}
