//! What this relay may carry of each shared quota. Grants are kept on disk too: a relay that starts while the database is
//! away goes on with what it was granted.

use super::AccountSync;
use super::disk::on_disk;
use super::settle::{Key, Keyed};
use crate::account::AccountId;
use crate::journal::PAST;
use crate::lease::Lease;
use crate::locked;
use crate::store::in_time::in_time;
use crate::store::{Grant, GrantRequest, StoreError};
use ekiden_linux::host::state_files;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{fs, io};

/// A quota that is used up is asked for so often: a relay that is gone may leave something of it.
const AGAIN: Duration = Duration::from_secs(30);

/// Account, begin of the period, and bytes granted, as they are on disk.
type Saved = Vec<(i64, i64, u64)>;

/// The leases of a relay.
#[derive(Debug)]
pub(super) struct Leases {
    /// Locked while it is written.
    path: Arc<Mutex<PathBuf>>,
    known: BTreeMap<Key, Lease>,
    /// Grants from before the start. Each becomes a lease when its account's quota is asked for.
    before: BTreeMap<Key, u64>,
    /// When the database had no more of these.
    refused: BTreeMap<Key, Instant>,
    /// The database was asked for the grants from before the start.
    recalled: bool,
    /// The disk has other grants.
    changed: bool,
}

