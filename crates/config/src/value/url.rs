//! The URL of an upstream proxy.

use super::pattern;
use ekiden_proxy::destination::Host;
use ekiden_proxy::settings::{Credentials, UpstreamProtocol};

const SCHEMES: &str =
    "an upstream's URL begins with `http://`, `https://`, `socks5://` or `tunnel://`";

/// What a URL says of an upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UpstreamUrl {
    /// What it speaks.
    pub protocol: UpstreamProtocol,
    /// Its host, an IPv6 address without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The user, and the password if it stands there.
    pub user: Option<(String, Option<String>)>,
}

/// Reads `http://user:pass@host:3128`, `socks5://host:1080` or `tunnel://name`.
/// Errors: in words; they never repeat the user or the password.
pub(crate) fn read(text: &str) -> Result<UpstreamUrl, String> {
    let (scheme, rest) = text.split_once("://").ok_or(SCHEMES)?;
    let protocol = match scheme.to_ascii_lowercase().as_str() {
        "http" => UpstreamProtocol::Http,
        "socks5" | "socks5h" => UpstreamProtocol::Socks5,
        "https" => UpstreamProtocol::Https,
        "socks4" | "socks4a" | "socks" => {
            return Err("upstreams speak SOCKS version 5 only: `socks5://`".to_owned());
        }
        "tunnel" => {
            let host = rest.strip_suffix('/').unwrap_or(rest);
            crate::keys::name(host).map_err(|why| {
                format!("`tunnel://` is followed by a name of `ekiden peer list`: {why}")
            })?;
            let host = host.to_owned();
            return Ok(UpstreamUrl {
                protocol: UpstreamProtocol::Tunnel,
                host,
                port: 0,
                user: None,
            });
        }
        _ => return Err(SCHEMES.to_owned()),
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest.contains(['/', '?', '#']) {
        return Err("nothing may follow the host and port; `/`, `?`, `#` and `@` in a password are written %2F, %3F, %23, %40".to_owned());
    }
    let (user, host_port) = match rest.rsplit_once('@') {
        Some((user, host)) => (Some(credentials(user)?), host),
        None => (None, rest),
    };
    let (host, port) = host_and_port(host_port)?;
    Ok(UpstreamUrl { protocol, host, port, user })
}

/// Reads `host:port`; the host is returned without brackets. Errors: in words.
pub(crate) fn host_and_port(host_port: &str) -> Result<(String, u16), String> {
    let missing_port = "the port is missing, as in `http://host:3128` or `socks5://host:1080`";
    let (host, port) = if let Some(inside) = host_port.strip_prefix('[') {
        let (host, after) = inside.split_once(']').ok_or("the bracket `[` is not closed")?;
        (host, after.strip_prefix(':').ok_or(missing_port)?)
    } else {
        let (host, port) = host_port.rsplit_once(':').ok_or(missing_port)?;
        if host.contains(':') {
            return Err(
                "an IPv6 address stands in brackets, as in `http://[2001:db8::1]:3128`".to_owned()
            );
        }
        (host, port)
    };
    let host = match Host::from_name(host).map_err(|bad| bad.to_string())? {
        Host::Address(address) => address.to_string(),
        Host::Name(name) => name,
    };
    Ok((host, pattern::port(port)?))
}

impl UpstreamUrl {
    /// The credentials, with `from_file` as the password when none stands in the URL.
    pub(crate) fn credentials(&self, from_file: Option<String>) -> Option<Credentials> {
        let (user, password) = self.user.clone()?;
        Some(Credentials { user, password: password.or(from_file).unwrap_or_default() })
    }

    /// The URL with `***` for the password.
    pub(crate) fn masked(&self) -> String {
        let scheme = match self.protocol {
            UpstreamProtocol::Http => "http",
            UpstreamProtocol::Https => "https",
            UpstreamProtocol::Socks5 => "socks5",
            UpstreamProtocol::Tunnel => return format!("tunnel://{}", self.host),
        };
        let user = match &self.user {
            None => String::new(),
            Some((user, None)) => format!("{}@", encode(user)),
            Some((user, Some(_))) => format!("{}:***@", encode(user)),
        };
        let host =
            if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        format!("{scheme}://{user}{host}:{}", self.port)
    }
}

/// Reads `sha256:` and 64 hexadecimal digits, with colons between them or without, or what openssl
/// prints: `sha256 Fingerprint=AB:CD…`. Errors: in words.
pub(crate) fn fingerprint(text: &str) -> Result<[u8; 32], String> {
    let wrong = || {
        let text = pattern::shorten(text);
        format!("\"{text}\" is not a fingerprint: `sha256:` and 64 hexadecimal digits are wanted")
    };
    let printed = text.split_once('=').map(|(kind, digits)| (kind.split(' ').next(), digits));
    let (kind, digits) = match printed {
        Some((Some(kind), digits)) => (kind, digits),
        _ => text.split_once(':').ok_or_else(wrong)?,
    };
    let digits: Vec<u8> = digits.bytes().filter(|byte| *byte != b':').collect();
    if !kind.eq_ignore_ascii_case("sha256") || digits.len() != 64 {
        return Err(wrong());
    }
    let mut sha256 = [0; 32];
    for (byte, pair) in sha256.iter_mut().zip(digits.chunks(2)) {
        let digit = |at: usize| char::from(pair[at]).to_digit(16).ok_or_else(wrong);
        *byte = (digit(0)? * 16 + digit(1)?) as u8;
    }
    Ok(sha256)
}

/// A user, and a password if it stands there. Errors: in words; they repeat neither.
pub(crate) fn credentials(text: &str) -> Result<(String, Option<String>), String> {
    let (user, password) = match text.split_once(':') {
        Some((user, password)) => (decode(user)?, Some(decode(password)?)),
        None => (decode(text)?, None),
    };
    // 255 bytes each is what RFC 1929 has room for
    if user.is_empty() || user.len() > 255 || password.as_ref().is_some_and(|p| p.len() > 255) {
        return Err("the user has 1 to 255 bytes, the password at most 255".to_owned());
    }
    if user.contains(':') {
        return Err("a user's name must not contain a colon (RFC 7617)".to_owned());
    }
    if user.chars().chain(password.iter().flat_map(|p| p.chars())).any(char::is_control) {
        return Err("user and password must not contain control characters".to_owned());
    }
    Ok((user, password))
}

fn decode(text: &str) -> Result<String, String> {
    let wrong =
        || "a `%` is followed by two hexadecimal digits; `%` itself is written %25".to_owned();
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut digit = || bytes.next().and_then(|b| char::from(b).to_digit(16)).ok_or_else(wrong);
        let value = digit()? * 16 + digit()?;
        out.push(u8::try_from(value).map_err(|_| wrong())?);
    }
    String::from_utf8(out).map_err(|_| "user and password are UTF-8".to_owned())
}

