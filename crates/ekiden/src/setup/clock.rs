//! A clock that is wrong: certificates, quotas and invitations depend on it.

use jiff::{SignedDuration, Timestamp};

/// When this program was built, to the day.
const BUILT: &str = env!("EKIDEN_BUILT");
/// Two clocks may differ so much.
const CLOSE: SignedDuration = SignedDuration::from_mins(10);
/// An invitation that is older was perhaps made yesterday, by a machine whose clock is right.
const OLD: SignedDuration = SignedDuration::from_hours(30 * 24);

const SET: &str = "set it, for example with `sudo timedatectl set-ntp true`";

/// Why the clock cannot be right: it is before the day on which this program was built.
pub(crate) fn behind() -> Option<String> {
    let built = BUILT.parse().ok().and_then(|second| Timestamp::from_second(second).ok())?;
    before(Timestamp::now(), built)
}

fn before(now: Timestamp, built: Timestamp) -> Option<String> {
    (now < built).then(|| {
        let [now, built] = [now, built].map(day);
        format!("this machine's clock is wrong: it says {now}, and this program was built on {built}; {SET}")
    })
}

/// Why one of two clocks is wrong: an invitation comes from the future, or from long ago.
pub(crate) fn invitation(made: Option<i64>) -> Option<String> {
    let made = Timestamp::from_second(made?).ok()?;
    apart(Timestamp::now(), made)
}

fn apart(now: Timestamp, made: Timestamp) -> Option<String> {
    let age = now.duration_since(made);
    let [now, made] = [now, made].map(|time| time.strftime("%Y-%m-%d %H:%M UTC"));
    if age < -CLOSE {
        Some(format!(
            "this machine's clock says {now}, but the invitation was made at {made}: one of the two clocks is wrong; {SET}"
        ))
    } else if age > OLD {
        Some(format!(
            "by this machine's clock ({now}) the invitation was made long ago, at {made}; if it is new, one of the two clocks is wrong"
        ))
    } else {
        None
    }
}

fn day(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_that_cannot_be_right_are_named() {
        assert_eq!(behind(), None);
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let (made, built) = (at("2026-11-20T10:00:00Z"), at("2026-11-01T00:00:00Z"));
        assert!(before(at("1970-01-01T00:01:00Z"), built).unwrap().contains("says 1970-01-01"));
        assert_eq!(before(made, built), None);
        for (now, said) in [
            ("2026-11-20T09:00:00Z", Some("one of the two clocks is wrong; set it")),
            ("2026-11-20T09:55:00Z", None),
            ("2026-12-01T00:00:00Z", None),
            ("2027-11-20T09:00:00Z", Some("was made long ago")),
        ] {
            let found = apart(at(now), made);
            match said {
                Some(said) => assert!(found.as_ref().unwrap().contains(said), "{found:?}"),
                None => assert_eq!(found, None),
            }
        }
    }
}
