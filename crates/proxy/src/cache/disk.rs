//! The cache's folder on disk, used by one process at a time. Its files get their blocks at the
//! start, so that a full disk is found and logged then; the cache then goes on in memory.

use ekiden_linux::host::state_files;
use rustix::fs::{FallocateFlags, fallocate, statvfs};
use rustix::io::Errno;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Locked while the folder is in use. The file outlives the process; the lock does not.
const LOCK: &str = "lock";

/// The unit of block counts, whatever the file system's own (`stat(2)`).
const BLOCK: u64 = 512;

#[derive(Debug)]
pub(super) struct CacheFolder {
    path: PathBuf,
    _lock: File,
}

impl CacheFolder {
    /// Creates the folder if needed, and locks it; the error is in words.
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        let unusable = |error: io::Error| {
            format!("the cache cannot use {}: {error}; see cache.directory", path.display())
        };
        // other users of the machine may not read the cache
        state_files::make_folder(path).map_err(unusable)?;
        let mut lock = state_files::open(&path.join(LOCK)).map_err(unusable)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(taken(path, &mut lock)),
            // some network file systems have no locks
            Err(TryLockError::Error(error)) => {
                let folder = path.display();
                tracing::warn!(%error, "{folder} cannot be locked; no other process may use it as its cache");
            }
        }
        // tells others who holds the lock; only the lock itself counts
        let pid = format!("{}\n", std::process::id());
        lock.set_len(0).and_then(|()| lock.write_all(pid.as_bytes())).map_err(unusable)?;
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file system can hold `size` bytes in total, including the present files; if not,
    /// why.
    pub(super) fn has_room(&self, size: u64) -> Result<(), String> {
        let looked = || {
            let has: u64 =
                self.files()?.iter().map(|file| taken_by(file).map_or(0, |(has, _)| has)).sum();
            let system = statvfs(&self.path)?;
            Ok::<_, io::Error>((
                size.saturating_sub(has),
                system.f_bavail.saturating_mul(system.f_frsize),
            ))
        };
        let (wanted, free) =
            looked().map_err(|error| format!("{}: {error}", self.path.display()))?;
        if wanted <= free {
            return Ok(());
        }
        let folder = self.path.display();
        let (wanted, free) = (mib(wanted), mib(free));
        Err(format!(
            "the cache needs {wanted} MiB more in {folder}, but only {free} MiB are free: make room, or lower cache.disk"
        ))
    }

    /// Allocates the files' blocks permanently; the error is in words.
    pub(super) fn reserve(&self) -> Result<(), String> {
        let reserve = || {
            for file in self.files()? {
                let (has, length) = taken_by(&file)?;
                if has >= length {
                    continue;
                }
                let file = OpenOptions::new().write(true).open(&file)?;
                match fallocate(&file, FallocateFlags::empty(), 0, length) {
                    Ok(()) => {}
                    // this file system allocates blocks on write
                    Err(Errno::OPNOTSUPP) => return Ok(()),
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(())
        };
        reserve().map_err(|error: io::Error| {
            format!(
                "the cache cannot allocate its space in {}: {error}; lower cache.disk",
                self.path.display()
            )
        })
    }

    /// Leaves what root has made here to the folder's owner, who may be the next to use it; the error is in words.
    pub(super) fn give(&self) -> Result<(), String> {
        state_files::give_files(&self.path).map_err(|error| {
            format!(
                "the cache's files in {} cannot be given to the folder's owner: {error}",
                self.path.display()
            )
        })
    }

    fn files(&self) -> io::Result<Vec<PathBuf>> {
        let entries = std::fs::read_dir(&self.path)?.map(|entry| Ok(entry?.path()));
        entries.collect()
    }
}

fn taken_by(file: &Path) -> io::Result<(u64, u64)> {
    let facts = file.metadata()?;
    Ok((facts.blocks().saturating_mul(BLOCK), facts.len()))
}

fn taken(path: &Path, lock: &mut File) -> String {
    let mut pid = String::new();
    let who = match lock.read_to_string(&mut pid).map(|_| pid.trim()) {
        Ok(pid) if !pid.is_empty() => format!("process {pid}"),
        _ => "another process".to_owned(),
    };
    let folder = path.display();
    format!("{who} uses {folder} as its cache; stop it, or configure another cache.directory")
}

const fn mib(bytes: u64) -> u64 {
    bytes >> 20
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_the_folder_while_it_is_used() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("cache");
        let folder = CacheFolder::open(&path).unwrap();
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o700);
        let why = CacheFolder::open(&path).unwrap_err();
        let own = format!("process {} uses {} as its cache", std::process::id(), path.display());
        assert!(why.starts_with(&own) && why.contains("cache.directory"), "{why}");
        drop(folder);
        CacheFolder::open(&path).unwrap();
    }

    #[test]
    fn reports_a_bad_folder_with_its_key() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let why = CacheFolder::open(file.path()).unwrap_err();
        assert!(why.ends_with("see cache.directory"), "{why}");
    }

    #[test]
    fn allocates_its_space_at_once_or_fails() {
        let place = tempfile::tempdir().unwrap();
        let folder = CacheFolder::open(place.path()).unwrap();
        let why = folder.has_room(1 << 62).unwrap_err();
        assert!(why.contains("make room, or lower cache.disk"), "{why}");
        let file = place.path().join("part");
        File::create(&file).unwrap().set_len(3 << 20).unwrap();
        assert_eq!(taken_by(&file).unwrap(), (0, 3 << 20));
        folder.has_room(3 << 20).unwrap();
        folder.reserve().unwrap();
        let (has, length) = taken_by(&file).unwrap();
        assert!(has >= length && length == 3 << 20, "{has}");
    }
}
