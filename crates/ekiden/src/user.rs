//! `ekiden user`: households, in the database that a daemon watches.

use crate::config::{self, Overrides};
use crate::print::{out, warn};
use crate::status::{clean, size, table};
use crate::user_args::{Devices, Limits, Place, UserCommand};
use crate::{exit, state};
use ekiden_accounts::{
    Account, AccountId, Attributes, Quota, Store, StoreError, Usage, WhenSpent, hash,
};
use ekiden_model::units::Rate;
use ekiden_proxy::settings::Accounts;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use std::error::Error;
use std::io::{BufRead as _, IsTerminal as _, Read as _};

/// Runs it. Returns the exit code.
#[must_use]
pub(crate) fn run(command: UserCommand) -> u8 {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            warn(&format!("ekiden user: {error}\n"));
            return exit::SYSTEM;
        }
    };
    runtime.block_on(asked(command)).unwrap_or_else(|error| {
        warn(&format!("ekiden user: {error}\n"));
        exit::NOT_FINE
    })
}

type Done = Result<u8, Box<dyn Error>>;

async fn asked(command: UserCommand) -> Done {
    match command {
        UserCommand::Add { name, devices, limits, place } => {
            add(name, &devices, &limits, &place).await
        }
        UserCommand::List { json, place } => list(json, &place).await,
        UserCommand::Show { name, json, place } => show(&name, json, &place).await,
        UserCommand::Set { name, rename, devices, forget, limits, place } => {
            set(&name, rename, &devices, forget, &limits, &place).await
        }
        UserCommand::Remove { name, place } => remove(&name, &place).await,
        UserCommand::Usage { name, since, json, csv, place } => {
            let since = since.map(|day| day.to_zoned(jiff::tz::TimeZone::UTC)).transpose()?;
            let since = since.map_or(0, |day| day.timestamp().as_second());
            usage(name.as_deref(), since, (json, csv), &place).await
        }
    }
}

/// The households' database, and whether a daemon of this configuration asks it.
async fn store(place: &Place) -> Result<(Store, bool), Box<dyn Error>> {
    let loaded = config::load(place.config.as_deref(), &Overrides::default());
    if !loaded.reading.is_usable() {
        return Err(config::render_all(&loaded.reading.problems).into());
    }
    let Accounts { enabled, database, state, .. } = &loaded.reading.settings.accounts;
    let store = match database {
        Some(address) => Store::at(address).await?,
        None => {
            let folder = state.clone().or_else(state::directory);
            let folder = folder.ok_or("there is no home directory; set `state` in [accounts]")?;
            Store::in_folder(&folder).await?
        }
    };
    Ok((store, *enabled))
}

/// The first line of standard input, as a hash.
fn password(devices: &Devices) -> Result<Option<String>, Box<dyn Error>> {
    if !devices.password_stdin {
        return Ok(None);
    }
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        warn("the password, and Enter (it is shown; a pipe or a file is better):\n");
    }
    let mut line = String::new();
    // longer than any password may be
    stdin.lock().take(4096).read_line(&mut line)?;
    let password = line.trim_end_matches(['\n', '\r']);
    Ok(Some(hash(password)?))
}

async fn add(name: String, devices: &Devices, limits: &Limits, place: &Place) -> Done {
    Account::check_name(&name)?;
    let mut attributes = Attributes::default();
    limits.apply(&mut attributes)?;
    let mut account = Account { id: AccountId(0), name, devices: Vec::new(), attributes };
    devices.apply(password(devices)?, &mut account)?;
    if account.devices.is_empty() {
        let why = "a household has to be known by something: --user with --password-stdin, --address or --relay";
        return Err(why.into());
    }
    let (store, enabled) = store(place).await?;
    account.id = store.add(&account).await?;
    store.close().await;
    if !enabled {
        warn(
            "accounts are not enabled yet: set [accounts] enabled = true, and restart the daemon\n",
        );
    }
    Ok(out(&format!("household «{}» is added, {}\n", account.name, account.id)))
}

async fn set(
    name: &str,
    rename: Option<String>,
    devices: &Devices,
    forget: Vec<String>,
    limits: &Limits,
    place: &Place,
) -> Done {
    let hash = password(devices)?;
    let (store, _) = store(place).await?;
    let changed = store.change(name, |account| {
        for gone in &forget {
            let before = account.devices.len();
            account.devices.retain(|device| device.name != *gone);
            if account.devices.len() == before {
                let why =
                    format!("«{}» has no device «{gone}»; see `ekiden user show`", account.name);
                return Err(StoreError::Refused(why));
            }
        }
        devices.apply(hash, account)?;
        if let Some(name) = rename {
            account.name = name;
        }
        limits.apply(&mut account.attributes)
    });
    let account = changed.await?;
    store.close().await;
    Ok(out(&format!(
        "household «{}» is changed; a running daemon takes it over within a second\n",
        account.name
    )))
}

