//! A user namespace in which one keeps one's name.

use std::fs;
use std::io;

/// Who the program runs as.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ids {
    user: u32,
    group: u32,
}

impl Ids {
    /// As of before the new namespace, in which there is nobody yet.
    pub(super) fn now() -> Self {
        // SAFETY: no arguments, and they cannot fail.
        let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
        Self { user, group }
    }

    /// In the new namespace, makes user and group known by the same numbers.
    pub(super) fn map(self) -> io::Result<()> {
        // else somebody whom a group is *denied* something could leave it; user_namespaces(7)
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("{0} {0} 1", self.user))?;
        fs::write("/proc/self/gid_map", format!("{0} {0} 1", self.group))
    }
}
