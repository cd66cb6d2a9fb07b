//! Addresses at which the rules admit much of the Internet, though each rule names some network.

use crate::check::beyond;
use crate::draft::{Draft, RuleDraft};
use crate::reader::Reader;
use ekiden_proxy::destination::Destination;
use ekiden_proxy::settings::{HostPattern, Pattern, Unclaimed};
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// Addresses as numbers, from the first to before the second.
type Range = (u128, u128);

/// What an address serves.
#[derive(Debug, Clone, Copy)]
enum Serves<'a> {
    /// Any destination.
    All,
    /// The destination of a forwarded port.
    One(&'a Destination),
    /// Questions for names.
    Names,
}

/// Of IPv4 and IPv6, whether clients of half of the public addresses may go through this relay without a log-in.
pub(super) fn to_proxy(draft: &Draft) -> [bool; 2] {
    [true, false].map(|v4| admits_half(draft, Serves::All, v4))
}

/// Who that is, in words.
pub(super) fn crowd(at: SocketAddr) -> String {
    let family = if at.is_ipv4() { "IPv4" } else { "IPv6" };
    format!("the rules admit at least half of all public {family} addresses on {at}")
}

/// Forwarded ports, and the port for names.
pub(in crate::check) fn doors(reader: &mut Reader<'_>, draft: &Draft) {
    if reader.has_misread("rule[") || reader.has_misread("accounts.") {
        return;
    }
    let admitted = to_proxy(draft);
    let admits = |serves: Serves<'_>, at: &SocketAddr| {
        beyond(at) && admits_half(draft, serves, at.is_ipv4())
    };
    for (index, forward) in draft.forwards.iter().enumerate() {
        let Ok(to) = Destination::parse(&forward.to, None) else { continue };
        if !reader.problems.has_room() {
            return;
        }
        for (nth, at) in forward.listen.iter().enumerate() {
            // no such port admits more clients than all destinations do
            let is_meant = || draft.rules.iter().any(|rule| names(rule, &to, at.is_ipv4()));
            if admitted[usize::from(at.is_ipv6())] && admits(Serves::One(&to), at) && !is_meant() {
                let hint = format!(
                    "name your clients in `from`; if {to} is for everybody, name it in that rule's `to`"
                );
                reader.warn(&format!("forward[{index}].listen[{nth}]"), crowd(*at), hint);
            }
        }
    }
    for (nth, at) in draft.dns.listen.iter().enumerate() {
        if admits(Serves::Names, at) {
            reader.warn(
                &format!("dns.listen[{nth}]"),
                format!("{}, which makes it an open resolver", crowd(*at)),
                "name your clients in `from`; open resolvers are abused to flood others",
            );
        }
    }
}

/// Whether a rule admits half of a family to this destination by its name or network: it is for everybody.
fn names(rule: &RuleDraft, to: &Destination, v4: bool) -> bool {
    let named = |one: &Pattern| one.host != HostPattern::Any && one.matches(to, None);
    let decided = decision(rule, Serves::One(to), v4).filter(|_| rule.to.iter().any(named));
    decided.is_some_and(|decided| is_half(&[decided], v4))
}

/// Whether at least half of a family's public addresses are those of clients that come in without a log-in: the first
/// rule that decides about what is served there allows it.
fn admits_half(draft: &Draft, serves: Serves<'_>, v4: bool) -> bool {
    if draft.accounts.enabled && draft.accounts.required {
        return false;
    }
    if draft.shared.unclaimed == Unclaimed::Refuse {
        let claimed = draft.account.iter().flat_map(|account| ranges(&account.addresses, v4));
        if !is_half(&[(true, claimed.collect())], v4) {
            return false;
        }
    }
    let rules = draft.rules.iter();
    let decisions = rules.filter_map(|rule| decision(rule, serves, v4)).collect::<Vec<_>>();
    is_half(&decisions, v4)
}

