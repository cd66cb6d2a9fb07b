//! The configuration file: TOML to plain [`Settings`], every problem at once, each with its place.
//!
//! [`read`] is pure: it looks at no file and no environment, and never panics, whatever the text is.
//! [`load()`] is the one that opens files. The keys are declared once, in `keys` and `keys_leg`; reading,
//! the example file and `config show` follow from them.

mod check;
pub mod draft;
mod example;
mod keys;
mod load;
mod problem;
mod reader;
mod show;
mod value;

pub use check::{Listener, includes, listeners};
pub use draft::{Alerts, At, Control, Draft, Log, Management, Traces};
pub use example::example;
pub use keys::name;
pub use load::{Loaded, find, load};
pub use problem::place::Place;
pub use problem::place::printable;
pub use problem::{Problem, Severity, render_all};
pub use show::{show, show_json};
use value::database::DatabaseAddress;
pub use value::pattern;
pub use value::receiver::{MailServer, MailTls, WebhookUrl};

use ekiden_proxy::destination::Destination;
use ekiden_proxy::settings::{
    Account, Leg, PortForward, Relay, Route, Rule, Settings, Sharing, Upstream, UpstreamTls,
};
use ipnet::IpNet;
use reader::Reader;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// The longest configuration that is read, in bytes: 1 MiB.
pub const LONGEST: usize = 1 << 20;

/// What the command line says over the file.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    /// `--listen`: instead of the file's addresses.
    pub listen: Vec<SocketAddr>,
    /// `--allow-destination`: besides the file's prefixes.
    pub allow_destinations: Vec<IpNet>,
    /// `--socket`: instead of the file's `control`.
    pub control: Option<PathBuf>,
}

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A line of the file.
    Line(usize),
    /// A line of the file, in the leg that this one inherits from.
    Inherited(usize),
    /// An argument.
    Flag(&'static str),
    /// The file and an argument.
    Both(usize, &'static str),
}

/// What a secret in a file is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretOf {
    /// The upstream of this name.
    Upstream(String),
    /// The mail server of `[alerts]`.
    MailServer,
    /// The webhook of `[alerts]`.
    Webhook,
    /// The collector of `[traces]`.
    Collector,
}

/// A file that holds a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PasswordFile {
    /// Whose it is.
    pub of: SecretOf,
    /// Its path.
    pub path: PathBuf,
    /// Where it is named.
    pub place: Option<Place>,
}

/// Secrets that `[alerts]` names files for.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct AlertSecrets {
    /// The value of `Authorization` for the webhook.
    pub authorization: Option<String>,
    /// The password for the mail server.
    pub mail_password: Option<String>,
}

impl std::fmt::Debug for AlertSecrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AlertSecrets").finish_non_exhaustive()
    }
}

/// A word that no log may show.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secret").finish_non_exhaustive()
    }
}

/// What reading a configuration came to.
#[derive(Debug, Clone)]
pub struct Reading {
    /// The settings; to be used only when no problem is an error. `name` is `ekiden` and `control`
    /// `None` unless the file says otherwise: whoever runs it fills them in.
    pub settings: Settings,
    /// The tables, with defaults filled in.
    pub draft: Draft,
    /// `[alerts]` as it is used; that of the draft may be shown.
    pub alerts: Alerts,
    /// `[traces]`, likewise.
    pub traces: Traces,
    /// The secrets of its files.
    pub alert_secrets: AlertSecrets,
    /// The value of `Authorization` for the collector of `[traces]`.
    pub collector_secret: Option<Secret>,
    /// What is wrong, in the order of the file.
    pub problems: Vec<Problem>,
    /// Where values come from, by path such as `leg.client.mss`; what is not there is a default.
    pub origins: BTreeMap<String, Origin>,
    /// Files still to be read for passwords.
    pub password_files: Vec<PasswordFile>,
    /// Whether a password stands in the file itself.
    pub holds_password: bool,
}

impl Reading {
    /// Whether nothing stands against using the settings.
    pub fn is_usable(&self) -> bool {
        !self.problems.iter().any(Problem::is_error)
    }
}

/// Reads a configuration; `file_name` is for messages.
pub fn read(text: &str, file_name: &str) -> Reading {
    read_with(text, file_name, &Overrides::default())
}

