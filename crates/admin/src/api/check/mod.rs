//! Whether a document is as its schema says, and in words where it is not.
//!
//! It knows the keywords that [`super::schemas`] uses for what is sent, and no others. A test holds it against
//! `jsonschema`, which the program itself does without: a thirtieth of a cold build, and sentences about schemas.

use super::SCHEMAS;
use crate::problem::FieldError;
use ekiden_config::printable;
use regex_lite::Regex;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Mistakes that are told at once.
const MOST: usize = 20;

/// Schemas by name, with their patterns made ready.
pub(super) struct Checker {
    schemas: Map<String, Value>,
    patterns: BTreeMap<String, Regex>,
}

impl Checker {
    /// Of these schemas; an error names the pattern that is none.
    pub(super) fn new(schemas: Map<String, Value>) -> Result<Self, String> {
        let mut patterns = BTreeMap::new();
        for schema in schemas.values() {
            collect(schema, &mut patterns)?;
        }
        Ok(Self { schemas, patterns })
    }

    /// What in `value` does not fit the schema `name`, 20 mistakes at most; none where it fits. Values are not
    /// repeated: there may be a password among them.
    pub(super) fn errors(&self, name: &str, value: &Value) -> Vec<FieldError> {
        let mut found = Found { at: String::new(), errors: Vec::new() };
        self.named(name, value, &mut found);
        found.errors.truncate(MOST);
        found.errors
    }

    fn named(&self, name: &str, value: &Value, found: &mut Found) {
        match self.schemas.get(name) {
            Some(schema) => self.check(schema, value, found),
            None => found.add(format!("cannot be checked: there is no schema `{name}`")),
        }
    }

    fn check(&self, schema: &Value, value: &Value, found: &mut Found) {
        if found.errors.len() >= MOST {
            return;
        }
        if let Some(name) = schema["$ref"].as_str().and_then(referred) {
            self.named(name, value, found);
        }
        for key in ["anyOf", "oneOf"] {
            if let Some(alternatives) = schema[key].as_array() {
                self.one_of(alternatives, value, found);
            }
        }
        let types = listed(&schema["type"]);
        if !types.is_empty() && !types.iter().any(|name| is_of(name, value)) {
            return found
                .add(format!("is to be {}", either(types.iter().map(|name| article(name)))));
        }
        let allowed = [listed(&schema["enum"]), listed(&schema["const"])].concat();
        if !allowed.is_empty() && !allowed.iter().any(|word| value.as_str() == Some(word)) {
            found.add(format!(
                "is to be {}",
                either(allowed.iter().map(|word| format!("`{word}`")))
            ));
        }
        match value {
            Value::Number(number) => {
                let inside = |limit: &Value, holds: fn(f64, f64) -> bool| {
                    let both = number.as_f64().zip(limit.as_f64());
                    both.is_none_or(|(number, limit)| holds(number, limit))
                };
                let (low, high) = (&schema["minimum"], &schema["maximum"]);
                if !inside(low, |n, low| n >= low) || !inside(high, |n, high| n <= high) {
                    found.add(format!("is outside its range, {}", range(low, high)));
                }
            }
            Value::String(text) => self.string(schema, text, found),
            Value::Array(list) => {
                let (low, high) = (&schema["minItems"], &schema["maxItems"]);
                if !within(list.len(), low, high) {
                    found.add(format!(
                        "has {} entries, and {} are allowed",
                        list.len(),
                        range(low, high)
                    ));
                }
                for (index, entry) in list.iter().enumerate() {
                    found.below(&index.to_string(), |found| {
                        self.check(&schema["items"], entry, found);
                    });
                }
            }
            Value::Object(map) => self.object(schema, map, found),
            Value::Null | Value::Bool(_) => {}
        }
    }

    fn string(&self, schema: &Value, text: &str, found: &mut Found) {
        let (low, high) = (&schema["minLength"], &schema["maxLength"]);
        let long = text.chars().count();
        if !within(long, low, high) {
            return found
                .add(format!("has {long} characters, and {} are allowed", range(low, high)));
        }
        let pattern = schema["pattern"].as_str().and_then(|pattern| self.patterns.get(pattern));
        if pattern.is_some_and(|pattern| !pattern.is_match(text)) {
            let about = schema["description"].as_str().unwrap_or("a text").trim_end_matches('.');
            let such = schema["examples"][0].as_str();
            let such = such.map_or_else(String::new, |such| format!(", such as `{such}`"));
            found.add(format!("is not of its form{such}: {}", uncapitalised(about)));
        }
    }

    fn object(&self, schema: &Value, map: &Map<String, Value>, found: &mut Found) {
        for name in listed(&schema["required"]) {
            if !map.contains_key(name) {
                found.below(name, |found| found.add("is missing".to_owned()));
            }
        }
        let closed = schema["additionalProperties"] == Value::Bool(false);
        for (name, value) in map {
            found.below(name, |found| match schema["properties"].get(name) {
                Some(schema) => self.check(schema, value, found),
                None if closed => {
                    let known = schema["properties"].as_object().into_iter().flat_map(Map::keys);
                    let known = known.map(String::as_str).collect::<Vec<_>>().join(", ");
                    let name = printable(name);
                    found.add(format!("there is no field `{name}` here; there are {known}"));
                }
                None => {}
            });
        }
    }

