//! A change of an account as plain data, so that the command line and the API accept and refuse the
//! same.

use crate::account::{Account, Attributes, Credential, Device, OnQuotaExceeded};
use crate::hours::Hours;
use crate::period::Quota;
use crate::store::StoreError;
use ekiden_model::units::{Bytes, Rate};
use ipnet::IpNet;
use jiff::civil::Date;

/// The lowest rate of an account: 8 kbit/s. Less is useless, and usually a mistake in the unit.
pub const LOWEST_RATE: Rate = Rate::from_bits_per_second(8_000);

/// Checks a rate against [`LOWEST_RATE`]; the error is for the operator.
pub fn check_rate(rate: Rate) -> Result<Rate, String> {
    if rate < LOWEST_RATE {
        Err(format!("the lowest rate is {LOWEST_RATE}; to stop an account, disable it"))
    } else {
        Ok(rate)
    }
}

macro_rules! put {
    ($from:ident => $to:ident: $($field:ident)+) => {
        $(if let Some(value) = $from.$field { $to.$field = value; })+
    };
}

/// New limits. `None` keeps the present value; `Some(None)` lifts a limit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[allow(missing_docs)] // the fields are those of `Attributes`
pub struct LimitChanges {
    pub down: Option<Option<Rate>>,
    pub up: Option<Option<Rate>>,
    pub weight: Option<u32>,
    pub quota: Option<Option<Quota>>,
    pub zone: Option<String>,
    pub reset_day: Option<u8>,
    pub on_quota_exceeded: Option<OnQuotaExceeded>,
    pub throttle_rate: Option<Rate>,
    pub connections: Option<Option<u32>>,
    pub connects_per_second: Option<Option<u32>>,
    pub expires: Option<Option<Date>>,
    pub allow: Option<Vec<String>>,
    pub deny: Option<Vec<String>>,
    pub hours: Option<Option<Hours>>,
    pub disabled: Option<bool>,
}

impl LimitChanges {
    /// Applies them. Fails when the result is inconsistent, such as an unknown time zone, and for a quota of nothing.
    pub fn apply(self, to: &mut Attributes) -> Result<(), StoreError> {
        if let Some(Some(quota)) = &self.quota
            && quota.bytes == Bytes::ZERO
        {
            let why = format!(
                "a quota of {quota} permits nothing; to stop an account, disable it; to lift its quota, set none"
            );
            return Err(StoreError::Refused(why));
        }
        put!(self => to: down up weight quota zone reset_day on_quota_exceeded throttle_rate);
        put!(self => to: connections connects_per_second expires allow deny hours disabled);
        to.calendar().map(|_| ()).map_err(|bad| StoreError::Refused(bad.to_string()))
    }
}

/// Devices to add. A user that exists gets the new password.
#[derive(Debug, Clone, Default)]
pub struct NewDevices {
    /// A user and the hash of its password.
    pub user: Option<(String, String)>,
    /// Addresses.
    pub prefixes: Vec<IpNet>,
    /// Peers, by name.
    pub peers: Vec<String>,
    /// The device's name; otherwise it is derived from the credential.
    pub name: Option<String>,
}

impl NewDevices {
    /// Adds them to an account. Fails when one name is given for several devices, and for a prefix of all addresses.
    pub fn apply(self, to: &mut Account) -> Result<(), StoreError> {
        if let Some(all) = self.prefixes.iter().find(|net| net.prefix_len() == 0) {
            let why = format!(
                "{all} is every address, so every client that logs in by no other device would use this account; give its own addresses, as in 100.64.7.0/24, or a user"
            );
            return Err(StoreError::Refused(why));
        }
        let mut credentials = Vec::new();
        if let Some((user, hash)) = self.user {
            let credential = Credential::Password { user: user.clone(), hash };
            let same = |device: &&mut Device| device.credential.identity() == credential.identity();
            match to.devices.iter_mut().find(same) {
                Some(device) => device.credential = credential,
                None => credentials.push((user, credential)),
            }
        }
        for net in self.prefixes {
            credentials.push(("address".to_owned(), Credential::Prefix(net.trunc())));
        }
        for peer in self.peers {
            credentials.push((peer.clone(), Credential::Peer(peer)));
        }
        if self.name.is_some() && credentials.len() != 1 {
            let why = "a device name applies to one new device; add them one at a time";
            return Err(StoreError::Refused(why.to_owned()));
        }
        for (usual, credential) in credentials {
            let name = self.name.clone().unwrap_or_else(|| free_name(&usual, &to.devices));
            to.devices.push(Device { name, credential });
        }
        Ok(())
    }
}

