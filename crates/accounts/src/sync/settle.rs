//! Settling of usage in small pieces, each with a deadline of its own; grants of quotas are asked for in such pieces, too.
//!
//! A database that is slow, and not away, takes some in each round. What it took stays settled, and
//! the next round goes on behind it, so that each account has its turn.

use super::AccountSync;
use crate::account::AccountId;
use crate::journal::Total;
use crate::locked;
use crate::store::StoreError;
use crate::store::in_time::in_time;
use std::time::Duration;
use tokio::time::Instant;

/// Totals that one statement settles.
const LARGEST: usize = 200;
/// A batch that took less lets the next one be larger: a quarter of the deadline.
const QUICK: Duration = Duration::from_millis(1250);
/// Time for a round of settling, and for one of grants: meanwhile no change of an account is seen.
const ROUND: Duration = Duration::from_secs(10);

pub(super) type Key = (AccountId, i64);

/// What belongs to one period of one account.
pub(super) trait Keyed: Clone {
    fn key(&self) -> Key;
}

impl Keyed for Total {
    fn key(&self) -> Key {
        (self.account, self.begun)
    }
}

/// How many items go into the database at once, and behind which the next batch begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct Batches {
    size: usize,
    after: Option<Key>,
}

impl Default for Batches {
    fn default() -> Self {
        Self { size: LARGEST, after: None }
    }
}

impl Batches {
    fn on_settled(&mut self, last: Option<Key>, took: Duration) {
        self.after = last;
        if took < QUICK {
            self.size = (2 * self.size).min(LARGEST);
        }
    }

    fn on_late(&mut self) {
        self.size = (self.size / 2).max(1);
    }

    /// The last item that had its turn.
    pub(super) const fn last(&self) -> Option<Key> {
        self.after
    }

    /// Settles `items` in their order by `settle` until all are settled or the round is over. One item that alone takes too long
    /// is left for the next round.
    /// Returns whether all are settled. Errors: that of the database, or that it settled nothing in time.
    pub(super) async fn settle<T: Keyed, F>(
        &mut self,
        items: &[T],
        mut settle: impl FnMut(Vec<T>) -> F,
    ) -> Result<bool, StoreError>
    where
        F: Future<Output = Result<(), StoreError>>,
    {
        let (begun, mut rest) = (Instant::now(), items);
        let (mut is_some_settled, mut left, mut late) = (false, false, None);
        while !rest.is_empty() {
            let (batch, later) = rest.split_at(self.size.min(rest.len()));
            let (asked, last) = (Instant::now(), batch.last().map(Keyed::key));
            match settle(batch.to_vec()).await {
                Ok(()) => {
                    self.on_settled(last, asked.elapsed());
                    (rest, is_some_settled) = (later, true);
                }
                Err(error @ StoreError::Late(_)) => {
                    late = Some(error);
                    if batch.len() == 1 {
                        (self.after, rest, left) = (last, later, true);
                    }
                    self.on_late();
                }
                Err(error) => return Err(error),
            }
            if begun.elapsed() >= ROUND {
                break;
            }
        }
        match late {
            Some(error) if !is_some_settled => Err(error),
            _ => Ok(rest.is_empty() && !left),
        }
    }
}

