//! Files that one command sees in place of others: its own `/etc/hosts`, its own `/etc/resolv.conf`.

use crate::sockets::sockopt::done;
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;

/// Files to mount over others, prepared before the command starts: nothing may be allocated then.
#[derive(Debug, Clone, Default)]
pub struct Mounts {
    pairs: Vec<(CString, CString)>,
    skipped: Vec<String>,
}

impl Mounts {
    /// Nothing: the command sees the system's files.
    pub fn none() -> Self {
        Self::default()
    }

    /// Shows each first path's file at the second, whose symbolic link is followed now; a missing
    /// second path is left out, see [`Self::skipped`]. Errors: a first path is not there.
    pub fn new<S: AsRef<Path>, T: AsRef<Path>>(pairs: &[(S, T)]) -> io::Result<Self> {
        let mut mounts = Self::none();
        for (source, target) in pairs {
            let (source, target) = (source.as_ref(), target.as_ref());
            let found = source.canonicalize().map_err(|error| {
                io::Error::new(error.kind(), format!("{}: {error}", source.display()))
            })?;
            match target.canonicalize() {
                Ok(real) => mounts.pairs.push((text(found)?, text(real)?)),
                Err(error) => mounts.skipped.push(format!(
                    "{} stays as it is: {error}; a file can only be shown where there is one",
                    target.display()
                )),
            }
        }
        Ok(mounts)
    }

    /// Entries that were left out, each with its reason.
    pub fn skipped(&self) -> &[String] {
        &self.skipped
    }

    /// Moves the calling process to its own mount namespace and mounts there, if there is anything
    /// to. Async-signal-safe.
    pub(crate) fn apply(&self) -> io::Result<()> {
        if self.pairs.is_empty() {
            return Ok(());
        }
        // SAFETY: a plain integer; called in a process that has one thread.
        done(unsafe { libc::unshare(libc::CLONE_NEWNS) })?;
        private()?;
        for (source, target) in &self.pairs {
            // SAFETY: both texts end in NUL and outlive the call; the others may be null for a bind.
            done(unsafe {
                libc::mount(
                    source.as_ptr(),
                    target.as_ptr(),
                    ptr::null(),
                    libc::MS_BIND,
                    ptr::null(),
                )
            })?;
        }
        Ok(())
    }
}

/// From here on mounts of this namespace do not propagate. Async-signal-safe.
pub(crate) fn private() -> io::Result<()> {
    let flags = libc::MS_REC | libc::MS_PRIVATE;
    // SAFETY: the texts are constants that end in NUL; a change of propagation reads nothing else.
    done(unsafe { libc::mount(c"none".as_ptr(), c"/".as_ptr(), ptr::null(), flags, ptr::null()) })
}

pub(crate) fn fresh_proc() -> io::Result<()> {
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    let name = c"proc".as_ptr();
    // SAFETY: the texts are constants that end in NUL; proc takes no options.
    done(unsafe { libc::mount(name, c"/proc".as_ptr(), name, flags, ptr::null()) })
}

/// A new file system in memory, of so many bytes at most, seen at `at` in the mount namespace of the caller.
pub(crate) fn memory(at: &Path, most: Option<u64>) -> io::Result<()> {
    let flags = libc::MS_NOSUID | libc::MS_NODEV;
    let name = c"tmpfs".as_ptr();
    let at = text(at.to_owned())?;
    let size = most.map(|bytes| format!(",size={bytes}")).unwrap_or_default();
    let options = CString::new(format!("mode=1777{size}"))?;
    // SAFETY: all texts end in NUL and outlive the call.
    done(unsafe { libc::mount(name, at.as_ptr(), name, flags, options.as_ptr().cast()) })
}

fn text(path: PathBuf) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_links_and_reports_missing_targets() {
        let folder = tempfile::tempdir().unwrap();
        let (own, real) = (folder.path().join("own"), folder.path().join("real"));
        std::fs::write(&own, "").unwrap();
        std::fs::write(&real, "").unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let missing = folder.path().join("missing");
        let mounts = Mounts::new(&[(&own, &link), (&own, &missing)]).unwrap();
        assert_eq!(mounts.pairs.len(), 1);
        assert!(mounts.pairs[0].1.to_str().unwrap().ends_with("/real"));
        assert!(mounts.skipped()[0].contains("missing stays as it is"), "{:?}", mounts.skipped());
        assert!(Mounts::new(&[(&missing, &own)]).is_err());
    }
}
