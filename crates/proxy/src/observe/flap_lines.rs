//! A limit on log lines about something that fails and works again.

use ekiden_model::units::{Span, Time};

/// The shortest time between two lines of one kind.
const APART: Span = Span::from_secs(10);

/// Lines about a thing that may come and go as often as it likes: one in ten seconds that it fails, and one that it
/// works again. One that was left out comes later, where the log would else say the opposite of what is.
#[derive(Debug, Default)]
pub(crate) struct FlapLines {
    /// What the last line said.
    said_failed: bool,
    /// When a line last said that it works, and that it fails.
    last: [Option<Time>; 2],
    left_out: u64,
}

impl FlapLines {
    /// Whether to log now how it is; `is_news`: it was otherwise before, or a line is wanted anyhow. `None` where a line
    /// is left out or not needed, else `Some` of how many were left out since the last, if any.
    pub(crate) fn next(&mut self, now: Time, failed: bool, is_news: bool) -> Option<Option<u64>> {
        if !is_news && failed == self.said_failed {
            return None;
        }
        let last = &mut self.last[usize::from(failed)];
        if last.is_some_and(|last| now.since(last) < APART) {
            self.left_out += u64::from(is_news);
            return None;
        }
        // one that comes late was counted when it was left out
        let late = u64::from(!is_news);
        (*last, self.said_failed) = (Some(now), failed);
        let left_out = std::mem::take(&mut self.left_out).saturating_sub(late);
        Some((left_out > 0).then_some(left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Span::from_secs(seconds)
    }

    #[test]
    fn two_lines_in_ten_seconds_say_how_many_were_left_out() {
        let mut lines = FlapLines::default();
        let (mut written, mut left_out) = (0, 0);
        for second in 0..60 {
            for failed in [true, false] {
                if let Some(before) = lines.next(at(second), failed, true) {
                    written += 1;
                    left_out += before.unwrap_or(0);
                }
            }
        }
        assert_eq!((written, left_out + lines.left_out), (12, 108));
    }

    #[test]
    fn the_log_does_not_end_with_the_opposite() {
        let mut lines = FlapLines::default();
        assert_eq!(lines.next(at(0), true, true), Some(None));
        assert_eq!(lines.next(at(1), false, true), Some(None));
        assert_eq!(lines.next(at(2), true, true), None);
        assert_eq!(lines.next(at(9), true, false), None);
        assert_eq!(lines.next(at(10), true, false), Some(None));
        assert_eq!(lines.next(at(11), true, false), None, "it was said");
        assert_eq!(lines.next(at(11), false, true), Some(None));
        assert_eq!(lines.next(at(12), true, true), None);
        assert_eq!(lines.next(at(13), false, true), None);
        assert_eq!(lines.next(at(60), false, false), None, "the log says so");
        assert_eq!(lines.next(at(60), true, true), Some(Some(2)));
    }
}
