//! Devices to add: how they are said in a document, how they are made ready, and what is handed out for them once.

use super::Problem;
use crate::Shared;
use crate::documents::AccountDocument;
use crate::wireguard::{Given, NewTunnel};
use ekiden_accounts::{Account, BadPassword, NewDevices, hash};
use ekiden_config::pattern;
use ekiden_proxy::wire::qr::QrPath;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use tokio::sync::Semaphore;

/// A name, as far as that can be said in every version of Unicode: what is beyond ASCII is looked at afterwards.
pub(super) const NAME: &str = r"^[^\x00-,/:-?\[-\^`{-\x7f]+$";

/// An address or a prefix, as far as that can be said without reading it.
const NET: &str = r"^((25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])(\.(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])){3}(/(3[0-2]|[12]?[0-9]))?|[0-9A-Fa-f:]{2,39}(/(12[0-8]|1[01][0-9]|[1-9]?[0-9]))?)$";

/// A device to add.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum NewDevice {
    /// A user and a password.
    Password {
        /// The user's name, no colon.
        #[schemars(length(min = 1, max = 255), regex(pattern = r"^[^:\x00-\x1f\x7f-\x9f]+$"), example = &"anna")]
        user: String,
        /// 8 to 255 bytes, no control characters. Only its hash is kept.
        #[schemars(with = "String", length(min = 8, max = 255), regex(pattern = r"^[^\x00-\x1f\x7f-\x9f]+$"), example = &"a long password")]
        password: Secret,
        /// What the device is called.
        #[serde(default)]
        #[schemars(length(min = 1, max = 63), regex(pattern = NAME))]
        name: Option<String>,
    },
    /// Addresses it comes from.
    Prefix {
        /// In CIDR notation.
        #[schemars(regex(pattern = NET), example = &"100.64.7.0/24")]
        prefix: String,
        /// What the device is called.
        #[serde(default)]
        #[schemars(length(min = 1, max = 63), regex(pattern = NAME))]
        name: Option<String>,
    },
    /// The peer whose tunnel it comes through.
    Peer {
        /// Its name in `ekiden peer list`.
        #[schemars(regex(pattern = r"^[0-9A-Za-z_-]{1,63}$"), example = &"ship")]
        peer: String,
        /// What the device is called.
        #[serde(default)]
        #[schemars(length(min = 1, max = 63), regex(pattern = NAME))]
        name: Option<String>,
    },
    /// WireGuard's app. The answer has its configuration, this once. One that is there by this name gets a new key.
    Wireguard {
        /// The public key of a device that has made its own pair. Default: the relay makes one, and forgets its private
        /// key with the answer.
        #[serde(default)]
        #[schemars(regex(pattern = r"^[0-9A-Za-z+/]{43}=$"), example = &"xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=")]
        key: Option<String>,
        /// What the device is called.
        #[serde(default)]
        #[schemars(length(min = 1, max = 63), regex(pattern = NAME), example = &"phone")]
        name: Option<String>,
    },
}

