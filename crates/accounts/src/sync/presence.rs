//! This relay's row in the database. It says that the relay is there, and shows what else happened to the database.
//!
//! Another relay may run by the same identity, as from a copied state folder: a quota would be granted to both. Or the database
//! was brought back from a backup, and lacks what this relay had settled.

use super::AccountSync;
use super::disk::{forget_id, on_disk};
use super::leases::write;
use crate::journal::draw;
use crate::locked;
use crate::store::in_time::in_time;
use crate::store::{FleetRelay, SeenBefore, Store, StoreError};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Another run that was heard of so often in a row still runs. What an earlier run of this relay had under way may arrive
/// late, once.
const SURE: u32 = 2;

/// Two relays' clocks may differ by so many seconds: each keeps its own within a minute of the database's.
const CLOCKS: i64 = 120;

/// Rows of the database that nobody asks for are removed so often.
const TIDY: Duration = Duration::from_secs(3600);

/// What a row shows.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Nothing,
    /// This relay has to part from another one.
    Copy,
    /// The database has an older state.
    Older,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Presence {
    /// By what the database knows this relay.
    id: String,
    /// Drawn at the start.
    run: String,
    /// When the database heard of this run last, seconds since 1970.
    seen: Option<i64>,
    /// How often another run was heard of since, in a row.
    others: u32,
    /// The database has all that the journal held at the start.
    is_settled: bool,
    is_parting: bool,
    /// Accounts are to be read again, whatever their version.
    rereads: bool,
    /// When rows were removed that nobody asks for.
    tidied: Option<Instant>,
}

impl Presence {
    /// Errors: the system gives no random bytes.
    pub(super) fn new(id: String) -> io::Result<Self> {
        let (seen, others, run) = (None, 0, draw()?);
        let (is_settled, is_parting, rereads) = (false, false, false);
        Ok(Self { id, run, seen, others, is_settled, is_parting, rereads, tidied: None })
    }

    /// All usage was settled.
    pub(super) const fn on_settled(&mut self) {
        self.is_settled = true;
    }

    /// Whether this relay is about to go on by another identity. Until it does, it neither settles nor asks for grants.
    pub(super) const fn is_parting(&self) -> bool {
        self.is_parting
    }

    /// Whether the database has not heard of this run.
    pub(super) const fn is_unseen(&self) -> bool {
        self.seen.is_none()
    }

    /// Whether accounts are to be read again though their version is the same: an older state may have come to it anew.
    pub(super) const fn rereads(&self) -> bool {
        self.rereads
    }

    /// Accounts were read.
    pub(super) const fn on_read(&mut self) {
        self.rereads = false;
    }

    /// Whether it is time to remove rows that nobody asks for. The next time is an hour later.
    fn is_to_tidy(&mut self, now: Instant) -> bool {
        let lately = self.tidied.is_some_and(|at| now.saturating_duration_since(at) < TIDY);
        if !lately {
            self.tidied = Some(now);
        }
        !lately
    }

    /// The row of `id` had this before this run wrote it at `now`.
    fn on_seen(&mut self, id: &str, had: &SeenBefore, now: i64) -> Found {
        if self.id != id || self.is_parting {
            return Found::Nothing;
        }
        let Some(last) = self.seen.replace(now) else { return Found::Nothing };
        // clocks of two copies may be a minute before and behind the database's
        let is_older = had.seen < last && (had.run == self.run || had.seen < last - CLOCKS);
        let is_other = had.run != self.run && !is_older;
        self.others = if is_other { self.others.saturating_add(1) } else { 0 };
        // what an older database has is not known again before all is settled
        self.is_settled &= !is_older;
        // before all is settled, nobody can tell which bytes are this run's
        self.is_parting = self.others >= SURE && self.is_settled;
        self.rereads |= is_older;
        match (self.is_parting, is_older) {
            (true, _) => Found::Copy,
            (false, true) => Found::Older,
            (false, false) => Found::Nothing,
        }
    }

    fn on_parted(&mut self, id: String) {
        self.id = id;
        (self.seen, self.others, self.is_parting) = (None, 0, false);
    }
}

impl AccountSync {
    /// By what the database knows this relay.
    pub(super) fn id(&self) -> String {
        locked(&self.presence).id.clone()
    }

    /// Says that this relay is there.
    pub(super) async fn say_seen(&self, store: &Store) -> Result<(), StoreError> {
        let (id, run) = {
            let presence = locked(&self.presence);
            (presence.id.clone(), presence.run.clone())
        };
        let (name, version) = (self.name.clone(), env!("CARGO_PKG_VERSION").to_owned());
        let seen = self.now().as_second();
        let relay = FleetRelay { id, name, version, seen };
        let had = in_time(store.seen(&relay, &run)).await?;
        let found = locked(&self.presence).on_seen(&relay.id, &had, seen);
        match found {
            Found::Nothing => {}
            Found::Copy => tracing::error!(
                "another relay runs from a copy of {}; this one goes on as a new relay, and keeps its own usage",
                self.folder.display()
            ),
            Found::Older => {
                tracing::warn!(
                    "the accounts' database has an older state, as after a restore; writing this relay's usage again"
                );
                self.on_older();
            }
        }
        Ok(())
    }

    /// Once an hour, removes what nobody asks for. It may fail, as where two relays do so at once.
    pub(super) async fn tidy(&self, store: &Store) {
        if !locked(&self.presence).is_to_tidy(Instant::now()) {
            return;
        }
        if let Err(error) = in_time(store.tidy(self.now().as_second())).await {
            tracing::debug!(%error, "cannot remove old rows of the accounts' database");
        }
    }

