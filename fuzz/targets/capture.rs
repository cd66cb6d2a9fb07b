//! A capture, pcap or pcapng: whatever the file holds, an answer or words; and the answer counts no more
//! than there was.
#![no_main]

use ekiden_lab::classify::{Options, classify};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    match classify(bytes, &Options::default()) {
        Ok(found) => {
            assert!(found.tcp <= found.packets);
            let summary = &found.summary;
            assert!(summary.interactive.packets + summary.bulk.packets <= found.tcp);
            assert!(found.connections <= summary.flows());
            // the same file says the same
            assert_eq!(classify(bytes, &Options::default()).ok(), Some(found));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