/// A password that is not shown.
#[derive(Clone, Deserialize)]
#[serde(transparent)]
pub(super) struct Secret(String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Hashes one password after the other: never more than one core for this.
static HASHING: Semaphore = Semaphore::const_new(1);

/// Devices of a document, ready to be added.
#[derive(Debug, Default)]
pub(super) struct Ready {
    pub(super) devices: Vec<NewDevices>,
    pub(super) tunnels: Vec<NewTunnel>,
}

impl Ready {
    pub(super) async fn of(asked: &[NewDevice], shared: &Shared) -> Result<Self, Problem> {
        let mut ready = Self::default();
        for device in asked.iter().cloned() {
            match device {
                NewDevice::Wireguard { key, name } => {
                    ready.tunnels.push(tunnel(shared, key, name).await?);
                }
                other => ready.devices.push(other.ready().await?),
            }
        }
        Ok(ready)
    }
}

/// Keys are read from files and made: not on a thread that relays.
async fn tunnel(
    shared: &Shared,
    key: Option<String>,
    name: Option<String>,
) -> Result<NewTunnel, Problem> {
    let settings = shared.status.running()?.handle.settings();
    let made = tokio::task::spawn_blocking(move || {
        let folder = settings.wireguard.state.as_deref();
        let folder = folder.ok_or("no home directory; set `state` in [accounts]")?;
        NewTunnel::new(&settings, folder, key.as_deref(), name)
    });
    let made = made.await.map_err(|error| Problem::unavailable("wireguard", error.to_string()))?;
    made.map_err(Problem::inconsistent)
}

impl NewDevice {
    async fn ready(self) -> Result<NewDevices, Problem> {
        let nothing = NewDevices::default();
        Ok(match self {
            Self::Password { user, password, name } => {
                let _turn = HASHING.acquire().await;
                let made = tokio::task::spawn_blocking(move || hash(&password.0)).await;
                let made =
                    made.map_err(|error| Problem::unavailable("password", error.to_string()))?;
                let made = made.map_err(|bad| match bad {
                    BadPassword::System(_) => Problem::unavailable("password", bad.to_string()),
                    BadPassword::Length(_) | BadPassword::Control => {
                        Problem::inconsistent(bad.to_string())
                    }
                })?;
                NewDevices { user: Some((user, made)), name, ..nothing }
            }
            Self::Prefix { prefix, name } => {
                let net = pattern::net(&prefix).map_err(Problem::inconsistent)?;
                NewDevices { prefixes: vec![net], name, ..nothing }
            }
            Self::Peer { peer, name } => {
                ekiden_config::name(&peer).map_err(Problem::inconsistent)?;
                NewDevices { peers: vec![peer], name, ..nothing }
            }
            // given its addresses where the account is written
            Self::Wireguard { .. } => nothing,
        })
    }
}

/// An account after a change, and what is handed out for its new devices.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ChangedAccount {
    #[serde(flatten)]
    account: AccountDocument,
    /// For each device that was added and comes by WireGuard. It is in this answer and nowhere else: the relay keeps no
    /// private key of a device.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    configurations: Vec<DeviceConfiguration>,
}

/// What a device that comes by WireGuard is set up with.
#[derive(Serialize, JsonSchema)]
struct DeviceConfiguration {
    /// The device's name within the account.
    device: String,
    /// What WireGuard's app and `wg-quick` read. With the private key, unless the device has made its own.
    text: String,
    /// Whether it names name servers. Without them the device asks those of its network, or none.
    names_servers: bool,
    /// The same as a QR code; null where the device has made its own key.
    code: Option<Code>,
}

/// A QR code: dark modules are unit squares from (0, 0) on.
#[derive(Serialize, JsonSchema)]
struct Code {
    /// Modules of a side, without the quiet zone.
    side: u32,
    /// The value of `d` of an SVG path that fills the dark modules.
    path: String,
}

impl fmt::Debug for DeviceConfiguration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceConfiguration").field("device", &self.device).finish_non_exhaustive()
    }
}

impl ChangedAccount {
    pub(super) fn of(account: &Account, tunnels: &[NewTunnel], given: &[Given]) -> Self {
        let configurations = tunnels.iter().zip(given);
        let configurations = configurations.map(|(tunnel, (device, v4, v6))| {
            let text = tunnel.text((*v4, *v6));
            let code = QrPath::new(&text).filter(|_| tunnel.holds_a_key());
            let code = code.and_then(|QrPath { side, path }| {
                Some(Code { side: u32::try_from(side).ok()?, path })
            });
            let names_servers = tunnel.names_servers();
            DeviceConfiguration { device: device.clone(), text, names_servers, code }
        });
        Self { account: AccountDocument::of(account), configurations: configurations.collect() }
    }
}
