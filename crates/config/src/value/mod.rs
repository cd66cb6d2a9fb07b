//! A value of a configuration, between its TOML and the field of the settings it belongs to.

pub(crate) mod database;
pub(crate) mod kind;
pub mod pattern;
pub(crate) mod quota;
pub(crate) mod receiver;
pub(crate) mod url;
use super::draft::{At, QuotaAction};
use ekiden_model::resources::buffers::{Excess, Scheme};
use ekiden_model::units::{Bytes, Rate, Share, Span};
use ekiden_proxy::settings::{
    AccessLog, CopyMode, DnsServer, Family, ForwardProtocol, GoTo, InitialRto, Pattern, Quic,
    SendProxy, TransportMode, TunnelAnswer, Unclaimed,
};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use quota::Quota;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// A checked value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    /// Not set: written as the key's word for that, such as `"kernel"`.
    Unset,
    /// A length of time.
    Span(Span),
    /// A size.
    Size(Bytes),
    /// A rate.
    Rate(Rate),
    /// A part of a whole.
    Share(Share),
    /// A number.
    Number(u64),
    /// True or false.
    Switch(bool),
    /// A word, name or path.
    Text(String),
    /// Several of them.
    Words(Vec<String>),
    /// Chains of upstream names; an empty one is "direct".
    Chains(Vec<Vec<String>>),
    /// Destination patterns.
    Patterns(Vec<Pattern>),
    /// Prefixes.
    Nets(Vec<IpNet>),
    /// Addresses with ports.
    Sockets(Vec<SocketAddr>),
    /// One address.
    Address(IpAddr),
}

impl Value {
    /// The value as TOML; `unset` is the key's word for "not set".
    pub(super) fn toml(&self, unset: &str) -> String {
        match self {
            Self::Unset => quote(unset),
            Self::Span(span) => quote(&print_span(*span)),
            Self::Size(size) => quote(&size.to_string()),
            Self::Rate(rate) => quote(&rate.to_string()),
            Self::Share(share) => quote(&share.to_string()),
            Self::Number(number) => number.to_string(),
            Self::Switch(on) => on.to_string(),
            Self::Text(text) => quote(text),
            Self::Address(address) => quote(&address.to_string()),
            Self::Words(words) => list(words.iter().cloned()),
            Self::Chains(chains) => list(chains.iter().map(|chain| print_chain(chain))),
            Self::Patterns(patterns) => list(patterns.iter().map(pattern::print)),
            Self::Nets(nets) => list(nets.iter().map(pattern::print_net)),
            Self::Sockets(sockets) => list(sockets.iter().map(ToString::to_string)),
        }
    }
}

fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.map(|item| quote(&item)).collect::<Vec<_>>().join(", "))
}

/// A chain as it is written: `near > capital`, or `direct`.
pub(super) fn print_chain(chain: &[String]) -> String {
    if chain.is_empty() { "direct".to_owned() } else { chain.join(" > ") }
}

/// Whole minutes and hours as a person would write them.
pub(super) fn print_span(span: Span) -> String {
    let (seconds, whole) = (span.as_secs(), span == Span::from_secs(span.as_secs()));
    match seconds {
        0 if whole => "0 s".to_owned(),
        s if whole && s.is_multiple_of(3600) => format!("{} h", s / 3600),
        s if whole && s > 60 && s.is_multiple_of(60) => format!("{} min", s / 60),
        _ => span.to_string(),
    }
}

/// A TOML basic string.
pub(super) fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A field of the settings that a [`Value`] can be put into and got from. What does not fit is left
/// alone: the key's kind has already checked it.
pub(super) trait Field {
    /// Puts `value` into the field.
    fn put(&mut self, value: Value);
    /// The field as a value.
    fn get(&self) -> Value;
}

