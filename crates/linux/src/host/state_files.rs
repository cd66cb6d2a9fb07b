//! Files that a program keeps: for its own user alone, and replaced as a whole.
//!
//! Root may change them for a daemon of another user. What root makes here therefore gets the owner
//! of the file that it replaces, or else of the folder that it is in. No symbolic link is followed at a file's own name, so that this user
//! cannot have root write elsewhere.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::{Path, PathBuf};

/// Makes a folder and those above it that are missing, closed to other users. Folders that are
/// there stay as they are.
pub fn make_folder(folder: &Path) -> io::Result<()> {
    let mut missing = Vec::new();
    let mut above = Some(folder);
    while let Some(path) = above.filter(|path| !path.as_os_str().is_empty()) {
        if path.exists() {
            break;
        }
        missing.push(path);
        above = path.parent();
    }
    for path in missing.into_iter().rev() {
        match DirBuilder::new().mode(0o700).create(path) {
            // another program was quicker
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => {
                made?;
                give(&File::open(path)?, &fs::metadata(folder_of(path))?)?;
            }
        }
    }
    // a file in the folder's place is an error
    match fs::metadata(folder)?.is_dir() {
        true => Ok(()),
        false => Err(io::ErrorKind::NotADirectory.into()),
    }
}

/// Opens a file to read and write; makes it, empty and for its owner alone, if it is missing.
pub fn open(path: &Path) -> io::Result<File> {
    open_as(path, OpenOptions::new().read(true).write(true))
}

/// Opens a file to add to its end; made as [`open`] makes it.
pub fn append(path: &Path) -> io::Result<File> {
    open_as(path, OpenOptions::new().append(true))
}

/// Writes a file as a whole: readers see the old or the new one, also after a power cut. Returns the
/// new one, at its end.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<File> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(".new");
    let new = path.with_file_name(hidden);
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = open(&new)?;
    if let Ok(old) = fs::symlink_metadata(path) {
        give(&file, &old)?;
    }
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    File::open(folder_of(path))?.sync_all()?;
    Ok(file)
}

fn open_as(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let options = options.mode(0o600).custom_flags(libc::O_NOFOLLOW);
    loop {
        match options.create(false).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            opened => return opened,
        }
        match options.create_new(true).open(path) {
            // another program was quicker
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                options.create_new(false);
            }
            made => {
                let file = made?;
                give(&file, &fs::metadata(folder_of(path))?)?;
                return Ok(file);
            }
        }
    }
}

fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

fn give(made: &File, like: &Metadata) -> io::Result<()> {
    if made.metadata()?.uid() == like.uid() {
        return Ok(());
    }
    match fchown(made, Some(like.uid()), Some(like.gid())) {
        // only root gives files away; others keep what they make in another's folder
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{chown, symlink};
    use tempfile::tempdir;

    #[test]
    fn a_file_is_replaced_as_a_whole_and_closed_to_others() {
        let folder = tempdir().unwrap();
        let (inner, path) = (folder.path().join("a/b"), folder.path().join("a/b/state.json"));
        make_folder(&inner).unwrap();
        make_folder(&inner).unwrap();
        for text in ["longer than the next", "new"] {
            replace(&path, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        append(&path).unwrap().write_all(b", and more").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new, and more");
        assert_eq!(fs::read_dir(&inner).unwrap().count(), 1);
        for (path, mode) in [(&path, 0o600), (&inner, 0o700)] {
            assert_eq!(fs::metadata(path).unwrap().mode() & 0o777, mode);
        }
    }

    #[test]
    fn a_folder_that_exists_keeps_its_mode_and_may_be_a_link() {
        let folder = tempdir().unwrap();
        let (own, link) = (folder.path().join("own"), folder.path().join("link"));
        DirBuilder::new().mode(0o755).create(&own).unwrap();
        let before = fs::metadata(&own).unwrap().mode();
        symlink(&own, &link).unwrap();
        make_folder(&own).unwrap();
        make_folder(&link).unwrap();
        assert_eq!(fs::metadata(&own).unwrap().mode(), before);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }

    #[test]
    fn no_link_leads_a_write_elsewhere() {
        let folder = tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("elsewhere"), "kept").unwrap();
        for name in ["state", ".state.new"] {
            symlink(at("elsewhere"), at(name)).unwrap();
        }
        symlink(at("missing"), at("dangling")).unwrap();
        assert!(open(&at("state")).is_err() && append(&at("state")).is_err());
        assert!(open(&at("dangling")).is_err() && !at("missing").exists());
        replace(&at("state"), b"new").unwrap();
        assert_eq!(fs::read_to_string(at("elsewhere")).unwrap(), "kept");
        assert_eq!(fs::read_to_string(at("state")).unwrap(), "new");
        assert!(make_folder(&at("elsewhere")).is_err());
    }

    #[test]
    fn root_leaves_files_to_the_user_of_the_folder() {
        let folder = tempdir().unwrap();
        let (user, other) = (4711, 4712);
        if chown(folder.path(), Some(user), Some(user)).is_err() {
            assert!(std::env::var_os("CI").is_none(), "this test needs root");
            eprintln!("SKIPPED: files of another user: only root can give files away");
            return;
        }
        let inner = folder.path().join("a/b");
        make_folder(&inner).unwrap();
        replace(&inner.join("replaced"), b"1").unwrap();
        open(&inner.join("opened")).unwrap();
        for name in ["a", "a/b", "a/b/replaced", "a/b/opened"] {
            let made = fs::metadata(folder.path().join(name)).unwrap();
            assert_eq!((made.uid(), made.gid()), (user, user), "{name}");
        }
        // a file that has its own owner keeps it
        chown(inner.join("replaced"), Some(other), Some(other)).unwrap();
        replace(&inner.join("replaced"), b"2").unwrap();
        assert_eq!(fs::metadata(inner.join("replaced")).unwrap().uid(), other);
    }
}
