//! Devices that come by WireGuard: their keys, their addresses, and the configuration that their own app reads. It is
//! handed out once, as the relay keeps no private key of others.

#[cfg(feature = "wireguard")]
mod device;
#[cfg(not(feature = "wireguard"))]
#[path = "no_device.rs"]
mod device;

pub use device::NewTunnel;

use ekiden_accounts::{Account, Credential, Device, Store, StoreError};
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Another call may take an address at the same time.
const ATTEMPTS: u32 = 8;

/// A device's name and its addresses in the tunnel.
pub type Given = (String, Ipv4Addr, Ipv6Addr);

/// The addresses that devices have.
async fn taken(store: &Store) -> Result<BTreeSet<Ipv4Addr>, StoreError> {
    let table = store.accounts().await?;
    let credentials = table.accounts.into_iter().flat_map(|account| account.devices);
    // an account that cannot be read keeps its addresses
    let of_unreadable = table.unreadable.into_iter().flat_map(|account| account.devices);
    let credentials = credentials.chain(of_unreadable);
    let address = |device: Device| match device.credential {
        Credential::Wireguard { v4, .. } => Some(v4),
        _ => None,
    };
    Ok(credentials.filter_map(address).collect())
}

/// Gives the account all of these devices.
fn give_all(
    tunnels: &[NewTunnel],
    account: &mut Account,
    mut taken: BTreeSet<Ipv4Addr>,
) -> Result<Vec<Given>, StoreError> {
    let mut given = Vec::new();
    for tunnel in tunnels {
        let one = tunnel.give(account, &taken)?;
        taken.insert(one.1);
        given.push(one);
    }
    Ok(given)
}

/// Whether somebody else took an address first, so that another attempt is worth it.
fn is_worth_another<T>(done: &Result<T, StoreError>, tried: u32) -> bool {
    matches!(done, Err(StoreError::CredentialTaken { kind: "wireguard", .. })) && tried < ATTEMPTS
}

/// Adds an account with these devices to its own. Returns it as it is kept, and what the devices got.
pub async fn add(
    store: &Store,
    account: &Account,
    tunnels: &[NewTunnel],
) -> Result<(Account, Vec<Given>), StoreError> {
    let mut tried = 0;
    loop {
        tried += 1;
        let mut with = account.clone();
        let given = match tunnels {
            [] => Vec::new(),
            _ => give_all(tunnels, &mut with, taken(store).await?)?,
        };
        let added = store.add(&with).await;
        if !is_worth_another(&added, tried) {
            with.id = added?;
            return Ok((with, given));
        }
    }
}

/// Changes an account, and adds these devices to it. `change` is applied at each attempt. As [`add`].
pub async fn change(
    store: &Store,
    name: &str,
    tunnels: &[NewTunnel],
    change: impl Fn(&mut Account) -> Result<(), StoreError> + Send + Sync,
) -> Result<(Account, Vec<Given>), StoreError> {
    let mut tried = 0;
    loop {
        tried += 1;
        let taken = match tunnels {
            [] => BTreeSet::new(),
            _ => taken(store).await?,
        };
        let mut given = Vec::new();
        let changed = store.change(name, |account| {
            change(account)?;
            given = give_all(tunnels, account, taken)?;
            Ok(())
        });
        let changed = changed.await;
        if !is_worth_another(&changed, tried) {
            return Ok((changed?, given));
        }
    }
}
