//! Congestion controls that root loads once for a service without privileges, and that outlive the
//! loader.

use super::group::Maps;
use super::{Control, Loaded, Missing, Needs};
use crate::sockets::sockopt::done;
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

/// Locked while pins are used or changed; any process that can open it can lock it.
const LOCK: &str = "lock";

/// A pinned file.
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

pub(super) fn lock(pins: &Path) -> io::Result<File> {
    locked(&pins.join(LOCK))
}

fn locked(folder: &Path) -> io::Result<File> {
    let folder = File::open(folder)?;
    folder.lock()?;
    Ok(folder)
}

/// The name of a control that is pinned below `pins`. Fails when that cannot be read.
pub(super) fn name(control: Control, pins: &Path) -> io::Result<Option<String>> {
    for nth in 1..=super::NAMES {
        let name = control.name(nth);
        if pins.join(&name).try_exists()? {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// The controls pinned below `pins`: the kernel's name, or why this process may not use it.
pub fn pinned(pins: &Path) -> Vec<(Control, Result<String, Missing>)> {
    let judge = |control| {
        let opened = Loaded::open(control, pins).transpose()?;
        Some((control, opened.map(|loaded| loaded.name().to_owned())))
    };
    Control::ALL.into_iter().filter_map(judge).collect()
}

/// Loads `control` and pins it below `pins` for `user` and its group, in place of another
/// release's. Its name, and whether it was there already. Errors: a missing requirement, or why it
/// cannot be pinned; nothing is left then.
pub fn pin(
    control: Control,
    pins: &Path,
    user: Option<(u32, u32)>,
) -> Result<(String, bool), Missing> {
    let refused =
        |error: &dyn std::fmt::Display| Missing::Place(format!("{}: {error}", pins.display()));
    Needs::look().met()?;
    // concurrent loads run one after the other
    let _lock = folder(pins).map_err(|error| refused(&error))?;
    let release = pins.join(release(control));
    let same = fs::read_link(&release).is_ok_and(|is| is == Path::new(&content(control)));
    let before = name(control, pins).map_err(|error| refused(&error))?.filter(|_| same);
    let (name, before) = match before {
        Some(name) => (name, true),
        None => {
            // pins of another release or of a killed run: their names become free
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
        // the folder stays root's, so that no other user removes its files
        shared.try_for_each(|path| own(&path)).map_err(|error| refused(&error))?;
    }
    Ok((name, before))
}

/// Makes `pins` a folder of a BPF file system that anybody may enter and nobody list, and locks it.
fn folder(pins: &Path) -> io::Result<File> {
    fs::create_dir_all(pins)?;
    let mut lock = locked(pins)?;
    if !is_bpf(pins)? {
        mount(pins)?;
    }
    // the locked folder may now be hidden below another mount
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

/// Identifies this release's programs: FNV-1a of the object.
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

fn remove(pins: &Path, control: Control) -> bool {
    let maps = Maps::NAMES.iter().filter(|_| control == Control::Hold);
    for name in maps.map(|name| (*name).to_owned()).chain([release(control)]) {
        let _ = fs::remove_file(pins.join(name));
    }
    let names = (1..=super::NAMES).map(|nth| control.name(nth));
    names.fold(false, |any, name| fs::remove_file(pins.join(name)).is_ok() | any)
}

/// Removes pins below `pins`, and returns their names; sockets keep the programs until they close.
/// Errors: `PermissionDenied` for any user but the one that pinned them.
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
    done(unsafe { libc::statfs(path.as_ptr(), &raw mut found) })?;
    // musl and glibc differ in the sign of the one and of the other
    Ok(found.f_type as u64 == libc::BPF_FS_MAGIC as u64)
}

fn mount(at: &Path) -> io::Result<()> {
    let at = text(at)?;
    let (kind, options) = (c"bpf", c"mode=0711");
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    // SAFETY: all texts end in NUL and outlive the call.
    done(unsafe {
        libc::mount(kind.as_ptr(), at.as_ptr(), kind.as_ptr(), flags, options.as_ptr().cast())
    })
}

/// It can no longer be found, and ends with its last descriptor.
fn unmount(at: &Path) -> io::Result<()> {
    let at = text(at)?;
    // SAFETY: the path ends in NUL and outlives the call.
    done(unsafe { libc::umount2(at.as_ptr(), libc::MNT_DETACH) })
}
