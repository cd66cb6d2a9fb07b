//! Accounts and what they use, a page at a time: what is kept of them beside what the relay counts.

use super::connections::bad_query;
use crate::Shared;
use crate::documents::AccountDocument;
use crate::problem::Problem;
use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use ekiden_accounts::{Account, Directory};
use ekiden_proxy::observe::status::AccountStatus;
use ekiden_proxy::policy::quota::AccountRank;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
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
    rank: Option<&'a AccountRank>,
}

pub(super) async fn page(
    State(shared): State<Arc<Shared>>,
    query: Result<Query<AccountQuery>, QueryRejection>,
) -> Result<Json<AccountPage>, Problem> {
    let Query(query) = query.map_err(|error| bad_query(&error))?;
    let directory = shared.status.directory()?;
    let page = shared.status.ask(move |handle| {
        let quotas = handle.accounts();
        page_of(&quotas.ranks(), directory.as_deref(), &query, |name| quotas.account(name))
    });
    Ok(Json(page.await?))
}

/// The page of a query, of accounts that are counted and those that are kept. `now` says what is counted of one.
fn page_of(
    ranks: &[AccountRank],
    directory: Option<&Directory>,
    query: &AccountQuery,
    now: impl Fn(&str) -> Option<AccountStatus>,
) -> AccountPage {
    let kept = directory.iter().flat_map(|directory| directory.accounts());
    let rows = joined(ranks, kept.collect());
    let total = rows.len();
    let wanted = query.find.to_lowercase();
    let rows = rows.into_iter().filter(|row| row.mentions(&wanted));
    let mut rows: Vec<(Reverse<[u64; 2]>, Row<'_>)> =
        rows.map(|row| (Reverse(row.weight(query.order)), row)).collect();
    let found = rows.len();
    let end = query.offset.saturating_add(query.count.min(MOST)).min(found);
    let key = |row: &(Reverse<[u64; 2]>, Row<'_>)| row.0;
    if query.order != AccountOrder::Name {
        // stable: equals stay by name
        rows.sort_by_key(key);
    }
    let page = rows[..end].iter().skip(query.offset);
    let accounts = page.map(|(_, row)| row.line(&now)).collect();
    AccountPage { changeable: directory.is_some(), total, found, accounts }
}

/// What is counted beside what is kept, by name.
fn joined<'a>(ranks: &'a [AccountRank], mut kept: Vec<&'a Arc<Account>>) -> Vec<Row<'a>> {
    kept.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    let mut kept = kept.into_iter().peekable();
    let mut rows = Vec::with_capacity(ranks.len());
    for rank in ranks {
        while let Some(new) = kept.next_if(|one| *one.name < *rank.account) {
            rows.push(Row { name: &new.name, kept: Some(new), rank: None });
        }
        let kept = kept.next_if(|one| *one.name == *rank.account);
        rows.push(Row { name: &rank.account, kept, rank: Some(rank) });
    }
    rows.extend(kept.map(|new| Row { name: &new.name, kept: Some(new), rank: None }));
    rows
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

    /// What it is sorted by; the largest comes first.
    fn weight(&self, order: AccountOrder) -> [u64; 2] {
        let Some(rank) = self.rank else { return [0; 2] };
        match order {
            AccountOrder::Rate => [rank.rate, rank.moved],
            AccountOrder::Used => [rank.spent, rank.moved],
            AccountOrder::Name => [0; 2],
        }
    }

    fn line(&self, now: impl Fn(&str) -> Option<AccountStatus>) -> AccountLine {
        let barred = self.kept.and_then(|kept| kept.attributes.may_come_in(Timestamp::now()).err());
        AccountLine {
            name: self.name.to_owned(),
            barred: barred.map(|why| why.to_string()),
            kept: self.kept.map(|kept| AccountDocument::of(kept)),
            now: now(self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ekiden_accounts::{AccountId, Attributes};

    #[test]
    fn joins_sorts_and_pages() {
        let kept = |id: i64, name: &str| {
            let attributes = Attributes::default();
            Account { id: AccountId(id), name: name.to_owned(), devices: Vec::new(), attributes }
        };
        let directory = Directory::new(1, vec![kept(1, "zoe"), kept(2, "anna"), kept(3, "mika")]);
        let rank = |name: &str, rate, moved, spent| AccountRank {
            account: name.into(),
            rate,
            moved,
            spent,
        };
        let ranks = [rank("(unclaimed)", 0, 9, 0), rank("anna", 5, 5, 10), rank("zoe", 5, 7, 900)];
        let ask = |find: &str, order, offset, count| {
            let query = AccountQuery { find: find.to_owned(), order, offset, count };
            let page = page_of(&ranks, Some(&directory), &query, |name| {
                (name != "mika").then(AccountStatus::default)
            });
            let line =
                |line: &AccountLine| (line.name.clone(), line.kept.is_some(), line.now.is_some());
            ((page.total, page.found), page.accounts.iter().map(line).collect::<Vec<_>>())
        };
        let row = |name: &str, kept, now| (name.to_owned(), kept, now);
        let all = [
            row("(unclaimed)", false, true),
            row("anna", true, true),
            row("mika", true, false),
            row("zoe", true, true),
        ];
        assert_eq!(ask("", AccountOrder::Name, 0, 9), ((4, 4), all.to_vec()));
        let first = |order| ask("", order, 0, 2).1.into_iter().map(|row| row.0).collect::<Vec<_>>();
        assert_eq!(first(AccountOrder::Rate), ["zoe", "anna"]);
        assert_eq!(first(AccountOrder::Used), ["zoe", "anna"]);
        assert_eq!(ask("I", AccountOrder::Name, 1, 9), ((4, 2), vec![row("mika", true, false)]));
        assert_eq!(ask("", AccountOrder::Rate, 9, 9), ((4, 4), Vec::new()));
    }
}
