//! `ekiden account`: accounts, in the database that a daemon polls.

mod wireguard;

use super::{client, own, with_runtime};
use crate::cli::account::{AccountCommand, AccountConfig, Devices, Limits};
use crate::daemon::state;
use crate::print::{clean, out, table, traffic, warn};
use ekiden_accounts::{
    Account, AccountId, AccountTable, Attributes, Credential, LimitChanges, OnQuotaExceeded, Quota,
    Store, UnreadableAccount, Usage, forget_devices, hash, usage_since,
};
use ekiden_admin::documents::{AccountDocument, AccountList, Period, Periods, begun};
use ekiden_admin::wireguard::{Given, NewTunnel, add as add_with, change as change_with};
use ekiden_model::units::Rate;
use ekiden_proxy::observe::status::AccountStatus;
use ekiden_proxy::settings::Accounts;
use ekiden_tunnel::trust::Store as Peers;
use jiff::Timestamp;
use jiff::civil::Date;
use serde::Serialize;
use std::error::Error;
use std::io::{BufRead as _, IsTerminal as _, Read as _};

/// Runs it. Returns the exit code.
pub(crate) fn run(command: AccountCommand) -> u8 {
    with_runtime("account", |runtime| runtime.block_on(execute(command)))
}

type Done = Result<u8, Box<dyn Error>>;

async fn execute(command: AccountCommand) -> Done {
    match command {
        AccountCommand::Add { name, devices, limits, config } => {
            let done = add(name.clone(), &devices, &limits, &config).await;
            recorded("ekiden account add", &name, &config, done)
        }
        AccountCommand::List { json, config } => list(json, &config).await,
        AccountCommand::Show { name, json, config } => show(&name, json, &config).await,
        AccountCommand::Set { name, rename, devices, forget, limits, config } => {
            let done = set(&name, rename, &devices, forget, &limits, &config).await;
            recorded("ekiden account set", &name, &config, done)
        }
        AccountCommand::Remove { name, config } => {
            let done = remove(&name, &config).await;
            recorded("ekiden account remove", &name, &config, done)
        }
        AccountCommand::Usage { name, since, json, csv, config } => {
            usage(name.as_deref(), since, (json, csv), &config).await
        }
    }
}

/// With a line in the audit log. Passwords come by standard input, so no argument is a secret.
fn recorded(command: &str, name: &str, config: &AccountConfig, done: Done) -> Done {
    let words = std::env::args_os().skip(3).map(|word| word.to_string_lossy().into_owned());
    let mut arguments: Vec<String> = words.collect();
    if let Some(at) = arguments.iter().position(|word| word == name) {
        arguments.remove(at);
    }
    let what = in_one_line(&arguments);
    super::record_change(config.config.as_deref(), (command, name), &done, &what);
    done
}

/// Each argument stays one.
fn in_one_line(arguments: &[String]) -> String {
    arguments.iter().map(|word| ekiden_admin::quoted(word)).collect::<Vec<_>>().join(" ")
}

/// The accounts' database, and whether a daemon with this configuration uses it.
async fn store(config: &AccountConfig) -> Result<(Store, bool), Box<dyn Error>> {
    let loaded = own(config.config.as_deref())?;
    let Accounts { enabled, database, state, .. } = &loaded.reading.settings.accounts;
    let store = match database {
        Some(address) => Store::at(address).await?,
        None => {
            let folder = state.clone().or_else(state::directory);
            let folder = folder.ok_or("no home directory; set `state` in [accounts]")?;
            Store::in_folder(&folder).await?
        }
    };
    Ok((store, *enabled))
}

/// Says which peers of an option this relay does not know: they may be another relay's, or be mistyped. Nothing where this
/// user cannot read the list.
fn warn_of_peers(devices: &Devices, config: &AccountConfig) {
    let Ok(loaded) = own(config.config.as_deref()) else { return };
    let folder = loaded.reading.draft.tunnel.state.or_else(state::directory);
    let Some(Ok(known)) = folder.map(|folder| Peers::new(folder).peers()) else { return };
    for peer in devices.peer.iter().filter(|name| known.iter().all(|peer| peer.name != **name)) {
        warn(&format!(
            "ekiden account: this relay knows no peer `{peer}`; `ekiden peer list` lists those that it knows\n"
        ));
    }
}

