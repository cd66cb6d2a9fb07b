//! The arguments of `ekiden account`, and the changes of an account they ask for.

use super::{renamed, short_name};
use clap::{Args, Subcommand};
use ekiden_accounts::{Hours, LimitChanges, NewDevices, OnQuotaExceeded, Quota, check_rate};
use ekiden_config::pattern;
use ekiden_model::units::Rate;
use ipnet::IpNet;
use jiff::civil::Date;
use std::path::PathBuf;
use std::str::FromStr;

#[derive(Debug, Subcommand)]
pub(crate) enum AccountCommand {
    /// Add an account
    #[command(after_help = ADD_HELP)]
    Add {
        /// The account's name
        name: String,
        #[command(flatten)]
        devices: Devices,
        #[command(flatten)]
        limits: Box<Limits>,
        #[command(flatten)]
        config: AccountConfig,
    },
    /// List all accounts
    #[command(
        after_help = "Examples:\n  ekiden account list\n  ekiden account list --json | jq -r '.accounts[] | select(.disabled) | .name'\n\nSchema of the document: docs/book/src/reference/schema/account.json."
    )]
    List {
        /// Print one JSON document
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        config: AccountConfig,
    },
    /// Show one account, without passwords
    #[command(
        after_help = "Example:\n  ekiden account show tanaka\n\nSchema of the document: docs/book/src/reference/schema/account.json."
    )]
    Show {
        /// The account's name
        name: String,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        config: AccountConfig,
    },
    /// Change an account; options that are not given keep their values
    #[command(after_help = SET_HELP)]
    Set {
        /// The account's name
        name: String,
        /// Give the account a new name
        #[arg(long, value_name = "NAME")]
        rename: Option<String>,
        #[command(flatten)]
        devices: Devices,
        /// Remove this device (repeatable)
        #[arg(long, value_name = "DEVICE")]
        forget: Vec<String>,
        #[command(flatten)]
        limits: Box<Limits>,
        #[command(flatten)]
        config: AccountConfig,
    },
    /// Remove an account; its connections end within a second and its recorded usage stays
    #[command(
        after_help = "Example:\n  ekiden account remove tanaka\n\nTo keep the account and reject its clients: ekiden account set tanaka --disable"
    )]
    Remove {
        /// The account's name
        name: String,
        #[command(flatten)]
        config: AccountConfig,
    },
    /// Show how much accounts have used, by period
    #[command(after_help = USAGE_HELP)]
    Usage {
        /// One account [default: all]
        name: Option<String>,
        /// Only periods that began on this day or later, in the account's time zone
        #[arg(long, value_name = "DATE", value_parser = date)]
        since: Option<Date>,
        /// Print one JSON document
        #[arg(long, conflicts_with = "csv")]
        json: bool,
        /// Print comma-separated values: account, name, begun, down, up (bytes)
        #[arg(long)]
        csv: bool,
        #[command(flatten)]
        config: AccountConfig,
    },
}

const ADD_HELP: &str = "Examples:\n  \
    echo 'a long password' | ekiden account add tanaka --user anna \\\n    \
    --password-stdin --quota '20 GB/month'\n  \
    ekiden account add sato --address 100.64.7.0/24 \\\n    \
    --down '5 Mbit/s' --up '1 Mbit/s'\n  \
    ekiden account add anna --wireguard --device phone\n  \
    ekiden account add ship --peer ship \\\n    \
    --hours 'mon-fri 06:00-22:00' --zone Asia/Tokyo\n\n\
    Clients are recognized by any of the account's devices: a user and a password, an address, a peer,\n\
    or a key of WireGuard.\n\
    A running daemon with [accounts] enabled = true admits them within a second.";
const SET_HELP: &str = "Examples:\n  \
    ekiden account set tanaka --disable\n  \
    ekiden account set tanaka --down none --quota '40 GB/month' --reset-day 15\n  \
    echo 'another password' | ekiden account set tanaka \\\n    \
    --user anna --password-stdin\n  \
    ekiden account set tanaka --forget anna \\\n    \
    --allow '*.school.example' --allow ':443'\n  \
    ekiden account set anna --wireguard --device phone\n\n\
    `none` lifts a limit and empties a list. A user that exists gets the new password. A running daemon\n\
    applies the change within a second and ends connections that the account may no longer hold.";
