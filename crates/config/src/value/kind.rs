//! Kinds of values: how each is written, its range, and reading it from TOML.

use super::pattern;
use crate::draft::At;
use crate::value::{Value, print_span};
use ekiden_model::units::{Bytes, Rate, Share, Span, UnitError};
use std::fmt::Display;
use std::str::FromStr;
use toml_edit::Value as Toml;

/// Further checks of a text; the error is the message.
pub(crate) type Check = fn(&str) -> Result<(), String>;

/// A kind of value.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// A length of time within these bounds.
    Span(Span, Span),
    /// A size within these bounds.
    Size(Bytes, Bytes),
    /// A rate; at least this.
    Rate(Rate),
    /// A part of a whole within these bounds.
    Share(Share, Share),
    /// A whole number within these bounds.
    Number(u64, u64),
    /// `true` or `false`.
    Switch,
    /// A text: its description and its check.
    Text(&'static str, Check),
    /// One text or a list of them.
    Words(&'static str, Check),
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Chains of upstreams.
    Chains,
    /// Destination patterns.
    Patterns,
    /// Prefixes.
    Nets,
    /// Addresses with ports; the port may be left off where there is a usual one.
    Sockets(Option<u16>),
    /// One address with a port, or `off`; a hint shows this port.
    SocketOrOff(u16),
    /// One address.
    Address,
}

/// Something wrong with a value: in which element of a list, what, and a hint.
#[derive(Debug)]
pub(crate) struct Wrong {
    /// Index of the element, for lists.
    pub element: Option<usize>,
    /// What is wrong.
    pub message: String,
    /// What to try.
    pub hint: String,
}

impl Wrong {
    fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { element: None, message: message.into(), hint: hint.into() }
    }
}

