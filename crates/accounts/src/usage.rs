//! Usage since a day, for `ekiden account usage` and for the API.

use crate::account::{Account, AccountId};
use crate::store::{Store, StoreError, Usage};
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use std::collections::BTreeMap;

/// How many seconds before UTC a day may begin in any time zone: more than a day, to be safe.
const EARLIEST: i64 = 26 * 3600;

/// Usage by account and time, of one account or of all, in periods that began on `since` or later,
/// by each account's own time zone: in UTC, a month of Tokyo begins on the last day of the month
/// before. Fails when there is no such account, or the database does not answer.
pub async fn usage_since(
    store: &Store,
    name: Option<&str>,
    since: Option<Date>,
) -> Result<Vec<Usage>, StoreError> {
    let only = match name {
        Some(name) => Some(store.account(name).await?.id),
        None => None,
    };
    let mut used = store.usage(since.map_or(0, earliest)).await?;
    used.retain(|usage| only.is_none_or(|only| usage.account == only));
    if let Some(since) = since {
        let accounts = store.accounts().await?.accounts;
        began_on_or_after(&mut used, since, &accounts);
    }
    Ok(used)
}

/// The earliest possible start of a period of this day or later, in seconds since 1970.
fn earliest(day: Date) -> i64 {
    let utc = day.to_zoned(TimeZone::UTC).map_or(0, |day| day.timestamp().as_second());
    utc.saturating_sub(EARLIEST)
}

/// Keeps periods that began on `since` or later; removed accounts count by UTC.
fn began_on_or_after(used: &mut Vec<Usage>, since: Date, accounts: &[Account]) {
    let zone = |account: &Account| (account.id, account.attributes.zone_here());
    let zones: BTreeMap<AccountId, TimeZone> = accounts.iter().map(zone).collect();
    used.retain(|usage| {
        let zone = zones.get(&usage.account).cloned().unwrap_or(TimeZone::UTC);
        let began = Timestamp::from_second(usage.begun);
        began.is_ok_and(|began| began.to_zoned(zone).date() >= since)
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::Attributes;
    use jiff::civil::date;

    fn account(id: i64, zone: &str) -> Account {
        let attributes = Attributes { zone: zone.to_owned(), ..Attributes::default() };
        Account { id: AccountId(id), name: format!("a{id}"), devices: Vec::new(), attributes }
    }

    fn usage(account: i64, began: &str) -> Usage {
        let begun = began.parse::<Timestamp>().unwrap().as_second();
        Usage { account: AccountId(account), name: None, begun, down: 1, up: 1 }
    }

    #[test]
    fn a_day_is_the_accounts_own() {
        let accounts = [account(1, "Asia/Tokyo"), account(2, "America/New_York")];
        let all = [
            // November begins, in Tokyo, in New York and in UTC
            usage(1, "2026-10-31T15:00:00Z"),
            usage(2, "2026-11-01T04:00:00Z"),
            usage(3, "2026-11-01T00:00:00Z"),
            // and October did
            usage(1, "2026-09-30T15:00:00Z"),
            usage(2, "2026-10-01T04:00:00Z"),
            usage(3, "2026-10-01T00:00:00Z"),
        ];
        let since = date(2026, 11, 1);
        let mut left = all.to_vec();
        began_on_or_after(&mut left, since, &accounts);
        assert_eq!(left, all[..3]);
        assert!(all[..3].iter().all(|usage| usage.begun >= earliest(since)));
    }
}