fn encode(text: &str) -> String {
    text.bytes()
        .map(|b| match b {
            b if b.is_ascii_alphanumeric() || b"-._~".contains(&b) => char::from(b).to_string(),
            b => format!("%{b:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_urls() {
        let url = read("http://u%40x:p%3Aq@Proxy.example:3128/").unwrap();
        assert_eq!(
            url.credentials(None).map(|c| (c.user, c.password)),
            Some(("u@x".into(), "p:q".into()))
        );
        assert_eq!(url.masked(), "http://u%40x:***@proxy.example:3128");
        let secure = read("https://u:p@relay.example:443").unwrap();
        assert_eq!(secure.masked(), "https://u:***@relay.example:443");
        let tunnel = read("tunnel://Island-2").unwrap();
        assert_eq!(tunnel.masked(), "tunnel://Island-2");
        assert!(read("tunnel://user@island:1").is_err());
        assert_eq!(read("socks5://[::1]:1080").map(|u| u.host), Ok("::1".to_owned()));
    }

    #[test]
    fn reads_fingerprints_as_openssl_prints_them() {
        let bytes: [u8; 32] = std::array::from_fn(|at| at as u8 * 7);
        let plain: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let printed: Vec<String> = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
        let openssl = format!("sha256 Fingerprint={}", printed.join(":"));
        for text in [format!("sha256:{plain}"), format!("SHA256:{}", printed.join(":")), openssl] {
            assert_eq!(fingerprint(&text), Ok(bytes), "{text}");
        }
        let short = format!("sha256:{}", &plain[1..]);
        for wrong in [plain.as_str(), &short, &short.replace("7e", "zz"), "sha1:00", "", "sha256:"]
        {
            assert!(fingerprint(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn refusals_never_repeat_a_secret() {
        for text in [
            "http://user:geheim@host",
            "http://user:geheim",
            "http://user:geheim/x@host:1",
            "http://user:geheim@host:geheim",
            "https://user:geheim@host",
            "http://user:geheim%zz@host:1",
            "user:geheim@host",
            "http://:geheim@host:1",
        ] {
            let error = read(text).unwrap_err();
            assert!(!error.contains("geheim"), "{text}: {error}");
        }
    }
}