impl Leases {
    /// Those of a relay's folder. The log says why its file cannot be used.
    pub(super) fn read(folder: &Path) -> Self {
        let path = folder.join("grants.json");
        let read = || serde_json::from_slice::<Saved>(&fs::read(&path)?).map_err(io::Error::other);
        let saved = match read() {
            Ok(saved) => saved,
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    let path = path.display();
                    tracing::warn!(%error, "cannot read {path}; the database has the grants too");
                }
                Saved::new()
            }
        };
        let before =
            saved.into_iter().map(|(id, begun, granted)| ((AccountId(id), begun), granted));
        let before = before.collect();
        let path = Arc::new(Mutex::new(path));
        let (known, refused) = (BTreeMap::new(), BTreeMap::new());
        Self { path, known, before, refused, recalled: false, changed: false }
    }

    /// The lease of an account, whose quota is so many bytes and of which this relay used so many.
    ///
    /// Where no grant is known, what was used counts as granted, and is kept: so a relay that lost its file carries one slice
    /// more, and not one more with each start.
    pub(super) fn of(&mut self, key: Key, quota: u64, used: u64) -> &mut Lease {
        let Self { known, before, changed, .. } = self;
        let lease = known.entry(key).or_insert_with(|| {
            let mut lease = Lease::new(quota);
            lease.on_recalled(before.remove(&key).unwrap_or_else(|| {
                *changed |= used > 0;
                used
            }));
            lease
        });
        lease.on_quota(quota);
        lease.on_used(used);
        lease
    }

    /// The database's answer to requests, at `now`.
    fn on_granted(&mut self, asked: &[GrantRequest], granted: &[Grant], now: Instant) {
        let granted = granted.iter().map(|grant| ((grant.account, grant.begun), grant.granted));
        let granted: BTreeMap<Key, u64> = granted.collect();
        for (key, granted) in &granted {
            if let Some(lease) = self.known.get_mut(key) {
                self.changed |= lease.granted() != *granted;
                lease.on_granted(*granted);
            }
        }
        for request in asked {
            let Some(granted) = granted.get(&request.key()) else { continue };
            // what was moved since it asked tells nothing of the quota
            if *granted < request.used.saturating_add(request.slice / 2) {
                self.refused.insert(request.key(), now);
            } else {
                self.refused.remove(&request.key());
            }
        }
    }

    /// The database's grants from before the start. It knows better than the disk.
    fn on_recalled(&mut self, all: Vec<Grant>) {
        self.recalled = true;
        for Grant { account, begun, granted } in all {
            let key = (account, begun);
            let had = match self.known.get_mut(&key) {
                Some(lease) => {
                    let had = lease.granted();
                    lease.on_recalled(granted);
                    Some(had)
                }
                None => self.before.insert(key, granted),
            };
            self.changed |= had != Some(granted);
        }
    }

    /// The database may lack grants that it gave. No more counts as granted than was `used`, so that all ask again.
    pub(super) fn on_older(&mut self, used: impl Fn(&Key) -> u64) {
        for (key, granted) in std::mem::take(&mut self.before) {
            // its quota is heard of before it asks
            self.known.entry(key).or_insert_with(|| Lease::new(0)).on_recalled(granted);
        }
        for (key, lease) in &mut self.known {
            lease.on_used(used(key));
            lease.on_recalled(lease.granted().min(lease.used()));
        }
        self.refused.clear();
        self.changed = true;
    }

    /// This relay goes on by another identity, to which nothing is granted yet.
    pub(super) fn on_new_identity(&mut self) {
        for lease in self.known.values_mut() {
            *lease = Lease::new(lease.quota());
        }
        self.before.clear();
        self.refused.clear();
        (self.recalled, self.changed) = (true, true);
    }

    /// Where they are kept, to be locked while it is written.
    pub(super) fn path(&self) -> Arc<Mutex<PathBuf>> {
        Arc::clone(&self.path)
    }

    /// Drops those of other periods, and of accounts without a quota.
    fn retain(&mut self, stays: impl Fn(&Key) -> bool) {
        let count = self.known.len() + self.before.len();
        self.known.retain(|key, _| stays(key));
        self.before.retain(|key, _| stays(key));
        self.refused.retain(|key, _| stays(key));
        self.changed |= count != self.known.len() + self.before.len();
    }

    /// Those that want more at `now`, first those behind `last`. Where nothing was used, the slice ahead serves the first
    /// bytes: a grant would keep it from the relays that the account uses.
    fn wanting(&self, last: Option<Key>, now: Instant) -> Vec<GrantRequest> {
        let lately = |at: &Instant| now.saturating_duration_since(*at) < AGAIN;
        let wants = |(key, lease): (&Key, &Lease)| {
            let (account, begun) = *key;
            let (quota, slice, used) = (lease.quota(), lease.slice(), lease.used());
            let waits = lease.is_exhausted() && self.refused.get(key).is_some_and(lately);
            let wants = used > 0 && !waits && lease.wants();
            wants.then_some(GrantRequest { account, begun, quota, slice, used })
        };
        let mut wanting: Vec<_> = self.known.iter().filter_map(wants).collect();
        wanting.sort_by_key(|request| Some(request.key()) <= last);
        wanting
    }

    /// What the disk should have, if it has something else; it counts as written from now on.
    fn take_unwritten(&mut self) -> Option<Saved> {
        let known = self.known.iter().map(|(key, lease)| (key, lease.granted()));
        let before = self.before.iter().map(|(key, granted)| (key, *granted));
        let all = known.chain(before).map(|((id, begun), granted)| (id.0, *begun, granted));
        let saved = self.changed.then(|| all.collect());
        self.changed = false;
        saved
    }
}

impl Keyed for GrantRequest {
    fn key(&self) -> Key {
        (self.account, self.begun)
    }
}

impl AccountSync {
    /// Asks for more of the quotas of which little is left here, for a round.
    pub(super) async fn lease(&self) -> Result<(), StoreError> {
        if locked(&self.presence).is_parting() {
            return Ok(());
        }
        self.recall_usage().await?;
        self.recall_grants().await?;
        let mut batches = *locked(&self.asking);
        let wanting = self.wanting(batches.last());
        if wanting.is_empty() {
            return Ok(());
        }
        let store = &self.store().await?;
        // of a relay that the database has not seen, others may have what it was granted and has not used
        if locked(&self.presence).is_unseen() {
            self.say_seen(store).await?;
        }
        let (id, now) = (&self.id(), self.now().as_second());
        let asked = batches.settle(&wanting, |batch| async move {
            let granted = in_time(store.grant(id, &batch, now)).await?;
            locked(&self.leases).on_granted(&batch, &granted, Instant::now());
            Ok(())
        });
        let asked = asked.await;
        *locked(&self.asking) = batches;
        asked.map(drop)
    }