/// Implements [`Field`] for a type and for its `Option`.
macro_rules! fields {
    ($($type:ty: $variant:ident($read:expr, $write:expr);)*) => {$(
        impl Field for $type {
            fn put(&mut self, value: Value) {
                if let Value::$variant(inner) = value
                    && let Some(read) = $read(inner)
                {
                    *self = read;
                }
            }
            fn get(&self) -> Value {
                Value::$variant($write(self))
            }
        }
        impl Field for Option<$type> {
            fn put(&mut self, value: Value) {
                match value {
                    Value::Unset => *self = None,
                    Value::$variant(inner) => *self = $read(inner).or(self.take()),
                    _ => {}
                }
            }
            fn get(&self) -> Value {
                self.as_ref().map_or(Value::Unset, |inner| Value::$variant($write(inner)))
            }
        }
    )*};
}

fields! {
    Span: Span(Some, |v: &Span| *v);
    Bytes: Size(Some, |v: &Bytes| *v);
    Rate: Rate(Some, |v: &Rate| *v);
    Share: Share(Some, |v: &Share| *v);
    bool: Switch(Some, |v: &bool| *v);
    u8: Number(|n| u8::try_from(n).ok(), |v: &u8| u64::from(*v));
    u16: Number(|n| u16::try_from(n).ok(), |v: &u16| u64::from(*v));
    u32: Number(|n| u32::try_from(n).ok(), |v: &u32| u64::from(*v));
    String: Text(Some, String::clone);
    PathBuf: Text(|text| Some(PathBuf::from(text)), |v: &PathBuf| v.display().to_string());
    IpAddr: Address(Some, |v: &IpAddr| *v);
    Vec<Vec<String>>: Chains(Some, Vec::clone);
    Vec<Pattern>: Patterns(Some, Vec::clone);
    Vec<IpNet>: Nets(Some, Vec::clone);
    Vec<SocketAddr>: Sockets(Some, Vec::clone);
    Vec<DnsServer>: Words(dns_servers, |v: &Vec<DnsServer>| v.iter().map(ToString::to_string).collect());
    Ipv4Net: Text(|text: String| text.parse().ok(), Ipv4Net::to_string);
    Ipv6Net: Text(|text: String| text.parse().ok(), Ipv6Net::to_string);
    Family: Text(Family::of, Family::word);
    InitialRto: Text(InitialRto::of, InitialRto::word);
    TransportMode: Text(TransportMode::of, TransportMode::word);
    TunnelAnswer: Text(TunnelAnswer::of, TunnelAnswer::word);
    Scheme: Text(Scheme::of, Scheme::word);
    Excess: Text(Excess::of, Excess::word);
    Unclaimed: Text(Unclaimed::of, Unclaimed::word);
    GoTo: Text(GoTo::of, GoTo::word);
    Quic: Text(Quic::of, Quic::word);
    ForwardProtocol: Text(ForwardProtocol::of, ForwardProtocol::word);
    SendProxy: Text(SendProxy::of, SendProxy::word);
    QuotaAction: Text(QuotaAction::of, QuotaAction::word);
    Quota: Text(|text: String| Quota::read(&text).ok(), Quota::print);
    CopyMode: Text(|text: String| movement(&text).ok(), |v: &CopyMode| print_movement(*v));
    // as the key's check reads it
    At: Text(|text: String| At::read(&text).ok(), At::print);
    AccessLog: Text(|text: String| access_log(&text).ok(), print_access_log);
}

/// The list of congestion controls; empty is "not set".
impl Field for Vec<String> {
    fn put(&mut self, value: Value) {
        match value {
            Value::Unset => self.clear(),
            Value::Words(words) => *self = words,
            _ => {}
        }
    }
    fn get(&self) -> Value {
        if self.is_empty() { Value::Unset } else { Value::Words(self.clone()) }
    }
}

/// Addresses without ports.
impl Field for Vec<IpAddr> {
    fn put(&mut self, value: Value) {
        match value {
            Value::Unset => self.clear(),
            Value::Words(words) => {
                *self = words.iter().filter_map(|word| word.parse().ok()).collect()
            }
            _ => {}
        }
    }
    fn get(&self) -> Value {
        match self.is_empty() {
            true => Value::Unset,
            false => Value::Words(self.iter().map(ToString::to_string).collect()),
        }
    }
}

