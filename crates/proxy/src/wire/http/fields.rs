//! Header fields: lookup, and removal of hop-by-hop fields.

use super::head::{Field, Version, is_token};
use crate::wire::http::BadMessage;
use std::cmp::Ordering;

/// Hop-by-hop fields (RFC 9110 §7.6.1), whether `Connection` names them or not.
const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
];
/// Fields that `Connection` must not remove, because the message would change its meaning.
const END_TO_END: [&str; 4] = ["host", "content-length", "via", "max-forwards"];

/// Every value of the fields called `name`.
pub fn values<'a>(fields: &'a [Field], name: &str) -> impl Iterator<Item = &'a [u8]> {
    fields.iter().filter(move |f| f.name.eq_ignore_ascii_case(name)).map(|f| f.value.as_slice())
}

/// Every element of a comma-separated list in the fields called `name`, without white space around it.
pub fn elements<'a>(fields: &'a [Field], name: &str) -> impl Iterator<Item = &'a [u8]> {
    values(fields, name)
        .flat_map(|value| value.split(|b| *b == b','))
        .map(<[u8]>::trim_ascii)
        .filter(|element| !element.is_empty())
}

/// Whether a list field has an element, ignoring case.
pub fn has(fields: &[Field], name: &str, element: &str) -> bool {
    elements(fields, name).any(|e| e.eq_ignore_ascii_case(element.as_bytes()))
}

/// The fields to forward: neither hop-by-hop nor named by `Connection`. Fails where that names no
/// token, or a field that the message needs.
pub fn end_to_end(fields: &[Field]) -> Result<Vec<Field>, BadMessage> {
    let mut named: Vec<&[u8]> = elements(fields, "connection").collect();
    for name in &named {
        if !name.iter().copied().all(is_token) {
            return Err(BadMessage::bad("Connection names something that is not a field"));
        }
        if END_TO_END.iter().any(|kept| name.eq_ignore_ascii_case(kept.as_bytes())) {
            return Err(BadMessage::bad("Connection names a field that must not be taken away"));
        }
    }
    // a head may name tens of thousands, and each is asked for by each field
    named.sort_unstable_by(|a, b| without_case(a, b));
    named.dedup_by(|a, b| a.eq_ignore_ascii_case(b));
    let is_named = |name: &[u8]| named.binary_search_by(|one| without_case(one, name)).is_ok();
    let ends_here = |field: &Field| {
        HOP_BY_HOP.iter().any(|name| field.name.eq_ignore_ascii_case(name))
            || is_named(field.name.as_bytes())
    };
    Ok(fields.iter().filter(|field| !ends_here(field)).cloned().collect())
}

fn without_case(a: &[u8], b: &[u8]) -> Ordering {
    a.iter().map(u8::to_ascii_lowercase).cmp(b.iter().map(u8::to_ascii_lowercase))
}

/// The received-by names in `Via` (RFC 9110 §7.6.3), which detect loops.
pub fn via(fields: &[Field]) -> impl Iterator<Item = &[u8]> {
    elements(fields, "via")
        .filter_map(|hop| hop.split(u8::is_ascii_whitespace).filter(|part| !part.is_empty()).nth(1))
}

/// Whether the sender keeps the connection open after this message (RFC 9112 §9.3).
pub fn keeps_alive(version: Version, fields: &[Field]) -> bool {
    // old clients send Proxy-Connection to proxies instead
    let says =
        |option| has(fields, "connection", option) || has(fields, "proxy-connection", option);
    !says("close") && (version == Version::Http11 || says("keep-alive"))
}

/// For how many seconds the sender keeps an idle connection open, where it says so (`Keep-Alive: timeout`, RFC 2068
/// §19.7.1.1). The shortest counts.
pub fn keep_alive_timeout(fields: &[Field]) -> Option<u32> {
    let of_parameter = |element: &[u8]| {
        let (name, value) = std::str::from_utf8(element).ok()?.split_once('=')?;
        let seconds = value.trim().trim_matches('"');
        name.trim().eq_ignore_ascii_case("timeout").then(|| seconds.parse().ok()).flatten()
    };
    elements(fields, "keep-alive").filter_map(of_parameter).min()
}

/// Writes the fields in wire format, each with its CRLF.
pub fn write(to: &mut Vec<u8>, fields: &[Field]) {
    for field in fields {
        write_one(to, &field.name, &field.value);
    }
}

/// Writes one field with its CRLF.
pub fn write_one(to: &mut Vec<u8>, name: &str, value: &[u8]) {
    to.extend(name.as_bytes());
    to.extend(b": ");
    to.extend(value);
    to.extend(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(list: &[(&str, &str)]) -> Vec<Field> {
        let field =
            |(name, value): &(&str, &str)| Field { name: (*name).into(), value: (*value).into() };
        list.iter().map(field).collect()
    }

    #[test]
    fn removes_hop_by_hop_fields() {
        let all = fields(&[
            ("Host", "a"),
            ("Connection", "close, X-Mine"),
            ("Connection", "Keep-Alive"),
            ("x-mine", "1"),
            ("X-Yours", "2"),
            ("Proxy-Authorization", "Basic c2VjcmV0"),
            ("Trailer", "Digest"),
            ("TE", "trailers"),
        ]);
        let kept: Vec<_> = end_to_end(&all).unwrap().into_iter().map(|f| f.name).collect();
        assert_eq!(kept, ["Host", "X-Yours", "Trailer"]);
    }

    #[test]
    fn connection_cannot_remove_needed_fields() {
        for name in ["Host", "content-length", "Via", "b@d"] {
            assert!(end_to_end(&fields(&[("Connection", name)])).is_err(), "{name}");
        }
    }

    #[test]
    fn via_names_every_hop() {
        let all = fields(&[
            ("Via", "1.0 fred, 1.1 p.example.net (squid)"),
            ("via", "HTTP/1.1  ekiden-1"),
        ]);
        let hops: Vec<_> = via(&all).collect();
        assert_eq!(hops, [&b"fred"[..], b"p.example.net", b"ekiden-1"]);
    }

    #[test]
    fn many_names_in_connection_cost_little() {
        let named: Vec<String> = (0..20_000).map(|nth| format!("a{}", nth % 7_000)).collect();
        let named = named.join(",");
        let mut all = vec![("Connection", &named[..]), ("A6999", "1"), ("b", "2")];
        // each of these was compared with each of those: four milliards of comparisons
        all.extend(std::iter::repeat_n(("c", "3"), 200_000));
        let kept = end_to_end(&fields(&all)).unwrap();
        assert_eq!((kept.len(), &kept[0].name[..]), (200_001, "b"));
    }

    #[test]
    fn the_keep_alive_timeout_is_in_seconds() {
        let timeout = |value| keep_alive_timeout(&fields(&[("Keep-Alive", value)]));
        assert_eq!(timeout("timeout=5, max=100"), Some(5));
        assert_eq!(timeout("max=100, Timeout = \"7\""), Some(7));
        assert_eq!(timeout("timeout=9, timeout=3"), Some(3));
        assert_eq!(timeout("timeout=-1"), None);
        assert_eq!(timeout("300"), None);
        assert_eq!(keep_alive_timeout(&[]), None);
    }

    #[test]
    fn keep_alive_by_version() {
        assert!(keeps_alive(Version::Http11, &[]));
        assert!(!keeps_alive(Version::Http10, &[]));
        assert!(keeps_alive(Version::Http10, &fields(&[("Proxy-Connection", "Keep-Alive")])));
        assert!(!keeps_alive(Version::Http11, &fields(&[("Connection", "Close")])));
    }
}
