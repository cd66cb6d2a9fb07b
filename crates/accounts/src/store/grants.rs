//! Grants of quotas that several relays share: many accounts in one transaction.

use super::{Store, StoreError, rows, sql};
use crate::account::AccountId;
use crate::lease::share_out;
use sqlx::{AssertSqlSafe, Row as _};
use std::collections::{BTreeMap, BTreeSet};

/// After this silence in seconds a relay carries nothing, and its unused grants may be granted to
/// others.
const GONE: i64 = 600;

/// One relay asks for more of a quota. All amounts are bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrantRequest {
    /// Whose quota.
    pub account: AccountId,
    /// When the period began, seconds since 1970.
    pub begun: i64,
    /// The quota.
    pub quota: u64,
    /// What is granted at once.
    pub slice: u64,
    /// What the relay used since the period began.
    pub used: u64,
}

/// What a relay may carry for an account in a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// Whose quota.
    pub account: AccountId,
    /// When the period began, seconds since 1970.
    pub begun: i64,
    /// Bytes in total.
    pub granted: u64,
}

impl Store {
    /// A relay's grants in periods that began at `since` (seconds since 1970) or later, and in those that never end.
    pub async fn grants(&self, relay: &str, since: i64) -> Result<Vec<Grant>, StoreError> {
        let found = sqlx::query(sql::GRANTS).bind(relay).bind(since).fetch_all(&self.pool).await?;
        let grant = |row| {
            let (account, begun) = key(row)?;
            Ok(Grant { account, begun, granted: rows::bytes(row, "granted")? })
        };
        found.iter().map(grant).collect()
    }

    /// Asks for more of some quotas for a relay, at `now` (seconds since 1970), all or none. Returns its grants; accounts that
    /// were removed have none. Each account and period may be among the requests once; some hundreds are the most.
    pub async fn grant(
        &self,
        relay: &str,
        asked: &[GrantRequest],
        now: i64,
    ) -> Result<Vec<Grant>, StoreError> {
        let mut transaction = self.pool.begin().await?;
        let there = self.lock(&mut transaction, asked).await?;
        let asked: Vec<_> =
            asked.iter().filter(|request| there.contains(&request.account)).collect();
        if asked.is_empty() {
            return Ok(Vec::new());
        }
        let statement = AssertSqlSafe(sql::held(asked.len()));
        let mut held = sqlx::query(statement).persistent(false);
        held = held.bind(relay).bind(now.saturating_sub(GONE));
        for request in &asked {
            held = held.bind(request.account.0).bind(request.begun);
        }
        let mut shares = BTreeMap::new();
        for row in held.fetch_all(&mut *transaction).await? {
            shares.insert(key(&row)?, [rows::bytes(&row, "others")?, rows::bytes(&row, "own")?]);
        }
        let grants = asked.iter().map(|request| {
            let GrantRequest { account, begun, quota, slice, used } = **request;
            let [others, own] = shares.get(&(account, begun)).copied().unwrap_or_default();
            let granted = share_out(quota, others, own, used, slice);
            (Grant { account, begun, granted }, used)
        });
        let grants: Vec<_> = grants.collect();
        let statement = AssertSqlSafe(sql::grant(grants.len()));
        let mut grant = sqlx::query(statement).persistent(false).bind(relay);
        for (Grant { account, begun, granted }, used) in &grants {
            grant = grant.bind(account.0).bind(*begun);
            grant = grant.bind(rows::number(*granted)).bind(rows::number(*used));
        }
        grant.execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(grants.into_iter().map(|(grant, _)| grant).collect())
    }

    /// Locks these accounts until the transaction ends: one relay asks at a time. Returns those that are there.
    async fn lock(
        &self,
        transaction: &mut sqlx::Transaction<'_, sqlx::Any>,
        asked: &[GrantRequest],
    ) -> Result<BTreeSet<AccountId>, StoreError> {
        let accounts: BTreeSet<_> = asked.iter().map(|request| request.account).collect();
        if accounts.is_empty() {
            return Ok(accounts);
        }
        let statement = AssertSqlSafe(sql::lock_accounts(accounts.len(), self.shared));
        let mut lock = sqlx::query(statement).persistent(false);
        for account in accounts {
            lock = lock.bind(account.0);
        }
        let there = lock.fetch_all(&mut **transaction).await?;
        there.iter().map(|row| Ok(AccountId(row.try_get("id")?))).collect()
    }
}

fn key(row: &sqlx::any::AnyRow) -> Result<(AccountId, i64), StoreError> {
    Ok((AccountId(row.try_get("account")?), row.try_get("begun")?))
}
