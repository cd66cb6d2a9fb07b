//! The way to a file, folder by folder: each is opened in the one before it, so that nobody changes the way behind root.
//!
//! Root follows a link of another user only to a folder of that same user.

use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, fstat, mkdirat, openat, readlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::fchown;
use std::path::{Component, Path};

/// Links on one way. The kernel follows as many.
const LINKS: u8 = 40;
/// For the owner alone.
const CLOSED: u32 = 0o700;
/// Others pass through it.
const OPEN: u32 = 0o755;

/// User and group.
pub(super) type Owner = (u32, u32);

/// The open folder that a file is in, and the file's name. Errors: also that a path names no file.
pub(super) fn to(path: &Path) -> io::Result<(OwnedFd, OsString)> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    Ok((enter(CWD, folder, &mut { LINKS })?, name.to_owned()))
}

/// Makes a folder, and those above it that are missing. With an owner it is that one's, and those above are root's, as
/// others pass through them. Without, each is closed and has the owner of the one above.
pub(super) fn make(folder: &Path, owner: Option<Owner>) -> io::Result<()> {
    let links = &mut { LINKS };
    let mut at = open(CWD, OsStr::new("."))?;
    let mut parts = folder.components().peekable();
    while let Some(part) = parts.next() {
        let Component::Normal(name) = part else {
            at = enter(at.as_fd(), Path::new(&part), links)?;
            continue;
        };
        let above = fstat(&at)?;
        let (mode, owner) = match owner {
            None => (CLOSED, Some((above.st_uid, above.st_gid))),
            Some(owner) if parts.peek().is_none() => (CLOSED, Some(owner)),
            Some(_) => (OPEN, None),
        };
        at = match step(at.as_fd(), name, links) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                match mkdirat(&at, name, Mode::from_raw_mode(mode)) {
                    Ok(()) => made(at.as_fd(), name, owner)?,
                    // another program was quicker, or a link leads nowhere
                    Err(Errno::EXIST) => step(at.as_fd(), name, links)?,
                    Err(error) => return Err(error.into()),
                }
            }
            found => found?,
        };
    }
    Ok(())
}

/// Gives what this process has made to a user. Nothing else is given, wherever it came from.
pub(super) fn give(made: impl AsFd, (user, group): Owner) -> io::Result<()> {
    let owner = fstat(&made)?.st_uid;
    if owner == user || owner != geteuid().as_raw() {
        return Ok(());
    }
    match fchown(made, Some(user), Some(group)) {
        // only root gives files away; others keep what they make in another's folder
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        other => other,
    }
}

/// Opens a folder that was just made, and gives it to its owner. Errors: another one, or a link, has taken its place.
fn made(at: BorrowedFd<'_>, name: &OsStr, owner: Option<Owner>) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = openat(at, name, flags, Mode::empty())?;
    // others than root give nothing away
    let Some(owner) = owner.filter(|(user, _)| *user != 0 && geteuid().is_root()) else {
        return Ok(folder);
    };
    for entry in Dir::read_from(&folder)? {
        if !matches!(entry?.file_name().to_bytes(), b"." | b"..") {
            return Err(Errno::NOTEMPTY.into());
        }
    }
    give(&folder, owner)?;
    Ok(folder)
}

fn enter(at: BorrowedFd<'_>, path: &Path, links: &mut u8) -> io::Result<OwnedFd> {
    let mut folder = open(at, OsStr::new("."))?;
    for part in path.components() {
        folder = match part {
            Component::Normal(name) => step(folder.as_fd(), name, links)?,
            other => open(folder.as_fd(), other.as_os_str())?,
        };
    }
    Ok(folder)
}

/// The folder of this name, or where its link leads.
fn step(at: BorrowedFd<'_>, name: &OsStr, links: &mut u8) -> io::Result<OwnedFd> {
    match open(at, name) {
        // a link is no folder either
        Err(Errno::NOTDIR | Errno::LOOP) => {}
        opened => return Ok(opened?),
    }
    let link = openat(at, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let owner = fstat(&link)?;
    if FileType::from_raw_mode(owner.st_mode) != FileType::Symlink {
        return Err(Errno::NOTDIR.into());
    }
    *links = links.checked_sub(1).ok_or(Errno::LOOP)?;
    let target = readlinkat(&link, "", Vec::new())?;
    let folder = enter(at, Path::new(OsStr::from_bytes(target.as_bytes())), links)?;
    if geteuid().is_root() && !may_lead(owner.st_uid, fstat(&folder)?.st_uid) {
        let why = format!(
            "the link \"{}\" of user {} leads to a folder of another user, and root does not follow it",
            name.display(),
            owner.st_uid
        );
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    Ok(folder)
}

/// Whether root follows a link of one user to a folder of another.
const fn may_lead(link: u32, folder: u32) -> bool {
    link == 0 || link == folder
}

fn open(at: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    // as a folder, so that an automatic mount takes place
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(at, name, flags, Mode::empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use tempfile::tempdir;

    #[test]
    fn root_follows_a_link_of_root_and_others_to_their_own_folders() {
        assert!(may_lead(0, 0) && may_lead(0, 997) && may_lead(997, 997));
        assert!(!may_lead(997, 0) && !may_lead(997, 998));
    }

    #[test]
    fn a_link_that_took_the_place_of_a_new_folder_is_not_given_away() {
        let folder = tempdir().unwrap();
        fs::create_dir(folder.path().join("root")).unwrap();
        fs::write(folder.path().join("root/secret"), "kept").unwrap();
        symlink("root/secret", folder.path().join("file")).unwrap();
        symlink("root", folder.path().join("folder")).unwrap();
        fs::create_dir(folder.path().join("none")).unwrap();
        symlink("none", folder.path().join("empty")).unwrap();
        let (at, _) = to(&folder.path().join("x")).unwrap();
        let another = Some((4711, 4711));
        for name in ["file", "folder", "empty"] {
            assert!(made(at.as_fd(), OsStr::new(name), another).is_err(), "{name}");
        }
        made(at.as_fd(), OsStr::new("root"), None).unwrap();
        // nor a folder with files in it
        if geteuid().is_root() {
            let error = made(at.as_fd(), OsStr::new("root"), another).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::DirectoryNotEmpty);
        }
    }

    #[test]
    fn a_way_goes_through_links_and_back_and_ends_in_a_ring_of_links() {
        let folder = tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("a/b")).unwrap();
        fs::write(at("a/b/file"), "").unwrap();
        symlink("a/../a/b", at("relative")).unwrap();
        symlink(at("relative"), at("absolute")).unwrap();
        symlink("ring", at("ring")).unwrap();
        let wanted = fs::metadata(at("a/b")).map(|data| std::os::unix::fs::MetadataExt::ino(&data));
        for path in ["a/b/file", "relative/file", "absolute/./file", "absolute/../b/file"] {
            let (found, name) = to(&at(path)).unwrap();
            assert_eq!(
                (fstat(found).unwrap().st_ino, name.as_os_str()),
                (wanted.as_ref().copied().unwrap(), OsStr::new("file"))
            );
        }
        assert!(to(&at("ring/file")).is_err());
        for none in ["a/b/file/x", "missing/x"] {
            assert!(to(&at(none)).is_err(), "{none}");
        }
        let error = make(&at("a/b/file"), None).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotADirectory);
    }
}
