//! The end of a body: unambiguous, or the message is refused (RFC 9112 §6).

use super::fields::values;
use super::head::{Field, Request, Response, Version};
use crate::wire::http::BadMessage;

/// How a body is delimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    /// No body.
    None,
    /// This many bytes.
    Length(u64),
    /// In chunks.
    Chunked,
    /// Up to the end of the connection; only for responses.
    UntilClose,
}

/// The body of a request. Errors: both `Content-Length` and `Transfer-Encoding`, several or
/// malformed lengths, or a coding other than `chunked`.
pub fn of_request(request: &Request) -> Result<Body, BadMessage> {
    Ok(delimited(request.version, &request.fields)?.unwrap_or(Body::None))
}

/// The body of a response to a request with `method`; fails as [`of_request`].
pub fn of_response(method: &str, response: &Response) -> Result<Body, BadMessage> {
    let delimited = delimited(response.version, &response.fields)?;
    if method == "HEAD" || matches!(response.status, 100..=199 | 204 | 304) {
        return Ok(Body::None);
    }
    Ok(delimited.unwrap_or(Body::UntilClose))
}

fn delimited(version: Version, fields: &[Field]) -> Result<Option<Body>, BadMessage> {
    let mut lengths = values(fields, "content-length");
    let length = lengths.next();
    if lengths.next().is_some() {
        return Err(BadMessage::bad("Content-Length occurs more than once"));
    }
    let coded = values(fields, "transfer-encoding").next().is_some();
    match (length, coded) {
        (Some(_), true) => {
            Err(BadMessage::bad("Content-Length and Transfer-Encoding occur together"))
        }
        (Some(length), false) => parse_length(length).map(|n| Some(Body::Length(n))),
        (None, true) => codings(version, fields).map(Some),
        (None, false) => Ok(None),
    }
}

/// Decimal digits only, up to 2⁶³ − 1.
fn parse_length(text: &[u8]) -> Result<u64, BadMessage> {
    let wrong = BadMessage::bad("Content-Length is not a number");
    if text.is_empty() || text.len() > 19 || !text.iter().all(u8::is_ascii_digit) {
        return Err(wrong);
    }
    let digits = std::str::from_utf8(text).map_err(|_| wrong.clone())?;
    digits.parse::<i64>().map(i64::cast_unsigned).map_err(|_| wrong)
}

fn codings(version: Version, fields: &[Field]) -> Result<Body, BadMessage> {
    if version == Version::Http10 {
        return Err(BadMessage::bad("Transfer-Encoding in an HTTP/1.0 message"));
    }
    // empty elements too: squid takes ",chunked" in a response for no coding
    let mut codings =
        values(fields, "transfer-encoding").flat_map(|value| value.split(|b| *b == b','));
    match (codings.next(), codings.next()) {
        (Some(coding), None) if coding.eq_ignore_ascii_case(b"chunked") => Ok(Body::Chunked),
        (Some(coding), None) if !coding.is_empty() => {
            Err(BadMessage { status: 501, what: "the only supported transfer coding is chunked" })
        }
        _ => Err(BadMessage::bad("Transfer-Encoding is not \"chunked\" alone")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::head::{Limits, read_request, read_response};
    use super::*;

    const LIMITS: Limits = Limits { bytes: 1000, fields: 10 };

    fn request(fields: &str) -> Result<Body, BadMessage> {
        let text = format!("POST http://a/ HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        of_request(&read_request(text.as_bytes(), LIMITS).unwrap().unwrap().0)
    }

    fn response(method: &str, head: &str) -> Result<Body, BadMessage> {
        of_response(method, &read_response(head.as_bytes(), LIMITS).unwrap().unwrap().0)
    }

    #[test]
    fn frames_request_bodies() {
        assert_eq!(request(""), Ok(Body::None));
        assert_eq!(request("Content-Length: 0\r\n"), Ok(Body::Length(0)));
        assert_eq!(request("Content-Length: 42\r\n"), Ok(Body::Length(42)));
        assert_eq!(request("Transfer-Encoding: Chunked\r\n"), Ok(Body::Chunked));
        for (bad, status) in [
            ("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n", 400),
            ("Content-Length: 1\r\nContent-Length: 1\r\n", 400),
            ("Content-Length: 1, 1\r\n", 400),
            ("Content-Length: +1\r\n", 400),
            ("Content-Length: -1\r\n", 400),
            ("Content-Length: 0x1\r\n", 400),
            ("Content-Length: 1 1\r\n", 400),
            ("Content-Length:\r\n", 400),
            ("Content-Length: 9999999999999999999\r\n", 400),
            ("Content-Length: 99999999999999999999\r\n", 400),
            ("Transfer-Encoding: gzip, chunked\r\n", 400),
            ("Transfer-Encoding: chunked, chunked\r\n", 400),
            ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", 400),
            ("Transfer-Encoding: ,chunked\r\n", 400),
            ("Transfer-Encoding: chunked,\r\n", 400),
            ("Transfer-Encoding: identity\r\n", 501),
            ("Transfer-Encoding: xchunked\r\n", 501),
            ("Transfer-Encoding:\r\n", 400),
        ] {
            assert_eq!(request(bad).unwrap_err().status, status, "{bad}");
        }
    }

    #[test]
    fn frames_response_bodies() {
        let with_length = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
        assert_eq!(response("GET", with_length), Ok(Body::Length(5)));
        assert_eq!(response("HEAD", with_length), Ok(Body::None));
        assert_eq!(response("GET", "HTTP/1.1 304 -\r\nContent-Length: 5\r\n\r\n"), Ok(Body::None));
        assert_eq!(response("GET", "HTTP/1.1 200 OK\r\n\r\n"), Ok(Body::UntilClose));
        assert!(response("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 5, 6\r\n\r\n").is_err());
        for coding in [",chunked", "chunked,", ""] {
            let head = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: {coding}\r\n\r\n");
            assert!(response("GET", &head).is_err(), "{coding}");
        }
    }
}
