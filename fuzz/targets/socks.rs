//! SOCKS5 and SOCKS4a: byte by byte the same as at once, and never more taken than given.
#![no_main]

use ekiden_proxy::socks::{
    BadSocks, read_address, read_methods, read_request, read_socks4, write_request,
};
use libfuzzer_sys::fuzz_target;
use std::fmt::Debug;

/// What the reader says of growing prefixes: nothing, until it decides; and it never decides otherwise.
fn byte_by_byte<'a, T: Debug + PartialEq>(
    bytes: &'a [u8],
    read: impl Fn(&'a [u8]) -> Result<Option<(T, usize)>, BadSocks>,
) {
    let whole = read(bytes);
    if let Ok(Some((_, used))) = &whole {
        assert!(*used <= bytes.len());
    }
    for cut in 0..=bytes.len().min(600) {
        match read(&bytes[..cut]) {
            Ok(None) => {}
            decided => {
                assert_eq!(decided, whole, "cut at {cut}");
                return;
            }
        }
    }
    if bytes.len() <= 600 {
        assert_eq!(whole, Ok(None));
    }
}

fuzz_target!(|bytes: &[u8]| {
    byte_by_byte(bytes, read_methods);
    byte_by_byte(bytes, read_request);
    byte_by_byte(bytes, read_socks4);
    let _ = read_address(bytes, 3);
    if let Ok(Some((destination, _))) = read_request(bytes).or_else(|_| read_socks4(bytes)) {
        assert_ne!(destination.port, 0);
        let written = write_request(&destination);
        assert_eq!(read_request(&written), Ok(Some((destination, written.len()))));
    }
});