/// Whether a rule allows what is served, and to whom; `None` where it decides nothing, or only for some destinations.
fn decision(rule: &RuleDraft, serves: Serves<'_>, v4: bool) -> Option<(bool, Vec<Range>)> {
    let allows = rule.action == "allow";
    let decides = match serves {
        Serves::All => allows || Pattern::match_all(&rule.to),
        Serves::One(to) => rule.to.is_empty() || rule.to.iter().any(|one| one.matches(to, None)),
        Serves::Names => allows || rule.to.is_empty(),
    };
    let everybody = rule.from.is_empty() && rule.peers.is_empty();
    let clients = match serves {
        // a rule for everybody, or from everywhere, lets no public address ask
        Serves::Names if allows => {
            let named = rule.from.iter().filter(|net| net.prefix_len() > 0).copied();
            ranges(&named.collect::<Vec<_>>(), v4)
        }
        _ if everybody => vec![public(v4)],
        _ => ranges(&rule.from, v4),
    };
    (decides && !clients.is_empty()).then_some((allows, clients))
}

/// Where the addresses of clients on the Internet are: below multicast, and 2000::/3 (RFC 4291 section 2.4). The private
/// ones among those of IPv4 are one in a hundred.
const fn public(v4: bool) -> Range {
    if v4 { (1 << 24, 224 << 24) } else { (1 << 125, 1 << 126) }
}

/// The public part of the prefixes of one family.
fn ranges(nets: &[IpNet], v4: bool) -> Vec<Range> {
    let (first, end) = public(v4);
    let number = |address: IpAddr| match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    };
    let range = |net: &IpNet| {
        let from = number(net.network()).max(first);
        let to = number(net.broadcast()).saturating_add(1).min(end);
        (from < to).then_some((from, to))
    };
    nets.iter().filter(|net| matches!(net, IpNet::V4(_)) == v4).filter_map(range).collect()
}

/// Whether the first decision allows at least half of a family's public addresses.
fn is_half(decisions: &[(bool, Vec<Range>)], v4: bool) -> bool {
    let mut edges: Vec<(u128, usize, i64)> = Vec::new();
    for (index, (_, ranges)) in decisions.iter().enumerate() {
        for (from, to) in ranges {
            edges.extend([(*from, index, 1), (*to, index, -1)]);
        }
    }
    edges.sort_unstable();
    // the decisions that hold at an address, and by how many of their prefixes
    let mut held: BTreeMap<usize, i64> = BTreeMap::new();
    let (mut before, mut allowed) = (0_u128, 0_u128);
    for (at, index, step) in edges {
        if held.keys().next().is_some_and(|first| decisions[*first].0) {
            allowed += at - before;
        }
        before = at;
        let count = held.entry(index).or_default();
        *count += step;
        if *count == 0 {
            held.remove(&index);
        }
    }
    let (first, end) = public(v4);
    allowed >= (end - first) / 2
}

#[cfg(test)]
mod tests {
    use crate::{read, render_all};

    fn problems(text: &str) -> String {
        render_all(&read(text, "test.toml").problems)
    }

    fn rule(action: &str, from: &str, more: &str) -> String {
        format!("[[rule]]\nfrom = [{from}]\naction = \"{action}\"\n{more}")
    }

    const V4: &str = "listen = [\"0.0.0.0:20005\"]\n";
    const V6: &str = "listen = [\"[::]:20005\"]\n";
    const HALVES: &str = "\"0.0.0.0/1\", \"128.0.0.0/1\"";
    const OPTIONAL: &str = "[accounts]\nenabled = true\nrequired = false\n";

