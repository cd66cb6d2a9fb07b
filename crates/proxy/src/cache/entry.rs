//! Cache entries in memory and on disk.

use super::rules::Policy;
use crate::wire::http::fields::end_to_end;
use crate::wire::http::head::{Field, Response, Version};
use bytes::Bytes;
use foyer::Code;
use http_cache_semantics::CachePolicy;
use serde::{Deserialize, Serialize};
use std::io::{Error, ErrorKind, Read, Write};
use std::net::IpAddr;
use std::sync::Arc;

/// The version of the disk format; entries of other versions are skipped.
const FORMAT: u8 = 1;

#[derive(Debug, Clone)]
pub(super) enum CacheEntry {
    /// The URL's responses vary by these request fields; each has its own key.
    Varies(Arc<VaryRule>),
    Response(Arc<StoredResponse>),
}

/// The request fields that a URL's responses vary by (RFC 9111 §4.1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct VaryRule {
    /// In lower case, in order, each once.
    pub(super) names: Vec<String>,
    /// Part of the responses' keys: without this entry nobody finds them again.
    pub(super) mark: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct StoredResponse {
    /// Its freshness, the requests it may answer, and its validation.
    pub(super) policy: CachePolicy,
    /// Bytes that the policy keeps of the request.
    #[serde(default)]
    beside: usize,
    pub(crate) status: u16,
    pub(crate) reason: Vec<u8>,
    http10: bool,
    fields: Vec<(String, Vec<u8>)>,
    /// The origin's address; `None` where an upstream proxy fetched it.
    pub(crate) address: Option<IpAddr>,
    #[serde(skip)]
    pub(crate) body: Bytes,
}

impl StoredResponse {
    /// A response with its whole body; `None` where its head cannot be forwarded.
    pub(super) fn new(
        Policy { policy, beside }: Policy,
        response: &Response,
        address: Option<IpAddr>,
        body: Bytes,
    ) -> Option<Self> {
        let fields = end_to_end(&response.fields).ok()?.into_iter().filter(is_kept);
        Some(Self {
            policy,
            beside,
            status: response.status,
            reason: response.reason.clone(),
            http10: response.version == Version::Http10,
            fields: fields.map(|field| (field.name, field.value)).collect(),
            address,
            body,
        })
    }

    /// Its head with the newer fields of a 304 (RFC 9111 §3.2).
    pub(super) fn updated_by(&self, answer: &Response) -> Option<Response> {
        let newer = end_to_end(&answer.fields).ok()?;
        let newer: Vec<_> = newer.into_iter().filter(|field| !is_of_body(field)).collect();
        let same = |field: &Field| newer.iter().any(|f| f.name.eq_ignore_ascii_case(&field.name));
        let mut fields = self.fields();
        fields.retain(|field| !same(field));
        fields.extend(newer);
        Some(Response {
            status: self.status,
            reason: self.reason.clone(),
            version: self.version(),
            fields,
        })
    }

    /// Its policy, for a response that is the same.
    pub(super) fn same_policy(&self) -> Policy {
        Policy { policy: self.policy.clone(), beside: self.beside }
    }

    pub(crate) const fn version(&self) -> Version {
        if self.http10 { Version::Http10 } else { Version::Http11 }
    }

    pub(crate) fn fields(&self) -> Vec<Field> {
        let field =
            |(name, value): &(String, Vec<u8>)| Field { name: name.clone(), value: value.clone() };
        self.fields.iter().map(field).collect()
    }

    /// Bytes of memory that its reason and [`Self::fields`] take.
    pub(crate) fn head_memory(&self) -> usize {
        let fields = self.fields.iter().map(|(name, value)| Field::memory_of(name, value));
        self.reason.len() + fields.sum::<usize>()
    }

    pub(super) fn field(&self, name: &str) -> Option<&[u8]> {
        self.fields.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_slice())
    }
}

fn is_kept(field: &Field) -> bool {
    !["age", "content-length", "trailer"].iter().any(|name| field.name.eq_ignore_ascii_case(name))
}

/// Fields that say how the cached body's bytes are to be read, which a 304 must not change.
fn is_of_body(field: &Field) -> bool {
    let names = ["content-encoding", "content-length", "content-range"];
    names.iter().any(|name| field.name.eq_ignore_ascii_case(name))
}

impl CacheEntry {
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Varies(varies) => 64 + varies.names.iter().map(|n| n.len() + 48).sum::<usize>(),
            // the policy holds the fields a second time
            Self::Response(stored) => {
                let fields = stored.fields.iter().map(|(n, v)| n.len() + v.len() + 64);
                1024 + stored.beside + 2 * fields.sum::<usize>() + stored.body.len()
            }
        }
    }

    /// Bytes of its body.
    pub(super) fn body_size(&self) -> usize {
        match self {
            Self::Varies(_) => 0,
            Self::Response(stored) => stored.body.len(),
        }
    }
}

