//! Files that a program keeps: for its own user alone, and replaced as a whole.
//!
//! Root may change them for a daemon of another user, who may be an attacker by then. What root makes here gets the
//! owner of the file that it replaces, or else of the folder that it is in. No symbolic link is followed at a file's own
//! name. On the way there, root follows links of root, and those of another user to this user's own folders. So nobody
//! can have root read, write or give away a file elsewhere.

mod entry;
mod prepared;
mod way;

pub use prepared::{Prepared, prepare};

use entry::create;
use rustix::fs::{OFlags, fstat};
use rustix::process::geteuid;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Makes a folder and those above it that are missing, closed to other users. Folders that are
/// there stay as they are.
pub fn make_folder(folder: &Path) -> io::Result<()> {
    way::make(folder, None)
}

/// Makes a folder for a user and a group, closed to others. Those above it that are missing belong to whoever runs this,
/// and others pass through them. Folders that are there stay as they are.
pub fn make_folder_for(folder: &Path, owner: (u32, u32)) -> io::Result<()> {
    way::make(folder, Some(owner))
}

/// Reads a file. Errors: also that it is a link, a pipe or a device.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    find(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens a file that is there, to read it. Errors: also that it is a link, a pipe or a device.
pub fn find(path: &Path) -> io::Result<File> {
    let (folder, name) = way::to(path)?;
    entry::find(&folder, &name, OFlags::RDONLY)
}

/// Opens a file to read and write; makes it, empty and for its owner alone, if it is missing.
pub fn open(path: &Path) -> io::Result<File> {
    find_or_create(path, OFlags::RDWR)
}

/// Opens a file to add to its end; made as [`open`] makes it.
pub fn append(path: &Path) -> io::Result<File> {
    find_or_create(path, OFlags::WRONLY | OFlags::APPEND)
}

/// Opens a log to add to its end. A new one is closed to others, but its group may read it. It may be a link, a pipe or a
/// device, unless root finds it in the folder of another user: there this is [`append`].
pub fn append_log(path: &Path) -> io::Result<File> {
    if geteuid().is_root() && fstat(&way::to(path)?.0)?.st_uid != 0 {
        return append(path);
    }
    OpenOptions::new().append(true).create(true).mode(0o640).open(path)
}

/// Gives files that root has in this folder to the folder's owner: what another library made there. Does nothing for other
/// users than root. Errors: the folder cannot be read, or a file cannot be given away.
pub fn give_files(folder: &Path) -> io::Result<()> {
    if !geteuid().is_root() {
        return Ok(());
    }
    for entry in std::fs::read_dir(folder)? {
        let (at, name) = way::to(&entry?.path())?;
        let above = fstat(&at)?;
        // folders, links and the like are not files of this program
        if let Ok(file) = entry::find(&at, &name, OFlags::RDONLY) {
            way::give(&file, (above.st_uid, above.st_gid))?;
        }
    }
    Ok(())
}

/// Writes a file as a whole: readers see the old or the new one, also after a power cut. Returns the
/// new one, at its end.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<File> {
    prepare(path, bytes)?.commit()
}