/// Adds a key of WireGuard with its addresses to an account, as a device of this name, or one derived from `wireguard`.
pub fn add_tunnel(credential: Credential, name: Option<&str>, to: &mut Account) -> String {
    let name = name.map_or_else(|| free_name("wireguard", &to.devices), str::to_owned);
    to.devices.push(Device { name: name.clone(), credential });
    name
}

/// Gives a user its new hash in place of the one that its password was checked against. Fails where the user has another
/// one by now, or is gone.
pub fn replace_password(
    account: &mut Account,
    user: &str,
    (old, new): (&str, String),
) -> Result<(), StoreError> {
    for device in &mut account.devices {
        match &mut device.credential {
            Credential::Password { user: known, hash } if known == user && hash == old => {
                *hash = new;
                return Ok(());
            }
            _ => {}
        }
    }
    Err(StoreError::Refused("this user was changed at the same time; try again".to_owned()))
}

/// Removes devices from an account by name. Fails when it has no device of that name.
pub fn forget_devices(names: &[String], account: &mut Account) -> Result<(), StoreError> {
    for name in names {
        let before = account.devices.len();
        account.devices.retain(|device| device.name != *name);
        if account.devices.len() == before {
            let why = format!(
                "account \"{}\" has no device \"{name}\"; `ekiden account show` lists them",
                account.name
            );
            return Err(StoreError::Refused(why));
        }
    }
    Ok(())
}

/// A name that no device has yet.
fn free_name(usual: &str, devices: &[Device]) -> String {
    let usual = if Account::check_name(usual).is_ok() { usual } else { "device" };
    let is_free = |name: &String| devices.iter().all(|device| device.name != *name);
    let numbered = (2_usize..).map(|n| format!("{usual}-{n}"));
    let mut names = std::iter::once(usual.to_owned()).chain(numbered);
    names.find(is_free).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::AccountId;

    fn account() -> Account {
        let attributes = Attributes::default();
        Account { id: AccountId(0), name: "h".into(), devices: vec![], attributes }
    }

    #[test]
    fn names_devices_and_replaces_the_password_of_an_existing_user() {
        let mut to = account();
        let first = NewDevices {
            user: Some(("anna".into(), "one".into())),
            prefixes: vec!["100.64.1.0/24".parse().unwrap(), "2001:db8::/48".parse().unwrap()],
            ..NewDevices::default()
        };
        first.apply(&mut to).unwrap();
        let names: Vec<_> = to.devices.iter().map(|device| device.name.as_str()).collect();
        assert_eq!(names, ["anna", "address", "address-2"]);
        let again =
            NewDevices { user: Some(("anna".into(), "two".into())), ..NewDevices::default() };
        again.apply(&mut to).unwrap();
        assert_eq!(to.devices.len(), 3);
        let two = Credential::Password { user: "anna".into(), hash: "two".into() };
        assert_eq!(to.devices[0].credential, two);
        let both = NewDevices {
            peers: vec!["a".into(), "b".into()],
            name: Some("x".into()),
            ..NewDevices::default()
        };
        assert!(both.apply(&mut to).is_err());
    }

    #[test]
    fn a_password_is_replaced_if_nobody_else_did() {
        let mut to = account();
        let user = Some(("anna".into(), "one".into()));
        NewDevices { user, ..NewDevices::default() }.apply(&mut to).unwrap();
        assert!(replace_password(&mut to, "anna", ("zero", "two".into())).is_err());
        assert!(replace_password(&mut to, "ken", ("one", "two".into())).is_err());
        replace_password(&mut to, "anna", ("one", "two".into())).unwrap();
        let two = Credential::Password { user: "anna".into(), hash: "two".into() };
        assert_eq!(to.devices[0].credential, two);
    }

    #[test]
    fn refuses_unknown_zones_and_keeps_what_is_not_named() {
        let mut to = Attributes { weight: 3, ..Attributes::default() };
        let down = Some(Some(Rate::from_bits_per_second(5_000_000)));
        LimitChanges { down, ..LimitChanges::default() }.apply(&mut to).unwrap();
        assert_eq!((to.weight, to.down.is_some()), (3, true));
        let zone = LimitChanges { zone: Some("Atlantis".into()), ..LimitChanges::default() };
        let refused = zone.apply(&mut to).unwrap_err().to_string();
        assert!(refused.contains("Asia/Tokyo"), "{refused}");
    }
}
