//! Whose a group is: a process by its number and its beginning, since numbers come again.

use std::fs;
use std::io::ErrorKind;

pub(super) const NOBODY: u64 = 0;

pub(super) fn own() -> u64 {
    let process = std::process::id();
    fs::read_to_string("/proc/self/stat").map_or(process.into(), |stat| mark(process, &stat))
}

/// Whether `owner` runs. One that is there and cannot be looked at does.
pub(super) fn is_alive(owner: u64) -> bool {
    // the lower half is the number
    let process = owner as u32;
    if process == 0 {
        return false;
    }
    match fs::read_to_string(format!("/proc/{process}/stat")) {
        Ok(stat) => mark(process, &stat) == owner,
        Err(error) => error.kind() != ErrorKind::NotFound,
    }
}

/// The number, and above it the tick of its start: field 22 of `stat`, the 20th after its name.
fn mark(process: u32, stat: &str) -> u64 {
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let began = rest.split_whitespace().nth(19).and_then(|field| field.parse().ok()).unwrap_or(0);
    u64::from(process) | began << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_process_of_the_same_number_is_another_owner() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 9000 11 12";
        assert_eq!(mark(7, stat), 9_000 << 32 | 7);
        assert!(is_alive(own()) && !is_alive(NOBODY));
        assert!(!is_alive(own() ^ 1 << 32));
    }
}
