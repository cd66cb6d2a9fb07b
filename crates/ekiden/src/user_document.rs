//! Households and what they used, as they are printed by `ekiden user … --json` and answered by the API.

use ekiden_accounts::{Account, Usage, WhenSpent};
use ekiden_model::units::Rate;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

/// Households, `ekiden user list --json`, and `show --json` with one.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Households {
    /// By number.
    pub(crate) households: Vec<Household>,
}

/// A household. Rates are in bits per second, sizes in bytes; null is «not limited».
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Household {
    /// Its number, never another's.
    pub(crate) id: i64,
    /// Its name.
    pub(crate) name: String,
    /// By what it is known.
    pub(crate) devices: Vec<Known>,
    /// The most towards it.
    pub(crate) down: Option<u64>,
    /// The most from it.
    pub(crate) up: Option<u64>,
    /// Its share beside others'.
    pub(crate) weight: u32,
    /// Bytes in a period.
    pub(crate) quota: Option<u64>,
    /// `day`, `week`, `month` or `never`, with a quota.
    pub(crate) period: Option<String>,
    /// Time zone of periods, hours and expiry.
    pub(crate) zone: String,
    /// The day on which a week or month begins.
    pub(crate) reset_day: u8,
    /// `slower` or `cut`.
    pub(crate) when_spent: String,
    /// The rate once the quota is spent.
    pub(crate) slower: u64,
    /// Connections at once.
    pub(crate) connections: Option<u32>,
    /// New connections in a second.
    pub(crate) connects_per_second: Option<u32>,
    /// The last day, such as 2027-03-31.
    pub(crate) expires: Option<String>,
    /// Destinations; empty: all that the rules allow.
    pub(crate) allow: Vec<String>,
    /// Destinations it may not go to.
    pub(crate) deny: Vec<String>,
    /// Hours of the week.
    pub(crate) hours: Option<String>,
    /// Whether it is switched off.
    pub(crate) disabled: bool,
}

/// A device.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Known {
    /// Its name within the household.
    pub(crate) name: String,
    /// `password`, `prefix` or `relay`.
    pub(crate) kind: String,
    /// The user, the prefix, the relay.
    pub(crate) identity: String,
}

impl Household {
    pub(crate) fn of(account: &Account) -> Self {
        let a = &account.attributes;
        let known = |device: &ekiden_accounts::Device| {
            let (kind, identity) = device.credential.identity();
            Known { name: device.name.clone(), kind: kind.to_owned(), identity }
        };
        Self {
            id: account.id.0,
            name: account.name.clone(),
            devices: account.devices.iter().map(known).collect(),
            down: a.down.map(Rate::as_bits_per_second),
            up: a.up.map(Rate::as_bits_per_second),
            weight: a.weight,
            quota: a.quota.map(|quota| quota.bytes.as_u64()),
            period: a.quota.map(|quota| quota.period.to_string()),
            zone: a.zone.clone(),
            reset_day: a.reset_day,
            when_spent: match a.when_spent {
                WhenSpent::Slower => "slower".to_owned(),
                WhenSpent::Cut => "cut".to_owned(),
            },
            slower: a.slower.as_bits_per_second(),
            connections: a.connections,
            connects_per_second: a.connects_per_second,
            expires: a.expires.map(|day| day.to_string()),
            allow: a.allow.clone(),
            deny: a.deny.clone(),
            hours: a.hours.as_ref().map(ToString::to_string),
            disabled: a.disabled,
        }
    }
}

/// What was used, `ekiden user usage --json`.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Periods {
    /// By household, then by time.
    pub(crate) usage: Vec<Period>,
}

/// What a household used in a period, payload bytes.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Period {
    /// The household's number.
    pub(crate) account: i64,
    /// Its name; null once it is removed.
    pub(crate) name: Option<String>,
    /// When the period began, RFC 3339.
    pub(crate) begun: String,
    /// Bytes towards it.
    pub(crate) down: u64,
    /// Bytes from it.
    pub(crate) up: u64,
}

impl Period {
    pub(crate) fn of(usage: &Usage) -> Self {
        let Usage { account, name, down, up, .. } = usage;
        Self { account: account.0, name: name.clone(), begun: begun(usage), down: *down, up: *up }
    }
}

/// When the period began, RFC 3339.
pub(crate) fn begun(usage: &Usage) -> String {
    Timestamp::from_second(usage.begun)
        .map_or_else(|_| usage.begun.to_string(), |at| at.to_string())
}

/// The same as comma-separated values, with a head.
pub(crate) fn csv(used: &[Usage]) -> String {
    let mut text = String::from("account,name,begun,down,up\n");
    for usage in used {
        // names have nothing in them that would have to be quoted
        let Usage { account, down, up, .. } = usage;
        let name = usage.name.as_deref().unwrap_or_default();
        text.push_str(&format!("{},{name},{},{down},{up}\n", account.0, begun(usage)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::user_args::{Devices, Limits};
    use clap::Parser;
    use ekiden_accounts::{AccountId, Attributes, Credential};

    #[derive(Parser)]
    struct Said {
        #[command(flatten)]
        devices: Devices,
        #[command(flatten)]
        limits: Limits,
    }

    /// Against its schema, which is a checked-in copy: `UPDATE=1` renews it.
    fn holds<T: JsonSchema + Serialize>(document: &T, name: &str) {
        let schema = serde_json::to_value(schemars::schema_for!(T)).unwrap();
        let text = format!("{}\n", serde_json::to_string_pretty(&schema).unwrap());
        let path = format!("{}/../../docs/schema/{name}", env!("CARGO_MANIFEST_DIR"));
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "UPDATE=1 cargo test -p ekiden");
        let value = serde_json::to_value(document).unwrap();
        assert!(jsonschema::is_valid(&schema, &value), "{value:#}");
    }

    #[test]
    fn documents_are_what_their_schemas_say() {
        let args = [
            "x",
            "--address",
            "100.64.1.0/24",
            "--down",
            "5 Mbit/s",
            "--quota",
            "20 GB/month",
            "--expires",
            "2027-03-31",
            "--hours",
            "06:00-22:00",
            "--deny",
            ":25",
        ];
        let said = Said::try_parse_from(args).unwrap();
        let mut account = Account {
            id: AccountId(3),
            name: "tanaka".into(),
            devices: vec![],
            attributes: Attributes::default(),
        };
        said.limits.apply(&mut account.attributes).unwrap();
        said.devices.apply(None, &mut account).unwrap();
        let hash = "secret".to_owned();
        let credential = Credential::Password { user: "anna".into(), hash };
        account.devices.push(ekiden_accounts::Device { name: "anna".into(), credential });
        let document = Households { households: vec![Household::of(&account)] };
        assert!(!serde_json::to_string(&document).unwrap().contains("secret"));
        holds(&document, "user.json");
        let used = Usage { account: AccountId(3), name: None, begun: 0, down: 1, up: 2 };
        assert_eq!(begun(&used), "1970-01-01T00:00:00Z");
        holds(&Periods { usage: vec![Period::of(&used)] }, "usage.json");
    }
}
