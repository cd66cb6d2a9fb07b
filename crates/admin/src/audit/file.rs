//! A file of the audit log, and those put aside.

use ekiden_linux::host::state_files;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

/// Files put aside of each kind: 16 MiB with the one that is written.
const KEPT: u32 = 3;

#[derive(Debug)]
pub(super) struct AuditFile {
    path: PathBuf,
    file: File,
    largest: u64,
}

impl AuditFile {
    /// One that is put aside at `largest` bytes; it is made if missing.
    pub(super) fn open(path: PathBuf, largest: u64) -> io::Result<Self> {
        let file = state_files::append(&path)?;
        Ok(Self { path, file, largest })
    }

    /// Adds a line. Another process may have put the file aside.
    pub(super) fn write(&mut self, line: &[u8]) -> io::Result<()> {
        let mut seen = self.file.metadata()?;
        if fs::metadata(&self.path).ok().map(|at| at.ino()) != Some(seen.ino()) {
            // another process has put it aside
            self.file = state_files::append(&self.path)?;
            seen = self.file.metadata()?;
        }
        let length = seen.len();
        if length > 0 && length + line.len() as u64 > self.largest {
            let old = |n: u32| PathBuf::from(format!("{}.{n}", self.path.display()));
            for n in (1..KEPT).rev() {
                match fs::rename(old(n), old(n + 1)) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
            fs::rename(&self.path, old(1))?;
            self.file = state_files::append(&self.path)?;
        }
        // one write, so that lines stay whole
        self.file.write_all(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_writers_put_a_file_aside_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let mut both = [(); 2].map(|()| AuditFile::open(path.clone(), 10).unwrap());
        both[0].write(b"line 0\n").unwrap();
        both[1].write(b"line 1\n").unwrap();
        both[0].write(b"2\n").unwrap();
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!(read("a"), "line 1\n2\n");
        assert_eq!(read("a.1"), "line 0\n");
    }

    #[test]
    fn files_are_put_aside_and_the_oldest_goes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let mut written = AuditFile::open(path.clone(), 10).unwrap();
        for n in 0..6 {
            written.write(format!("line {n}\n").as_bytes()).unwrap();
        }
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!(
            [read("a"), read("a.1"), read("a.2"), read("a.3")].concat(),
            "line 5\nline 4\nline 3\nline 2\n"
        );
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 4);
        // what was there before counts
        let mut again = AuditFile::open(path, 10).unwrap();
        again.write(b"line 6\n").unwrap();
        assert_eq!((read("a"), read("a.1")), ("line 6\n".into(), "line 5\n".into()));
    }
}
