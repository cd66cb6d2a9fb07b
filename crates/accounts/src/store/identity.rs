//! By what a database is known, whatever its address: a number that it holds. A copy has the same, and so does one that
//! was brought back from a backup.

use super::{Store, StoreError, sql};
use ring::rand::{SecureRandom as _, SystemRandom};
use sqlx::Row as _;

impl Store {
    /// Its number; `None` where the tables lack it, as while they are brought back.
    pub(crate) async fn identity(&self) -> Result<Option<i64>, StoreError> {
        let found = sqlx::query(sql::IDENTITY).fetch_all(&self.pool).await?;
        Ok(found.first().map(|row| row.try_get::<i64, _>(0)).transpose()?)
    }

    /// Its number outlives a power cut from here on. PostgreSQL's does so by itself.
    pub(crate) async fn keep_identity(&self) -> Result<(), StoreError> {
        if !self.shared {
            sqlx::query(sql::CHECKPOINT).execute(&self.pool).await?;
        }
        Ok(())
    }

    /// Draws the number where there is none yet.
    pub(super) async fn identify(&self) -> Result<(), StoreError> {
        if self.identity().await?.is_some() {
            return Ok(());
        }
        let mut drawn = [0_u8; 8];
        let filled = SystemRandom::new().fill(&mut drawn);
        filled.map_err(|_| StoreError::Refused("the system gives no random bytes".to_owned()))?;
        // another relay may be quicker
        let identify = sqlx::query(sql::IDENTIFY).bind(i64::from_le_bytes(drawn));
        identify.execute(&self.pool).await?;
        Ok(())
    }
}
