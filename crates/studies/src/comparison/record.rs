//! What is kept of a run, and what every benchmark does around it.

use super::Row;
use ekiden_lab::machine::Machine;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::File;
use std::io;

/// How long and how many.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Effort {
    /// Length of the measured window.
    pub seconds: f64,
    /// Before it, unmeasured; also how long idle tunnels settle.
    pub warm_up: f64,
    /// Idle tunnels; 0 where none are asked for.
    pub idle: usize,
}

/// What is kept of a run.
#[derive(Debug, Serialize)]
pub struct Record {
    /// The benchmark, as its messages begin.
    #[serde(skip)]
    pub benchmark: &'static str,
    /// See [`command`].
    pub command: Vec<String>,
    /// Where it ran.
    pub machine: Machine,
    /// Of every socket nobody asked for another.
    pub congestion_control: String,
    /// The processor of the relay.
    pub relay_cpu: Option<usize>,
    /// The processor of the load.
    pub generator_cpu: Option<usize>,
    /// How long and how many.
    pub effort: Effort,
    /// Of each contestant, as the program reports it.
    pub versions: BTreeMap<&'static str, String>,
    /// Contestants that are missing, or failed in a test, and why.
    pub skipped: BTreeMap<&'static str, String>,
    /// All measurements.
    pub rows: Vec<Row>,
}

impl Record {
    /// Nothing measured yet; the relay gets the last processor of `cpus` and the load the first. Says so where they
    /// are the same.
    pub fn new(
        benchmark: &'static str,
        congestion_control: String,
        cpus: &[usize],
        effort: Effort,
    ) -> Self {
        let (generator_cpu, relay_cpu) = (cpus.first().copied(), cpus.last().copied());
        if generator_cpu == relay_cpu {
            eprintln!("{benchmark}: one processor only: relay and generator share it");
        }
        Self {
            benchmark,
            command: command(),
            machine: Machine::read(),
            congestion_control,
            relay_cpu,
            generator_cpu,
            effort,
            versions: BTreeMap::new(),
            skipped: BTreeMap::new(),
            rows: Vec::new(),
        }
    }

    /// A contestant could not be started: says so once.
    pub fn skip(&mut self, name: &'static str, why: &dyn Display) {
        if !self.skipped.contains_key(name) {
            eprintln!("{}: SKIPPED {name}: {why}", self.benchmark);
        }
        self.skipped.insert(name, why.to_string());
    }

    /// A contestant failed in a test: says so every time.
    pub fn fail(&mut self, test: &str, name: &'static str, why: &dyn Display) {
        eprintln!("{}: FAILED {test} {name}: {why}", self.benchmark);
        let before = self.skipped.entry(name).or_default();
        if !before.contains(test) {
            *before += &format!("{test} failed: {why}. ");
        }
    }

    /// The machine, the versions and who is missing, in lines.
    pub fn heading(&self, more: &str) -> String {
        let machine = &self.machine;
        let mut text = format!(
            "{} · {} cores · Linux {} · load {:.1} before · congestion control {}\nrelay on CPU {:?}, generator on CPU {:?}; one worker each; windows of {} s; {more}\n",
            machine.cpu,
            machine.cores,
            machine.kernel,
            machine.load,
            self.congestion_control,
            self.relay_cpu.unwrap_or(0),
            self.generator_cpu.unwrap_or(0),
            self.effort.seconds,
        );
        for (peer, version) in &self.versions {
            text += &format!("  {peer}: {version}\n");
        }
        for (peer, why) in &self.skipped {
            text += &format!("  SKIPPED {peer}: {why}\n");
        }
        text
    }
}

/// The command as somebody else would type it: without the folders of this machine.
pub fn command() -> Vec<String> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/");
    let root = root.strip_suffix("crates/studies/").unwrap_or(root);
    std::env::args().map(|word| word.replace(root, "")).collect()
}

/// The congestion control of sockets where no route names another, e.g. `cubic`; empty where `/proc/sys` has none.
pub fn default_control() -> String {
    ekiden_linux::host::sysctl::read("net.ipv4.tcp_congestion_control").unwrap_or_default()
}

/// Waits until no other benchmark runs on this machine: two at once would measure each other. Errors: the file cannot
/// be made.
pub fn lock(benchmark: &str) -> io::Result<File> {
    let file = File::create(std::env::temp_dir().join("ekiden-bench.lock"))?;
    if file.try_lock().is_err() {
        eprintln!("{benchmark}: another benchmark runs here; waiting for its end");
        file.lock()?;
    }
    Ok(file)
}

/// Shows how far it is.
pub fn bar(steps: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg:32} {wide_bar} {pos}/{len} {eta}");
    let bar = ProgressBar::new(steps as u64);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// Every contestant once a round, with the round's number from 0. Who begins changes, so that a machine that is slow
/// for a minute is slow for all.
pub fn rounds<C: Copy>(rounds: usize, contestants: &[C]) -> impl Iterator<Item = (usize, C)> {
    let of_round =
        move |round| contestants.iter().copied().cycle().skip(round).take(contestants.len());
    (0..rounds).flat_map(move |round| of_round(round).map(move |one| (round, one)))
}

/// Those of `all` whose names begin with one of `beginnings`; all of them without any. Errors: nobody's name begins so.
pub fn chosen<C: Copy>(
    beginnings: &[String],
    all: &[C],
    name: fn(&C) -> &'static str,
) -> Result<Vec<C>, String> {
    let begins = |one: &C, beginning: &String| name(one).starts_with(beginning.as_str());
    if let Some(unknown) = beginnings.iter().find(|b| !all.iter().any(|one| begins(one, b))) {
        let names: Vec<_> = all.iter().map(name).collect();
        return Err(format!("no peer {unknown}; there are {}", names.join(", ")));
    }
    let is_chosen = |one: &&C| beginnings.is_empty() || beginnings.iter().any(|b| begins(one, b));
    Ok(all.iter().filter(is_chosen).copied().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_has_everybody_and_begins_with_another() {
        let order: Vec<_> = rounds(4, &['a', 'b', 'c']).collect();
        let letters: String = order.iter().map(|(_, one)| *one).collect();
        assert_eq!(letters, "abcbcacababc");
        assert_eq!((order[3], order[11]), ((1, 'b'), (3, 'c')));
        assert_eq!(rounds::<char>(2, &[]).count(), 0);
    }

    #[test]
    fn a_beginning_of_a_name_chooses() {
        let all = ["ekiden-connect", "ekiden-socks5", "squid"];
        let some = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            chosen(&words, &all, |name| name)
        };
        assert_eq!(some(&[]).unwrap(), all);
        assert_eq!(some(&["squid", "ekiden-c"]).unwrap(), ["ekiden-connect", "squid"]);
        assert!(
            some(&["squid", "nobody"]).unwrap_err().contains("no peer nobody; there are ekiden")
        );
    }
}
