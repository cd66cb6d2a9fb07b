//! An account as it is stored: its devices and its limits.

use crate::hours::Hours;
use crate::period::{Calendar, Period, Quota};
use ekiden_model::units::{Bytes, Rate};
use ipnet::IpNet;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

/// An account's number, never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AccountId(pub i64);

impl fmt::Display for AccountId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// An account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Account {
    /// Its number; 0 before it is stored.
    pub id: AccountId,
    /// Its unique name.
    pub name: String,
    /// Its devices; without any it cannot connect.
    pub devices: Vec<Device>,
    /// Its limits.
    #[serde(deserialize_with = "known_limits")]
    pub attributes: Attributes,
}

#[cfg(test)]
impl Account {
    /// One that is not stored, without devices and limits.
    pub(crate) fn named(name: &str) -> Self {
        let (name, attributes) = (name.to_owned(), Attributes::default());
        Self { id: AccountId(0), name, devices: Vec::new(), attributes }
    }
}

/// One of an account's devices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// Its name within the account.
    pub name: String,
    /// How it is recognized.
    pub credential: Credential,
}

/// How a device is recognized. Credentials are unique across accounts.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
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
    /// The peer whose tunnel it comes through.
    #[serde(alias = "relay")]
    Peer(String),
    /// A key of WireGuard. Its addresses in the tunnel are the device's alone.
    Wireguard {
        /// The address in the tunnel.
        v4: Ipv4Addr,
        /// The other one.
        v6: Ipv6Addr,
        /// The public key, in base64. The private one is with the device.
        key: String,
    },
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // a hash can be turned into a password, given time
        match self {
            Self::Password { user, .. } => {
                f.debug_struct("Password").field("user", user).finish_non_exhaustive()
            }
            Self::Prefix(net) => f.debug_tuple("Prefix").field(net).finish(),
            Self::Peer(name) => f.debug_tuple("Peer").field(name).finish(),
            Self::Wireguard { v4, key, .. } => f
                .debug_struct("Wireguard")
                .field("v4", v4)
                .field("key", key)
                .finish_non_exhaustive(),
        }
    }
}

impl Credential {
    /// The kind, and what no two of that kind share, as they are stored.
    pub fn identity(&self) -> (&'static str, String) {
        match self {
            Self::Password { user, .. } => ("password", user.clone()),
            Self::Prefix(net) => ("prefix", net.trunc().to_string()),
            Self::Peer(name) => ("peer", name.clone()),
            Self::Wireguard { v4, .. } => ("wireguard", v4.to_string()),
        }
    }
}

/// The action when an account's quota is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnQuotaExceeded {
    /// Continue at [`Attributes::throttle_rate`]. The default.
    #[default]
    #[serde(alias = "slower")]
    Throttle,
    /// Drop everything until the next period.
    Cut,
}

/// An account's limits. `None` is unlimited.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Attributes {
    /// Maximum rate towards it.
    pub down: Option<Rate>,
    /// Maximum rate from it.
    pub up: Option<Rate>,
    /// Share of the relay's own rate when that is full; 1 to 1000, default 1.
    pub weight: u32,
    /// Bytes, both directions together, in a period.
    pub quota: Option<Quota>,
    /// The time zone of periods, hours and expiry, as in the IANA's database; default `UTC`.
    pub zone: String,
    /// The day on which a week (1 Monday to 7) or a month (1 to 31) of the quota begins, default 1;
    /// the last day of a shorter month.
    pub reset_day: u8,
    /// The action when the quota is used up.
    #[serde(alias = "when_spent")]
    pub on_quota_exceeded: OnQuotaExceeded,
    /// Rate of each direction after the quota is used up; default 256 kbit/s.
    #[serde(alias = "slower")]
    pub throttle_rate: Rate,
    /// Maximum number of simultaneous connections.
    pub connections: Option<u32>,
    /// Maximum number of new connections per second.
    pub connects_per_second: Option<u32>,
    /// The last day of use.
    pub expires: Option<Date>,
    /// Allowed destinations, as patterns; empty: all that the rules allow.
    pub allow: Vec<String>,
    /// Denied destinations, as patterns; checked before `allow`.
    pub deny: Vec<String>,
    /// The hours of the week in which it may connect.
    pub hours: Option<Hours>,
    /// Reject all its clients.
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
            on_quota_exceeded: OnQuotaExceeded::Throttle,
            throttle_rate: Rate::from_bits_per_second(256_000),
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

