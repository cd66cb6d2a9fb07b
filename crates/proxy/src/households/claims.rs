//! Who comes from where: prefixes and relays, and the households that claim them.

use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// Prefixes and relays by household. A look-up takes one step for each length of prefix there is.
#[derive(Debug, Default)]
pub(super) struct Claims {
    nets: BTreeMap<IpNet, Arc<str>>,
    /// Longest first, by family.
    lengths: [BTreeSet<std::cmp::Reverse<u8>>; 2],
    relays: BTreeMap<String, Arc<str>>,
}

impl Claims {
    pub(super) fn claim(&mut self, net: IpNet, name: &Arc<str>) {
        let net = net.trunc();
        self.lengths[family(net.addr())].insert(std::cmp::Reverse(net.prefix_len()));
        self.nets.insert(net, Arc::clone(name));
    }

    pub(super) fn claim_relay(&mut self, relay: &str, name: &Arc<str>) {
        self.relays.insert(relay.to_owned(), Arc::clone(name));
    }

    /// Whether nobody claims anybody.
    pub(super) fn is_empty(&self) -> bool {
        self.nets.is_empty() && self.relays.is_empty()
    }

    /// Whose an address is.
    pub(super) fn of(&self, address: IpAddr) -> Option<&Arc<str>> {
        let address = address.to_canonical();
        self.lengths[family(address)].iter().find_map(|length| {
            let net = IpNet::new(address, length.0).ok()?.trunc();
            self.nets.get(&net)
        })
    }

    /// Whose what comes out of a relay's tunnel is.
    pub(super) fn of_relay(&self, relay: &str) -> Option<&Arc<str>> {
        self.relays.get(relay)
    }
}

const fn family(address: IpAddr) -> usize {
    if address.is_ipv4() { 0 } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_decides() {
        let mut claims = Claims::default();
        for (net, name) in [
            ("100.64.0.0/16", "village"),
            ("100.64.7.0/24", "school"),
            ("100.64.7.9/32", "teacher"),
            ("fd65:6b69:64::/48", "village"),
        ] {
            claims.claim(net.parse().unwrap(), &name.into());
        }
        claims.claim_relay("island", &"island".into());
        for (address, name) in [
            ("100.64.1.1", Some("village")),
            ("100.64.7.8", Some("school")),
            ("100.64.7.9", Some("teacher")),
            ("::ffff:100.64.7.9", Some("teacher")),
            ("fd65:6b69:64:1::2", Some("village")),
            ("fd65:6b69:65::1", None),
            ("100.65.0.1", None),
        ] {
            let found = claims.of(address.parse().unwrap()).map(|name| &**name);
            assert_eq!(found, name, "{address}");
        }
        assert_eq!(claims.of_relay("island").map(|name| &**name), Some("island"));
        assert!(claims.of_relay("ship").is_none());
    }
}