const USAGE_HELP: &str = "Examples:\n  \
    ekiden account usage\n  \
    ekiden account usage tanaka --since 2026-10-01 --csv > tanaka.csv\n\n\
    Payload bytes that a running daemon has settled, at most 5 s old. Schema of the document:\n\
    docs/book/src/reference/schema/usage.json.";

/// Which configuration names the accounts' database.
#[derive(Debug, Args)]
pub(crate) struct AccountConfig {
    /// Configuration file that names the accounts' database [default: the file that `serve` uses]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

#[derive(Debug, Default, Args)]
pub(crate) struct Devices {
    /// A user's name, with --password-stdin
    #[arg(long, value_name = "USER", requires = "password_stdin")]
    pub user: Option<String>,
    /// Read the user's password from the first line of standard input
    #[arg(long, requires = "user")]
    pub password_stdin: bool,
    /// The addresses of a device (repeatable)
    #[arg(long, value_name = "CIDR", value_parser = pattern::net)]
    pub address: Vec<IpNet>,
    /// The peer whose tunnel the clients come through (repeatable)
    #[arg(long, value_name = "PEER", value_parser = short_name)]
    pub peer: Vec<String>,
    /// A telephone that comes by WireGuard: prints the configuration for its app, once, and on a terminal as a QR code;
    /// with =KEY for one that has made its own key. A device of that name gets a new one
    #[arg(long, value_name = "PUBLIC-KEY", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub wireguard: Option<String>,
    /// Print the QR code of --wireguard even if no terminal has room for it
    #[arg(long, requires = "wireguard")]
    pub qr: bool,
    /// The name of the device that is added [default: derived from its user, address or peer]
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,
    /// Renamed.
    #[arg(long, hide = true, value_parser = renamed("--peer"))]
    relay: Option<String>,
}

impl Devices {
    /// Whether none is asked for.
    pub(crate) const fn are_none(&self) -> bool {
        let known = self.user.is_none() && self.address.is_empty() && self.peer.is_empty();
        known && self.wireguard.is_none() && self.device.is_none()
    }

    /// The devices to add; `hash` is that of the user's password.
    pub(crate) fn changes(&self, hash: Option<String>) -> NewDevices {
        NewDevices {
            user: self.user.clone().zip(hash),
            prefixes: self.address.clone(),
            peers: self.peer.clone(),
            // that of the telephone, where there is one
            name: self.device.clone().filter(|_| self.wireguard.is_none()),
        }
    }
}

/// A limit, or `none`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OrNone<T>(Option<T>);

impl<T: FromStr<Err: std::fmt::Display>> FromStr for OrNone<T> {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(None));
        }
        text.parse().map(|value| Self(Some(value))).map_err(|bad: T::Err| bad.to_string())
    }
}

fn number(text: &str) -> Result<OrNone<u32>, String> {
    match text.parse::<OrNone<u32>>() {
        Ok(OrNone(Some(0))) | Err(_) => Err("expected a number of at least 1, or none".to_owned()),
        Ok(to) => Ok(to),
    }
}

fn rate_or_none(text: &str) -> Result<OrNone<Rate>, String> {
    let OrNone(rate) = text.parse::<OrNone<Rate>>()?;
    rate.map(check_rate).transpose().map(OrNone)
}

fn rate(text: &str) -> Result<Rate, String> {
    check_rate(text.parse().map_err(|bad: ekiden_model::units::UnitError| bad.to_string())?)
}

fn date(text: &str) -> Result<Date, String> {
    text.parse().map_err(|_| "expected a day as year-month-day, such as 2027-12-31".to_owned())
}

fn date_or_none(text: &str) -> Result<OrNone<Date>, String> {
    match text {
        "none" => Ok(OrNone(None)),
        text => date(text).map(|date| OrNone(Some(date))),
    }
}

fn destination(text: &str) -> Result<String, String> {
    if text != "none" {
        pattern::pattern(text)?;
    }
    Ok(text.to_owned())
}

/// The words for [`OnQuotaExceeded`].
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum QuotaAction {
    /// Continue at --throttle-rate
    Throttle,
    /// Drop everything until the next period
    Cut,
}

