//! Requests for the relay itself, on the proxy's own port: the script for browsers and the page for users.
//!
//! They come in origin form. Within TLS they come in absolute form too, as HTTP/2 writes every request: the relay
//! forwards no `https://` target, so one that has the relay's own name asks the relay.

use crate::destination::{Destination, Host};
use crate::session::Session;
use crate::wire::http::fields;
use crate::wire::http::head::{Field, Request};

/// Where the form for the own password is.
pub(super) const PASSWORD: &str = "/?password";
/// What a part of the speed test is behind.
pub(super) const SPEED: &str = "/?speed=";

/// What is asked of the relay itself.
pub(super) struct OwnRequest<'a> {
    /// Path and query.
    pub(super) target: &'a str,
    /// `host:port` by which the client reached this relay: as it says, else by address.
    pub(super) proxy: String,
    pub(super) tls: bool,
}

/// The proxy that devices are told to use.
pub(super) struct Offered {
    /// `host:port`.
    pub(super) proxy: String,
    pub(super) tls: bool,
}

impl<'a> OwnRequest<'a> {
    /// The proxy for devices that come as this client does: where it was reached, or by TLS on the same port where
    /// nothing else serves them. `None`: nothing does that is known here.
    pub(super) fn offered(&self, session: &Session) -> Option<Offered> {
        if !session.needs_tls() {
            return Some(Offered { proxy: self.proxy.clone(), tls: self.tls });
        }
        let certificate = session.config.certificate.as_ref()?;
        let (host, port) = self.proxy.rsplit_once(':')?;
        let name = certificate.name_for(host)?;
        Some(Offered { proxy: format!("{name}:{port}"), tls: true })
    }

    /// The request, if it reads something of the relay itself, or sends a new password or bytes of the speed test.
    pub(super) fn of(session: &Session, request: &'a Request) -> Option<Self> {
        match request.method.as_str() {
            "GET" | "HEAD" => Self::at(session, request),
            "POST" => Self::at(session, request)
                .filter(|own| own.target == PASSWORD || own.target.starts_with(SPEED)),
            _ => None,
        }
    }

    /// The request, if its target is at the relay itself.
    pub(super) fn at(session: &Session, request: &'a Request) -> Option<Self> {
        let tls = session.tls.is_some();
        if request.target.starts_with('/') {
            let proxy = reached_at(session, request, tls)?;
            return Some(Self { target: &request.target, proxy, tls });
        }
        let (authority, target) = https(&request.target).filter(|_| tls)?;
        let to = Destination::parse(authority, Some(443)).ok()?;
        is_own(&to.host, session.tls_name.as_deref()).then(|| Self {
            target,
            proxy: to.to_string(),
            tls,
        })
    }
}

/// Authority, and path with query, of an `https://` target.
pub(super) fn https(target: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = target.split_once("://")?;
    if !scheme.eq_ignore_ascii_case("https") {
        return None;
    }
    match rest.find('/') {
        Some(at) => Some(rest.split_at(at)),
        None => Some((rest, "/")),
    }
}

/// Whether a host is the one that the client's TLS asked for: by name, or none because it was an address (RFC 6066 §3).
/// The address and the port may be others here, where a router on the way changes them.
fn is_own(host: &Host, asked: Option<&str>) -> bool {
    match (host, asked) {
        (Host::Address(_), None) => true,
        (Host::Name(name), Some(asked)) => {
            name.trim_end_matches('.').eq_ignore_ascii_case(asked.trim_end_matches('.'))
        }
        _ => false,
    }
}

fn reached_at(session: &Session, request: &Request, tls: bool) -> Option<String> {
    let port = if tls { 443 } else { 80 };
    let reached = match host(&request.fields, port) {
        Ok(Some(host)) => host,
        // within TLS the connection is one of loopback
        Ok(None) if !tls => session.client.local_addr().ok().map(Destination::from)?,
        Ok(None) | Err(BadHost) => return None,
    };
    Some(reached.to_string())
}

/// A `Host` that this relay cannot read, or more than one. A browser may read it as a name that leads here (DNS
/// rebinding), so it counts neither as the relay's own nor as absent.
#[derive(Debug, PartialEq, Eq)]
struct BadHost;

/// The one `Host` of a request, or `None` where it has none, as requests of HTTP/1.0 may.
fn host(fields: &[Field], port: u16) -> Result<Option<Destination>, BadHost> {
    let mut hosts = fields::values(fields, "host");
    let Some(host) = hosts.next() else { return Ok(None) };
    if hosts.next().is_some() {
        return Err(BadHost);
    }
    let host = std::str::from_utf8(host).map_err(|_| BadHost)?;
    Destination::parse(host, Some(port)).map(Some).map_err(|_| BadHost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_relays_own_name_is_the_one_that_tls_asked_for() {
        let is =
            |host: &str, asked| is_own(&Destination::parse(host, Some(1)).unwrap().host, asked);
        assert!(is("relay.example", Some("relay.example")) && is("RELAY.", Some("relay")));
        assert!(is("192.0.2.1", None) && is("[2001:db8::1]", None));
        assert!(!is("other.example", Some("relay.example")) && !is("relay.example", None));
        assert!(!is("192.0.2.1", Some("relay.example")));
    }

    #[test]
    fn a_host_that_cannot_be_read_is_not_an_absent_one() {
        let read = |hosts: &[&[u8]]| {
            let field = |host: &&[u8]| Field { name: "Host".to_owned(), value: host.to_vec() };
            let fields: Vec<Field> = hosts.iter().map(field).collect();
            host(&fields, 80).map(|host| host.map(|host| host.to_string()))
        };
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&[b"relay"]), Ok(Some("relay:80".to_owned())));
        let bad: [&[&[u8]]; 6] = [
            &[b"a+b.evil.example:3128"],
            &[b"127.1:3128"],
            &[b"relay:3128", b"relay:3128"],
            &[b"relay:3128", b"evil.example"],
            &[b"\xff.evil.example"],
            &[b""],
        ];
        for hosts in bad {
            assert_eq!(read(hosts), Err(BadHost), "{hosts:?}");
        }
    }

    #[test]
    fn targets_in_absolute_form_have_a_path() {
        assert_eq!(https("https://relay:3128/?login"), Some(("relay:3128", "/?login")));
        assert_eq!(https("HTTPS://relay"), Some(("relay", "/")));
        assert_eq!((https("http://relay/"), https("/")), (None, None));
    }
}
