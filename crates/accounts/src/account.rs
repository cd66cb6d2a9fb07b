//! A household as it is written down: its devices, and what it may do.

use crate::hours::Hours;
use crate::period::{Calendar, Quota};
use ekiden_model::units::{Bytes, Rate};
use ipnet::IpNet;
use jiff::Timestamp;
use jiff::civil::Date;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A household's number: given once, never given again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AccountId(pub i64);

impl fmt::Display for AccountId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// A household.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Its number; 0 before it is stored.
    pub id: AccountId,
    /// Its name, by which the operator knows it; no two have the same.
    pub name: String,
    /// By what it is known; none: it cannot come in.
    pub devices: Vec<Device>,
    /// What it may do.
    pub attributes: Attributes,
}

/// One of a household's devices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// What it is called within the household.
    pub name: String,
    /// By what it is known.
    pub credential: Credential,
}

/// By what a device is known. No two devices of any household are known by the same.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Credential {
    /// A user name and a password, of which the hash is kept.
    Password {
        /// The user's name: no colon (RFC 7617 §2), 1 to 255 bytes (RFC 1929 §2).
        user: String,
        /// Argon2id, in the PHC string format.
        hash: String,
    },
    /// The addresses it comes from. Of several prefixes that hold an address the longest counts.
    Prefix(IpNet),
    /// The relay out of whose tunnel it comes.
    Relay(String),
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // a hash is a password to whoever has time
        match self {
            Self::Password { user, .. } => {
                f.debug_struct("Password").field("user", user).finish_non_exhaustive()
            }
            Self::Prefix(net) => f.debug_tuple("Prefix").field(net).finish(),
            Self::Relay(name) => f.debug_tuple("Relay").field(name).finish(),
        }
    }
}

impl Credential {
    /// The kind, and what no two of that kind share, as they are stored.
    #[must_use]
    pub fn identity(&self) -> (&'static str, String) {
        match self {
            Self::Password { user, .. } => ("password", user.clone()),
            Self::Prefix(net) => ("prefix", net.trunc().to_string()),
            Self::Relay(name) => ("relay", name.clone()),
        }
    }
}

/// What happens to a household whose quota is spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenSpent {
    /// It goes on at [`Attributes::slower`]. The default.
    #[default]
    Slower,
    /// Nothing of it is carried until the next period.
    Cut,
}

/// What a household may do. What is `None` is not limited.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Attributes {
    /// The most towards it.
    pub down: Option<Rate>,
    /// The most from it.
    pub up: Option<Rate>,
    /// Its share beside others' where the relay's own rate is full; 1 to 1000, default 1.
    pub weight: u32,
    /// Bytes, both directions together, in a period.
    pub quota: Option<Quota>,
    /// The time zone of periods, hours and expiry, as in the IANA's database; default `UTC`.
    pub zone: String,
    /// The day on which a week (1 Monday to 7) or a month (1 to 31) of the quota begins; default 1. In
    /// shorter months the last day stands for those that are missing.
    pub reset_day: u8,
    /// What happens when the quota is spent.
    pub when_spent: WhenSpent,
    /// The rate, each direction, of a household whose quota is spent; default 256 kbit/s.
    pub slower: Rate,
    /// Connections at once.
    pub connections: Option<u32>,
    /// New connections in a second.
    pub connects_per_second: Option<u32>,
    /// The last day on which it may come in.
    pub expires: Option<Date>,
    /// Where it may go, as patterns; none: wherever the rules let it.
    pub allow: Vec<String>,
    /// Where it may not go, as patterns; counts before `allow`.
    pub deny: Vec<String>,
    /// The hours of the week in which it may come in.
    pub hours: Option<Hours>,
    /// Nothing of it is let in.
    pub disabled: bool,
}

impl Default for Attributes {
    fn default() -> Self {
        Self {
            down: None,
            up: None,
            weight: 1,
            quota: None,
            zone: "UTC".to_owned(),
            reset_day: 1,
            when_spent: WhenSpent::Slower,
            slower: Rate::from_bits_per_second(256_000),
            connections: None,
            connects_per_second: None,
            expires: None,
            allow: Vec::new(),
            deny: Vec::new(),
            hours: None,
            disabled: false,
        }
    }
}

/// Why a household may not come in now; the message goes to its user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Barred {
    /// The operator switched it off.
    #[error("this account is disabled; ask whoever runs this relay")]
    Disabled,
    /// It has ended.
    #[error("this account ended on {0}; ask whoever runs this relay")]
    Expired(Date),
    /// Not at this time of the week.
    #[error("this account may be used at {0} only")]
    Hours(Hours),
}

