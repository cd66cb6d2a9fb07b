//! Headers of the PROXY protocol: the same however they are cut, and never more taken than given.
#![no_main]

use ekiden_proxy::wire::proxy_header::{MOST, read, write_binary, write_text};
use libfuzzer_sys::fuzz_target;
use std::net::SocketAddr;

fuzz_target!(|bytes: &[u8]| {
    let whole = read(bytes);
    for cut in 0..=bytes.len().min(300) {
        match read(&bytes[..cut]) {
            Ok(None) => {}
            decided => {
                assert_eq!(decided, whole, "cut at {cut}");
                break;
            }
        }
    }
    let Ok(Some((header, length))) = whole else { return };
    assert!(length <= bytes.len() && length <= MOST);
    let Some(client) = header.client else { return };
    let local = SocketAddr::from(([192, 0, 2, 1], 443));
    for written in [write_text(client, local), write_binary(client, local)] {
        let (again, length) = read(&written).unwrap().unwrap();
        assert_eq!(length, written.len());
        let [found, meant] =
            [again.client.unwrap(), client].map(|at| (at.ip().to_canonical(), at.port()));
        assert_eq!(found, meant);
    }
});
