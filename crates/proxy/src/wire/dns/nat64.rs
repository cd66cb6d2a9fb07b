//! Addresses of IPv4 as clients without IPv4 reach them: a translator (RFC 6146) at a prefix takes the packets, and
//! names without IPv6 are answered with addresses in it (RFC 6147).

use super::answer::Answer;
use super::question::Question;
use ekiden_model::dns::Found;
use ekiden_model::units::Span;
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::rdata::{AAAA, CNAME};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use ipnet::Ipv6Net;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// A translator's prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nat64 {
    prefix: Ipv6Net,
}

impl Nat64 {
    /// `None` where the prefix has none of the lengths of RFC 6052 §2.2: 32, 40, 48, 56, 64, 96.
    pub fn new(prefix: Ipv6Net) -> Option<Self> {
        let allowed = matches!(prefix.prefix_len(), 32 | 40 | 48 | 56 | 64 | 96);
        (allowed && prefix.network().octets()[8] == 0).then_some(Self { prefix })
    }

    /// The prefix.
    pub const fn prefix(self) -> Ipv6Net {
        self.prefix
    }

    /// The address of a host of IPv4 (RFC 6052 §2.2): its bytes follow the prefix, around the ninth byte of all.
    pub fn embed(self, address: Ipv4Addr) -> Ipv6Addr {
        let mut bytes = self.prefix.network().octets();
        let mut at = usize::from(self.prefix.prefix_len() / 8);
        for byte in address.octets() {
            if at == 8 {
                at += 1;
            }
            bytes[at] = byte;
            at += 1;
        }
        Ipv6Addr::from(bytes)
    }

    /// The host of IPv4 that an address in the prefix stands for; `None`: it stands for none.
    pub fn extract(self, address: Ipv6Addr) -> Option<Ipv4Addr> {
        // the bytes around it are zero
        self.translate(address).filter(|v4| self.embed(*v4) == address)
    }

    /// The host of IPv4 that the translator sends packets to: it ignores the bytes around that address (RFC 6052 §2.3).
    pub fn translate(self, address: Ipv6Addr) -> Option<Ipv4Addr> {
        if !self.prefix.contains(&address) {
            return None;
        }
        let from = usize::from(self.prefix.prefix_len() / 8);
        let places = (from..16).filter(|at| *at != 8).take(4);
        let mut v4 = [0; 4];
        for (byte, at) in v4.iter_mut().zip(places) {
            *byte = address.octets()[at];
        }
        Some(Ipv4Addr::from(v4))
    }

    /// The question that stands in for one about the name of an address in the prefix: the same about the address of
    /// IPv4 (RFC 6147 §5.3.1.2). `None`: it is about something else.
    pub fn reverse(self, question: &Question) -> Option<Question> {
        let checks_itself = question.dnssec && question.unchecked;
        if question.kind != RecordType::PTR || checks_itself {
            return None;
        }
        let IpAddr::V6(address) = address_of(&question.name)? else { return None };
        Some(Question { name: Name::from(self.extract(address)?), ..question.clone() })
    }

    /// The answer to a question about the name of an address in the prefix: an alias to the name of the address of
    /// IPv4, and what is known of that. `None` where it has no name.
    pub fn alias(question: &Question, reverse: &Question, of_v4: &Answer) -> Option<Answer> {
        if of_v4.negative {
            return None;
        }
        let (records, _) = of_v4.records()?;
        // times are put in with each reply
        let alias = RData::CNAME(CNAME(reverse.name.clone()));
        let alias = Record::from_rdata(question.name.clone(), 0, alias);
        let records = [vec![alias], records].concat();
        Answer::new(question, ResponseCode::NoError, records, Vec::new())
    }

    /// Whether a question is answered with such addresses where there are no others. A client that checks signatures by
    /// itself would reject them (RFC 6147 §5.5).
    pub fn applies(question: &Question) -> bool {
        question.kind == RecordType::AAAA && !(question.dnssec && question.unchecked)
    }