/// Reads a configuration under arguments.
pub fn read_with(text: &str, file_name: &str, overrides: &Overrides) -> Reading {
    let mut draft = Draft::default();
    let too_long = text.len() > LONGEST;
    let mut reader = Reader::new(file_name, if too_long { "" } else { text });
    let mut broken = false;
    if too_long {
        reader.error("", "the file is longer than 1 MiB; this is no configuration", "");
        broken = true;
    } else {
        match toml_edit::Document::parse(text) {
            Ok(document) => reader.document(document.as_table(), &mut draft),
            Err(error) => {
                let span = error.span();
                let mut lines = error.message().lines();
                let message = lines.next().unwrap_or("not TOML").to_owned();
                let found = span.clone().and_then(|span| text.get(span));
                let hint = match found.and_then(switch) {
                    Some(switch) => format!("a switch is true or false: write {switch}"),
                    None => lines.collect::<Vec<_>>().join("\n"),
                };
                let severity = Severity::Error;
                reader.problems.at(
                    severity,
                    &reader.source,
                    span.as_ref(),
                    format!("this is not TOML: {message}"),
                    hint,
                );
                broken = true;
            }
        }
    }
    let inherited = check::inherit(&mut reader, &mut draft);
    let mut origins = origins(&reader, &inherited);
    lay_over(overrides, &mut draft, &mut origins);
    // what a broken file would have said is not known, so nothing is said about it
    let urls = if broken {
        BTreeMap::new()
    } else {
        check::check(&mut reader, &draft, overrides.listen.is_empty())
    };
    let password_files = password_files(&reader, &draft);
    let settings = settings(&draft, &urls);
    let (shown, in_database) = match &draft.accounts.database {
        Some(address) => match DatabaseAddress::read(address) {
            Ok(address) => (Some(address.shown), address.holds_password),
            Err(_) => (None, false),
        },
        None => (None, false),
    };
    draft.accounts.database = shown;
    let holds_password = in_database
        || urls
            .values()
            .any(|url| url.user.as_ref().is_some_and(|(_, password)| password.is_some()));
    // from here on a URL is what may be shown
    for (name, upstream) in &mut draft.upstreams {
        upstream.url = urls.get(name).map_or_else(String::new, value::url::UpstreamUrl::masked);
    }
    let (alerts, traces) = (draft.alerts.clone(), draft.traces.clone());
    let webhook = alerts.webhook.as_deref().and_then(|url| WebhookUrl::read(url).ok());
    draft.alerts.webhook = webhook.map(|url| url.masked());
    let collector = traces.endpoint.as_deref().and_then(|url| WebhookUrl::read(url).ok());
    draft.traces.endpoint = collector.map(|url| url.masked());
    let (problems, alert_secrets) = (reader.problems.finish(), AlertSecrets::default());
    Reading {
        settings,
        draft,
        alerts,
        traces,
        alert_secrets,
        collector_secret: None,
        problems,
        origins,
        password_files,
        holds_password,
    }
}

/// The switch that a word of other languages means.
fn switch(word: &str) -> Option<bool> {
    match word.to_ascii_lowercase().as_str() {
        "yes" | "on" | "true" => Some(true),
        "no" | "off" | "false" => Some(false),
        _ => None,
    }
}

fn origins(reader: &Reader<'_>, inherited: &BTreeMap<String, String>) -> BTreeMap<String, Origin> {
    let line = |path: &str| reader.spans.get(path).map(|span| reader.source.line(span.start));
    let mut origins: BTreeMap<String, Origin> = reader
        .spans
        .keys()
        .filter_map(|path| Some((path.clone(), Origin::Line(line(path)?))))
        .collect();
    for (path, from) in inherited {
        if path != from
            && let Some(line) = line(from)
        {
            origins.insert(path.clone(), Origin::Inherited(line));
        }
    }
    origins
}

fn lay_over(overrides: &Overrides, draft: &mut Draft, origins: &mut BTreeMap<String, Origin>) {
    if !overrides.listen.is_empty() {
        draft.top.listen.clone_from(&overrides.listen);
        origins.insert("listen".to_owned(), Origin::Flag("--listen"));
    }
    if let Some(path) = &overrides.control {
        draft.top.control = Control::At(path.clone());
        origins.insert("control".to_owned(), Origin::Flag("--socket"));
    }
    if !overrides.allow_destinations.is_empty() {
        let flag = "--allow-destination";
        let key = "access.allow_destinations";
        let origin = match origins.get(key) {
            Some(Origin::Line(line)) => Origin::Both(*line, flag),
            _ => Origin::Flag(flag),
        };
        origins.insert(key.to_owned(), origin);
        draft.access.allow_destinations.extend(&overrides.allow_destinations);
    }
}

