//! The state directory.

use std::env;
use std::path::PathBuf;

/// The default directory: systemd's for the service, /var/lib/ekiden for root, so that root's commands
/// change what the packaged service reads, else the user's own; `None` without a home.
pub(crate) fn directory() -> Option<PathBuf> {
    let absolute =
        |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if let Some(service) = absolute("STATE_DIRECTORY") {
        return Some(service);
    }
    if rustix::process::geteuid().is_root() {
        return Some(PathBuf::from("/var/lib/ekiden"));
    }
    let home = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
    Some(home?.join("ekiden"))
}
