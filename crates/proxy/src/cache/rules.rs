//! The caching rules (RFC 9111). Before `http-cache-semantics` computes freshness, this code joins
//! repeated fields, normalizes dates and directives, and sets `Age` to the age on arrival (§4.2.3).

use super::directives::directives;
use super::freshness;
use crate::wire::http::body::Body;
use crate::wire::http::fields::{elements, end_to_end, has, values};
use crate::wire::http::head::{Field, Request, Response};
use http::header::{
    AGE, CACHE_CONTROL, DATE, EXPIRES, HOST, HeaderMap, HeaderName, HeaderValue, LAST_MODIFIED,
    PRAGMA, VARY,
};
use http::{Method, StatusCode, Uri, request, response};
use http_cache_semantics::CachePolicy;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Larger ages count as this age (RFC 9111 §1.2.2).
const OLDEST: u64 = 1 << 31;

/// Clocks are set back by less than this without harm: a response is fresh for as much longer.
const SET_BACK: Duration = Duration::from_secs(10);
/// 2177 years: a response that is fresh for longer is fresh whatever the clock shows.
const FOREVER: Duration = Duration::from_secs(1 << 36);

/// Responses that vary by more fields are not kept: each request would be compared by all of them.
const MOST_VARIED: usize = 32;

/// Why a request is forwarded (RFC 9211 §2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ForwardReason {
    /// The cache does not handle it.
    Bypass,
    Method,
    UriMiss,
    VaryMiss,
    /// The cached response is fresh, but the client wants it validated.
    Request,
    Stale,
}

impl ForwardReason {
    pub(super) const fn token(self) -> &'static str {
        match self {
            Self::Bypass => "bypass",
            Self::Method => "method",
            Self::UriMiss => "uri-miss",
            Self::VaryMiss => "vary-miss",
            Self::Request => "request",
            Self::Stale => "stale",
        }
    }
}

/// Whether the cache handles a request.
pub(super) fn concerns(request: &Request, body: Body) -> Result<(), ForwardReason> {
    if !matches!(request.method.as_str(), "GET" | "HEAD") {
        return Err(ForwardReason::Method);
    }
    // with credentials, a response may be private; parts and preconditions are for the origin
    const NOT_OURS: [&str; 8] = [
        "authorization",
        "cookie",
        "range",
        "if-range",
        "if-match",
        "if-unmodified-since",
        "upgrade",
        "expect",
    ];
    let ours = NOT_OURS.iter().all(|name| values(&request.fields, name).next().is_none());
    if ours && body == Body::None { Ok(()) } else { Err(ForwardReason::Bypass) }
}

/// Whether the client accepts only a cached response (RFC 9111 §5.2.1.7).
pub(crate) fn only_if_cached(request: &Request) -> bool {
    has(&request.fields, "cache-control", "only-if-cached")
}

/// Whether the client wants the answer not to be kept (RFC 9111 §5.2.1.5).
pub(super) fn asks_no_store(request: &Request) -> bool {
    has(&request.fields, "cache-control", "no-store")
}

/// Whether the client wants its own copy validated.
pub(super) fn is_conditional(request: &Request) -> bool {
    ["if-none-match", "if-modified-since"]
        .iter()
        .any(|name| values(&request.fields, name).next().is_some())
}

/// A request for `http-cache-semantics`, with HEAD as GET. `None` where it cannot be expressed.
pub(super) fn request_parts(url: &str, request: &Request) -> Option<request::Parts> {
    let (mut parts, ()) = http::Request::new(()).into_parts();
    parts.method = Method::GET;
    parts.uri = url.parse::<Uri>().ok()?;
    // fields that `Connection` names do not reach the origin, so they select nothing
    parts.headers = normalised(&end_to_end(&request.fields).ok()?)?;
    // the URL has the host
    parts.headers.remove(HOST);
    Some(parts)
}

/// Keeps only the request fields that later requests are compared by.
fn essential(request: &request::Parts, vary: &[String]) -> request::Parts {
    let mut headers = HeaderMap::new();
    for (name, value) in &request.headers {
        let selects = vary.iter().any(|field| name.as_str() == field);
        if selects || name.as_str() == "cache-control" || name.as_str() == "pragma" {
            headers.insert(name.clone(), value.clone());
        }
    }
    let (mut parts, ()) = http::Request::new(()).into_parts();
    (parts.method, parts.uri, parts.headers) =
        (request.method.clone(), request.uri.clone(), headers);
    parts
}