impl Kind {
    /// The kind in words, with its unit and range, for documentation.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Span(low, high) => {
                format!("a length of time, {} to {}", print_span(*low), print_span(*high))
            }
            Self::Size(low, high) => format!("a size, {low} to {high}"),
            Self::Rate(low) => format!("a rate, at least {low}"),
            Self::Share(low, high) => format!("a share, {low} to {high}"),
            Self::Number(low, high) => format!("a number, {low} to {high}"),
            Self::Switch => "true or false".to_owned(),
            Self::Text(what, _) => (*what).to_owned(),
            Self::Words(what, _) => format!("{what}, or a list of them"),
            Self::Choice(words) => format!("one of {}", words.join(", ")),
            Self::Chains => "a list of chains such as \"near > capital\", or \"direct\"".to_owned(),
            Self::Patterns => "a list of destinations".to_owned(),
            Self::Nets => "a list of addresses and prefixes".to_owned(),
            Self::Sockets(None) => "a list of address:port".to_owned(),
            Self::Sockets(Some(port)) => {
                format!("a list of address:port (port {port} may be left off)")
            }
            Self::SocketOrOff(_) => "an address and a port, or \"off\"".to_owned(),
            Self::Address => "an address".to_owned(),
        }
    }

    fn example(&self) -> &'static str {
        match self {
            Self::Span(..) => "\"40 ms\"",
            Self::Size(..) => "\"8 MiB\"",
            Self::Rate(_) => "\"25 Mbit/s\"",
            Self::Share(..) => "\"95 %\"",
            Self::Number(..) => "42",
            Self::Switch => "true",
            Self::Text(..) | Self::Words(..) | Self::Choice(_) => "\"word\"",
            Self::Chains => "[\"near > capital\", \"direct\"]",
            Self::Patterns => "[\"*.example.org\", \"10.0.0.0/8:443\", \":22\"]",
            Self::Nets => "[\"192.168.0.0/16\"]",
            Self::Sockets(_) => "[\"127.0.0.1:3128\"]",
            Self::SocketOrOff(_) => "\"127.0.0.1:9128\"",
            Self::Address => "\"192.0.2.1\"",
        }
    }

    /// Reads a value; what is wrong with it goes to `wrong`, all elements of a list at once.
    pub(crate) fn read(&self, toml: &Toml, wrong: &mut Vec<Wrong>) -> Option<Value> {
        let read = match self {
            Self::Span(low, high) => quantity(toml, low, high).map(Value::Span),
            Self::Size(low, high) => quantity(toml, low, high).map(Value::Size),
            Self::Rate(low) => {
                quantity(toml, low, &Rate::from_bits_per_second(u64::MAX)).map(Value::Rate)
            }
            Self::Share(low, high) => quantity(toml, low, high).map(Value::Share),
            Self::Number(low, high) => number(toml, *low, *high).map(Value::Number),
            Self::Switch => toml.as_bool().map(Value::Switch).ok_or_else(|| self.not(toml)),
            Self::Text(_, check) => self.text(toml, *check).map(Value::Text),
            Self::SocketOrOff(_) => {
                self.text(toml, |text| At::read(text).map(|_| ())).map(Value::Text)
            }
            Self::Choice(words) => match toml.as_str() {
                Some(word) if words.contains(&word) => Ok(Value::Text(word.to_owned())),
                Some(word) => Err(Wrong::new(
                    format!("\"{}\" is not valid here", pattern::shorten(word)),
                    crate::problem::similar::hint("valid", word, words),
                )),
                None => Err(self.not(toml)),
            },
            Self::Address => self
                .text(toml, |_| Ok(()))
                .and_then(|text| {
                    text.parse().map_err(|_| {
                        let text = pattern::shorten(&text);
                        Wrong::new(
                            format!("\"{text}\" is not an address"),
                            "such as 192.0.2.1 or 2001:db8::1",
                        )
                    })
                })
                .map(Value::Address),
            Self::Words(_, check) => {
                return self
                    .list(toml, wrong, |word| check(word).map(|()| word.to_owned()))
                    .map(Value::Words);
            }
            Self::Chains => return self.list(toml, wrong, chain).map(Value::Chains),
            Self::Patterns => return self.list(toml, wrong, pattern::pattern).map(Value::Patterns),
            Self::Nets => return self.list(toml, wrong, pattern::net).map(Value::Nets),
            Self::Sockets(port) => {
                return self
                    .list(toml, wrong, |text| pattern::socket(text, *port))
                    .map(Value::Sockets);
            }
        };
        read.map_err(|error| wrong.push(error)).ok()
    }

    fn text(&self, toml: &Toml, check: Check) -> Result<String, Wrong> {
        let text = toml.as_str().ok_or_else(|| self.not(toml))?;
        check(text).map_err(|message| Wrong::new(message, self.hint(text)))?;
        Ok(text.to_owned())
    }

    /// A list, or one text as a list of one. `None` when nothing of it is right.
    fn list<T>(
        &self,
        toml: &Toml,
        wrong: &mut Vec<Wrong>,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        let before = wrong.len();
        let mut items = Vec::new();
        let mut one = |element: Option<usize>, toml: &Toml| {
            let item = match toml.as_str() {
                Some(text) => read(text).map_err(|message| Wrong::new(message, self.hint(text))),
                None => Err(self.not(toml)),
            };
            match item {
                Ok(item) => items.push(item),
                Err(error) => wrong.push(Wrong { element, ..error }),
            }
        };
        match toml {
            Toml::Array(array) => {
                array.iter().enumerate().for_each(|(index, toml)| one(Some(index), toml));
            }
            other => one(None, other),
        }
        // what is right of it takes part in further checks
        (wrong.len() == before || !items.is_empty()).then_some(items)
    }

    /// What to try in place of a text that is not valid; empty where the message says it.
    fn hint(&self, text: &str) -> String {
        match self {
            Self::Sockets(usual_port) => pattern::socket_hint(text, *usual_port),
            Self::SocketOrOff(port) => pattern::socket_hint(text, Some(*port)),
            _ => String::new(),
        }
    }

    fn not(&self, toml: &Toml) -> Wrong {
        let found = match toml.type_name() {
            "string" => "a string",
            "integer" => "a number without quotes",
            "float" => "a number with a decimal point",
            "boolean" => "true or false",
            "array" => "a list",
            "inline table" => "a table",
            _ => "a date",
        };
        Wrong::new(
            format!("expected {}, found {found}", self.describe()),
            format!("write it like {}", self.example()),
        )
    }
}

