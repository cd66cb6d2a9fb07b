//! Congestion controls that stay when the process that loaded them ends: for a service that has no privilege of its
//! own, loaded once by root.

use super::group::Maps;
use super::{Control, Loaded, Missing};
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::Path;
use std::sync::Arc;

/// Where they are pinned.
pub const PINS: &str = "/sys/fs/bpf/ekiden";

/// What a control that is pinned below `pins` is called.
pub(super) fn name(control: Control, pins: &Path) -> Option<String> {
    (1..=super::NAMES).map(|nth| control.name(nth)).find(|name| pins.join(name).exists())
}

/// The number of a file, which another one of its name does not have; 0 where there is none.
pub(super) fn number(file: &Path) -> u64 {
    fs::metadata(file).map_or(0, |metadata| metadata.ino())
}

/// What is pinned below `pins`, by the kernel's names.
#[must_use]
pub fn pinned(pins: &Path) -> Vec<String> {
    Control::ALL.into_iter().filter_map(|control| name(control, pins)).collect()
}

/// Loads `control` and pins it below `pins`, so that `user` (and its group) may use it. Returns its name, and
/// whether it was there already.
///
/// # Errors
/// What is missing, or why it cannot be pinned; then nothing of it is left.
pub fn pin(
    control: Control,
    pins: &Path,
    user: Option<(u32, u32)>,
) -> Result<(String, bool), Missing> {
    let refused =
        |error: &dyn std::fmt::Display| Missing::Place(format!("{}: {error}", pins.display()));
    let (name, before) = match name(control, pins) {
        Some(name) => (name, true),
        None => {
            let mut loaded = Loaded::load(control)?;
            // what an earlier run that was killed has left
            remove(pins, control);
            fs::create_dir_all(pins).map_err(|error| {
                let hint = "is there a BPF file system? `mount -t bpf bpf /sys/fs/bpf` as root";
                refused(&format!("{error}; {hint}"))
            })?;
            let name = loaded.name().to_owned();
            if let Err(error) = put(&mut loaded, pins) {
                remove(pins, control);
                return Err(refused(&error));
            }
            (name, false)
        }
    };
    if let Some((user, group)) = user {
        let own = |path: &Path| chown(path, Some(user), Some(group));
        let mut maps = Maps::NAMES.iter().map(|name| pins.join(name)).filter(|path| path.exists());
        // the folder stays root's: nobody else removes what is in it
        maps.try_for_each(|path| own(&path)).map_err(|error| refused(&error))?;
    }
    Ok((name, before))
}

fn put(loaded: &mut Loaded, pins: &Path) -> libbpf_rs::Result<()> {
    if let Some(maps) = loaded.maps.as_mut().and_then(Arc::get_mut) {
        maps.pin(pins)?;
    }
    match &mut loaded.link {
        Some(link) => link.pin(pins.join(&*loaded.name)),
        None => Ok(()),
    }
}

fn remove(pins: &Path, control: Control) -> bool {
    let names = (1..=super::NAMES).map(|nth| control.name(nth));
    let maps =
        Maps::NAMES.iter().filter(|_| control == Control::Hold).map(|name| (*name).to_owned());
    let mut any = false;
    for name in names.chain(maps) {
        any |= fs::remove_file(pins.join(name)).is_ok();
    }
    any
}

/// Removes what [`pin`] put below `pins`. Sockets that use it keep it until they close. Returns what was there.
///
/// # Errors
/// `PermissionDenied` for anybody but who pinned it.
pub fn unpin(pins: &Path) -> io::Result<Vec<Control>> {
    let owner = match fs::metadata(pins) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        metadata => metadata?.uid(),
    };
    let own = fs::metadata("/proc/self")?.uid();
    if own != 0 && own != owner {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let gone = Control::ALL.into_iter().filter(|control| remove(pins, *control)).collect();
    fs::remove_dir(pins)?;
    Ok(gone)
}