/// A response for `http-cache-semantics`, requested and received at these times.
pub(super) fn response_parts(
    response: &Response,
    asked: SystemTime,
    arrived: SystemTime,
) -> Option<response::Parts> {
    let mut headers = normalised(&response.fields)?;
    let seconds = |name| headers.get(name).and_then(|v: &HeaderValue| v.to_str().ok());
    // RFC 9111 §5.1: the first value counts, and a value that is not a number is ignored
    let announced =
        seconds(AGE).and_then(|text| text.split(',').next()?.trim().parse::<u64>().ok());
    let delay = arrived.duration_since(asked).unwrap_or_default().as_secs();
    let date = seconds(DATE).and_then(|text| httpdate::parse_http_date(text).ok());
    let apparent = date.and_then(|date| arrived.duration_since(date).ok()).unwrap_or_default();
    let age = announced.unwrap_or_default().min(OLDEST).saturating_add(delay);
    let age = age.max(apparent.as_secs()).min(OLDEST);
    headers.insert(AGE, HeaderValue::from(age));
    let (mut parts, ()) = http::Response::new(()).into_parts();
    (parts.status, parts.headers) = (StatusCode::from_u16(response.status).ok()?, headers);
    Some(parts)
}

fn normalised(fields: &[Field]) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for field in fields {
        let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
        if headers.contains_key(&name) {
            continue;
        }
        let all: Vec<&[u8]> = values(fields, &field.name).collect();
        let mut value = all.join(&b", "[..]);
        if name == CACHE_CONTROL || name == PRAGMA || name == VARY {
            value.make_ascii_lowercase();
            // a field with a non-ASCII byte would be ignored as a whole
            value.iter_mut().filter(|byte| !byte.is_ascii()).for_each(|byte| *byte = b'?');
            if name == CACHE_CONTROL {
                value = directives(&value);
            } else if name == PRAGMA {
                let says =
                    value.split(|byte| *byte == b',').any(|one| one.trim_ascii() == b"no-cache");
                value = if says { b"no-cache".into() } else { Vec::new() };
            }
        } else if name == DATE || name == EXPIRES || name == LAST_MODIFIED {
            match one_form(&value) {
                Some(date) => value = date,
                // an invalid date lies in the past (RFC 9111 §5.3); elsewhere it is ignored
                None if name == EXPIRES => value = b"0".into(),
                None => continue,
            }
        }
        headers.insert(name, HeaderValue::from_bytes(&value).ok()?);
    }
    Some(headers)
}

/// A date in the preferred format (RFC 9110 §5.6.7).
fn one_form(value: &[u8]) -> Option<Vec<u8>> {
    let date = httpdate::parse_http_date(std::str::from_utf8(value).ok()?).ok()?;
    Some(httpdate::fmt_http_date(date).into_bytes())
}

/// The request fields that a response varies by, in lower case, sorted, each once; `None` for `*`, for what names no
/// fields, and for too many.
pub(super) fn varies_by(response: &Response) -> Option<Vec<String>> {
    let mut names: Vec<String> = elements(&response.fields, "vary")
        .map(|name| String::from_utf8_lossy(name).to_ascii_lowercase())
        .collect();
    names.sort();
    names.dedup();
    let is_field = |name: &String| name != "*" && HeaderName::from_bytes(name.as_bytes()).is_ok();
    (names.len() <= MOST_VARIED && names.iter().all(is_field)).then_some(names)
}

/// Bytes that a policy keeps of the request.
fn kept_of(request: &request::Parts) -> usize {
    let fields =
        request.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 128);
    // the library has the URI, and an entry its key
    3 * (request.uri.path().len() + request.uri.query().map_or(0, str::len)) + fields.sum::<usize>()
}

/// A policy, and what it keeps of the request, in bytes.
#[derive(Debug)]
pub(super) struct Policy {
    pub(super) policy: CachePolicy,
    pub(super) beside: usize,
}

