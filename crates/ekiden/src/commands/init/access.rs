//! Whether the service reads a file: its user, and the folders that the unit closes to it.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// `ProtectHome=` and `PrivateTmp=` of the unit hide them.
const HIDDEN: [&str; 5] = ["/home", "/root", "/run/user", "/tmp", "/var/tmp"];

/// Errors: what keeps this user and group from reading a file, and what to do. `path` is absolute.
pub(super) fn check(path: &Path, owner: (u32, u32)) -> Result<(), String> {
    let failed = |path: &Path| {
        let shown = path.display().to_string();
        move |error: std::io::Error| format!("{shown} cannot be read: {error}")
    };
    let real = fs::canonicalize(path).map_err(failed(path))?;
    let copy = format!(
        "copy it for the service: sudo install -o ekiden -m 400 {} /etc/ekiden/",
        path.display()
    );
    for path in [path, &real] {
        if let Some(hidden) = HIDDEN.iter().find(|hidden| path.starts_with(hidden)) {
            return Err(format!(
                "the service does not see {}, below {hidden}; {copy}",
                path.display()
            ));
        }
        for folder in path.ancestors().skip(1) {
            let data = fs::metadata(folder).map_err(failed(folder))?;
            if !permits(&data, owner, 0o1) {
                return Err(format!(
                    "the service cannot enter {}, on the way to {}; {copy}",
                    folder.display(),
                    path.display()
                ));
            }
        }
    }
    let data = fs::metadata(&real).map_err(failed(path))?;
    if !permits(&data, owner, 0o4) {
        let shown = path.display();
        return Err(format!(
            "the service cannot read {shown}; give it to its user, as with `sudo chown ekiden {shown}`, or {copy}"
        ));
    }
    Ok(())
}

/// The kernel's rule: the first class that a user is in decides. `bit` is that of others.
fn permits(data: &fs::Metadata, (user, group): (u32, u32), bit: u32) -> bool {
    let mode = data.mode();
    if data.uid() == user {
        mode & (bit << 6) != 0
    } else if data.gid() == group {
        mode & (bit << 3) != 0
    } else {
        mode & bit != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn the_whole_way_to_a_file_is_looked_at() {
        // not below /tmp, which is hidden from it
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        if HIDDEN.iter().any(|hidden| folder.path().starts_with(hidden)) {
            return println!("SKIPPED: the sources are where no service looks");
        }
        let mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(folder.path(), 0o755);
        if let Err(why) = check(folder.path(), (4711, 4711)) {
            assert!(std::env::var_os("CI").is_none(), "{why}");
            return println!("SKIPPED: the sources are closed to others: {why}");
        }
        let (inner, link) = (folder.path().join("inner"), folder.path().join("link"));
        fs::create_dir(&inner).unwrap();
        let file = inner.join("key.pem");
        fs::write(&file, "").unwrap();
        symlink(&file, &link).unwrap();
        let check = |path: &Path| check(path, (4711, 4711));
        mode(&inner, 0o755);
        mode(&file, 0o644);
        assert_eq!((check(&file), check(&link)), (Ok(()), Ok(())));
        mode(&file, 0o640);
        assert!(check(&link).unwrap_err().contains("cannot read"));
        mode(&file, 0o644);
        mode(&inner, 0o700);
        for path in [&file, &link] {
            let why = check(path).unwrap_err();
            assert!(why.contains("cannot enter") && why.contains("sudo install"), "{why}");
        }
        let hidden = tempfile::NamedTempFile::new_in("/tmp").unwrap();
        mode(hidden.path(), 0o644);
        assert!(check(hidden.path()).unwrap_err().contains("does not see"));
        assert!(check(Path::new("/none/key.pem")).unwrap_err().contains("cannot be read"));
    }
}
