//! Rows of the database as values, and values as what a row may hold.

use super::{FleetRelay, StoreError, UnreadableAccount, Usage};
use crate::account::{Account, AccountId, Attributes, Credential, Device};
use crate::journal::Total;
use crate::password;
use crate::period::BadPeriod;
use ekiden_model::units::Rate;
use sqlx::Row as _;
use sqlx::any::AnyRow;
use std::collections::BTreeMap;

/// An account, or why it cannot be read.
pub(super) type Read = Result<Account, UnreadableAccount>;

/// The largest share of a rate; see [`Attributes::weight`].
const HEAVIEST: u32 = 1000;

/// Accounts with their devices, in the order of their rows.
pub(super) fn accounts(accounts: &[AnyRow], devices: &[AnyRow]) -> Vec<Read> {
    let mut read: Vec<Read> = accounts.iter().map(account).collect();
    let number = |(index, read): (usize, &Read)| Some((id_of(read)?, index));
    let places: BTreeMap<_, _> = read.iter().enumerate().filter_map(number).collect();
    for row in devices {
        // one that came after its account was read is read the next time
        let index = row.try_get("account").ok().and_then(|id| places.get(&AccountId(id)));
        if let Some(of) = index.and_then(|index| read.get_mut(*index)) {
            add_device(of, device(row));
        }
    }
    read
}

pub(super) const fn id_of(read: &Read) -> Option<AccountId> {
    match read {
        Ok(account) => Some(account.id),
        Err(unreadable) => unreadable.id,
    }
}

fn add_device(of: &mut Read, device: Result<Device, Fault>) {
    match (&mut *of, device) {
        (Ok(account), Ok(device)) => account.devices.push(device),
        (Err(unreadable), Ok(device)) => unreadable.devices.push(device),
        (Err(_), Err(_)) => {}
        (Ok(account), Err((column, why))) => {
            let (id, name) = (Some(account.id), std::mem::take(&mut account.name));
            let devices = std::mem::take(&mut account.devices);
            *of = Err(UnreadableAccount { id, name, column, why, devices });
        }
    }
}

/// The column at fault, and why.
type Fault = (&'static str, String);

fn of_column<E: ToString>(column: &'static str) -> impl FnOnce(E) -> Fault {
    move |error| (column, error.to_string())
}

fn account(row: &AnyRow) -> Read {
    let id = row.try_get("id").map(AccountId);
    let name = row.try_get::<String, _>("name");
    let unreadable = |(column, why)| UnreadableAccount {
        id: id.as_ref().ok().copied(),
        name: name.as_ref().cloned().unwrap_or_default(),
        column,
        why,
        devices: Vec::new(),
    };
    let read = || {
        let id = id.as_ref().copied().map_err(of_column("account.id"))?;
        let name = name.as_ref().map_err(of_column("account.name"))?;
        Account::check_name(name).map_err(of_column("account.name"))?;
        let column = "account.attributes";
        let text: String = row.try_get("attributes").map_err(of_column(column))?;
        let attributes = Attributes::from_stored(&text).map_err(of_column(column))?;
        check(&attributes).map_err(of_column(column))?;
        Ok(Account { id, name: name.clone(), devices: Vec::new(), attributes })
    };
    read().map_err(unreadable)
}

/// Whether limits are within their ranges. A zone that this system does not know counts as UTC.
fn check(attributes: &Attributes) -> Result<(), String> {
    if !(1..=HEAVIEST).contains(&attributes.weight) {
        return Err(format!("weight {} is out of range: use 1 to {HEAVIEST}", attributes.weight));
    }
    let rates = [attributes.down, attributes.up, Some(attributes.throttle_rate)];
    if rates.contains(&Some(Rate::from_bits_per_second(0))) {
        return Err("a rate of 0 lets nothing through".to_owned());
    }
    match attributes.calendar() {
        Err(bad @ BadPeriod::Day(_)) => Err(bad.to_string()),
        _ => Ok(()),
    }
}

fn device(row: &AnyRow) -> Result<Device, Fault> {
    let text = |column, at| row.try_get::<String, _>(at).map_err(of_column(column));
    let (kind, identity) = (text("device.kind", "kind")?, text("device.identity", "identity")?);
    let rest: Option<String> = row.try_get("hash").map_err(of_column("device.hash"))?;
    let credential = match kind.as_str() {
        "password" => {
            Account::check_user(&identity).map_err(of_column("device.identity"))?;
            let hash = rest.filter(|hash| password::is_hash(hash));
            let why =
                || format!("the password of user \"{}\" has no valid hash", printable(&identity));
            let hash = hash.ok_or_else(|| ("device.hash", why()))?;
            Credential::Password { user: identity, hash }
        }
        "prefix" => {
            let why =
                |_| ("device.identity", format!("invalid prefix \"{}\"", printable(&identity)));
            Credential::Prefix(identity.parse().map_err(why)?)
        }
        "peer" => Credential::Peer(identity),
        "wireguard" => {
            // the other address and the key stand where a password has its hash
            let rest = rest.as_deref().and_then(|rest| rest.split_once(' '));
            let read = rest.and_then(|(v6, key)| {
                let (v4, v6) = (identity.parse().ok()?, v6.parse().ok()?);
                Some(Credential::Wireguard { v4, v6, key: key.to_owned() })
            });
            let why = || format!("invalid WireGuard device \"{}\"", printable(&identity));
            read.ok_or_else(|| ("device.identity", why()))?
        }
        other => {
            return Err((
                "device.kind",
                format!("unknown kind of device \"{}\"", printable(other)),
            ));
        }
    };
    let name = text("device.name", "name")?;
    Account::check_name(&name).map_err(of_column("device.name"))?;
    Ok(Device { name, credential })
}

/// Text of a row, for a message on one line.
fn printable(text: &str) -> String {
    text.chars().take(80).flat_map(char::escape_default).collect()
}

pub(super) fn attributes(account: &Account) -> Result<String, StoreError> {
    serde_json::to_string(&account.attributes)
        .map_err(|error| StoreError::Refused(error.to_string()))
}

pub(super) fn usage(row: &AnyRow) -> Result<Usage, StoreError> {
    Ok(Usage {
        account: AccountId(row.try_get("account")?),
        name: row.try_get("name")?,
        begun: row.try_get("begun")?,
        down: bytes(row, "down")?,
        up: bytes(row, "up")?,
    })
}

pub(super) fn total(row: &AnyRow) -> Result<Total, StoreError> {
    Ok(Total {
        account: AccountId(row.try_get("account")?),
        begun: row.try_get("begun")?,
        down: bytes(row, "down")?,
        up: bytes(row, "up")?,
    })
}

pub(super) fn relay(row: &AnyRow) -> Result<FleetRelay, StoreError> {
    Ok(FleetRelay {
        id: row.try_get("id")?,
        name: row.try_get("name")?,
        version: row.try_get("version")?,
        seen: row.try_get("seen")?,
    })
}

/// A column of bytes.
pub(super) fn bytes(row: &AnyRow, column: &str) -> Result<u64, StoreError> {
    let value: i64 = row.try_get(column)?;
    Ok(u64::try_from(value).unwrap_or(0))
}

/// Bytes for a column: 8 EiB are more than any quota.
pub(super) fn number(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
