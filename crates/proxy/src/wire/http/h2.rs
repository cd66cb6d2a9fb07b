//! Heads between HTTP/2 and HTTP/1.1.

use super::fields::{self, write_one};
use super::head::{Response, is_token};
use bytes::Bytes;
use http::{HeaderMap, Method, header};

/// The `:protocol` of requests for UDP (RFC 9298 §3.4).
pub const CONNECT_UDP: &str = "connect-udp";

/// The protocol that an extended CONNECT asks for (RFC 8441 §4).
pub fn protocol(parts: &http::request::Parts) -> Option<&str> {
    parts.extensions.get::<h2::ext::Protocol>().map(h2::ext::Protocol::as_str)
}

/// The request in HTTP/1.1, if that can express it, and whether its body follows in chunks. `ended`: it
/// has no body. An extended CONNECT is a request to upgrade (RFC 8441 §5), if it
/// comes as `https`.
pub fn request_head(parts: &http::request::Parts, ended: bool) -> Option<(Vec<u8>, bool)> {
    let authority = parts.uri.authority()?.as_str();
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let protocol = protocol(parts);
    let (method, target) = match (&parts.method, protocol) {
        (&Method::CONNECT, None) => ("CONNECT", authority.to_owned()),
        (&Method::CONNECT, Some(protocol)) => {
            let is_secure = parts.uri.scheme_str() == Some("https");
            if !is_secure || protocol.is_empty() || !protocol.bytes().all(is_token) {
                return None;
            }
            ("GET", format!("https://{authority}{path}"))
        }
        (method, _) => {
            (method.as_str(), format!("{}://{authority}{path}", parts.uri.scheme_str()?))
        }
    };
    let mut head = format!("{method} {target} HTTP/1.1\r\nHost: {authority}\r\n").into_bytes();
    let mut cookies = Vec::new();
    for (name, value) in &parts.headers {
        // beyond ASCII, too (RFC 9110 §5.5)
        let value = value.as_bytes();
        // RFC 9113 §8.2.2, and §8.2.3 for cookies, which may come in parts
        match name.as_str() {
            "host" | "connection" | "keep-alive" | "proxy-connection" | "transfer-encoding"
            | "upgrade" | "te" => {}
            "cookie" => cookies.push(value),
            name => write_one(&mut head, name, value),
        }
    }
    if !cookies.is_empty() {
        write_one(&mut head, "cookie", &cookies.join(&b"; "[..]));
    }
    if parts.method == Method::CONNECT {
        if let Some(protocol) = protocol {
            head.extend(format!("Connection: Upgrade\r\nUpgrade: {protocol}\r\n").bytes());
        }
        head.extend(b"\r\n");
        return Some((head, false));
    }
    let chunks = !ended && !parts.headers.contains_key(header::CONTENT_LENGTH);
    if chunks {
        head.extend(b"Transfer-Encoding: chunked\r\n");
    }
    head.extend(b"Connection: close\r\n\r\n");
    Some((head, chunks))
}

/// The answer's head on the stream, without connection-specific fields (RFC 9113 §8.2.2). `counted` is kept until the
/// connection has written the head, if that has a field.
pub fn response_head<T>(response: &Response, tunnel: bool, counted: T) -> Option<http::Response<()>>
where
    T: Send + 'static,
{
    let mut head = http::Response::new(());
    *head.status_mut() = http::StatusCode::from_u16(response.status).ok()?;
    let mut headers = HeaderMap::new();
    for field in fields::end_to_end(&response.fields).ok()? {
        // RFC 9110 §9.3.6: a successful answer to CONNECT has no length
        if tunnel && response.status < 300 && field.name.eq_ignore_ascii_case("content-length") {
            continue;
        }
        let name = header::HeaderName::from_bytes(field.name.as_bytes()).ok()?;
        headers.append(name, header::HeaderValue::from_bytes(&field.value).ok()?);
    }
    // it is for this proxy's client, and hop-by-hop only in HTTP/1.1
    for value in fields::values(&response.fields, "proxy-authenticate") {
        headers.append(header::PROXY_AUTHENTICATE, header::HeaderValue::from_bytes(value).ok()?);
    }
    if let Some(shortest) = headers.values_mut().min_by_key(|value| value.len()) {
        let owner = Counted { bytes: shortest.as_bytes().to_vec(), _counted: counted };
        *shortest = header::HeaderValue::from_maybe_shared(Bytes::from_owner(owner)).ok()?;
        // or the table of fields (RFC 7541 §2.3.2) would keep the value, and what counts with it
        shortest.set_sensitive(true);
    }
    *head.headers_mut() = headers;
    Some(head)
}

