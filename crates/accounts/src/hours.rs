//! Hours of the week in which an account may come in.

use jiff::civil::{Time, Weekday};
use std::fmt;
use std::str::FromStr;

/// Hours of the week, such as `mon-fri 06:00-22:00; sat,sun 08:00-24:00`, without their last
/// minute. Hours past midnight are written as those of two days.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hours(Vec<Window>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Window {
    /// Monday is the first bit.
    days: u8,
    /// Minutes since midnight.
    from: u16,
    to: u16,
}

/// Why hours were refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{text}\" is not a list of weekly hours: {why}; write them like \"mon-fri 06:00-22:00; sat,sun 08:00-24:00\""
)]
pub struct BadHours {
    text: String,
    why: &'static str,
}

const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
const MIDNIGHT: u16 = 24 * 60;

impl Hours {
    /// Whether they hold on this day at this time.
    pub fn hold(&self, day: Weekday, time: Time) -> bool {
        let day = 1_u8 << day.to_monday_zero_offset().rem_euclid(7);
        let minute =
            u16::from(time.hour().unsigned_abs()) * 60 + u16::from(time.minute().unsigned_abs());
        self.0.iter().any(|w| w.days & day != 0 && (w.from..w.to).contains(&minute))
    }
}

impl FromStr for Hours {
    type Err = BadHours;
    fn from_str(text: &str) -> Result<Self, BadHours> {
        let bad = |why| BadHours { text: text.chars().take(80).collect(), why };
        let mut windows = Vec::new();
        for part in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
            let (days, hours) = match part.rsplit_once(char::is_whitespace) {
                Some((days, hours)) => (read_days(days.trim()), hours),
                None => (Some(0x7f), part),
            };
            let days = days.ok_or_else(|| bad("the days are not known"))?;
            let (from, to) = hours.split_once('-').ok_or_else(|| bad("there are no hours"))?;
            let from = read_time(from).ok_or_else(|| bad("a time is not known"))?;
            let to = read_time(to).ok_or_else(|| bad("a time is not known"))?;
            if from >= to {
                return Err(bad(
                    "they end before they begin, and hours past midnight are two parts, such as \"mon 22:00-24:00; tue 00:00-06:00\"",
                ));
            }
            windows.push(Window { days, from, to });
        }
        if windows.is_empty() {
            return Err(bad("nothing is said"));
        }
        Ok(Self(windows))
    }
}

fn read_days(text: &str) -> Option<u8> {
    let day = |name: &str| DAYS.iter().position(|day| name.trim().eq_ignore_ascii_case(day));
    text.split(',').try_fold(0, |days, part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (day(first)?, day(last)?);
        // sat-mon goes over the end of the week
        let count = (last + 7 - first) % 7;
        Some((0..=count).fold(days, |days, n| days | 1 << ((first + n) % 7)))
    })
}

fn read_time(text: &str) -> Option<u16> {
    let (hour, minute) = text.trim().split_once(':')?;
    let digits = |part: &str| {
        let two = part.len() == 2 && part.bytes().all(|b| b.is_ascii_digit());
        part.parse::<u16>().ok().filter(|_| two)
    };
    let (hour, minute) = (digits(hour)?, digits(minute)?);
    let minutes = hour * 60 + minute;
    (minute < 60 && minutes <= MIDNIGHT).then_some(minutes)
}

impl fmt::Display for Hours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        for window in &self.0 {
            let hours = format!(
                "{:02}:{:02}-{:02}:{:02}",
                window.from / 60,
                window.from % 60,
                window.to / 60,
                window.to % 60
            );
            parts.push(match print_days(window.days) {
                days if days.is_empty() => hours,
                days => format!("{days} {hours}"),
            });
        }
        f.pad(&parts.join("; "))
    }
}

/// Runs of days; nothing for all of them.
fn print_days(days: u8) -> String {
    if days & 0x7f == 0x7f {
        return String::new();
    }
    let has = |day: usize| days & (1 << day) != 0;
    let mut runs = Vec::new();
    let mut day = 0;
    while day < 7 {
        let length = (day..7).take_while(|day| has(*day)).count();
        match length {
            0 => {}
            1 => runs.push(DAYS[day].to_owned()),
            _ => runs.push(format!("{}-{}", DAYS[day], DAYS[day + length - 1])),
        }
        day += length.max(1);
    }
    runs.join(",")
}

stored_as_text!(Hours);

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::civil::time;
    use proptest::prelude::*;

    fn hours(text: &str) -> Hours {
        text.parse().unwrap()
    }

    #[test]
    fn they_hold_from_the_first_minute_to_before_the_last() {
        let hours = hours("mon-fri 06:00-22:00; sat,sun 08:00-24:00");
        assert!(!hours.hold(Weekday::Monday, time(5, 59, 59, 0)));
        assert!(hours.hold(Weekday::Monday, time(6, 0, 0, 0)));
        assert!(hours.hold(Weekday::Friday, time(21, 59, 59, 0)));
        assert!(!hours.hold(Weekday::Friday, time(22, 0, 0, 0)));
        assert!(!hours.hold(Weekday::Sunday, time(7, 0, 0, 0)));
        assert!(hours.hold(Weekday::Sunday, time(23, 59, 59, 0)));
    }

    #[test]
    fn written_as_read() {
        for text in
            ["mon-fri 06:00-22:00", "06:00-22:00", "mon,wed-fri,sun 00:00-24:00; 12:00-13:00"]
        {
            assert_eq!(hours(text).to_string(), text);
        }
        assert_eq!(hours("sat-mon 01:00-02:00").to_string(), "mon,sat-sun 01:00-02:00");
        for text in [
            "",
            "mon",
            "mon 6:00-22:00",
            "xyz 06:00-22:00",
            "22:00-06:00",
            "00:00-24:01",
            "10:60-11:00",
        ] {
            assert!(text.parse::<Hours>().is_err(), "{text}");
        }
    }

    #[test]
    fn hours_past_midnight_are_refused_with_the_way_to_write_them() {
        for night in ["22:00-06:00", "mon-fri 22:00-06:00"] {
            let said = night.parse::<Hours>().unwrap_err().to_string();
            assert!(said.contains("\"mon 22:00-24:00; tue 00:00-06:00\""), "{said}");
        }
        assert!("mon 22:00-24:00; tue 00:00-06:00".parse::<Hours>().is_ok());
    }

    proptest! {
        #[test]
        fn nothing_panics_and_what_is_read_is_written(text in "[a-z0-9:;, -]{0,40}") {
            if let Ok(read) = text.parse::<Hours>() {
                prop_assert_eq!(read.to_string().parse::<Hours>().unwrap(), read);
            }
        }
    }
}
