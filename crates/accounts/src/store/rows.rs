//! Rows of the database as values, and values as what a row may hold.

use super::{FleetRelay, StoreError, Usage};
use crate::account::{Account, AccountId, Credential, Device};
use sqlx::Row as _;
use sqlx::any::AnyRow;

/// Accounts with their devices, both by number.
pub(super) fn accounts(
    accounts: &[AnyRow],
    devices: &[AnyRow],
) -> Result<Vec<Account>, StoreError> {
    let mut found: Vec<Account> = accounts.iter().map(account).collect::<Result<_, _>>()?;
    for row in devices {
        let id: i64 = row.try_get("account")?;
        // one that came after its account was read is read the next time
        if let Ok(index) = found.binary_search_by_key(&AccountId(id), |account| account.id)
            && let Some(account) = found.get_mut(index)
        {
            let device = device(row, &account.name)?;
            account.devices.push(device);
        }
    }
    Ok(found)
}

fn account(row: &AnyRow) -> Result<Account, StoreError> {
    let name: String = row.try_get("name")?;
    let attributes: String = row.try_get("attributes")?;
    let attributes = serde_json::from_str(&attributes)
        .map_err(|error| StoreError::Row { name: name.clone(), why: error.to_string() })?;
    Ok(Account { id: AccountId(row.try_get("id")?), name, devices: Vec::new(), attributes })
}

fn device(row: &AnyRow, account: &str) -> Result<Device, StoreError> {
    let wrong = |why: String| StoreError::Row { name: account.to_owned(), why };
    let (kind, identity): (String, String) = (row.try_get("kind")?, row.try_get("identity")?);
    let credential = match kind.as_str() {
        "password" => {
            let hash: Option<String> = row.try_get("hash")?;
            Credential::Password { user: identity, hash: hash.unwrap_or_default() }
        }
        "prefix" => {
            let net = identity.parse();
            Credential::Prefix(net.map_err(|_| wrong(format!("invalid prefix \"{identity}\"")))?)
        }
        "peer" => Credential::Peer(identity),
        "wireguard" => {
            // the other address and the key stand where a password has its hash
            let rest: Option<String> = row.try_get("hash")?;
            let rest = rest.as_deref().and_then(|rest| rest.split_once(' '));
            let read = rest.and_then(|(v6, key)| {
                let (v4, v6) = (identity.parse().ok()?, v6.parse().ok()?);
                Some(Credential::Wireguard { v4, v6, key: key.to_owned() })
            });
            read.ok_or_else(|| wrong(format!("invalid WireGuard device \"{identity}\"")))?
        }
        other => return Err(wrong(format!("unknown kind of device \"{other}\""))),
    };
    Ok(Device { name: row.try_get("name")?, credential })
}

pub(super) fn attributes(account: &Account) -> Result<String, StoreError> {
    serde_json::to_string(&account.attributes)
        .map_err(|error| StoreError::Row { name: account.name.clone(), why: error.to_string() })
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