/// The hash of the first line of standard input.
fn password(devices: &Devices) -> Result<Option<String>, Box<dyn Error>> {
    if !devices.password_stdin {
        return Ok(None);
    }
    Ok(Some(hash(&read_password()?)?))
}

/// The first line of standard input.
pub(super) fn read_password() -> std::io::Result<String> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        warn("type the password, then Enter (it is visible; a pipe or a file is better):\n");
    }
    let mut line = String::new();
    // more than the longest password
    stdin.lock().take(4096).read_line(&mut line)?;
    Ok(line.trim_end_matches(['\n', '\r']).to_owned())
}

async fn add(name: String, devices: &Devices, limits: &Limits, config: &AccountConfig) -> Done {
    Account::check_name(&name)?;
    let mut attributes = Attributes::default();
    limits.changes().apply(&mut attributes)?;
    let mut account = Account { id: AccountId(0), name, devices: Vec::new(), attributes };
    devices.changes(password(devices)?).apply(&mut account)?;
    let tunnels = wireguard::asked(devices, config)?;
    if account.devices.is_empty() && tunnels.is_empty() {
        let why = "an account needs a device: --user with --password-stdin, --address, --peer or --wireguard";
        return Err(why.into());
    }
    let (store, enabled) = store(config).await?;
    let (account, given) = add_with(&store, &account, &tunnels).await?;
    store.close().await;
    warn_of_peers(devices, config);
    let then = match enabled {
        true => "a running daemon admits it within a second",
        false => {
            "it counts once accounts are enabled: set [accounts] enabled = true, and restart the daemon"
        }
    };
    told(
        &account.name,
        (&tunnels, &given, devices.qr),
        &format!(
            "added account \"{}\", {}; {then}\n{}",
            account.name,
            account.id,
            over(&account.attributes, Timestamp::now())
        ),
    )
}

/// Says what was done; where a device has its configuration to be printed, that alone goes to standard output.
fn told(account: &str, (tunnels, given, code): (&[NewTunnel], &[Given], bool), done: &str) -> Done {
    match (tunnels, given) {
        ([tunnel, ..], [given, ..]) => {
            warn(done);
            wireguard::hand_out(tunnel, account, given, code)
        }
        _ => Ok(out(done)),
    }
}

async fn set(
    name: &str,
    rename: Option<String>,
    devices: &Devices,
    forget: Vec<String>,
    limits: &Limits,
    config: &AccountConfig,
) -> Done {
    let limited = limits.changes() != LimitChanges::default();
    if rename.is_none() && forget.is_empty() && devices.are_none() && !limited {
        let why = format!(
            "nothing is asked of account \"{}\": no option says what to change; see `ekiden account set --help`",
            clean(name)
        );
        return Err(why.into());
    }
    let hash = password(devices)?;
    let tunnels = wireguard::asked(devices, config)?;
    let (store, enabled) = store(config).await?;
    let changed = change_with(&store, name, &tunnels, |account| {
        forget_devices(&forget, account)?;
        devices.changes(hash.clone()).apply(account)?;
        if let Some(name) = rename.clone() {
            account.name = name;
        }
        limits.changes().apply(&mut account.attributes)
    });
    let (account, given) = changed.await?;
    store.close().await;
    warn_of_peers(devices, config);
    let then = match enabled {
        true => "a running daemon applies it within a second",
        false => "accounts are not enabled, so no daemon applies it",
    };
    told(
        &account.name,
        (&tunnels, &given, devices.qr),
        &format!(
            "changed account \"{}\"; {then}\n{}",
            account.name,
            over(&account.attributes, Timestamp::now())
        ),
    )
}

/// A line where the account's last day is over; nothing otherwise.
fn over(attributes: &Attributes, now: Timestamp) -> String {
    let last =
        attributes.expires.filter(|last| now.to_zoned(attributes.zone_here()).date() > *last);
    let line = |last: Date| {
        let zone = &attributes.zone;
        format!(
            "it is over: {last}, {zone}, was its last day, so none of its clients is admitted\n"
        )
    };
    last.map(line).unwrap_or_default()
}

async fn remove(name: &str, config: &AccountConfig) -> Done {
    let (store, _) = store(config).await?;
    store.remove(name).await?;
    store.close().await;
    Ok(out(&format!(
        "removed account \"{}\"; a running daemon ends its connections within a second\n",
        clean(name)
    )))
}

