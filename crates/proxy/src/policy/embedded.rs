//! Addresses of IPv4 within those of IPv6, where translators, relays and kernels find them.

use crate::wire::dns::Nat64;
use std::net::{Ipv4Addr, Ipv6Addr};

/// The address in the last 32 bits.
const LAST: [usize; 4] = [12, 13, 14, 15];
/// 64:ff9b:1::/48 (RFC 8215): a translator of the local network has a prefix of 48, 56, 64 or 96 bits there. Where the
/// IPv4 address stands follows from its length (RFC 6052 §2.2).
const PLACES: [[usize; 4]; 4] = [[6, 7, 9, 10], [7, 9, 10, 11], [9, 10, 11, 12], LAST];

/// The addresses of IPv4 that `address` stands for by a translator's prefix (RFC 6052), 6to4, or as mapped, compatible
/// or translated (SIIT). Several where the length of the prefix is not known.
pub(super) fn embedded(
    address: Ipv6Addr,
    nat64: Option<Nat64>,
) -> impl Iterator<Item = Ipv4Addr> + use<> {
    let at = |places| Some(read(address, places));
    let known = nat64.and_then(|nat64| nat64.translate(address));
    let found = match address.segments() {
        _ if known.is_some() => [known, None, None, None],
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => [None; 4],
        [0, 0, 0, 0, 0, 0 | 0xffff, ..]
        | [0, 0, 0, 0, 0xffff, 0, ..]
        | [0x64, 0xff9b, 0, 0, 0, 0, ..] => [at(LAST), None, None, None],
        [0x2002, ..] => [at([2, 3, 4, 5]), None, None, None],
        // 0/8 is what another length leaves there, and no destination
        [0x64, 0xff9b, 1, ..] => PLACES.map(|places| at(places).filter(|v4| v4.octets()[0] != 0)),
        _ => [None; 4],
    };
    found.into_iter().flatten()
}

/// Whether an address in 64:ff9b:1::/48 stands for none by any length: octet 8 and what follows the address are 0
/// (RFC 6052 §2.2), although translators ignore them.
pub(super) fn is_nobodys(address: Ipv6Addr) -> bool {
    let octets = address.octets();
    let fits = |places: &[usize; 4]| {
        octets[8] == 0 && octets[places[3] + 1..].iter().all(|octet| *octet == 0)
    };
    !PLACES.into_iter().filter(fits).any(|places| octets[places[0]] != 0)
}

