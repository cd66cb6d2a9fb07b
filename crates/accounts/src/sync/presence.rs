//! This relay's row in the database. It says that the relay is there, and shows whether another one runs by the same identity, as
//! from a copied state folder: a quota would be granted to both.

use super::AccountSync;
use super::disk::{forget_id, on_disk};
use super::leases::write;
use crate::journal::draw;
use crate::locked;
use crate::store::in_time::in_time;
use crate::store::{FleetRelay, SeenBefore, Store, StoreError};
use std::io;
use std::sync::Arc;

/// Another run that was heard of so often in a row still runs. What an earlier run of this relay had under way may arrive
/// late, once.
const SURE: u32 = 2;

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
}

impl Presence {
    /// Errors: the system gives no random bytes.
    pub(super) fn new(id: String) -> io::Result<Self> {
        let (seen, others) = (None, 0);
        Ok(Self { id, run: draw()?, seen, others, is_settled: false, is_parting: false })
    }

    /// All usage was settled.
    pub(super) const fn on_settled(&mut self) {
        self.is_settled = true;
    }

    /// Whether this relay is about to go on by another identity. Until it does, it neither settles nor asks for grants.
    pub(super) const fn is_parting(&self) -> bool {
        self.is_parting
    }

    /// The row of `id` had this before this run wrote it at `now`. Returns whether the relay has to part from another one,
    /// if that is new.
    fn on_seen(&mut self, id: &str, had: &SeenBefore, now: i64) -> bool {
        if self.id != id {
            return false;
        }
        let last = self.seen.replace(now);
        let is_other = had.run != self.run && last.is_some_and(|last| had.seen >= last);
        self.others = if is_other { self.others.saturating_add(1) } else { 0 };
        // before all is settled, nobody can tell which bytes are this run's
        let parts = self.others >= SURE && self.is_settled && !self.is_parting;
        self.is_parting |= parts;
        parts
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
        if locked(&self.presence).on_seen(&relay.id, &had, seen) {
            tracing::error!(
                "another relay runs from a copy of {}; this one goes on as a new relay, and keeps its own usage",
                self.folder.display()
            );
        }
        Ok(())
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
        assert!(!presence.on_seen("r", &had("before", 95), 100));
        assert!(!presence.on_seen("r", &had("before", 101), 105));
        assert!(!presence.on_seen("r", &had(&own, 105), 110));
        assert!(!presence.on_seen("r", &had("other", 112), 115));
        assert!(presence.on_seen("r", &had("other", 117), 120) && presence.is_parting());
        // it is said once
        assert!(!presence.on_seen("r", &had("other", 122), 125) && presence.is_parting());
        presence.on_parted("new".to_owned());
        assert!(!presence.is_parting());
        // the answer for the old row comes late
        assert!(!presence.on_seen("r", &had("other", 127), 130) && presence.seen.is_none());
    }

    #[test]
    fn an_older_row_is_no_other_relay() {
        let mut presence = presence();
        for now in [100, 105, 110, 115] {
            assert!(!presence.on_seen("r", &had("before", 50), now));
        }
    }

    #[test]
    fn a_relay_parts_once_all_of_its_journal_is_settled() {
        let mut presence = Presence::new("r".to_owned()).unwrap();
        for now in [100, 105, 110, 115] {
            assert!(!presence.on_seen("r", &had("other", now - 2), now));
        }
        presence.on_settled();
        assert!(presence.on_seen("r", &had("other", 118), 120));
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
