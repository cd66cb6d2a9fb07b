//! Processor time of a process without its children.

use std::ffi::OsStr;
use std::fs;

/// Ticks a second of `/proc`, the same on every Linux.
const TICKS: f64 = 100.0;

/// Seconds, user and system, of all processes called `name` among `root` and what it started.
pub(crate) fn of(root: u32, name: &OsStr) -> f64 {
    let read = |file: &str| fs::read_to_string(format!("/proc/{root}/{file}")).unwrap_or_default();
    let own = if OsStr::new(read("comm").trim_end()) == name {
        ticks(&read("stat")) / TICKS
    } else {
        0.0
    };
    // each thread has its children
    let tasks = fs::read_dir(format!("/proc/{root}/task")).into_iter().flatten().flatten();
    let children =
        tasks.map(|task| fs::read_to_string(task.path().join("children")).unwrap_or_default());
    let children: Vec<String> = children.collect();
    let children =
        children.iter().flat_map(|ids| ids.split_whitespace()).filter_map(|id| id.parse().ok());
    own + children.map(|child| of(child, name)).sum::<f64>()
}

fn ticks(stat: &str) -> f64 {
    // the name, in brackets, may hold spaces: utime and stime are the 12th and 13th after it
    let after = stat.rsplit_once(") ").map_or("", |(_, after)| after);
    after.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum()
}
