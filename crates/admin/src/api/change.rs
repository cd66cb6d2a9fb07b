//! A requested change of an account: a merge patch (RFC 7396) of its limits, and devices to add or
//! forget. Nonsense is found where `ekiden account` finds it.

use super::body::RequestBody;
use super::device::{NAME, NewDevice};
use ekiden_accounts::{
    Account, Attributes, LimitChanges, NewDevices, OnQuotaExceeded, Period, Quota, StoreError,
    check_rate, forget_devices,
};
use ekiden_config::pattern;
use ekiden_model::units::{Bytes, Rate};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use std::fmt;
use std::str::FromStr;

/// A change of an account. What is absent stays; null puts back the default, which for a limit is none. Rates are in
/// bits per second, sizes in bytes.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Change {
    /// What it is called, 1 to 63 bytes: letters, digits, `-`, `_`, `.` and `@`.
    #[schemars(with = "String", length(min = 1, max = 63), regex(pattern = NAME), example = &"tanaka")]
    #[serde(deserialize_with = "some")]
    pub(super) name: Option<String>,
    /// Devices to add. A user that is there gets the password.
    #[schemars(length(max = 64))]
    pub(super) devices: Vec<NewDevice>,
    /// Devices to forget, by name.
    #[schemars(length(max = 64), inner(length(min = 1, max = 63)))]
    pub(super) forget: Vec<String>,
    /// The most towards it.
    #[serde(deserialize_with = "some")]
    #[schemars(range(min = 8_000, max = 9_007_199_254_740_991_u64))]
    pub(super) down: Option<Option<u64>>,
    /// The most from it.
    #[serde(deserialize_with = "some")]
    #[schemars(range(min = 8_000, max = 9_007_199_254_740_991_u64))]
    pub(super) up: Option<Option<u64>>,
    /// Its share beside others' where the relay's own rate is full. Default 1.
    #[serde(deserialize_with = "some")]
    #[schemars(range(min = 1, max = 1000))]
    pub(super) weight: Option<Option<u32>>,
    /// Bytes in a period, both directions together.
    #[serde(deserialize_with = "some")]
    #[schemars(range(min = 1, max = 9_007_199_254_740_991_u64))]
    pub(super) quota: Option<Option<u64>>,
    /// How long the quota lasts. Default `never`: it does not begin anew.
    #[serde(deserialize_with = "some")]
    pub(super) period: Option<Option<QuotaPeriod>>,
    /// Time zone of periods, hours and expiry. Default UTC.
    #[serde(deserialize_with = "some")]
    #[schemars(length(min = 1, max = 64), example = &"Asia/Tokyo")]
    pub(super) zone: Option<Option<String>>,
    /// The day on which a week (1 Monday to 7) or a month (1 to 31) begins. Default 1.
    #[serde(deserialize_with = "some")]
    #[schemars(range(min = 1, max = 31))]
    pub(super) reset_day: Option<Option<u8>>,
    /// What happens when the quota is spent. Default `throttle`.
    #[serde(deserialize_with = "some")]
    pub(super) on_quota_exceeded: Option<Option<QuotaAction>>,
    /// The rate once the quota is spent. Default 256000.
    #[serde(deserialize_with = "some")]
    #[schemars(range(min = 8_000, max = 9_007_199_254_740_991_u64))]
    pub(super) throttle_rate: Option<Option<u64>>,
    /// Connections at once.
    #[serde(deserialize_with = "some")]
    #[schemars(range(min = 1, max = 4_294_967_295_u32))]
    pub(super) connections: Option<Option<u32>>,
    /// New connections in a second.
    #[serde(deserialize_with = "some")]
    #[schemars(range(min = 1, max = 4_294_967_295_u32))]
    pub(super) connects_per_second: Option<Option<u32>>,
    /// The last day on which it may come in.
    #[serde(deserialize_with = "some")]
    #[schemars(regex(pattern = r"^[0-9]{4}-[01][0-9]-[0-3][0-9]$"), example = &"2027-03-31")]
    pub(super) expires: Option<Option<String>>,
    /// Destinations it may go to, as in a rule; empty: all that the rules allow.
    #[serde(deserialize_with = "some")]
    #[schemars(length(max = 256), example = ["*.school.example", ":443"])]
    pub(super) allow: Option<Option<Vec<String>>>,
    /// Destinations it may not go to.
    #[serde(deserialize_with = "some")]
    #[schemars(length(max = 256), example = [":25"])]
    pub(super) deny: Option<Option<Vec<String>>>,
    /// Hours of the week in which it may come in.
    #[serde(deserialize_with = "some")]
    #[schemars(length(min = 1, max = 300), example = &"mon-fri 06:00-22:00; sat,sun 08:00-24:00")]
    pub(super) hours: Option<Option<String>>,
    /// Whether it is switched off. Default false.
    #[serde(deserialize_with = "some")]
    pub(super) disabled: Option<Option<bool>>,
}