/// A value of a head that waits to be written, and what counts the head.
struct Counted<T> {
    bytes: Vec<u8>,
    _counted: T,
}

impl<T> AsRef<[u8]> for Counted<T> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::http::head::{Field, Version};
    use http::Request;
    use std::sync::Arc;

    fn parts(method: &str, uri: &str, fields: &[(&str, &str)]) -> http::request::Parts {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn answers_keep_proxy_authenticate() {
        let field = |name: &str, value: &str| Field { name: name.into(), value: value.into() };
        let text = |status, fields| Response {
            status,
            reason: Vec::new(),
            version: Version::Http11,
            fields,
        };
        let who = text(
            407,
            vec![field("Proxy-Authenticate", "Basic realm=\"r\""), field("Connection", "close")],
        );
        let head = response_head(&who, true, ()).unwrap();
        assert_eq!(head.headers()["proxy-authenticate"], "Basic realm=\"r\"");
        assert!(!head.headers().contains_key("connection"));
        let fine = text(200, vec![field("Content-Length", "5")]);
        assert!(response_head(&fine, true, ()).unwrap().headers().is_empty());
        assert_eq!(response_head(&fine, false, ()).unwrap().headers()["content-length"], "5");
    }

    #[test]
    fn a_head_counts_until_it_is_written() {
        let field = |name: &str, value: &str| Field { name: name.into(), value: value.into() };
        let answer = Response {
            status: 200,
            reason: Vec::new(),
            version: Version::Http11,
            fields: vec![field("a", "1"), field("long", "12345"), field("b", "23")],
        };
        let counted = Arc::new(());
        let head = response_head(&answer, false, Arc::clone(&counted)).unwrap();
        assert_eq!(head.headers()["long"], "12345");
        let sensitive = head.headers().iter().filter(|(_, value)| value.is_sensitive());
        assert_eq!(sensitive.map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["a"]);
        assert_eq!(Arc::strong_count(&counted), 2);
        drop(head);
        assert_eq!(Arc::strong_count(&counted), 1);
    }

    #[test]
    fn an_extended_connect_asks_to_upgrade() {
        let path = "/.well-known/masque/udp/192.0.2.6/443/";
        let asked = |scheme: &str, protocol| {
            let uri = format!("{scheme}://relay.example{path}");
            let mut parts = parts("CONNECT", &uri, &[("capsule-protocol", "?1"), ("upgrade", "x")]);
            parts.extensions.insert(h2::ext::Protocol::from_static(protocol));
            request_head(&parts, false)
        };
        let text = format!(
            "GET https://relay.example{path} HTTP/1.1\r\nHost: relay.example\r\ncapsule-protocol: ?1\r\n\
             Connection: Upgrade\r\nUpgrade: connect-udp\r\n\r\n"
        );
        assert_eq!(asked("https", CONNECT_UDP), Some((text.into_bytes(), false)));
        assert_eq!(asked("http", CONNECT_UDP), None);
        assert_eq!(asked("https", "a\r\nb: c"), None);
    }

    #[test]
    fn translates_requests_to_http_1() {
        let connect = parts("CONNECT", "a.example:443", &[("proxy-authorization", "Basic QQ==")]);
        let text = "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\nproxy-authorization: Basic QQ==\r\n\r\n";
        assert_eq!(request_head(&connect, false), Some((text.into(), false)));
        let fields = [("cookie", "a=1"), ("te", "trailers"), ("cookie", "b=2")];
        let post = parts("POST", "http://a.example/x?y", &fields);
        let (head, chunks) = request_head(&post, false).unwrap();
        let head = String::from_utf8(head).unwrap();
        assert!(
            chunks && head.starts_with("POST http://a.example/x?y HTTP/1.1\r\nHost: a.example\r\n")
        );
        assert!(head.contains("\r\ncookie: a=1; b=2\r\n") && !head.contains("te:"), "{head}");
        let known = parts("POST", "http://a.example/", &[("content-length", "3")]);
        assert!(!request_head(&known, false).unwrap().1);
        let value = http::HeaderValue::from_bytes(b"caf\xe9").unwrap();
        let mut foreign = parts("GET", "http://a.example/", &[]);
        foreign.headers.insert("x", value);
        let head = request_head(&foreign, true).unwrap().0;
        assert!(head.windows(11).any(|part| part == b"\r\nx: caf\xe9\r\n"));
        assert!(!request_head(&parts("GET", "http://a.example/", &[]), true).unwrap().1);
        assert_eq!(request_head(&parts("GET", "/x", &[]), true), None);
    }
}
