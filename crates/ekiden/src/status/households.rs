//! Households in `ekiden status`: what each may, has, uses and waits for.

use super::{clean, count, rate, seconds, size, table};
use ekiden_proxy::status::{HouseholdStatus, HouseholdsStatus};

/// What matters most comes first: a narrow terminal cuts the rest off.
const HEAD: [&str; 12] = [
    "HOUSEHOLD",
    "STATE",
    "DOWN",
    "OF",
    "UP",
    "OF",
    "WAITING",
    "CONNS",
    "LEFT",
    "WEIGHT",
    "RECEIVED",
    "SENT",
];

/// The households, a line each, and what the relay itself has to share; nothing where nobody is limited.
pub(super) fn render(households: Option<&HouseholdsStatus>, width: Option<usize>) -> String {
    let Some(shared) = households else { return String::new() };
    let mut out = String::from("\n");
    if !shared.households.is_empty() {
        let mut right = [true; HEAD.len()];
        right[..2].fill(false);
        let rows = shared.households.iter().map(row).collect();
        out = table(HEAD.map(str::to_owned).to_vec(), rows, &right, width);
    }
    let of = |limit: Option<u64>| limit.map_or_else(|| "no limit".to_owned(), rate);
    out.push_str(&format!(
        "shared: {} down, {} waiting for it; {} up, {} waiting; {} not admitted\n",
        of(shared.downlink),
        count(shared.waiting_down, "household"),
        of(shared.uplink),
        shared.waiting_up,
        shared.refused
    ));
    out
}

fn row(household: &HouseholdStatus) -> Vec<String> {
    let limit = |limit: Option<u64>| limit.map_or_else(|| "-".to_owned(), rate);
    let connections = match household.connections_limit {
        Some(limit) => format!("{} of {limit}", household.connections),
        None => household.connections.to_string(),
    };
    let left = match (household.quota_left, household.period_ends_in_seconds) {
        (None, _) => "-".to_owned(),
        (Some(left), None) => size(left),
        (Some(left), Some(ends)) => format!("{} for {}", size(left), seconds(ends)),
    };
    vec![
        clean(&household.name),
        clean(&household.state),
        rate(household.rate_down),
        limit(household.limit_down),
        rate(household.rate_up),
        limit(household.limit_up),
        (household.waiting_down + household.waiting_up).to_string(),
        connections,
        left,
        household.weight.to_string(),
        size(household.bytes_down),
        size(household.bytes_up),
    ]
}
