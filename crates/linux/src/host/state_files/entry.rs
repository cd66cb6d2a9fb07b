//! A file in an open folder: found without a link, made, or looked at.

use super::way::{Owner, give};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, openat, statat};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;

/// Opens a file that is there. Errors: also that it is a link, a pipe or a device.
pub(super) fn find(folder: &OwnedFd, name: &OsStr, flags: OFlags) -> io::Result<File> {
    // a pipe in its place would be waited for
    let own = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(openat(folder, name, flags | own, Mode::empty())?);
    let data = file.metadata()?;
    if !data.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    // some kernels let a user make another name for a file of root
    let is_foreign = data.nlink() > 1 && data.uid() != fstat(folder)?.st_uid;
    if is_foreign && geteuid().is_root() {
        let why = "it has another name, and is not of the folder's user";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    Ok(file)
}

/// Makes a file for its owner, or else for the folder's.
pub(super) fn create(
    folder: &OwnedFd,
    name: &OsStr,
    flags: OFlags,
    owner: Option<Owner>,
) -> io::Result<File> {
    let own = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(openat(folder, name, flags | own, Mode::from_raw_mode(0o600))?);
    let above = fstat(folder)?;
    give(&file, owner.unwrap_or((above.st_uid, above.st_gid)))?;
    Ok(file)
}

/// The owner of what has this name, if anything has. Errors: a folder has it.
pub(super) fn owner_of(folder: &OwnedFd, name: &OsStr) -> io::Result<Option<Owner>> {
    match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(data) if FileType::from_raw_mode(data.st_mode) == FileType::Directory => {
            Err(Errno::ISDIR.into())
        }
        Ok(data) => Ok(Some((data.st_uid, data.st_gid))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
