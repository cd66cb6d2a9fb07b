//! Memory and processors.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fs;

/// Memory and processors that this process may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Machine {
    /// Memory of the machine, bytes.
    pub memory: Option<u64>,
    /// The tightest limit of this process's control groups, bytes; absent when there is none.
    pub memory_limit: Option<u64>,
    /// Processors this process may run on at once.
    pub cpus: usize,
}

impl Machine {
    pub(super) fn look() -> Self {
        Self {
            memory: fs::read_to_string("/proc/meminfo").ok().and_then(|text| total(&text)),
            memory_limit: fs::read_to_string("/proc/self/cgroup")
                .ok()
                .and_then(|text| limit(&text, |path| fs::read_to_string(path).ok())),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Control groups of version 2: the smallest `memory.max` from this process's group up to the root.
fn limit(groups: &str, read: impl Fn(&str) -> Option<String>) -> Option<u64> {
    let mut group = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let mut smallest = None;
    loop {
        let path = format!("/sys/fs/cgroup{}/memory.max", group.trim_end_matches('/'));
        let here = read(&path).and_then(|text| text.trim().parse::<u64>().ok());
        smallest = smallest.into_iter().chain(here).min();
        match group.trim_end_matches('/').rsplit_once('/') {
            Some((parent, _)) => group = parent,
            None => return smallest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read() {
        assert_eq!(total("MemTotal:       24000 kB\nMemFree: 1 kB\n"), Some(24_576_000));
        assert_eq!(total("MemFree: 1 kB\n"), None);
    }

    #[test]
    fn the_tightest_group_counts() {
        let read = |path: &str| match path {
            "/sys/fs/cgroup/system.slice/ekiden.service/memory.max" => Some("max\n".into()),
            "/sys/fs/cgroup/system.slice/memory.max" => Some("1073741824\n".into()),
            _ => None,
        };
        assert_eq!(limit("0::/system.slice/ekiden.service\n", read), Some(1 << 30));
        assert_eq!(limit("0::/\n", read), None);
        assert_eq!(limit("1:memory:/\n", read), None);
    }
}
