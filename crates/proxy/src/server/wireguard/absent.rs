//! In a build without the feature `wireguard` there is no such door.

use super::{Inner, StartError};
use crate::observe::status::{DnsPortStatus, WireguardStatus};
use crate::settings::Settings;
use ekiden_model::units::Time;
use std::sync::Arc;

#[derive(Debug, Default)]
pub(super) struct WireguardDoor;

pub(super) fn check_wireguard(settings: &Settings) -> Result<(), StartError> {
    match settings.wireguard.is_on() {
        true => Err(StartError::Settings(
            "this ekiden was built without WireGuard; take `listen` out of [wireguard], or build it with the feature `wireguard`".to_owned(),
        )),
        false => Ok(()),
    }
}

impl Inner {
    pub(super) fn open_wireguard(self: &Arc<Self>, _: &Settings) {}

    pub(super) fn end_other_wireguard(&self, _: &Settings) {}

    pub(super) fn tend_wireguard(self: &Arc<Self>) {}

    pub(super) fn close_wireguard(&self) {}

    pub(super) fn failed_names_within(&self, _: Time) -> Vec<DnsPortStatus> {
        Vec::new()
    }

    pub(super) fn wireguard_status(&self) -> Option<WireguardStatus> {
        None
    }
}
