//! SOCKS5 (RFC 1928) and SOCKS4a messages as bytes. Each reader gets all bytes so far, and returns
//! the message and its length, or `Ok(None)` while it needs more.

use crate::destination::{BadDestination, Destination, Host};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Why a SOCKS message was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum BadSocks {
    #[error("SOCKS version {0} is not supported; use SOCKS5 or SOCKS4a")]
    Version(u8),
    /// BIND or unknown.
    #[error("SOCKS command {0} is not supported; CONNECT and UDP ASSOCIATE are")]
    Command(u8),
    /// Not 1, 3 or 4.
    #[error("SOCKS address type {0} is not known")]
    AddressType(u8),
    #[error("a reserved byte of the SOCKS request is not 0")]
    Reserved,
    #[error("the client offers no authentication method")]
    NoMethods,
    #[error("the client does not offer \"no authentication\", the only method here")]
    OtherMethods,
    /// The client must log in and cannot.
    #[error(
        "this relay requires an account, and the client offers no user and password, or they would cross the network in cleartext"
    )]
    NoLogIn,
    /// Not the version of RFC 1929.
    #[error("version {0} of the password's message is not 1")]
    PasswordVersion(u8),
    #[error("the connection ended within the SOCKS request")]
    Cut,
    #[error("the SOCKS request did not arrive in time")]
    Late,
    #[error("a text in the SOCKS4 request has no terminating zero")]
    Endless,
    #[error("the datagram ends within its SOCKS header")]
    Short,
    /// A fragment; RFC 1928 §7 permits to drop fragments.
    #[error("part {0} of a datagram: fragments are dropped")]
    Fragment(u8),
    #[error("a name in the SOCKS request is not text")]
    NotText,
    #[error("{0}")]
    Destination(#[from] BadDestination),
}

/// "No authentication required".
pub const METHOD_NONE: u8 = 0x00;
/// User name and password (RFC 1929).
pub const METHOD_PASSWORD: u8 = 0x02;
/// "No acceptable methods".
pub const METHOD_UNACCEPTABLE: u8 = 0xff;

const CONNECT: u8 = 1;
const UDP_ASSOCIATE: u8 = 3;

/// Longest user name or domain in a SOCKS4a request.
const LONGEST_TEXT: usize = 255;

/// SOCKS5's replies (RFC 1928 §6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Reply {
    /// Connected.
    Succeeded = 0,
    /// A failure or overload here.
    GeneralFailure = 1,
    /// A rule denies it.
    NotAllowed = 2,
    /// No route to that network.
    NetworkUnreachable = 3,
    /// No such host, or it does not answer.
    HostUnreachable = 4,
    /// The connection was refused.
    ConnectionRefused = 5,
    /// It did not answer in time.
    TtlExpired = 6,
    /// BIND; UDP ASSOCIATE where it is off.
    CommandNotSupported = 7,
    /// Not IPv4, IPv6 or a name.
    AddressNotSupported = 8,
}

/// A SOCKS5 request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// CONNECT.
    Connect(Destination),
    /// UDP ASSOCIATE. Its address is ignored: clients behind NAT do not know theirs, and others name their destination.
    Associate,
}

