//! Which account claims a client, by its address or by the peer that it comes through.

use ipnet::IpNet;
use prefix_trie::joint::JointPrefixMap;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Accounts by prefix and by peer.
#[derive(Debug, Default)]
pub(super) struct Claims {
    nets: JointPrefixMap<IpNet, Arc<str>>,
    peers: BTreeMap<String, Arc<str>>,
}

impl Claims {
    pub(super) fn claim(&mut self, net: IpNet, name: &Arc<str>) {
        self.nets.insert(net.trunc(), Arc::clone(name));
    }

    pub(super) fn claim_peer(&mut self, peer: &str, name: &Arc<str>) {
        self.peers.insert(peer.to_owned(), Arc::clone(name));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.nets.is_empty() && self.peers.is_empty()
    }

    /// The account that claims an address: the longest matching prefix.
    fn of(&self, address: IpAddr) -> Option<&Arc<str>> {
        self.nets.get_lpm(&address.to_canonical().into()).map(|(_, name)| name)
    }

    /// The account that claims a client: the peer's, if it comes through one.
    pub(super) fn of_client(&self, address: IpAddr, peer: Option<&str>) -> Option<&Arc<str>> {
        match peer {
            Some(peer) => self.of_peer(peer),
            None => self.of(address),
        }
    }

    fn of_peer(&self, peer: &str) -> Option<&Arc<str>> {
        self.peers.get(peer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_wins() {
        let mut claims = Claims::default();
        for (net, name) in [
            ("100.64.0.0/16", "village"),
            ("100.64.7.0/24", "school"),
            ("100.64.7.9/32", "teacher"),
            ("fd65:6b69:64::/48", "village"),
        ] {
            claims.claim(net.parse().unwrap(), &name.into());
        }
        claims.claim_peer("island", &"island".into());
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
        assert_eq!(claims.of_peer("island").map(|name| &**name), Some("island"));
        assert!(claims.of_peer("ship").is_none());
    }
}
