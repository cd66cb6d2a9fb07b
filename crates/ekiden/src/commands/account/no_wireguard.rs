//! In a build without the feature `wireguard` there is no such device.

use super::Done;
use crate::cli::account::{AccountConfig, Devices};
use ekiden_accounts::{Account, Store, StoreError};
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::error::Error;
use std::net::{Ipv4Addr, Ipv6Addr};

pub(super) struct NewTunnel(Infallible);

impl NewTunnel {
    pub(super) fn asked(
        devices: &Devices,
        _: &AccountConfig,
    ) -> Result<Option<Self>, Box<dyn Error>> {
        match devices.wireguard {
            Some(_) => Err("this ekiden was built without the feature `wireguard`".into()),
            None => Ok(None),
        }
    }

    pub(super) fn give(
        &self,
        _: &mut Account,
        _: &BTreeSet<Ipv4Addr>,
    ) -> Result<(String, Ipv4Addr, Ipv6Addr), StoreError> {
        match self.0 {}
    }

    pub(super) fn hand_out(&self, _: &str, _: (&str, Ipv4Addr, Ipv6Addr)) -> Done {
        match self.0 {}
    }
}

pub(super) async fn taken(_: &Store) -> Result<BTreeSet<Ipv4Addr>, StoreError> {
    Ok(BTreeSet::new())
}

pub(super) const fn is_worth_another<T>(_: &Result<T, StoreError>, _: u32) -> bool {
    false
}
