//! Destination patterns, prefixes and socket addresses: reading and printing.

use ekiden_proxy::settings::{HostPattern, Pattern};
use ipnet::IpNet;
use std::net::{IpAddr, SocketAddr};

/// Reads `example.org`, `*.example.org`, `10.0.0.0/8`, `2001:db8::/32`, `192.0.2.1`, each with `:port`
/// or `:from-to`, `[2001:db8::/32]:443`, `:22`, or `*`.
/// Errors: in words, what about it is wrong.
pub fn pattern(text: &str) -> Result<Pattern, String> {
    let text = text.trim();
    if text.is_empty() {
        return Err("a pattern must not be empty".to_owned());
    }
    if let Some(rest) = text.strip_prefix('[') {
        let (inside, after) = rest
            .split_once(']')
            .ok_or_else(|| format!("\"{text}\": the bracket `[` is not closed"))?;
        let ports = match after.strip_prefix(':') {
            Some(ports) => Some(port_range(ports)?),
            None if after.is_empty() => None,
            None => return Err(format!("\"{text}\": only `:port` may follow the bracket")),
        };
        return Ok(Pattern { host: HostPattern::Net(net(inside)?), ports });
    }
    // more than one colon is an IPv6 address or prefix, which has no port without brackets
    let (host, ports) = match text.split_once(':') {
        Some((host, ports)) if !ports.contains(':') => (host, Some(port_range(ports)?)),
        _ => (text, None),
    };
    Ok(Pattern { host: host_pattern(host)?, ports })
}

fn host_pattern(host: &str) -> Result<HostPattern, String> {
    if host.is_empty() || host == "*" {
        return Ok(HostPattern::Any);
    }
    if let Some(below) = host.strip_prefix("*.") {
        return Ok(HostPattern::Below(name(below)?));
    }
    let last = host.trim_end_matches('.').rsplit('.').next().unwrap_or("");
    let looks_numeric = host.contains('/')
        || host.contains(':')
        || last.bytes().all(|b| b.is_ascii_digit())
        || last.starts_with("0x");
    if looks_numeric { net(host).map(HostPattern::Net) } else { name(host).map(HostPattern::Name) }
}

/// Reads a host name: lower case, no trailing dot.
/// Errors: in words, what about it is wrong.
pub fn name(text: &str) -> Result<String, String> {
    let plain = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    if plain.is_empty() || plain.len() > 253 {
        return Err(format!("\"{}\" is not a host name: 1 to 253 characters", shorten(text)));
    }
    for label in plain.split('.') {
        let fine = !label.is_empty()
            && label.len() <= 63
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        if !fine {
            let why = if label.contains('*') {
                "a `*` stands only at the beginning, as in `*.example.org`"
            } else if !label.is_ascii() {
                "write international names in their `xn--` form"
            } else {
                "its parts are 1 to 63 letters, digits and hyphens"
            };
            return Err(format!("\"{}\" is not a host name: {why}", shorten(text)));
        }
    }
    Ok(plain)
}

/// Reads a prefix such as `10.0.0.0/8`, or one address.
/// Errors: in words, what about it is wrong; bits set beyond the prefix length are refused too, since one of
/// the two was not meant. Addresses of IPv4 that are written as IPv6 (`::ffff:192.0.2.1`) are those of IPv4.
pub fn net(text: &str) -> Result<IpNet, String> {
    let text = text.trim();
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(IpNet::from(address.to_canonical()));
    }
    let net: IpNet = text.parse().map_err(|_| {
        let text = shorten(text);
        format!("\"{text}\" is not an address or prefix such as 10.0.0.0/8 or 2001:db8::/32")
    })?;
    if net != net.trunc() {
        return Err(format!(
            "\"{text}\" has bits set beyond its prefix length; {} was meant?",
            net.trunc()
        ));
    }
    unmapped(text, net)
}

/// Bits in front of an IPv4 address that is written as one of IPv6 (RFC 4291 §2.5.5.2).
const MAPPED: u8 = 96;

/// A prefix as addresses are compared with it: those of IPv4 always as IPv4. So a wide one of IPv6, such as `::/8` on
/// lists of unassigned prefixes, holds none of them.
fn unmapped(text: &str, net: IpNet) -> Result<IpNet, String> {
    let IpNet::V6(v6) = net else { return Ok(net) };
    if let (Some(v4), Some(bits)) =
        (v6.addr().to_ipv4_mapped(), v6.prefix_len().checked_sub(MAPPED))
    {
        return IpNet::new(v4.into(), bits).map_err(|error| format!("\"{text}\": {error}"));
    }
    Ok(net)
}

/// Reads a port.
/// Errors: in words; the text itself is not repeated, since it may be part of a password.
pub fn port(text: &str) -> Result<u16, String> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    match text.parse::<u16>() {
        Ok(port) if digits && port > 0 => Ok(port),
        _ => Err("a port is a number from 1 to 65535".to_owned()),
    }
}

fn port_range(text: &str) -> Result<(u16, u16), String> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let (from, to) = (port(from)?, port(to)?);
    if from > to {
        return Err(format!("ports {from}-{to}: the smaller one comes first"));
    }
    Ok((from, to))
}

