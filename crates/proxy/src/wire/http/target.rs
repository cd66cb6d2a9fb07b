//! The request target in each of the four forms of RFC 9112 §3.2.

use super::fields::values;
use super::head::{Request, Version};
use crate::destination::{BadDestination, Destination};
use crate::wire::http::BadMessage;

/// A request's target with its destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// `CONNECT host:port`.
    Tunnel(Destination),
    /// `GET http://host/path`: the destination, and the target in origin form.
    Forward {
        /// Host and port.
        destination: Destination,
        /// The value of `Host` in the forwarded request.
        authority: String,
        /// `/path?query`, or `*`.
        path: String,
    },
}

/// Reads the target, a form for proxies with a clear destination, and checks the one `Host`, which must be that of a
/// CONNECT.
pub fn of_request(request: &Request) -> Result<Target, BadMessage> {
    let host = host_field(request)?;
    if request.method == "CONNECT" {
        let destination = Destination::parse(&request.target, None).map_err(explain)?;
        if let Some(host) = host.filter(|host| !host.is_empty()) {
            // some clients omit the port here
            let named = Destination::parse(host, Some(destination.port)).map_err(explain)?;
            if named.host != destination.host {
                return Err(BadMessage::bad("Host and the target of CONNECT differ"));
            }
        }
        return Ok(Target::Tunnel(destination));
    }
    let Some((scheme, rest)) = request.target.split_once("://") else {
        return Err(BadMessage::bad(
            "this is a proxy: it takes absolute targets (http://host/path) and CONNECT; set it as your proxy instead of opening it",
        ));
    };
    if !scheme.eq_ignore_ascii_case("http") {
        return Err(BadMessage {
            status: 501,
            what: "only http:// is forwarded; for https use CONNECT, as browsers do by themselves",
        });
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    if path.contains('#') {
        return Err(BadMessage::bad("the target has a fragment, which is never sent"));
    }
    let destination = Destination::parse(authority, Some(80)).map_err(explain)?;
    if let Some(host) = host {
        // it must be one, and then the target's replaces it (RFC 9112 §3.2.2)
        Destination::parse(host, Some(80)).map_err(explain)?;
    }
    let path = match (path, request.method.as_str()) {
        // RFC 9112 §3.2.4
        ("", "OPTIONS") => "*".to_owned(),
        (path, _) if path.starts_with('/') => path.to_owned(),
        (query, _) => format!("/{query}"),
    };
    let authority = match destination.port {
        80 => destination.host.to_string(),
        _ => destination.to_string(),
    };
    Ok(Target::Forward { destination, authority, path })
}

fn host_field(request: &Request) -> Result<Option<&str>, BadMessage> {
    let mut hosts = values(&request.fields, "host");
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err(BadMessage::bad("Host occurs more than once"));
    }
    match host {
        None if request.version == Version::Http11 => Err(BadMessage::bad("Host is missing")),
        None => Ok(None),
        Some(host) => {
            std::str::from_utf8(host).map(Some).map_err(|_| BadMessage::bad("Host is not text"))
        }
    }
}

fn explain(bad: BadDestination) -> BadMessage {
    BadMessage::bad(match bad {
        BadDestination::NoHost => "the host is missing",
        BadDestination::BadName => "the host name has a character that host names do not have",
        BadDestination::TooLong => "the host name is too long",
        BadDestination::OddAddress => {
            "the host looks like an address but is not written as one; write a.b.c.d in decimal"
        }
        BadDestination::BadPort => "the port is missing, or not a number from 1 to 65535",
        BadDestination::BadBrackets => "an IPv6 address needs brackets: [2001:db8::1]:80",
        BadDestination::Credentials => "credentials in the target are not accepted",
    })
}

#[cfg(test)]
mod tests {
    use super::super::head::{Limits, read_request};
    use super::*;

    fn target(line: &str, host: &str) -> Result<String, &'static str> {
        let text = format!("{line} HTTP/1.1\r\n{host}\r\n");
        let limits = Limits { bytes: 1000, fields: 10 };
        let request = read_request(text.as_bytes(), limits).unwrap().unwrap().0;
        of_request(&request)
            .map(|target| match target {
                Target::Tunnel(to) => format!("tunnel {to}"),
                Target::Forward { destination, authority, path } => {
                    format!("{destination} {authority} {path}")
                }
            })
            .map_err(|bad| bad.what)
    }

    #[test]
    fn reads_the_forms_of_a_proxy() {
        for (line, host, read) in [
            (
                "GET http://Example.ORG/a?b",
                "Host: example.org\r\n",
                "example.org:80 example.org /a?b",
            ),
            (
                "GET http://example.org:8080",
                "Host: example.org:8080\r\n",
                "example.org:8080 example.org:8080 /",
            ),
            (
                "GET http://example.org?q",
                "Host: example.org:80\r\n",
                "example.org:80 example.org /?q",
            ),
            ("OPTIONS http://example.org", "Host: example.org\r\n", "example.org:80 example.org *"),
            (
                "GET http://[2001:db8::1]/",
                "Host: [2001:db8::1]\r\n",
                "[2001:db8::1]:80 [2001:db8::1] /",
            ),
            ("GET http://example.org/", "Host: other:81\r\n", "example.org:80 example.org /"),
            ("GET http://example.org:/", "Host: example.org:\r\n", "example.org:80 example.org /"),
            ("CONNECT example.org:443", "Host: example.org:443\r\n", "tunnel example.org:443"),
            ("CONNECT example.org:443", "Host: example.org\r\n", "tunnel example.org:443"),
        ] {
            assert_eq!(target(line, host), Ok(read.to_owned()), "{line}");
        }
    }

    #[test]
    fn refuses_everything_else() {
        for (line, host, why) in [
            ("GET /", "Host: a\r\n", "this is a proxy"),
            ("GET *", "Host: a\r\n", "this is a proxy"),
            ("GET https://a/", "Host: a\r\n", "only http"),
            ("GET ftp://a/", "Host: a\r\n", "only http"),
            ("GET http://a/", "", "Host is missing"),
            ("GET http://a/", "Host: a\r\nHost: a\r\n", "more than once"),
            ("GET http://a/", "Host: b c\r\n", "host names do not have"),
            ("GET http://a/", "Host:\r\n", "host is missing"),
            ("GET http://u:p@a/", "Host: a\r\n", "credentials"),
            ("GET http:///", "Host: a\r\n", "host is missing"),
            ("GET http://a/#f", "Host: a\r\n", "fragment"),
            ("CONNECT a", "Host: a\r\n", "port"),
            ("CONNECT a:", "Host: a:\r\n", "port"),
            ("CONNECT a:443", "Host: b:443\r\n", "differ"),
            ("CONNECT http://a/", "Host: a\r\n", ""),
            ("GET http://0x7f.1/", "Host: 0x7f.1\r\n", "looks like an address"),
        ] {
            let what = target(line, host).unwrap_err();
            assert!(what.contains(why), "{line}: {what}");
        }
    }
}
