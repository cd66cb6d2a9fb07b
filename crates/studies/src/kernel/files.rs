//! Files in memory for web servers.

use super::MEMORY;
use ekiden_lab::engine::{During, EngineError};
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tempfile::TempDir;

/// A folder in memory that every program may read. Errors: no memory file system.
pub(crate) fn folder() -> Result<TempDir, EngineError> {
    let made = || -> io::Result<_> {
        let folder = tempfile::Builder::new().prefix("ekiden-files-").tempdir_in(MEMORY)?;
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755))?;
        Ok(folder)
    };
    made().during(format!("a folder in {MEMORY}"))
}

/// The name of a file of this size in `folder`, made when it is first asked for.
pub(crate) fn file(folder: &Path, size: u64) -> Result<String, EngineError> {
    let name = format!("{size}.bin");
    let path = folder.join(&name);
    if path.is_file() {
        return Ok(name);
    }
    let write = || {
        let mut file = File::create(&path)?;
        let block: Vec<u8> =
            (0..1_u32 << 16).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let mut left = size as usize;
        while left > 0 {
            let some = left.min(block.len());
            file.write_all(&block[..some])?;
            left -= some;
        }
        fs::set_permissions(&path, Permissions::from_mode(0o644))
    };
    write().during(format!("a file of {size} bytes in {MEMORY}"))?;
    Ok(name)
}
