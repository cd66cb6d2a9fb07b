//! All accounts of a database at once: those that can be read, and those that cannot.

use super::{Store, StoreError, UnreadableAccount, rows, sql};
use crate::account::{Account, AccountId};
use sqlx::Row as _;
use sqlx::any::AnyRow;

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
    /// Every account, and those that cannot be read. Errors: the database failed.
    pub async fn accounts(&self) -> Result<AccountTable, StoreError> {
        // asked first: what is changed meanwhile is then read twice, and not missed
        let mut table = AccountTable { version: self.version().await?, ..AccountTable::default() };
        match self.rows().await {
            Ok((accounts, devices)) => {
                rows::accounts(&accounts, &devices).into_iter().for_each(|read| table.add(read));
            }
            Err(error) if is_row(&error) => self.read_each(&mut table).await?,
            Err(error) => return Err(error.into()),
        }
        Ok(table)
    }

    async fn rows(&self) -> Result<(Vec<AnyRow>, Vec<AnyRow>), sqlx::Error> {
        let accounts = sqlx::query(sql::ACCOUNTS).fetch_all(&self.pool).await?;
        Ok((accounts, sqlx::query(sql::DEVICES).fetch_all(&self.pool).await?))
    }

    /// One account after another: text in SQLite that is not UTF-8 fails the query that meets it.
    async fn read_each(&self, table: &mut AccountTable) -> Result<(), StoreError> {
        for number in sqlx::query(sql::NUMBERS).fetch_all(&self.pool).await? {
            let number: Result<i64, _> = number.try_get("id");
            let read = match number {
                Ok(id) => self.read_one(id).await.map_err(|error| (Some(AccountId(id)), error)),
                Err(error) => Err((None, error)),
            };
            match read {
                Ok(read) => read.into_iter().for_each(|read| table.add(read)),
                Err((id, error)) if is_row(&error) => table.add(Err(UnreadableAccount {
                    id,
                    name: String::new(),
                    column: "account or device",
                    why: error.to_string(),
                    devices: Vec::new(),
                })),
                Err((_, error)) => return Err(error.into()),
            }
        }
        Ok(())
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
