//! A file that is replaced as a whole, in two steps: what can fail is done before anything else is changed.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown,
};
use std::path::{Path, PathBuf};

/// Who owns a new file, and who may read it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewFile {
    /// User and group; `None`: whoever runs this.
    pub(crate) owner: Option<(u32, u32)>,
    pub(crate) mode: u32,
}

/// A written file beside the one that it will replace; removed if it does not.
#[derive(Debug)]
pub(crate) struct Prepared {
    new: PathBuf,
    path: PathBuf,
    /// Folders that were made for it, the outermost first.
    made: Vec<PathBuf>,
    done: bool,
}

impl Drop for Prepared {
    fn drop(&mut self) {
        if !self.done {
            // it is perhaps not there, and a folder perhaps not empty any more
            let _ = fs::remove_file(&self.new);
            self.made.iter().rev().for_each(|folder| drop(fs::remove_dir(folder)));
        }
    }
}

/// Writes a new version of a file beside it. An old one passes on its owner and its mode; a symbolic link stays one.
/// Errors: in words, with the path.
pub(crate) fn prepare(path: &Path, bytes: &[u8], like: NewFile) -> Result<Prepared, String> {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let failed = |what: &Path, error: io::Error| {
        let hint = match error.kind() {
            io::ErrorKind::PermissionDenied => "; run this as its owner or as root (sudo)",
            _ => "",
        };
        format!("{} cannot be written: {error}{hint}", what.display())
    };
    let folder = path.parent().unwrap_or(Path::new("/"));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let new = folder.join(format!(".{name}.new"));
    let mut prepared =
        Prepared { new: new.clone(), path: path.clone(), made: Vec::new(), done: false };
    make_folder(folder, like.owner, &mut prepared.made).map_err(|error| failed(folder, error))?;
    let write = || -> io::Result<()> {
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        let (owner, mode) = match fs::metadata(&path) {
            Ok(old) => (Some((old.uid(), old.gid())), old.mode() & 0o7777),
            Err(_) => (like.owner, like.mode),
        };
        if let Some((user, group)) = owner {
            match fchown(&file, Some(user), Some(group)) {
                // only root gives files away; the folder's owner keeps what it replaces
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
                done => done?,
            }
        }
        file.set_permissions(Permissions::from_mode(mode))?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().map_err(|error| failed(&path, error))?;
    Ok(prepared)
}

impl Prepared {
    /// Puts it in place: readers see the old file or the new one. Errors: in words, with the path.
    pub(crate) fn commit(mut self) -> Result<(), String> {
        let put = || {
            fs::rename(&self.new, &self.path)?;
            File::open(self.path.parent().unwrap_or(Path::new("/")))?.sync_all()
        };
        put().map_err(|error| format!("{} cannot be written: {error}", self.path.display()))?;
        self.done = true;
        Ok(())
    }
}

/// Makes a folder that others may enter but for the service's, which its group may.
fn make_folder(
    folder: &Path,
    owner: Option<(u32, u32)>,
    made: &mut Vec<PathBuf>,
) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    if let Some(above) = folder.parent() {
        make_folder(above, None, made)?;
    }
    DirBuilder::new().mode(if owner.is_some() { 0o750 } else { 0o755 }).create(folder)?;
    made.push(folder.to_owned());
    match owner {
        Some((user, group)) => fchown(File::open(folder)?, Some(user), Some(group)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_keeps_its_mode_and_one_that_is_not_committed_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/config.toml");
        let like = NewFile { owner: None, mode: 0o640 };
        drop(prepare(&path, b"none", like).unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        prepare(&path, b"one", like).unwrap().commit().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
        fs::set_permissions(&path, Permissions::from_mode(0o604)).unwrap();
        drop(prepare(&path, b"two", like).unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"one");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        prepare(&link, b"three", like).unwrap().commit().unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&path).unwrap(), b"three");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o604);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        let below_a_file = prepare(&path.join("x/y"), b"", like).unwrap_err();
        assert!(below_a_file.contains("cannot be written"), "{below_a_file}");
    }
}
