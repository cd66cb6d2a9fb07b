//! The path of a request for UDP: `/.well-known/masque/udp/{target_host}/{target_port}/` (RFC 9298 §2).

use crate::destination::{Destination, Host, parse_port};
use crate::wire::http::BadMessage;

/// What all such paths begin with.
pub const PREFIX: &str = "/.well-known/masque/udp/";

/// The target of a path that begins with [`PREFIX`]. The host is a name, an IPv4 address, or an IPv6 address without
/// brackets and zone whose colons are percent-encoded.
pub fn target(path: &str) -> Result<Destination, BadMessage> {
    let wrong =
        BadMessage::bad("the path is not /.well-known/masque/udp/HOST/PORT/, which RFC 9298 names");
    let mut parts = path.strip_prefix(PREFIX).unwrap_or_default().split('/');
    let (Some(host), Some(port), Some(""), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(wrong);
    };
    let bad = "a percent sign in the path is not followed by two hexadecimal digits, or stands for a byte that is not ASCII";
    let decoded = |text| decoded(text).ok_or(BadMessage::bad(bad));
    let host = Host::from_name(&decoded(host)?).map_err(|_| {
        BadMessage::bad("the target's host is neither a name nor an address; an IPv6 address has no brackets, and its colons are %3A")
    })?;
    let port = parse_port(&decoded(port)?)
        .map_err(|_| BadMessage::bad("the target's port is not a number from 1 to 65535"))?;
    Ok(Destination { host, port })
}

/// Without percent-encoding (RFC 3986 §2.1), if that is all ASCII, as hosts and ports are.
fn decoded(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut out = parts.next()?.to_owned();
    for part in parts {
        let digits = part.get(..2)?;
        if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let byte = u8::from_str_radix(digits, 16).ok()?;
        out.push(byte.is_ascii().then(|| char::from(byte))?);
        out.push_str(part.get(2..)?);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(rest: &str) -> Result<String, &'static str> {
        target(&format!("{PREFIX}{rest}")).map(|to| to.to_string()).map_err(|bad| bad.what)
    }

    #[test]
    fn reads_names_and_addresses() {
        for (rest, target) in [
            ("target.example.com/443/", "target.example.com:443"),
            ("192.0.2.42/443/", "192.0.2.42:443"),
            ("2001%3Adb8%3A%3A42/443/", "[2001:db8::42]:443"),
            ("2001:db8::42/443/", "[2001:db8::42]:443"),
            ("%3A%3Affff%3a127.0.0.1/53/", "127.0.0.1:53"),
            ("my%5Fservice/%34%33/", "my_service:43"),
        ] {
            assert_eq!(read(rest), Ok(target.to_owned()), "{rest}");
        }
    }

    #[test]
    fn refuses_paths_that_name_no_target() {
        for (rest, why) in [
            ("", "the path is not"),
            ("a.example/443", "the path is not"),
            ("a.example/443/more", "the path is not"),
            ("a.example/443/?query", "the path is not"),
            ("a.example/443//", "the path is not"),
            ("/443/", "host"),
            ("a.example/0/", "port"),
            ("a.example/65536/", "port"),
            ("a.example/-1/", "port"),
            ("a.example//", "port"),
            ("%5B%3A%3A1%5D/443/", "host"),
            ("[::1]/443/", "host"),
            ("fe80%3A%3A1%25eth0/443/", "host"),
            ("2130706433/443/", "host"),
            ("a%2Fb/443/", "host"),
            ("a%/443/", "percent"),
            ("a%4/443/", "percent"),
            ("a%+4/443/", "percent"),
            ("a%FF/443/", "percent"),
            ("a%é/443/", "percent"),
        ] {
            let what = read(rest).unwrap_err();
            assert!(what.contains(why), "{rest}: {what}");
        }
        assert!(target("/other/a.example/443/").is_err());
    }

    proptest! {
        #[test]
        fn any_target_is_read_back_however_it_is_encoded(v6 in any::<std::net::Ipv6Addr>(), port in 1_u16..) {
            let encode = |text: String| text.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>();
            let to = Destination { host: Host::from_address(v6.into()), port };
            let path = format!("{PREFIX}{}/{}/", encode(v6.to_string()), encode(port.to_string()));
            prop_assert_eq!(target(&path), Ok(to));
        }

        #[test]
        fn any_path_is_read_or_refused(rest in ".{0,60}") {
            let _ = read(&rest);
        }
    }
}
