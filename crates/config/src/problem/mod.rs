//! What is wrong with a configuration: each problem with its place, what it is and a hint.

pub(crate) mod place;
pub(crate) mod similar;
use crate::problem::place::{Place, Source};
use serde::Serialize;
use std::fmt::Write as _;
use std::ops::Range;

/// The most problems that are kept; a file with more has one cause.
const MOST: usize = 100;

/// How bad a problem is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The configuration is not used.
    Error,
    /// It is used, and probably does not do what was meant.
    Warning,
}

/// One problem of a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// The file, when it stands in one.
    pub file: Option<String>,
    /// Where in the file.
    pub place: Option<Place>,
    /// What is wrong; one line.
    pub message: String,
    /// What to try; may be several lines, may be empty.
    pub hint: String,
}

/// All problems found, in the order of the file.
#[derive(Debug, Clone, Default)]
pub(super) struct Problems {
    list: Vec<Problem>,
    dropped: usize,
}

impl Problems {
    /// Whether another one would still be kept; a costly hint need not be made otherwise.
    pub(super) fn has_room(&self) -> bool {
        self.list.len() < MOST
    }

    /// Adds one.
    pub(super) fn push(&mut self, problem: Problem) {
        if self.has_room() {
            self.list.push(problem);
        } else {
            self.dropped += 1;
        }
    }

    /// Adds one that stands at `span` of `source`.
    pub(super) fn at(
        &mut self,
        severity: Severity,
        source: &Source<'_>,
        span: Option<&Range<usize>>,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        if self.has_room() {
            self.push(Problem {
                severity,
                file: Some(source.name.to_owned()),
                place: span.map(|span| source.place(span)),
                message: message.into(),
                hint: hint.into(),
            });
        } else {
            self.dropped += 1;
        }
    }

    /// Ends the collecting: in the order of the file, and with a line for what was left off.
    pub(super) fn finish(mut self) -> Vec<Problem> {
        self.list.sort_by_key(by_place);
        if self.dropped > 0 {
            self.list.push(Problem {
                severity: Severity::Error,
                file: self.list.first().and_then(|p| p.file.clone()),
                place: None,
                message: format!("and {} more problems", self.dropped),
                hint: String::new(),
            });
        }
        self.list
    }
}

/// The order of the file; what has no place comes last.
pub(crate) fn by_place(problem: &Problem) -> (usize, usize) {
    problem.place.as_ref().map_or((usize::MAX, 0), |place| (place.line, place.column))
}

impl Problem {
    /// A problem without a place in a file.
    pub fn general(
        severity: Severity,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self { severity, file: None, place: None, message: message.into(), hint: hint.into() }
    }

    /// Several lines for a person: what, where, the line with a mark under it, and the hint.
    pub fn render(&self) -> String {
        let word = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let mut out = format!("{word}: {}\n", self.message);
        // writing into a String does not fail
        match (&self.file, &self.place) {
            (Some(file), Some(place)) => {
                let number = place.line.to_string();
                let gutter = " ".repeat(number.len());
                let _ = writeln!(out, "{gutter}--> {file}:{}:{}", place.line, place.column);
                let _ = writeln!(out, "{gutter} |");
                let _ = writeln!(out, "{number} | {}", place.quoted.trim_end());
                let mark = "^".repeat(place.width);
                let _ = writeln!(out, "{gutter} | {}{mark}", " ".repeat(place.indent));
                out.push_str(&self.hint_lines(&gutter));
            }
            (file, _) => {
                if let Some(file) = file {
                    let _ = writeln!(out, " --> {file}");
                }
                out.push_str(&self.hint_lines(" "));
            }
        }
        out
    }

    /// The hint, its further lines without a mark so that they can be copied.
    fn hint_lines(&self, gutter: &str) -> String {
        let line = |(index, line): (usize, &str)| {
            format!("{gutter} {} {line}\n", if index == 0 { '=' } else { ' ' })
        };
        self.hint.lines().enumerate().map(line).collect()
    }

    /// One line, for a log.
    pub fn line(&self) -> String {
        let mut out = String::new();
        if let Some(file) = &self.file {
            out.push_str(file);
            if let Some(place) = &self.place {
                let _ = write!(out, ":{}:{}", place.line, place.column);
            }
            out.push_str(": ");
        }
        out.push_str(&self.message);
        if let Some(hint) = self.hint.lines().next() {
            let _ = write!(out, " ({hint})");
        }
        // a value that is quoted may have any
        out.chars().map(|one| if one.is_control() { ' ' } else { one }).collect()
    }

    /// Whether the configuration cannot be used because of it.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

impl Serialize for Problem {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct as _;
        let mut object = to.serialize_struct("Problem", 6)?;
        object.serialize_field("severity", &self.severity)?;
        object.serialize_field("file", &self.file)?;
        object.serialize_field("line", &self.place.as_ref().map(|p| p.line))?;
        object.serialize_field("column", &self.place.as_ref().map(|p| p.column))?;
        object.serialize_field("message", &self.message)?;
        object.serialize_field("hint", &self.hint)?;
        object.end()
    }
}

/// All problems for a person, errors and warnings as they come.
pub fn render_all(problems: &[Problem]) -> String {
    problems.iter().map(Problem::render).collect::<Vec<_>>().join("\n")
}
