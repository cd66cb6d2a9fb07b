//! The arguments of `ekiden user`, and what they say of a household.

use crate::config::{self, pattern};
use clap::{Args, Subcommand};
use ekiden_accounts::{
    Account, Attributes, Credential, Device, Hours, Quota, StoreError, WhenSpent,
};
use ekiden_model::units::Rate;
use ipnet::IpNet;
use jiff::civil::Date;
use std::path::PathBuf;
use std::str::FromStr;

/// `ekiden user …`.
#[derive(Debug, Subcommand)]
pub enum UserCommand {
    /// Add a household
    #[command(after_help = ADD_HELP)]
    Add {
        /// What the household is called
        name: String,
        /// By what it is known.
        #[command(flatten)]
        devices: Devices,
        /// What it may do.
        #[command(flatten)]
        limits: Box<Limits>,
        /// Which configuration.
        #[command(flatten)]
        place: Place,
    },
    /// The households there are
    #[command(
        after_help = "Examples:\n  ekiden user list\n  ekiden user list --json | jq -r '.households[] | select(.disabled) | .name'\n\nThe document's schema is docs/schema/user.json."
    )]
    List {
        /// Print one JSON document
        #[arg(long)]
        json: bool,
        /// Which configuration.
        #[command(flatten)]
        place: Place,
    },
    /// All that is written down of one household, but for passwords
    #[command(
        after_help = "Example:\n  ekiden user show tanaka\n\nThe document's schema is docs/schema/user.json."
    )]
    Show {
        /// Its name
        name: String,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
        /// Which configuration.
        #[command(flatten)]
        place: Place,
    },
    /// Change a household; what is not named stays as it is
    #[command(after_help = SET_HELP)]
    Set {
        /// Its name
        name: String,
        /// What it is called from now on
        #[arg(long, value_name = "NAME")]
        rename: Option<String>,
        /// Further devices, and new passwords.
        #[command(flatten)]
        devices: Devices,
        /// Forget this device (may be repeated)
        #[arg(long, value_name = "DEVICE")]
        forget: Vec<String>,
        /// What it may do.
        #[command(flatten)]
        limits: Box<Limits>,
        /// Which configuration.
        #[command(flatten)]
        place: Place,
    },
    /// Remove a household; its connections end within a second or two, and what it used stays written down
    #[command(
        after_help = "Example:\n  ekiden user remove tanaka\n\nTo keep it and let nobody in: ekiden user set tanaka --disable"
    )]
    Remove {
        /// Its name
        name: String,
        /// Which configuration.
        #[command(flatten)]
        place: Place,
    },
    /// What households have used, period by period
    #[command(after_help = USAGE_HELP)]
    Usage {
        /// One household [default: all]
        name: Option<String>,
        /// Periods that began on this day or later, by the household's time zone
        #[arg(long, value_name = "DATE")]
        since: Option<Date>,
        /// Print one JSON document
        #[arg(long, conflicts_with = "csv")]
        json: bool,
        /// Print comma-separated values: account, name, begun, down, up (bytes)
        #[arg(long)]
        csv: bool,
        /// Which configuration.
        #[command(flatten)]
        place: Place,
    },
}

const ADD_HELP: &str = "Examples:\n  \
    echo 'a long password' | ekiden user add tanaka --user anna --password-stdin --quota '20 GB/month'\n  \
    ekiden user add sato --address 100.64.7.0/24 --down '5 Mbit/s' --up '1 Mbit/s'\n  \
    ekiden user add ship --relay ship --hours 'mon-fri 06:00-22:00' --zone Asia/Tokyo\n\n\
    A household is known by any of its devices: a user and a password, addresses, or the relay it comes\n\
    through. A running daemon with [accounts] enabled = true lets it in within a second.";
const SET_HELP: &str = "Examples:\n  \
    ekiden user set tanaka --disable\n  \
    ekiden user set tanaka --down none --quota '40 GB/month' --reset-day 15\n  \
    echo 'another password' | ekiden user set tanaka --user anna --password-stdin\n  \
    ekiden user set tanaka --forget anna --allow '*.school.example' --allow ':443'\n\n\
    `none` lifts a limit, and empties a list. A user that is there gets the new password. A running daemon\n\
    takes it over within a second; connections of a household that may not come in any more end then too.";
