//! Accounts: each needs a name and claims that no other account makes.

use crate::draft::{Draft, QuotaAction};
use crate::reader::Reader;
use crate::value::database::DatabaseAddress;
use std::collections::{BTreeMap, BTreeSet};

/// The database's server has to show who it is.
pub(super) fn database(reader: &mut Reader<'_>, draft: &Draft) {
    let address = draft.accounts.database.as_deref().map(DatabaseAddress::read);
    if address.is_some_and(|address| address.is_ok_and(|address| !address.is_safe())) {
        let text = "this `sslmode` lets anybody on the way pose as the database: they get its password and the accounts";
        reader.warn(
            "accounts.database",
            text,
            "?sslmode=verify-full, and `sslrootcert` for an authority of your own",
        );
    }
}

/// Accounts are distinguished by what they claim.
pub(super) fn accounts(reader: &mut Reader<'_>, draft: &Draft) {
    let (mut names, mut claims) = (BTreeSet::new(), BTreeMap::new());
    for (index, account) in draft.account.iter().enumerate() {
        let path = format!("account[{index}]");
        let set =
            |reader: &Reader<'_>, key: &str| reader.spans.contains_key(&format!("{path}.{key}"));
        match &account.name {
            None => reader.error(&path, "this account has no `name`", "name = \"harbour\""),
            Some(name) if !names.insert(name) => {
                let message = format!("there are two accounts `{name}`");
                reader.error(&format!("{path}.name"), message, "rename one, or merge them");
            }
            Some(_) => {}
        }
        let misread = reader.has_misread(&format!("{path}."));
        if account.addresses.is_empty() && account.peers.is_empty() && !misread {
            reader.error(
                &path,
                "this account claims no clients",
                "add its devices: addresses = [\"192.168.1.0/24\"], or peers = [\"island\"]",
            );
        }
        let addresses = account.addresses.iter().map(|net| net.to_string());
        for (what, claims_at) in
            [("addresses", addresses.collect::<Vec<_>>()), ("peers", account.peers.clone())]
        {
            for (number, claim) in claims_at.into_iter().enumerate() {
                let before = claims.insert((what, claim.clone()), index);
                if before.is_some_and(|before| before != index) {
                    reader.error(
                        &format!("{path}.{what}[{number}]"),
                        format!("another account claims {claim} already"),
                        "",
                    );
                }
            }
        }
        for key in ["on_quota_exceeded", "throttle_rate"] {
            // a quota that is not understood is told already
            let misread = reader.has_misread(&format!("{path}.quota"));
            if account.quota.is_none() && !misread && set(reader, key) {
                reader.warn(
                    &format!("{path}.{key}"),
                    format!("`{key}` has no effect without a `quota`"),
                    "quota = \"100 GB/30 d\"",
                );
            }
        }
        if account.quota.is_some()
            && account.on_quota_exceeded == QuotaAction::Cut
            && set(reader, "throttle_rate")
        {
            reader.warn(
                &format!("{path}.throttle_rate"),
                "`throttle_rate` has no effect where `on_quota_exceeded` is \"cut\"",
                "",
            );
        }
        let least = [account.rate_down, account.rate_up].into_iter().flatten().min();
        if account.quota.is_some()
            && account.on_quota_exceeded == QuotaAction::Throttle
            && least.is_some_and(|least| account.throttle_rate >= least)
        {
            reader.warn(
                &format!("{path}.quota"),
                format!(
                    "`throttle_rate`, {}, is not slower than this account's own rate",
                    account.throttle_rate
                ),
                "",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{read, render_all};

    #[test]
    fn a_quota_that_is_not_understood_has_one_problem() {
        let with = |quota: &str| {
            let text = format!(
                "[[account]]\nname = \"a\"\naddresses = [\"100.64.1.0/24\"]\n{quota}on_quota_exceeded = \"cut\"\n"
            );
            read(&text, "t").problems
        };
        for wrong in ["quota = \"0 kB/30 d\"\n", "quota = \"20 GB/year\"\n", "quota = 3\n"] {
            let problems = with(wrong);
            assert!(problems.len() == 1 && problems[0].is_error(), "{}", render_all(&problems));
        }
        assert_eq!(with("quota = \"300 kB/30 d\"\n"), []);
        assert!(render_all(&with("")).contains("no effect without a `quota`"));
    }

    #[test]
    fn a_database_that_anybody_may_pose_as_is_warned_of() {
        let problems = |query: &str| {
            let address = format!("postgres://u@db.example/ekiden{query}");
            render_all(&read(&format!("[accounts]\ndatabase = \"{address}\"\n"), "t").problems)
        };
        assert_eq!(problems(""), "");
        assert_eq!(problems("?sslmode=verify-full"), "");
        assert!(problems("?sslmode=require").contains("pose as the database"));
    }
}
