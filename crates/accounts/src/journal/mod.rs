//! Usage of accounts, written to this machine's disk twice a second, and settled into the database
//! when that is reachable.
//!
//! ```text
//! ekiden usage 1
//!  identity (32 hexadecimal digits)
//!
//! batch: count u32 · count × (account i64 · begun i64 · down u64 · up u64) · check 8 bytes
//! ```
//! Integers are little-endian. A batch holds the totals since the journal began that changed within
//! a second: reading or settling one twice changes nothing. `check` begins SHA-256 over the
//! identity and the batch. An incomplete batch, as after a power cut, ends the reading.
//!
//! The file is not synced: a killed process loses what it added since the last write, and a power
//! cut what the kernel had not written. [`Journal::sync`] is for the end.

mod anew;
mod opened;
mod renewal;
mod writing;

pub(crate) use opened::remove_opened;

use crate::account::AccountId;
use ekiden_linux::host::state_files;
use ring::digest::{Context, SHA256};
use ring::rand::{SecureRandom as _, SystemRandom};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const FIRST_LINE: &str = "ekiden usage 1\n";
/// Hexadecimal digits of the identity: 128 bits, so that no two journals have the same.
const IDENTITY: usize = 32;
const HEADER: usize = FIRST_LINE.len() + IDENTITY + 1;
const ENTRY: usize = 32;
const CHECK: usize = 8;
/// Seconds after which a settled total is dropped: every calendar's present period began later.
pub(crate) const PAST: i64 = 62 * 24 * 3600;

/// What one account used in one period, both counted since the journal was begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Total {
    /// Whose.
    pub account: AccountId,
    /// When the period began, seconds since 1970.
    pub begun: i64,
    /// Bytes towards the account.
    pub down: u64,
    /// Bytes from it.
    pub up: u64,
}

/// Why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum JournalError {
    #[error("{0} is in use by another ekiden; give each its own [accounts] state folder")]
    InUse(PathBuf),
    #[error("the usage journal {path} cannot be used: {error}")]
    File { path: PathBuf, error: io::Error },
}

type Key = (AccountId, i64);
type Totals = BTreeMap<Key, (u64, u64)>;

/// The journal of one relay. It holds a lock on its file until it is dropped.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    /// Whoever writes has it, too.
    file: Arc<File>,
    /// Kept beside the file, which is replaced.
    _lock: File,
    identity: String,
    totals: Totals,
    /// What the file held when it was opened, until all is known that the database had then.
    opened: Totals,
    /// It is on the disk, too.
    is_opened_kept: bool,
    /// What it lacked of the latter, as far as that is known.
    lacked: Totals,
    unwritten: BTreeSet<Key>,
    unsettled: BTreeSet<Key>,
    /// What the database has of the totals, as it said since the file was opened.
    confirmed: Totals,
    /// Where the next batch begins.
    size: u64,
    /// Where the old file went, if it was none.
    set_aside: Option<PathBuf>,
}

impl Journal {
    /// Opens the journal of a folder, or begins one. All in it counts as not settled.
    pub fn open(folder: &Path) -> Result<Self, JournalError> {
        let path = folder.join("usage.journal");
        let failed = |error| JournalError::File { path: path.clone(), error };
        let lock = state_files::open(&folder.join("usage.lock")).map_err(failed)?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => JournalError::InUse(path.clone()),
            TryLockError::Error(error) => failed(error),
        })?;
        let mut bytes = Vec::new();
        let mut file = state_files::open(&path).map_err(failed)?;
        file.read_to_end(&mut bytes).map_err(failed)?;
        let mut set_aside = None;
        let (identity, totals, size) = match replay(&bytes) {
            Some((identity, totals, whole)) => {
                // what comes next has to follow what can be read
                file.set_len(whole as u64).map_err(failed)?;
                (identity, totals, whole as u64)
            }
            None => {
                if !bytes.is_empty() {
                    let aside = path.with_extension("journal.broken");
                    fs::rename(&path, &aside).map_err(failed)?;
                    set_aside = Some(aside);
                }
                let (identity, totals) = (draw().map_err(failed)?, Totals::new());
                let bytes = whole(&identity, &totals);
                file = state_files::replace(&path, &bytes).map_err(failed)?;
                (identity, totals, bytes.len() as u64)
            }
        };
        let (unwritten, unsettled) = (BTreeSet::new(), totals.keys().copied().collect());
        let kept = opened::kept(folder, &identity, &totals);
        Ok(Self {
            path,
            file: Arc::new(file),
            _lock: lock,
            identity,
            is_opened_kept: kept.is_some(),
            opened: kept.unwrap_or_else(|| totals.clone()),
            lacked: Totals::new(),
            totals,
            unwritten,
            unsettled,
            confirmed: Totals::new(),
            size,
            set_aside,
        })
    }

    /// What distinguishes this journal from any other, in the database.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Where a file that was no journal was put, when this one was begun in its place.
    pub fn set_aside(&self) -> Option<&Path> {
        self.set_aside.as_deref()
    }

    /// An account used more, in the period that began then (seconds since 1970). Nothing is written yet.
    pub fn add(&mut self, account: AccountId, begun: i64, down: u64, up: u64) {
        if down == 0 && up == 0 {
            return;
        }
        let key = (account, begun);
        let used = self.totals.entry(key).or_default();
        used.0 = used.0.saturating_add(down);
        used.1 = used.1.saturating_add(up);
        self.unwritten.insert(key);
        self.unsettled.insert(key);
    }

    /// What an account used in a period, as far as this journal goes: down and up.
    pub fn used(&self, account: AccountId, begun: i64) -> (u64, u64) {
        self.totals.get(&(account, begun)).copied().unwrap_or_default()
    }

    /// Writes what was added since the last time; to be called once a second. What the file system
    /// refused is written the next time.
    pub fn write(&mut self) -> io::Result<()> {
        let Some(writing) = self.unwritten() else { return Ok(()) };
        writing.write()?;
        self.on_written(&writing);
        Ok(())
    }

    /// Waits until the disk has it.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    /// What the database has perhaps not heard of yet.
    pub fn unsettled(&self) -> Vec<Total> {
        self.unsettled_after(None)
    }

    /// The same, first those behind this account and period.
    pub fn unsettled_after(&self, last: Option<(AccountId, i64)>) -> Vec<Total> {
        let total = |key: &Key| {
            let (down, up) = *self.totals.get(key)?;
            Some(Total { account: key.0, begun: key.1, down, up })
        };
        let first = last.map_or(Bound::Unbounded, Bound::Excluded);
        let behind = self.unsettled.range((first, Bound::Unbounded));
        let before = last.map(|last| self.unsettled.range(..=last)).into_iter().flatten();
        behind.chain(before).filter_map(total).collect()
    }

    /// The database has these. What was added since then stays unsettled.
    pub fn on_settled(&mut self, identity: &str, settled: &[Total]) {
        if identity != self.identity {
            return;
        }
        for Total { account, begun, down, up } in settled {
            let key = (*account, *begun);
            self.on_confirmed(key, (*down, *up));
            if self.totals.get(&key) == Some(&(*down, *up)) {
                self.unsettled.remove(&key);
            }
        }
    }

    /// The database has an older state: it may lack all that it had.
    pub(crate) fn on_older(&mut self) {
        self.unsettled = self.totals.keys().copied().collect();
        self.confirmed = Totals::new();
    }

    /// The database keeps the larger.
    fn on_confirmed(&mut self, key: Key, (down, up): (u64, u64)) {
        let had = self.confirmed.entry(key).or_default();
        *had = (had.0.max(down), had.1.max(up));
    }
}

