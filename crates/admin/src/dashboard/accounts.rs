//! Accounts and what they use, a page at a time: what is kept of them beside what the relay counts.

use super::connections::bad_query;
use crate::Shared;
use crate::documents::AccountDocument;
use crate::problem::Problem;
use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use ekiden_accounts::Account;
use ekiden_proxy::observe::status::AccountStatus;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The most accounts on a page.
const MOST: usize = 200;

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct AccountQuery {
    /// Letters of the name or of a device, in any case; empty: all.
    find: String,
    order: AccountOrder,
    offset: usize,
    count: usize,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum AccountOrder {
    /// The quickest in the last second.
    #[default]
    Rate,
    /// Those that used most of their quota, then those that used most.
    Used,
    /// By name.
    Name,
}

#[derive(Debug, Serialize)]
pub(super) struct AccountPage {
    /// Whether accounts can be changed here: those of the database can.
    changeable: bool,
    total: usize,
    found: usize,
    accounts: Vec<AccountLine>,
}

#[derive(Debug, Serialize)]
struct AccountLine {
    name: String,
    /// Why it may not connect now; null where it may.
    barred: Option<String>,
    /// What is kept of it; null where the configuration has it.
    kept: Option<AccountDocument>,
    /// What the relay counts of it; null where it is new.
    now: Option<AccountStatus>,
}

/// An account before it is decided whether it is on the page.
struct Row<'a> {
    name: &'a str,
    kept: Option<&'a Arc<Account>>,
    now: Option<&'a AccountStatus>,
}

pub(super) async fn page(
    State(shared): State<Arc<Shared>>,
    query: Result<Query<AccountQuery>, QueryRejection>,
) -> Result<Json<AccountPage>, Problem> {
    let Query(query) = query.map_err(|error| bad_query(&error))?;
    let status = shared.status.overview().await?;
    let counted = status.sharing.map(|sharing| sharing.accounts).unwrap_or_default();
    let directory = shared.status.directory()?;
    let mut rows: BTreeMap<&str, Row<'_>> = counted
        .iter()
        .map(|now| (now.name.as_str(), Row { name: &now.name, kept: None, now: Some(now) }))
        .collect();
    for kept in directory.iter().flat_map(|directory| directory.accounts()) {
        let new = || Row { name: &kept.name, kept: None, now: None };
        rows.entry(&kept.name).or_insert_with(new).kept = Some(kept);
    }
    let total = rows.len();
    let wanted = query.find.to_lowercase();
    let mut rows: Vec<_> = rows.into_values().filter(|row| row.mentions(&wanted)).collect();
    match query.order {
        AccountOrder::Rate => rows.sort_by_key(|row| (Reverse(row.rate()), Reverse(row.moved()))),
        AccountOrder::Used => rows.sort_by_key(|row| (Reverse(row.spent()), Reverse(row.moved()))),
        AccountOrder::Name => {}
    }
    let found = rows.len();
    let page = rows.iter().skip(query.offset).take(query.count.min(MOST));
    let accounts = page.map(Row::line).collect();
    Ok(Json(AccountPage { changeable: directory.is_some(), total, found, accounts }))
}

impl Row<'_> {
    fn mentions(&self, wanted: &str) -> bool {
        let has = |text: &str| text.to_lowercase().contains(wanted);
        let devices = self.kept.iter().flat_map(|kept| &kept.devices);
        let device = |device: &ekiden_accounts::Device| {
            has(&device.name) || has(&device.credential.identity().1)
        };
        wanted.is_empty() || has(self.name) || devices.into_iter().any(device)
    }

    fn rate(&self) -> u64 {
        self.now.map_or(0, |now| now.rate_down.saturating_add(now.rate_up))
    }

    fn moved(&self) -> u64 {
        self.now.map_or(0, |now| now.bytes_down.saturating_add(now.bytes_up))
    }

    /// Thousandths of the quota.
    fn spent(&self) -> u64 {
        let quota = self.now.and_then(|now| now.quota.zip(now.quota_left));
        quota.map_or(0, |(quota, left)| {
            let used = u128::from(quota.saturating_sub(left)) * 1_000;
            u64::try_from(used / u128::from(quota.max(1))).unwrap_or(u64::MAX)
        })
    }

    fn line(&self) -> AccountLine {
        let barred = self.kept.and_then(|kept| kept.attributes.may_come_in(Timestamp::now()).err());
        AccountLine {
            name: self.name.to_owned(),
            barred: barred.map(|why| why.to_string()),
            kept: self.kept.map(|kept| AccountDocument::of(kept)),
            now: self.now.cloned(),
        }
    }
}