    /// One of several fits. Objects are told apart by a field that is a constant in each.
    fn one_of(&self, alternatives: &[Value], value: &Value, found: &mut Found) {
        let tried = alternatives.iter().map(|schema| {
            let mut tried = Found { at: found.at.clone(), errors: Vec::new() };
            self.check(schema, value, &mut tried);
            (schema, tried.errors)
        });
        let mut tried: Vec<_> = tried.collect();
        if tried.iter().any(|(_, errors)| errors.is_empty()) {
            return;
        }
        // what is not null is not to be told that it is to be null
        tried.retain(|(schema, _)| schema["type"] != "null");
        if let Some((tag, words)) = tag(alternatives)
            && let Some(map) = value.as_object()
        {
            let said = map.get(tag).and_then(Value::as_str);
            if !said.is_some_and(|said| words.contains(&said)) {
                let words = either(words.iter().map(|word| format!("`{word}`")));
                return found.below(tag, |found| found.add(format!("is to be {words}")));
            }
            tried.retain(|(schema, _)| schema["properties"][tag]["const"].as_str() == said);
        }
        found.errors.extend(tried.into_iter().next().into_iter().flat_map(|(_, errors)| errors));
    }
}

/// Mistakes, and where is looked now.
struct Found {
    /// A JSON pointer (RFC 6901).
    at: String,
    errors: Vec<FieldError>,
}

impl Found {
    fn add(&mut self, detail: String) {
        self.errors.push(FieldError { pointer: self.at.clone(), detail });
    }

    fn below(&mut self, step: &str, look: impl FnOnce(&mut Self)) {
        let here = self.at.len();
        self.at.push('/');
        self.at.push_str(&step.replace('~', "~0").replace('/', "~1"));
        look(self);
        self.at.truncate(here);
    }
}

fn collect(schema: &Value, patterns: &mut BTreeMap<String, Regex>) -> Result<(), String> {
    match schema {
        Value::Object(map) => {
            if let Some(pattern) = map.get("pattern").and_then(Value::as_str) {
                let ready = Regex::new(pattern).map_err(|error| format!("{pattern}: {error}"))?;
                patterns.insert(pattern.to_owned(), ready);
            }
            map.values().try_for_each(|schema| collect(schema, patterns))
        }
        Value::Array(list) => list.iter().try_for_each(|schema| collect(schema, patterns)),
        _ => Ok(()),
    }
}

/// The name that a reference within the description leads to.
fn referred(reference: &str) -> Option<&str> {
    reference.strip_prefix('#')?.strip_prefix(SCHEMAS)?.strip_prefix('/')
}

/// One word or several.
fn listed(words: &Value) -> Vec<&str> {
    match words {
        Value::Array(list) => list.iter().filter_map(Value::as_str).collect(),
        one => one.as_str().into_iter().collect(),
    }
}

/// The field that is a constant in each of them, and its words.
fn tag(alternatives: &[Value]) -> Option<(&str, Vec<&str>)> {
    let fields = alternatives.first()?["properties"].as_object()?;
    let (tag, _) = fields.iter().find(|(_, field)| field["const"].is_string())?;
    let words = alternatives.iter().map(|schema| schema["properties"][tag]["const"].as_str());
    Some((tag, words.collect::<Option<_>>()?))
}

/// A number without a fraction is an integer, however large.
fn is_of(name: &str, value: &Value) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    }
}

fn article(name: &str) -> String {
    match name {
        "null" => "null".to_owned(),
        "boolean" => "true or false".to_owned(),
        "integer" => "a whole number".to_owned(),
        "array" => "a list".to_owned(),
        "object" => "an object".to_owned(),
        name => format!("a {name}"),
    }
}

fn either(words: impl Iterator<Item = String>) -> String {
    let mut words: Vec<_> = words.collect();
    match words.pop() {
        Some(last) if !words.is_empty() => format!("{} or {last}", words.join(", ")),
        last => last.unwrap_or_default(),
    }
}

fn within(count: usize, low: &Value, high: &Value) -> bool {
    let count = count as u64;
    low.as_u64().is_none_or(|low| count >= low) && high.as_u64().is_none_or(|high| count <= high)
}

fn range(low: &Value, high: &Value) -> String {
    match (low.is_number(), high.is_number()) {
        (true, true) => format!("{low} to {high}"),
        (true, false) => format!("at least {low}"),
        (false, _) => format!("at most {high}"),
    }
}

fn uncapitalised(sentence: &str) -> String {
    let mut letters = sentence.chars();
    let first = letters.next().map(|first| first.to_lowercase().to_string());
    first.unwrap_or_default() + letters.as_str()
}

#[cfg(test)]
mod tests;