/// The methods a SOCKS5 client offers. Fails on another version, or none.
pub fn read_methods(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, BadSocks> {
    match *bytes {
        [] | [5] => Ok(None),
        [5, 0, ..] => Err(BadSocks::NoMethods),
        [5, count, ref rest @ ..] => {
            Ok(rest.get(..usize::from(count)).map(|methods| (methods, 2 + usize::from(count))))
        }
        [version, ..] => Err(BadSocks::Version(version)),
    }
}

/// The greeting of a client that offers these methods, of which the first 255 fit.
pub fn write_methods(methods: &[u8]) -> Vec<u8> {
    let methods = &methods[..methods.len().min(255)];
    [&[5, methods.len() as u8], methods].concat()
}

/// A user and a password.
pub type UserPassword = (String, String);

/// User and password (RFC 1929 §2). Fails on another version, or no text.
pub fn read_password(bytes: &[u8]) -> Result<Option<(UserPassword, usize)>, BadSocks> {
    if let Some(version) = bytes.first().filter(|version| **version != 1) {
        return Err(BadSocks::PasswordVersion(*version));
    }
    let part = |from: usize| {
        let length = usize::from(*bytes.get(from)?);
        bytes.get(from + 1..from + 1 + length).map(|part| (part, from + 1 + length))
    };
    let Some((user, next)) = part(1) else { return Ok(None) };
    let Some((password, end)) = part(next) else { return Ok(None) };
    let text = |part: &[u8]| String::from_utf8(part.to_vec()).map_err(|_| BadSocks::NotText);
    Ok(Some(((text(user)?, text(password)?), end)))
}

/// The answer to user and password (RFC 1929 §2).
pub const fn password_reply(accepted: bool) -> [u8; 2] {
    [1, if accepted { 0 } else { 1 }]
}

/// A SOCKS5 request, once the method is settled: CONNECT to a clear destination, or UDP ASSOCIATE from any address.
pub fn read_request(bytes: &[u8]) -> Result<Option<(Request, usize)>, BadSocks> {
    match *bytes {
        [version, ..] if version != 5 => return Err(BadSocks::Version(version)),
        [_, command, ..] if !matches!(command, CONNECT | UDP_ASSOCIATE) => {
            return Err(BadSocks::Command(command));
        }
        [_, _, reserved, ..] if reserved != 0 => return Err(BadSocks::Reserved),
        [_, _, _, kind, ..] if !matches!(kind, 1 | 3 | 4) => {
            return Err(BadSocks::AddressType(kind));
        }
        _ => {}
    }
    if let [_, UDP_ASSOCIATE, _, kind, first, ..] = *bytes {
        // only the length matters: PySocks names the host "0"
        let length = if kind == 3 { 1 + usize::from(first) } else { usize::from(kind) * 4 };
        let end = 4 + length + 2;
        return Ok((bytes.len() >= end).then_some((Request::Associate, end)));
    }
    let Some(read) = read_address(bytes, 3)? else { return Ok(None) };
    let (to, end) = destination(read)?;
    Ok(Some((Request::Connect(to), end)))
}

/// A datagram's destination and its payload's offset (RFC 1928 §7). Fragments are refused.
pub fn read_datagram(bytes: &[u8]) -> Result<(Destination, usize), BadSocks> {
    match *bytes {
        [0, 0, 0, ..] => {}
        [0, 0, part, ..] => return Err(BadSocks::Fragment(part)),
        [_, _, _, ..] => return Err(BadSocks::Reserved),
        _ => return Err(BadSocks::Short),
    }
    destination(read_address(bytes, 3)?.ok_or(BadSocks::Short)?)
}

/// The header for a datagram from this address.
pub fn write_datagram_head(from: SocketAddr) -> Vec<u8> {
    let mut bytes = vec![0, 0, 0];
    write_ip(&mut bytes, from.ip());
    bytes.extend(from.port().to_be_bytes());
    bytes
}

fn destination((host, port, end): (Host, u16, usize)) -> Result<(Destination, usize), BadSocks> {
    if port == 0 {
        return Err(BadDestination::BadPort.into());
    }
    Ok((Destination { host, port }, end))
}

/// The address and port that begin at `at`, in requests and replies. Errors: unknown type, invalid
/// name.
pub fn read_address(bytes: &[u8], at: usize) -> Result<Option<(Host, u16, usize)>, BadSocks> {
    let Some((&kind, rest)) = bytes.get(at..).and_then(<[u8]>::split_first) else {
        return Ok(None);
    };
    let (host, length) = match kind {
        1 => {
            let Some((octets, _)) = rest.split_first_chunk::<4>() else { return Ok(None) };
            (Host::from_address(Ipv4Addr::from(*octets).into()), 4)
        }
        4 => {
            let Some((octets, _)) = rest.split_first_chunk::<16>() else { return Ok(None) };
            (Host::from_address(Ipv6Addr::from(*octets).into()), 16)
        }
        3 => {
            let Some((&length, name)) = rest.split_first() else { return Ok(None) };
            if length == 0 {
                return Err(BadDestination::NoHost.into());
            }
            let Some(name) = name.get(..usize::from(length)) else { return Ok(None) };
            let name = std::str::from_utf8(name).map_err(|_| BadSocks::NotText)?;
            (Host::from_name(name)?, 1 + usize::from(length))
        }
        kind => return Err(BadSocks::AddressType(kind)),
    };
    let Some((port, _)) = rest.get(length..).and_then(<[u8]>::split_first_chunk::<2>) else {
        return Ok(None);
    };
    Ok(Some((host, u16::from_be_bytes(*port), at + 1 + length + 2)))
}

/// A SOCKS4 or SOCKS4a CONNECT to a clear destination; the user name is ignored.
pub fn read_socks4(bytes: &[u8]) -> Result<Option<(Destination, usize)>, BadSocks> {
    match *bytes {
        [version, ..] if version != 4 => return Err(BadSocks::Version(version)),
        [_, command, ..] if command != 1 => return Err(BadSocks::Command(command)),
        _ => {}
    }
    let Some((head, rest)) = bytes.split_first_chunk::<8>() else { return Ok(None) };
    let port = u16::from_be_bytes([head[2], head[3]]);
    let address = [head[4], head[5], head[6], head[7]];
    let Some((_user, user_end)) = read_text(rest)? else { return Ok(None) };
    let end = 8 + user_end;
    // 0.0.0.x with x ≠ 0 means that a name follows (SOCKS4a)
    if address[..3] != [0, 0, 0] || address[3] == 0 {
        return destination((Host::from_address(IpAddr::from(address)), port, end)).map(Some);
    }
    let Some((name, name_end)) = read_text(&rest[user_end..])? else { return Ok(None) };
    let name = std::str::from_utf8(name).map_err(|_| BadSocks::NotText)?;
    destination((Host::from_name(name)?, port, end + name_end)).map(Some)
}

fn read_text(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, BadSocks> {
    match bytes.iter().position(|b| *b == 0) {
        Some(end) if end <= LONGEST_TEXT => Ok(Some((&bytes[..end], end + 1))),
        None if bytes.len() <= LONGEST_TEXT => Ok(None),
        _ => Err(BadSocks::Endless),
    }
}

/// The request for `destination`, as a client of SOCKS5 sends it.
pub fn write_request(destination: &Destination) -> Vec<u8> {
    let mut bytes = vec![5, CONNECT, 0];
    match &destination.host {
        Host::Address(address) => write_ip(&mut bytes, *address),
        Host::Name(name) => {
            // a name has at most 253 bytes
            bytes.extend([3, name.len() as u8]);
            bytes.extend(name.as_bytes());
        }
    }
    bytes.extend(destination.port.to_be_bytes());
    bytes
}

/// The user name and password (RFC 1929), each cut at 255 bytes; the configuration rejects longer ones.
pub fn write_password(user: &str, password: &str) -> Vec<u8> {
    let mut bytes = vec![1];
    for text in [user, password] {
        let text = &text.as_bytes()[..text.len().min(255)];
        bytes.push(text.len() as u8);
        bytes.extend(text);
    }
    bytes
}

/// SOCKS5's answer to a request.
pub fn write_reply(reply: Reply, bound: SocketAddr) -> Vec<u8> {
    let mut bytes = vec![5, reply as u8, 0];
    write_ip(&mut bytes, bound.ip());
    bytes.extend(bound.port().to_be_bytes());
    bytes
}

fn write_ip(bytes: &mut Vec<u8>, address: IpAddr) {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            bytes.push(1);
            bytes.extend(address.octets());
        }
        IpAddr::V6(address) => {
            bytes.push(4);
            bytes.extend(address.octets());
        }
    }
}

