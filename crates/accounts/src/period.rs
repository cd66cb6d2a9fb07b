//! Periods of a quota: days, weeks and months of the account's own time zone, as its calendar has them.

use ekiden_model::units::Bytes;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use std::fmt;
use std::str::FromStr;

/// How long a quota lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Period {
    /// From midnight to midnight.
    Day,
    /// Seven days.
    Week,
    /// A month.
    Month,
    /// It never begins anew.
    Never,
}

/// Bytes in a period, written `20 GB/month`; without a period it never begins anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// Both directions together.
    pub bytes: Bytes,
    /// In so long.
    pub period: Period,
}

/// Why a period, a quota or a calendar was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum BadPeriod {
    #[error("\"{0}\" is not a period: use day, week, month or never")]
    Word(String),
    #[error("{0}")]
    Size(String),
    #[error("\"{0}\" is not a known time zone; write it like Asia/Tokyo or UTC{hint}", hint = no_zones(jiff::tz::db().is_definitively_empty()))]
    Zone(String),
    #[error("day {0} is out of range: use 1 (Monday) to 7 for a week, 1 to 31 for a month")]
    Day(u8),
}

/// A program without zones of its own, on a system without any.
const fn no_zones(none: bool) -> &'static str {
    match none {
        true => {
            "; this system has none in /usr/share/zoneinfo: install tzdata, or zoneinfo-asia and the like on OpenWrt"
        }
        false => "",
    }
}

impl FromStr for Period {
    type Err = BadPeriod;
    fn from_str(text: &str) -> Result<Self, BadPeriod> {
        let text = text.trim();
        let named = [Self::Day, Self::Week, Self::Month, Self::Never];
        let named = named.into_iter().find(|period| period.to_string() == text);
        named.ok_or_else(|| BadPeriod::Word(text.chars().take(40).collect()))
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Never => "never",
        })
    }
}

impl FromStr for Quota {
    type Err = BadPeriod;
    fn from_str(text: &str) -> Result<Self, BadPeriod> {
        let (size, period) = text.split_once('/').unwrap_or((text, "never"));
        let bad = |bad| BadPeriod::Size(format!("{bad}, or with its period, `20 GB/month`"));
        let bytes = size.trim().parse::<Bytes>().map_err(bad)?;
        Ok(Self { bytes, period: period.parse()? })
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // operators sell decimal units, and those come out exactly as they were written
        let n = self.bytes.as_u64();
        let decimal = [(1_000_000_000_000, "TB"), (1_000_000_000, "GB"), (1_000_000, "MB")];
        let size = match decimal.iter().find(|(scale, _)| n >= *scale && n.is_multiple_of(*scale)) {
            Some((scale, unit)) => format!("{} {unit}", n / scale),
            None => self.bytes.to_string(),
        };
        match self.period {
            Period::Never => f.pad(&size),
            period => f.pad(&format!("{size}/{period}")),
        }
    }
}

stored_as_text!(Quota);

/// The last day on which a period may begin.
const fn last_day(period: Period) -> u8 {
    match period {
        Period::Week => 7,
        Period::Day | Period::Month | Period::Never => 31,
    }
}

/// When an account's periods begin.
#[derive(Debug, Clone)]
pub struct Calendar {
    period: Period,
    zone: TimeZone,
    day: u8,
}

impl Calendar {
    /// Periods of a time zone; `day` is where a week (1 Monday to 7) or month (1 to 31) begins.
    pub fn new(period: Period, zone: &str, day: u8) -> Result<Self, BadPeriod> {
        // first: a day counts also where the zone is not known
        if !(1..=last_day(period)).contains(&day) {
            return Err(BadPeriod::Day(day));
        }
        let zone = TimeZone::get(zone).map_err(|_| BadPeriod::Zone(zone.to_owned()))?;
        Ok(Self { period, zone, day })
    }

    /// The same in a zone that is known; of a day out of range, the nearest.
    pub(crate) fn in_zone(period: Period, zone: TimeZone, day: u8) -> Self {
        Self { period, zone, day: day.clamp(1, last_day(period)) }
    }

    /// The moment at which the period that holds `now` began; 1970 for one that never begins anew.
    pub fn begun(&self, now: Timestamp) -> Timestamp {
        let today = now.to_zoned(self.zone.clone()).date();
        self.first_day(today).and_then(|day| self.midnight(day)).unwrap_or(Timestamp::UNIX_EPOCH)
    }

    /// The moment at which the next period begins; `None` for one that never begins anew.
    pub fn next(&self, now: Timestamp) -> Option<Timestamp> {
        let first = self.first_day(now.to_zoned(self.zone.clone()).date())?;
        let next = match self.period {
            Period::Day => first.tomorrow().ok()?,
            Period::Week => first.checked_add(7.days()).ok()?,
            // the first of the month after cannot be too short for the addition
            Period::Month => self.in_month(first.first_of_month().checked_add(1.month()).ok()?)?,
            Period::Never => return None,
        };
        self.midnight(next)
    }

    /// The same for people, in its own time zone: `2026-12-01 00:00 Asia/Tokyo`.
    pub fn next_in_words(&self, now: Timestamp) -> Option<String> {
        let next = self.next(now)?.to_zoned(self.zone.clone());
        let zone = self.zone.iana_name().unwrap_or("UTC");
        Some(format!("{} {zone}", next.strftime("%Y-%m-%d %H:%M")))
    }