async fn list(json: bool, config: &AccountConfig) -> Done {
    let (store, _) = store(config).await?;
    let AccountTable { accounts, unreadable, .. } = store.accounts().await?;
    let usage = if json { Vec::new() } else { store.usage(0).await? };
    store.close().await;
    let spent = if json { Vec::new() } else { spent().await };
    // on standard error: a program reads the list alone
    for account in &unreadable {
        let account = clean(&account.to_string());
        warn(&format!(
            "warning: {account}; {}
",
            UnreadableAccount::REMEDY
        ));
    }
    if json {
        return document(&AccountList {
            accounts: accounts.iter().map(AccountDocument::of).collect(),
        });
    }
    if accounts.is_empty() {
        return Ok(out("no accounts; see `ekiden account add --help`\n"));
    }
    let head = ["ACCOUNT", "DEVICES", "DOWN", "UP", "QUOTA", "USED", "STATE"];
    let head = head.map(str::to_owned).to_vec();
    let rows = accounts.iter().map(|account| row(account, used(account, &usage, &spent))).collect();
    let text = table(head, rows, &[false, true, true, true, true, true, false], None);
    Ok(out(text.trim_start_matches('\n')))
}

/// The accounts whose quota is used up, as the running daemon knows it at once: name and quota.
async fn spent() -> Vec<(String, u64)> {
    let status = client::status(None).await.ok().map(|(status, _)| status);
    let accounts = status.and_then(|status| status.sharing).map(|sharing| sharing.accounts);
    let spent = |account: &AccountStatus| matches!(&*account.state, "cut" | "throttle");
    let accounts = accounts.into_iter().flatten().filter(spent);
    accounts.filter_map(|account| Some((account.name, account.quota?))).collect()
}

/// Bytes that an account has used in the quota's current period: as far as they are settled, which takes some
/// seconds, but all where the daemon holds it for `spent`.
fn used(account: &Account, usage: &[Usage], spent: &[(String, u64)]) -> u64 {
    let quota = account.attributes.quota.map(|quota| quota.bytes.as_u64());
    let gone = spent.iter().any(|(name, of)| *name == account.name && Some(*of) == quota);
    settled(account, usage).max(quota.filter(|_| gone).unwrap_or(0))
}

fn settled(account: &Account, usage: &[Usage]) -> u64 {
    let begun = account.attributes.calendar_here().begun(Timestamp::now()).as_second();
    let current = |one: &&Usage| one.account == account.id && one.begun == begun;
    usage.iter().filter(current).map(|one| one.down.saturating_add(one.up)).sum()
}

/// What became of an account whose quota is used up.
fn exceeded(attributes: &Attributes, used: u64) -> Option<String> {
    let quota = attributes.quota.filter(|quota| used >= quota.bytes.as_u64())?;
    let then = match attributes.on_quota_exceeded {
        OnQuotaExceeded::Cut => "cut".to_owned(),
        OnQuotaExceeded::Throttle => format!("throttled to {}", attributes.throttle_rate),
    };
    Some(match attributes.calendar_here().next_in_words(Timestamp::now()) {
        Some(next) => format!("{then} until {next}: quota of {quota} used up"),
        None => format!("{then}: quota of {quota} used up; it does not begin anew"),
    })
}

fn row(account: &Account, used: u64) -> Vec<String> {
    let attributes = &account.attributes;
    let limit = |rate: Option<Rate>| rate.map_or_else(|| "-".to_owned(), |rate| rate.to_string());
    let standing = attributes.may_come_in(Timestamp::now());
    vec![
        clean(&account.name),
        account.devices.len().to_string(),
        limit(attributes.down),
        limit(attributes.up),
        attributes.quota.map_or_else(|| "-".to_owned(), |quota| quota.to_string()),
        // of the quota's period
        attributes.quota.map_or_else(|| "-".to_owned(), |_| traffic(used)),
        match standing {
            Ok(()) => exceeded(attributes, used).unwrap_or_else(|| "active".to_owned()),
            Err(ekiden_accounts::Barred::Disabled) => "disabled".to_owned(),
            Err(ekiden_accounts::Barred::Expired(day)) => format!("expired on {day}"),
            Err(ekiden_accounts::Barred::Hours(hours, zone)) => {
                format!("outside its hours: {hours}, {zone}")
            }
        },
    ]
}

