//! Accounts and what they used, as they are printed by `ekiden account … --json` and answered by the API.

use ekiden_accounts::{Account, OnQuotaExceeded, Usage};
use ekiden_model::units::Rate;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

/// Accounts, `ekiden account list --json`, and `show --json` with one.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Accounts")]
pub struct AccountList {
    /// By number.
    pub accounts: Vec<AccountDocument>,
}

/// An account. Rates are in bits per second, sizes in bytes; null is "not limited".
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Account")]
pub struct AccountDocument {
    /// Its number, never another's.
    pub id: i64,
    /// Its name.
    pub name: String,
    /// How the relay recognises its connections.
    pub devices: Vec<DeviceDocument>,
    /// The most towards it.
    pub down: Option<u64>,
    /// The most from it.
    pub up: Option<u64>,
    /// Its share beside others'.
    pub weight: u32,
    /// Bytes in a period.
    pub quota: Option<u64>,
    /// `day`, `week`, `month` or `never`, with a quota.
    pub period: Option<String>,
    /// Time zone of periods, hours and expiry.
    pub zone: String,
    /// The day on which a week or month begins.
    pub reset_day: u8,
    /// `throttle` or `cut`.
    pub on_quota_exceeded: String,
    /// The rate once the quota is spent.
    pub throttle_rate: u64,
    /// Connections at once.
    pub connections: Option<u32>,
    /// New connections in a second.
    pub connects_per_second: Option<u32>,
    /// The last day, such as 2027-03-31.
    pub expires: Option<String>,
    /// Destinations; empty: all that the rules allow.
    pub allow: Vec<String>,
    /// Destinations it may not go to.
    pub deny: Vec<String>,
    /// Hours of the week.
    pub hours: Option<String>,
    /// Whether it is switched off.
    pub disabled: bool,
}

/// A device.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DeviceDocument {
    /// Its name within the account.
    pub name: String,
    /// `password`, `prefix`, `peer` or `wireguard`.
    pub kind: String,
    /// The user, the prefix, the peer, the address in the tunnel.
    pub identity: String,
}

impl AccountDocument {
    /// The document of an account, without passwords.
    pub fn of(account: &Account) -> Self {
        let a = &account.attributes;
        let known = |device: &ekiden_accounts::Device| {
            let (kind, identity) = device.credential.identity();
            DeviceDocument { name: device.name.clone(), kind: kind.to_owned(), identity }
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
            on_quota_exceeded: match a.on_quota_exceeded {
                OnQuotaExceeded::Throttle => "throttle".to_owned(),
                OnQuotaExceeded::Cut => "cut".to_owned(),
            },
            throttle_rate: a.throttle_rate.as_bits_per_second(),
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

/// What was used, `ekiden account usage --json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Periods {
    /// By account, then by time.
    pub usage: Vec<Period>,
}

/// What an account used in a period, payload bytes.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Period {
    /// The account's number.
    pub account: i64,
    /// Its name; null once it is removed.
    pub name: Option<String>,
    /// When the period began, RFC 3339.
    pub begun: String,
    /// Bytes towards it.
    pub down: u64,
    /// Bytes from it.
    pub up: u64,
}

impl Period {
    /// The document of a period.
    pub fn of(usage: &Usage) -> Self {
        let Usage { account, name, down, up, .. } = usage;
        Self { account: account.0, name: name.clone(), begun: begun(usage), down: *down, up: *up }
    }
}

/// When the period began, RFC 3339.
pub fn begun(usage: &Usage) -> String {
    Timestamp::from_second(usage.begun)
        .map_or_else(|_| usage.begun.to_string(), |at| at.to_string())
}

/// The same as comma-separated values, with a head.
pub fn csv(used: &[Usage]) -> String {
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
    use ekiden_accounts::{AccountId, Attributes, Credential, Device};
    use ekiden_model::units::Bytes;

    /// Validates against a checked-in schema; `UPDATE=1` renews it.
    fn holds<T: JsonSchema + Serialize>(document: &T, name: &str) {
        let schema = serde_json::to_value(schemars::schema_for!(T)).unwrap();
        let text = format!("{}\n", serde_json::to_string_pretty(&schema).unwrap());
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/book/src/reference/schema");
        let path = format!("{folder}/{name}");
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            text,
            "UPDATE=1 cargo test -p ekiden-admin"
        );
        let value = serde_json::to_value(document).unwrap();
        assert!(jsonschema::is_valid(&schema, &value), "{value:#}");
    }

    #[test]
    fn documents_are_what_their_schemas_say() {
        let device = |name: &str, credential| Device { name: name.into(), credential };
        let password = Credential::Password { user: "anna".into(), hash: "secret".into() };
        let attributes = Attributes {
            down: Some(Rate::from_bits_per_second(5_000_000)),
            quota: Some("20 GB/month".parse().unwrap()),
            expires: Some("2027-03-31".parse().unwrap()),
            hours: Some("06:00-22:00".parse().unwrap()),
            deny: vec![":25".into()],
            ..Attributes::default()
        };
        assert_eq!(attributes.quota_bytes(), Some(Bytes::new(20_000_000_000)));
        let net = Credential::Prefix("100.64.1.0/24".parse().unwrap());
        let account = Account {
            id: AccountId(3),
            name: "tanaka".into(),
            devices: vec![device("address", net), device("anna", password)],
            attributes,
        };
        let document = AccountList { accounts: vec![AccountDocument::of(&account)] };
        assert!(!serde_json::to_string(&document).unwrap().contains("secret"));
        holds(&document, "account.json");
        let used = Usage { account: AccountId(3), name: None, begun: 0, down: 1, up: 2 };
        assert_eq!(begun(&used), "1970-01-01T00:00:00Z");
        holds(&Periods { usage: vec![Period::of(&used)] }, "usage.json");
    }
}
