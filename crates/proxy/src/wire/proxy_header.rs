//! Headers of the PROXY protocol (HAProxy's `doc/proxy-protocol.txt`, versions 1 and 2): a proxy tells the next one
//! whose connection it is.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The longest header that is read: 16 bytes, and 4 KiB of addresses and extensions.
pub const MOST: usize = 16 + 4096;

/// What version 2 begins with.
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// What version 1 begins with, and its longest line (section 2.1).
const TEXT: &[u8] = b"PROXY ";
const LONGEST_LINE: usize = 107;

/// A header that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxyHeader {
    /// The client; `None` where the proxy speaks for itself, as with health checks.
    pub client: Option<SocketAddr>,
}

/// Why a connection has no valid header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum BadHeader {
    #[error("it does not begin with a header of the PROXY protocol")]
    Missing,
    #[error("its header of the PROXY protocol is malformed")]
    Malformed,
    #[error("its header of the PROXY protocol is longer than 4112 bytes")]
    TooLong,
}

/// Reads a header, and its length; `None` while more bytes are needed.
pub fn read(bytes: &[u8]) -> Result<Option<(ProxyHeader, usize)>, BadHeader> {
    let same = |begin: &[u8]| {
        let n = begin.len().min(bytes.len());
        bytes.get(..n) == begin.get(..n)
    };
    if same(&SIGNATURE) {
        return read_binary(bytes);
    }
    if same(TEXT) {
        return read_text(bytes);
    }
    Err(BadHeader::Missing)
}

fn read_text(bytes: &[u8]) -> Result<Option<(ProxyHeader, usize)>, BadHeader> {
    let Some(end) = bytes.windows(2).position(|two| two == b"\r\n") else {
        let is_long = bytes.len() >= LONGEST_LINE;
        return if is_long { Err(BadHeader::Malformed) } else { Ok(None) };
    };
    if end + 2 > LONGEST_LINE {
        return Err(BadHeader::Malformed);
    }
    let line = bytes.get(TEXT.len()..end).and_then(|line| std::str::from_utf8(line).ok());
    let client = client_of_line(line.ok_or(BadHeader::Malformed)?)?;
    Ok(Some((ProxyHeader { client }, end + 2)))
}

/// `TCP4 SOURCE DESTINATION SOURCE-PORT DESTINATION-PORT`, or `UNKNOWN` and anything.
fn client_of_line(line: &str) -> Result<Option<SocketAddr>, BadHeader> {
    let mut words = line.split(' ');
    let family = words.next();
    if family == Some("UNKNOWN") {
        return Ok(None);
    }
    let mut address = || words.next().and_then(|word| word.parse::<IpAddr>().ok());
    let (source, destination) = (address(), address());
    let mut port = || {
        let word = words.next().filter(|word| word.bytes().all(|b| b.is_ascii_digit()))?;
        word.parse::<u16>().ok()
    };
    let (source_port, destination_port) = (port(), port());
    let (Some(source), Some(destination), Some(port), Some(_), None) =
        (source, destination, source_port, destination_port, words.next())
    else {
        return Err(BadHeader::Malformed);
    };
    let fits = match family {
        Some("TCP4") => source.is_ipv4() && destination.is_ipv4(),
        Some("TCP6") => source.is_ipv6() && destination.is_ipv6(),
        _ => false,
    };
    if fits { Ok(Some(SocketAddr::new(source, port))) } else { Err(BadHeader::Malformed) }
}

fn read_binary(bytes: &[u8]) -> Result<Option<(ProxyHeader, usize)>, BadHeader> {
    let Some(&[command, family, high, low]) = bytes.get(12..16) else { return Ok(None) };
    let length = usize::from(u16::from_be_bytes([high, low]));
    let whole = 16 + length;
    // section 2.2: version 2, LOCAL or PROXY
    if !matches!(command, 0x20 | 0x21) {
        return Err(BadHeader::Malformed);
    }
    if whole > MOST {
        return Err(BadHeader::TooLong);
    }
    let Some(addresses) = bytes.get(16..whole) else { return Ok(None) };
    let client = match (command, family) {
        (0x20, _) => None,
        // TCP over IPv4, over IPv6; others are no connections, or have no address that rules know
        (_, 0x11) => Some(v4(addresses).ok_or(BadHeader::Malformed)?),
        (_, 0x21) => Some(v6(addresses).ok_or(BadHeader::Malformed)?),
        _ => None,
    };
    Ok(Some((ProxyHeader { client }, whole)))
}

fn v4(bytes: &[u8]) -> Option<SocketAddr> {
    let (source, rest) = bytes.split_first_chunk::<4>()?;
    Some(SocketAddr::new(Ipv4Addr::from(*source).into(), port(rest, 4)?))
}

fn v6(bytes: &[u8]) -> Option<SocketAddr> {
    let (source, rest) = bytes.split_first_chunk::<16>()?;
    let address = IpAddr::V6(Ipv6Addr::from(*source)).to_canonical();
    Some(SocketAddr::new(address, port(rest, 16)?))
}

/// The source's port, behind the destination's address; the destination's port must be there, too.
fn port(rest: &[u8], skip: usize) -> Option<u16> {
    let ports = rest.get(skip..skip + 4)?;
    Some(u16::from_be_bytes(*ports.first_chunk()?))
}

