//! The destination's name in a client's first bytes: the server name of a TLS ClientHello (RFC 6066 §3), or
//! `Host` of an HTTP/1 request. A client may write any name there.

use super::http::fields;
use super::http::head::{HeadSearch, Limits};
use crate::destination::{Destination, Host};
use rustls::server::Acceptor;

/// Bytes that are looked at: a ClientHello is one handshake message of at most a few KiB, and a head that
/// is longer says its host early only by chance.
pub const MOST: usize = 16 * 1024;

/// Fields of a head that are looked at.
const FIELDS: usize = 128;

/// The first byte of a TLS handshake record (RFC 8446 §5.1).
const HANDSHAKE: u8 = 22;

/// Methods that clients begin with. Other protocols begin with capital letters, too.
const METHODS: [&[u8]; 8] =
    [b"GET ", b"HEAD ", b"POST ", b"PUT ", b"DELETE ", b"OPTIONS ", b"PATCH ", b"PROPFIND "];

/// What the bytes so far say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FirstWords {
    /// More may come.
    Partial,
    /// They name no destination.
    Nameless,
    /// They name this host.
    Name {
        /// A name; addresses are no names.
        host: String,
        /// Whether in TLS; otherwise in HTTP.
        tls: bool,
    },
}

/// Reads first bytes as they come, each once.
#[derive(Default)]
pub struct FirstBytesReader {
    /// Bytes that the acceptor has.
    fed: usize,
    tls: Option<Acceptor>,
    head: HeadSearch,
}

impl std::fmt::Debug for FirstBytesReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FirstBytesReader").field("fed", &self.fed).finish_non_exhaustive()
    }
}

impl FirstBytesReader {
    /// Reads a buffer that only grew since the last call.
    pub fn read(&mut self, bytes: &[u8]) -> FirstWords {
        match bytes.first() {
            None => FirstWords::Partial,
            Some(&HANDSHAKE) => self.hello(bytes),
            Some(_) => self.request(bytes),
        }
    }

    fn hello(&mut self, bytes: &[u8]) -> FirstWords {
        let acceptor = self.tls.get_or_insert_default();
        let mut more = bytes.get(self.fed..).unwrap_or_default();
        self.fed = bytes.len();
        loop {
            match acceptor.read_tls(&mut more) {
                Ok(0) => return FirstWords::Partial,
                Ok(_) => {}
                Err(_) => return FirstWords::Nameless,
            }
            match acceptor.accept() {
                Ok(Some(hello)) => {
                    return name(hello.client_hello().server_name().unwrap_or_default(), true);
                }
                Ok(None) => {}
                // not even a ClientHello
                Err(_) => return FirstWords::Nameless,
            }
        }
    }

    fn request(&mut self, bytes: &[u8]) -> FirstWords {
        let begins = |method: &&[u8]| {
            let n = method.len().min(bytes.len());
            method.get(..n) == bytes.get(..n)
        };
        let Some(method) = METHODS.iter().find(|method| begins(method)) else {
            return FirstWords::Nameless;
        };
        // after it "/" of a path, "h" of http, or "*"
        if bytes.get(method.len()).is_some_and(|next| !matches!(next, b'/' | b'h' | b'*')) {
            return FirstWords::Nameless;
        }
        match self.head.request(bytes, Limits { bytes: MOST, fields: FIELDS }) {
            Ok(None) => FirstWords::Partial,
            Err(_) => FirstWords::Nameless,
            Ok(Some((request, _))) => {
                let mut hosts = fields::values(&request.fields, "host");
                let first = hosts.next().and_then(|host| std::str::from_utf8(host).ok());
                let only = first.filter(|_| hosts.next().is_none());
                let parsed = only.and_then(|host| Destination::parse(host, Some(80)).ok());
                parsed.map_or(FirstWords::Nameless, |to| name(&to.host.to_string(), false))
            }
        }
    }
}

fn name(text: &str, tls: bool) -> FirstWords {
    match Host::from_name(text) {
        Ok(Host::Name(host)) => FirstWords::Name { host, tls },
        Ok(Host::Address(_)) | Err(_) => FirstWords::Nameless,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::ServerName;
    use rustls::{ClientConfig, ClientConnection, RootCertStore};
    use std::sync::Arc;

    fn hello(name: &str) -> Vec<u8> {
        let provider = rustls::crypto::ring::default_provider();
        let config = ClientConfig::builder_with_provider(provider.into())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        bytes
    }

    /// What is read of bytes that come in pieces of `size`, and after how many bytes.
    fn read(bytes: &[u8], size: usize) -> (FirstWords, usize) {
        let mut reader = FirstBytesReader::default();
        let mut n = 0;
        while n < bytes.len() {
            n = (n + size).min(bytes.len());
            match reader.read(&bytes[..n]) {
                FirstWords::Partial => {}
                words => return (words, n),
            }
        }
        (FirstWords::Partial, n)
    }

    fn named(host: &str, tls: bool) -> FirstWords {
        FirstWords::Name { host: host.into(), tls }
    }

    #[test]
    fn reads_the_server_name_of_tls_in_any_pieces() {
        let bytes = hello("WWW.example.org");
        for size in [1, 7, 100, bytes.len()] {
            assert_eq!(read(&bytes, size), (named("www.example.org", true), bytes.len()), "{size}");
        }
        // an address is not sent as a name
        assert_eq!(read(&hello("192.0.2.1"), 4096).0, FirstWords::Nameless);
    }

    #[test]
    fn reads_host_of_http_in_any_pieces() {
        let head = b"GET / HTTP/1.1\r\nAccept: */*\r\nHost: Example.org:8080\r\n\r\nbody";
        for size in [1, 5, head.len()] {
            assert_eq!(read(head, size).0, named("example.org", false), "{size}");
        }
        let absolute = b"GET http://example.org/ HTTP/1.1\r\nHost: example.org\r\n\r\n";
        assert_eq!(read(absolute, 9).0, named("example.org", false));
    }

    #[test]
    fn settles_at_once_on_what_names_nothing() {
        for (bytes, after) in [
            (&b"SSH-2.0-OpenSSH_9.2\r\n"[..], 1),
            (b"EHLO mail.example.org\r\n", 1),
            (b"GET key\r\n", 5),
            (b"HELP\r\n", 3),
            (b"\0\0\0\0", 1),
            (b"\xff\xfe", 1),
        ] {
            assert_eq!(read(bytes, 1), (FirstWords::Nameless, after), "{bytes:?}");
        }
        for bad in [
            &b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"[..],
            b"GET / HTTP/1.1\r\nHost: 192.0.2.1\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: \xff\r\n\r\n",
            b"GET / HTTP/1.1\r\n\r\n",
            b"GET / HTTP/1.1\r\nno field\r\n\r\n",
            b"\x16\x03\x01\x00\x00",
            b"\x16\x03\x01\x00\x04\x02\x00\x00\x00",
        ] {
            assert_eq!(read(bad, 3).0, FirstWords::Nameless, "{bad:?}");
        }
        let cut = &hello("example.org")[..60];
        assert_eq!(read(cut, 8).0, FirstWords::Partial);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_in_any_pieces_are_read_alike(
            first in proptest::sample::select(vec![&b"\x16\x03\x01"[..], b"GET /", b""]),
            rest in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300),
            size in 1_usize..40,
        ) {
            let bytes = [first, &rest].concat();
            let whole = read(&bytes, bytes.len().max(1)).0;
            proptest::prop_assert_eq!(read(&bytes, size).0, whole);
        }
    }
}
