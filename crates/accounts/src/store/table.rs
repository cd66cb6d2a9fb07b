//! All accounts of a database at once: those that can be read, and those that cannot.

use super::in_time::in_time;
use super::{Store, StoreError, UnreadableAccount, rows, sql};
use crate::account::{Account, AccountId};
use sqlx::Row as _;

/// Accounts that are read at once. Each part has its own deadline, so that a slow database still gets through a long table.
const AT_ONCE: i64 = 1_000;

/// The last number that was read, and what was read.
type Part = (Option<i64>, Vec<rows::Read>);

/// All accounts of a database.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccountTable {
    /// Their version, or an older one.
    pub version: i64,
    /// Those that can be read, by number.
    pub accounts: Vec<Account>,
    /// Those that cannot be read, by number.
    pub unreadable: Vec<UnreadableAccount>,
}

impl AccountTable {
    fn add(&mut self, read: rows::Read) {
        match read {
            Ok(account) => self.accounts.push(account),
            Err(unreadable) => self.unreadable.push(unreadable),
        }
    }
}

impl Store {
    /// Every account, and those that cannot be read. Errors: the database failed, or a part took longer than it may.
    pub async fn accounts(&self) -> Result<AccountTable, StoreError> {
        // asked first: what is changed meanwhile is then read twice, and not missed
        let version = in_time(self.version()).await?;
        let mut table = AccountTable { version, ..AccountTable::default() };
        let mut after = i64::MIN;
        while let Some(last) = self.part(after, &mut table).await? {
            after = last;
        }
        Ok(table)
    }

    /// Adds the next accounts after a number; returns the last one's number, or `None` behind the last account.
    async fn part(&self, after: i64, table: &mut AccountTable) -> Result<Option<i64>, StoreError> {
        let (last, read) = match in_time(async { Ok(self.rows(after).await) }).await? {
            Ok(part) => part,
            Err(error) if is_row(&error) => self.read_each(after).await?,
            Err(error) => return Err(error.into()),
        };
        // SQLite has what is no number behind all numbers: it comes with each part, and counts with the last
        let counts = |read: &rows::Read| last.is_none() || rows::id_of(read).is_some();
        read.into_iter().filter(counts).for_each(|read| table.add(read));
        Ok(last)
    }

    async fn rows(&self, after: i64) -> Result<Part, sqlx::Error> {
        let accounts = sqlx::query(sql::ACCOUNTS).bind(after).bind(AT_ONCE);
        let accounts = accounts.fetch_all(&self.pool).await?;
        let last = accounts.iter().rev().find_map(|row| row.try_get::<i64, _>("id").ok());
        let devices = sqlx::query(sql::DEVICES).bind(after).bind(last.unwrap_or(after));
        let devices = devices.fetch_all(&self.pool).await?;
        Ok((last, rows::accounts(&accounts, &devices)))
    }

    /// One account after another: text in SQLite that is not UTF-8 fails the query that meets it.
    async fn read_each(&self, after: i64) -> Result<Part, StoreError> {
        let numbers = sqlx::query(sql::NUMBERS).bind(after).bind(AT_ONCE).fetch_all(&self.pool);
        let (mut last, mut read) = (None, Vec::new());
        for number in in_time(async { Ok(numbers.await?) }).await? {
            let id = number.try_get::<i64, _>("id");
            let rows = match &id {
                Ok(id) => in_time(async { Ok(self.read_one(*id).await) }).await?,
                Err(error) => Err(sqlx::Error::Decode(error.to_string().into())),
            };
            last = id.as_ref().ok().copied().or(last);
            match rows {
                Ok(rows) => read.extend(rows),
                Err(error) if is_row(&error) => read.push(Err(UnreadableAccount {
                    id: id.ok().map(AccountId),
                    name: String::new(),
                    column: "account or device",
                    why: error.to_string(),
                    devices: Vec::new(),
                })),
                Err(error) => return Err(error.into()),
            }
        }
        Ok((last, read))
    }

    /// None where it was removed meanwhile.
    async fn read_one(&self, id: i64) -> Result<Vec<rows::Read>, sqlx::Error> {
        let account = sqlx::query(sql::ACCOUNT_OF).bind(id).fetch_all(&self.pool).await?;
        let devices = sqlx::query(sql::ITS_DEVICES).bind(id).fetch_all(&self.pool).await?;
        Ok(rows::accounts(&account, &devices))
    }
}

/// Whether the row is at fault, and not the database.
const fn is_row(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Decode(_) | sqlx::Error::ColumnDecode { .. })
}
