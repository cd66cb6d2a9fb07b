//! Name resolution: for this relay itself, and for clients that ask it.

use ekiden_model::units::{Bytes, Span};
use http::uri::PathAndQuery;
use ipnet::Ipv6Net;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

/// The path that servers commonly have.
const PATH: &str = "/dns-query";

/// Name resolution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dns {
    /// Where clients may ask this relay, over UDP and TCP; empty: nowhere.
    pub listen: Vec<SocketAddr>,
    /// Name servers; empty: those of `/etc/resolv.conf`.
    pub servers: Vec<DnsServer>,
    /// A PEM file with the authorities of servers within TLS; `None`: the system's.
    pub authorities: Option<PathBuf>,
    /// Cached answers for this relay's own connections. Default 4096.
    pub cache: u32,
    /// Memory for clients' answers. Default 8 MiB.
    pub memory: Bytes,
    /// Shortest time that answers are cached. Default 0 s.
    pub min_ttl: Span,
    /// Longest time that answers are cached. Default 1 h.
    pub max_ttl: Span,
    /// Longest time that negative answers are cached. Default 30 s.
    pub negative_ttl: Span,
    /// How long past its end an answer is served while no server answers. Default 1 d.
    pub stale: Span,
    /// Questions a second of one client. Default 200.
    pub rate: u32,
    /// The prefix of a translator, in which names without IPv6 are given addresses.
    pub nat64: Option<Ipv6Net>,
    /// Whether to read `/etc/hosts`. Default true.
    pub hosts_file: bool,
    /// The family that Happy Eyeballs tries first (RFC 8305 §4). Default IPv6.
    pub prefer: Family,
    /// Between two connection attempts (RFC 8305 §5 and §8: 100 ms … 2 s, recommended 250 ms).
    pub attempt_delay: Span,
    /// How long an IPv4 answer waits for the IPv6 one (RFC 8305 §3). Default 50 ms.
    pub resolution_delay: Span,
}

/// An address family, or only one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // the names say it
pub enum Family {
    Ipv6,
    Ipv4,
    Ipv6Only,
    Ipv4Only,
}

/// A name server, and how it is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DnsServer {
    /// Over UDP, and over TCP where an answer is too long.
    Plain(SocketAddr),
    /// Within TLS (RFC 7858).
    Tls {
        /// Its address.
        at: SocketAddr,
        /// The name in its certificate; `None`: its address.
        name: Option<String>,
    },
    /// Over HTTPS (RFC 8484).
    Https {
        /// Its address.
        at: SocketAddr,
        /// The name in its certificate; `None`: its address.
        name: Option<String>,
        /// The path of its resource, which begins with `/`. Default `/dns-query`.
        path: String,
    },
    /// Through a tunnel.
    Tunnel {
        /// The peer's name.
        peer: String,
        /// The server beyond the peer, which is asked over TCP; `None`: the peer itself.
        to: Option<SocketAddr>,
    },
}

impl From<SocketAddr> for DnsServer {
    fn from(at: SocketAddr) -> Self {
        Self::Plain(at)
    }
}

impl fmt::Display for DnsServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(at) => at.fmt(f),
            Self::Tls { at, name: None } => write!(f, "tls://{at}"),
            Self::Tls { at, name: Some(name) } => write!(f, "tls://{at}#{name}"),
            Self::Https { at, name: None, path } => write!(f, "https://{at}{path}"),
            Self::Https { at, name: Some(name), path } => write!(f, "https://{at}{path}#{name}"),
            Self::Tunnel { peer, to: None } => write!(f, "tunnel://{peer}"),
            Self::Tunnel { peer, to: Some(to) } => write!(f, "tunnel://{peer}/{to}"),
        }
    }
}

impl FromStr for DnsServer {
    type Err = String;

