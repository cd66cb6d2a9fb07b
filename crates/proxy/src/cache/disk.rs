//! The cache's folder on disk: one process at a time, and its room taken before it is used.
//!
//! The files are given their blocks at the start, so that the cache cannot meet a full disk later: it finds
//! it now, says so once, and keeps what it has memory for.

use rustix::fs::{FallocateFlags, fallocate, statvfs};
use rustix::io::Errno;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Held as long as the folder is used; it stays when the process ends, and the lock does not.
const LOCK: &str = "lock";

/// Blocks are counted in these, whatever the file system's own are (`stat(2)`).
const BLOCK: u64 = 512;

/// A folder that is this process's.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    _lock: File,
}

impl Folder {
    /// Makes the folder where it is not there yet, and keeps others out.
    ///
    /// # Errors
    /// In words: it cannot be made or written to, or another process has it.
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        let unusable = |error: io::Error| {
            format!("the cache cannot use {}: {error}; see cache.directory", path.display())
        };
        // what was fetched is not for every user of the machine
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(unusable)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut lock = options.open(path.join(LOCK)).map_err(unusable)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(taken(path, &mut lock)),
            // some network file systems know no locks
            Err(TryLockError::Error(error)) => {
                let folder = path.display();
                tracing::warn!(%error, "{folder} cannot be locked; no other process may use it as its cache");
            }
        }
        // for whoever finds it taken; who holds it is told by the lock alone
        let pid = format!("{}\n", std::process::id());
        lock.set_len(0).and_then(|()| lock.write_all(pid.as_bytes())).map_err(unusable)?;
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether there is room for `size` bytes in all, of which the files there have some already.
    ///
    /// # Errors
    /// In words, where there is not.
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
            "the cache wants {wanted} MiB more in {folder}, and the file system there has {free} MiB: make room, or lower cache.disk"
        ))
    }

    /// Takes the blocks of the files for good.
    ///
    /// # Errors
    /// In words, where the disk is full.
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
                    // taken as it is filled, then
                    Err(Errno::OPNOTSUPP) => return Ok(()),
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(())
        };
        reserve().map_err(|error: io::Error| {
            format!(
                "the cache cannot have its room in {}: {error}; lower cache.disk",
                self.path.display()
            )
        })
    }

    fn files(&self) -> io::Result<Vec<PathBuf>> {
        let entries = std::fs::read_dir(&self.path)?.map(|entry| Ok(entry?.path()));
        entries.collect()
    }
}

/// Bytes on disk, and its length.
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
    format!(
        "{who} has its cache in {folder}: two in one folder would spoil each other's; stop that one, or give this one another cache.directory"
    )
}

const fn mib(bytes: u64) -> u64 {
    bytes >> 20
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_one_s_alone_for_as_long_as_it_is_used() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("cache");
        let folder = Folder::open(&path).unwrap();
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o700);
        let why = Folder::open(&path).unwrap_err();
        let own = format!("process {} has its cache in {}", std::process::id(), path.display());
        assert!(why.starts_with(&own) && why.contains("cache.directory"), "{why}");
        drop(folder);
        Folder::open(&path).unwrap();
    }

    #[test]
    fn what_is_no_folder_is_said_with_the_key() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let why = Folder::open(file.path()).unwrap_err();
        assert!(why.ends_with("see cache.directory"), "{why}");
    }

    #[test]
    fn its_room_is_taken_at_once_or_not_at_all() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::open(place.path()).unwrap();
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
