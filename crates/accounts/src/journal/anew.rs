//! A long journal is written anew. Only whoever writes the new file waits for the disk: meanwhile the old one goes on, and
//! nobody has to hold the journal.

use super::writing::Entries;
use super::{ENTRY, Journal, Key, PAST, Totals, batch, whole};
use crate::account::AccountId;
use ekiden_linux::host::state_files::{self, Prepared};
use std::fs::File;
use std::io;
use std::mem;
use std::path::PathBuf;
use std::sync::Arc;

/// A file this small is never worth writing anew.
pub(super) const SMALL: u64 = 256 * 1024;
/// So many periods of an account stay, however old. A clock that is ahead may begin two periods within one that is
/// present; when it begins a third, a whole one has passed.
const NEWEST: usize = 3;

/// What the new file is to hold.
#[derive(Debug)]
pub(crate) struct Contents {
    path: PathBuf,
    identity: String,
    totals: Totals,
}

/// The new file, on the disk and not in place yet. Dropped, it is removed.
#[derive(Debug)]
pub(crate) struct Successor {
    file: Prepared,
    identity: String,
    size: u64,
    totals: Totals,
}

/// The new file, and what was added since its contents were taken.
#[derive(Debug)]
pub(crate) struct Replacement {
    file: Prepared,
    size: u64,
    newer: Vec<u8>,
    entries: Entries,
}

/// The new file in its place.
#[derive(Debug)]
pub(crate) struct Placed {
    file: File,
    folder: File,
    size: u64,
    entries: Entries,
}

/// What is left to do for the disk once the new file is in place.
#[derive(Debug)]
pub(crate) struct Rest {
    /// Its blocks are freed where it is closed.
    _old: Arc<File>,
    folder: File,
}

impl Contents {
    /// Writes the new file beside the old one, and waits for the disk.
    pub(crate) fn write(self) -> io::Result<Successor> {
        let Self { path, identity, totals } = self;
        let bytes = whole(&identity, &totals);
        let file = state_files::prepare(&path, &bytes)?;
        Ok(Successor { file, identity, size: bytes.len() as u64, totals })
    }
}

impl Successor {
    /// Whether it is still of this journal, which may go on by another identity since.
    pub(crate) fn is_of(&self, journal: &Journal) -> bool {
        self.identity == journal.identity
    }
}

impl Replacement {
    /// Puts the new file in the old one's place. Errors: the old one is there, and lacks nothing.
    pub(crate) fn place(self) -> io::Result<Placed> {
        let Self { mut file, size, newer, entries } = self;
        file.add(&newer)?;
        // whoever is killed here leaves either file, and both have all that was written
        let (file, folder) = file.place()?;
        Ok(Placed { file, folder, size: size + newer.len() as u64, entries })
    }
}

impl Rest {
    /// Waits until a power cut cannot bring the old file back.
    pub(crate) fn sync(self) -> io::Result<()> {
        self.folder.sync_all()
    }
}

impl Journal {
    /// What to write anew where the file is long: each total once, without those that are past at `now` (seconds since
    /// 1970). `is_known` tells whether there still is such an account.
    pub(crate) fn shorten(
        &mut self,
        now: i64,
        is_known: impl Fn(AccountId) -> bool,
    ) -> Option<Contents> {
        let is_long = self.size > SMALL.max(4 * (self.totals.len() * ENTRY) as u64);
        is_long.then(|| self.contents(now, is_known))
    }

    /// Drops what is settled and past. The clock may be wrong: what it shows drops no total that may be of a present
    /// period.
    pub(super) fn contents(&mut self, now: i64, is_known: impl Fn(AccountId) -> bool) -> Contents {
        let past = now.saturating_sub(PAST);
        let (mut account, mut newer) = (None, 0);
        let mut dropped = Vec::new();
        for key in self.totals.keys().rev() {
            if account != Some(key.0) {
                (account, newer) = (Some(key.0), 0);
            }
            // a period that never ends began in 1970
            let stays = self.unsettled.contains(key) || key.1 == 0 || key.1 >= past;
            if !stays && (newer >= NEWEST || !is_known(key.0)) {
                dropped.push(*key);
            }
            // one that is ahead tells nothing of the others
            newer += usize::from(key.1 <= now);
        }
        for key in dropped {
            self.totals.remove(&key);
            self.confirmed.remove(&key);
            self.unwritten.remove(&key);
        }
        let (path, identity) = (self.path.clone(), self.identity.clone());
        Contents { path, identity, totals: self.totals.clone() }
    }

    /// What the new file gets before it is in place. The old one gets nothing more, unless that fails.
    pub(crate) fn replacement(&self, new: Successor) -> Replacement {
        let Successor { file, size, totals, .. } = new;
        let is_newer = |(key, used): &(Key, (u64, u64))| totals.get(key) != Some(used);
        let all = self.totals.iter().map(|(key, used)| (*key, *used));
        let newer: Vec<_> = all.filter(is_newer).collect();
        let newer = match newer.is_empty() {
            true => Vec::new(),
            false => batch(&self.identity, newer.into_iter()),
        };
        Replacement { file, size, newer, entries: self.unwritten_entries() }
    }

    /// Goes on in the new file. What was added since [`replacement`](Self::replacement) stays unwritten.
    pub(crate) fn go_on_in(&mut self, placed: Placed) -> Rest {
        let Placed { file, folder, size, entries } = placed;
        self.size = size;
        self.on_entries_written(&entries);
        Rest { _old: mem::replace(&mut self.file, Arc::new(file)), folder }
    }
}
