//! What a measurement ran on, which CPUs it may use, and how many descriptors.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};
use std::io;

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
    #[must_use]
    pub fn read() -> Self {
        let text = |path| std::fs::read_to_string(path).unwrap_or_default();
        let field = |file: &str, key: &str| {
            let value = |l: &str| l.split_once(':').map(|(_, v)| v.trim().to_owned());
            file.lines().find(|l| l.starts_with(key)).and_then(value).unwrap_or_default()
        };
        let memory = field(&text("/proc/meminfo"), "MemTotal");
        Self {
            cpu: field(&text("/proc/cpuinfo"), "model name"),
            cores: cpus().len(),
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

/// Processors this thread may use, lowest first.
#[must_use]
pub fn cpus() -> Vec<usize> {
    let set = sched_getaffinity(None);
    set.map(|s| (0..CpuSet::MAX_CPU).filter(|c| s.is_set(*c)).collect()).unwrap_or_default()
}

/// Keeps this thread, and every process it starts from now on, to one processor.
///
/// # Errors
/// The kernel's, when the processor is not there or not ours.
pub fn pin(cpu: usize) -> io::Result<()> {
    restrict(&[cpu])
}

/// Runs `work` with this thread on `cpu`, then puts it back: a child started inside inherits the pin.
///
/// # Errors
/// The kernel's, when the processor is not there or not ours.
pub fn pinned<T>(cpu: Option<usize>, work: impl FnOnce() -> T) -> io::Result<T> {
    let Some(cpu) = cpu else { return Ok(work()) };
    let before = cpus();
    pin(cpu)?;
    let result = work();
    restrict(&before)?;
    Ok(result)
}

fn restrict(to: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    to.iter().for_each(|c| set.set(*c));
    Ok(sched_setaffinity(None, &set)?)
}

/// Raises this process's descriptor limit as far as it may, to `wanted` if the hard limit can be
/// lifted and to the hard limit if not; children inherit it. Answers what is allowed now.
#[must_use]
pub fn raise_descriptors(wanted: u64) -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let hard = limit.maximum.unwrap_or(u64::MAX);
    let tries = [
        Rlimit { current: Some(wanted.max(hard)), maximum: Some(wanted.max(hard)) },
        Rlimit { current: Some(hard), maximum: Some(hard) },
    ];
    for new in tries {
        if setrlimit(Resource::Nofile, new).is_ok() {
            break;
        }
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}
