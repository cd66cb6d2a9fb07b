//! The relay's own answers: what happened, on whose side, what to try.

use super::head::Version;
use ekiden_model::units::Span;

/// The reason phrases of this relay's statuses.
pub const fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        403 => "Forbidden",
        405 => "Method Not Allowed",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        508 => "Loop Detected",
        _ => "Refused",
    }
}

/// A complete response in plain text, without a body for HEAD. It begins with `name`, the relay's
/// pseudonym, to show which proxy of a chain answered.
pub fn refusal(status: u16, name: &str, text: &str, keep_alive: bool, head_only: bool) -> Vec<u8> {
    let body = format!("{name}: {text}\n");
    let connection = if keep_alive { "keep-alive" } else { "close" };
    let more = match status {
        405 => "Allow: GET, HEAD, POST, PUT, DELETE, OPTIONS, PATCH, CONNECT\r\n".to_owned(),
        // RFC 9110 §11.7.1, RFC 7617 §2.1; `name` is a token, so it needs no quoting
        407 => format!("Proxy-Authenticate: Basic realm=\"{name}\", charset=\"UTF-8\"\r\n"),
        _ => String::new(),
    };
    let head = format!(
        "HTTP/1.1 {status} {}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nCache-Control: no-store\r\nProxy-Status: {name}; error={}\r\n{more}Connection: {connection}\r\n\r\n",
        reason(status),
        body.len(),
        proxy_error(status),
    );
    let mut bytes = head.into_bytes();
    if !head_only {
        bytes.extend(body.as_bytes());
    }
    bytes
}

/// A refusal with the time after which to try again, in whole seconds (RFC 9110 §10.2.3).
pub(crate) fn later(
    status: u16,
    name: &str,
    text: &str,
    retry_after: Span,
    head_only: bool,
) -> Vec<u8> {
    let seconds = retry_after.as_nanos().div_ceil(1_000_000_000).max(1);
    let text = format!("{text}; try again in {seconds} s");
    let refusal = refusal(status, name, &text, false, head_only);
    let field = format!("\r\nRetry-After: {seconds}\r\nConnection:");
    String::from_utf8_lossy(&refusal).replacen("\r\nConnection:", &field, 1).into_bytes()
}

/// The error type in `Proxy-Status` (RFC 9209 §2.3).
const fn proxy_error(status: u16) -> &'static str {
    match status {
        403 => "destination_ip_prohibited",
        407 | 429 => "http_request_denied",
        502 => "destination_unavailable",
        503 => "connection_limit_reached",
        504 => "connection_timeout",
        508 => "proxy_loop_detected",
        _ => "http_request_error",
    }
}

/// The answer to a successful CONNECT.
pub const fn connected(version: Version) -> &'static [u8] {
    match version {
        Version::Http10 => b"HTTP/1.0 200 Connection established\r\n\r\n",
        Version::Http11 => b"HTTP/1.1 200 Connection established\r\n\r\n",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_407_names_the_scheme() {
        let text =
            String::from_utf8(refusal(407, "ekiden-1", "who are you?", false, false)).unwrap();
        assert!(text.starts_with("HTTP/1.1 407 Proxy Authentication Required\r\n"));
        assert!(
            text.contains(
                "\r\nProxy-Authenticate: Basic realm=\"ekiden-1\", charset=\"UTF-8\"\r\n"
            )
        );
    }

    #[test]
    fn a_refusal_names_the_relay_and_the_reason() {
        let text = refusal(403, "ekiden-1", "10.0.0.1 is a private address", true, false);
        let text = String::from_utf8(text).unwrap();
        assert!(text.starts_with("HTTP/1.1 403 Forbidden\r\n"));
        assert!(text.ends_with("\r\n\r\nekiden-1: 10.0.0.1 is a private address\n"));
        let body = text.split("\r\n\r\n").nth(1).unwrap();
        assert!(text.contains(&format!("Content-Length: {}\r\n", body.len())));
    }
}