async fn show(name: &str, json: bool, config: &AccountConfig) -> Done {
    let (store, _) = store(config).await?;
    let account = store.account(name).await?;
    let spent = if json { Vec::new() } else { spent().await };
    let used = used(&account, &store.usage(0).await?, &spent);
    store.close().await;
    if json {
        return document(&AccountList { accounts: vec![AccountDocument::of(&account)] });
    }
    let a = &account.attributes;
    let mut lines = vec![("account", format!("{}, {}", clean(&account.name), account.id))];
    for device in &account.devices {
        let (kind, identity) = device.credential.identity();
        let known = match kind {
            "password" => format!("user \"{}\" with a password", clean(&identity)),
            "prefix" => format!("address {identity}"),
            "wireguard" => wireguard_line(&device.credential),
            _ => format!("peer \"{}\"", clean(&identity)),
        };
        lines.push(("device", format!("{}: {known}", clean(&device.name))));
    }
    let unlimited = || "unlimited".to_owned();
    lines.push(("down", a.down.map_or_else(unlimited, |rate| rate.to_string())));
    lines.push(("up", a.up.map_or_else(unlimited, |rate| rate.to_string())));
    lines.push(("weight", a.weight.to_string()));
    lines.push(("quota", a.quota.map_or_else(unlimited, |quota| quota_line(a, quota))));
    lines.push(("connections", a.connections.map_or_else(unlimited, |n| n.to_string())));
    let each_second = a.connects_per_second.map_or_else(unlimited, |n| format!("{n} per second"));
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
        lines.push(("allowed", clean(&a.allow.join(", "))));
    }
    if !a.deny.is_empty() {
        lines.push(("denied", clean(&a.deny.join(", "))));
    }
    if a.quota.is_some() {
        lines.push(("used", traffic(used)));
    }
    if let Err(barred) = a.may_come_in(Timestamp::now()) {
        lines.push(("now", barred.to_string()));
    } else if let Some(exceeded) = exceeded(a, used) {
        lines.push(("now", exceeded));
    }
    let line = |(name, value): &(&str, String)| format!("{name:<16} {value}\n");
    Ok(out(&lines.iter().map(line).collect::<String>()))
}

/// Its configuration cannot be shown again: only its public key is kept.
fn wireguard_line(credential: &Credential) -> String {
    match credential {
        Credential::Wireguard { v4, v6, key } => {
            format!("WireGuard, {v4} and {v6}, public key {}", clean(key))
        }
        _ => String::new(),
    }
}

fn quota_line(attributes: &Attributes, quota: Quota) -> String {
    let then = match attributes.on_quota_exceeded {
        OnQuotaExceeded::Throttle => format!("then {}", attributes.throttle_rate),
        OnQuotaExceeded::Cut => "then cut".to_owned(),
    };
    let next = attributes.calendar_here().next_in_words(Timestamp::now());
    let next = next.unwrap_or_else(|| "never".to_owned());
    format!("{quota}, {then}; begins anew {next}")
}

async fn usage(
    name: Option<&str>,
    since: Option<Date>,
    (json, csv): (bool, bool),
    config: &AccountConfig,
) -> Done {
    let (store, _) = store(config).await?;
    let used = usage_since(&store, name, since).await?;
    store.close().await;
    if json {
        return document(&Periods { usage: used.iter().map(Period::of).collect() });
    }
    if csv {
        return Ok(out(&ekiden_admin::documents::csv(&used)));
    }
    if used.is_empty() {
        return Ok(out("no settled usage\n"));
    }
    let head = ["ACCOUNT", "SINCE", "DOWN", "UP"].map(str::to_owned).to_vec();
    let row = |usage: &Usage| {
        let name = usage.name.as_deref().map(clean);
        let name = name.unwrap_or_else(|| format!("{} (removed)", usage.account));
        vec![name, since_in_words(usage), traffic(usage.down), traffic(usage.up)]
    };
    let rows = used.iter().map(row).collect();
    let text = table(head, rows, &[false, false, true, true], None);
    Ok(out(text.trim_start_matches('\n')))
}

/// When a period began; one that never begins anew has no such time.
fn since_in_words(usage: &Usage) -> String {
    if usage.begun == 0 { "the beginning".to_owned() } else { begun(usage) }
}

fn document(of: &impl Serialize) -> Done {
    Ok(out(&format!("{}\n", serde_json::to_string_pretty(of)?)))
}

#[cfg(test)]
mod tests;