/// How long a quota lasts.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum QuotaPeriod {
    Day,
    Week,
    Month,
    Never,
}

impl From<QuotaPeriod> for Period {
    fn from(lasts: QuotaPeriod) -> Self {
        match lasts {
            QuotaPeriod::Day => Self::Day,
            QuotaPeriod::Week => Self::Week,
            QuotaPeriod::Month => Self::Month,
            QuotaPeriod::Never => Self::Never,
        }
    }
}

/// What happens when a quota is spent.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum QuotaAction {
    Throttle,
    Cut,
}

/// What is there is said, also where it is null.
fn some<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

impl RequestBody for Change {
    const SCHEMA: &'static str = "Change";
}

/// A new account: a change of one that has nothing yet.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct NewAccount(pub(super) Change);

impl RequestBody for NewAccount {
    const SCHEMA: &'static str = "NewAccount";
}

pub(super) fn of_new(mut change: Value) -> Value {
    change["description"] = json!(
        "A new account. An absent or null field has its default; for a limit that is none. Rates are in bits per second, sizes in bytes."
    );
    change["required"] = json!(["name", "devices"]);
    change["properties"]["devices"]["minItems"] = json!(1);
    change["properties"]["devices"]["description"] =
        json!("How the relay recognises its connections.");
    if let Some(properties) = change["properties"].as_object_mut() {
        properties.remove("forget");
    }
    change
}

fn refused(why: impl fmt::Display) -> StoreError {
    StoreError::Refused(why.to_string())
}

fn read<T: FromStr<Err: fmt::Display>>(field: &str, text: &str) -> Result<T, StoreError> {
    text.parse().map_err(|bad| refused(format!("`{field}`: {bad}")))
}

/// `null` in a document is the default.
fn or_default<T>(sent: Option<Option<T>>, default: T) -> Option<T> {
    sent.map(|value| value.unwrap_or(default))
}

fn rate(sent: Option<Option<u64>>) -> Result<Option<Option<Rate>>, StoreError> {
    let read = |rate| check_rate(Rate::from_bits_per_second(rate)).map_err(refused);
    sent.map(|rate| rate.map(read).transpose()).transpose()
}

fn parsed<T: FromStr<Err: fmt::Display>>(
    field: &str,
    sent: &Option<Option<String>>,
) -> Result<Option<Option<T>>, StoreError> {
    sent.as_ref().map(|text| text.as_ref().map(|text| read(field, text)).transpose()).transpose()
}

fn destinations(sent: &Option<Option<Vec<String>>>) -> Result<Option<Vec<String>>, StoreError> {
    let read = |text: &String| pattern::pattern(text).map(|_| text.clone()).map_err(refused);
    let all = |list: &Option<Vec<String>>| list.iter().flatten().map(read).collect();
    sent.as_ref().map(all).transpose()
}

impl Change {
    /// The changes of limits, for an account that has `now`.
    pub(super) fn limits(&self, now: &Attributes) -> Result<LimitChanges, StoreError> {
        let usual = Attributes::default();
        let on_quota_exceeded = self.on_quota_exceeded.map(|then| match then {
            Some(QuotaAction::Cut) => OnQuotaExceeded::Cut,
            Some(QuotaAction::Throttle) | None => OnQuotaExceeded::Throttle,
        });
        Ok(LimitChanges {
            down: rate(self.down)?,
            up: rate(self.up)?,
            weight: or_default(self.weight, usual.weight),
            quota: self.quota(now)?,
            zone: or_default(self.zone.clone(), usual.zone),
            reset_day: or_default(self.reset_day, usual.reset_day),
            on_quota_exceeded,
            throttle_rate: or_default(rate(self.throttle_rate)?, usual.throttle_rate),
            connections: self.connections,
            connects_per_second: self.connects_per_second,
            expires: parsed("expires", &self.expires)?,
            allow: destinations(&self.allow)?,
            deny: destinations(&self.deny)?,
            hours: parsed("hours", &self.hours)?,
            disabled: or_default(self.disabled, usual.disabled),
        })
    }

