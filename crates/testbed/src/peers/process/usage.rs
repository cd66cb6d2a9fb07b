//! What a process tree costs, from `/proc`.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

/// Costs of a process and all its descendants at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// User and system time, of ended and waited-for children too. Resolution 10 ms.
    pub cpu: Duration,
    /// Proportional set size in bytes: a page shared by n processes counts 1/n in each; no kernel memory.
    pub memory: u64,
    pub descriptors: u64,
    pub threads: u64,
}

impl Usage {
    /// Sums over the tree of `root`; a process that ends meanwhile counts only by its time in its parent.
    pub(super) fn of_tree(root: u32) -> Self {
        let mut sum = Self { cpu: cpu_time(root), ..Self::default() };
        for id in tree(root) {
            sum.memory += memory(id);
            sum.descriptors += entries(&format!("/proc/{id}/fd"));
            sum.threads += entries(&format!("/proc/{id}/task"));
        }
        sum
    }
}

/// `root` and all its descendants.
pub(super) fn tree(root: u32) -> Vec<u32> {
    below(root, &all()).into_iter().map(|(id, _)| id).collect()
}

/// User and system time of the tree below `root`.
pub(super) fn cpu_time(root: u32) -> Duration {
    let ticks: u64 = below(root, &all()).into_iter().map(|(_, stat)| stat.ticks).sum();
    Duration::from_millis(ticks * 10) // USER_HZ is 100 on every Linux port but Alpha
}

#[derive(Debug, Clone, Copy)]
struct Stat {
    parent: u32,
    ticks: u64,
}

fn all() -> BTreeMap<u32, Stat> {
    let Ok(folder) = fs::read_dir("/proc") else { return BTreeMap::new() };
    let ids = folder.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok());
    ids.filter_map(|id| Some((id, stat(&fs::read_to_string(format!("/proc/{id}/stat")).ok()?)?)))
        .collect()
}

/// Fields of `/proc/PID/stat`, proc(5): the second one, in brackets, may hold blanks and brackets.
fn stat(line: &str) -> Option<Stat> {
    let fields: Vec<&str> = line.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |n: usize| fields.get(n - 3)?.parse::<u64>().ok();
    let ticks = (14..=17).map(number).sum::<Option<u64>>()?;
    Some(Stat { parent: number(4)? as u32, ticks })
}

fn below(root: u32, all: &BTreeMap<u32, Stat>) -> Vec<(u32, Stat)> {
    let mut found: Vec<(u32, Stat)> = all.get(&root).map(|s| (root, *s)).into_iter().collect();
    let mut next = 0;
    while let Some((parent, _)) = found.get(next).copied() {
        found.extend(all.iter().filter(|(_, s)| s.parent == parent).map(|(id, s)| (*id, *s)));
        next += 1;
    }
    found
}

fn memory(id: u32) -> u64 {
    let kib = |file: &str, key: &str| {
        let text = fs::read_to_string(format!("/proc/{id}/{file}")).ok()?;
        let line = text.lines().find_map(|l| l.strip_prefix(key))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    // Without the right to read a daemon's maps, its anonymous memory is the next best.
    kib("smaps_rollup", "Pss:").or_else(|| kib("status", "RssAnon:")).unwrap_or(0) * 1024
}

fn entries(folder: &str) -> u64 {
    fs::read_dir(folder).map_or(0, |f| f.count() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skips_a_name_with_brackets_and_blanks() {
        let line = "7 (a) b) S 3 7 7 0 -1 0 0 0 0 0 1 2 30 40 20 0 1 0 5 0 0";
        let read = stat(line).unwrap();
        assert_eq!((read.parent, read.ticks), (3, 73));
    }

    #[test]
    fn own_tree_includes_this_process() {
        let me = std::process::id();
        assert!(tree(me).contains(&me));
        let usage = Usage::of_tree(me);
        assert!(
            usage.memory > 100_000 && usage.threads >= 1 && usage.descriptors >= 3,
            "{usage:?}"
        );
    }
}
