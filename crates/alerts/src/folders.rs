//! Room on the disks of the relay's folders.

use rustix::fs::statvfs;
use std::path::{Path, PathBuf};

/// A folder, and what its disk has left for the relay's user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Disk {
    pub(crate) folder: PathBuf,
    /// Bytes.
    pub(crate) free: u64,
}

/// The disk of a folder; `None` where there is no such folder, or nothing is told of it.
pub(crate) fn disk(folder: &Path) -> Option<Disk> {
    let seen = statvfs(folder).ok()?;
    // without a free block or a free entry nothing can be written; some file systems do not count entries
    let full = seen.f_files > 0 && seen.f_favail == 0;
    let free = if full { 0 } else { seen.f_bavail.saturating_mul(seen.f_frsize) };
    Some(Disk { folder: folder.to_owned(), free })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_room_and_a_missing_one_is_not_judged() {
        let folder = tempfile::tempdir().unwrap();
        assert!(disk(folder.path()).unwrap().free > 0);
        assert_eq!(disk(&folder.path().join("none")), None);
    }
}
