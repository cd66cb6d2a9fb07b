//! Whether a file has changed since it was read.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Changes when a file is written, replaced, or given other rights: inode, size, and the times of both in seconds and
/// nanoseconds. `None`: there is no file.
pub(crate) type FileStamp = Option<(u64, u64, [i64; 4])>;

/// That of a file now.
pub(crate) fn stamp(file: &Path) -> FileStamp {
    let data = fs::metadata(file).ok()?;
    let times = [data.mtime(), data.mtime_nsec(), data.ctime(), data.ctime_nsec()];
    Some((data.ino(), data.len(), times))
}
