//! What is read from the file before it is settings: the tables as they stand.

#![allow(missing_docs)] // the fields are the keys, and the keys are documented in `keys`

use super::value::quota::Quota;
use super::value::{Field, Value, pattern};
use ekiden_model::units::{Bytes, Rate, Share, Span};
use ekiden_proxy::settings::{
    Access, AccessLog, Accounts, Acme, Allowance, Budgets, Buffers, Cache, CopyMode, Dns,
    ExceededAction, ForwardProtocol, Gateway, Leg, Limits, Pac, Pattern, Pool, Pressure, Route,
    SendProxy, Sharing, Timeouts, Tls, Tunnel, Udp, Wireguard,
};
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

/// A whole configuration as its tables stand, defaults filled in.
#[derive(Debug, Clone, Default)]
pub struct Draft {
    pub top: Top,
    pub legs: BTreeMap<String, LegDraft>,
    pub upstreams: BTreeMap<String, UpstreamDraft>,
    pub routes: Vec<Route>,
    pub rules: Vec<RuleDraft>,
    pub access: Access,
    pub accounts: Accounts,
    pub timeouts: Timeouts,
    pub budgets: Budgets,
    pub dns: Dns,
    pub relay: RelayDraft,
    pub buffers: Buffers,
    pub pressure: Pressure,
    pub pool: Pool,
    pub cache: Cache,
    pub tls: Tls,
    pub acme: Acme,
    pub tunnel: Tunnel,
    pub udp: Udp,
    pub forwards: Vec<ForwardDraft>,
    pub gateway: Gateway,
    pub wireguard: Wireguard,
    pub pac: Pac,
    pub management: Management,
    pub alerts: Alerts,
    pub traces: Traces,
    /// Without its list.
    pub shared: Sharing,
    pub account: Vec<AccountDraft>,
    pub log: Log,
}

/// `[relay]`.
#[derive(Debug, Clone, Copy)]
pub struct RelayDraft {
    pub movement: CopyMode,
}

impl Default for RelayDraft {
    fn default() -> Self {
        Self { movement: CopyMode::Auto }
    }
}

/// The keys outside any table.
#[derive(Debug, Clone)]
pub struct Top {
    pub listen: Vec<SocketAddr>,
    pub name: Option<String>,
    pub control: Control,
}

/// Where the control socket is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Control {
    /// Wherever the person who runs it can make one.
    #[default]
    Auto,
    /// There is none.
    Off,
    /// Here.
    At(PathBuf),
}

impl Field for Control {
    fn put(&mut self, value: Value) {
        match value {
            Value::Unset => *self = Self::Auto,
            Value::Text(text) if text == "off" => *self = Self::Off,
            Value::Text(text) => *self = Self::At(PathBuf::from(text)),
            _ => {}
        }
    }
    fn get(&self) -> Value {
        match self {
            Self::Auto => Value::Unset,
            Self::Off => Value::Text("off".to_owned()),
            Self::At(path) => Value::Text(path.display().to_string()),
        }
    }
}

/// `[management]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Management {
    pub listen: At,
    /// Whether an address beyond loopback may be listened on without TLS.
    pub cleartext: bool,
    /// Names besides `localhost` by which it is reached; addresses need none.
    pub hosts: Vec<String>,
    pub token_file: Option<PathBuf>,
    /// The most accounts that are named in metrics.
    pub metrics_accounts: u32,
    /// The folder of the laboratory's reports.
    pub reports: Option<PathBuf>,
}

impl Default for Management {
    fn default() -> Self {
        Self {
            listen: At::default(),
            cleartext: false,
            hosts: Vec::new(),
            token_file: None,
            metrics_accounts: 100,
            reports: None,
        }
    }
}

/// Where the management port is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// There is none.
    Off,
    /// Here.
    Address(SocketAddr),
}

impl Default for At {
    fn default() -> Self {
        Self::Address(([127, 0, 0, 1], 9128).into())
    }
}

impl At {
    /// Reads an address with a port, or `off`. Errors: in words.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        if text.trim() == "off" {
            return Ok(Self::Off);
        }
        let address = pattern::socket(text, None);
        address.map(Self::Address).map_err(|why| format!("{why}, nor `off`"))
    }

    pub(crate) fn print(&self) -> String {
        match self {
            Self::Off => "off".to_owned(),
            Self::Address(address) => address.to_string(),
        }
    }
}

/// `[alerts]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alerts {
    pub webhook: Option<String>,
    pub webhook_authorization_file: Option<PathBuf>,
    pub mail_to: Vec<String>,
    pub mail_from: Option<String>,
    pub mail_server: Option<String>,
    pub mail_password_file: Option<PathBuf>,
    /// Authorities for the certificates of both, in place of the system's.
    pub authorities: Option<PathBuf>,
    pub after: Span,
    pub repeat: Option<Span>,
    pub quota: Share,
    pub certificate: Span,
    pub disk_free: Bytes,
}