const USAGE_HELP: &str = "Examples:\n  \
    ekiden user usage\n  \
    ekiden user usage tanaka --since 2026-10-01 --csv > tanaka.csv\n\n\
    Payload bytes, as a running daemon has settled them: up to five seconds ago. The document's schema is\n\
    docs/schema/usage.json.";

/// Which configuration says where households are kept.
#[derive(Debug, Args)]
pub struct Place {
    /// Configuration file that says where households are kept [default: the one `serve` would use]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// By what a household is known.
#[derive(Debug, Default, Args)]
pub struct Devices {
    /// A user's name, with --password-stdin
    #[arg(long, value_name = "USER", requires = "password_stdin")]
    pub user: Option<String>,
    /// Read the user's password from standard input: its first line
    #[arg(long, requires = "user")]
    pub password_stdin: bool,
    /// Addresses it comes from (may be repeated)
    #[arg(long, value_name = "CIDR", value_parser = pattern::net)]
    pub address: Vec<IpNet>,
    /// The relay out of whose tunnel it comes (may be repeated)
    #[arg(long, value_name = "RELAY", value_parser = relay_name)]
    pub relay: Vec<String>,
    /// What the device is called, where one is added [default: after what it is known by]
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,
}

pub(crate) fn relay_name(text: &str) -> Result<String, String> {
    config::name(text).map(|()| text.to_owned())
}

pub(crate) fn destination(text: &str) -> Result<String, String> {
    if text != "none" {
        pattern::pattern(text)?;
    }
    Ok(text.to_owned())
}

/// A limit, or that there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct To<T>(Option<T>);

impl<T> From<Option<T>> for To<T> {
    fn from(limit: Option<T>) -> Self {
        Self(limit)
    }
}

impl<T: FromStr<Err: std::fmt::Display>> FromStr for To<T> {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(None));
        }
        text.parse().map(|value| Self(Some(value))).map_err(|bad: T::Err| bad.to_string())
    }
}

/// At least one, or none.
fn number(text: &str) -> Result<To<u32>, String> {
    match text.parse::<To<u32>>() {
        Ok(To(Some(0))) | Err(_) => Err("a number from 1 on, or none".to_owned()),
        Ok(to) => Ok(to),
    }
}

fn some_rate(text: &str) -> Result<To<Rate>, String> {
    let to: To<Rate> = text.parse()?;
    match to.0 {
        Some(rate) => at_least(rate).map(|rate| To(Some(rate))),
        None => Ok(to),
    }
}

fn rate(text: &str) -> Result<Rate, String> {
    at_least(text.parse().map_err(|bad: ekiden_model::units::UnitError| bad.to_string())?)
}

/// Less is no use to anybody, and a mistake in the unit.
pub(crate) fn at_least(rate: Rate) -> Result<Rate, String> {
    let least = Rate::from_bits_per_second(8_000);
    if rate < least {
        Err(format!("a rate is {least} at least; to stop a household: --disable"))
    } else {
        Ok(rate)
    }
}

/// The words for [`WhenSpent`].
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub enum Spent {
    /// It goes on at --slower
    Slower,
    /// Nothing of it is carried until the next period
    Cut,
}