impl AccountSync {
    /// Says that this relay is there, and settles usage for a round. Returns whether all is settled.
    pub(super) async fn settle(&self) -> Result<bool, StoreError> {
        let store = self.store().await?;
        self.hear_clock(&store).await?;
        // first: a relay that is silent for long loses its grants, however much there is to settle
        self.say_seen(&store).await?;
        *locked(&self.relays) = in_time(store.relays()).await?;
        if locked(&self.presence).is_parting() {
            return Ok(false);
        }
        self.recall_usage().await?;
        let mut batches = *locked(&self.batches);
        let (identity, totals) = {
            let journal = locked(&self.journal);
            (journal.identity().to_owned(), journal.unsettled_after(batches.after))
        };
        // so a kill leaves no journal that is behind the database
        self.write_in_time().await;
        let (store, identity) = (&store, identity.as_str());
        let settled = batches.settle(&totals, |batch| async move {
            in_time(store.settle(identity, &batch)).await?;
            locked(&self.journal).on_settled(identity, &batch);
            Ok(())
        });
        let settled = settled.await;
        *locked(&self.batches) = batches;
        if matches!(settled, Ok(true)) {
            locked(&self.presence).on_settled();
            self.tidy(store).await;
        }
        settled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::in_time::PATIENCE;
    use std::sync::Mutex;

    fn totals(count: i64) -> Vec<Total> {
        (0..count).map(|n| Total { account: AccountId(n), begun: 0, down: 1, up: 0 }).collect()
    }

    fn late() -> Result<(), StoreError> {
        Err(StoreError::Late(PATIENCE.as_secs()))
    }

    /// Rounds of settling, by a database that takes so long for each total. Returns how much each
    /// round settled, or nothing where it failed.
    async fn rounds(totals: &[Total], each: Duration, count: usize) -> Vec<Option<usize>> {
        let (mut batches, mut rest) = (Batches::default(), totals.to_vec());
        let mut all = Vec::new();
        for _ in 0..count {
            let settled = Mutex::new(0);
            let outcome = batches
                .settle(&rest, |batch| {
                    let settled = &settled;
                    async move {
                        let work = tokio::time::sleep(each * batch.len() as u32);
                        if tokio::time::timeout(PATIENCE, work).await.is_err() {
                            return late();
                        }
                        *locked(settled) += batch.len();
                        Ok(())
                    }
                })
                .await;
            let settled = *locked(&settled);
            rest.drain(..settled);
            assert_eq!(outcome.as_ref().is_ok_and(|all| *all), rest.is_empty());
            all.push(outcome.ok().map(|_| settled));
        }
        all
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_database_settles_some_in_each_round() {
        // 1,000 totals at 20 ms each are 20 s: four times the deadline of a batch
        let settled = rounds(&totals(1000), Duration::from_millis(20), 2).await;
        assert_eq!(settled, [Some(600), Some(400)]);
        // half a second each: batches are halved until they fit, and stay so
        let settled = rounds(&totals(60), Duration::from_millis(500), 4).await;
        assert_eq!(settled, [None, None, Some(12), Some(24)]);
    }

    #[tokio::test(start_paused = true)]
    async fn one_item_that_is_held_up_holds_up_no_other() {
        let (mut batches, totals) = (Batches { size: 1, after: None }, totals(4));
        let settled = Mutex::new(Vec::new());
        // another relay holds the row of the first
        let outcome = batches.settle(&totals, |batch| {
            let is_held = batch.iter().any(|total| total.account == AccountId(0));
            let settled = &settled;
            async move {
                if is_held {
                    tokio::time::sleep(PATIENCE).await;
                    return late();
                }
                locked(settled).extend(batch.iter().map(|total| total.account.0));
                Ok(())
            }
        });
        assert!(!outcome.await.unwrap());
        assert_eq!(
            (locked(&settled).as_slice(), batches.after),
            (&[1, 2, 3][..], Some((AccountId(3), 0)))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_database_that_fails_ends_the_round_at_once() {
        let (mut batches, mut asked) = (Batches::default(), 0);
        let totals = totals(1000);
        let failed = batches.settle(&totals, |_| {
            asked += 1;
            async { Err(StoreError::Database(sqlx::Error::PoolClosed)) }
        });
        assert!(failed.await.is_err());
        assert_eq!(asked, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_round_goes_on_behind_the_last_settled_total() {
        let (mut batches, mut asked) = (Batches::default(), 0);
        let totals = totals(300);
        let outcome = batches.settle(&totals, |_| {
            asked += 1;
            let is_first = asked == 1;
            async move {
                let failed = || Err(StoreError::Database(sqlx::Error::PoolClosed));
                if is_first { Ok(()) } else { failed() }
            }
        });
        assert!(outcome.await.is_err());
        assert_eq!(batches.after, Some((AccountId(199), 0)));
    }
}