impl Attributes {
    /// When its periods begin and end, and which day and hour it is there.
    ///
    /// # Errors
    /// An unknown time zone, a day that is none.
    pub fn calendar(&self) -> Result<Calendar, crate::BadPeriod> {
        let period = self.quota.map_or(crate::Period::Month, |quota| quota.period);
        Calendar::new(period, &self.zone, self.reset_day)
    }

    /// Whether it may come in at `now`. With a time zone that this machine does not know, hours and expiry
    /// are those of UTC.
    ///
    /// # Errors
    /// Why not.
    pub fn may_come_in(&self, now: Timestamp) -> Result<(), Barred> {
        if self.disabled {
            return Err(Barred::Disabled);
        }
        if self.expires.is_none() && self.hours.is_none() {
            return Ok(());
        }
        let zone = jiff::tz::TimeZone::get(&self.zone).unwrap_or(jiff::tz::TimeZone::UTC);
        let there = now.to_zoned(zone);
        if let Some(last) = self.expires.filter(|last| there.date() > *last) {
            return Err(Barred::Expired(last));
        }
        match &self.hours {
            Some(hours) if !hours.hold(there.weekday(), there.time()) => {
                Err(Barred::Hours(hours.clone()))
            }
            _ => Ok(()),
        }
    }

    /// The quota's bytes, where there is one.
    #[must_use]
    pub fn quota_bytes(&self) -> Option<Bytes> {
        self.quota.map(|quota| quota.bytes)
    }
}

/// Why a name was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    /// A household or a device.
    #[error("«{0}» is no name: 1 to 63 letters, digits, `-`, `_`, `.` and `@`")]
    Name(String),
    /// A user.
    #[error("a user's name has 1 to 255 bytes, no colon and no control characters")]
    User,
}

impl Account {
    /// Checks the name of a household or a device.
    ///
    /// # Errors
    /// [`BadName::Name`].
    pub fn check_name(name: &str) -> Result<(), BadName> {
        let fine = (1..=63).contains(&name.len())
            && name.chars().all(|c| c.is_alphanumeric() || "-_.@".contains(c));
        if fine { Ok(()) } else { Err(BadName::Name(name.chars().take(80).collect())) }
    }

    /// Checks the name of a user.
    ///
    /// # Errors
    /// [`BadName::User`].
    pub fn check_user(name: &str) -> Result<(), BadName> {
        let fine =
            (1..=255).contains(&name.len()) && name.chars().all(|c| c != ':' && !c.is_control());
        if fine { Ok(()) } else { Err(BadName::User) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn the_last_day_is_a_day_there_and_not_here() {
        let tokyo = Attributes {
            expires: Some("2026-11-30".parse().unwrap()),
            zone: "Asia/Tokyo".into(),
            ..Attributes::default()
        };
        assert_eq!(tokyo.may_come_in(at("2026-11-30T14:59:59Z")), Ok(()));
        let over = tokyo.may_come_in(at("2026-11-30T15:00:00Z"));
        assert_eq!(over, Err(Barred::Expired("2026-11-30".parse().unwrap())));
    }

    #[test]
    fn disabled_counts_before_all() {
        let off = Attributes { disabled: true, ..Attributes::default() };
        assert_eq!(off.may_come_in(at("2026-01-01T00:00:00Z")), Err(Barred::Disabled));
        assert_eq!(Attributes::default().may_come_in(at("2026-01-01T00:00:00Z")), Ok(()));
    }

    #[test]
    fn attributes_are_written_for_people_and_read_back() {
        let text = r#"{"down":"5 Mbit/s","quota":"20 GB/month","hours":"mon-fri 06:00-22:00"}"#;
        let read: Attributes = serde_json::from_str(text).unwrap();
        assert_eq!(read.down, Some("5 Mbit/s".parse().unwrap()));
        assert_eq!(read.weight, 1);
        let again: Attributes =
            serde_json::from_str(&serde_json::to_string(&read).unwrap()).unwrap();
        assert_eq!(again, read);
    }

    #[test]
    fn names() {
        assert!(Account::check_name("tanaka-3").is_ok());
        assert!(Account::check_name("").is_err() && Account::check_name("a b").is_err());
        assert!(Account::check_user("anna@island").is_ok());
        assert!(Account::check_user("a:b").is_err() && Account::check_user("a\n").is_err());
    }
}