pub(super) fn policy(
    request: &request::Parts,
    response: &Response,
    asked: SystemTime,
    arrived: SystemTime,
) -> Option<Policy> {
    let vary = varies_by(response)?;
    let set_cookie = values(&response.fields, "set-cookie").next().is_some();
    if set_cookie || response.status == 206 {
        return None;
    }
    let parts = response_parts(response, asked, arrived)?;
    let request = essential(request, &vary);
    let policy = freshness::policy(&request, &parts, arrived)?;
    // a response that is neither fresh nor can be validated is useless
    let useful = policy.time_to_live(arrived) > Duration::ZERO
        || ["etag", "last-modified"].iter().any(|name| parts.headers.contains_key(*name));
    let beside = kept_of(&request);
    (policy.is_storable() && useful).then_some(Policy { policy, beside })
}

/// At what time a cached response is judged when a client asks at `now`. One that arrived later, by a clock that was set
/// back since, is of unknown age: it is judged as one that is past its time, and so validated.
pub(super) fn judged_at(policy: &CachePolicy, now: SystemTime) -> SystemTime {
    // an age grows from the arrival on
    let came_later = policy.age(now + SET_BACK) == policy.age(UNIX_EPOCH);
    if came_later { now + FOREVER } else { now }
}

/// A tag for the weak comparison (RFC 9110 §8.8.3.2).
fn opaque(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}

/// Whether a 304 to the client's own validators confirms the cached response with these (RFC 9111 §4.3.4).
pub(super) fn is_about(answer: &Response, tag: Option<&[u8]>, modified: Option<&[u8]>) -> bool {
    let value_of = |name| values(&answer.fields, name).next();
    match (value_of("etag"), value_of("last-modified")) {
        (Some(new), _) => tag.is_some_and(|tag| opaque(tag) == opaque(new)),
        (None, Some(new)) => modified == Some(new),
        (None, None) => false,
    }
}