impl Code for CacheEntry {
    fn encode(&self, writer: &mut impl Write) -> foyer::Result<()> {
        let (kind, head, body) = match self {
            Self::Varies(varies) => (0, serde_json::to_vec(&**varies), &[][..]),
            Self::Response(stored) => (1, serde_json::to_vec(&**stored), &stored.body[..]),
        };
        let write = || {
            let head = head.map_err(Error::other)?;
            writer.write_all(&[FORMAT, kind])?;
            writer.write_all(&(head.len() as u32).to_le_bytes())?;
            writer.write_all(&(body.len() as u64).to_le_bytes())?;
            writer.write_all(&head)?;
            writer.write_all(body)
        };
        write().map_err(foyer::Error::io_error)
    }

    fn decode(reader: &mut impl Read) -> foyer::Result<Self> {
        let mut read = || {
            let mut start = [0; 14];
            reader.read_exact(&mut start)?;
            let [format, kind, sizes @ ..] = start;
            let (head, body) = sizes.split_at(4);
            let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b));
            if format != FORMAT || kind > 1 {
                return Err(Error::from(ErrorKind::InvalidData));
            }
            let head = exactly(reader, number(head))?;
            let body = exactly(reader, number(body))?;
            if kind == 0 {
                return Ok(Self::Varies(Arc::new(serde_json::from_slice(&head)?)));
            }
            let stored: StoredResponse = serde_json::from_slice(&head)?;
            Ok(Self::Response(Arc::new(StoredResponse { body: body.into(), ..stored })))
        };
        read().map_err(foyer::Error::io_error)
    }

    fn estimated_size(&self) -> usize {
        // JSON writes names and values as numbers, up to four characters a byte
        match self {
            Self::Varies(_) => 4 * self.size(),
            Self::Response(stored) => 4 * (self.size() - stored.body.len()) + stored.body.len(),
        }
    }
}

/// Reads `n` bytes; allocates as they arrive, because `n` may be corrupt.
fn exactly(reader: &mut impl Read, n: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(n).read_to_end(&mut bytes)?;
    if bytes.len() as u64 == n { Ok(bytes) } else { Err(ErrorKind::UnexpectedEof.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stored() -> StoredResponse {
        let response = Response {
            status: 200,
            reason: b"OK".into(),
            version: Version::Http11,
            fields: [("ETag", "\"a\""), ("X-Odd", "caf\u{e9}"), ("Age", "3"), ("Connection", "x")]
                .map(|(name, value)| Field { name: name.into(), value: value.into() })
                .into(),
        };
        let policy = CachePolicy::new(&http::Request::new(()), &http::Response::new(()));
        StoredResponse::new(
            Policy { policy, beside: 0 },
            &response,
            Some([192, 0, 2, 1].into()),
            Bytes::from_static(b"body"),
        )
        .unwrap()
    }

    fn written(entry: &CacheEntry) -> Vec<u8> {
        let mut bytes = Vec::new();
        entry.encode(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn an_entry_survives_the_disk_unchanged() {
        let stored = stored();
        let bytes = written(&CacheEntry::Response(Arc::new(stored.clone())));
        let CacheEntry::Response(back) = CacheEntry::decode(&mut &bytes[..]).unwrap() else {
            panic!()
        };
        assert_eq!(back.fields(), stored.fields());
        assert_eq!((back.status, &back.body, back.address), (200, &stored.body, stored.address));
        assert_eq!(back.field("etag"), Some(&b"\"a\""[..]));
        assert!(back.field("age").is_none() && back.field("connection").is_none());
        let varies = VaryRule { names: vec!["accept".into()], mark: 7 };
        let bytes = written(&CacheEntry::Varies(Arc::new(varies.clone())));
        let CacheEntry::Varies(back) = CacheEntry::decode(&mut &bytes[..]).unwrap() else {
            panic!()
        };
        assert_eq!(*back, varies);
    }

    #[test]
    fn newer_fields_replace_older_ones() {
        let fields = [("etag", "\"a\""), ("X-New", "1"), ("Content-Encoding", "gzip")];
        let answer = Response {
            status: 304,
            reason: Vec::new(),
            version: Version::Http11,
            fields: fields.map(|(n, v)| Field { name: n.into(), value: v.into() }).into(),
        };
        let old = stored();
        let new = old.updated_by(&answer).unwrap();
        let names: Vec<_> = new.fields.into_iter().map(|field| field.name).collect();
        assert_eq!(names, ["X-Odd", "etag", "X-New"]);
    }

    proptest! {
        #[test]
        fn a_damaged_entry_is_an_error(at in 0_usize..400, byte: u8, cut in 0_usize..400) {
            let mut bytes = written(&CacheEntry::Response(Arc::new(stored())));
            if let Some(b) = bytes.get_mut(at) { *b = byte; }
            let _ = CacheEntry::decode(&mut &bytes[..]);
            bytes.truncate(cut.min(bytes.len()));
            let _ = CacheEntry::decode(&mut &bytes[..]);
        }
    }
}