fn password_files(reader: &Reader<'_>, draft: &Draft) -> Vec<PasswordFile> {
    let place = |path: &str| Some(reader.source.place(reader.spans.get(path)?));
    let of_upstreams = draft.upstreams.iter().filter_map(|(name, upstream)| {
        let path = upstream.password_file.clone()?;
        let place = place(&format!("upstream.{name}.password_file"));
        Some(PasswordFile { of: SecretOf::Upstream(name.clone()), path, place })
    });
    let alerts = &draft.alerts;
    let of_alerts = [
        (SecretOf::Webhook, "webhook_authorization_file", &alerts.webhook_authorization_file),
        (SecretOf::MailServer, "mail_password_file", &alerts.mail_password_file),
    ];
    let of_alerts = of_alerts.into_iter().filter_map(|(of, key, path)| {
        let (path, place) = (path.clone()?, place(&format!("alerts.{key}")));
        Some(PasswordFile { of, path, place })
    });
    let of_traces = draft.traces.authorization_file.iter().map(|path| PasswordFile {
        of: SecretOf::Collector,
        path: path.clone(),
        place: place("traces.authorization_file"),
    });
    of_upstreams.chain(of_alerts).chain(of_traces).collect()
}

fn settings(draft: &Draft, urls: &BTreeMap<String, value::url::UpstreamUrl>) -> Settings {
    let leg = |(name, leg): (&String, &draft::LegDraft)| -> (String, Leg) {
        (name.clone(), leg.leg.clone())
    };
    let upstream = |(name, url): (&String, &value::url::UpstreamUrl)| {
        let upstream = draft.upstreams.get(name)?;
        let tls = UpstreamTls {
            authorities: upstream.ca.clone(),
            fingerprint: upstream
                .fingerprint
                .as_deref()
                .and_then(|f| value::url::fingerprint(f).ok()),
        };
        let upstream = Upstream {
            credentials: url.credentials(None),
            leg: upstream.leg.clone(),
            tls,
            private_methods: upstream.private_methods,
            ..Upstream::new(url.protocol, &url.host, url.port)
        };
        Some((name.clone(), upstream))
    };
    let rule = |rule: &draft::RuleDraft| Rule {
        from: rule.from.clone(),
        peers: rule.peers.clone(),
        to: rule.to.clone(),
        allow: rule.action == "allow",
        allow_destinations: rule.allow_destinations.clone(),
    };
    let (mut gateway, wireguard) = (draft.gateway.clone(), draft.wireguard.clone());
    if wireguard.is_on() && !gateway.devices.contains(&wireguard.device) {
        gateway.devices.push(wireguard.device.clone());
    }
    let mut access = draft.access.clone();
    access.rules = draft.rules.iter().map(rule).collect();
    let routes: Vec<Route> = draft.routes.clone();
    Settings {
        listen: draft.top.listen.clone(),
        closed: Vec::new(),
        name: draft.top.name.clone().unwrap_or_else(|| Settings::default().name),
        control: match &draft.top.control {
            Control::At(path) => Some(path.clone()),
            Control::Auto | Control::Off => None,
        },
        legs: draft.legs.iter().map(leg).collect(),
        upstreams: urls.iter().filter_map(upstream).collect(),
        routes,
        access,
        accounts: draft.accounts.clone(),
        timeouts: draft.timeouts,
        budgets: draft.budgets,
        dns: draft.dns.clone(),
        relay: Relay { copy_mode: draft.relay.movement },
        buffers: draft.buffers,
        pressure: draft.pressure,
        pool: draft.pool,
        cache: draft.cache.clone(),
        tls: draft.tls.clone(),
        acme: draft.acme.clone(),
        tunnel: draft.tunnel.clone(),
        udp: draft.udp,
        forwards: draft.forwards.iter().filter_map(forward).collect(),
        gateway,
        wireguard,
        pac: draft.pac.clone(),
        sharing: sharing(draft),
        access_log: draft.log.access.clone(),
    }
}

/// A forwarded port; none where a check has refused it.
fn forward(draft: &draft::ForwardDraft) -> Option<Arc<PortForward>> {
    let to = Destination::parse(&draft.to, None).ok()?;
    let (listen, protocol, send_proxy) = (draft.listen.clone(), draft.protocol, draft.send_proxy);
    Some(Arc::new(PortForward { listen, to, protocol, send_proxy }))
}

/// Sharing, as they are limited.
fn sharing(draft: &Draft) -> Sharing {
    let list = draft.account.iter().map(|account| Account {
        name: account.name.clone().unwrap_or_default(),
        addresses: account.addresses.clone(),
        peers: account.peers.clone(),
        limits: account.limits(),
    });
    Sharing { list: list.collect(), ..draft.shared.clone() }
}

#[cfg(test)]
mod example_tests;
#[cfg(test)]
mod tests;