    /// Whether an answer is as good as none: no addresses of IPv6, or only those that stand for ones of IPv4 (RFC 6147
    /// §5.1.4).
    pub fn lacks(answer: &Answer) -> bool {
        let mapped = |address: &IpAddr| match address {
            IpAddr::V6(v6) => v6.to_ipv4_mapped().is_some(),
            IpAddr::V4(_) => false,
        };
        let all_mapped = !answer.addresses.is_empty() && answer.addresses.iter().all(mapped);
        answer.is_without_records() || all_mapped
    }

    /// The answer to a question for AAAA out of the answer for A, which holds for so long. `None` where that has no
    /// addresses that `allowed` permits: a translator carries packets to global ones (RFC 6052 §3.1).
    pub fn synthesize(
        self,
        question: &Question,
        of_v4: &Answer,
        ttl: Span,
        allowed: impl Fn(Ipv4Addr) -> bool,
    ) -> Option<Found<Arc<Answer>>> {
        if of_v4.negative {
            return None;
        }
        let (mut records, _) = of_v4.records()?;
        for record in &mut records {
            if let RData::A(address) = &record.data
                && allowed(address.0)
            {
                record.data = RData::AAAA(AAAA(self.embed(address.0)));
            }
        }
        records.retain(|record| matches!(record.data, RData::AAAA(_) | RData::CNAME(_)));
        let answer = Answer::new(question, ResponseCode::NoError, records, Vec::new())?;
        (!answer.negative).then(|| answer.found(ttl))
    }
}

/// The address that a name below `ip6.arpa` or `in-addr.arpa` is about, if it is a whole one.
fn address_of(name: &Name) -> Option<IpAddr> {
    let net = name.parse_arpa_name().ok()?;
    (net.prefix_len() == net.max_prefix_len()).then(|| net.addr())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_addresses_in_the_prefix_lead_to_those_of_ipv4() {
        let nat64 = Nat64::new("64:ff9b::/96".parse().unwrap()).unwrap();
        let asked = |address: &str, kind| {
            Question::new(Name::from(address.parse::<Ipv6Addr>().unwrap()), kind)
        };
        let question = asked("64:ff9b::192.0.2.33", RecordType::PTR);
        let reverse = nat64.reverse(&question).unwrap();
        assert_eq!(reverse.name.to_ascii(), "33.2.0.192.in-addr.arpa.");
        assert!(nat64.reverse(&asked("64:ff9b::192.0.2.33", RecordType::TXT)).is_none());
        assert!(nat64.reverse(&asked("64:ff9b:1::192.0.2.33", RecordType::PTR)).is_none());
        let checking = Question { dnssec: true, unchecked: true, ..question.clone() };
        assert!(nat64.reverse(&checking).is_none());
        // a whole network has no address
        let network = Question { name: question.name.base_name(), ..question.clone() };
        assert!(nat64.reverse(&network).is_none());
        let none = Answer::new(&reverse, ResponseCode::NXDomain, vec![], vec![]).unwrap();
        assert!(Nat64::alias(&question, &reverse, &none).is_none());
    }

    #[test]
    fn embeds_as_the_table_of_rfc_6052() {
        // §2.4
        for (prefix, embedded) in [
            ("2001:db8::/32", "2001:db8:c000:221::"),
            ("2001:db8:100::/40", "2001:db8:1c0:2:21::"),
            ("2001:db8:122::/48", "2001:db8:122:c000:2:2100::"),
            ("2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::"),
            ("2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100::"),
            ("2001:db8:122:344::/96", "2001:db8:122:344::192.0.2.33"),
            ("64:ff9b::/96", "64:ff9b::192.0.2.33"),
        ] {
            let nat64 = Nat64::new(prefix.parse().unwrap()).unwrap();
            let expected: Ipv6Addr = embedded.parse().unwrap();
            let host = Ipv4Addr::new(192, 0, 2, 33);
            assert_eq!(nat64.embed(host), expected, "{prefix}");
            assert_eq!(nat64.extract(expected), Some(host), "{prefix}");
            let beyond = Ipv6Addr::from_bits(expected.to_bits() ^ 1);
            let last = nat64.prefix().prefix_len() == 96;
            assert_eq!(nat64.extract(beyond).is_some(), last, "{prefix}");
            assert_eq!(nat64.translate(beyond) == Some(host), !last, "{prefix}");
        }
        assert!(Nat64::new("2001:db8::/33".parse().unwrap()).is_none());
    }
}