/// A file that has each total once.
fn whole(identity: &str, totals: &Totals) -> Vec<u8> {
    let mut bytes = format!("{FIRST_LINE}{identity}\n").into_bytes();
    if !totals.is_empty() {
        bytes.extend(batch(identity, totals.iter().map(|(key, used)| (*key, *used))));
    }
    bytes
}

/// 32 hexadecimal digits that nobody else has.
pub(crate) fn draw() -> io::Result<String> {
    let mut bytes = [0; IDENTITY / 2];
    let drawn = SystemRandom::new().fill(&mut bytes);
    drawn.map_err(|_| io::Error::other("the system gives no random bytes"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn batch(identity: &str, entries: impl ExactSizeIterator<Item = (Key, (u64, u64))>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(4 + entries.len() * ENTRY + CHECK);
    bytes.extend((entries.len() as u32).to_le_bytes());
    for ((account, begun), (down, up)) in entries {
        bytes.extend(account.0.to_le_bytes());
        bytes.extend(begun.to_le_bytes());
        bytes.extend(down.to_le_bytes());
        bytes.extend(up.to_le_bytes());
    }
    let check = check(identity, &bytes);
    bytes.extend(check);
    bytes
}

fn check(identity: &str, bytes: &[u8]) -> [u8; CHECK] {
    let mut context = Context::new(&SHA256);
    context.update(identity.as_bytes());
    context.update(bytes);
    let digest = context.finish();
    digest.as_ref().first_chunk().copied().unwrap_or_default()
}

type Replayed = (String, Totals, usize);

fn replay(bytes: &[u8]) -> Option<Replayed> {
    let rest = bytes.strip_prefix(FIRST_LINE.as_bytes())?;
    let (identity, rest) = rest.split_at_checked(IDENTITY)?;
    let identity = std::str::from_utf8(identity).ok()?;
    let mut rest = rest.strip_prefix(b"\n")?;
    let mut totals = Totals::new();
    let mut whole = HEADER;
    while let Some((entries, used)) = read_batch(identity, rest) {
        for entry in entries.chunks_exact(ENTRY) {
            let (key, used) = read_entry(entry)?;
            totals.insert(key, used);
        }
        rest = rest.get(used..)?;
        whole += used;
    }
    Some((identity.to_owned(), totals, whole))
}

/// A batch's entries, and how long it is; `None` where it is not whole.
fn read_batch<'a>(identity: &str, bytes: &'a [u8]) -> Option<(&'a [u8], usize)> {
    let count = u32::from_le_bytes(*bytes.first_chunk()?) as usize;
    let end = count.checked_mul(ENTRY)?.checked_add(4)?;
    let (checked, rest) = bytes.split_at_checked(end)?;
    (rest.get(..CHECK)? == check(identity, checked)).then_some((&checked[4..], end + CHECK))
}

fn read_entry(entry: &[u8]) -> Option<(Key, (u64, u64))> {
    let field = |n: usize| entry.get(8 * n..)?.first_chunk::<8>().copied();
    let key = (AccountId(i64::from_le_bytes(field(0)?)), i64::from_le_bytes(field(1)?));
    Some((key, (u64::from_le_bytes(field(2)?), u64::from_le_bytes(field(3)?))))
}

#[cfg(test)]
mod tests;