/// Reads `address:port`; the port may be left off where there is a usual one.
/// Errors: in words, what about it is wrong.
pub fn socket(text: &str, usual_port: Option<u16>) -> Result<SocketAddr, String> {
    let text = text.trim();
    if let Ok(socket) = text.parse::<SocketAddr>() {
        return Ok(socket);
    }
    let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
    if let Ok(address) = bare.parse::<IpAddr>() {
        return usual_port
            .map(|port| SocketAddr::new(address, port))
            .ok_or_else(|| format!("\"{text}\" has no port"));
    }
    Err(format!("\"{}\" is not an address and port", shorten(text)))
}

/// What to write in place of a text that [`socket`] does not read.
pub(crate) fn socket_hint(text: &str, usual_port: Option<u16>) -> String {
    let text = text.trim();
    let example = usual_port.unwrap_or(3128);
    if let Ok(address) = text.parse::<IpAddr>() {
        return format!("\"{}\"", SocketAddr::new(address, example));
    }
    match text.rsplit_once(':').map(|(host, number)| (host, number, port(number))) {
        Some((_, number, Err(why))) if number.bytes().all(|b| b.is_ascii_digit()) => why,
        Some(("", number, Ok(_))) => format!(
            "\"127.0.0.1:{number}\" for this machine alone, \"0.0.0.0:{number}\" for others, too"
        ),
        Some(("localhost", number, Ok(_))) => {
            format!("names are not looked up: \"127.0.0.1:{number}\" or \"[::1]:{number}\"")
        }
        Some((_, number, Ok(_))) => format!(
            "names are not looked up: an address of this machine, such as \"192.0.2.1:{number}\""
        ),
        _ => format!("write it like \"127.0.0.1:{example}\" or \"[::1]:{example}\""),
    }
}

/// Prints a pattern as [`pattern`] reads it.
pub fn print(pattern: &Pattern) -> String {
    let ports = match pattern.ports {
        None => String::new(),
        Some((from, to)) if from == to => format!(":{from}"),
        Some((from, to)) => format!(":{from}-{to}"),
    };
    match &pattern.host {
        HostPattern::Any if ports.is_empty() => "*".to_owned(),
        HostPattern::Any => ports,
        HostPattern::Name(name) => format!("{name}{ports}"),
        HostPattern::Below(name) => format!("*.{name}{ports}"),
        HostPattern::Net(net) if ports.is_empty() => print_net(net),
        HostPattern::Net(net @ IpNet::V4(_)) => format!("{}{ports}", print_net(net)),
        HostPattern::Net(net @ IpNet::V6(_)) => format!("[{}]{ports}", print_net(net)),
    }
}

/// Prints a prefix; one address without its length.
pub fn print_net(net: &IpNet) -> String {
    if net.prefix_len() == net.max_prefix_len() { net.addr().to_string() } else { net.to_string() }
}

/// At most 60 characters of `text`, for a message.
pub fn shorten(text: &str) -> String {
    let mut short: String =
        text.chars().take(60).map(|c| if c.is_control() { '·' } else { c }).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_reads_and_prints() {
        for text in [
            "example.org",
            "*.example.org:443",
            "10.0.0.0/8",
            "10.0.0.0/8:443",
            "192.0.2.1:8000-8080",
            "2001:db8::/32",
            "[2001:db8::/32]:443",
            "::1",
            ":22",
            "*",
        ] {
            assert_eq!(pattern(text).map(|p| print(&p)), Ok(text.to_owned()));
        }
        assert_eq!(pattern("Example.ORG.").map(|p| print(&p)), Ok("example.org".to_owned()));
    }

    #[test]
    fn ipv4_written_as_ipv6_is_ipv4() {
        for (text, read) in [
            ("::ffff:9.9.9.0/120", "9.9.9.0/24"),
            ("::ffff:909:900/120", "9.9.9.0/24"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("::ffff:192.0.2.1/128", "192.0.2.1"),
            ("::ffff:0:0/96", "0.0.0.0/0"),
            ("[::ffff:9.9.9.0/120]:443", "9.9.9.0/24:443"),
            // IPv6 alone
            ("::/0", "::/0"),
            ("::/8", "::/8"),
            ("::/95", "::/95"),
            ("::fffe:0:0/96", "::fffe:0:0/96"),
            ("64:ff9b::/96", "64:ff9b::/96"),
        ] {
            assert_eq!(pattern(text).map(|p| print(&p)), Ok(read.to_owned()));
        }
        assert!(pattern("::ffff:9.9.9.1/120").is_err());
    }

    #[test]
    fn refuses_what_is_none() {
        for text in [
            "",
            ":0",
            ":70000",
            ":9-1",
            "a..b",
            "ex*mple.org",
            "10.0.0.1/8",
            "10.0.0/8",
            "1.2.3.4.5",
            "0x7f.1",
            "[::1",
            "[::1]443",
            "[example.org]:1",
            "münchen.de",
            "-a.org",
            "a b",
            ":+1",
            "300.1.1.1",
        ] {
            assert!(pattern(text).is_err(), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn printed_pattern_parses_back(text in "[*.:/a-z0-9\\[\\]-]{0,20}") {
            if let Ok(read) = pattern(&text) {
                proptest::prop_assert_eq!(pattern(&print(&read)), Ok(read));
            }
        }
    }
}