impl Default for Alerts {
    fn default() -> Self {
        Self {
            webhook: None,
            webhook_authorization_file: None,
            mail_to: Vec::new(),
            mail_from: None,
            mail_server: None,
            mail_password_file: None,
            authorities: None,
            after: Span::from_secs(60),
            repeat: Some(Span::from_secs(86_400)),
            quota: Share::from_percent(80).unwrap_or(Share::ALL),
            certificate: Span::from_secs(14 * 86_400),
            disk_free: Bytes::mib(64),
        }
    }
}

/// `[traces]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Traces {
    pub endpoint: Option<String>,
    pub sample: Share,
    pub service: String,
    pub authorization_file: Option<PathBuf>,
    /// Authorities for the collector's certificate, in place of the system's.
    pub authorities: Option<PathBuf>,
}

impl Default for Traces {
    fn default() -> Self {
        Self {
            endpoint: None,
            sample: Share::from_percent(1).unwrap_or(Share::NONE),
            service: "ekiden".to_owned(),
            authorization_file: None,
            authorities: None,
        }
    }
}

/// `[leg.NAME]`.
#[derive(Debug, Clone, Default)]
pub struct LegDraft {
    pub inherit: Option<String>,
    pub leg: Leg,
}

/// `[upstream.NAME]`.
#[derive(Debug, Clone)]
pub struct UpstreamDraft {
    pub url: String,
    pub leg: String,
    pub password_file: Option<PathBuf>,
    pub ca: Option<PathBuf>,
    pub fingerprint: Option<String>,
    pub private_methods: bool,
}

/// `[[rule]]`.
#[derive(Debug, Clone)]
pub struct RuleDraft {
    pub from: Vec<IpNet>,
    pub peers: Vec<String>,
    pub to: Vec<Pattern>,
    pub action: String,
    pub allow_destinations: Vec<IpNet>,
}

/// `[[forward]]`.
#[derive(Debug, Clone)]
pub struct ForwardDraft {
    pub listen: Vec<SocketAddr>,
    pub to: String,
    pub protocol: ForwardProtocol,
    pub send_proxy: SendProxy,
}

impl Default for ForwardDraft {
    fn default() -> Self {
        let (protocol, send_proxy) = (ForwardProtocol::Tcp, SendProxy::Off);
        Self { listen: Vec::new(), to: String::new(), protocol, send_proxy }
    }
}

/// `[[account]]`.
#[derive(Debug, Clone)]
pub struct AccountDraft {
    pub name: Option<String>,
    pub addresses: Vec<IpNet>,
    pub peers: Vec<String>,
    pub rate_down: Option<Rate>,
    pub rate_up: Option<Rate>,
    pub connection_rate_down: Option<Rate>,
    pub connection_rate_up: Option<Rate>,
    pub weight: u32,
    pub connections: Option<u32>,
    pub connects_per_second: Option<u32>,
    pub quota: Option<Quota>,
    pub on_quota_exceeded: QuotaAction,
    pub throttle_rate: Rate,
}

/// The action when a quota is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuotaAction {
    Throttle,
    Cut,
}

impl Default for AccountDraft {
    /// No limits; 256 kbit/s once a quota is used up.
    fn default() -> Self {
        Self {
            name: None,
            addresses: Vec::new(),
            peers: Vec::new(),
            rate_down: None,
            rate_up: None,
            connection_rate_down: None,
            connection_rate_up: None,
            weight: 1,
            connections: None,
            connects_per_second: None,
            quota: None,
            on_quota_exceeded: QuotaAction::Throttle,
            throttle_rate: Rate::from_bits_per_second(256_000),
        }
    }
}

impl AccountDraft {
    /// What it may.
    pub fn limits(&self) -> Limits {
        let on_exceeded = match self.on_quota_exceeded {
            QuotaAction::Throttle => ExceededAction::Throttle(self.throttle_rate),
            QuotaAction::Cut => ExceededAction::Cut,
        };
        Limits {
            rates: [self.rate_up, self.rate_down],
            each: [self.connection_rate_up, self.connection_rate_down],
            weight: self.weight,
            connections: self.connections,
            connects: self.connects_per_second,
            quota: self.quota.map(|Quota { bytes, period }| Allowance {
                bytes,
                period,
                on_exceeded,
            }),
        }
    }
}

/// `[log]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// The most detailed level that is written: `error`, `warn`, `info`, `debug` or `trace`.
    pub level: String,
    /// `text` or `json`.
    pub format: String,
    /// Where the access log goes.
    pub access: AccessLog,
}

impl Default for Top {
    fn default() -> Self {
        let listen = ekiden_proxy::settings::Settings::default().listen;
        Self { listen, name: None, control: Control::Auto }
    }
}

impl Default for UpstreamDraft {
    fn default() -> Self {
        let (url, leg) = (String::new(), "direct".to_owned());
        let (password_file, ca, fingerprint) = (None, None, None);
        Self { url, leg, password_file, ca, fingerprint, private_methods: true }
    }
}

impl Default for RuleDraft {
    fn default() -> Self {
        Self {
            from: Vec::new(),
            peers: Vec::new(),
            to: Vec::new(),
            action: "allow".to_owned(),
            allow_destinations: Vec::new(),
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self { level: "info".to_owned(), format: "text".to_owned(), access: AccessLog::Off }
    }
}