/// An account's limits; options that are not given keep their values.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct Limits {
    /// Maximum rate towards the account, or none
    #[arg(long, value_name = "RATE", value_parser = rate_or_none)]
    pub down: Option<OrNone<Rate>>,
    /// Maximum rate from the account, or none
    #[arg(long, value_name = "RATE", value_parser = rate_or_none)]
    pub up: Option<OrNone<Rate>>,
    /// Share of the relay's own rate when it is full, relative to other accounts
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub weight: Option<u32>,
    /// Bytes in a period, both directions together: "20 GB/month", "1 GB/day", "100 GB"; or none
    #[arg(long, value_name = "QUOTA")]
    pub quota: Option<OrNone<Quota>>,
    /// Time zone of periods, hours and expiry, such as Asia/Tokyo
    #[arg(long, value_name = "ZONE")]
    pub zone: Option<String>,
    /// Day on which the quota's week (1 Monday to 7) or month (1 to 31) begins
    #[arg(long, value_name = "DAY", value_parser = clap::value_parser!(u8).range(1..=31))]
    pub reset_day: Option<u8>,
    /// Action when the quota is used up
    #[arg(long, value_name = "ACTION")]
    pub on_quota_exceeded: Option<QuotaAction>,
    /// Rate after the quota is used up
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub throttle_rate: Option<Rate>,
    /// Maximum number of simultaneous connections, or none
    #[arg(long, value_name = "N", value_parser = number)]
    pub connections: Option<OrNone<u32>>,
    /// Maximum number of new connections per second, or none
    #[arg(long, value_name = "N", value_parser = number)]
    pub connects_per_second: Option<OrNone<u32>>,
    /// Last day of use, such as 2027-03-31, or none
    #[arg(long, value_name = "DATE", value_parser = date_or_none)]
    pub expires: Option<OrNone<Date>>,
    /// Allowed destination, as in a rule; none: all that the rules allow (repeatable)
    #[arg(long, value_name = "PATTERN", value_parser = destination)]
    pub allow: Vec<String>,
    /// Denied destination, or none (repeatable)
    #[arg(long, value_name = "PATTERN", value_parser = destination)]
    pub deny: Vec<String>,
    /// Hours of the week: "mon-fri 06:00-22:00; sat,sun 08:00-24:00", or none
    #[arg(long, value_name = "HOURS")]
    pub hours: Option<OrNone<Hours>>,
    /// Reject all clients of the account
    #[arg(long, conflicts_with = "enable")]
    pub disable: bool,
    /// Admit its clients again
    #[arg(long)]
    pub enable: bool,
    /// Renamed.
    #[arg(long, hide = true, value_parser = renamed("--on-quota-exceeded"))]
    when_spent: Option<String>,
    /// Renamed.
    #[arg(long, hide = true, value_parser = renamed("--throttle-rate"))]
    slower: Option<String>,
}

