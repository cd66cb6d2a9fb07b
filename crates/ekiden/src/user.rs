//! `ekiden user`: households, in the database that a daemon watches.

use crate::config::{self, Overrides};
use crate::print::{out, warn};
use crate::status::{clean, size, table};
use crate::used::used;
use crate::user_args::{self, Devices, Limits, Place, UserCommand};
use crate::user_document::{self, Household, Households, Period, Periods, begun};
use crate::{exit, state};
use ekiden_accounts::{Account, AccountId, Attributes, Quota, Store, Usage, WhenSpent, hash};
use ekiden_model::units::Rate;
use ekiden_proxy::settings::Accounts;
use jiff::Timestamp;
use jiff::civil::Date;
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
    Ok(out(&format!(
        "household «{}» is added, {}; a running daemon lets it in within a second\n",
        account.name, account.id
    )))
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
        user_args::forget(&forget, account)?;
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

async fn usage(
    name: Option<&str>,
    since: Option<Date>,
    (json, csv): (bool, bool),
    place: &Place,
) -> Done {
    let (store, _) = store(place).await?;
    let used = used(&store, name, since).await?;
    store.close().await;
    if json {
        return document(&Periods { usage: used.iter().map(Period::of).collect() });
    }
    if csv {
        return Ok(out(&user_document::csv(&used)));
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

fn document(of: &impl Serialize) -> Done {
    Ok(out(&format!("{}\n", serde_json::to_string_pretty(of)?)))
}
