//! What a cache may answer of an object that changes.

use crate::origin::{FRESH, Version};
use std::time::Duration;

/// A copy's age is counted in whole seconds from when the relay asked for it, so faults make none older. This is for
/// rounding, and for a clock that is corrected.
const ROUNDING: Duration = Duration::from_secs(5);

/// Judges the version of an answer that was asked for and came at these times. Errors: another object's, one that is yet
/// to come, or one that was replaced before. Who wants it `validated` gets one that was the present one since it asked.
pub(crate) fn judge_copy(
    version: Version,
    object: u64,
    (asked, came): (Duration, Duration),
    validated: bool,
) -> Result<(), String> {
    let Version { object: of, number } = version;
    if of != object {
        return Err(format!("object {of} for object {object}"));
    }
    if number > Version::at(object, came).number {
        return Err(format!("version {number} of object {object} before there was one"));
    }
    let may = if validated { Duration::ZERO } else { FRESH + ROUNDING };
    let old = asked.saturating_sub(version.replaced());
    if old <= may {
        return Ok(());
    }
    let how = if validated { "validated" } else { "fresh" };
    Err(format!("version {number} of object {object} as {how}, replaced {old:.1?} before"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::second;
    use super::*;

    const MOMENT: Duration = Duration::from_millis(1);

    fn judged(number: u64, asked: Duration, validated: bool) -> bool {
        let version = Version { object: 2, number };
        judge_copy(version, 2, (asked, asked + second(1)), validated).is_ok()
    }

    #[test]
    fn a_copy_is_served_until_its_time_is_over_and_no_longer() {
        let end = Version { object: 2, number: 7 }.replaced();
        let last = end + FRESH + ROUNDING;
        assert!(judged(7, end - MOMENT, false) && judged(7, last, false));
        assert!(!judged(7, last + MOMENT, false));
    }

    #[test]
    fn a_question_for_validation_gets_the_present_version() {
        let end = Version { object: 2, number: 7 }.replaced();
        assert!(judged(7, end - MOMENT, true) && judged(8, end + MOMENT, true));
        assert!(!judged(7, end + MOMENT, true));
        // one that took its place on the way
        assert!(judged(8, end - MOMENT, true));
    }

    #[test]
    fn other_objects_and_versions_to_come_are_wrong() {
        let version = Version::at(2, second(100));
        let times = (second(100), second(101));
        assert!(judge_copy(version, 2, times, false).is_ok());
        assert!(judge_copy(version, 3, times, false).is_err());
        let later = Version { number: version.number + 1, ..version };
        assert!(judge_copy(later, 2, times, false).is_err());
    }
}