    /// The database may lack whatever it had of this relay.
    fn on_older(&self) {
        let mut journal = locked(&self.journal);
        journal.on_older();
        locked(&self.leases).on_older(|(account, begun)| {
            let (down, up) = journal.used(*account, *begun);
            down.saturating_add(up)
        });
    }

    /// Goes on by another identity, if it has to: with the usage that the database lacks, and without grants. A kill leaves
    /// one identity or the other.
    pub(super) async fn part_from_copy(&self) -> io::Result<()> {
        if !locked(&self.presence).is_parting() {
            return Ok(());
        }
        let turn = Arc::clone(&self.turn).lock_owned().await;
        let (journal, leases) = (Arc::clone(&self.journal), Arc::clone(&self.leases));
        let (presence, folder) = (Arc::clone(&self.presence), self.folder.clone());
        on_disk(move || {
            let _turn = turn;
            let renewal = locked(&journal).renewal()?;
            // the database has them for the old identity, should it stay
            let grants = locked(&leases).path();
            write(&locked(&grants), &[])?;
            forget_id(&folder)?;
            let renewed = renewal.write()?;
            let mut journal = locked(&journal);
            journal.go_on_as(renewed);
            locked(&leases).on_new_identity();
            locked(&presence).on_parted(journal.identity().to_owned());
            Ok(())
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn had(run: &str, seen: i64) -> SeenBefore {
        SeenBefore { run: run.to_owned(), seen }
    }

    fn presence() -> Presence {
        let mut presence = Presence::new("r".to_owned()).unwrap();
        presence.on_settled();
        presence
    }

    #[test]
    fn another_run_that_is_heard_of_twice_in_a_row_still_runs() {
        let mut presence = presence();
        let own = presence.run.clone();
        // the life before, at the first time and once late
        let rows = [("before", 95), ("before", 101), (own.as_str(), 105), ("other", 112)];
        for ((run, seen), now) in rows.into_iter().zip([100, 105, 110, 115]) {
            assert_eq!(presence.on_seen("r", &had(run, seen), now), Found::Nothing);
        }
        assert_eq!(presence.on_seen("r", &had("other", 117), 120), Found::Copy);
        // it is said once
        assert_eq!(presence.on_seen("r", &had("other", 122), 125), Found::Nothing);
        assert!(presence.is_parting());
        presence.on_parted("new".to_owned());
        assert!(!presence.is_parting());
        // the answer for the old row comes late
        assert_eq!(presence.on_seen("r", &had("other", 127), 130), Found::Nothing);
        assert_eq!(presence.seen, None);
    }

    #[test]
    fn an_older_row_is_a_database_that_was_brought_back_and_no_other_relay() {
        let mut presence = presence();
        let own = presence.run.clone();
        let rows =
            [("before", 50), ("before", 50), (own.as_str(), 1_004), ("", 0), (own.as_str(), 1_015)];
        let found = [1_000, 1_005, 1_010, 1_015, 1_020].into_iter().zip(rows);
        let found = found.map(|(now, (run, seen))| presence.on_seen("r", &had(run, seen), now));
        let found: Vec<_> = found.collect();
        let older = [Found::Older, Found::Older, Found::Older];
        assert_eq!(
            (&found[0], &found[1..4], &found[4]),
            (&Found::Nothing, &older[..], &Found::Nothing)
        );
        assert!(presence.rereads());
        presence.on_read();
        assert!(!presence.rereads());
    }

    #[test]
    fn old_rows_are_removed_once_an_hour() {
        let (mut presence, start) = (presence(), Instant::now());
        let mut tidies =
            |minutes: u64| presence.is_to_tidy(start + Duration::from_secs(60 * minutes));
        assert_eq!([0, 1, 59, 60, 61].map(&mut tidies), [true, false, false, true, false]);
    }

    #[test]
    fn a_relay_parts_once_all_of_its_journal_is_settled() {
        let mut presence = Presence::new("r".to_owned()).unwrap();
        for now in [100, 105, 110, 115] {
            assert_eq!(presence.on_seen("r", &had("other", now - 2), now), Found::Nothing);
        }
        presence.on_settled();
        assert_eq!(presence.on_seen("r", &had("other", 118), 120), Found::Copy);
    }

    #[tokio::test]
    async fn a_relay_that_parts_keeps_what_the_database_lacks_and_no_grant() {
        use crate::account::AccountId;
        use crate::journal::Journal;
        let folder = tempfile::tempdir().unwrap();
        let sync = AccountSync::open(folder.path(), None, "r").await.unwrap();
        let old = sync.id();
        sync.used(AccountId(1), 1_000, 10);
        assert!(sync.settle().await.unwrap());
        sync.used(AccountId(1), 7, 0);
        sync.part_from_copy().await.unwrap();
        assert_eq!(sync.id(), old, "there is no other relay");
        locked(&sync.presence).is_parting = true;
        assert!(!sync.settle().await.unwrap());
        sync.part_from_copy().await.unwrap();
        let new = sync.id();
        assert_ne!(new, old);
        assert!(sync.settle().await.unwrap());
        drop(sync);
        // a restart finds the same
        let journal = Journal::open(folder.path()).unwrap();
        assert_eq!(journal.identity(), new);
        let rest: Vec<_> = journal.unsettled().iter().map(|total| (total.down, total.up)).collect();
        assert_eq!(rest, [(7, 0)]);
        let store = Store::in_folder(folder.path()).await.unwrap();
        let usage = store.usage(0).await.unwrap();
        assert_eq!((usage[0].down, usage[0].up), (1_007, 10));
    }
}
