//! The relay's own answers: what happened, on whose side, what to try.

use super::head::Version;
use ekiden_model::units::Span;

/// The reason phrases of this relay's statuses.
pub const fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        405 => "Method Not Allowed",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        421 => "Misdirected Request",
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

/// Why a client gets no answer but the relay's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal<'a> {
    /// The HTTP status.
    pub status: u16,
    /// The error type in `Proxy-Status` (RFC 9209 §2.3).
    pub error: &'static str,
    /// What happened, on whose side, and what to try.
    pub text: &'a str,
    /// When to try again, in `Retry-After` and in words.
    pub retry_after: Option<Span>,
}

impl<'a> Refusal<'a> {
    /// One whose error type follows from its status.
    pub const fn new(status: u16, text: &'a str) -> Self {
        let error = match status {
            403 | 407 | 429 => "http_request_denied",
            502 => "destination_unavailable",
            503 => "connection_limit_reached",
            504 => "connection_timeout",
            508 => "proxy_loop_detected",
            _ => "http_request_error",
        };
        Self { status, error, text, retry_after: None }
    }

    /// A complete response in plain text, without a body for HEAD. It begins with `name`, the relay's
    /// pseudonym, to show which proxy of a chain answered.
    pub fn response(&self, name: &str, head_only: bool) -> Vec<u8> {
        let Self { status, error, text, retry_after } = self;
        let mut body = format!("{name}: {text}");
        let mut more = match status {
            405 => "Allow: GET, HEAD, POST, PUT, DELETE, OPTIONS, PATCH, CONNECT\r\n".to_owned(),
            // RFC 9110 §11.7.1, RFC 7617 §2.1; `name` is a token, so it needs no quoting
            407 => format!("Proxy-Authenticate: Basic realm=\"{name}\", charset=\"UTF-8\"\r\n"),
            _ => String::new(),
        };
        if let Some(after) = retry_after {
            // whole seconds, RFC 9110 §10.2.3
            let seconds = after.as_nanos().div_ceil(1_000_000_000).max(1);
            body += &format!("; try again in {}", in_words(seconds));
            more += &format!("Retry-After: {seconds}\r\n");
        }
        body.push('\n');
        let head = format!(
            "HTTP/1.1 {status} {}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nCache-Control: no-store\r\nProxy-Status: {name}; error={error}\r\n{more}Connection: close\r\n\r\n",
            reason(*status),
            body.len(),
        );
        let mut bytes = head.into_bytes();
        if !head_only {
            bytes.extend(body.as_bytes());
        }
        bytes
    }
}

/// Rounded up, so that nobody comes back too early; in two units, so that nobody waits an hour too long.
fn in_words(seconds: u64) -> String {
    let both = |n: u64, per: u64, unit: &str, part: &str| match n % per {
        0 => format!("{} {unit}", n / per),
        rest => format!("{} {unit} {rest} {part}", n / per),
    };
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} minutes", seconds.div_ceil(60)),
        7_200..172_800 => both(seconds.div_ceil(60), 60, "h", "min"),
        _ => both(seconds.div_ceil(3_600), 24, "d", "h"),
    }
}

/// The answer to a successful CONNECT.
pub const fn connected(version: Version) -> &'static [u8] {
    match version {
        Version::Http10 => b"HTTP/1.0 200 Connection established\r\n\r\n",
        Version::Http11 => b"HTTP/1.1 200 Connection established\r\n\r\n",
    }
}

/// The answer to a request for UDP (RFC 9298 §3.3).
pub const fn udp_connected() -> &'static [u8] {
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: connect-udp\r\nCapsule-Protocol: ?1\r\n\r\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(refusal: &Refusal<'_>) -> String {
        String::from_utf8(refusal.response("ekiden-1", false)).unwrap()
    }

    #[test]
    fn a_407_names_the_scheme() {
        let text = response(&Refusal::new(407, "who are you?"));
        assert!(text.starts_with("HTTP/1.1 407 Proxy Authentication Required\r\n"));
        let scheme = "\r\nProxy-Authenticate: Basic realm=\"ekiden-1\", charset=\"UTF-8\"\r\n";
        assert!(text.contains(scheme));
    }

    #[test]
    fn a_refusal_names_the_relay_and_the_reason() {
        let text = response(&Refusal::new(403, "10.0.0.1 is a private address"));
        assert!(text.starts_with("HTTP/1.1 403 Forbidden\r\n"));
        assert!(text.ends_with("\r\n\r\nekiden-1: 10.0.0.1 is a private address\n"));
        let body = text.split("\r\n\r\n").nth(1).unwrap();
        assert!(text.contains(&format!("Content-Length: {}\r\n", body.len())));
        assert!(!text.contains("Retry-After"));
    }

    #[test]
    fn says_when_to_try_again_in_whole_seconds() {
        let retry_after = Some(Span::from_millis(1_200));
        let text = response(&Refusal { retry_after, ..Refusal::new(429, "too many connections") });
        assert!(text.contains("\r\nRetry-After: 2\r\n"), "{text}");
        assert!(text.ends_with("ekiden-1: too many connections; try again in 2 s\n"), "{text}");
        let words = [119, 121, 7_201, 14_580, 90_000, 200_000].map(in_words);
        assert_eq!(words, ["119 s", "3 minutes", "2 h 1 min", "4 h 3 min", "25 h", "2 d 8 h"]);
    }
}
