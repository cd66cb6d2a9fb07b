//! One series: a day at 10 s and 30 days at 5 min, in memory and in a file of 276 kB.
//!
//! The file has a head and the slots of both rings in their places. What changed is written each minute, in place and
//! then synchronised, so a process that is killed loses a minute at most.

use super::ring::{Ring, SLOT, Sample, VALUES};
use ekiden_linux::host::state_files;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

const HEAD: &[u8; 16] = b"ekiden history 1";
/// Seconds of a sample in the first ring, and samples: a day.
pub(super) const FINE: (u64, usize) = (10, 8_640);
/// In the second one: 30 days.
pub(super) const COARSE: (u64, usize) = (300, 8_640);
/// Points of a chart.
const POINTS: u64 = 720;

/// See the module.
#[derive(Debug)]
pub(super) struct Series {
    fine: Ring,
    coarse: Ring,
    path: PathBuf,
    /// Slots that are not on disk yet, by their place in the file.
    unsaved: Vec<(u64, [u8; SLOT])>,
}

impl Series {
    /// The series in a file; empty where there is none. Errors: it cannot be read.
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        let (fine, coarse) = (Ring::new(FINE.0, FINE.1), Ring::new(COARSE.0, COARSE.1));
        let mut series = Self { fine, coarse, path, unsaved: Vec::new() };
        let mut kept = Vec::new();
        match File::open(&series.path) {
            Ok(file) => drop(file.take(1 << 20).read_to_end(&mut kept)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(series),
            Err(error) => return Err(error),
        }
        if let Some(slots) = kept.strip_prefix(HEAD) {
            let (slots, _) = slots.as_chunks::<SLOT>();
            for (n, slot) in slots.iter().enumerate().take(FINE.1 + COARSE.1) {
                match n.checked_sub(FINE.1) {
                    None => series.fine.restore(n, slot),
                    Some(n) => series.coarse.restore(n, slot),
                }
            }
        } else if !kept.is_empty() {
            tracing::warn!("{} is no history; it is written anew", series.path.display());
        }
        Ok(series)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// When the newest sample was taken, in seconds since 1970.
    pub(super) fn newest(&self) -> u64 {
        self.fine.newest().max(self.coarse.newest())
    }

    /// Puts what was measured up to `at`, in seconds since 1970.
    pub(super) fn put(&mut self, at: u64, sample: &Sample) {
        let fine = self.fine.put(at, sample);
        // of what is known of these five minutes so far
        let from = at / COARSE.0 * COARSE.0;
        let coarse = self.coarse.put(from, &self.fine.mean(from, COARSE.0));
        let place = |n: usize| (HEAD.len() + n * SLOT) as u64;
        let changed = [
            (place(fine), self.fine.bytes(fine)),
            (place(self.fine.len() + coarse), self.coarse.bytes(coarse)),
        ];
        for (place, bytes) in changed {
            match self.unsaved.iter_mut().find(|(at, _)| *at == place) {
                Some(slot) => slot.1 = bytes,
                None => self.unsaved.push((place, bytes)),
            }
        }
    }

    /// Writes what changed, and waits until it is on the disk.
    pub(super) fn save(&mut self) -> io::Result<()> {
        if self.unsaved.is_empty() {
            return Ok(());
        }
        // once a minute, so that no descriptor is held in between
        let file = state_files::open(&self.path)?;
        file.write_all_at(HEAD, 0)?;
        for (place, bytes) in &self.unsaved {
            file.write_all_at(bytes, *place)?;
        }
        file.sync_data()?;
        self.unsaved.clear();
        Ok(())
    }

    /// The samples of `span` seconds up to `now`, at most 720 of them: the first one's time, the seconds of each, and
    /// each value's row.
    pub(super) fn read(&self, now: u64, span: u64) -> (u64, u64, [Vec<Option<u64>>; VALUES]) {
        let ring = match span {
            span if span <= FINE.0 * FINE.1 as u64 => &self.fine,
            _ => &self.coarse,
        };
        let step = (span / POINTS).max(ring.step()).next_multiple_of(ring.step());
        let last = now / step * step;
        let first = last.saturating_sub((span / step).saturating_sub(1) * step);
        let mut rows: [Vec<_>; VALUES] = Default::default();
        for at in (first..=last).step_by(step as usize) {
            for (row, value) in rows.iter_mut().zip(ring.mean(at, step)) {
                row.push(value);
            }
        }
        (first, step, rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_790_000_000;

    #[test]
    fn saved_samples_are_read_again_and_their_file_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("total.ring");
        let mut series = Series::open(path.clone()).unwrap();
        for n in 0..100 {
            series.put(NOW + n * 10, &[Some(n), None, Some(7), None, None]);
        }
        series.save().unwrap();
        // not saved, as after a kill
        series.put(NOW + 1_000, &[Some(1); VALUES]);
        let again = Series::open(path.clone()).unwrap();
        assert_eq!(again.newest(), NOW + 990);
        let (first, step, rows) = again.read(NOW + 995, 3_600);
        assert_eq!((first, step, rows[0].len()), (NOW + 990 - 3_590, 10, 360));
        assert_eq!((rows[0][359], rows[0][260], rows[0][259]), (Some(99), Some(0), None));
        let (_, step, rows) = again.read(NOW + 995, 30 * 86_400);
        assert_eq!((step, rows[0].len()), (3_600, 720));
        assert_eq!(rows[2][719].or(rows[2][718]), Some(7));
        let whole = HEAD.len() + (FINE.1 + COARSE.1) * SLOT;
        assert!(std::fs::metadata(path).unwrap().len() <= whole as u64);
    }

    #[test]
    fn a_file_of_something_else_is_written_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("total.ring");
        std::fs::write(&path, "something else").unwrap();
        let mut series = Series::open(path.clone()).unwrap();
        assert_eq!(series.newest(), 0);
        series.put(NOW, &[Some(3); VALUES]);
        series.save().unwrap();
        assert_eq!(Series::open(path).unwrap().newest(), NOW / 10 * 10);
    }
}