/// What a household may do; what is not named stays as it is.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "What it may do")]
pub struct Limits {
    /// The most towards it, or none
    #[arg(long, value_name = "RATE", value_parser = some_rate)]
    pub down: Option<To<Rate>>,
    /// The most from it, or none
    #[arg(long, value_name = "RATE", value_parser = some_rate)]
    pub up: Option<To<Rate>>,
    /// Its share beside others' where the relay's own rate is full
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub weight: Option<u32>,
    /// Bytes in a period, both directions: «20 GB/month», «1 GB/day», «100 GB»; or none
    #[arg(long, value_name = "QUOTA")]
    pub quota: Option<To<Quota>>,
    /// Time zone of periods, hours and expiry, such as Asia/Tokyo
    #[arg(long, value_name = "ZONE")]
    pub zone: Option<String>,
    /// The day on which a week (1 Monday to 7) or a month (1 to 31) begins for the quota
    #[arg(long, value_name = "DAY", value_parser = clap::value_parser!(u8).range(1..=31))]
    pub reset_day: Option<u8>,
    /// What happens when the quota is spent
    #[arg(long, value_name = "WHAT")]
    pub when_spent: Option<Spent>,
    /// The rate once the quota is spent
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub slower: Option<Rate>,
    /// Connections at once, or none
    #[arg(long, value_name = "N", value_parser = number)]
    pub connections: Option<To<u32>>,
    /// New connections in a second, or none
    #[arg(long, value_name = "N", value_parser = number)]
    pub connects_per_second: Option<To<u32>>,
    /// The last day, such as 2027-03-31, or none
    #[arg(long, value_name = "DATE")]
    pub expires: Option<To<Date>>,
    /// Destinations it may go to, as in a rule, or none for all that rules allow (may be repeated)
    #[arg(long, value_name = "PATTERN", value_parser = destination)]
    pub allow: Vec<String>,
    /// Destinations it may not go to, or none (may be repeated)
    #[arg(long, value_name = "PATTERN", value_parser = destination)]
    pub deny: Vec<String>,
    /// Hours of the week: «mon-fri 06:00-22:00; sat,sun 08:00-24:00», or none
    #[arg(long, value_name = "HOURS")]
    pub hours: Option<To<Hours>>,
    /// Let nothing of it in
    #[arg(long, conflicts_with = "enable")]
    pub disable: bool,
    /// Let it in again
    #[arg(long)]
    pub enable: bool,
}

impl Limits {
    /// Puts what is said into a household's attributes.
    ///
    /// # Errors
    /// When the whole makes no sense, in words.
    pub(crate) fn apply(&self, to: &mut Attributes) -> Result<(), StoreError> {
        put(&mut to.down, self.down.as_ref());
        put(&mut to.up, self.up.as_ref());
        put(&mut to.quota, self.quota.as_ref());
        put(&mut to.connections, self.connections.as_ref());
        put(&mut to.connects_per_second, self.connects_per_second.as_ref());
        put(&mut to.expires, self.expires.as_ref());
        put(&mut to.hours, self.hours.as_ref());
        to.weight = self.weight.unwrap_or(to.weight);
        to.reset_day = self.reset_day.unwrap_or(to.reset_day);
        to.slower = self.slower.unwrap_or(to.slower);
        if let Some(zone) = &self.zone {
            to.zone.clone_from(zone);
        }
        if let Some(spent) = self.when_spent {
            to.when_spent = match spent {
                Spent::Slower => WhenSpent::Slower,
                Spent::Cut => WhenSpent::Cut,
            };
        }
        for (list, said) in [(&mut to.allow, &self.allow), (&mut to.deny, &self.deny)] {
            if !said.is_empty() {
                *list = said.iter().filter(|text| *text != "none").cloned().collect();
            }
        }
        to.disabled = (to.disabled || self.disable) && !self.enable;
        to.calendar().map(|_| ()).map_err(|bad| StoreError::Refused(bad.to_string()))
    }
}

fn put<T: Clone>(to: &mut Option<T>, said: Option<&To<T>>) {
    if let Some(To(value)) = said {
        to.clone_from(value);
    }
}

impl Devices {
    /// Adds what is said to a household's devices; `hash` is that of the user's password.
    ///
    /// # Errors
    /// When a name is given for several devices at once.
    pub(crate) fn apply(&self, hash: Option<String>, to: &mut Account) -> Result<(), StoreError> {
        let mut credentials = Vec::new();
        if let (Some(user), Some(hash)) = (&self.user, hash) {
            let credential = Credential::Password { user: user.clone(), hash };
            let same = |device: &&mut Device| device.credential.identity() == credential.identity();
            match to.devices.iter_mut().find(same) {
                Some(device) => device.credential = credential,
                None => credentials.push((user.clone(), credential)),
            }
        }
        for net in &self.address {
            credentials.push(("address".to_owned(), Credential::Prefix(net.trunc())));
        }
        for relay in &self.relay {
            credentials.push((relay.clone(), Credential::Relay(relay.clone())));
        }
        if self.device.is_some() && credentials.len() != 1 {
            let why = "--device names one new device; add them one at a time to name each";
            return Err(StoreError::Refused(why.to_owned()));
        }
        for (usual, credential) in credentials {
            let name = match &self.device {
                Some(name) => name.clone(),
                None => free_name(&usual, &to.devices),
            };
            to.devices.push(Device { name, credential });
        }
        Ok(())
    }
}

