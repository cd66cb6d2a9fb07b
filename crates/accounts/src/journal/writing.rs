//! Usage on its way to the disk. Nobody has to hold the journal while the disk takes it.

use super::{Journal, Key, batch};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

/// Totals, as they were.
pub(super) type Entries = Vec<(Key, (u64, u64))>;

/// A batch that goes behind all that is written.
#[derive(Debug)]
pub(crate) struct Writing {
    file: Arc<File>,
    at: u64,
    bytes: Vec<u8>,
    entries: Entries,
}

impl Writing {
    /// Writes it. Where an earlier one failed, it takes that one's place: half a batch would hide all that follow it.
    pub(crate) fn write(&self) -> io::Result<()> {
        self.file.write_all_at(&self.bytes, self.at)
    }
}

impl Journal {
    /// What the file lacks, if anything. One batch at a time: the next one is taken after [`on_written`](Self::on_written), or
    /// once this one is given up.
    pub(crate) fn unwritten(&self) -> Option<Writing> {
        let entries = self.unwritten_entries();
        if entries.is_empty() {
            return None;
        }
        let bytes = batch(&self.identity, entries.iter().copied());
        Some(Writing { file: Arc::clone(&self.file), at: self.size, bytes, entries })
    }

    /// The file has it. What was added since it was taken stays unwritten.
    pub(crate) fn on_written(&mut self, written: &Writing) {
        self.size = written.at + written.bytes.len() as u64;
        self.on_entries_written(&written.entries);
    }

    /// The file, for whoever waits for the disk.
    pub(crate) fn file(&self) -> Arc<File> {
        Arc::clone(&self.file)
    }

    pub(super) fn unwritten_entries(&self) -> Entries {
        let entry = |key: &Key| Some((*key, *self.totals.get(key)?));
        self.unwritten.iter().filter_map(entry).collect()
    }

    pub(super) fn on_entries_written(&mut self, entries: &[(Key, (u64, u64))]) {
        for (key, used) in entries {
            if self.totals.get(key) == Some(used) {
                self.unwritten.remove(key);
            }
        }
    }
}