fn quantity<T>(toml: &Toml, low: &T, high: &T) -> Result<T, Wrong>
where
    T: Quantity + FromStr<Err = UnitError> + Ord + Display + Copy,
{
    let Some(text) = toml.as_str() else {
        return Err(Wrong::new(
            format!("expected {} with its unit, in quotes", T::WHAT),
            format!("write it like {}", T::EXAMPLE),
        ));
    };
    // the unit's message already says how to write it, and quotes the text, which may be long
    let value = if text.len() > 60 {
        return Err(Wrong::new(
            format!("this is not {}", T::WHAT),
            format!("write it like {}", T::EXAMPLE),
        ));
    } else {
        text.parse::<T>().map_err(|error| Wrong::new(error.to_string(), ""))?
    };
    if value < *low {
        return Err(Wrong::new(format!("{value} is too little"), format!("at least {low}")));
    }
    if value > *high {
        return Err(Wrong::new(format!("{value} is too much"), format!("at most {high}")));
    }
    Ok(value)
}

/// What the messages call a quantity.
trait Quantity {
    const WHAT: &'static str;
    const EXAMPLE: &'static str;
}
impl Quantity for Span {
    const WHAT: &'static str = "a length of time";
    const EXAMPLE: &'static str = "\"40 ms\"";
}
impl Quantity for Bytes {
    const WHAT: &'static str = "a size";
    const EXAMPLE: &'static str = "\"8 MiB\"";
}
impl Quantity for Share {
    const WHAT: &'static str = "a share";
    const EXAMPLE: &'static str = "\"95 %\"";
}
impl Quantity for Rate {
    const WHAT: &'static str = "a rate";
    const EXAMPLE: &'static str = "\"25 Mbit/s\"";
}

fn number(toml: &Toml, low: u64, high: u64) -> Result<u64, Wrong> {
    let Some(number) = toml.as_integer() else {
        return Err(Wrong::new(
            "expected a whole number, without quotes",
            format!("{low} to {high}"),
        ));
    };
    u64::try_from(number)
        .ok()
        .filter(|n| (low..=high).contains(n))
        .ok_or_else(|| Wrong::new(format!("{number} is out of range"), format!("{low} to {high}")))
}

fn chain(text: &str) -> Result<Vec<String>, String> {
    if text.trim() == "direct" {
        return Ok(Vec::new());
    }
    let hops: Vec<String> = text.split('>').map(|hop| hop.trim().to_owned()).collect();
    if hops.iter().any(String::is_empty) {
        return Err("a chain is names of upstreams with `>` between them, or `direct`".to_owned());
    }
    if hops.iter().any(|hop| hop == "direct") {
        return Err("`direct` means no upstream at all, so it stands alone".to_owned());
    }
    let mut seen = std::collections::BTreeSet::new();
    if let Some(twice) = hops.iter().find(|hop| !seen.insert(hop.as_str())) {
        return Err(format!("`{}` is in this chain twice", pattern::shorten(twice)));
    }
    if hops.len() > 16 {
        return Err("a chain has at most 16 upstreams".to_owned());
    }
    Ok(hops)
}

/// Checks that `text` is an absolute path.
/// Errors: in words.
pub(crate) fn absolute_path(text: &str) -> Result<(), String> {
    if text.starts_with('/') && !text.contains('\0') && text.len() < 4096 {
        Ok(())
    } else {
        Err(format!("\"{}\" is not an absolute path", pattern::shorten(text)))
    }
}