async fn remove(name: &str, place: &Place) -> Done {
    let (store, _) = store(place).await?;
    store.remove(name).await?;
    store.close().await;
    Ok(out(&format!(
        "household «{}» is removed; a running daemon ends its connections within a second or two\n",
        clean(name)
    )))
}

async fn list(json: bool, place: &Place) -> Done {
    let (store, _) = store(place).await?;
    let (_, accounts) = store.accounts().await?;
    store.close().await;
    if json {
        return document(&Households { households: accounts.iter().map(Household::of).collect() });
    }
    if accounts.is_empty() {
        return Ok(out("there are no households; see `ekiden user add --help`\n"));
    }
    let head = ["HOUSEHOLD", "DEVICES", "DOWN", "UP", "QUOTA", "STATE"].map(str::to_owned).to_vec();
    let rows = accounts.iter().map(row).collect();
    let text = table(head, rows, &[false, true, true, true, true, false], None);
    Ok(out(text.trim_start_matches('\n')))
}

fn row(account: &Account) -> Vec<String> {
    let attributes = &account.attributes;
    let limit = |rate: Option<Rate>| rate.map_or_else(|| "-".to_owned(), |rate| rate.to_string());
    let standing = attributes.may_come_in(Timestamp::now());
    vec![
        clean(&account.name),
        account.devices.len().to_string(),
        limit(attributes.down),
        limit(attributes.up),
        attributes.quota.map_or_else(|| "-".to_owned(), |quota| quota.to_string()),
        match standing {
            Ok(()) => "may come in".to_owned(),
            Err(ekiden_accounts::Barred::Disabled) => "disabled".to_owned(),
            Err(ekiden_accounts::Barred::Expired(day)) => format!("ended on {day}"),
            Err(ekiden_accounts::Barred::Hours(hours)) => format!("not now: {hours}"),
        },
    ]
}

async fn show(name: &str, json: bool, place: &Place) -> Done {
    let (store, _) = store(place).await?;
    let account = store.account(name).await?;
    store.close().await;
    let household = Household::of(&account);
    if json {
        return document(&Households { households: vec![household] });
    }
    let a = &account.attributes;
    let mut lines = vec![("household", format!("{}, {}", clean(&account.name), account.id))];
    for device in &account.devices {
        let (kind, identity) = device.credential.identity();
        let known = match kind {
            "password" => format!("user «{}» with a password", clean(&identity)),
            "prefix" => format!("at {identity}"),
            _ => format!("behind relay «{}»", clean(&identity)),
        };
        lines.push(("device", format!("{}: {known}", clean(&device.name))));
    }
    let unlimited = || "not limited".to_owned();
    lines.push(("down", a.down.map_or_else(unlimited, |rate| rate.to_string())));
    lines.push(("up", a.up.map_or_else(unlimited, |rate| rate.to_string())));
    lines.push(("weight", a.weight.to_string()));
    lines.push(("quota", a.quota.map_or_else(unlimited, |quota| quota_line(a, quota))));
    lines.push(("connections", a.connections.map_or_else(unlimited, |n| n.to_string())));
    let each_second = a.connects_per_second.map_or_else(unlimited, |n| format!("{n} a second"));
    lines.push(("new connections", each_second));
    lines.push((
        "expires",
        a.expires.map_or_else(|| "never".to_owned(), |day| format!("after {day}, {}", a.zone)),
    ));
    let always = || "always".to_owned();
    lines.push((
        "hours",
        a.hours.as_ref().map_or_else(always, |hours| format!("{hours}, {}", a.zone)),
    ));
    if !a.allow.is_empty() {
        lines.push(("may go to", clean(&a.allow.join(", "))));
    }
    if !a.deny.is_empty() {
        lines.push(("may not go to", clean(&a.deny.join(", "))));
    }
    if let Err(barred) = a.may_come_in(Timestamp::now()) {
        lines.push(("now", barred.to_string()));
    }
    let line = |(name, value): &(&str, String)| format!("{name:<16} {value}\n");
    Ok(out(&lines.iter().map(line).collect::<String>()))
}

fn quota_line(attributes: &Attributes, quota: Quota) -> String {
    let then = match attributes.when_spent {
        WhenSpent::Slower => format!("then {}", attributes.slower),
        WhenSpent::Cut => "then nothing".to_owned(),
    };
    let next = attributes.calendar().ok().and_then(|calendar| calendar.next(Timestamp::now()));
    let next = next.map_or_else(String::new, |next| format!("; anew at {next}"));
    format!("{quota}, {then}{next}")
}