    /// Reads what [`fmt::Display`] prints; ports, and `/dns-query`, may be left off. Errors: in words.
    fn from_str(text: &str) -> Result<Self, String> {
        let address = |text: &str, port: u16| {
            let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
            let whole = text.parse::<SocketAddr>().ok();
            let read = || bare.unwrap_or(text).parse::<IpAddr>().ok();
            let at = whole.or_else(|| read().map(|ip| SocketAddr::new(ip, port)));
            let wrong = || {
                let text = text.escape_debug();
                format!(
                    "\"{text}\" is not an address; such as 192.0.2.53, tls://192.0.2.53 or https://192.0.2.53"
                )
            };
            at.filter(|at| at.port() != 0).ok_or_else(wrong)
        };
        if let Some(rest) = text.strip_prefix("tls://") {
            let (at, name) = split_name(rest)?;
            return Ok(Self::Tls { at: address(at, 853)?, name });
        }
        if let Some(rest) = text.strip_prefix("https://") {
            let (rest, name) = split_name(rest)?;
            let (at, path) = match rest.find('/') {
                Some(slash) => rest.split_at(slash),
                None => (rest, PATH),
            };
            let at = address(at, 443)?;
            // a template (RFC 6570) is for GET; questions are posted
            if path.contains(['{', '}']) || path.parse::<PathAndQuery>().is_err() {
                let shown = path.escape_debug();
                return Err(format!("\"{shown}\" is not a path, such as {PATH}"));
            }
            return Ok(Self::Https { at, name, path: path.to_owned() });
        }
        if let Some(rest) = text.strip_prefix("tunnel://") {
            let (peer, to) = match rest.split_once('/') {
                Some((peer, to)) => (peer, Some(address(to, 53)?)),
                None => (rest, None),
            };
            if peer.is_empty() {
                return Err("`tunnel://` needs the name of a peer".to_owned());
            }
            return Ok(Self::Tunnel { peer: peer.to_owned(), to });
        }
        address(text, 53).map(Self::Plain)
    }
}

/// The name in the certificate, after `#`.
fn split_name(text: &str) -> Result<(&str, Option<String>), String> {
    match text.split_once('#') {
        Some((rest, name)) if !name.is_empty() => Ok((rest, Some(name.to_ascii_lowercase()))),
        Some(_) => Err("the name after `#` is empty".to_owned()),
        None => Ok((text, None)),
    }
}

impl Default for Dns {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            servers: Vec::new(),
            authorities: None,
            cache: 4096,
            memory: Bytes::mib(8),
            min_ttl: Span::ZERO,
            max_ttl: Span::from_secs(3600),
            negative_ttl: Span::from_secs(30),
            stale: Span::from_secs(86_400),
            rate: 200,
            nat64: None,
            hosts_file: true,
            prefer: Family::Ipv6,
            attempt_delay: Span::from_millis(250),
            resolution_delay: Span::from_millis(50),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_read_as_they_are_printed() {
        for (text, printed) in [
            ("192.0.2.1", "192.0.2.1:53"),
            ("[2001:db8::1]:5353", "[2001:db8::1]:5353"),
            ("2001:db8::1", "[2001:db8::1]:53"),
            ("tls://192.0.2.1", "tls://192.0.2.1:853"),
            ("tls://[2001:db8::1]#Dns.Example", "tls://[2001:db8::1]:853#dns.example"),
            (
                "https://192.0.2.1/dns-query#Dns.Example",
                "https://192.0.2.1:443/dns-query#dns.example",
            ),
            ("https://[2001:db8::1]:8443", "https://[2001:db8::1]:8443/dns-query"),
            ("https://192.0.2.1/q?a=b", "https://192.0.2.1:443/q?a=b"),
            ("tunnel://shore", "tunnel://shore"),
            ("tunnel://shore/192.0.2.1", "tunnel://shore/192.0.2.1:53"),
        ] {
            let server: DnsServer = text.parse().unwrap();
            assert_eq!(server.to_string(), printed);
            assert_eq!(printed.parse(), Ok(server));
        }
        for text in [
            "",
            "dns.example",
            "192.0.2.1:0",
            "tls://",
            "tls://192.0.2.1#",
            "https://",
            "https://dns.example/dns-query",
            "https://192.0.2.1/dns-query#",
            "https://192.0.2.1/dns-query{?dns}",
            "https://192.0.2.1/dns query",
            "tunnel:///192.0.2.1",
            "tunnel://a/b",
        ] {
            assert!(text.parse::<DnsServer>().is_err(), "{text}");
        }
    }
}
