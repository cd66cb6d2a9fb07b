//! A file that is replaced as a whole, in two steps: what can fail is done before anything is changed.

use super::entry::{create, owner_of};
use super::way;
use rustix::fs::{AtFlags, Mode, OFlags, fchmod, openat, renameat, unlinkat};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;

/// A written file beside the one that it will replace; removed if it does not.
#[derive(Debug)]
pub struct Prepared {
    file: File,
    names: Names,
}

#[derive(Debug)]
struct Names {
    folder: OwnedFd,
    /// Where it waits.
    new: OsString,
    /// Where it will be.
    name: OsString,
    done: bool,
}

impl Drop for Names {
    fn drop(&mut self) {
        if !self.done {
            // the first failure is the one that is reported
            let _ = unlinkat(&self.folder, &self.new, AtFlags::empty());
        }
    }
}

/// Writes a new version of a file beside it, for the owner of the old one. Errors: also where a folder is in its place.
pub fn prepare(path: &Path, bytes: &[u8]) -> io::Result<Prepared> {
    let (folder, name) = way::to(path)?;
    let mut new = OsString::from(".");
    new.push(&name);
    new.push(".new");
    let old = owner_of(&folder, &name)?;
    match unlinkat(&folder, &new, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    // one that another user has put there since is an error, so that no other file gets the bytes
    let file = create(&folder, &new, OFlags::RDWR, old)?;
    let mut prepared = Prepared { file, names: Names { folder, new, name, done: false } };
    prepared.file.write_all(bytes)?;
    prepared.file.sync_all()?;
    Ok(prepared)
}

impl Prepared {
    /// Lets others read it: mode 0644.
    pub fn open_to_others(&self) -> io::Result<()> {
        Ok(fchmod(&self.file, Mode::from_raw_mode(0o644))?)
    }

    /// Writes more at its end. Unlike the rest, that may not be on the disk yet when it is put in place.
    pub fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)
    }

    /// Puts it in place: readers see the old or the new one, also after a power cut. Returns it, at its end.
    pub fn commit(self) -> io::Result<File> {
        let (file, folder) = self.place()?;
        folder.sync_all()?;
        Ok(file)
    }

    /// The same, without waiting for the disk: a power cut may bring the old one back until the folder is synced, which is
    /// returned beside it. Errors: the old one is still in place.
    pub fn place(self) -> io::Result<(File, File)> {
        let Self { file, mut names } = self;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = File::from(openat(&names.folder, ".", flags, Mode::empty())?);
        renameat(&names.folder, &names.new, &names.folder, &names.name)?;
        names.done = true;
        Ok((file, folder))
    }
}