/// Takes devices away from a household.
///
/// # Errors
/// When it has none of such a name.
pub(crate) fn forget(gone: &[String], account: &mut Account) -> Result<(), StoreError> {
    for gone in gone {
        let before = account.devices.len();
        account.devices.retain(|device| device.name != *gone);
        if account.devices.len() == before {
            let why = format!("«{}» has no device «{gone}»; see `ekiden user show`", account.name);
            return Err(StoreError::Refused(why));
        }
    }
    Ok(())
}

/// A name that no device has yet.
fn free_name(usual: &str, devices: &[Device]) -> String {
    let usual = if Account::check_name(usual).is_ok() { usual } else { "device" };
    let is_free = |name: &String| devices.iter().all(|device| device.name != *name);
    let numbered = (2_usize..).map(|n| format!("{usual}-{n}"));
    let mut names = std::iter::once(usual.to_owned()).chain(numbered);
    names.find(is_free).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use ekiden_accounts::AccountId;

    #[derive(Parser)]
    struct Said {
        #[command(flatten)]
        devices: Devices,
        #[command(flatten)]
        limits: Limits,
    }

    fn said(args: &[&str]) -> Result<Said, clap::Error> {
        Said::try_parse_from(std::iter::once("x").chain(args.iter().copied()))
    }

    fn nobody() -> Account {
        Account {
            id: AccountId(0),
            name: "h".into(),
            devices: vec![],
            attributes: Attributes::default(),
        }
    }

    #[test]
    fn what_is_not_named_stays_and_none_lifts() {
        let mut to = Attributes::default();
        let first = ["--down", "5 Mbit/s", "--quota", "20 GB/month", "--deny", ":25", "--disable"];
        said(&first).unwrap().limits.apply(&mut to).unwrap();
        assert_eq!((to.down, to.disabled), (Some("5 Mbit/s".parse().unwrap()), true));
        said(&["--down", "none", "--enable", "--weight", "3"])
            .unwrap()
            .limits
            .apply(&mut to)
            .unwrap();
        assert_eq!((to.down, to.disabled, to.weight), (None, false, 3));
        assert_eq!(to.quota.unwrap().to_string(), "20 GB/month");
        assert_eq!(to.deny, [":25"]);
        said(&["--deny", "none"]).unwrap().limits.apply(&mut to).unwrap();
        assert!(to.deny.is_empty());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for args in [
            &["--down", "5"][..],
            &["--down", "1 bit/s"],
            &["--connections", "0"],
            &["--weight", "0"],
            &["--deny", "("],
            &["--expires", "2026-02-30"],
            &["--hours", "late"],
            &["--user", "anna"],
            &["--password-stdin"],
            &["--enable", "--disable"],
            &["--address", "x"],
        ] {
            assert!(said(args).is_err(), "{args:?}");
        }
        let week = said(&["--quota", "1 GB/week", "--reset-day", "8"]).unwrap();
        assert!(week.limits.apply(&mut Attributes::default()).is_err());
        let zone = said(&["--zone", "Atlantis"]).unwrap();
        let refused = zone.limits.apply(&mut Attributes::default()).unwrap_err().to_string();
        assert!(refused.contains("Asia/Tokyo"), "{refused}");
    }

    #[test]
    fn devices_have_names_and_a_user_that_is_there_gets_the_password() {
        let mut to = nobody();
        let args = [
            "--user",
            "anna",
            "--password-stdin",
            "--address",
            "100.64.1.0/24",
            "--address",
            "2001:db8::/48",
        ];
        said(&args).unwrap().devices.apply(Some("one".into()), &mut to).unwrap();
        let names: Vec<_> = to.devices.iter().map(|device| device.name.as_str()).collect();
        assert_eq!(names, ["anna", "address", "address-2"]);
        let again = ["--user", "anna", "--password-stdin"];
        said(&again).unwrap().devices.apply(Some("two".into()), &mut to).unwrap();
        assert_eq!(to.devices.len(), 3);
        let two = Credential::Password { user: "anna".into(), hash: "two".into() };
        assert_eq!(to.devices[0].credential, two);
        let both = ["--relay", "a", "--relay", "b", "--device", "x"];
        assert!(said(&both).unwrap().devices.apply(None, &mut to).is_err());
    }
}
