//! Objects that change. Which version is the present one follows from the time alone, so that clients know it, too.

use ekiden_model::rng::Rng;
use ekiden_testbed::load::pattern::Pattern;
use std::time::Duration;

/// Objects of a run.
pub(crate) const CHANGING: u64 = 8;
/// For how long a copy of one may be kept.
pub(crate) const FRESH: Duration = Duration::from_secs(4);
/// How long the versions of the first object last, and each next one's longer, in milliseconds.
const LASTS: (u64, u64) = (2_700, 1_700);

/// One version of one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) object: u64,
    pub(crate) number: u64,
}

impl Version {
    /// The largest body of one.
    pub(crate) const LARGEST: u64 = 32 << 10;

    /// The present one of an object, so long after the traffic began.
    pub(crate) fn at(object: u64, now: Duration) -> Self {
        Self { object, number: now.as_millis() as u64 / lasts(object) }
    }

    /// When the next one takes its place.
    pub(crate) fn replaced(&self) -> Duration {
        Duration::from_millis(lasts(self.object).saturating_mul(self.number.saturating_add(1)))
    }

    /// Its entity tag (RFC 9110 section 8.8.3).
    pub(crate) fn tag(&self) -> String {
        format!("\"{}-{}\"", self.object, self.number)
    }

    /// The version of such a tag.
    pub(crate) fn of_tag(tag: &str) -> Option<Self> {
        let (object, number) = tag.strip_prefix('"')?.strip_suffix('"')?.split_once('-')?;
        Some(Self { object: object.parse().ok()?, number: number.parse().ok()? })
    }

    /// Its stream and its length.
    pub(crate) fn body(&self) -> (Pattern, u64) {
        let seed = Rng::new(self.object).next_u64() ^ self.number;
        (Pattern::of(seed), 1 + Rng::new(!seed).below(Self::LARGEST))
    }
}

/// How long a version of an object lasts, in milliseconds.
const fn lasts(object: u64) -> u64 {
    LASTS.0.saturating_add(LASTS.1.saturating_mul(object))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_lasts_until_the_next_one_takes_its_place() {
        for object in 0..CHANGING {
            let first = Version::at(object, Duration::ZERO);
            let end = first.replaced();
            assert_eq!(Version::at(object, end - Duration::from_millis(1)), first);
            assert_eq!(Version::at(object, end), Version { object, number: 1 });
            assert_ne!(first.body(), Version::at(object, end).body());
        }
    }

    #[test]
    fn tags_name_their_version_and_others_none() {
        let version = Version { object: 3, number: 17 };
        assert_eq!(Version::of_tag(&version.tag()), Some(version));
        for other in ["3-17", "\"3\"", "\"3-\"", "W/\"3-17\"", ""] {
            assert_eq!(Version::of_tag(other), None, "{other}");
        }
        // one that an origin would never send is no overflow
        let last = Version { object: u64::MAX, number: u64::MAX };
        assert!(last.replaced() > Duration::from_secs(1 << 40));
    }
}