fn read(address: Ipv6Addr, places: [usize; 4]) -> Ipv4Addr {
    let octets = address.octets();
    Ipv4Addr::from(places.map(|place| octets[place]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::destination::Destination;
    use crate::policy::access::{Decider, special};
    use crate::settings::{HostPattern, KnownAccount, Pattern, Rule, Settings};
    use ipnet::{Ipv4Net, Ipv6Net};
    use proptest::prelude::*;
    use std::net::IpAddr;

    fn nat64(prefix: &str) -> Option<Nat64> {
        Nat64::new(prefix.parse().unwrap())
    }

    fn net(v4: Ipv4Addr) -> HostPattern {
        HostPattern::Net(Ipv4Net::new(v4, 24).unwrap().trunc().into())
    }

    fn to(host: HostPattern) -> Vec<Pattern> {
        vec![Pattern { host, ports: None }]
    }

    fn rule(host: HostPattern, allow: bool) -> Rule {
        Rule { to: to(host), allow, ..Rule::default() }
    }

    fn everybody() -> Rule {
        Rule { allow: true, ..Rule::default() }
    }

    /// Of a relay with this translator and these rules.
    fn relay(prefix: Option<Ipv6Net>, rules: &[Rule]) -> Settings {
        let mut settings = Settings::default();
        settings.dns.nat64 = prefix;
        settings.access.rules = rules.to_vec();
        settings
    }

    fn outside(settings: &Settings) -> Decider<'_> {
        settings.decider("192.0.2.9".parse().unwrap())
    }

    /// By address, and by a name that leads to it.
    fn refused(decider: Decider<'_>, address: Ipv6Addr) -> bool {
        let (named, address) = (Destination::parse("a.example:80", None).unwrap(), address.into());
        let itself = Destination { host: crate::destination::Host::Address(address), port: 80 };
        let by = [
            decider.named(&itself).is_err(),
            decider.address(&itself, address).is_err(),
            decider.address(&named, address).is_err(),
        ];
        assert_eq!(by, [by[0]; 3], "{address}");
        by[0]
    }

    #[test]
    fn finds_where_addresses_of_ipv4_stand() {
        for (address, prefix, found) in [
            ("::ffff:9.8.7.6", None, "9.8.7.6"),
            ("::9.8.7.6", None, "9.8.7.6"),
            ("::ffff:0:9.8.7.6", None, "9.8.7.6"),
            ("2002:908:706::1", None, "9.8.7.6"),
            ("64:ff9b::9.8.7.6", None, "9.8.7.6"),
            ("64:ff9b::9.8.7.6", nat64("2a00:64::/96"), "9.8.7.6"),
            ("64:ff9b:1::9.8.7.6", None, "9.8.7.6"),
            ("64:ff9b:1:908:7:600::", None, "9.8.7.6 8.7.6.0 7.6.0.0"),
            // the length is known, and what follows is ignored
            ("64:ff9b:1:908:7:600:1:1", nat64("64:ff9b:1::/48"), "9.8.7.6"),
            ("2a00:64:908:706::", nat64("2a00:64::/32"), "9.8.7.6"),
            ("2a00:64:0:9:8:706::", nat64("2a00:64::/56"), "9.8.7.6"),
            ("2a00:64::9.8.7.6", nat64("2a00:64::/96"), "9.8.7.6"),
            ("2a00:64::9.8.7.6", None, ""),
            ("2a00:65::9.8.7.6", nat64("2a00:64::/96"), ""),
            ("::", None, ""),
            ("::1", None, ""),
        ] {
            let list: Vec<_> = embedded(address.parse().unwrap(), prefix).collect();
            let list: Vec<_> = list.iter().map(ToString::to_string).collect();
            assert_eq!(list.join(" "), found, "{address}");
        }
    }

    #[test]
    fn private_addresses_behind_a_translator_are_open_to_whom_they_are_open() {
        let prefix: Ipv6Net = "2a00:64::/96".parse().unwrap();
        let of = |v4: [u8; 4]| Nat64::new(prefix).unwrap().embed(v4.into());
        let (private, metadata) = (of([10, 0, 0, 5]), of([169, 254, 169, 254]));
        let mut settings = relay(Some(prefix), &[everybody()]);
        let home = |settings: &Settings, to| refused(settings.decider([10, 1, 1, 1].into()), to);
        assert!(!home(&settings, private) && home(&settings, metadata));
        assert!(refused(outside(&settings), private));
        assert!(refused(settings.decider_for_peer("ship"), private));
        // what is opened here is not what is behind it
        settings.access.allow_destinations = vec!["10.0.0.0/8".parse().unwrap()];
        assert!(refused(outside(&settings), private));
        settings.access.allow_destinations = vec!["2a00:64::a00:0/104".parse().unwrap()];
        assert!(!refused(outside(&settings), private) && refused(outside(&settings), metadata));
        // a prefix within fd00::/8 opens to private clients what they may reach by IPv4
        let prefix: Ipv6Net = "fd00:64::/96".parse().unwrap();
        let of = |v4: [u8; 4]| Nat64::new(prefix).unwrap().embed(v4.into());
        let settings = relay(Some(prefix), &[everybody()]);
        assert!(!home(&settings, of([10, 0, 0, 5])) && !home(&settings, of([9, 9, 9, 9])));
        for closed in [[169, 254, 169, 254], [127, 0, 0, 1], [224, 0, 0, 1], [240, 0, 0, 1]] {
            assert!(home(&settings, of(closed)), "{closed:?}");
        }
    }

    #[test]
    fn a_claimed_name_is_judged_at_the_address_of_ipv4_too() {
        let deny_name = rule(HostPattern::Name("a.example".into()), false);
        let v6 = rule(HostPattern::Net("::/0".parse().unwrap()), true);
        let claimed = Destination::parse("a.example:80", None).unwrap();
        let at = |text: &str| text.parse::<IpAddr>().unwrap();
        let settings = relay(Some("2a00:64::/96".parse().unwrap()), &[v6, deny_name]);
        let client = outside(&settings);
        assert!(client.claimed(&claimed, at("2a00:65::9.9.9.9")).is_ok());
        assert!(client.claimed(&claimed, at("2a00:64::9.9.9.9")).is_err());
    }

    proptest! {
        #[test]
        fn an_address_of_a_translator_is_judged_as_that_of_ipv4(
            which in 0_usize..9, v4: u32, special_v4 in 0_usize..200, suffix: u128,
        ) {
            let prefixes = [
                "2a00:64::/32", "2a00:64::/40", "2a00:64:1::/48", "2a00:64:1:100::/56",
                "2a00:64:1:1::/64", "2a00:64::/96", "64:ff9b::/96", "64:ff9b:1::/48",
                "64:ff9b:1::/96",
            ];
            let prefix: Ipv6Net = prefixes[which].parse().unwrap();
            let translator = Nat64::new(prefix).unwrap();
            let listed = ekiden_testkit::forbidden::addresses().map(|(address, _)| address);
            let listed: Vec<_> = listed.filter(IpAddr::is_ipv4).collect();
            let v4 = match listed.get(special_v4) {
                Some(IpAddr::V4(v4)) => *v4,
                _ => Ipv4Addr::from(v4),
            };
            let embedded = translator.embed(v4);
            // bits that a translator ignores
            let bits = prefix.prefix_len() + 32 + u8::from(prefix.prefix_len() < 96) * 8;
            let ignored = u128::MAX.checked_shr(bits.into()).unwrap_or(0);
            let other = Ipv6Addr::from_bits(embedded.to_bits() | suffix & ignored);
            for address in [embedded, other] {
                prop_assert_eq!(translator.translate(address), Some(v4));
                let open = relay(Some(prefix), &[everybody()]);
                let special = special(v4.into()).is_some();
                if special {
                    prop_assert!(refused(outside(&open), address), "special");
                }
                let denied = relay(Some(prefix), &[rule(net(v4), false), everybody()]);
                prop_assert!(refused(outside(&denied), address), "by a rule");
                let v6 = rule(HostPattern::Net("::/0".parse().unwrap()), true);
                prop_assert!(refused(outside(&relay(Some(prefix), &[v6])), address), "some allowed");
                let account = |allow, deny| KnownAccount { id: 1, name: "a".into(), allow, deny };
                let denies = account(vec![], to(net(v4)));
                prop_assert!(refused(outside(&open).of(Some(&denies)), address), "by the account");
                let v6 = account(to(HostPattern::Net("::/0".parse().unwrap())), vec![]);
                prop_assert!(refused(outside(&open).of(Some(&v6)), address), "its list");
                // and nothing else is refused
                let elsewhere = net(Ipv4Addr::from_bits(v4.to_bits() ^ 1 << 31));
                let fine = relay(Some(prefix), &[rule(elsewhere, false), everybody()]);
                if which < 7 && !special {
                    prop_assert!(!refused(outside(&fine), address));
                }
            }
        }
    }
}