    #[test]
    fn rules_that_together_admit_half_of_the_internet_are_warned_of() {
        let allow = |from: &str| rule("allow", from, "");
        let said_v4 =
            "at least half of all public IPv4 addresses on 0.0.0.0:20005 without a log-in";
        let said_v6 = "at least half of all public IPv6 addresses on [::]:20005 without a log-in";
        for (text, said) in [
            (format!("{V4}{}", allow("\"0.0.0.0/0\"")), said_v4),
            (format!("{V4}{}", allow("\"0.0.0.0/1\"")), said_v4),
            (format!("{V4}{}", allow("\"0.0.0.0/1\", \"128.0.0.0/1\", \"::/0\"")), said_v4),
            (format!("{V4}{}{}", allow("\"0.0.0.0/2\""), allow("\"64.0.0.0/2\"")), said_v4),
            (format!("{V4}{OPTIONAL}{}", allow("\"0.0.0.0/0\"")), said_v4),
            (format!("{V4}{OPTIONAL}[[rule]]\naction = \"allow\"\nto = [\":443\"]\n"), said_v4),
            (format!("{V6}{}", allow("\"::/0\"")), said_v6),
            (format!("{V6}{}", allow("\"2000::/4\"")), said_v6),
            // the first rule that matches decides
            (
                format!("{V4}{}{}", allow("\"0.0.0.0/0\""), rule("deny", "\"0.0.0.0/0\"", "")),
                said_v4,
            ),
            (format!("{V4}{}{}", rule("deny", HALVES, "to = [\":25\"]\n"), allow(HALVES)), said_v4),
        ] {
            let found = problems(&text);
            assert!(found.contains(said), "{text}: {found}");
            assert!(!found.contains("cannot log in"), "{text}: {found}");
            assert!(read(&text, "test.toml").is_usable(), "{text}: {found}");
        }
    }

    #[test]
    fn few_clients_or_those_that_log_in_are_not_warned_of() {
        let allow = |from: &str| rule("allow", from, "");
        let everywhere = allow("\"0.0.0.0/0\"");
        let private = "\"10.0.0.0/8\", \"172.16.0.0/12\", \"192.168.0.0/16\", \"fc00::/7\"";
        for text in [
            format!("{V4}{}", allow("\"128.0.0.0/2\", \"100.64.0.0/10\"")),
            format!("{V4}{}", allow("\"::/0\"")),
            format!("{V6}{everywhere}"),
            format!("{V6}{}", allow("\"4000::/2\"")),
            format!("{V4}{}", allow(private)),
            format!("{V4}{}{everywhere}", rule("deny", HALVES, "")),
            format!("listen = [\"127.0.0.1:20005\"]\n{everywhere}"),
            format!("{V4}{everywhere}[accounts]\nenabled = true\ncleartext = true\n"),
            format!("{V4}{everywhere}[sharing]\nunclaimed = \"refuse\"\n"),
        ] {
            let found = problems(&text);
            assert!(!found.contains("at least half"), "{text}: {found}");
        }
    }

    #[test]
    fn forwarded_ports_and_the_port_for_names_are_warned_of_likewise() {
        let forward = "[[forward]]\nlisten = [\"192.0.2.1:8080\"]\nto = \"a.example:80\"\n";
        let dns = "[dns]\nlisten = [\"192.0.2.1:53\"]\n";
        let halves = rule("allow", HALVES, "");
        let found = problems(&format!("{halves}{forward}{dns}"));
        assert_eq!(found.matches("at least half").count(), 2, "{found}");
        assert!(found.contains("if a.example:80 is for everybody"), "{found}");
        assert!(found.contains("192.0.2.1:53, which makes it an open resolver"), "{found}");
        assert!(found.contains("test.toml:5:11") && found.contains("test.toml:8:11"), "{found}");
        // from everywhere, no public address may ask
        let everywhere = rule("allow", "\"0.0.0.0/0\"", "");
        assert_eq!(problems(&format!("{everywhere}{dns}")), "");
        assert!(problems(&format!("{everywhere}{forward}")).contains("at least half"));
        let some = rule("allow", "\"10.0.0.0/8\"", "to = [\"a.example\"]\n");
        assert!(problems(&format!("{some}{halves}{forward}")).contains("at least half"));
        // one that a rule names, another one, one that is denied before, and clients that need an account
        for rules in [
            rule("allow", HALVES, "to = [\"a.example:80\"]\n"),
            rule("allow", HALVES, "to = [\"b.example\"]\n"),
            rule("deny", HALVES, "to = [\"a.example\"]\n") + &halves,
            format!("{halves}[accounts]\nenabled = true\n"),
        ] {
            assert_eq!(problems(&format!("{rules}{forward}")), "", "{rules}");
        }
    }
}
