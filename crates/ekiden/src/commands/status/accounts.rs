//! Accounts in `ekiden status`: limits, use and waiting.

use crate::print::{clean, count, rate, seconds, table, traffic};
use ekiden_proxy::observe::status::{
    AccountStatus, AccountsStatus, FleetStatus, LogInsStatus, SharingStatus,
};

/// The most important columns first: a narrow terminal cuts the rest.
const HEAD: [&str; 12] = [
    "ACCOUNT", "STATE", "DOWN", "LIMIT", "UP", "LIMIT", "WAITING", "CONNS", "LEFT", "WEIGHT",
    "RECEIVED", "SENT",
];

/// The accounts, one line each, and the shared rate; empty without limits.
pub(super) fn render(accounts: Option<&SharingStatus>, width: Option<usize>) -> String {
    let Some(shared) = accounts else { return String::new() };
    let mut out = String::from("\n");
    if !shared.accounts.is_empty() {
        let mut right = [true; HEAD.len()];
        right[..2].fill(false);
        let rows = shared.accounts.iter().map(row).collect();
        out = table(HEAD.map(str::to_owned).to_vec(), rows, &right, width);
    }
    let of = |limit: Option<u64>| limit.map_or_else(|| "no limit".to_owned(), rate);
    out.push_str(&format!(
        "shared: {} down, {} waiting; {} up, {} waiting; {} connections rejected\n",
        of(shared.downlink),
        count(shared.waiting_down, "account"),
        of(shared.uplink),
        shared.waiting_up,
        shared.refused
    ));
    out
}

fn row(account: &AccountStatus) -> Vec<String> {
    let limit = |limit: Option<u64>| limit.map_or_else(|| "-".to_owned(), rate);
    let connections = match account.connections_limit {
        Some(limit) => format!("{} of {limit}", account.connections),
        None => account.connections.to_string(),
    };
    vec![
        clean(&account.name),
        clean(&account.state),
        rate(account.rate_down),
        limit(account.limit_down),
        rate(account.rate_up),
        limit(account.limit_up),
        (account.waiting_down + account.waiting_up).to_string(),
        connections,
        quota_left(account),
        account.weight.to_string(),
        traffic(account.bytes_down),
        traffic(account.bytes_up),
    ]
}

/// The rest of a quota, and for how long it has to last.
pub(crate) fn quota_left(account: &AccountStatus) -> String {
    match (account.quota_left, account.period_ends_in_seconds) {
        (None, _) => "-".to_owned(),
        (Some(left), None) => traffic(left),
        (Some(left), Some(ends)) => format!("{} for {}", traffic(left), seconds(ends)),
    }
}

/// Log-ins that were wrong or not looked at, behind another figure; empty where there were none.
pub(super) fn wrong_log_ins(accounts: Option<&AccountsStatus>) -> String {
    let LogInsStatus { wrong, waited, .. } = accounts.map(|it| it.log_ins).unwrap_or_default();
    match (wrong, waited) {
        (0, 0) => String::new(),
        (wrong, 0) => format!(", {}", count(wrong, "wrong log-in")),
        (wrong, waited) => {
            format!(", {} and {waited} not looked at", count(wrong, "wrong log-in"))
        }
    }
}

/// Accounts, and their database if it is unreachable.
pub(super) fn database(accounts: &AccountsStatus) -> String {
    let away = match (&accounts.away, accounts.heard_seconds_ago) {
        (None, _) => String::new(),
        (Some(why), Some(ago)) => {
            format!(
                "; the database is unreachable, last contact {} ago: {}",
                seconds(ago),
                clean(why)
            )
        }
        (Some(why), None) => {
            format!("; the database was unreachable since the start: {}", clean(why))
        }
    };
    let known = count(accounts.known, "account");
    let unreadable = match (accounts.unreadable, &accounts.unreadable_first) {
        (0, _) => String::new(),
        (unreadable, first) => format!(
            "; {unreadable} cannot be read and {} not served, first {}",
            if unreadable == 1 { "is" } else { "are" },
            clean(first.as_deref().unwrap_or_default())
        ),
    };
    let relays = match accounts.relays.as_slice() {
        [] | [_] => String::new(),
        relays => {
            let seen =
                |r: &FleetStatus| format!("{} {} ago", clean(&r.name), seconds(r.seen_seconds_ago));
            format!("; relays: {}", relays.iter().map(seen).collect::<Vec<_>>().join(", "))
        }
    };
    let unwritten = accounts.unwritten.as_ref().map_or_else(String::new, |why| {
        format!("; usage cannot be written, and is kept in memory: {}", clean(why))
    });
    let database = clean(&accounts.database);
    format!("accounts: {known} in {database}{away}{unwritten}{unreadable}{relays}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_log_ins_stand_beside_the_refused_where_there_were_any() {
        let mut status = crate::commands::sample();
        let log_ins = LogInsStatus { known: 9, ..LogInsStatus::default() };
        let known = AccountsStatus { log_ins, ..AccountsStatus::default() };
        assert_eq!(wrong_log_ins(None) + &wrong_log_ins(Some(&known)), "");
        let log_ins = LogInsStatus { wrong: 1, ..log_ins };
        let wrong = AccountsStatus { log_ins, ..AccountsStatus::default() };
        assert_eq!(wrong_log_ins(Some(&wrong)), ", 1 wrong log-in");
        let log_ins = LogInsStatus { wrong: 7, waited: 40, ..log_ins };
        status.accounts = Some(AccountsStatus { log_ins, ..AccountsStatus::default() });
        let text = super::super::render(&status, None);
        assert!(text.contains(" refused, 7 wrong log-ins and 40 not looked at, "), "{text}");
    }
}