    /// Asks once after the start for the grants from before.
    async fn recall_grants(&self) -> Result<(), StoreError> {
        if self.address.is_none() || locked(&self.leases).recalled {
            return Ok(());
        }
        let since = self.now().as_second().saturating_sub(PAST);
        let all = in_time(self.store().await?.grants(&self.id(), since)).await?;
        locked(&self.leases).on_recalled(all);
        Ok(())
    }

    fn wanting(&self, last: Option<Key>) -> Vec<GrantRequest> {
        let directory = self.directory();
        let journal = locked(&self.journal);
        let mut leases = locked(&self.leases);
        leases.retain(|(account, begun)| {
            directory.get(*account).is_some_and(|known| known.attributes.quota.is_some())
                && self.begun_in(&directory, *account) == *begun
        });
        for (key, lease) in &mut leases.known {
            let (down, up) = journal.used(key.0, key.1);
            lease.on_used(down.saturating_add(up));
            let quota = directory.get(key.0).and_then(|known| known.attributes.quota_bytes());
            if let Some(quota) = quota {
                lease.on_quota(quota.as_u64());
            }
        }
        leases.wanting(last, Instant::now())
    }

    /// Writes grants that the disk lacks. A kill before that costs nothing: by the grant before it a relay has half a slice
    /// left and one ahead, more than it moves within a second.
    pub(super) async fn write_grants(&self) -> io::Result<()> {
        let (path, unwritten) = {
            let mut leases = locked(&self.leases);
            (leases.path(), leases.take_unwritten())
        };
        let Some(saved) = unwritten else { return Ok(()) };
        let written = on_disk(move || write(&locked(&path), &saved)).await;
        if written.is_err() {
            locked(&self.leases).changed = true;
        }
        written
    }
}

