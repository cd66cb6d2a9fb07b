//! Packets that a client of the WireGuard door sends: their heads say no more than is there, and what the door cuts stays whole.
#![no_main]

use ekiden_wireguard::{inspect, split};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Some(header) = inspect(bytes) {
        assert!(header.length <= bytes.len() && header.payload <= header.length);
        assert_eq!(header.source.is_ipv6(), header.destination.is_ipv6());
        // padding decides nothing
        let padded = [bytes, &[0; 16][..]].concat();
        assert_eq!(inspect(&padded), Some(header));
        assert_eq!(inspect(&bytes[..header.length]), Some(header));
    }
    let mut read = bytes.to_vec();
    let mut most = 0;
    split(&mut read, &mut Vec::new(), |packet| most = most.max(packet.len()));
    assert!(most <= bytes.len());
});
