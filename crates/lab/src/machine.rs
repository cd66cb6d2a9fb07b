//! The machine that a measurement ran on.

use rustix::process::{Resource, getrlimit};
use serde::{Deserialize, Serialize};
use std::thread::available_parallelism;

/// The machine, as kept beside raw figures.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's model name.
    pub cpu: String,
    /// Processors this process may use.
    pub cores: usize,
    /// Kernel release.
    pub kernel: String,
    /// Memory, in KiB.
    pub memory_kib: u64,
    /// Open descriptors a process may have, after raising.
    pub descriptors: u64,
    /// Load average over one minute before the run: other people's work.
    pub load: f64,
}

impl Machine {
    /// Reads `/proc`. A file that cannot be read leaves its field empty.
    pub fn read() -> Self {
        let text = |path| std::fs::read_to_string(path).unwrap_or_default();
        let field = |file: &str, key: &str| {
            let value = |l: &str| l.split_once(':').map(|(_, v)| v.trim().to_owned());
            file.lines().find(|l| l.starts_with(key)).and_then(value).unwrap_or_default()
        };
        let memory = field(&text("/proc/meminfo"), "MemTotal");
        Self {
            cpu: field(&text("/proc/cpuinfo"), "model name"),
            cores: available_parallelism().map_or(0, usize::from),
            kernel: text("/proc/sys/kernel/osrelease").trim().to_owned(),
            memory_kib: first_number(&memory).unwrap_or(0),
            descriptors: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX),
            load: first_number(&text("/proc/loadavg")).unwrap_or(0.0),
        }
    }
}

fn first_number<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.split_whitespace().next()?.parse().ok()
}
