//! Names in QUIC Initials: whatever the datagrams hold, never more than a name, and settled after a few.
#![no_main]

use ekiden_proxy::destination::Host;
use ekiden_proxy::wire::quic_initial::{InitialReader, InitialWords, is_initial, protect};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // as datagrams, each behind its length; an odd first byte encrypts them as a client does, so that frames are reached
    let Some((&kind, mut rest)) = bytes.split_first() else { return };
    let mut reader = InitialReader::default();
    let mut read = 0;
    while let Some((&length, more)) = rest.split_first() {
        let length = (usize::from(length) * 8).min(more.len());
        let (datagram, left) = more.split_at(length);
        rest = left;
        // with PADDING, as a client has to
        let mut frames = datagram.to_vec();
        frames.resize(frames.len().max(1_162), 0);
        let protected = (kind & 1 == 1).then(|| protect(kind & 2 == 2, b"a client", read, &frames));
        let datagram = protected.flatten().unwrap_or_else(|| datagram.to_vec());
        let _ = is_initial(&datagram);
        read += 1;
        match reader.read(&datagram) {
            InitialWords::Partial => assert!(read < 8),
            InitialWords::Nameless => return,
            InitialWords::Name(host) => {
                return assert_eq!(Host::from_name(&host), Ok(Host::Name(host.clone())));
            }
        }
    }
});
