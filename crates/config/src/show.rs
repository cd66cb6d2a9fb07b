//! `ekiden config show`: what holds, as TOML that could be used again, and where each value comes from.

use super::keys::{Entries, ROUTE, RULE, TABLES, TOP, UPSTREAM};
use super::value::Value;
use super::{Origin, Reading};
use crate::keys::forward::FORWARD;
use crate::keys::key::Key;
use crate::keys::leg::LEG;
use crate::keys::sharing::ACCOUNT;
use serde_json::{Map, json};
use std::collections::BTreeMap;

/// A table ready to be printed: its path, its head, its lines.
struct Table {
    path: String,
    head: String,
    lines: Vec<Line>,
}

struct Line {
    name: &'static str,
    toml: String,
    /// Not set: shown as a comment.
    absent: bool,
    origin: String,
}

/// The effective configuration as TOML, a comment on each line saying where its value comes from.
/// Passwords are `***`.
pub fn show(reading: &Reading, file: Option<&str>) -> String {
    let mut out = String::new();
    for table in tables(reading, file) {
        if !table.head.is_empty() {
            out.push_str(&format!("\n{}\n", table.head));
        }
        let text = |line: &Line| {
            format!("{}{} = {}", if line.absent { "#" } else { "" }, line.name, line.toml)
        };
        let width =
            table.lines.iter().map(|line| text(line).chars().count()).filter(|w| *w < 60).max();
        for line in &table.lines {
            let text = text(line);
            out.push_str(&format!(
                "{text:<width$}  # {}\n",
                line.origin,
                width = width.unwrap_or(0)
            ));
        }
    }
    out
}

/// The same as JSON: path to value (as TOML text) and origin.
pub fn show_json(reading: &Reading, file: Option<&str>) -> serde_json::Value {
    let mut all = Map::new();
    for table in tables(reading, file) {
        for line in table.lines {
            let path = if table.path.is_empty() {
                line.name.to_owned()
            } else {
                format!("{}.{}", table.path, line.name)
            };
            let value = if line.absent { serde_json::Value::Null } else { json!(line.toml) };
            all.insert(path, json!({ "toml": value, "from": line.origin }));
        }
    }
    json!({ "file": file, "values": all })
}

fn tables(reading: &Reading, file: Option<&str>) -> Vec<Table> {
    let draft = &reading.draft;
    let mut from = Origins { reading, file: file.unwrap_or("the file"), tables: Vec::new() };
    from.table(String::new(), String::new(), TOP, draft);
    for table in TABLES {
        let name = table.name;
        match table.entries {
            Entries::Once(keys) => from.table(name.to_owned(), format!("[{name}]"), keys, draft),
            Entries::Legs => from.named(name, LEG, &draft.legs),
            Entries::Upstreams => from.named(name, UPSTREAM, &draft.upstreams),
            Entries::Routes => from.listed(name, ROUTE, &draft.routes),
            Entries::Rules => from.listed(name, RULE, &draft.rules),
            Entries::Forwards => from.listed(name, FORWARD, &draft.forwards),
            Entries::Accounts => from.listed(name, ACCOUNT, &draft.account),
        }
    }
    from.tables
}

struct Origins<'a> {
    reading: &'a Reading,
    file: &'a str,
    tables: Vec<Table>,
}

impl Origins<'_> {
    fn named<T>(&mut self, kind: &str, keys: &[Key<T>], entries: &BTreeMap<String, T>) {
        for (name, of) in entries {
            self.table(format!("{kind}.{name}"), format!("[{kind}.{name}]"), keys, of);
        }
    }

    fn listed<T>(&mut self, name: &str, keys: &[Key<T>], entries: &[T]) {
        for (index, of) in entries.iter().enumerate() {
            self.table(format!("{name}[{index}]"), format!("[[{name}]]"), keys, of);
        }
    }

    fn table<T>(&mut self, path: String, head: String, keys: &[Key<T>], of: &T) {
        let line = |key: &Key<T>| {
            let key_path =
                if path.is_empty() { key.name.to_owned() } else { format!("{path}.{}", key.name) };
            Line {
                name: key.name,
                toml: key.toml(of),
                absent: (key.get)(of) == Value::Unset
                    && !self.reading.origins.contains_key(&key_path),
                origin: self.origin(&key_path),
            }
        };
        let lines = keys.iter().map(line).collect();
        self.tables.push(Table { path, head, lines });
    }

    fn origin(&self, path: &str) -> String {
        let file = self.file;
        match self.reading.origins.get(path) {
            None => "default".to_owned(),
            Some(Origin::Line(line)) => format!("{file}:{line}"),
            Some(Origin::Inherited(line)) => format!("inherited, {file}:{line}"),
            Some(Origin::Flag(flag)) => (*flag).to_owned(),
            Some(Origin::Both(line, flag)) => format!("{file}:{line} and {flag}"),
        }
    }
}