/// The names by which limits are stored: those of now, and the aliases of [`Attributes`].
static NAMES: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let now = match serde_json::to_value(Attributes::default()) {
        Ok(Value::Object(all)) => all,
        _ => Map::new(),
    };
    let aliases = ["when_spent", "slower"].map(str::to_owned);
    now.into_iter().map(|(name, _)| name).chain(aliases).collect()
});

/// Whether this version knows all of the limits, but for those whose value is that of none. Errors: in words.
fn check_known(stored: &Map<String, Value>) -> Result<(), String> {
    for (name, value) in stored {
        let is_none = match value {
            Value::Null | Value::Bool(false) => true,
            Value::Array(all) => all.is_empty(),
            _ => false,
        };
        if !is_none && !NAMES.contains(name) {
            let name: String = name.chars().take(80).collect();
            return Err(format!("this version knows no limit {name:?}"));
        }
    }
    Ok(())
}

/// The limits of a saved account, by the rule of [`Attributes::from_stored`].
fn known_limits<'de, D: Deserializer<'de>>(from: D) -> Result<Attributes, D::Error> {
    let stored = Map::<String, Value>::deserialize(from)?;
    check_known(&stored).map_err(D::Error::custom)?;
    serde_json::from_value(Value::Object(stored)).map_err(D::Error::custom)
}

/// Why an account may not connect now; the message goes to its user. Hours have their time zone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Barred {
    #[error("this account is disabled; ask the operator of this relay")]
    Disabled,
    #[error("this account expired on {0}; ask the operator of this relay")]
    Expired(Date),
    #[error("this account is limited to these hours: {0}, {1}")]
    Hours(Hours, String),
}

impl Attributes {
    /// Reads them as they are stored. A limit that this version does not know is an error, unless
    /// its value is that of none: ignored, it would not hold, and the next change would remove it.
    pub(crate) fn from_stored(text: &str) -> serde_json::Result<Self> {
        let stored: Map<String, Value> = serde_json::from_str(text)?;
        check_known(&stored).map_err(serde_json::Error::custom)?;
        serde_json::from_str(text)
    }

    /// The calendar of its periods, in its time zone. Errors: an unknown time zone, an invalid day.
    pub fn calendar(&self) -> Result<Calendar, crate::BadPeriod> {
        Calendar::new(self.period(), &self.zone, self.reset_day)
    }

    /// Its calendar by [`zone_here`](Self::zone_here): the one by which a relay counts.
    pub fn calendar_here(&self) -> Calendar {
        Calendar::in_zone(self.period(), self.zone_here(), self.reset_day)
    }

    /// Its time zone, or UTC where this system does not know it.
    pub fn zone_here(&self) -> TimeZone {
        TimeZone::get(&self.zone).unwrap_or(TimeZone::UTC)
    }

    fn period(&self) -> Period {
        self.quota.map_or(Period::Month, |quota| quota.period)
    }

    /// Whether it may come in at `now`, or why not. Hours and expiry in an unknown time zone are
    /// UTC's.
    pub fn may_come_in(&self, now: Timestamp) -> Result<(), Barred> {
        if self.disabled {
            return Err(Barred::Disabled);
        }
        if self.expires.is_none() && self.hours.is_none() {
            return Ok(());
        }
        let there = now.to_zoned(self.zone_here());
        if let Some(last) = self.expires.filter(|last| there.date() > *last) {
            return Err(Barred::Expired(last));
        }
        match &self.hours {
            Some(hours) if !hours.hold(there.weekday(), there.time()) => {
                let zone = there.time_zone().iana_name().unwrap_or("UTC").to_owned();
                Err(Barred::Hours(hours.clone(), zone))
            }
            _ => Ok(()),
        }
    }

