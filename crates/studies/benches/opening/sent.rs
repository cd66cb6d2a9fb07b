//! When a relay sent its second SYNs, by its own log.

use std::collections::BTreeMap;

/// A second, in the log's microseconds.
const SECOND: u64 = 1_000_000;

/// The most second SYNs to one address within any one second.
pub(crate) fn most_in_a_second(log: &str) -> Result<usize, String> {
    let mut sent: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for line in log.lines().filter(|line| line.contains("kind=Second")) {
        let value = |name: &str| {
            let found = line.split_whitespace().find_map(|word| word.strip_prefix(name));
            found.ok_or_else(|| format!("a line of the relay's log has no `{name}`: {line}"))
        };
        let at = value("at_us=")?;
        let at = at.parse().map_err(|_| format!("`{at}` in the relay's log is no time"))?;
        sent.entry(value("address=")?).or_default().push(at);
    }
    Ok(sent.into_values().map(most).max().unwrap_or(0))
}

fn most(mut times: Vec<u64>) -> usize {
    times.sort_unstable();
    let within = |at: usize| times[at..].iter().take_while(|t| **t < times[at] + SECOND).count();
    (0..times.len()).map(within).max().unwrap_or(0)
}