impl Limits {
    /// The changes that the options ask for.
    pub(crate) fn changes(&self) -> LimitChanges {
        fn or_none<T: Clone>(option: &Option<OrNone<T>>) -> Option<Option<T>> {
            option.clone().map(|OrNone(value)| value)
        }
        let list = |given: &[String]| -> Option<Vec<String>> {
            let all = given.iter().filter(|text| *text != "none").cloned().collect();
            (!given.is_empty()).then_some(all)
        };
        LimitChanges {
            down: or_none(&self.down),
            up: or_none(&self.up),
            weight: self.weight,
            quota: or_none(&self.quota),
            zone: self.zone.clone(),
            reset_day: self.reset_day,
            on_quota_exceeded: self.on_quota_exceeded.map(|action| match action {
                QuotaAction::Throttle => OnQuotaExceeded::Throttle,
                QuotaAction::Cut => OnQuotaExceeded::Cut,
            }),
            throttle_rate: self.throttle_rate,
            connections: or_none(&self.connections),
            connects_per_second: or_none(&self.connects_per_second),
            expires: or_none(&self.expires),
            allow: list(&self.allow),
            deny: list(&self.deny),
            hours: or_none(&self.hours),
            disabled: (self.disable || self.enable).then_some(self.disable),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use ekiden_accounts::{Account, AccountId, Attributes};

    #[derive(Parser)]
    struct Parsed {
        #[command(flatten)]
        devices: Devices,
        #[command(flatten)]
        limits: Limits,
    }

    fn parse(args: &[&str]) -> Result<Parsed, clap::Error> {
        Parsed::try_parse_from(std::iter::once("x").chain(args.iter().copied()))
    }

    #[test]
    fn keeps_what_is_not_given_and_none_lifts_a_limit() {
        let mut to = Attributes::default();
        let first = ["--down", "5 Mbit/s", "--quota", "20 GB/month", "--deny", ":25", "--disable"];
        parse(&first).unwrap().limits.changes().apply(&mut to).unwrap();
        assert_eq!((to.down, to.disabled), (Some("5 Mbit/s".parse().unwrap()), true));
        let second = ["--down", "none", "--enable", "--weight", "3"];
        parse(&second).unwrap().limits.changes().apply(&mut to).unwrap();
        assert_eq!((to.down, to.disabled, to.weight), (None, false, 3));
        assert_eq!(to.quota.unwrap().to_string(), "20 GB/month");
        assert_eq!(to.deny, [":25"]);
        parse(&["--deny", "none"]).unwrap().limits.changes().apply(&mut to).unwrap();
        assert!(to.deny.is_empty());
        let asks = |args: &[&str]| {
            let Parsed { devices, limits } = parse(args).unwrap();
            (!devices.are_none(), limits.changes() != LimitChanges::default())
        };
        assert_eq!(asks(&[]), (false, false));
        assert_eq!(asks(&["--down", "none"]), (false, true));
        assert_eq!(asks(&["--peer", "ship"]), (true, false));
    }

    #[test]
    fn refuses_values_out_of_range_and_inconsistent_ones() {
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
            assert!(parse(args).is_err(), "{args:?}");
        }
        let day = parse(&["--expires", "31.12.2027"]).err().unwrap().to_string();
        assert!(day.contains("such as 2027-12-31"), "{day}");
        assert!(date("01/11/2026").unwrap_err().contains("such as 2027-12-31"));
        let week = parse(&["--quota", "1 GB/week", "--reset-day", "8"]).unwrap();
        assert!(week.limits.changes().apply(&mut Attributes::default()).is_err());
        let size = parse(&["--quota", "5"]).err().unwrap().to_string();
        assert!(size.contains("with its period, `20 GB/month`"), "{size}");
        let zone = parse(&["--zone", "Atlantis"]).unwrap();
        let refused =
            zone.limits.changes().apply(&mut Attributes::default()).unwrap_err().to_string();
        assert!(refused.contains("Asia/Tokyo"), "{refused}");
    }

    #[test]
    fn refuses_every_address_and_a_quota_of_nothing() {
        let attributes = Attributes::default();
        let mut to = Account { id: AccountId(0), name: "h".into(), devices: vec![], attributes };
        for all in ["0.0.0.0/0", "::/0"] {
            let args = ["--address", "100.64.1.0/24", "--address", all];
            let why = parse(&args).unwrap().devices.changes(None).apply(&mut to).unwrap_err();
            assert!(why.to_string().contains("give its own addresses"), "{why}");
        }
        for nothing in ["0 GB/day", "0 B"] {
            let limits = parse(&["--quota", nothing]).unwrap().limits;
            let why = limits.changes().apply(&mut to.attributes).unwrap_err();
            assert!(why.to_string().contains("disable it"), "{why}");
        }
        assert!(to.devices.is_empty() && to.attributes.quota.is_none());
    }

    #[test]
    fn devices_come_from_the_options() {
        let attributes = Attributes::default();
        let mut to = Account { id: AccountId(0), name: "h".into(), devices: vec![], attributes };
        let args = ["--user", "anna", "--password-stdin", "--address", "100.64.1.0/24"];
        parse(&args).unwrap().devices.changes(Some("one".into())).apply(&mut to).unwrap();
        let names: Vec<_> = to.devices.iter().map(|device| device.name.as_str()).collect();
        assert_eq!(names, ["anna", "address"]);
        let both = ["--peer", "a", "--peer", "b", "--device", "x"];
        assert!(parse(&both).unwrap().devices.changes(None).apply(&mut to).is_err());
    }

    #[test]
    fn refuses_old_options_with_their_new_names() {
        for (old, new) in [
            ("--relay", "--peer"),
            ("--when-spent", "--on-quota-exceeded"),
            ("--slower", "--throttle-rate"),
        ] {
            let error = parse(&[old, "1 Mbit/s"]).err().unwrap().to_string();
            assert!(error.contains(&format!("this option is now {new}")), "{error}");
        }
    }
}
