//! Addresses of IPv4 as clients without IPv4 reach them: a translator (RFC 6146) at a prefix takes the packets, and
//! names without IPv6 are answered with addresses in it (RFC 6147).

use super::answer::Answer;
use super::question::Question;
use ekiden_model::dns::Found;
use ekiden_model::units::Span;
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::rdata::AAAA;
use hickory_resolver::proto::rr::{RData, RecordType};
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
    /// addresses.
    pub fn synthesize(
        self,
        question: &Question,
        of_v4: &Answer,
        ttl: Span,
    ) -> Option<Found<Arc<Answer>>> {
        if of_v4.negative {
            return None;
        }
        let (mut records, _) = of_v4.records()?;
        for record in &mut records {
            if let RData::A(address) = &record.data {
                record.data = RData::AAAA(AAAA(self.embed(address.0)));
            }
        }
        records.retain(|record| matches!(record.data, RData::AAAA(_) | RData::CNAME(_)));
        let answer = Answer::new(question, ResponseCode::NoError, records, Vec::new())?;
        Some(answer.found(ttl))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(nat64.embed(Ipv4Addr::new(192, 0, 2, 33)), expected, "{prefix}");
        }
        assert!(Nat64::new("2001:db8::/33".parse().unwrap()).is_none());
    }
}
