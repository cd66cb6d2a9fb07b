//! A destination: a host as the client named it, and a port.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// A host named by address or by name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Host {
    /// By address; an IPv4-mapped IPv6 address is the IPv4 address.
    Address(IpAddr),
    /// By name: lower case, no trailing dot, at most 253 bytes.
    Name(String),
}

/// A host and a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Destination {
    /// The host.
    pub host: Host,
    /// The port, never 0.
    pub port: u16,
}

/// Why a host or port was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum BadDestination {
    #[error("the host is missing")]
    NoHost,
    #[error("the host name has a character that host names do not have")]
    BadName,
    /// Longer than DNS allows (RFC 1035 §2.3.4).
    #[error("the host name is longer than 253 bytes, or one of its labels than 63")]
    TooLong,
    /// `0x7f.1`, `0177.0.0.1`, `2130706433`: programs read these differently.
    #[error("the host looks like an address but is not written as one; write a.b.c.d in decimal")]
    OddAddress,
    #[error("the port is not a number from 1 to 65535")]
    BadPort,
    /// `[` without `]`, an unbracketed IPv6 address, and the like.
    #[error("the address in brackets is not an IPv6 address")]
    BadBrackets,
    /// `user@host`.
    #[error("credentials in front of the host are not accepted")]
    Credentials,
}

impl Host {
    /// Reads a host, clearly a name, an IPv4 address, or an IPv6 address in brackets.
    pub fn parse(text: &str) -> Result<Self, BadDestination> {
        if let Some(inner) = text.strip_prefix('[') {
            let inner = inner.strip_suffix(']').ok_or(BadDestination::BadBrackets)?;
            let address: Ipv6Addr = inner.parse().map_err(|_| BadDestination::BadBrackets)?;
            return Ok(Self::from_address(address.into()));
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            // an IPv6 address without brackets is ambiguous with a port behind it
            return match address {
                IpAddr::V4(_) => Ok(Self::Address(address)),
                IpAddr::V6(_) => Err(BadDestination::BadBrackets),
            };
        }
        Self::from_name(text)
    }

    /// A host by address; unwraps the IPv4-mapped form.
    pub fn from_address(address: IpAddr) -> Self {
        Self::Address(address.to_canonical())
    }

    /// Reads a host where the protocol expects a name; an address in text is an address.
    pub fn from_name(text: &str) -> Result<Self, BadDestination> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::from_address(address));
        }
        let name = text.strip_suffix('.').unwrap_or(text);
        if name.is_empty() {
            return Err(BadDestination::NoHost);
        }
        if name.contains('@') {
            return Err(BadDestination::Credentials);
        }
        // underscores are not allowed in host names, but services and containers use them
        let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
        if !name.bytes().all(allowed) {
            return Err(BadDestination::BadName);
        }
        if name.len() > 253 || name.split('.').any(|label| label.len() > 63) {
            return Err(BadDestination::TooLong);
        }
        if name.split('.').any(str::is_empty) {
            return Err(BadDestination::BadName);
        }
        if ends_in_number(name) {
            return Err(BadDestination::OddAddress);
        }
        Ok(Self::Name(name.to_ascii_lowercase()))
    }
}

/// Whether other programs might read this name as an IPv4 address (as WHATWG URL's "ends in a number").
fn ends_in_number(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    let hex = last.strip_prefix("0x").or_else(|| last.strip_prefix("0X"));
    last.bytes().all(|b| b.is_ascii_digit())
        || hex.is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Reads a port from 1 to 65535, in decimal digits.
pub fn parse_port(text: &str) -> Result<u16, BadDestination> {
    let digits = !text.is_empty() && text.len() <= 5 && text.bytes().all(|b| b.is_ascii_digit());
    match text.parse::<u16>() {
        Ok(port) if digits && port != 0 => Ok(port),
        _ => Err(BadDestination::BadPort),
    }
}

impl Destination {
    /// Whether it is a name by which relays ask each other, which is none of the DNS (RFC 6761 §6.4).
    pub fn is_of_relays(&self) -> bool {
        matches!(&self.host, Host::Name(name) if name == "ekiden.invalid" || name.ends_with(".ekiden.invalid"))
    }

    /// Reads `host:port`; where there is a default, the port may be missing or empty (RFC 3986 §3.2.3).
    pub fn parse(text: &str, default_port: Option<u16>) -> Result<Self, BadDestination> {
        if text.contains('@') {
            return Err(BadDestination::Credentials);
        }
        let split = match text.rfind(':') {
            Some(at) if !text[at..].contains(']') => Some(at),
            _ => None,
        };
        let (host, port) = match split {
            Some(at) => (&text[..at], &text[at + 1..]),
            None => (text, ""),
        };
        let port = match port {
            "" => default_port.ok_or(BadDestination::BadPort)?,
            port => parse_port(port)?,
        };
        if host.is_empty() {
            return Err(BadDestination::NoHost);
        }
        Ok(Self { host: Host::parse(host)?, port })
    }
}

impl From<SocketAddr> for Destination {
    fn from(address: SocketAddr) -> Self {
        Self { host: Host::from_address(address.ip()), port: address.port() }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
            Self::Address(address) => write!(f, "{address}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_clients_write() {
        for (text, printed) in [
            ("example.org:443", "example.org:443"),
            ("EXAMPLE.org.:443", "example.org:443"),
            ("192.0.2.1:80", "192.0.2.1:80"),
            ("[2001:DB8::1]:80", "[2001:db8::1]:80"),
            ("[::ffff:192.0.2.1]:80", "192.0.2.1:80"),
            ("my_service:8080", "my_service:8080"),
            ("example.org", "example.org:80"),
            ("[::1]", "[::1]:80"),
            ("example.org:", "example.org:80"),
            ("[::1]:", "[::1]:80"),
        ] {
            let read = Destination::parse(text, Some(80)).map(|d| d.to_string());
            assert_eq!(read, Ok(printed.to_owned()), "{text}");
        }
    }

    #[test]
    fn refuses_what_could_be_read_two_ways() {
        use BadDestination::*;
        for (text, why) in [
            ("", NoHost),
            (":80", NoHost),
            (":", NoHost),
            ("example.org:0", BadPort),
            ("example.org:65536", BadPort),
            ("example.org:+80", BadPort),
            ("example.org:80:80", BadName),
            ("example.org::", BadName),
            ("2130706433:80", OddAddress),
            ("0x7f.1:80", OddAddress),
            ("0x7f000001:80", OddAddress),
            ("0177.0.0.1:80", OddAddress),
            ("127.1:80", OddAddress),
            ("1.2.3.4.5:80", OddAddress),
            ("::1:80", BadBrackets),
            ("::1:", BadBrackets),
            ("[::1:80", BadBrackets),
            ("[::1%eth0]:80", BadBrackets),
            ("[127.0.0.1]:80", BadBrackets),
            ("user@example.org:80", Credentials),
            ("exa mple.org:80", BadName),
            ("example..org:80", BadName),
            ("bücher.example:80", BadName),
        ] {
            assert_eq!(Destination::parse(text, Some(80)), Err(why), "{text}");
        }
        for text in ["example.org", "example.org:", "[::1]:"] {
            assert_eq!(Destination::parse(text, None), Err(BadPort), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn printing_and_reading_are_inverse(text in ".{0,40}") {
            if let Ok(read) = Destination::parse(&text, Some(80)) {
                proptest::prop_assert_eq!(Destination::parse(&read.to_string(), None), Ok(read));
            }
        }
    }
}
