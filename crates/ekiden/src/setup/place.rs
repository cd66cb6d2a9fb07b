//! Where the configuration and the state are: the service's where it is installed, else the user's own.

use super::file::NewFile;
use crate::daemon::state;
use ekiden_linux::host::state_files;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

const CONFIG: &str = "/etc/ekiden/config.toml";
/// Where packages and administrators put the unit.
const UNITS: [&str; 3] = [
    "/etc/systemd/system/ekiden.service",
    "/usr/lib/systemd/system/ekiden.service",
    "/lib/systemd/system/ekiden.service",
];
/// The user of the service.
const USER: &str = "ekiden";

/// Where one relay's files are.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// The configuration.
    pub(crate) config: PathBuf,
    /// User and group of the service, whose files these are.
    pub(crate) service: Option<(u32, u32)>,
}

impl Place {
    /// The files of the relay with the named configuration, else of the service or the machine where root runs this, else
    /// the user's. Errors: there is no home, or the service is somebody else's to set up.
    pub(crate) fn of(named: Option<&Path>) -> Result<Self, String> {
        let is_root = rustix::process::geteuid().is_root();
        let user = if is_root { service_user() } else { None };
        // tests and portable installations say where
        let elsewhere = std::env::var_os("XDG_CONFIG_HOME").is_some();
        let config = match named {
            Some(named) => std::path::absolute(named).map_err(|error| error.to_string())?,
            // without the service's user, too: root's daemon reads it before its home's
            None if !elsewhere && (user.is_some() || (is_root && Path::new(CONFIG).exists())) => {
                PathBuf::from(CONFIG)
            }
            None if !elsewhere && !is_root && unit().is_some() => {
                return Err("ekiden is installed as a service here, which root sets up: run this with sudo; \
                     --config FILE sets up a relay of your own"
                    .to_owned());
            }
            None => own_config()?,
        };
        let service = user.filter(|_| config == Path::new(CONFIG));
        Ok(Self { config, service })
    }

    /// How a new configuration is made.
    pub(crate) fn new_file(&self) -> NewFile {
        match self.service {
            // root writes it, the service reads it; it may hold passwords
            Some((_, group)) => NewFile { owner: Some((0, group)), mode: 0o640 },
            None => NewFile { owner: None, mode: 0o600 },
        }
    }

    /// The state folder, `named` by the configuration or the default. Errors: there is none, or it is another user's.
    pub(crate) fn state(&self, named: Option<PathBuf>) -> Result<PathBuf, String> {
        let folder = named.or_else(state::directory);
        let folder = folder.ok_or("no home directory; set `state` in [tunnel] and [accounts]")?;
        check_owner(&folder)?;
        Ok(folder)
    }

    /// Makes the service's state folder, as the service manager would.
    pub(crate) fn make_state(&self, folder: &Path) -> Result<(), String> {
        let Some((user, group)) = self.service else { return Ok(()) };
        if folder.exists() {
            return Ok(());
        }
        // those above it are not the service's, and others pass through them
        let made = state_files::make_folder_for(folder, (user, group));
        made.map_err(|error| format!("{} cannot be made: {error}", folder.display()))
    }
}

/// Refuses a user who is neither root nor the service's where the configuration, `named` or found, is the service's: its
/// state would be looked for in that user's home. Errors: in words.
pub(crate) fn check_service(named: Option<&Path>) -> Result<(), String> {
    let (me, user) = (rustix::process::geteuid(), service_user());
    let is_its = user.is_some_and(|(user, _)| user == me.as_raw());
    if me.is_root() || is_its || (user.is_none() && unit().is_none()) {
        return Ok(());
    }
    let service = Path::new(CONFIG);
    let is_meant = match named.map(Path::to_owned).or_else(ekiden_config::find) {
        Some(found) => found == service,
        None => {
            let closed = fs::metadata(service)
                .is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
            closed || std::env::var_os("XDG_CONFIG_HOME").is_none()
        }
    };
    match is_meant {
        false => Ok(()),
        true => Err("ekiden is a service here, and this user cannot change what it keeps: run this with sudo; \
                     --config FILE is for a relay of your own"
            .to_owned()),
    }
}

/// Whether this user may change what is in a folder, or make it.
pub(crate) fn check_owner(folder: &Path) -> Result<(), String> {
    let me = rustix::process::geteuid();
    let there = folder.ancestors().find_map(|path| Some((path, fs::metadata(path).ok()?)));
    let Some((path, data)) = there.filter(|_| !me.is_root()) else { return Ok(()) };
    if path == folder && data.uid() != me.as_raw() {
        return Err(format!(
            "{} belongs to {}; run this as that user or as root (sudo)",
            folder.display(),
            user_name(data.uid())
        ));
    }
    match fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(format!(
            "{} is closed to this user; run this as {} or as root (sudo)",
            path.display(),
            user_name(data.uid())
        )),
        _ => Ok(()),
    }
}

/// Whether systemd runs the service: its unit is installed, and this is no container without systemd.
pub(crate) fn by_systemd() -> bool {
    unit().is_some() && Path::new("/run/systemd/system").exists()
}

/// The unit of the service, if one is installed.
fn unit() -> Option<&'static str> {
    UNITS.into_iter().find(|path| Path::new(path).exists())
}

fn own_config() -> Result<PathBuf, String> {
    let absolute =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")));
    let home = home.ok_or("no home directory; name the configuration with --config FILE")?;
    Ok(home.join("ekiden/config.toml"))
}

fn service_user() -> Option<(u32, u32)> {
    users().into_iter().find(|(name, ..)| name == USER).map(|(_, user, group)| (user, group))
}

fn user_name(wanted: u32) -> String {
    let name = users().into_iter().find(|(_, user, _)| *user == wanted).map(|(name, ..)| name);
    name.map_or_else(|| format!("user {wanted}"), |name| format!("user {name}"))
}

/// Local users: name, user and group. A program without the C library's modules sees no others.
fn users() -> Vec<(String, u32, u32)> {
    let text = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let user = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?.to_owned();
        let mut numbers = fields.skip(1).map(str::parse);
        Some((name, numbers.next()?.ok()?, numbers.next()?.ok()?))
    };
    text.lines().filter_map(user).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_above_the_state_stay_open_to_others() {
        let folder = tempfile::tempdir().unwrap();
        let me = rustix::process::geteuid().as_raw();
        let group = rustix::process::getegid().as_raw();
        let place = Place { config: PathBuf::from(CONFIG), service: Some((me, group)) };
        place.make_state(&folder.path().join("a/b/state")).unwrap();
        for (path, mode) in [("a", 0o755), ("a/b", 0o755), ("a/b/state", 0o700)] {
            let data = fs::metadata(folder.path().join(path)).unwrap();
            assert_eq!(data.mode() & 0o777, mode, "{path}");
        }
    }

    #[test]
    fn root_is_among_the_users() {
        assert_eq!(user_name(0), "user root");
        assert_eq!(user_name(4_000_000_000), "user 4000000000");
    }
}