/// Version 1 of a connection from `client` to `local`.
pub fn write_text(client: SocketAddr, local: SocketAddr) -> Vec<u8> {
    let (client, local) = alike(client, local);
    let family = if client.is_ipv4() { "TCP4" } else { "TCP6" };
    let (from, to) = (client.ip(), local.ip());
    format!("PROXY {family} {from} {to} {} {}\r\n", client.port(), local.port()).into_bytes()
}

/// Version 2 of the same.
pub fn write_binary(client: SocketAddr, local: SocketAddr) -> Vec<u8> {
    let (client, local) = alike(client, local);
    let mut out = SIGNATURE.to_vec();
    match (client.ip(), local.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            out.extend([0x21, 0x11, 0, 12]);
            out.extend(from.octets());
            out.extend(to.octets());
        }
        (from, to) => {
            out.extend([0x21, 0x21, 0, 36]);
            out.extend(wide(from).octets());
            out.extend(wide(to).octets());
        }
    }
    out.extend(client.port().to_be_bytes());
    out.extend(local.port().to_be_bytes());
    out
}

/// Both of one family: IPv4 where both are, else IPv6 with mapped addresses.
fn alike(one: SocketAddr, other: SocketAddr) -> (SocketAddr, SocketAddr) {
    let canonical = |at: SocketAddr| SocketAddr::new(at.ip().to_canonical(), at.port());
    let (one, other) = (canonical(one), canonical(other));
    if one.is_ipv4() == other.is_ipv4() {
        return (one, other);
    }
    let wide = |at: SocketAddr| SocketAddr::new(wide(at.ip()).into(), at.port());
    (wide(one), wide(other))
}

const fn wide(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn reads_the_examples_of_the_specification() {
        let line = b"PROXY TCP4 192.0.2.7 203.0.113.9 56324 443\r\nGET /";
        let read_line = read(line).unwrap().unwrap();
        assert_eq!(
            read_line,
            (ProxyHeader { client: Some(at("192.0.2.7:56324")) }, line.len() - 5)
        );
        // the longest line, section 2.1
        let long = b"PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n";
        assert_eq!(read(long), Ok(Some((ProxyHeader { client: None }, long.len()))));
        let local = [&SIGNATURE[..], &[0x20, 0, 0, 0]].concat();
        assert_eq!(read(&local), Ok(Some((ProxyHeader { client: None }, 16))));
    }

    #[test]
    fn refuses_what_is_none() {
        for (bytes, why) in [
            (&b"GET / HTTP/1.1\r\n"[..], BadHeader::Missing),
            (b"\x05\x01\x00", BadHeader::Missing),
            (b"PROXY TCP4 192.0.2.7 203.0.113.9 56324\r\n", BadHeader::Malformed),
            (b"PROXY TCP4 192.0.2.7 203.0.113.9 56324 443 7\r\n", BadHeader::Malformed),
            (b"PROXY TCP4 ::1 ::1 1 2\r\n", BadHeader::Malformed),
            (b"PROXY TCP4 192.0.2.7 203.0.113.9 +1 443\r\n", BadHeader::Malformed),
            (b"PROXY TCP4 192.0.2.7 203.0.113.9 65536 443\r\n", BadHeader::Malformed),
            (b"PROXY TCP5 192.0.2.7 203.0.113.9 1 2\r\n", BadHeader::Malformed),
            (&[b'P', b'R', b'O', b'X', b'Y', b' ', 0xff, b'\r', b'\n'], BadHeader::Malformed),
        ] {
            assert_eq!(read(bytes), Err(why), "{}", bytes.escape_ascii());
        }
        let binary = |tail: &[u8]| [&SIGNATURE[..], tail].concat();
        assert_eq!(read(&binary(&[0x31, 0x11, 0, 12])), Err(BadHeader::Malformed));
        assert_eq!(read(&binary(&[0x21, 0x11, 0, 3, 1, 2, 3])), Err(BadHeader::Malformed));
        assert_eq!(read(&binary(&[0x21, 0x11, 0xff, 0xff])), Err(BadHeader::TooLong));
        assert_eq!(read(&[b'P'; 1]), Ok(None));
    }

    proptest::proptest! {
        #[test]
        fn written_headers_are_read_in_any_pieces(
            v4 in proptest::prelude::any::<(u32, u32)>(),
            v6 in proptest::prelude::any::<(u128, u128)>(),
            ports in proptest::prelude::any::<(u16, u16)>(),
            mixed in 0_u8..3,
        ) {
            let four = |n: u32, port| SocketAddr::new(Ipv4Addr::from(n).into(), port);
            let six = |n: u128, port| SocketAddr::new(Ipv6Addr::from(n).into(), port);
            let (client, local) = match mixed {
                0 => (four(v4.0, ports.0), four(v4.1, ports.1)),
                1 => (six(v6.0, ports.0), six(v6.1, ports.1)),
                _ => (four(v4.0, ports.0), six(v6.1, ports.1)),
            };
            let canonical = SocketAddr::new(client.ip().to_canonical(), client.port());
            for written in [write_text(client, local), write_binary(client, local)] {
                for cut in 0..written.len() {
                    proptest::prop_assert_eq!(read(&written[..cut]), Ok(None));
                }
                let (header, length) = read(&written).unwrap().unwrap();
                proptest::prop_assert_eq!(length, written.len());
                let found = header.client.map(|at| SocketAddr::new(at.ip().to_canonical(), at.port()));
                proptest::prop_assert_eq!(found, Some(canonical));
            }
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
            if let Ok(Some((_, length))) = read(&bytes) {
                proptest::prop_assert!(length <= bytes.len());
            }
        }
    }
}