/// Whether the client's copy equals the cached response (RFC 9111 §4.3.2).
pub(super) fn client_has_it(
    request: &Request,
    tag: Option<&[u8]>,
    modified: Option<&[u8]>,
) -> bool {
    let mut tags = elements(&request.fields, "if-none-match").peekable();
    if tags.peek().is_some() {
        return tags.any(|t| t == b"*" || tag.is_some_and(|tag| opaque(t) == opaque(tag)));
    }
    let date = |value: &[u8]| httpdate::parse_http_date(std::str::from_utf8(value).ok()?).ok();
    let since = values(&request.fields, "if-modified-since").next().and_then(date);
    matches!((since, modified.and_then(date)), (Some(since), Some(at)) if at <= since)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::http::head::{Limits, read_request, read_response};
    use proptest::prelude::*;

    const LIMITS: Limits = Limits { bytes: 10_000, fields: 100 };

    fn request(head: &str) -> Request {
        let text = format!("GET http://a/ HTTP/1.1\r\nHost: a\r\n{head}\r\n");
        read_request(text.as_bytes(), LIMITS).unwrap().unwrap().0
    }

    fn response(head: &str) -> Response {
        let text = format!("HTTP/1.1 200 OK\r\n{head}\r\n");
        read_response(text.as_bytes(), LIMITS).unwrap().unwrap().0
    }

    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(2_000_000_000)
    }

    fn fresh_for(head: &str) -> Option<u64> {
        let request = request_parts("http://a/", &request("")).unwrap();
        let policy = policy(&request, &response(head), now(), now())?.policy;
        Some(policy.time_to_live(now()).as_secs())
    }

    #[test]
    fn computes_freshness() {
        for (head, seconds) in [
            ("Cache-Control: max-age=100\r\n", Some(100)),
            ("CACHE-CONTROL: MAX-AGE=100\r\n", Some(100)),
            ("Cache-Control: max-age=\"100\"\r\n", Some(100)),
            ("Cache-Control: s-maxage=7, max-age=100\r\n", Some(7)),
            ("Cache-Control: public\r\nCache-Control: max-age=9\r\n", Some(9)),
            ("Cache-Control: max-age=100\r\nAge: 30\r\n", Some(70)),
            ("Cache-Control: max-age=100\r\nAge: 30, 40\r\n", Some(70)),
            ("Cache-Control: max-age=100\r\nAge: soon\r\n", Some(100)),
            ("Cache-Control: max-age=100\r\nAge: 99999999999999999999\r\n", Some(100)),
            ("Cache-Control: max-age=100\r\nAge: 18446744073709551615\r\nETag: \"a\"\r\n", Some(0)),
            // its `Date` makes it a minute old
            ("Cache-Control: max-age=100\r\nDate: Wed, 18 May 2033 03:32:20 GMT\r\n", Some(40)),
            (
                "Expires: Wed, 18 May 2033 03:34:20 GMT\r\nDate: Wed, 18 May 2033 03:33:20 GMT\r\n",
                Some(60),
            ),
            (
                "Expires: Wednesday, 18-May-33 03:34:20 GMT\r\nDate: Wed May 18 03:33:20 2033\r\n",
                Some(60),
            ),
            ("Expires: 0\r\n", None),
            ("Expires: 0\r\nETag: \"a\"\r\n", Some(0)),
            // a tenth of the time since its last change (RFC 9111 §4.2.2)
            (
                "Date: Wed, 18 May 2033 03:33:20 GMT\r\nLast-Modified: Wed, 18 May 2033 03:16:40 GMT\r\n",
                Some(100),
            ),
            ("", None),
            ("Cache-Control: no-store, max-age=9\r\n", None),
            ("Cache-Control: No-Store, max-age=9\r\n", None),
            ("Cache-Control: private, max-age=9\r\n", None),
            ("Cache-Control: private=\"x\", max-age=9\r\n", None),
            ("Cache-Control: no-cache, max-age=9\r\nETag: \"a\"\r\n", Some(0)),
            ("Cache-Control: max-age=9\r\nSet-Cookie: a=b\r\n", None),
            ("Cache-Control: max-age=9\r\nVary: *\r\n", None),
            ("Cache-Control: max-age=9\r\nVary: Accept\r\nVary: *\r\n", None),
            ("Cache-Control: max-age=9, max-age=10\r\nETag: \"a\"\r\n", Some(9)),
            ("Cache-Control: max-age=-1\r\nETag: \"a\"\r\n", Some(0)),
            ("Cache-Control: max-age=1.5\r\nETag: \"a\"\r\n", Some(0)),
            ("Cache-Control: max-age=99999999999\r\n", Some(99_999_999_999)),
        ] {
            assert_eq!(fresh_for(head), seconds, "{head}");
        }
        // a day at most where the origin has not said for how long
        let old = "Last-Modified: Sat, 18 May 2030 03:33:20 GMT\r\n";
        for (said, seconds) in [
            ("", Some(86_400)),
            ("Age: 432000\r\n", Some(86_400)),
            ("Cache-Control: public, max-age\r\n", Some(86_400)),
            ("Cache-Control: max-age=1000000\r\n", Some(1_000_000)),
            ("Cache-Control: s-maxage=1000000, max-age=1\r\n", Some(1_000_000)),
            ("Expires: Sat, 28 May 2033 03:33:20 GMT\r\n", Some(864_000)),
            ("Cache-Control: no-cache\r\n", Some(0)),
            ("Pragma: no-cache\r\n", Some(0)),
            ("Cache-Control: no-store\r\n", None),
            ("Cache-Control: private\r\n", None),
        ] {
            assert_eq!(fresh_for(&format!("{old}{said}")), seconds, "{said}");
        }
    }

    #[test]
    fn a_response_that_varies_by_very_much_is_not_kept() {
        let many: Vec<String> = (0..=MOST_VARIED).map(|nth| format!("a{nth}")).collect();
        for vary in [&*many.join(", "), "a b", "accept, \"x\"", "*"] {
            let fields = vec![Field { name: "Vary".into(), value: vary.into() }];
            assert_eq!(varies_by(&Response { fields, ..response("") }), None, "{vary}");
        }
    }

    #[test]
    fn a_policy_is_weighed_with_what_it_keeps_of_the_request() {
        let name = "x".repeat(1_000);
        let asked = request(&format!("Accept: {name}\r\nX-Other: {name}\r\n"));
        let beside = |url: &str, head: &str| {
            let parts = request_parts(url, &asked).unwrap();
            policy(&parts, &response(head), now(), now()).unwrap().beside
        };
        assert!(beside("http://a/", "Cache-Control: max-age=9\r\n") < 200);
        assert!(beside("http://a/", "Cache-Control: max-age=9\r\nVary: accept\r\n") > 1_000);
        assert!(beside(&format!("http://a/?{name}"), "ETag: \"a\"\r\n") > 3_000);
    }

    #[test]
    fn bypasses_uncacheable_requests() {
        assert_eq!(concerns(&request(""), Body::None), Ok(()));
        let mut post = request("");
        post.method = "POST".into();
        assert_eq!(concerns(&post, Body::None), Err(ForwardReason::Method));
        for head in ["Authorization: Basic eA==", "Cookie: a=b", "Range: bytes=0-1", "If-Match: *"]
        {
            let request = request(&format!("{head}\r\n"));
            assert_eq!(concerns(&request, Body::None), Err(ForwardReason::Bypass), "{head}");
        }
        assert_eq!(concerns(&request(""), Body::Length(1)), Err(ForwardReason::Bypass));
    }

    #[test]
    fn answers_304_for_a_current_client_copy() {
        let tag = Some(&b"\"a\""[..]);
        let at = Some(&b"Wed, 18 May 2033 03:33:20 GMT"[..]);
        for (head, has) in [
            ("If-None-Match: \"a\"", true),
            ("If-None-Match: W/\"a\"", true),
            ("If-None-Match: \"b\", \"a\"", true),
            ("If-None-Match: *", true),
            ("If-None-Match: \"b\"\r\nIf-Modified-Since: Wed, 18 May 2033 03:33:20 GMT", false),
            ("If-Modified-Since: Wed, 18 May 2033 03:33:20 GMT", true),
            ("If-Modified-Since: Wed, 18 May 2033 03:33:19 GMT", false),
            ("If-Modified-Since: yesterday", false),
            ("Accept: */*", false),
        ] {
            let request = request(&format!("{head}\r\n"));
            assert_eq!(client_has_it(&request, tag, at), has, "{head}");
        }
    }

    #[test]
    fn a_client_s_directives_are_found_in_every_spelling() {
        for (head, said) in [
            ("Cache-Control: no-store, only-if-cached\r\n", true),
            ("CACHE-CONTROL: Only-If-Cached ,\tNO-STORE\r\n", true),
            ("Cache-Control: only-if-cached\r\nCache-Control: x=\"a\", no-store\r\n", true),
            ("Cache-Control: no-stores, if-cached\r\nPragma: no-store\r\n", false),
        ] {
            let request = request(head);
            assert_eq!((asks_no_store(&request), only_if_cached(&request)), (said, said), "{head}");
        }
    }

    proptest! {
        #[test]
        fn no_header_fields_panic(
            values in proptest::collection::vec((0_usize..12, "[ -~\u{e9}]{0,40}"), 0..8),
            asks in proptest::collection::vec((0_usize..6, "[ -~]{0,30}"), 0..4),
            later in 0_u64..1 << 32,
        ) {
            const LOGGED: [&str; 12] = ["Cache-Control", "Age", "Expires", "Date", "Last-Modified", "ETag",
                "Vary", "Pragma", "Warning", "Connection", "Set-Cookie", "Content-Length"];
            const ASKED: [&str; 6] = ["Cache-Control", "Pragma", "If-None-Match", "If-Modified-Since", "Accept", "Connection"];
            let field = |name: &str, value: &str| Field { name: name.into(), value: value.trim().into() };
            let mut response = response("Cache-Control: max-age=60\r\n");
            response.fields.extend(values.iter().map(|(nth, value)| field(LOGGED[*nth], value)));
            let mut request = request("");
            request.fields.extend(asks.iter().map(|(nth, value)| field(ASKED[*nth], value)));
            let Some(parts) = request_parts("http://a/", &request) else { return Ok(()) };
            if let Some(Policy { policy, .. }) = policy(&parts, &response, now(), now()) {
                let then = now() + Duration::from_secs(later);
                let _ = policy.before_request(&parts, then);
                let _ = (policy.age(then), policy.time_to_live(then));
                let _ = response_parts(&response, then, then);
            }
        }
    }
}
