//! What the file held when it was opened, kept beside it where the database is away. What several lives add until the database
//! says what it has is then told from what the file lacked before.

use super::{Journal, Total, Totals, replay, whole};
use ekiden_linux::host::state_files;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

fn path_in(folder: &Path) -> PathBuf {
    folder.join("usage.opened")
}

/// What the journal of this identity held when it was opened first since the database was asked, if that was kept.
pub(super) fn kept(folder: &Path, identity: &str, totals: &Totals) -> Option<Totals> {
    let bytes = fs::read(path_in(folder)).ok()?;
    let (_, kept, _) = replay(&bytes).filter(|(of, ..)| of == identity)?;
    // after a power cut, the journal may be the older one
    let least = totals.iter().map(|(key, used)| {
        let kept = kept.get(key).copied().unwrap_or_default();
        (*key, (kept.0.min(used.0), kept.1.min(used.1)))
    });
    Some(least.collect())
}

impl Journal {
    /// Keeps what the file held when it was opened, for the next start. To be done before anything is added.
    pub(crate) fn keep_opened(&mut self) -> io::Result<()> {
        if !self.is_opened_kept {
            let bytes = whole(&self.identity, &self.opened);
            state_files::replace(&path_in(&self.folder()), &bytes)?;
            self.is_opened_kept = true;
        }
        Ok(())
    }

    /// The file that is to be removed before [`on_all_recalled`](Self::on_all_recalled), if there is one.
    pub(crate) fn opened_file(&self) -> Option<PathBuf> {
        self.is_opened_kept.then(|| path_in(&self.folder()))
    }

    fn folder(&self) -> PathBuf {
        self.path.parent().unwrap_or(Path::new(".")).to_owned()
    }

    /// The database had these before this journal settled anything since it was opened.
    pub(crate) fn on_recalled(&mut self, had: &[Total]) {
        for Total { account, begun, down, up } in had {
            let key = (*account, *begun);
            let held = self.opened.get(&key).copied().unwrap_or_default();
            let more = (down.saturating_sub(held.0), up.saturating_sub(held.1));
            self.lacked.insert(key, more);
            self.on_confirmed(key, (*down, *up));
        }
    }

    /// No more is to be recalled. What the file lacked counts: added to less, the next bytes would vanish below the larger
    /// total. Returns how many bytes these were.
    pub(crate) fn on_all_recalled(&mut self) -> u64 {
        self.opened = Totals::new();
        self.is_opened_kept = false;
        let mut all = 0_u64;
        for ((account, begun), (down, up)) in std::mem::take(&mut self.lacked) {
            self.add(account, begun, down, up);
            all = all.saturating_add(down).saturating_add(up);
        }
        all
    }
}

/// Removes what was kept.
pub(crate) fn remove_opened(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
