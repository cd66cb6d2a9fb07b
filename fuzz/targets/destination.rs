//! Hosts and ports: what is accepted reads back from its own text as itself.
#![no_main]

use ekiden_proxy::destination::{Destination, Host};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for default in [None, Some(80)] {
        if let Ok(destination) = Destination::parse(text, default) {
            assert_ne!(destination.port, 0);
            let again = Destination::parse(&destination.to_string(), None);
            assert_eq!(again.as_ref(), Ok(&destination));
            check(&destination.host);
        }
    }
    for host in [Host::parse(text), Host::from_name(text)].into_iter().flatten() {
        assert_eq!(Host::parse(&host.to_string()).as_ref(), Ok(&host));
        check(&host);
    }
});

fn check(host: &Host) {
    match host {
        Host::Address(address) => assert_eq!(*address, address.to_canonical()),
        Host::Name(name) => {
            assert!(!name.is_empty() && name.len() <= 253 && !name.ends_with('.'));
            assert!(!name.bytes().any(|b| b.is_ascii_uppercase() || b <= b' ' || b >= 0x7f));
            // nothing the system's resolver could take for an address
            assert!(
                !name
                    .split('.')
                    .next_back()
                    .is_some_and(|l| l.starts_with(|c: char| c.is_ascii_digit())
                        && l.bytes().all(|b| b.is_ascii_digit()))
            );
        }
    }
}