    /// Bytes and period may come one without the other.
    fn quota(&self, now: &Attributes) -> Result<Option<Option<Quota>>, StoreError> {
        let period = self.period.map(|said| said.map_or(Period::Never, Period::from));
        let bytes = match self.quota {
            Some(None) => return Ok(Some(None)),
            Some(Some(bytes)) => Bytes::new(bytes),
            None => match (period, now.quota) {
                (None, _) => return Ok(None),
                (Some(_), Some(quota)) => quota.bytes,
                (Some(Period::Never), None) => return Ok(None),
                (Some(_), None) => return Err(refused("`period` needs a `quota`")),
            },
        };
        let before = now.quota.map_or(Period::Never, |quota| quota.period);
        Ok(Some(Some(Quota { bytes, period: period.unwrap_or(before) })))
    }

    pub(super) fn apply(
        &self,
        devices: &[NewDevices],
        account: &mut Account,
    ) -> Result<(), StoreError> {
        forget_devices(&self.forget, account)?;
        for device in devices.iter().cloned() {
            device.apply(account)?;
        }
        if let Some(name) = &self.name {
            account.name.clone_from(name);
        }
        self.limits(&account.attributes)?.apply(&mut account.attributes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ekiden_accounts::AccountId;

    fn changed(account: &mut Account, change: Value) -> Result<(), String> {
        let change: Change = serde_json::from_value(change).map_err(|error| error.to_string())?;
        change.apply(&[], account).map_err(|error| error.to_string())
    }

    fn tanaka() -> Account {
        let attributes = Attributes::default();
        Account { id: AccountId(1), name: "tanaka".into(), devices: vec![], attributes }
    }

    #[test]
    fn absent_stays_and_null_is_the_default() {
        let mut account = tanaka();
        let first = json!({
            "name": "sato", "down": 5_000_000, "quota": 20_000_000_000_u64, "period": "month", "zone": "Asia/Tokyo",
            "weight": 3, "deny": [":25"], "hours": "mon-fri 06:00-22:00", "expires": "2027-03-31", "disabled": true
        });
        changed(&mut account, first).unwrap();
        let a = &account.attributes;
        assert_eq!((account.name.as_str(), a.weight, a.disabled), ("sato", 3, true));
        assert_eq!(a.quota.unwrap().to_string(), "20 GB/month");
        // the other half of a quota stays
        changed(&mut account, json!({ "quota": 1_000_000 })).unwrap();
        assert_eq!(account.attributes.quota.unwrap().to_string(), "1 MB/month");
        changed(&mut account, json!({ "period": "day", "down": null, "weight": null, "deny": [] }))
            .unwrap();
        let a = &account.attributes;
        assert_eq!(a.quota.unwrap().to_string(), "1 MB/day");
        assert_eq!((a.down, a.weight, a.deny.len(), a.disabled), (None, 1, 0, true));
        let rest = json!({ "quota": null, "hours": null, "expires": null, "disabled": false, "zone": null });
        changed(&mut account, rest).unwrap();
        assert_eq!(account.attributes, Attributes::default());
    }

    #[test]
    fn refuses_contradictions_as_the_command_does() {
        for (change, part) in [
            (json!({ "zone": "Atlantis" }), "time zone"),
            (json!({ "period": "day" }), "needs a `quota`"),
            (json!({ "quota": 1, "period": "week", "reset_day": 8 }), "day 8 is out of range"),
            (json!({ "expires": "2026-02-30" }), "`expires`"),
            (json!({ "hours": "late" }), "`hours`"),
            (json!({ "deny": ["("] }), "("),
            (json!({ "forget": ["phone"] }), "no device \"phone\""),
            (json!({ "down": 7_999 }), "lowest rate"),
            (json!({ "colour": 1 }), "unknown field"),
            (json!({ "name": null }), "null"),
        ] {
            let error = changed(&mut tanaka(), change).unwrap_err();
            assert!(error.contains(part), "{part}: {error}");
        }
    }
}
