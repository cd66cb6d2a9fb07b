//! `ekiden config show`: what holds, as TOML that could be used again, and where each value comes from.

use super::keys::{ACCESS, BUDGETS, DNS, LOG, RELAY, ROUTE, RULE, TIMEOUTS, TOP, UPSTREAM};
use super::value::Value;
use super::{Origin, Reading};
use crate::keys::accounts::ACCOUNTS;
use crate::keys::key::Key;
use crate::keys::leg::LEG;
use crate::keys::management::MANAGEMENT;
use crate::keys::resources::{BUFFERS, CACHE, POOL, PRESSURE};
use crate::keys::sharing::{ACCOUNT, SHARING};
use crate::keys::tls::TLS;
use crate::keys::tunnel::TUNNEL;
use crate::keys::udp::UDP;
use serde_json::{Map, json};

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
    let mut tables = Vec::new();
    let mut from = Origins { reading, file: file.unwrap_or("the file"), tables: &mut tables };
    from.table(String::new(), String::new(), TOP, &draft.top);
    for (name, leg) in &draft.legs {
        from.table(format!("leg.{name}"), format!("[leg.{name}]"), LEG, leg);
    }
    for (name, upstream) in &draft.upstreams {
        from.table(format!("upstream.{name}"), format!("[upstream.{name}]"), UPSTREAM, upstream);
    }
    for (index, route) in draft.routes.iter().enumerate() {
        from.table(format!("route[{index}]"), "[[route]]".to_owned(), ROUTE, route);
    }
    for (index, rule) in draft.rules.iter().enumerate() {
        from.table(format!("rule[{index}]"), "[[rule]]".to_owned(), RULE, rule);
    }
    from.table("access".to_owned(), "[access]".to_owned(), ACCESS, &draft.access);
    from.table("accounts".to_owned(), "[accounts]".to_owned(), ACCOUNTS, &draft.accounts);
    from.table("timeouts".to_owned(), "[timeouts]".to_owned(), TIMEOUTS, &draft.timeouts);
    from.table("budgets".to_owned(), "[budgets]".to_owned(), BUDGETS, &draft.budgets);
    from.table("dns".to_owned(), "[dns]".to_owned(), DNS, &draft.dns);
    from.table("relay".to_owned(), "[relay]".to_owned(), RELAY, &draft.relay);
    from.table("buffers".to_owned(), "[buffers]".to_owned(), BUFFERS, &draft.buffers);
    from.table("pressure".to_owned(), "[pressure]".to_owned(), PRESSURE, &draft.pressure);
    from.table("pool".to_owned(), "[pool]".to_owned(), POOL, &draft.pool);
    from.table("cache".to_owned(), "[cache]".to_owned(), CACHE, &draft.cache);
    from.table("tls".to_owned(), "[tls]".to_owned(), TLS, &draft.tls);
    from.table("tunnel".to_owned(), "[tunnel]".to_owned(), TUNNEL, &draft.tunnel);
    from.table("udp".to_owned(), "[udp]".to_owned(), UDP, &draft.udp);
    from.table("management".to_owned(), "[management]".to_owned(), MANAGEMENT, &draft.management);
    from.table("sharing".to_owned(), "[sharing]".to_owned(), SHARING, &draft.shared);
    for (index, account) in draft.account.iter().enumerate() {
        let path = format!("account[{index}]");
        from.table(path, "[[account]]".to_owned(), ACCOUNT, account);
    }
    from.table("log".to_owned(), "[log]".to_owned(), LOG, &draft.log);
    tables
}

struct Origins<'a> {
    reading: &'a Reading,
    file: &'a str,
    tables: &'a mut Vec<Table>,
}

impl Origins<'_> {
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
