//! Names in a client's first bytes: the same however they are cut, and never more than a name.
#![no_main]

use ekiden_proxy::destination::Host;
use ekiden_proxy::wire::first_bytes::{FirstBytesReader, FirstWords, MOST};
use libfuzzer_sys::fuzz_target;

/// What is read of bytes that come in pieces of this size.
fn read(bytes: &[u8], size: usize) -> FirstWords {
    let mut reader = FirstBytesReader::default();
    let mut n = 0;
    while n < bytes.len() {
        n = (n + size).min(bytes.len());
        match reader.read(&bytes[..n]) {
            FirstWords::Partial => {}
            words => return words,
        }
    }
    FirstWords::Partial
}

fuzz_target!(|bytes: &[u8]| {
    let bytes = &bytes[..bytes.len().min(MOST)];
    let whole = read(bytes, bytes.len().max(1));
    for size in [1, 7, bytes.len() / 2 + 1] {
        assert_eq!(read(bytes, size), whole, "in pieces of {size}");
    }
    if let FirstWords::Name { host, .. } = whole {
        assert_eq!(Host::from_name(&host), Ok(Host::Name(host.clone())));
    }
});
