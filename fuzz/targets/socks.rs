//! SOCKS5 and SOCKS4a: byte by byte the same as at once, and never more taken than given.
#![no_main]

use ekiden_proxy::wire::socks::{
    BadSocks, Request, read_address, read_datagram, read_methods, read_request, read_socks4,
    write_request,
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
    let connect = match read_request(bytes) {
        Ok(Some((Request::Connect(to), _))) => Some(to),
        _ => None,
    };
    let datagram = read_datagram(bytes).ok().map(|(to, used)| {
        assert!(used <= bytes.len());
        to
    });
    let four = read_socks4(bytes).ok().flatten().map(|(to, _)| to);
    for destination in [connect, datagram, four].into_iter().flatten() {
        assert_ne!(destination.port, 0);
        let mut written = write_request(&destination);
        let length = written.len();
        let read = Request::Connect(destination.clone());
        assert_eq!(read_request(&written), Ok(Some((read, length))));
        written[..3].fill(0);
        assert_eq!(read_datagram(&written), Ok((destination, length)));
    }
});