pub(super) fn write(path: &Path, saved: &[(i64, i64, u64)]) -> io::Result<()> {
    state_files::replace(path, &serde_json::to_vec(saved)?).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const QUOTA: u64 = 64 * MIB;

    fn key(id: i64) -> Key {
        (AccountId(id), 0)
    }

    fn grant(id: i64, granted: u64) -> Grant {
        Grant { account: AccountId(id), begun: 0, granted }
    }

    /// Writes them and reads them again, as a restart does.
    fn restart(mut leases: Leases) -> Leases {
        let path = locked(&leases.path).clone();
        if let Some(saved) = leases.take_unwritten() {
            write(&path, &saved).unwrap();
        }
        Leases::read(path.parent().unwrap())
    }

    #[test]
    fn a_restart_without_the_database_goes_on_with_the_grants() {
        let folder = tempfile::tempdir().unwrap();
        let mut leases = Leases::read(folder.path());
        leases.of(key(1), QUOTA, 0);
        leases.on_granted(&[], &[grant(1, 10 * MIB)], Instant::now());
        for _ in 0..3 {
            leases = restart(leases);
            // nobody asked for its quota in the life before, and its grant stays known
            leases = restart(leases);
            let lease = leases.of(key(1), QUOTA, 9 * MIB);
            assert_eq!((lease.may(), lease.left()), (11 * MIB, 2 * MIB));
        }
    }

    #[test]
    fn a_relay_that_lost_its_grants_carries_one_slice_more_and_not_one_with_each_start() {
        let folder = tempfile::tempdir().unwrap();
        let mut leases = Leases::read(folder.path());
        assert_eq!(leases.of(key(1), QUOTA, 30 * MIB).left(), MIB);
        for used in [30 * MIB, 31 * MIB, 31 * MIB] {
            leases = restart(leases);
            assert_eq!(leases.of(key(1), QUOTA, used).may(), 31 * MIB);
        }
        leases.on_recalled(vec![grant(1, 32 * MIB), grant(2, MIB)]);
        assert_eq!(leases.of(key(1), QUOTA, 31 * MIB).may(), 33 * MIB);
        assert_eq!(leases.of(key(2), QUOTA, 0).granted(), MIB);
    }

    #[test]
    fn a_damaged_file_is_as_none() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("grants.json"), "[[1,").unwrap();
        let mut leases = Leases::read(folder.path());
        assert_eq!(leases.of(key(1), QUOTA, 5 * MIB).left(), MIB);
    }

    #[test]
    fn accounts_that_moved_bytes_ask_and_take_turns() {
        let folder = tempfile::tempdir().unwrap();
        let mut leases = Leases::read(folder.path());
        for id in 1..=6 {
            leases.of(key(id), QUOTA, if id % 2 == 0 { 2 * MIB } else { 0 });
        }
        leases.on_recalled(vec![grant(3, MIB), grant(8, 5 * MIB)]);
        leases.of(key(8), QUOTA, 2 * MIB);
        let order = |last: Option<Key>| {
            let wanting = leases.wanting(last, Instant::now());
            wanting.iter().map(|request| request.account.0).collect::<Vec<_>>()
        };
        assert_eq!(order(None), [2, 4, 6]);
        assert_eq!(order(Some(key(4))), [6, 2, 4]);
    }

    #[test]
    fn a_quota_that_is_used_up_is_asked_for_each_half_minute() {
        let folder = tempfile::tempdir().unwrap();
        let (mut leases, start) = (Leases::read(folder.path()), Instant::now());
        leases.of(key(1), QUOTA, 5 * MIB);
        let mut asked = 0;
        for half_seconds in 0..60 {
            let now = start + Duration::from_millis(500 * half_seconds);
            let wanting = leases.wanting(None, now);
            asked += wanting.len();
            if !wanting.is_empty() {
                leases.on_granted(&wanting, &[grant(1, 5 * MIB)], now);
            }
        }
        assert_eq!(asked, 1);
        assert_eq!(leases.wanting(None, start + AGAIN).len(), 1);
        // of a larger one there may be more at once
        leases.of(key(1), 2 * QUOTA, 5 * MIB);
        assert_eq!(leases.wanting(None, start).len(), 1);
    }

    #[test]
    fn bytes_that_moved_while_it_asked_do_not_make_it_wait() {
        let folder = tempfile::tempdir().unwrap();
        let (mut leases, now) = (Leases::read(folder.path()), Instant::now());
        leases.of(key(1), QUOTA, 5 * MIB);
        let asked = leases.wanting(None, now);
        // a fast connection moves all of the next slice meanwhile
        leases.of(key(1), QUOTA, 6 * MIB);
        leases.on_granted(&asked, &[grant(1, 6 * MIB)], now);
        assert_eq!(leases.wanting(None, now).len(), 1);
    }

    #[test]
    fn all_that_was_used_is_asked_for_again_of_a_database_that_was_brought_back() {
        let folder = tempfile::tempdir().unwrap();
        let (mut leases, now) = (Leases::read(folder.path()), Instant::now());
        leases.on_recalled(vec![grant(1, 9 * MIB), grant(2, 5 * MIB), grant(3, MIB)]);
        for (id, used) in [(1, 4 * MIB), (3, 0)] {
            leases.of(key(id), QUOTA, used);
        }
        assert!(leases.wanting(None, now).is_empty());
        leases.on_older(|(account, _)| [0, 4 * MIB, 3 * MIB, 0][account.0 as usize]);
        let may = leases.of(key(1), QUOTA, 4 * MIB).may();
        assert_eq!(may, 5 * MIB, "nobody is held up meanwhile");
        let asked = leases.wanting(None, now);
        let asked: Vec<_> = asked.iter().map(|asked| (asked.account.0, asked.used)).collect();
        assert_eq!(asked, [(1, 4 * MIB), (2, 3 * MIB)]);
    }

    #[test]
    fn grants_of_periods_that_are_over_leave_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let mut leases = Leases::read(folder.path());
        leases.of(key(1), QUOTA, 0);
        leases.on_recalled(vec![grant(1, MIB), grant(2, MIB)]);
        leases.retain(|(account, _)| account.0 == 2);
        let leases = restart(leases);
        assert_eq!((leases.known.len(), leases.before), (0, BTreeMap::from([(key(2), MIB)])));
    }
}
