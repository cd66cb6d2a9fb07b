//! Reads tables by the registry of keys, and remembers where everything stood.

use super::draft::Draft;
use super::keys::{self, Entries, ROUTE, RULE, TABLES, TOP, UPSTREAM};
use super::problem::{Problems, Severity};
use super::value::Value;
use crate::keys::forward::FORWARD;
use crate::keys::key::Key;
use crate::keys::leg::LEG;
use crate::keys::sharing::ACCOUNT;
use crate::problem::place::Source;
use crate::problem::similar;
use crate::value::pattern::shorten;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use toml_edit::{Item, TableLike};

/// What a table may hold many of; beyond it something generated the file by mistake.
const MOST_ENTRIES: usize = 10_000;
const MOST_LEGS: usize = 256;

/// A key that was set, and to what.
pub(super) type Set<T> = (&'static Key<T>, Value);

/// The state of reading one file.
pub(super) struct Reader<'a> {
    pub(super) source: Source<'a>,
    pub(super) problems: Problems,
    /// Path (`leg.client.mss`, `route[0].through[1]`) to the bytes of the value; of a table, of its name.
    pub(super) spans: BTreeMap<String, Range<usize>>,
    /// Legs as they are set, before inheritance.
    pub(super) legs: BTreeMap<String, Vec<Set<super::draft::LegDraft>>>,
    /// Paths of keys that are not valid, or whose value is not.
    misread: BTreeSet<String>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(name: &'a str, text: &'a str) -> Self {
        Self {
            source: Source::new(name, text),
            problems: Problems::default(),
            spans: BTreeMap::new(),
            legs: BTreeMap::new(),
            misread: BTreeSet::new(),
        }
    }

    /// Whether anything below a path such as `rule[` is not as it was meant: what follows from it is not told.
    pub(super) fn has_misread(&self, path: &str) -> bool {
        self.misread.range(path.to_owned()..).next().is_some_and(|first| first.starts_with(path))
    }

    pub(super) fn error(
        &mut self,
        path: &str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.report(Severity::Error, path, message, hint);
    }

    /// Reports at `path`, or at the nearest thing above it that stands in the file.
    pub(super) fn report(
        &mut self,
        severity: Severity,
        path: &str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        let mut at = path;
        let span = loop {
            match (self.spans.get(at), at.rfind(['.', '['])) {
                (Some(span), _) => break Some(span),
                (None, Some(cut)) => at = at.get(..cut).unwrap_or(""),
                (None, None) => break None,
            }
        };
        self.problems.at(severity, &self.source, span, message, hint);
    }

    pub(super) fn warn(&mut self, path: &str, message: impl Into<String>, hint: impl Into<String>) {
        self.report(Severity::Warning, path, message, hint);
    }

    fn error_at(
        &mut self,
        span: Option<&Range<usize>>,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.problems.at(Severity::Error, &self.source, span, message, hint);
    }

    /// The whole file.
    pub(super) fn document(&mut self, root: &dyn TableLike, draft: &mut Draft) {
        let names: Vec<&str> = TABLES.iter().map(|table| table.name).collect();
        let set = self.keys(root, "", TOP, &names);
        apply(set, draft);
        for table in TABLES {
            let name = table.name;
            match table.entries {
                Entries::Once(keys) => self.single(root, name, keys, draft),
                Entries::Legs => self.named(root, name, MOST_LEGS, |reader, table, path, name| {
                    let set = reader.keys(table, path, LEG, &[]);
                    reader.legs.insert(name.to_owned(), set);
                }),
                Entries::Upstreams => {
                    self.named(root, name, MOST_ENTRIES, |reader, table, path, name| {
                        let upstream = reader.entry(table, path, UPSTREAM, Default::default());
                        draft.upstreams.insert(name.to_owned(), upstream);
                    });
                }
                Entries::Routes => self.listed(root, name, |reader, table, path| {
                    draft.routes.push(reader.entry(table, path, ROUTE, keys::default_route()));
                }),
                Entries::Rules => self.listed(root, name, |reader, table, path| {
                    draft.rules.push(reader.entry(table, path, RULE, Default::default()));
                }),
                Entries::Forwards => self.listed(root, name, |reader, table, path| {
                    draft.forwards.push(reader.entry(table, path, FORWARD, Default::default()));
                }),
                Entries::Accounts => self.listed(root, name, |reader, table, path| {
                    draft.account.push(reader.entry(table, path, ACCOUNT, Default::default()));
                }),
            }
        }
    }

    /// Reads one of several tables over its defaults.
    fn entry<T>(
        &mut self,
        table: &dyn TableLike,
        path: &str,
        keys: &'static [Key<T>],
        mut into: T,
    ) -> T {
        apply(self.keys(table, path, keys, &[]), &mut into);
        into
    }

    /// Reads the keys of one table; `tables` are further names that are valid in it.
    fn keys<T>(
        &mut self,
        table: &dyn TableLike,
        path: &str,
        keys: &'static [Key<T>],
        tables: &[&str],
    ) -> Vec<Set<T>> {
        let mut set = Vec::new();
        for (name, item) in table.iter() {
            if tables.contains(&name) || item.is_none() {
                continue;
            }
            let here = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
            let name_span = table.get_key_value(name).and_then(|(key, _)| key.span());
            let Some(key) = keys.iter().find(|key| key.name == name) else {
                self.misread.insert(here);
                self.unknown(path, name, name_span, keys, tables);
                continue;
            };
            let Some(value) = item.as_value() else {
                self.misread.insert(here);
                let what = key.kind.describe();
                self.error_at(
                    name_span.as_ref(),
                    format!("`{name}` is {what}, not a table"),
                    format!("write it like `{name} = …`"),
                );
                continue;
            };
            if let Some(span) = value.span().or(name_span) {
                self.spans.insert(here.clone(), span);
            }
            if let Some(array) = value.as_array() {
                for (index, element) in array.iter().enumerate() {
                    if let Some(span) = element.span() {
                        self.spans.insert(format!("{here}[{index}]"), span);
                    }
                }
            }
            if key.unset.is_some_and(|word| value.as_str() == Some(word)) {
                set.push((key, Value::Unset));
                continue;
            }
            let mut wrong = Vec::new();
            if let Some(value) = key.kind.read(value, &mut wrong) {
                set.push((key, value));
            }
            if wrong.is_empty() {
                continue;
            }
            let left_out: BTreeSet<usize> = wrong.iter().filter_map(|one| one.element).collect();
            for wrong in wrong {
                let at = match wrong.element {
                    Some(index) => format!("{here}[{index}]"),
                    None => here.clone(),
                };
                self.error(&at, format!("`{name}`: {}", wrong.message), wrong.hint);
            }
            self.close_up(&here, &left_out);
            self.misread.insert(here);
        }
        set
    }

    /// Elements of a list that are left out leave their places to those behind them.
    fn close_up(&mut self, list: &str, left_out: &BTreeSet<usize>) {
        let mut next = 0;
        for index in 0.. {
            let Some(span) = self.spans.remove(&format!("{list}[{index}]")) else { break };
            if !left_out.contains(&index) {
                self.spans.insert(format!("{list}[{next}]"), span);
                next += 1;
            }
        }
    }

    fn unknown<T>(
        &mut self,
        path: &str,
        name: &str,
        span: Option<Range<usize>>,
        keys: &[Key<T>],
        tables: &[&str],
    ) {
        if !self.problems.has_room() {
            return self.error_at(None, "", "");
        }
        let known: Vec<&str> =
            keys.iter().map(|key| key.name).chain(tables.iter().copied()).collect();
        let place = match path.split_once('[') {
            _ if path.is_empty() => String::new(),
            Some((list, _)) => format!(" in [[{list}]]"),
            None => format!(" in [{}]", shorten(path)),
        };
        let renamed = keys::renamed::hint(path, name);
        let hint = match elsewhere(name, path) {
            _ if renamed.is_some() => renamed.unwrap_or_default(),
            // a key that exists in another table is put there, not mistyped
            Some(tables) if similar::closest(name, known.iter().copied()).is_none() => {
                format!("`{name}` belongs into {tables}")
            }
            _ => similar::hint("keys valid here", name, &known),
        };
        self.error_at(span.as_ref(), format!("unknown key `{}`{place}", shorten(name)), hint);
    }

    /// Reads `[NAME]` if it is there.
    fn single<T>(
        &mut self,
        root: &dyn TableLike,
        name: &str,
        keys: &'static [Key<T>],
        into: &mut T,
    ) {
        let Some(item) = root.get(name) else { return };
        self.remember(root, name, name, item);
        match item.as_table_like() {
            Some(table) => apply(self.keys(table, name, keys, &[]), into),
            None => {
                self.error(name, format!("`{name}` is a table"), format!("write it as [{name}]"))
            }
        }
    }

    /// Reads every `[KIND.NAME]`.
    fn named(
        &mut self,
        root: &dyn TableLike,
        kind: &str,
        most: usize,
        mut each: impl FnMut(&mut Self, &dyn TableLike, &str, &str),
    ) {
        let Some(item) = root.get(kind) else { return };
        self.remember(root, kind, kind, item);
        let how = format!("write it as [{kind}.NAME], with a name of your choice");
        let Some(group) = item.as_table_like() else {
            return self.error(kind, format!("`{kind}` is a group of tables"), how);
        };
        for (index, (name, item)) in group.iter().enumerate() {
            let path = format!("{kind}.{name}");
            self.remember(group, name, &path, item);
            if index >= most {
                return self.error(&path, format!("there are at most {most} {kind}s"), "");
            }
            match item.as_table_like() {
                Some(_) if keys::name(name).is_err() => {
                    let why = keys::name(name).err().unwrap_or_default();
                    self.error(&path, why, "");
                }
                Some(table) => each(self, table, &path, name),
                None => self.error(
                    &path,
                    format!("unknown key `{}` in [{kind}]", shorten(name)),
                    how.clone(),
                ),
            }
        }
    }

    /// Reads every `[[NAME]]`.
    fn listed(
        &mut self,
        root: &dyn TableLike,
        name: &str,
        mut each: impl FnMut(&mut Self, &dyn TableLike, &str),
    ) {
        let Some(item) = root.get(name) else { return };
        self.remember(root, name, name, item);
        let wrong = (
            format!("`{name}` is a list of tables"),
            format!("write it as [[{name}]], once for each"),
        );
        match item {
            Item::ArrayOfTables(tables) => {
                for (index, table) in tables.iter().take(MOST_ENTRIES).enumerate() {
                    let path = format!("{name}[{index}]");
                    if let Some(span) = table.span() {
                        self.spans.insert(path.clone(), span);
                    }
                    each(self, table, &path);
                }
                if tables.len() > MOST_ENTRIES {
                    self.error(name, format!("there are at most {MOST_ENTRIES} of [[{name}]]"), "");
                }
            }
            Item::Value(toml_edit::Value::Array(array)) => {
                for (index, element) in array.iter().take(MOST_ENTRIES).enumerate() {
                    let path = format!("{name}[{index}]");
                    if let Some(span) = element.span() {
                        self.spans.insert(path.clone(), span);
                    }
                    match element.as_inline_table() {
                        Some(table) => each(self, table, &path),
                        None => self.error(&path, wrong.0.clone(), wrong.1.clone()),
                    }
                }
            }
            _ => self.error(name, wrong.0, wrong.1),
        }
    }

    fn remember(&mut self, table: &dyn TableLike, name: &str, path: &str, item: &Item) {
        let span =
            table.get_key_value(name).and_then(|(key, _)| key.span()).or_else(|| item.span());
        if let Some(span) = span {
            self.spans.insert(path.to_owned(), span);
        }
    }
}

