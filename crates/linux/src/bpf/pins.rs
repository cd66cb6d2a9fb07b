//! Congestion controls that stay when the process that loaded them ends: for a service that has no privilege of its
//! own, loaded once by root.

use super::group::Maps;
use super::{Control, Loaded, Missing, Needs};
use std::ffi::CString;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::mem;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, PermissionsExt as _, chown, symlink,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where they are pinned: a BPF file system of its own. The system's, /sys/fs/bpf, is closed to all but root where
/// systemd mounts it, and /run/ekiden is the service's.
pub const PINS: &str = "/run/ekiden-bpf";

/// A folder that processes lock which use what is pinned; its owner is who may. One that anybody can open anybody
/// can lock.
const LOCK: &str = "lock";

/// A file that was pinned, and which it was.
#[derive(Debug)]
pub(super) struct Pin {
    at: PathBuf,
    number: u64,
}

impl Pin {
    pub(super) fn at(at: PathBuf) -> Self {
        Self { number: number(&at), at }
    }

    /// Whether it still is there, and no other of its name.
    pub(super) fn is_current(&self) -> bool {
        self.number != 0 && number(&self.at) == self.number
    }
}

/// The number of a file, which another one of its name does not have; 0 where there is none.
fn number(file: &Path) -> u64 {
    fs::metadata(file).map_or(0, |metadata| metadata.ino())
}

/// Alone among those that use what is pinned below `pins`, as long as it is kept.
pub(super) fn lock(pins: &Path) -> io::Result<File> {
    locked(&pins.join(LOCK))
}

fn locked(folder: &Path) -> io::Result<File> {
    let folder = File::open(folder)?;
    folder.lock()?;
    Ok(folder)
}

/// What a control that is pinned below `pins` is called.
///
/// # Errors
/// When that cannot be seen.
pub(super) fn name(control: Control, pins: &Path) -> io::Result<Option<String>> {
    for nth in 1..=super::NAMES {
        let name = control.name(nth);
        if pins.join(&name).try_exists()? {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// What is pinned below `pins`: the kernel's name for each, or why this process may not use it.
#[must_use]
pub fn pinned(pins: &Path) -> Vec<(Control, Result<String, Missing>)> {
    let judge = |control| {
        let opened = Loaded::open(control, pins).transpose()?;
        Some((control, opened.map(|loaded| loaded.name().to_owned())))
    };
    Control::ALL.into_iter().filter_map(judge).collect()
}

/// Loads `control` and pins it below `pins`, so that `user` (and its group) may use it. Returns its name, and
/// whether it was there already. Another release's gives way.
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
    Needs::look().met()?;
    // two that load at once do so one after the other
    let _lock = folder(pins).map_err(|error| refused(&error))?;
    let release = pins.join(release(control));
    let same = fs::read_link(&release).is_ok_and(|is| is == Path::new(&content(control)));
    let before = name(control, pins).map_err(|error| refused(&error))?.filter(|_| same);
    let (name, before) = match before {
        Some(name) => (name, true),
        None => {
            // another release's, or what an earlier run that was killed has left: their names are free then
            remove(pins, control);
            let mut loaded = Loaded::load(control)?;
            let name = loaded.name().to_owned();
            let put = put(&mut loaded, pins).map_err(|error| refused(&error));
            let put = put.and_then(|()| {
                symlink(content(control), &release).map_err(|error| refused(&error))
            });
            if put.is_err() {
                remove(pins, control);
            }
            put?;
            (name, false)
        }
    };
    if let Some((user, group)) = user {
        let own = |path: &Path| chown(path, Some(user), Some(group));
        let shared = Maps::NAMES.iter().chain([&LOCK]).map(|name| pins.join(name));
        let mut shared = shared.filter(|path| path.exists());
        // the folder stays root's: nobody else removes what is in it
        shared.try_for_each(|path| own(&path)).map_err(|error| refused(&error))?;
    }
    Ok((name, before))
}

/// Makes `pins` a folder of a BPF file system, which anybody may pass and nobody list, and locks it.
fn folder(pins: &Path) -> io::Result<File> {
    fs::create_dir_all(pins)?;
    let mut lock = locked(pins)?;
    if !is_bpf(pins)? {
        mount(pins)?;
    }
    // what was locked is below what somebody has mounted meanwhile
    if lock.metadata()?.dev() != fs::metadata(pins)?.dev() {
        lock = locked(pins)?;
    }
    fs::set_permissions(pins, Permissions::from_mode(0o711))?;
    match DirBuilder::new().mode(0o500).create(pins.join(LOCK)) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(lock),
    }
}

/// Which program is pinned, where the link of this name leads: names there have no dots, and files no content.
fn release(control: Control) -> String {
    format!("{control}-release")
}

/// What tells this release's program from others': FNV-1a of its object.
fn content(control: Control) -> String {
    let hash = control.object().iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
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

/// Whether any program was there.
fn remove(pins: &Path, control: Control) -> bool {
    let maps = Maps::NAMES.iter().filter(|_| control == Control::Hold);
    for name in maps.map(|name| (*name).to_owned()).chain([release(control)]) {
        let _ = fs::remove_file(pins.join(name));
    }
    let names = (1..=super::NAMES).map(|nth| control.name(nth));
    names.fold(false, |any, name| fs::remove_file(pins.join(name)).is_ok() | any)
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
    let _lock = locked(pins)?;
    let gone = Control::ALL.into_iter().filter(|control| remove(pins, *control)).collect();
    match fs::remove_dir(pins.join(LOCK)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    match fs::remove_dir(pins) {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            unmount(pins)?;
            fs::remove_dir(pins)?;
        }
        removed => removed?,
    }
    Ok(gone)
}

fn text(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

fn is_bpf(path: &Path) -> io::Result<bool> {
    let path = text(path)?;
    // SAFETY: statfs is plain data, for which zeros are valid.
    let mut found: libc::statfs = unsafe { mem::zeroed() };
    // SAFETY: the path ends in NUL, and the kernel fills in the structure, which is valid for the call.
    let result = unsafe { libc::statfs(path.as_ptr(), &raw mut found) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(found.f_type == libc::BPF_FS_MAGIC)
}

fn mount(at: &Path) -> io::Result<()> {
    let at = text(at)?;
    let (kind, options) = (c"bpf", c"mode=0711");
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    // SAFETY: all texts end in NUL and outlive the call.
    let result = unsafe {
        libc::mount(kind.as_ptr(), at.as_ptr(), kind.as_ptr(), flags, options.as_ptr().cast())
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Nobody finds it any more; it ends when nobody has anything of it open.
fn unmount(at: &Path) -> io::Result<()> {
    let at = text(at)?;
    // SAFETY: the path ends in NUL and outlives the call.
    let result = unsafe { libc::umount2(at.as_ptr(), libc::MNT_DETACH) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