fn find_or_create(path: &Path, flags: OFlags) -> io::Result<File> {
    let (folder, name) = way::to(path)?;
    loop {
        match entry::find(&folder, &name, flags) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            found => return found,
        }
        match create(&folder, &name, flags, None) {
            // another program was quicker
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::Mode;
    use std::fs::{self, DirBuilder};
    use std::io::Write as _;
    use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, chown, lchown, symlink};
    use std::path::PathBuf;
    use tempfile::{TempDir, tempdir};

    const USER: u32 = 4711;

    /// A folder of another user, and one of root beside it with a file that others may not read.
    fn folders_of_two() -> Option<(TempDir, PathBuf, PathBuf)> {
        let all = tempdir().unwrap();
        let [user, root] = ["user", "root"].map(|name| all.path().join(name));
        fs::create_dir(&user).unwrap();
        fs::create_dir(&root).unwrap();
        fs::write(root.join("secret"), "secret").unwrap();
        if chown(&user, Some(USER), Some(USER)).is_err() {
            assert!(std::env::var_os("CI").is_none(), "this test needs root");
            eprintln!("SKIPPED: files of another user: only root can give files away");
            return None;
        }
        Some((all, user, root))
    }

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
        assert!(read(&at("dangling")).is_err());
        assert_eq!(read(&at("state")).unwrap(), b"new");
        symlink(at("elsewhere"), at("read")).unwrap();
        assert!(read(&at("read")).is_err());
    }

    #[test]
    fn a_prepared_file_leaves_the_old_one_until_it_is_put_in_place() {
        let folder = tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("elsewhere"), "kept").unwrap();
        symlink("elsewhere", at("state")).unwrap();
        drop(prepare(&at("state"), b"new").unwrap());
        assert!(fs::symlink_metadata(at("state")).unwrap().is_symlink());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        let prepared = prepare(&at("state"), b"new").unwrap();
        prepared.open_to_others().unwrap();
        prepared.commit().unwrap();
        assert_eq!(read(&at("state")).unwrap(), b"new");
        assert_eq!(fs::metadata(at("state")).unwrap().mode() & 0o777, 0o644);
        assert_eq!(fs::read_to_string(at("elsewhere")).unwrap(), "kept");
        // more may come before it is in place, and after
        let mut prepared = prepare(&at("state"), b"newer").unwrap();
        prepared.add(b", and more").unwrap();
        assert_eq!(read(&at("state")).unwrap(), b"new");
        let (mut file, folder_of_it) = prepared.place().unwrap();
        file.write_all(b" still").unwrap();
        folder_of_it.sync_all().unwrap();
        assert_eq!(read(&at("state")).unwrap(), b"newer, and more still");
        // nothing can take the place of a folder
        fs::create_dir(at("folder")).unwrap();
        let error = prepare(&at("folder"), b"new").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::IsADirectory);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    }

    #[test]
    fn a_file_is_found_and_none_is_made() {
        let folder = tempdir().unwrap();
        let path = folder.path().join("state");
        assert_eq!(find(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
        replace(&path, b"kept").unwrap();
        assert!(find(&path).unwrap().write_all(b"new").is_err());
        assert_eq!(read(&path).unwrap(), b"kept");
    }

    #[test]
    fn a_pipe_in_the_place_of_a_file_is_not_waited_for() {
        let folder = tempdir().unwrap();
        let path = folder.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, Mode::from_raw_mode(0o600)).unwrap();
        assert!(read(&path).is_err() && open(&path).is_err() && append(&path).is_err());
    }

    #[test]
    fn root_goes_no_way_that_another_user_has_bent() {
        let Some((_all, user, root)) = folders_of_two() else { return };
        let link = user.join("tls");
        symlink(&root, &link).unwrap();
        lchown(&link, Some(USER), Some(USER)).unwrap();
        let before = || fs::read_dir(&root).unwrap().count();
        assert!(make_folder(&link).is_err() && make_folder(&link.join("made")).is_err());
        assert!(make_folder_for(&link.join("made"), (USER, USER)).is_err());
        let key = link.join("key.pem");
        assert!(replace(&key, b"key").is_err() && open(&key).is_err() && append(&key).is_err());
        let why = read(&link.join("secret")).unwrap_err().to_string();
        assert!(why.contains("\"tls\" of user 4711"), "{why}");
        assert_eq!((before(), fs::metadata(&root).unwrap().uid()), (1, 0));
        // root's own link, and one to a folder of the same user
        lchown(&link, Some(0), Some(0)).unwrap();
        assert_eq!(read(&link.join("secret")).unwrap(), b"secret");
        fs::remove_file(&link).unwrap();
        make_folder(&user.join("own")).unwrap();
        symlink("own", &link).unwrap();
        lchown(&link, Some(USER), Some(USER)).unwrap();
        replace(&key, b"key").unwrap();
        assert_eq!(fs::metadata(user.join("own/key.pem")).unwrap().uid(), USER);
    }

    #[test]
    fn root_uses_no_second_name_of_its_own_file() {
        let Some((_all, user, root)) = folders_of_two() else { return };
        let path = user.join("log");
        fs::hard_link(root.join("secret"), &path).unwrap();
        assert!(read(&path).is_err() && open(&path).is_err() && append(&path).is_err());
        replace(&path, b"new").unwrap();
        assert_eq!(fs::read_to_string(root.join("secret")).unwrap(), "secret");
        // a file of this user may have one
        fs::remove_file(&path).unwrap();
        open(&path).unwrap();
        fs::hard_link(&path, user.join("backup")).unwrap();
        open(&path).unwrap();
    }

    #[test]
    fn a_folder_for_a_user_is_below_folders_of_root() {
        let Some((all, ..)) = folders_of_two() else { return };
        let folder = all.path().join("a/b/state");
        make_folder_for(&folder, (USER, USER)).unwrap();
        make_folder_for(&folder, (0, 0)).unwrap();
        for (path, mode, user) in [("a", 0o755, 0), ("a/b", 0o755, 0), ("a/b/state", 0o700, USER)] {
            let data = fs::metadata(all.path().join(path)).unwrap();
            assert_eq!((data.mode() & 0o777, data.uid()), (mode, user), "{path}");
        }
    }

    #[test]
    fn root_leaves_files_to_the_user_of_the_folder() {
        let Some((_all, folder, _)) = folders_of_two() else { return };
        let (user, other) = (USER, 4712);
        let inner = folder.join("a/b");
        make_folder(&inner).unwrap();
        replace(&inner.join("replaced"), b"1").unwrap();
        open(&inner.join("opened")).unwrap();
        for name in ["a", "a/b", "a/b/replaced", "a/b/opened"] {
            let made = fs::metadata(folder.join(name)).unwrap();
            assert_eq!((made.uid(), made.gid()), (user, user), "{name}");
        }
        // a file that has its own owner keeps it
        chown(inner.join("replaced"), Some(other), Some(other)).unwrap();
        replace(&inner.join("replaced"), b"2").unwrap();
        assert_eq!(fs::metadata(inner.join("replaced")).unwrap().uid(), other);
    }

    #[test]
    fn root_leaves_logs_and_files_of_libraries_to_the_user_of_the_folder() {
        let Some((_all, user, root)) = folders_of_two() else { return };
        let owner = |path: PathBuf| fs::metadata(path).unwrap().uid();
        append_log(&user.join("log")).unwrap();
        append_log(&root.join("log")).unwrap();
        assert_eq!((owner(user.join("log")), owner(root.join("log"))), (USER, 0));
        fs::write(user.join("made"), "").unwrap();
        fs::create_dir(user.join("folder")).unwrap();
        fs::hard_link(root.join("secret"), user.join("name")).unwrap();
        symlink(root.join("secret"), user.join("link")).unwrap();
        give_files(&user).unwrap();
        assert_eq!((owner(user.join("made")), owner(root.join("secret"))), (USER, 0));
        // root follows no link of theirs
        assert!(append_log(&user.join("link")).is_err());
        assert_eq!(fs::read(root.join("secret")).unwrap(), b"secret");
    }

    #[test]
    fn a_log_may_be_a_device_or_a_link_and_a_new_one_is_closed_to_others() {
        let folder = tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        append_log(Path::new("/dev/null")).unwrap().write_all(b"line").unwrap();
        symlink(at("log"), at("link")).unwrap();
        append_log(&at("link")).unwrap().write_all(b"line").unwrap();
        append_log(&at("log")).unwrap().write_all(b", and another").unwrap();
        assert_eq!(fs::read_to_string(at("log")).unwrap(), "line, and another");
        assert_eq!(fs::metadata(at("log")).unwrap().mode() & 0o137, 0);
    }
}
