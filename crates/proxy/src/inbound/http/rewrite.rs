//! Forwarded heads: hop-by-hop fields removed, this relay's fields added.

use super::plan::{ForwardPlan, wants_upgrade};
use crate::outbound::ask::basic;
use crate::policy::upstream::Hop;
use crate::session::Session;
use crate::wire::http::BadMessage;
use crate::wire::http::body::Body;
use crate::wire::http::fields::{self, write_one};
use crate::wire::http::head::{Field, Request, Response, Version};

pub(super) fn request_head(
    session: &Session,
    plan: &ForwardPlan,
    body: Body,
    proxy: Option<&Hop>,
) -> Result<Vec<u8>, BadMessage> {
    let ForwardPlan { request, authority, path, .. } = plan;
    let mut head = Vec::with_capacity(512);
    let target = match proxy {
        // RFC 9112 §3.2.4: "*" is an empty path in absolute form
        Some(_) if path == "*" => format!("http://{authority}"),
        Some(_) => format!("http://{authority}{path}"),
        None => path.clone(),
    };
    head.extend(
        format!("{} {target} HTTP/1.1\r\nHost: {authority}\r\n", request.method).as_bytes(),
    );
    for field in fields::end_to_end(&request.fields)? {
        let ours = ["host", "content-length", "via"]
            .iter()
            .any(|name| field.name.eq_ignore_ascii_case(name));
        // HTTP/1.0 has no `Expect`
        let expects =
            field.name.eq_ignore_ascii_case("expect") && request.version == Version::Http10;
        if !ours && !expects {
            write_one(&mut head, &field.name, &field.value);
        }
    }
    for condition in plan.visit.iter().flat_map(|visit| visit.conditions()) {
        write_one(&mut head, &condition.name, &condition.value);
    }
    match body {
        Body::Length(n) => write_one(&mut head, "Content-Length", n.to_string().as_bytes()),
        Body::Chunked => write_one(&mut head, "Transfer-Encoding", b"chunked"),
        Body::None | Body::UntilClose => {}
    }
    write_one(&mut head, "Via", &via(session, request.version, &request.fields));
    if let Some(credentials) = proxy.and_then(|hop| hop.upstream.credentials.as_ref()) {
        write_one(&mut head, "Proxy-Authorization", basic(credentials).as_bytes());
    }
    if wants_upgrade(request) {
        for value in fields::values(&request.fields, "upgrade") {
            write_one(&mut head, "Upgrade", value);
        }
        write_one(&mut head, "Connection", b"upgrade");
    } else if fields::has(&request.fields, "te", "trailers") {
        write_one(&mut head, "TE", b"trailers");
        write_one(&mut head, "Connection", b"TE");
    }
    head.extend(b"\r\n");
    Ok(head)
}

/// The value of `Via` with this relay as its last hop (RFC 9110 §7.6.3).
pub(super) fn via(session: &Session, version: Version, all: &[Field]) -> Vec<u8> {
    let mut value = fields::values(all, "via").collect::<Vec<_>>().join(&b", "[..]);
    if !value.is_empty() {
        value.extend(b", ");
    }
    value.extend(format!("{} {}", version.number(), session.config.settings.name).as_bytes());
    value
}

pub(super) fn response_head(
    session: &Session,
    response: &Response,
    body: Body,
    client: Version,
    connection: Option<&str>,
) -> Result<Vec<u8>, BadMessage> {
    let mut head = Vec::with_capacity(512);
    head.extend(format!("HTTP/1.1 {} ", response.status).as_bytes());
    head.extend(&response.reason);
    head.extend(b"\r\n");
    // these responses have no body; a length could make the client wait for one (RFC 9110 §8.6)
    let no_length = matches!(response.status, 100..=199 | 204);
    for field in fields::end_to_end(&response.fields)? {
        let is = |name| field.name.eq_ignore_ascii_case(name);
        if is("via") || (no_length && is("content-length")) {
            continue;
        }
        write_one(&mut head, &field.name, &field.value);
    }
    if body == Body::Chunked && client == Version::Http11 {
        write_one(&mut head, "Transfer-Encoding", b"chunked");
    }
    write_one(&mut head, "Via", &via(session, response.version, &response.fields));
    if connection == Some("upgrade") {
        for value in fields::values(&response.fields, "upgrade") {
            write_one(&mut head, "Upgrade", value);
        }
    }
    if let Some(connection) = connection {
        write_one(&mut head, "Connection", connection.as_bytes());
    }
    head.extend(b"\r\n");
    Ok(head)
}

/// Decrements `Max-Forwards` of OPTIONS (RFC 9110 §7.6.2); false when the request ends here.
pub(super) fn max_forwards(request: &mut Request) -> Result<bool, BadMessage> {
    if request.method != "OPTIONS" {
        return Ok(true);
    }
    for field in &mut request.fields {
        if field.name.eq_ignore_ascii_case("max-forwards") {
            let text = std::str::from_utf8(&field.value).unwrap_or_default();
            let digits = text.bytes().all(|b| b.is_ascii_digit());
            let n: u32 = text
                .parse()
                .ok()
                .filter(|_| digits)
                .ok_or(BadMessage::bad("Max-Forwards is not a number"))?;
            if n == 0 {
                return Ok(false);
            }
            field.value = (n - 1).to_string().into_bytes();
        }
    }
    Ok(true)
}
