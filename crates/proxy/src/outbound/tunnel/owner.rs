//! Whose a flow through a tunnel is.
//!
//! Flows that come out of a peer's tunnel belong to the peer as a whole, or to its account here. Within that they belong
//! to owners that the peer tells apart by numbers. A peer numbers as it likes, so a number must gain it nothing: the next
//! relay divides a tunnel among owners first, and then among those behind each.

use crate::settings::KnownAccount;
use bytes::Bytes;
use ekiden_model::dns::Asker;
use ekiden_model::resources::overload::Source;
use ekiden_tunnel::frame::owner_and_behind;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// Owners behind a peer that are told apart for names: their rates have bounded memory, whatever numbers it gives.
const ASKERS: u8 = 64;

/// Its flows take turns as one, and share the flows and the memory of a tunnel as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FlowOwner<'a> {
    who: Who<'a>,
    behind: Option<Behind<'a>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Who<'a> {
    /// By its number.
    Account(i64),
    /// Without an account: an IPv4 address, or an IPv6 /64.
    Client(Source),
    /// Without an account: a peer, by its name.
    Peer(&'a str),
}

/// An owner behind a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Behind<'a> {
    /// Peers number apart from one another, also those of one account.
    peer: &'a str,
    number: &'a [u8],
}

impl<'a> FlowOwner<'a> {
    /// This relay itself.
    pub(crate) const OWN: Self =
        Self { who: Who::Client(Source::V4(Ipv4Addr::LOCALHOST.to_bits())), behind: None };

    pub(crate) fn of(account: Option<&KnownAccount>, client: IpAddr) -> Self {
        let client = || Who::Client(client.into());
        Self { who: account.map_or_else(client, |account| Who::Account(account.id)), behind: None }
    }

    /// Of a flow out of a peer's tunnel, which has this text for the account.
    pub(crate) fn behind(account: Option<&KnownAccount>, peer: &'a str, text: &'a [u8]) -> Self {
        let who = account.map_or(Who::Peer(peer), |account| Who::Account(account.id));
        // whoever is behind another relay behind the peer is that relay here
        let (number, _) = owner_and_behind(text);
        Self { who, behind: Some(Behind { peer, number }) }
    }

    /// For the next relay, which can tell owners apart but not identify them.
    pub(super) fn text(&self, numbers: &RandomState) -> Bytes {
        let mut text = numbers.hash_one(self.who).to_be_bytes().to_vec();
        if let Some(behind) = self.behind {
            text.extend_from_slice(&numbers.hash_one(behind).to_be_bytes());
        }
        text.into()
    }
}

/// As whom names are asked for a flow out of a peer's tunnel, which has this text for the account.
pub(crate) fn asker_behind(whole: Asker, text: &[u8]) -> Asker {
    let (number, _) = owner_and_behind(text);
    // relays number at random
    let number = number.last().map_or(0, |byte| byte % ASKERS);
    Asker::Behind(Arc::new(whole), number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn account(id: i64) -> KnownAccount {
        let (name, allow, deny) = ("home".to_owned(), Vec::new(), Vec::new());
        KnownAccount { id, name, allow, deny }
    }

    #[test]
    fn flows_of_one_account_or_of_one_ipv6_64_have_one_owner() {
        let at = |text: &str| text.parse::<IpAddr>().unwrap();
        let of = |id: i64, text| FlowOwner::of(Some(&account(id)), at(text));
        let none = |text| FlowOwner::of(None, at(text));
        assert_eq!(of(3, "192.0.2.1"), of(3, "2001:db8::1"));
        assert_ne!(of(3, "192.0.2.1"), of(4, "192.0.2.1"));
        assert_ne!(of(3, "192.0.2.1"), none("192.0.2.1"));
        assert_eq!(none("2001:db8::1"), none("2001:db8::ffff:1"));
        assert_ne!(none("2001:db8::1"), none("2001:db8:0:1::1"));
        assert_ne!(none("192.0.2.1"), none("192.0.2.2"));
    }

    #[test]
    fn names_are_asked_as_of_few_behind_a_peer_whatever_numbers_it_gives() {
        let asker = |text: &[u8]| asker_behind(Asker::Peer("near".into()), text);
        assert_ne!(asker(b"number-1"), asker(b"number-2"));
        // not those behind a relay behind it
        assert_eq!(asker(b"number-1of-one"), asker(b"number-1of-two"));
        let few: BTreeSet<_> = (0..=u8::MAX).map(|n| asker(&[n])).chain([asker(b"")]).collect();
        assert_eq!(few.len(), usize::from(ASKERS));
        assert!(few.iter().all(|asker| *asker.whole() == Asker::Peer("near".into())));
    }

    #[test]
    fn a_peer_is_one_owner_whatever_numbers_it_gives() {
        let numbers = RandomState::new();
        let home = account(3);
        for known in [None, Some(&home)] {
            let text = |peer, number| FlowOwner::behind(known, peer, number).text(&numbers);
            let owner = |peer, number| owner_and_behind(&text(peer, number)).0.to_vec();
            assert_eq!(owner("near", b"1"), owner("near", b"2"));
            assert_eq!(owner("near", b"1") == owner("ship", b"1"), known.is_some());
            // and those behind it are told apart
            assert_ne!(text("near", b"1"), text("near", b"2"));
            assert_ne!(text("near", b"1"), text("ship", b"1"));
            assert_eq!(text("near", b"1"), text("near", b"1"));
            // not those behind a relay behind it
            assert_eq!(text("near", b"number-1of-one"), text("near", b"number-1of-two"));
            assert_ne!(text("near", b"number-1of-one"), text("near", b"number-2of-one"));
        }
        // the account's own clients share its part
        let own = FlowOwner::of(Some(&home), Ipv4Addr::LOCALHOST.into()).text(&numbers);
        assert_eq!(owner_and_behind(&own), (&own[..], None));
        let behind = FlowOwner::behind(Some(&home), "near", b"").text(&numbers);
        assert_eq!(owner_and_behind(&behind).0, &own[..]);
        assert_ne!(owner_and_behind(&behind).1, None);
    }
}
