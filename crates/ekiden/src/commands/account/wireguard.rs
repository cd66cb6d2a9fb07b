//! A device that comes by WireGuard: what the options ask for, and how its configuration is printed.

use super::Done;
use crate::cli::account::{AccountConfig, Devices};
use crate::commands::{own, peer::qr};
use crate::daemon::state;
use crate::print::{out, warn};
use ekiden_admin::wireguard::{Given, NewTunnel};
use std::error::Error;

/// What the options ask for: one device or none. Errors: the configuration has no such door, or no file can be written.
pub(super) fn asked(
    devices: &Devices,
    config: &AccountConfig,
) -> Result<Vec<NewTunnel>, Box<dyn Error>> {
    let Some(given) = &devices.wireguard else { return Ok(Vec::new()) };
    let settings = own(config.config.as_deref())?.reading.settings;
    let folder = settings.accounts.state.clone().or_else(state::directory);
    let folder = folder.ok_or("no home directory; set `state` in [accounts]")?;
    let own = Some(given.as_str()).filter(|given| !given.is_empty());
    Ok(vec![NewTunnel::new(&settings, &folder, own, devices.device.clone())?])
}

/// Prints the configuration, and on a terminal its code.
pub(super) fn hand_out(
    tunnel: &NewTunnel,
    account: &str,
    (name, v4, v6): &Given,
    code: bool,
) -> Done {
    let text = tunnel.text((*v4, *v6));
    if tunnel.holds_a_key() {
        warn(&format!(
            "device \"{name}\" of \"{account}\": scan this code with the app of WireGuard, or give it the text.\n\
             The text is shown this once: the relay keeps no private key of others.\n"
        ));
        qr::show(&text, code);
    }
    if !tunnel.names_servers() {
        warn(
            "it names no name server: set `listen` in [dns], or `dns` in [wireguard], and hand out a new one\n",
        );
    }
    Ok(out(&text))
}