    /// The quota's bytes, where there is one.
    pub fn quota_bytes(&self) -> Option<Bytes> {
        self.quota.map(|quota| quota.bytes)
    }
}

/// Why a name was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum BadName {
    #[error("invalid name \"{0}\": use 1 to 63 letters, digits, `-`, `_`, `.` and `@`")]
    Name(String),
    #[error("a user's name has 1 to 255 bytes, no colon and no control characters")]
    User,
}

impl Account {
    /// Checks the name of an account or a device.
    pub fn check_name(name: &str) -> Result<(), BadName> {
        let fine = (1..=63).contains(&name.len())
            && name.chars().all(|c| c.is_alphanumeric() || "-_.@".contains(c));
        if fine { Ok(()) } else { Err(BadName::Name(name.chars().take(80).collect())) }
    }

    /// Checks the name of a user.
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
    fn expires_by_the_account_s_own_calendar() {
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
    fn a_zone_that_is_not_known_here_counts_as_utc() {
        let here = |zone: &str| Attributes {
            quota: Some("1 GB/week".parse().unwrap()),
            zone: zone.into(),
            reset_day: 3,
            hours: Some("06:00-22:00".parse().unwrap()),
            ..Attributes::default()
        };
        let (mars, utc, now) = (here("Mars/Base"), here("UTC"), at("2026-11-20T23:00:00Z"));
        assert!(mars.calendar().is_err());
        for one in [&mars, &utc] {
            assert_eq!(one.calendar_here().begun(now), at("2026-11-18T00:00:00Z"));
        }
        // and a refusal names the zone by which it was made
        let barred = mars.may_come_in(now).unwrap_err();
        assert_eq!(barred, utc.may_come_in(now).unwrap_err());
        assert!(barred.to_string().ends_with("06:00-22:00, UTC"), "{barred}");
    }

    #[test]
    fn disabled_takes_precedence() {
        let off = Attributes { disabled: true, ..Attributes::default() };
        assert_eq!(off.may_come_in(at("2026-01-01T00:00:00Z")), Err(Barred::Disabled));
        assert_eq!(Attributes::default().may_come_in(at("2026-01-01T00:00:00Z")), Ok(()));
    }

    #[test]
    fn attributes_round_trip_as_readable_text() {
        let text = r#"{"down":"5 Mbit/s","quota":"20 GB/month","hours":"mon-fri 06:00-22:00"}"#;
        let read = Attributes::from_stored(text).unwrap();
        assert_eq!(read.down, Some("5 Mbit/s".parse().unwrap()));
        assert_eq!(read.weight, 1);
        let again = Attributes::from_stored(&serde_json::to_string(&read).unwrap()).unwrap();
        assert_eq!(again, read);
    }

    #[test]
    fn checks_names() {
        assert!(Account::check_name("tanaka-3").is_ok());
        assert!(Account::check_name("").is_err() && Account::check_name("a b").is_err());
        assert!(Account::check_user("anna@island").is_ok());
        assert!(Account::check_user("a:b").is_err() && Account::check_user("a\n").is_err());
    }

    #[test]
    fn reads_attributes_and_devices_of_earlier_versions() {
        let text = r#"{"when_spent":"cut","slower":"1 Mbit/s"}"#;
        let read = Attributes::from_stored(text).unwrap();
        assert_eq!(read.on_quota_exceeded, OnQuotaExceeded::Cut);
        assert_eq!(read.throttle_rate, "1 Mbit/s".parse().unwrap());
        let slower: Attributes = serde_json::from_str(r#"{"when_spent":"slower"}"#).unwrap();
        assert_eq!(slower.on_quota_exceeded, OnQuotaExceeded::Throttle);
        let peer: Credential = serde_json::from_str(r#"{"relay":"ship"}"#).unwrap();
        assert_eq!(peer, Credential::Peer("ship".into()));
    }
}
