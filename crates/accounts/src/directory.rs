//! All accounts as they stood at one moment, in memory: what a connection asks.

use crate::account::{Account, AccountId, Credential};
use ipnet::IpNet;
use prefix_trie::joint::JointPrefixMap;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

/// A snapshot of all accounts. It does not change; a newer one takes its place.
#[derive(Debug, Clone, Default)]
pub struct Directory {
    version: i64,
    accounts: BTreeMap<AccountId, Arc<Account>>,
    /// By user, and which of its devices.
    users: HashMap<String, (AccountId, usize)>,
    relays: HashMap<String, AccountId>,
    prefixes: JointPrefixMap<IpNet, AccountId>,
    /// Both addresses of each WireGuard device. Beyond the tunnel others may have them.
    wireguard: HashMap<IpAddr, AccountId>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SavedDirectory {
    version: i64,
    accounts: Vec<Account>,
}

impl Directory {
    /// The accounts of a version of the database.
    pub fn new(version: i64, accounts: Vec<Account>) -> Self {
        let mut directory = Self { version, ..Self::default() };
        for account in accounts {
            let id = account.id;
            for (index, device) in account.devices.iter().enumerate() {
                match &device.credential {
                    Credential::Password { user, .. } => {
                        directory.users.insert(user.clone(), (id, index));
                    }
                    Credential::Peer(name) => {
                        directory.relays.insert(name.clone(), id);
                    }
                    Credential::Prefix(net) => {
                        directory.prefixes.insert(canonical(*net), id);
                    }
                    Credential::Wireguard { v4, v6, .. } => {
                        directory.wireguard.insert(IpAddr::V4(*v4), id);
                        directory.wireguard.insert(IpAddr::V6(*v6), id);
                    }
                }
            }
            directory.accounts.insert(id, Arc::new(account));
        }
        directory
    }

    /// The database's version: it grows with every change.
    pub const fn version(&self) -> i64 {
        self.version
    }

    /// Every account, by number.
    pub fn accounts(&self) -> impl Iterator<Item = &Arc<Account>> {
        self.accounts.values()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.accounts.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.accounts.is_empty()
    }

    /// An account by its number.
    pub fn get(&self, id: AccountId) -> Option<&Arc<Account>> {
        self.accounts.get(&id)
    }

    /// The account with a device of this user, and by what that is known.
    pub fn by_user(&self, user: &str) -> Option<(&Arc<Account>, &Credential)> {
        let (id, index) = self.users.get(user)?;
        let account = self.accounts.get(id)?;
        Some((account, &account.devices.get(*index)?.credential))
    }

    /// The account at an address: of several prefixes that hold it, the longest. Those of WireGuard devices are none.
    pub fn by_address(&self, address: IpAddr) -> Option<&Arc<Account>> {
        let (_, id) = self.prefixes.get_lpm(&address.to_canonical().into())?;
        self.accounts.get(id)
    }

    /// The account of the WireGuard device that has an address in the tunnel.
    pub fn by_wireguard(&self, address: IpAddr) -> Option<&Arc<Account>> {
        self.accounts.get(self.wireguard.get(&address.to_canonical())?)
    }

    /// The account behind a relay.
    pub fn by_peer(&self, relay: &str) -> Option<&Arc<Account>> {
        self.accounts.get(self.relays.get(relay)?)
    }

    pub(crate) fn to_keep(&self) -> SavedDirectory {
        let accounts = self.accounts.values().map(|account| Account::clone(account)).collect();
        SavedDirectory { version: self.version, accounts }
    }
}

/// As addresses are looked up: one of IPv4 is never written as one of IPv6 (RFC 4291 §2.5.5.2).
fn canonical(net: IpNet) -> IpNet {
    let net = net.trunc();
    let v4 = match net.addr().to_canonical() {
        IpAddr::V4(v4) if net.addr().is_ipv6() => net.prefix_len().checked_sub(96).zip(Some(v4)),
        _ => None,
    };
    let v4 = v4.and_then(|(bits, v4)| IpNet::new(v4.into(), bits).ok());
    v4.unwrap_or(net)
}

impl From<SavedDirectory> for Directory {
    fn from(kept: SavedDirectory) -> Self {
        Self::new(kept.version, kept.accounts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::{Attributes, Device};

    fn account(id: i64, credentials: &[Credential]) -> Account {
        let device = |(n, credential): (usize, &Credential)| Device {
            name: format!("d{n}"),
            credential: credential.clone(),
        };
        Account {
            id: AccountId(id),
            name: format!("h{id}"),
            devices: credentials.iter().enumerate().map(device).collect(),
            attributes: Attributes::default(),
        }
    }

    fn net(text: &str) -> Credential {
        Credential::Prefix(text.parse().unwrap())
    }

    #[test]
    fn the_longest_prefix_counts() {
        let directory = Directory::new(
            3,
            vec![
                account(1, &[net("100.64.0.0/10"), net("fd65::/16")]),
                account(2, &[net("::ffff:100.64.7.0/120")]),
                account(3, &[net("100.64.7.9/32"), Credential::Peer("ship".into())]),
            ],
        );
        let whose =
            |text: &str| directory.by_address(text.parse().unwrap()).map(|account| account.id.0);
        assert_eq!(whose("100.64.7.9"), Some(3));
        assert_eq!(whose("100.64.7.8"), Some(2));
        assert_eq!(whose("::ffff:100.64.7.8"), Some(2));
        assert_eq!(whose("100.65.0.1"), Some(1));
        assert_eq!(whose("fd65:1::1"), Some(1));
        assert_eq!((whose("192.0.2.1"), whose("2001:db8::1")), (None, None));
        assert_eq!(directory.by_peer("ship").unwrap().id, AccountId(3));
        let [v4, v6] = ["10.77.0.2", "fd77::2"];
        let phone = Credential::Wireguard {
            v4: v4.parse().unwrap(),
            v6: v6.parse().unwrap(),
            key: "k".into(),
        };
        let directory =
            Directory::new(4, vec![account(5, &[phone]), account(6, &[net("10.0.0.0/8")])]);
        for (at, own) in [(v4, Some(6)), ("::ffff:10.77.0.2", Some(6)), (v6, None)] {
            let at = at.parse().unwrap();
            assert_eq!(directory.by_wireguard(at).unwrap().id, AccountId(5));
            assert_eq!(
                directory.by_address(at).map(|account| account.id.0),
                own,
                "outside the tunnel"
            );
        }
        assert!(directory.by_wireguard("10.77.0.3".parse().unwrap()).is_none());
        assert!(directory.by_peer("shop").is_none());
    }

    #[test]
    fn stored_accounts_read_back_unchanged() {
        let hash = "$argon2id$…".to_owned();
        let anna = Credential::Password { user: "anna".into(), hash };
        let before = Directory::new(9, vec![account(1, &[net("2001:db8::/48"), anna])]);
        let text = serde_json::to_string(&before.to_keep()).unwrap();
        let after = Directory::from(serde_json::from_str::<SavedDirectory>(&text).unwrap());
        assert_eq!(after.version(), 9);
        assert_eq!(after.get(AccountId(1)), before.get(AccountId(1)));
        assert!(after.by_user("anna").is_some() && after.by_user("otto").is_none());
    }
}