fn dns_servers(words: Vec<String>) -> Option<Vec<DnsServer>> {
    words.iter().map(|word| word.parse().ok()).collect()
}

/// A value that the file writes as a word.
pub(super) trait Word: Copy + PartialEq + 'static {
    const WORDS: &'static [&'static str];
    /// In the order of the words.
    const VALUES: &'static [Self];

    fn of(text: String) -> Option<Self> {
        let index = Self::WORDS.iter().position(|word| *word == text)?;
        Self::VALUES.get(index).copied()
    }

    fn word(&self) -> String {
        let index = Self::VALUES.iter().position(|one| one == self);
        index.and_then(|index| Self::WORDS.get(index)).map_or_else(String::new, ToString::to_string)
    }
}

macro_rules! words {
    ($($type:ident: $($word:literal = $value:ident),+;)*) => {$(
        impl Word for $type {
            const WORDS: &'static [&'static str] = &[$($word),+];
            const VALUES: &'static [Self] = &[$(Self::$value),+];
        }
    )*};
}

words! {
    Family: "ipv6" = Ipv6, "ipv4" = Ipv4, "ipv6-only" = Ipv6Only, "ipv4-only" = Ipv4Only;
    InitialRto: "cached" = Cached, "kernel" = Kernel;
    // the study's 1 to 4
    Scheme: "fixed" = Conventional, "equation" = Buffers, "evict" = Connections, "shrink" = Shrinking;
    TransportMode: "auto" = Auto, "udp" = Udp, "tcp" = Tcp;
    TunnelAnswer: "at-once" = AtOnce, "connected" = Connected;
    Unclaimed: "allow" = Allow, "refuse" = Refuse;
    GoTo: "address" = Address, "name" = Name;
    Quic: "direct" = Direct, "block" = Block, "tunnel" = Tunnel;
    ForwardProtocol: "tcp" = Tcp, "udp" = Udp, "both" = Both;
    SendProxy: "off" = Off, "v1" = V1, "v2" = V2;
    QuotaAction: "throttle" = Throttle, "cut" = Cut;
    Excess: "proportional" = Proportional, "equal" = Equal;
}

/// Reads `auto`, `splice`, `copy` or `random:SEED`.
/// Errors: in words.
pub(super) fn movement(text: &str) -> Result<CopyMode, String> {
    match text {
        "auto" => Ok(CopyMode::Auto),
        "splice" => Ok(CopyMode::Splice),
        "copy" => Ok(CopyMode::Copy),
        _ => text
            .strip_prefix("random:")
            .and_then(|seed| seed.parse().ok())
            .map(CopyMode::Random)
            .ok_or_else(|| {
                let text = pattern::shorten(text);
                format!("\"{text}\" must be `auto`, `splice` or `copy` (or `random:7`, for tests)")
            }),
    }
}

fn print_movement(movement: CopyMode) -> String {
    match movement {
        CopyMode::Auto => "auto".to_owned(),
        CopyMode::Splice => "splice".to_owned(),
        CopyMode::Copy => "copy".to_owned(),
        CopyMode::Random(seed) => format!("random:{seed}"),
    }
}

/// Reads `off`, `stderr` or an absolute path.
/// Errors: in words.
pub(super) fn access_log(text: &str) -> Result<AccessLog, String> {
    match text {
        "off" => Ok(AccessLog::Off),
        "stderr" => Ok(AccessLog::Stderr),
        path => {
            kind::absolute_path(path).map(|()| AccessLog::File(PathBuf::from(path))).map_err(|_| {
                let path = pattern::shorten(path);
                format!("\"{path}\" must be `off`, `stderr` or an absolute path such as /var/log/ekiden/access.log")
            })
        }
    }
}

fn print_access_log(log: &AccessLog) -> String {
    match log {
        AccessLog::Off => "off".to_owned(),
        AccessLog::Stderr => "stderr".to_owned(),
        AccessLog::File(path) => path.display().to_string(),
    }
}
