//! A journal goes on by another identity: somebody else counts by the one that it had.

use super::{Journal, Totals, draw, whole};
use ekiden_linux::host::state_files;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// What the journal is to go on with: what the database does not have by the identity that it has.
#[derive(Debug)]
pub(crate) struct Renewal {
    path: PathBuf,
    identity: String,
    /// What the database has.
    confirmed: Totals,
    totals: Totals,
}

/// The same, with its file in place of the old one.
#[derive(Debug)]
pub(crate) struct Renewed {
    renewal: Renewal,
    file: File,
    size: u64,
}

impl Renewal {
    /// Puts the new file in the old one's place. Errors: the old one is there, and lacks nothing.
    pub(crate) fn write(self) -> io::Result<Renewed> {
        let bytes = whole(&self.identity, &self.totals);
        let file = state_files::replace(&self.path, &bytes)?;
        Ok(Renewed { renewal: self, file, size: bytes.len() as u64 })
    }
}

impl Journal {
    /// What to go on with. Nobody may write the file until the journal does, or until this is given up.
    pub(crate) fn renewal(&self) -> io::Result<Renewal> {
        let (path, identity) = (self.path.clone(), draw()?);
        let totals = beyond(&self.totals, &self.confirmed);
        Ok(Renewal { path, identity, confirmed: self.confirmed.clone(), totals })
    }

    /// Goes on in the new file. What was added since [`renewal`](Self::renewal) stays unwritten.
    pub(crate) fn go_on_as(&mut self, renewed: Renewed) {
        let Renewed { renewal, file, size } = renewed;
        let Renewal { identity, confirmed, totals, .. } = renewal;
        self.totals = beyond(&self.totals, &confirmed);
        let all = self.totals.iter();
        let unwritten = all.filter(|(key, used)| totals.get(*key) != Some(*used));
        self.unwritten = unwritten.map(|(key, _)| *key).collect();
        self.unsettled = self.totals.keys().copied().collect();
        (self.opened, self.confirmed) = (Totals::new(), Totals::new());
        (self.identity, self.file, self.size) = (identity, Arc::new(file), size);
    }
}

/// What totals are beyond others.
fn beyond(totals: &Totals, others: &Totals) -> Totals {
    let rest = totals.iter().map(|(key, (down, up))| {
        let had = others.get(key).copied().unwrap_or_default();
        (*key, (down.saturating_sub(had.0), up.saturating_sub(had.1)))
    });
    rest.filter(|(_, rest)| *rest != (0, 0)).collect()
}