async fn usage(name: Option<&str>, since: i64, (json, csv): (bool, bool), place: &Place) -> Done {
    let (store, _) = store(place).await?;
    let only = match name {
        Some(name) => Some(store.account(name).await?.id),
        None => None,
    };
    let mut used = store.usage(since).await?;
    store.close().await;
    used.retain(|usage| only.is_none_or(|only| usage.account == only));
    if json {
        return document(&Periods { usage: used.iter().map(Period::of).collect() });
    }
    if csv {
        let mut text = String::from("account,name,begun,down,up\n");
        for usage in &used {
            // names have nothing in them that would have to be quoted
            let Usage { account, down, up, .. } = usage;
            let name = usage.name.as_deref().unwrap_or_default();
            text.push_str(&format!("{},{name},{},{down},{up}\n", account.0, begun(usage)));
        }
        return Ok(out(&text));
    }
    if used.is_empty() {
        return Ok(out("nothing was used, as far as it is settled\n"));
    }
    let head = ["HOUSEHOLD", "SINCE", "DOWN", "UP"].map(str::to_owned).to_vec();
    let row = |usage: &Usage| {
        let name = usage.name.as_deref().map(clean);
        let name = name.unwrap_or_else(|| format!("{} (removed)", usage.account));
        vec![name, begun(usage), size(usage.down), size(usage.up)]
    };
    let rows = used.iter().map(row).collect();
    let text = table(head, rows, &[false, false, true, true], None);
    Ok(out(text.trim_start_matches('\n')))
}

fn begun(usage: &Usage) -> String {
    Timestamp::from_second(usage.begun)
        .map_or_else(|_| usage.begun.to_string(), |at| at.to_string())
}

fn document(of: &impl Serialize) -> Done {
    Ok(out(&format!("{}\n", serde_json::to_string_pretty(of)?)))
}

/// `ekiden user list --json`, and `show --json` with one.
#[derive(Debug, Serialize, JsonSchema)]
struct Households {
    /// By number.
    households: Vec<Household>,
}

/// A household. Rates are in bits per second, sizes in bytes; null is «not limited».
#[derive(Debug, Serialize, JsonSchema)]
struct Household {
    /// Its number, never another's.
    id: i64,
    /// Its name.
    name: String,
    /// By what it is known.
    devices: Vec<Known>,
    /// The most towards it.
    down: Option<u64>,
    /// The most from it.
    up: Option<u64>,
    /// Its share beside others'.
    weight: u32,
    /// Bytes in a period.
    quota: Option<u64>,
    /// `day`, `week`, `month` or `never`, with a quota.
    period: Option<String>,
    /// Time zone of periods, hours and expiry.
    zone: String,
    /// The day on which a week or month begins.
    reset_day: u8,
    /// `slower` or `cut`.
    when_spent: String,
    /// The rate once the quota is spent.
    slower: u64,
    /// Connections at once.
    connections: Option<u32>,
    /// New connections in a second.
    connects_per_second: Option<u32>,
    /// The last day, such as 2027-03-31.
    expires: Option<String>,
    /// Destinations; empty: all that the rules allow.
    allow: Vec<String>,
    /// Destinations it may not go to.
    deny: Vec<String>,
    /// Hours of the week.
    hours: Option<String>,
    /// Whether it is switched off.
    disabled: bool,
}

/// A device.
#[derive(Debug, Serialize, JsonSchema)]
struct Known {
    /// Its name within the household.
    name: String,
    /// `password`, `prefix` or `relay`.
    kind: String,
    /// The user, the prefix, the relay.
    identity: String,
}

impl Household {
    fn of(account: &Account) -> Self {
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

/// `ekiden user usage --json`.
#[derive(Debug, Serialize, JsonSchema)]
struct Periods {
    /// By household, then by time.
    usage: Vec<Period>,
}

/// What a household used in a period, payload bytes.
#[derive(Debug, Serialize, JsonSchema)]
struct Period {
    /// The household's number.
    account: i64,
    /// Its name; null once it is removed.
    name: Option<String>,
    /// When the period began, RFC 3339.
    begun: String,
    /// Bytes towards it.
    down: u64,
    /// Bytes from it.
    up: u64,
}

impl Period {
    fn of(usage: &Usage) -> Self {
        let Usage { account, name, down, up, .. } = usage;
        Self { account: account.0, name: name.clone(), begun: begun(usage), down: *down, up: *up }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::user_args::{Devices, Limits};
    use clap::Parser;
    use ekiden_accounts::Credential;

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
