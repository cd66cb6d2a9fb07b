//! A packet as an emulated link is given it: told for a bare acknowledgement or not, whatever it holds,
//! and never by what stands behind it.
#![no_main]

use ekiden_model::network::link::{Bound, Discipline, is_acknowledgement};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let bare = is_acknowledgement(bytes);
    let class = Discipline::AckFirst(Bound::Unlimited).class_of(bytes, 7);
    assert_eq!(class, u8::from(!bare));
    if bare {
        // a header of IP and one of TCP
        assert!(bytes.len() >= 40);
        let padded = [bytes, &[0; 6]].concat();
        assert!(is_acknowledgement(&padded));
    }
});
