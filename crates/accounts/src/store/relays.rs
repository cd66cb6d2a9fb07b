//! The relays of a database: which there are, and what each one's row had before it was written.

use super::{Store, StoreError, rows, sql};
use crate::journal::PAST;
use sqlx::Row as _;

/// Seconds of silence after which a relay is forgotten: 400 days.
const FORGOTTEN: i64 = 400 * 24 * 3600;
/// Rows of each kind that are removed at once.
const AT_ONCE: i64 = 1_000;

/// A relay that uses this database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetRelay {
    /// Its journal's identity, or whatever else is its own.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Which ekiden it is.
    pub version: String,
    /// When it was heard of last, seconds since 1970.
    pub seen: i64,
}

/// What a relay's row had before it was written; of a new row, nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeenBefore {
    /// The run that wrote it.
    pub run: String,
    /// When that was, seconds since 1970.
    pub seen: i64,
}

impl Store {
    /// Records that a relay runs at `now`, seconds since 1970. `run` distinguishes its starts. Returns what its row had.
    pub async fn seen(&self, relay: &FleetRelay, run: &str) -> Result<SeenBefore, StoreError> {
        let seen = sqlx::query(sql::SEEN).bind(&relay.id).bind(&relay.name).bind(&relay.version);
        let had = seen.bind(relay.seen).bind(run).fetch_all(&self.pool).await?;
        let Some(row) = had.first() else { return Ok(SeenBefore::default()) };
        Ok(SeenBefore { run: row.try_get("run_before")?, seen: row.try_get("seen_before")? })
    }

    /// The relays that ever used this database.
    pub async fn relays(&self) -> Result<Vec<FleetRelay>, StoreError> {
        let found = sqlx::query(sql::RELAYS).fetch_all(&self.pool).await?;
        found.iter().map(rows::relay).collect()
    }

    /// Removes what nobody asks for at `now` (seconds since 1970): grants in periods that began 62 days ago or earlier, and
    /// relays that were not heard of for 400 days. A thousand of each at most, the oldest first.
    pub async fn tidy(&self, now: i64) -> Result<(), StoreError> {
        for (statement, age) in [(sql::TIDY_GRANTS, PAST), (sql::TIDY_RELAYS, FORGOTTEN)] {
            let tidy = sqlx::query(statement).bind(now.saturating_sub(age)).bind(AT_ONCE);
            tidy.execute(&self.pool).await?;
        }
        Ok(())
    }
}
