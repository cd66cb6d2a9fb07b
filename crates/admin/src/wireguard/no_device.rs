//! In a build without the feature `wireguard` there is no such device.

use super::Given;
use ekiden_accounts::{Account, StoreError};
use ekiden_proxy::settings::Settings;
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

/// A device to add; there is none.
#[derive(Debug)]
pub struct NewTunnel(Infallible);

impl NewTunnel {
    /// Always an error.
    pub fn new(_: &Settings, _: &Path, _: Option<&str>, _: Option<String>) -> Result<Self, String> {
        Err("this ekiden was built without the feature `wireguard`".to_owned())
    }

    pub(super) fn give(
        &self,
        _: &mut Account,
        _: &BTreeSet<Ipv4Addr>,
    ) -> Result<Given, StoreError> {
        match self.0 {}
    }

    /// Whether the configuration holds a private key.
    pub const fn holds_a_key(&self) -> bool {
        match self.0 {}
    }

    /// Whether the configuration names name servers.
    pub const fn names_servers(&self) -> bool {
        match self.0 {}
    }

    /// The configuration.
    pub fn text(&self, _: (Ipv4Addr, Ipv6Addr)) -> String {
        match self.0 {}
    }
}
