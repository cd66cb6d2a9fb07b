//! A quota of `[[account]]`, written as `ekiden account --quota` takes it: `20 GB/day`.

use super::pattern::shorten;
use ekiden_model::units::{Bytes, Span};

const DAY: Span = Span::from_secs(86_400);
const WEEK: Span = DAY.saturating_mul(7);
/// A length of time within these.
const PERIOD: (Span, Span) = (Span::from_secs(1), DAY.saturating_mul(366));

/// Bytes in a period; [`Span::MAX`]: it does not begin anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    pub bytes: Bytes,
    pub period: Span,
}

impl Quota {
    /// Errors: in words.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        if text.len() > 60 {
            return Err("this is not a quota; write it like \"20 GB/day\"".to_owned());
        }
        let (size, period) = text.split_once('/').unwrap_or((text, "never"));
        let bytes: Bytes = size.trim().parse().map_err(|bad| format!("{bad}, or `20 GB/day`"))?;
        // as for the command
        if bytes == Bytes::ZERO {
            return Err(format!("a quota of {bytes} permits nothing; \"none\" lifts a quota"));
        }
        let period = match period.trim() {
            "never" => Span::MAX,
            "day" => DAY,
            "week" => WEEK,
            "month" => {
                let why = "months differ in length, and periods here begin with ekiden";
                return Err(format!(
                    "{why}: write \"{}/30 d\", or use `ekiden account`, which knows the calendar",
                    size.trim()
                ));
            }
            other => {
                let span = other.parse::<Span>().ok();
                let span = span.filter(|span| (PERIOD.0..=PERIOD.1).contains(span));
                span.ok_or_else(|| {
                    let other = shorten(other);
                    format!("\"{other}\" is not a period: day, week, never, or 1 s to 366 d such as \"30 d\"")
                })?
            }
        };
        Ok(Self { bytes, period })
    }

    /// As it is written.
    pub(crate) fn print(&self) -> String {
        let n = self.bytes.as_u64();
        let decimal = [(1_000_000_000_000, "TB"), (1_000_000_000, "GB"), (1_000_000, "MB")];
        let size = match decimal.iter().find(|(scale, _)| n.is_multiple_of(*scale)) {
            Some((scale, unit)) => format!("{} {unit}", n / scale),
            None => self.bytes.to_string(),
        };
        match self.period {
            Span::MAX => size,
            DAY => format!("{size}/day"),
            WEEK => format!("{size}/week"),
            days if days == Span::from_secs(days.as_secs())
                && days.as_secs().is_multiple_of(86_400) =>
            {
                format!("{size}/{} d", days.as_secs() / 86_400)
            }
            period => format!("{size}/{}", super::print_span(period)),
        }
    }
}

/// For the key's kind.
pub(crate) fn check(text: &str) -> Result<(), String> {
    Quota::read(text).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_written_as_the_command_takes_it() {
        for text in
            ["300 GB/day", "1500 MB/week", "3 TB", "100 GiB/30 d", "8 MiB/90 min", "2 GB/1 h"]
        {
            assert_eq!(Quota::read(text).unwrap().print(), text);
        }
        let never = Quota::read("5 GB/never").unwrap();
        assert_eq!((never.period, never.print().as_str()), (Span::MAX, "5 GB"));
        assert_eq!(Quota::read("5 GB").unwrap(), never);
        let small = Quota::read("300 kB/30 d").unwrap();
        assert_eq!((small.bytes, Quota::read(&small.print())), (Bytes::new(300_000), Ok(small)));
    }

    #[test]
    fn says_what_is_wrong_and_what_to_write() {
        for (text, part) in [
            ("20 GB/month", "write \"20 GB/30 d\", or use `ekiden account`"),
            ("20 GB/year", "\"year\" is not a period: day, week, never"),
            ("20 GB/400 d", "1 s to 366 d"),
            ("20/day", "unit is missing"),
            ("0 GB/day", "a quota of 0 B permits nothing"),
            ("", "not a size"),
        ] {
            let said = Quota::read(text).unwrap_err();
            assert!(said.contains(part), "{text}: {said}");
        }
        assert!(Quota::read(&"9".repeat(99)).unwrap_err().contains("20 GB/day"));
    }
}
