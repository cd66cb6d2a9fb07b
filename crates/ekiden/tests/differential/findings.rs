//! What a run found, as a table and as JSON.

use super::compare::{Difference, Relation, compare};
use super::programs::{Ended, NAMES, Reading};
use super::responses::Script;
use super::tricks::Case;
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

/// Findings of one class.
#[derive(Debug, Clone)]
struct Finding {
    count: u64,
    /// The shortest stream, and its number.
    bytes: Vec<u8>,
    number: u64,
}

/// A class: the stream's side, how the readings differ, from which program's, and why that is no fault of Ekiden.
type Class = (&'static str, Difference, &'static str, Option<&'static str>);

/// A row of the table.
type Count = fn(&Beside) -> u64;

/// How often Ekiden and one other program relate in each way.
#[derive(Debug, Clone, Copy, Default)]
struct Beside {
    same: u64,
    ekiden_stricter: u64,
    other_stricter: u64,
    argued: u64,
    findings: u64,
}

pub(super) struct Summary {
    seed: u64,
    versions: [String; 3],
    pub(super) took: Duration,
    cases: u64,
    /// Cases in which Ekiden passed on all, some or nothing.
    ekiden_refused: u64,
    beside: [Beside; 2],
    /// Cases that nginx and squid read differently, and those of them that Ekiden did not pass on as a whole.
    apart: u64,
    apart_refused: u64,
    findings: BTreeMap<Class, Finding>,
}

impl Summary {
    pub(super) fn new(seed: u64, versions: &[String; 3]) -> Self {
        Self {
            seed,
            versions: versions.clone(),
            took: Duration::ZERO,
            cases: 0,
            ekiden_refused: 0,
            beside: [Beside::default(); 2],
            apart: 0,
            apart_refused: 0,
            findings: BTreeMap::new(),
        }
    }

    /// `script`: of a case that is the origin's.
    pub(super) fn add(
        &mut self,
        case: &Case,
        script: Option<&Script>,
        [ekiden, nginx, squid]: &[Reading; 3],
    ) {
        self.cases += 1;
        let side = if script.is_some() { "response" } else { "request" };
        let bytes = script.map_or(&case.bytes, |script| &script.bytes);
        let refused =
            ekiden.ended == Ended::Refused || (script.is_some() && ekiden.requests.is_empty());
        self.ekiden_refused += u64::from(refused);
        if matches!(compare(nginx, squid), Relation::Differs(_)) {
            self.apart += 1;
            self.apart_refused += u64::from(refused);
        }
        for (nth, other) in [nginx, squid].into_iter().enumerate() {
            let beside = &mut self.beside[nth];
            let difference = match compare(ekiden, other) {
                Relation::Same => {
                    beside.same += 1;
                    continue;
                }
                Relation::EkidenStricter => {
                    beside.ekiden_stricter += 1;
                    continue;
                }
                Relation::OtherStricter => {
                    beside.other_stricter += 1;
                    continue;
                }
                Relation::Differs(difference) => difference,
            };
            let argued = argued(script, NAMES[nth + 1]);
            match argued {
                Some(_) => beside.argued += 1,
                None => beside.findings += 1,
            }
            let new = Finding { count: 0, bytes: bytes.clone(), number: case.number };
            let key = (side, difference, NAMES[nth + 1], argued);
            let found = self.findings.entry(key).or_insert(new);
            found.count += 1;
            if bytes.len() < found.bytes.len() {
                (found.bytes, found.number) = (bytes.clone(), case.number);
            }
        }
    }

    pub(super) fn is_clean(&self) -> bool {
        self.cases > 0 && self.beside.iter().all(|beside| beside.findings == 0)
    }

    pub(super) fn table(&self) -> String {
        let mut text = String::new();
        let Self { cases, seed, took, .. } = self;
        let _ = writeln!(
            text,
            "{cases} streams of seed {seed} in {:.1} s: {}",
            took.as_secs_f64(),
            self.versions.join(", ")
        );
        let _ = writeln!(
            text,
            "Ekiden refused {} of them, as a whole or from some message on.",
            self.ekiden_refused
        );
        let (apart, refused) = (self.apart, self.apart_refused);
        let _ = writeln!(
            text,
            "nginx and squid read {apart} differently; Ekiden refused {refused} of these.\n"
        );
        let _ = writeln!(text, "{:<28}{:>10}{:>10}", "Ekiden beside", "nginx", "squid");
        let rows: [(&str, Count); 5] = [
            ("reads the same", |beside| beside.same),
            ("refuses more", |beside| beside.ekiden_stricter),
            ("refuses less", |beside| beside.other_stricter),
            ("differs, and is right", |beside| beside.argued),
            ("findings", |beside| beside.findings),
        ];
        for (name, count) in rows {
            let [nginx, squid] = self.beside.each_ref().map(count);
            let _ = writeln!(text, "{name:<28}{nginx:>10}{squid:>10}");
        }
        for ((side, difference, other, argued), found) in &self.findings {
            let word = argued.map_or("FINDING".to_owned(), |why| format!("argued: {why}"));
            let Finding { count, bytes, number } = found;
            let name = difference.name();
            let _ = writeln!(
                text,
                "\n{side}, {name} beside {other}, {count} times ({word}), as case {number}:\n  {}",
                bytes.escape_ascii()
            );
        }
        text
    }

    pub(super) fn json(&self) -> serde_json::Value {
        let beside = |nth: usize| {
            let Beside { same, ekiden_stricter, other_stricter, argued, findings } =
                self.beside[nth];
            json!({
                "same": same, "ekiden_refuses_more": ekiden_stricter, "ekiden_refuses_less": other_stricter,
                "argued": argued, "findings": findings,
            })
        };
        let findings = self.findings.iter().map(|((side, difference, other, argued), found)| {
            json!({
                "side": side, "class": difference.name(), "beside": other, "argued": argued, "count": found.count,
                "case": found.number, "bytes": found.bytes.escape_ascii().to_string(),
            })
        });
        json!({
            "seed": self.seed, "cases": self.cases, "seconds": self.took.as_secs_f64(), "versions": self.versions,
            "ekiden_refused": self.ekiden_refused, "nginx_and_squid_differ": self.apart,
            "of_which_ekiden_refused": self.apart_refused,
            "nginx": beside(0), "squid": beside(1), "findings": findings.collect::<Vec<_>>(),
        })
    }
}

/// Why a difference is no fault of Ekiden: what the specification says, and what the other program does instead.
fn argued(script: Option<&Script>, other: &str) -> Option<&'static str> {
    let text = String::from_utf8_lossy(&script?.bytes).into_owned();
    let mut heads = text.split("HTTP/1.").skip(1).filter_map(|line| line.get(2..5));
    let mut has = |status: fn(&str) -> bool| heads.any(status);
    let length =
        text.split_once("Content-Length:").map(|(_, rest)| rest.lines().next().unwrap_or_default());
    match other {
        "nginx" if has(|status| status.starts_with('1')) => {
            Some("nginx takes interim responses for final ones (RFC 9110 §15.2)")
        }
        "nginx" if length.is_some_and(|length| length.contains('\t')) => {
            Some("nginx takes a length beside a tab for none (RFC 9110 §5.5)")
        }
        "squid" if has(|status| matches!(status, "204" | "304")) => {
            Some("squid passes on what follows 204 or 304 (RFC 9112 §6.3)")
        }
        _ => None,
    }
}