/// Puts what was set into `into`.
pub(super) fn apply<T>(set: Vec<Set<T>>, into: &mut T) {
    for (key, value) in set {
        (key.put)(into, value);
    }
}

/// The tables in which a key of this name is valid, other than the one it was found in, in words: `[cache] or [acme]`.
fn elsewhere(name: &str, path: &str) -> Option<String> {
    let once = |table: &str| {
        TABLES.iter().find_map(|one| match one.entries {
            Entries::Once(keys) if one.name == table => Some(keys),
            _ => None,
        })
    };
    let has =
        |table: &&str| once(table).is_some_and(|keys| keys.iter().any(|key| key.name == name));
    let found = SUGGESTED.into_iter().filter(|table| *table != path && has(table));
    let found: Vec<_> = found.take(3).map(|table| format!("[{table}]")).collect();
    if !found.is_empty() {
        return Some(found.join(" or "));
    }
    LEG.iter().any(|key| key.name == name).then(|| "[leg.NAME]".to_owned())
}

/// The tables that [`elsewhere`] names, in the order in which it prefers them.
const SUGGESTED: [&str; 18] = [
    "timeouts",
    "budgets",
    "dns",
    "relay",
    "buffers",
    "pressure",
    "pool",
    "cache",
    "udp",
    "gateway",
    "wireguard",
    "pac",
    "management",
    "tls",
    "acme",
    "accounts",
    "sharing",
    "log",
];
