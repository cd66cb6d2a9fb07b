//! What the summary says of the program and the machine.

use std::path::Path;
use std::process::Command;
use std::thread;

/// The version that a program says, or why it says none.
pub(super) fn version(binary: &Path) -> String {
    let output = Command::new(binary).arg("--version").output();
    output.map_or_else(
        |error| error.to_string(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}

/// This machine in a line.
pub(super) fn machine() -> String {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let processors = read("/proc/cpuinfo");
    let model = processors.lines().find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("unknown", |model| model.trim_start_matches([' ', '\t', ':']));
    let cores = thread::available_parallelism().map_or(0, usize::from);
    let (kernel, load) = (read("/proc/sys/kernel/osrelease"), read("/proc/loadavg"));
    let load = load.split(' ').next().unwrap_or_default();
    format!("{model}, {cores} processors, Linux {}, load {load} before", kernel.trim())
}
