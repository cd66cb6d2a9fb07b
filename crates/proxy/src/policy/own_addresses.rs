//! Which addresses are this machine's own. What this machine sends there comes in by its loopback device, which firewalls
//! let in. So a client would be behind the firewall that keeps it out.

use ekiden_linux::links::netlink;
use std::net::{IpAddr, Ipv4Addr};

/// Opens what [`is_own`] asks by. Later there may be no descriptor for it.
pub(crate) fn begin() {
    // where the kernel refuses it, each lookup tries again
    let _ = netlink::is_local(Ipv4Addr::LOCALHOST.into());
}

/// Whether this machine has the address, by the kernel, which knows prefix routes, or had it a second ago; `None` where
/// the kernel cannot be asked.
pub(crate) fn is_own(ip: IpAddr) -> Option<bool> {
    if ip.is_loopback() { Some(true) } else { netlink::is_local(ip).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::destination::{Destination, Host};
    use crate::error::Failure;
    use crate::policy::access::{Decider, Denied, Special};
    use crate::settings::{Rule, Settings};

    /// This machine's public addresses, and IPv6 addresses that stand for one.
    const PUBLIC: [&str; 5] =
        ["9.9.9.1", "2620:fe::1", "::ffff:9.9.9.1", "64:ff9b::9.9.9.1", "2002:909:901::1"];
    const OTHERS: [&str; 3] = ["9.9.9.2", "2620:fe::2", "64:ff9b::9.9.9.2"];

    /// What this machine has, for these tests.
    fn has(address: IpAddr) -> Option<bool> {
        let own = ["9.9.9.1", "2620:fe::1", "192.168.1.1", "fd12::1"];
        Some(own.iter().any(|own| ip(own) == address))
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// Whether the client may go there, by address and by a name that leads to it.
    fn judged(mut decider: Decider<'_>, at: &str) -> Result<(), Denied> {
        decider.is_own = has;
        let itself = Destination { host: Host::Address(ip(at)), port: 5432 };
        let named = Destination::parse("a.example:5432", None).unwrap();
        let by_address = decider.address(&itself, ip(at));
        assert_eq!(by_address, decider.named(&itself), "{at}");
        assert_eq!(by_address, decider.address(&named, ip(at)), "{at}");
        by_address
    }

    /// A relay that admits everybody.
    fn relay() -> Settings {
        let mut settings = Settings::default();
        settings.access.rules = vec![Rule { allow: true, ..Rule::default() }];
        settings
    }

    #[test]
    fn a_public_address_of_this_machine_is_closed_but_to_clients_on_loopback() {
        let relay = relay();
        let (outside, inside) = (relay.decider(ip("8.8.8.8")), relay.decider(ip("192.168.1.7")));
        let (peer, local) = (relay.decider_for_peer("ship"), relay.decider(ip("127.0.0.1")));
        for at in PUBLIC {
            let address = ip(at).to_canonical();
            let special = Denied::Special { address, kind: Special::Own };
            assert_eq!(judged(outside, at), Err(special.clone()), "{at}");
            assert_eq!(judged(inside, at), Err(special), "{at}");
            let for_peers = Denied::SpecialForPeers { address, kind: Special::Own };
            assert_eq!(judged(peer, at), Err(for_peers), "{at}");
            assert_eq!(judged(local, at), Ok(()), "{at}");
        }
        for at in OTHERS {
            for decider in [outside, inside, peer, local] {
                assert_eq!(judged(decider, at), Ok(()), "{at}");
            }
        }
        let why = judged(outside, "9.9.9.1").unwrap_err().to_string();
        assert!(why.starts_with("9.9.9.1 is an address of the relay's own machine, "), "{why}");
        assert!(why.contains("allow_destinations"), "{why}");
    }

    #[test]
    fn a_private_address_of_this_machine_is_judged_as_a_private_one() {
        let relay = relay();
        for at in ["192.168.1.1", "fd12::1"] {
            assert_eq!(judged(relay.decider(ip("192.168.1.7")), at), Ok(()), "{at}");
            let private = Denied::Special { address: ip(at), kind: Special::Private };
            assert_eq!(judged(relay.decider(ip("8.8.8.8")), at), Err(private), "{at}");
        }
    }

    #[test]
    fn an_address_of_this_machine_is_opened_as_special_ones_are() {
        let (mut of_all, mut by_rule) = (relay(), relay());
        of_all.access.allow_destinations = vec!["9.9.9.1/32".parse().unwrap()];
        by_rule.access.rules[0].allow_destinations = vec!["9.9.9.0/24".parse().unwrap()];
        for relay in [&of_all, &by_rule] {
            for decider in [relay.decider(ip("8.8.8.8")), relay.decider_for_peer("ship")] {
                assert_eq!(judged(decider, "9.9.9.1"), Ok(()));
                // what a translator leads to is opened by its prefix
                for at in ["2620:fe::1", "64:ff9b::9.9.9.1"] {
                    assert!(judged(decider, at).is_err(), "{at}");
                }
            }
        }
    }

    #[test]
    fn a_destination_of_which_the_kernel_does_not_say_it_waits_and_is_not_forbidden() {
        let relay = relay();
        let judged = |client, at| {
            let mut decider = relay.decider(ip(client));
            decider.is_own = |_| None;
            let to = Destination { host: Host::Address(ip(at)), port: 443 };
            decider.address(&to, ip(at))
        };
        for at in OTHERS {
            let unknown = Failure::from(judged("8.8.8.8", at).unwrap_err());
            assert_eq!(unknown.status(), 503, "{unknown}");
            assert!(!unknown.is_refusal(), "{unknown}");
            assert_eq!(judged("127.0.0.1", at), Ok(()), "the kernel is not asked");
        }
        assert_eq!(judged("192.168.1.7", "192.168.1.1"), Ok(()), "nor of private ones");
    }

    #[test]
    fn an_operator_s_own_destination_may_be_this_machine_where_it_is_an_address() {
        let relay = relay();
        let mut decider = relay.decider(ip("8.8.8.8"));
        decider.is_own = has;
        let to = Destination { host: Host::Address(ip("9.9.9.1")), port: 5432 };
        let forward = decider.of_forward(&to);
        assert_eq!(forward.address(&to, ip("9.9.9.1")), Ok(()));
        assert!(forward.address(&to, ip("10.0.0.1")).is_err());
        // whoever answers for the name would lead the port here
        let to = Destination::parse("a.example:5432", None).unwrap();
        let forward = decider.of_forward(&to);
        assert!(forward.address(&to, ip("9.9.9.1")).is_err());
        assert_eq!(forward.address(&to, ip("9.9.9.2")), Ok(()));
    }
}
