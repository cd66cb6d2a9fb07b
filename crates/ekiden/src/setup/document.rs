//! A configuration that is changed key by key; comments and everything else stay as they are.

use super::file::{self, Prepared};
use super::place::Place;
use ekiden_config::{Draft, Reading};
use ekiden_proxy::settings::{Pattern, Route, Rule, Settings};
use ipnet::IpNet;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use toml_edit::{Array, ArrayOfTables, DocumentMut, Item, Table, TableLike, Value, value};

/// A configuration and what it shall become.
#[derive(Debug)]
pub(crate) struct Document {
    path: PathBuf,
    before: String,
    exists: bool,
    toml: DocumentMut,
    /// What it says now.
    reading: Reading,
}

/// What became of a route for all destinations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Routed {
    /// It goes through the upstream already.
    Already,
    /// It was added.
    Added,
    /// Another takes everything before: through these chains.
    Other(String),
}

impl Document {
    /// Reads the configuration at this place, which need not be there. Errors: it cannot be read, or has errors.
    pub(crate) fn open(place: &Place) -> Result<Self, String> {
        let path = place.config.clone();
        let name = path.display().to_string();
        let (before, exists) = match fs::read_to_string(&path) {
            Ok(text) => (text, true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => (String::new(), false),
            Err(error) => {
                return Err(format!(
                    "{name} cannot be read: {error}; run this as its owner or as root (sudo)"
                ));
            }
        };
        let reading = ekiden_config::read(&before, &name);
        if !reading.is_usable() {
            return Err(format!(
                "{name} has errors; mend them first:\n{}",
                ekiden_config::render_all(&reading.problems)
            ));
        }
        let toml = before.parse().map_err(|error| format!("{name}: {error}"))?;
        Ok(Self { path, before, exists, toml, reading })
    }

    /// The values of the configuration as it was read, defaults filled in.
    pub(crate) const fn draft(&self) -> &Draft {
        &self.reading.draft
    }

    /// What it came to as it was read.
    pub(crate) const fn settings(&self) -> &Settings {
        &self.reading.settings
    }

    /// Whether the file itself says something of a key such as `tunnel.listen`.
    pub(crate) fn says(&self, key: &str) -> bool {
        self.reading
            .origins
            .keys()
            .any(|known| known == key || known.starts_with(&format!("{key}[")))
    }

    /// Whether the file itself has a key of this table.
    pub(crate) fn says_table(&self, table: &str) -> bool {
        self.toml.get(table).and_then(Item::as_table_like).is_some_and(|table| !table.is_empty())
    }

    /// The accounts' database with its password, which is not shown.
    pub(crate) fn database(&self) -> Option<String> {
        self.settings().accounts.database.clone()
    }

    fn table(&mut self, path: &[&str]) -> Result<&mut dyn TableLike, String> {
        let mut table: &mut dyn TableLike = self.toml.as_table_mut();
        for (depth, name) in path.iter().enumerate() {
            let implicit = depth + 1 < path.len();
            let new = || {
                let mut table = Table::new();
                table.set_implicit(implicit);
                table.decor_mut().set_prefix("\n");
                Item::Table(table)
            };
            let item = table.entry(name).or_insert_with(new);
            table = item
                .as_table_like_mut()
                .ok_or_else(|| format!("`{}` is no table; change it by hand", path.join(".")))?;
        }
        Ok(table)
    }

    /// Sets a key to a value, whatever it was.
    pub(crate) fn set(
        &mut self,
        path: &[&str],
        key: &str,
        to: impl Into<Value>,
    ) -> Result<(), String> {
        let to: Value = to.into();
        let table = self.table(path)?;
        match table.get_mut(key).and_then(Item::as_value_mut) {
            Some(old) if plain(old) == plain(&to) => {}
            Some(old) => {
                let decor = old.decor().clone();
                *old = to;
                *old.decor_mut() = decor;
            }
            None => drop(table.insert(key, value(to))),
        }
        Ok(())
    }

    /// Sets a list of texts, whatever it was.
    pub(crate) fn set_list(
        &mut self,
        path: &[&str],
        key: &str,
        to: &[String],
    ) -> Result<(), String> {
        self.set(path, key, to.iter().collect::<Array>())
    }

    /// Listens on these addresses, too. One that is every address of its kind takes the place of those that it has in
    /// it: a relay cannot listen on both.
    pub(crate) fn listen(&mut self, path: &[&str], more: &[SocketAddr]) -> Result<(), String> {
        const KEY: &str = "listen";
        let table = self.table(path)?;
        let item = table.get_mut(KEY).and_then(Item::as_value_mut);
        let has: Vec<SocketAddr> = match &item {
            Some(Value::Array(list)) => list.iter().filter_map(address).collect(),
            Some(single) => address(single).into_iter().collect(),
            None => Vec::new(),
        };
        let all: Vec<SocketAddr> = has.iter().chain(more).copied().collect();
        let within = |one: SocketAddr| all.iter().any(|every| ekiden_config::includes(*every, one));
        let mut new: Vec<SocketAddr> = Vec::new();
        for one in more {
            if !has.contains(one) && !new.contains(one) && !within(*one) {
                new.push(*one);
            }
        }
        let texts =
            |list: &[SocketAddr]| -> Vec<String> { list.iter().map(ToString::to_string).collect() };
        match item {
            None => return self.set_list(path, KEY, &texts(&new)),
            Some(Value::Array(list)) => {
                list.retain(|one| address(one).is_none_or(|one| !within(one)));
                new.iter().for_each(|one| list.push(one.to_string()));
                // a first one that is gone leaves its space; lines of their own have comments
                if !list.to_string().contains('\n') {
                    list.fmt();
                }
            }
            Some(_) if new.is_empty() => {}
            Some(single) => {
                let stays = has.into_iter().filter(|one| !within(*one));
                let all: Vec<SocketAddr> = stays.chain(new).collect();
                let decor = single.decor().clone();
                *single = texts(&all).iter().collect::<Array>().into();
                *single.decor_mut() = decor;
            }
        }
        Ok(())
    }

    /// Removes keys of a table, and the table with its last key.
    pub(crate) fn remove(&mut self, table: &str, keys: &[&str]) {
        let Some(found) = self.toml.get_mut(table).and_then(Item::as_table_like_mut) else {
            return;
        };
        keys.iter().for_each(|key| drop(found.remove(key)));
        if found.is_empty() {
            self.toml.remove(table);
        }
    }

    /// Adds a table to those of a name: before the one with this number, or behind all.
    fn add(&mut self, name: &str, before: Option<usize>, table: Table) -> Result<(), String> {
        let new = || Item::ArrayOfTables(ArrayOfTables::new());
        let list = self.toml.entry(name).or_insert_with(new);
        let list = list.as_array_of_tables_mut().ok_or_else(|| {
            let table = table.to_string();
            format!("`{name}` is not written as [[{name}]]; add this to it by hand:\n{table}")
        })?;
        let mut table = table;
        table.decor_mut().set_prefix("\n");
        match before.and_then(|at| Some((at, list.get(at)?.position()))) {
            // the text has it where that one stands
            Some((at, position)) => {
                table.set_position(position);
                list.insert(at, table);
            }
            None => list.push(table),
        }
        Ok(())
    }

    /// Lets clients of these networks in, unless one rule does. The first match counts, so the rule stands before one that
    /// refuses all of one of them.
    pub(crate) fn admit(&mut self, networks: &[IpNet]) -> Result<(), String> {
        let rules = &self.settings().access.rules;
        let closes = |rule: &Rule| networks.iter().any(|net| refuses_all_of(net, rule));
        let end = rules.iter().position(closes);
        let has = |rule: &Rule| {
            rule.allow
                && Pattern::match_all(&rule.to)
                && networks.iter().all(|net| rule.from.contains(net))
        };
        if rules.iter().take(end.unwrap_or(rules.len())).any(has) {
            return Ok(());
        }
        let mut rule = Table::new();
        rule.insert("from", value(networks.iter().map(ToString::to_string).collect::<Array>()));
        rule.insert("action", value("allow"));
        self.add("rule", end, rule)
    }

    /// Makes a peer an upstream. Errors: another upstream has that name.
    pub(crate) fn upstream(&mut self, name: &str) -> Result<(), String> {
        let url = format!("tunnel://{name}");
        if let Some(old) = self.draft().upstreams.get(name).filter(|old| old.url != url) {
            return Err(format!(
                "[upstream.{name}] in {} leads to {} already; choose another name with --name",
                self.path.display(),
                old.url
            ));
        }
        self.set(&["upstream", name], "url", url)
    }

    /// Sends everything through an upstream that no route before sends elsewhere.
    pub(crate) fn route(&mut self, upstream: &str) -> Result<Routed, String> {
        let all = |route: &&Route| Pattern::match_all(&route.to);
        let chains: Vec<_> = self.draft().routes.clone();
        if let Some(route) = chains.iter().find(all) {
            let chain = |chain: &Vec<String>| match &chain[..] {
                [] => "direct".to_owned(),
                hops => hops.join(" > "),
            };
            let through: Vec<String> = route.through.iter().map(chain).collect();
            let is_meant =
                route.through.iter().any(|chain| chain.iter().any(|hop| hop == upstream));
            return Ok(match is_meant {
                true => Routed::Already,
                false => Routed::Other(through.join(", ")),
            });
        }
        let mut route = Table::new();
        route.insert("through", value([upstream].into_iter().collect::<Array>()));
        self.add("route", None, route)?;
        Ok(Routed::Added)
    }

    /// The text as it shall be.
    fn text(&self) -> String {
        let new = self.toml.to_string();
        // a file of comments alone: toml_edit would put keys above them
        let only_comments = self
            .before
            .lines()
            .all(|line| line.trim_start().starts_with('#') || line.trim().is_empty());
        if only_comments && !self.before.trim().is_empty() && new != self.before {
            let mut bare = self.toml.clone();
            bare.set_trailing("");
            return format!("{}\n\n{}", self.before.trim_end(), bare.to_string().trim_start());
        }
        if self.exists { new } else { new.trim_start().to_owned() }
    }

    /// The changes, line by line, and what they come to. Errors: the result would not be usable.
    pub(crate) fn changes(&self) -> Result<Changes, String> {
        let text = self.text();
        let name = self.path.display().to_string();
        let reading = ekiden_config::read(&text, &name);
        if !reading.is_usable() {
            return Err(format!(
                "{name} would not be usable, so nothing was written:\n{}",
                ekiden_config::render_all(&reading.problems)
            ));
        }
        let old: Vec<String> =
            self.reading.problems.iter().map(|problem| problem.message.clone()).collect();
        let warnings: Vec<_> = reading
            .problems
            .iter()
            .filter(|problem| !old.contains(&problem.message))
            .cloned()
            .collect();
        let lines = difference(&self.before, &text);
        let warnings = ekiden_config::render_all(&warnings);
        Ok(Changes { warnings, lines, text, reading: Box::new(reading) })
    }

    /// Whether there is a file.
    pub(crate) const fn exists(&self) -> bool {
        self.exists
    }

    /// Writes the new text beside the old one.
    pub(crate) fn prepare(&self, changes: &Changes, place: &Place) -> Result<Prepared, String> {
        file::prepare(&self.path, changes.text.as_bytes(), place.new_file())
    }
}

/// What a configuration becomes.
#[derive(Debug)]
pub(crate) struct Changes {
    /// Warnings that it did not have before.
    pub(crate) warnings: String,
    /// Lines with `+` or `-` in front; none where nothing changes.
    pub(crate) lines: String,
    text: String,
    /// What it says then.
    pub(crate) reading: Box<Reading>,
}

impl Changes {
    /// Whether anything is to be written.
    pub(crate) fn is_nothing(&self) -> bool {
        self.lines.is_empty()
    }
}

/// Whether no client of a network comes past this rule.
pub(crate) fn refuses_all_of(net: &IpNet, rule: &Rule) -> bool {
    let everybody = rule.from.is_empty() && rule.peers.is_empty();
    !rule.allow
        && Pattern::match_all(&rule.to)
        && (everybody || rule.from.iter().any(|from| from.contains(net)))
}

fn address(value: &Value) -> Option<SocketAddr> {
    value.as_str()?.parse().ok()
}

fn plain(value: &Value) -> String {
    let mut value = value.clone();
    value.decor_mut().clear();
    match value {
        Value::Array(list) => list.iter().map(plain).collect::<Vec<_>>().join(","),
        Value::String(text) => format!("{:?}", text.value()),
        other => other.to_string(),
    }
}

/// The lines that only one of two texts has, in order: `- old`, `+ new`.
fn difference(before: &str, after: &str) -> String {
    let (mut old, mut new): (Vec<&str>, Vec<&str>) =
        (before.lines().collect(), after.lines().collect());
    let alike = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
    (old, new) = (old.split_off(alike), new.split_off(alike));
    while old.last().is_some_and(|line| new.last() == Some(line)) {
        old.pop();
        new.pop();
    }
    // the longest common subsequence from each pair of places on
    let mut longest = vec![vec![0_u32; new.len() + 1]; old.len() + 1];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            longest[i][j] = if old[i] == new[j] {
                longest[i + 1][j + 1] + 1
            } else {
                longest[i + 1][j].max(longest[i][j + 1])
            };
        }
    }
    let (mut i, mut j, mut out) = (0, 0, String::new());
    while i < old.len() || j < new.len() {
        let added = j < new.len() && (i == old.len() || longest[i][j + 1] > longest[i + 1][j]);
        let line = if i < old.len() && j < new.len() && old[i] == new[j] {
            (i, j) = (i + 1, j + 1);
            continue;
        } else if added {
            j += 1;
            format!("+ {}", new[j - 1])
        } else {
            i += 1;
            format!("- {}", old[i - 1])
        };
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests;