/// SOCKS4's answer: granted or rejected, without a reason.
pub const fn write_socks4_reply(granted: bool) -> [u8; 8] {
    [0, if granted { 90 } else { 91 }, 0, 0, 0, 0, 0, 0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn to(text: &str) -> Destination {
        Destination::parse(text, None).unwrap()
    }

    #[test]
    fn reads_each_address_type_byte_by_byte() {
        for destination in ["192.0.2.1:80", "[2001:db8::1]:443", "example.org:22"].map(to) {
            let bytes = write_request(&destination);
            for cut in 0..bytes.len() {
                assert_eq!(read_request(&bytes[..cut]), Ok(None), "{destination} cut at {cut}");
            }
            let with_more = [&bytes[..], b"data"].concat();
            let read = (Request::Connect(destination.clone()), bytes.len());
            assert_eq!(read_request(&with_more), Ok(Some(read)));
            // the same as a datagram's header
            let datagram = [&[0, 0, 0], &with_more[3..]].concat();
            assert_eq!(read_datagram(&datagram), Ok((destination, bytes.len())));
            for cut in 0..bytes.len() {
                assert_eq!(read_datagram(&datagram[..cut]), Err(BadSocks::Short), "cut at {cut}");
            }
        }
    }

    #[test]
    fn reads_an_association_whatever_address_it_names() {
        for address in [
            &[1, 0, 0, 0, 0, 0, 0][..],
            &[1, 192, 0, 2, 1, 0, 80],
            &[4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 80],
            &[3, 1, b'a', 0, 0],
            // no name, and none that a relay connects to
            &[3, 0, 0, 0],
            &[3, 1, b'0', 0, 0],
        ] {
            let bytes = [&[5, 3, 0], address].concat();
            for cut in 0..bytes.len() {
                assert_eq!(read_request(&bytes[..cut]), Ok(None), "{bytes:?} cut at {cut}");
            }
            assert_eq!(read_request(&bytes), Ok(Some((Request::Associate, bytes.len()))));
        }
    }

    #[test]
    fn rejects_malformed_datagrams() {
        for (bytes, bad) in [
            (&[0, 0, 1, 1, 192, 0, 2, 1, 0, 80][..], BadSocks::Fragment(1)),
            (&[0, 0, 0x80, 1, 192, 0, 2, 1, 0, 80], BadSocks::Fragment(0x80)),
            (&[1, 0, 0, 1, 192, 0, 2, 1, 0, 80], BadSocks::Reserved),
            (&[0, 0, 0, 2, 192, 0, 2, 1, 0, 80], BadSocks::AddressType(2)),
            (&[0, 0, 0, 1, 192, 0, 2, 1, 0, 0], BadDestination::BadPort.into()),
            (&[0, 0, 0, 3, 0, 0, 80], BadDestination::NoHost.into()),
            (&[], BadSocks::Short),
        ] {
            assert_eq!(read_datagram(bytes), Err(bad), "{bytes:?}");
        }
    }

    #[test]
    fn reads_socks4_and_4a() {
        let by_name = b"\x04\x01\x00\x50\x00\x00\x00\x01me\x00example.org\x00";
        for cut in 0..by_name.len() {
            assert_eq!(read_socks4(&by_name[..cut]), Ok(None));
        }
        assert_eq!(read_socks4(by_name), Ok(Some((to("example.org:80"), by_name.len()))));
        let by_address = b"\x04\x01\x00\x50\xc0\x00\x02\x01\x00rest";
        assert_eq!(read_socks4(by_address), Ok(Some((to("192.0.2.1:80"), 9))));
    }

    #[test]
    fn reads_user_and_password() {
        let bytes = b"\x01\x04anna\x06secretrest";
        for cut in 0..13 {
            assert_eq!(read_password(&bytes[..cut]), Ok(None), "{cut}");
        }
        let read = (("anna".to_owned(), "secret".to_owned()), 13);
        assert_eq!(read_password(bytes), Ok(Some(read)));
        assert_eq!(read_password(&[5, 1]), Err(BadSocks::PasswordVersion(5)));
        assert_eq!(read_password(&[1, 1, 0xff, 1, b'x']), Err(BadSocks::NotText));
        let written = write_password("anna", "secret");
        assert_eq!(read_password(&written).unwrap().unwrap().1, written.len());
    }

    #[test]
    fn refuses_early_with_a_reason() {
        assert_eq!(read_methods(&[5, 0]), Err(BadSocks::NoMethods));
        assert_eq!(read_request(&[5, 2]), Err(BadSocks::Command(2)));
        assert_eq!(read_request(&[5, 4, 0, 1]), Err(BadSocks::Command(4)));
        assert_eq!(read_request(&[5, 1, 7]), Err(BadSocks::Reserved));
        assert_eq!(read_request(&[5, 1, 0, 2]), Err(BadSocks::AddressType(2)));
        assert_eq!(read_request(&[5, 1, 0, 3, 0]), Err(BadDestination::NoHost.into()));
        assert_eq!(read_request(&[5, 1, 0, 3, 1, 0xff, 0, 80]), Err(BadSocks::NotText));
        let port_0 = [5, 1, 0, 1, 192, 0, 2, 1, 0, 0];
        assert_eq!(read_request(&port_0), Err(BadDestination::BadPort.into()));
        let endless = [&[4, 1, 0, 80, 192, 0, 2, 1][..], &[b'x'; 300]].concat();
        assert_eq!(read_socks4(&endless), Err(BadSocks::Endless));
    }

    proptest! {
        #[test]
        fn no_bytes_panic_and_lengths_hold(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            if let Ok(Some((_, used))) = read_methods(&bytes) { prop_assert!(used <= bytes.len()); }
            if let Ok(Some((_, used))) = read_password(&bytes) { prop_assert!(used <= bytes.len()); }
            if let Ok(Some((_, used))) = read_request(&bytes) { prop_assert!(used <= bytes.len()); }
            if let Ok(Some((_, used))) = read_socks4(&bytes) { prop_assert!(used <= bytes.len()); }
            if let Ok((_, used)) = read_datagram(&bytes) { prop_assert!(used <= bytes.len()); }
        }

        #[test]
        fn datagram_headers_round_trip(
            v4: bool, octets: [u8; 16], port in 1_u16..,
        ) {
            let ip = if v4 { IpAddr::from(*octets.first_chunk::<4>().unwrap()) } else { IpAddr::from(octets) };
            let head = write_datagram_head(SocketAddr::new(ip, port));
            let to = Destination { host: Host::from_address(ip), port };
            prop_assert_eq!(read_datagram(&head), Ok((to, head.len())));
        }
    }
}