    /// The first day of the period that holds `today`.
    fn first_day(&self, today: Date) -> Option<Date> {
        match self.period {
            Period::Day => Some(today),
            Period::Week => {
                let weekday = today.weekday().to_monday_one_offset();
                let since = (i64::from(weekday) - i64::from(self.day)).rem_euclid(7);
                today.checked_sub(since.days()).ok()
            }
            Period::Month => {
                let this = self.in_month(today)?;
                if this <= today {
                    return Some(this);
                }
                self.in_month(today.first_of_month().yesterday().ok()?)
            }
            Period::Never => None,
        }
    }

    /// The day of reset in the month of `date`.
    fn in_month(&self, date: Date) -> Option<Date> {
        let day = i8::try_from(self.day).ok()?.min(date.days_in_month());
        date.with().day(day).build().ok()
    }

    /// The first moment of a day, which is not 0:00 where summer time begins at midnight.
    fn midnight(&self, day: Date) -> Option<Timestamp> {
        let zoned = day.to_zoned(self.zone.clone()).ok()?;
        zoned.start_of_day().ok().map(|start| start.timestamp())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn calendar(period: Period, zone: &str, day: u8) -> Calendar {
        Calendar::new(period, zone, day).unwrap()
    }

    #[test]
    fn a_system_without_zones_is_told_apart_from_a_wrong_name() {
        let error = BadPeriod::Zone("Asia/Tokio".to_owned()).to_string();
        assert_eq!(
            error,
            "\"Asia/Tokio\" is not a known time zone; write it like Asia/Tokyo or UTC"
        );
        assert!(no_zones(true).contains("install tzdata"));
    }

    #[test]
    fn quotas_are_written_as_they_are_sold() {
        for text in ["20 GB/month", "1500 MB/day", "3 TB", "8 MiB/week", "123 B/day"] {
            assert_eq!(text.parse::<Quota>().unwrap().to_string(), text);
        }
        assert!("20 GB/year".parse::<Quota>().unwrap_err().to_string().contains("\"year\""));
        assert!("20/month".parse::<Quota>().is_err());
    }

    #[test]
    fn a_day_of_reset_that_a_month_does_not_have_is_its_last() {
        let month = calendar(Period::Month, "UTC", 31);
        let now = at("2027-02-27T12:00:00Z");
        assert_eq!(month.begun(now), at("2027-01-31T00:00:00Z"));
        assert_eq!(month.next(now), Some(at("2027-02-28T00:00:00Z")));
        let later = at("2027-02-28T00:00:00Z");
        assert_eq!(month.begun(later), later);
        assert_eq!(month.next(later), Some(at("2027-03-31T00:00:00Z")));
    }

    #[test]
    fn a_day_of_summer_time_has_23_hours_and_one_of_winter_25() {
        let day = calendar(Period::Day, "Europe/Berlin", 1);
        let hours = |text: &str| {
            let now = at(text);
            (day.next(now).unwrap().as_second() - day.begun(now).as_second()) / 3600
        };
        assert_eq!(hours("2026-03-29T12:00:00Z"), 23);
        assert_eq!(hours("2026-10-25T12:00:00Z"), 25);
    }

    #[test]
    fn days_begin_at_one_if_summer_time_begins_at_midnight() {
        // Cairo 2026: 24 April, 0:00 becomes 1:00
        let day = calendar(Period::Day, "Africa/Cairo", 1);
        assert_eq!(day.begun(at("2026-04-24T12:00:00Z")), at("2026-04-23T22:00:00Z"));
    }

    #[test]
    fn weeks_begin_on_the_day_that_was_said() {
        let week = calendar(Period::Week, "Asia/Tokyo", 6);
        let now = at("2026-11-22T00:00:00Z"); // a Sunday, 9:00 in Tokyo
        assert_eq!(week.begun(now), at("2026-11-20T15:00:00Z"));
        assert_eq!(week.next(now), Some(at("2026-11-27T15:00:00Z")));
        assert_eq!(week.next_in_words(now).as_deref(), Some("2026-11-28 00:00 Asia/Tokyo"));
    }

    #[test]
    fn refuses_an_invalid_calendar() {
        assert_eq!(
            Calendar::new(Period::Day, "Mars/Base", 1).unwrap_err(),
            BadPeriod::Zone("Mars/Base".into())
        );
        assert_eq!(Calendar::new(Period::Week, "UTC", 8).unwrap_err(), BadPeriod::Day(8));
        assert_eq!(Calendar::new(Period::Month, "UTC", 0).unwrap_err(), BadPeriod::Day(0));
        // a row of the database with both is not read as one of UTC
        assert_eq!(Calendar::new(Period::Week, "Mars/Base", 8).unwrap_err(), BadPeriod::Day(8));
    }

    proptest! {
        #[test]
        fn periods_follow_one_another_without_gap_or_overlap(
            second in 0_i64..4_000_000_000, day in 1_u8..=31, kind in 0_usize..3,
            zone in prop::sample::select(vec!["UTC", "Asia/Tokyo", "Europe/Berlin", "America/New_York",
                "Australia/Lord_Howe", "Africa/Cairo", "America/Santiago", "Pacific/Apia"]),
        ) {
            let period = [Period::Day, Period::Week, Period::Month][kind];
            let day = if period == Period::Week { (day - 1) % 7 + 1 } else { day };
            let calendar = calendar(period, zone, day);
            let now = Timestamp::from_second(second).unwrap();
            let (begun, next) = (calendar.begun(now), calendar.next(now).unwrap());
            prop_assert!(begun <= now && now < next, "{begun} {now} {next}");
            // the whole period agrees about itself, to its last moment
            prop_assert_eq!(calendar.begun(begun), begun);
            let last = Timestamp::from_nanosecond(next.as_nanosecond() - 1).unwrap();
            prop_assert_eq!(calendar.begun(last), begun);
            prop_assert_eq!(calendar.begun(next), next);
        }
    }
}
