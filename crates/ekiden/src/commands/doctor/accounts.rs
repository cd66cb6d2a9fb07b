//! Accounts that the running daemon cannot read, and the operators' file.

use super::{Finding, Severity};
use ekiden_proxy::observe::status::Status;

pub(super) fn accounts(status: &Status, found: &mut Vec<Finding>) {
    if let Some(accounts) = status.accounts.as_ref().filter(|accounts| accounts.unreadable > 0) {
        let first = accounts.unreadable_first.as_deref().unwrap_or_default();
        let what = format!(
            "{} of the accounts cannot be read from the database, first {first}",
            accounts.unreadable
        );
        let why =
            format!("nobody may come in by them: {}", ekiden_accounts::UnreadableAccount::REMEDY);
        found.push(problem("accounts", what, why));
    }
    if let Some(why) = &status.operators {
        let what = format!("the file of operators cannot be used: {why}");
        found.push(problem("operators", what, ekiden_admin::operators::REMEDY.to_owned()));
    }
}

fn problem(id: &str, what: String, why: String) -> Finding {
    let (id, severity) = (id.into(), Severity::Problem);
    Finding { id, severity, what, why, mend: None, settings: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreadable_accounts_and_operators_are_found() {
        let text = include_str!("../../../tests/status.json");
        let mut status: Status = serde_json::from_str(text).unwrap();
        let found = |status: &Status| {
            let mut found = Vec::new();
            accounts(status, &mut found);
            found.into_iter().map(|finding| finding.what).collect::<Vec<_>>()
        };
        assert!(found(&status).is_empty());
        let unreadable_first = Some("account \"tanaka\": account.attributes: no JSON".to_owned());
        status.accounts = Some(ekiden_proxy::observe::status::AccountsStatus {
            unreadable: 2,
            unreadable_first,
            ..Default::default()
        });
        status.operators = Some("it is empty".to_owned());
        let found = found(&status);
        assert!(found[0].starts_with("2 of the accounts") && found[0].contains("\"tanaka\""));
        assert!(found[1].ends_with("it is empty"), "{found:?}");
    }
}
