//! Upstreams, routes and rules: names that must exist, and entries that never match.

use crate::draft::{Draft, RuleDraft};
use crate::problem::similar;
use crate::reader::Reader;
use crate::value::url;
use ekiden_proxy::settings::{Pattern, UpstreamProtocol};
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};

/// A tunnel begins at this relay, so nothing can stand before it in a chain.
pub(super) fn tunnels(
    reader: &mut Reader<'_>,
    draft: &Draft,
    urls: &BTreeMap<String, url::UpstreamUrl>,
) {
    let is_tunnel =
        |name: &String| urls.get(name).is_some_and(|url| url.protocol == UpstreamProtocol::Tunnel);
    for (index, route) in draft.routes.iter().enumerate() {
        for (number, chain) in route.through.iter().enumerate() {
            if let Some(name) = chain.iter().skip(1).find(|name| is_tunnel(name)) {
                reader.error(
                    &format!("route[{index}].through[{number}]"),
                    format!("upstream `{name}` is a tunnel and can only be the first of a chain"),
                    "the relay at its other end has routes of its own, which may go through other tunnels",
                );
            }
        }
    }
}

fn leg_exists(reader: &mut Reader<'_>, draft: &Draft, path: &str, name: &str) {
    if !draft.legs.contains_key(name) {
        let known: Vec<&str> = draft.legs.keys().map(String::as_str).collect();
        reader.error(
            path,
            format!("there is no leg `{name}`"),
            similar::hint("legs", name, &known),
        );
    }
}

pub(super) fn upstreams(
    reader: &mut Reader<'_>,
    draft: &Draft,
) -> BTreeMap<String, url::UpstreamUrl> {
    let used: BTreeSet<&str> =
        draft.routes.iter().flat_map(|r| r.through.iter().flatten()).map(String::as_str).collect();
    let mut urls = BTreeMap::new();
    for (name, upstream) in &draft.upstreams {
        let path = format!("upstream.{name}");
        if name == "direct" {
            reader.error(
                &path,
                "an upstream cannot be named `direct`: in routes that means no upstream",
                "",
            );
        } else if !used.contains(name.as_str()) {
            reader.warn(
                &path,
                format!("upstream `{name}` is used by no route"),
                format!("for all destinations: [[route]] with through = [\"{name}\"]"),
            );
        }
        leg_exists(reader, draft, &format!("{path}.leg"), &upstream.leg);
        let url_path = format!("{path}.url");
        if upstream.url.is_empty() {
            // an invalid url has been reported
            if !reader.spans.contains_key(&url_path) {
                reader.error(
                    &path,
                    format!("upstream `{name}` has no `url`"),
                    "such as url = \"http://host:3128\", \"socks5://host:1080\" or \"tunnel://name\"",
                );
            } else {
                reader.error(
                    &url_path,
                    "`url` is empty or not a text",
                    "such as \"http://host:3128\", \"socks5://host:1080\" or \"tunnel://name\"",
                );
            }
            continue;
        }
        match url::read(&upstream.url) {
            Ok(url) => {
                let password = url.user.as_ref().map(|(_, password)| password.is_some());
                match (password, &upstream.password_file) {
                    (None, Some(_)) => reader.error(
                        &format!("{path}.password_file"),
                        "a password without a user",
                        "name the user in `url`: \"http://user@host:3128\"",
                    ),
                    (Some(true), Some(_)) => reader.error(
                        &format!("{path}.password_file"),
                        "`url` already has a password",
                        "remove it there",
                    ),
                    (Some(false), None) => reader.warn(
                        &url_path,
                        "a user without a password: an empty one is sent",
                        "set password_file",
                    ),
                    _ => {}
                }
                for (key, set) in
                    [("ca", upstream.ca.is_some()), ("fingerprint", upstream.fingerprint.is_some())]
                {
                    if set && url.protocol != UpstreamProtocol::Https {
                        reader.error(
                            &format!("{path}.{key}"),
                            format!("`{key}` is for TLS, and this upstream speaks none"),
                            "url = \"https://host:443\", or remove it",
                        );
                    }
                }
                if !upstream.private_methods && url.protocol != UpstreamProtocol::Socks5 {
                    reader.error(
                        &format!("{path}.private_methods"),
                        "`private_methods` is for SOCKS5, and this upstream speaks another protocol",
                        "url = \"socks5://host:1080\", or remove it",
                    );
                }
                if upstream.ca.is_some() && upstream.fingerprint.is_some() {
                    reader.error(
                        &format!("{path}.ca"),
                        "`ca` and `fingerprint` exclude each other",
                        "a pinned certificate needs no authority: keep one of the two",
                    );
                }
                urls.insert(name.clone(), url);
            }
            Err(why) => reader.error(&url_path, format!("`url`: {why}"), ""),
        }
    }
    urls
}

/// Whether prefixes match every client.
fn matches_everybody(nets: &[IpNet]) -> bool {
    let whole =
        |v4: bool| nets.iter().any(|n| n.prefix_len() == 0 && matches!(n, IpNet::V4(_)) == v4);
    nets.is_empty() || (whole(true) && whole(false))
}

pub(super) fn routes(reader: &mut Reader<'_>, draft: &Draft) {
    let known: Vec<&str> = draft.upstreams.keys().map(String::as_str).collect();
    let mut all_taken = false;
    for (index, route) in draft.routes.iter().enumerate() {
        let path = format!("route[{index}]");
        if all_taken {
            reader.warn(
                &path,
                "this route is never reached: the one before it matches everything",
                "move it up",
            );
            break;
        }
        all_taken = Pattern::match_all(&route.to);
        if route.through.is_empty() {
            reader.error(
                &format!("{path}.through"),
                "`through` is empty: no path to the destination",
                "remove it, or write [\"direct\"] for no upstream",
            );
        }
        let mut seen = BTreeSet::new();
        for (number, chain) in route.through.iter().enumerate() {
            let chain_path = format!("{path}.through[{number}]");
            for hop in chain.iter().filter(|hop| !draft.upstreams.contains_key(hop.as_str())) {
                if reader.problems.has_room() {
                    let hop = crate::value::pattern::shorten(hop);
                    let direct = chain.len() == 1 && similar::closest(&hop, ["direct"]).is_some();
                    let hint = match direct {
                        true => "did you mean `direct`?".to_owned(),
                        false => similar::hint("upstreams", &hop, &known),
                    };
                    reader.error(&chain_path, format!("there is no upstream `{hop}`"), hint);
                }
            }
            if !seen.insert(chain) {
                reader.warn(&chain_path, "this chain is in the list twice", "");
            }
        }
        leg_exists(reader, draft, &format!("{path}.leg"), &route.leg);
        leg_exists(reader, draft, &format!("{path}.client_leg"), &route.client_leg);
    }
}

/// Whether one rule is for all clients that another one names.
fn is_for_clients_of(before: &RuleDraft, rule: &RuleDraft) -> bool {
    let within = |net: &IpNet| before.from.iter().any(|wide| wide.contains(net));
    let named = |peer: &String| before.peers.iter().any(|known| known == "*" || known == peer);
    rule.from.iter().all(within) && rule.peers.iter().all(named)
}

pub(super) fn rules(reader: &mut Reader<'_>, draft: &Draft) {
    let mut all_taken = false;
    let mut peers_left = false;
    // rules that allow everything to some clients
    let mut allow_all: Vec<(usize, &RuleDraft)> = Vec::new();
    for (index, rule) in draft.rules.iter().enumerate() {
        let path = format!("rule[{index}]");
        if !reader.spans.contains_key(&format!("{path}.action")) {
            reader.error(
                &path,
                "this rule has no `action`",
                "action = \"allow\" or action = \"deny\"",
            );
        }
        if all_taken && (!peers_left || rule.peers.is_empty()) {
            reader.warn(
                &path,
                "this rule is never reached: the one before it matches everything",
                "move it up",
            );
            break;
        }
        // one whose clients are mistyped is not for everybody
        let names = |key: &str| reader.spans.contains_key(&format!("{path}.{key}"));
        let mistyped = rule.from.is_empty() && names("from")
            || rule.peers.is_empty() && names("peers")
            || rule.to.is_empty() && names("to");
        let everybody = rule.from.is_empty() && rule.peers.is_empty() && !mistyped;
        let clients = !rule.from.is_empty() && matches_everybody(&rule.from);
        // the last word on all others stands behind them, and an exemption before what it exempts from
        let later = draft.rules.iter().skip(index + 1).any(|later| later.action == "allow");
        let meant = mistyped || everybody && (later || Pattern::match_all(&rule.to));
        let first = allow_all.iter().find(|(_, before)| is_for_clients_of(before, rule));
        if let Some((number, _)) = first.filter(|_| rule.action == "deny" && !meant) {
            reader.warn(
                &path,
                format!("this rule does not hold for clients of rule {number}, which allows them everything"),
                "the first rule that matches decides: move this one up",
            );
        }
        if rule.action == "allow" && Pattern::match_all(&rule.to) && !mistyped {
            allow_all.push((index + 1, rule));
        }
        peers_left = !everybody;
        all_taken = (everybody || clients) && Pattern::match_all(&rule.to) && !mistyped;
        if rule.action == "deny" && !rule.allow_destinations.is_empty() {
            reader.warn(
                &format!("{path}.allow_destinations"),
                "`allow_destinations` has no effect in a rule that denies",
                "",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{read, render_all};

    fn problems(text: &str) -> String {
        render_all(&read(text, "test.toml").problems)
    }

    fn upstream(url: &str, more: &str) -> String {
        problems(&format!(
            "[upstream.far]\nurl = \"{url}\"\n{more}\n[[route]]\nthrough = [\"far\"]\n"
        ))
    }

    #[test]
    fn a_deny_behind_what_allows_its_clients_everything_is_reported() {
        let rules = |rules: &[(&str, &str)]| {
            let rule = |(action, keys): &(&str, &str)| {
                format!("[[rule]]\naction = \"{action}\"\n{keys}\n")
            };
            problems(&rules.iter().map(rule).collect::<String>())
        };
        let (lan, mail) = ("from = [\"192.168.0.0/16\"]", "to = [\":25\"]");
        let part = format!("from = [\"192.168.7.0/24\"]\n{mail}");
        let peers = |names: &str| format!("peers = [{names}]\n{mail}");
        let found = "does not hold for clients of rule 1,";
        for denied in [mail, part.as_str()] {
            assert!(rules(&[("allow", lan), ("deny", denied)]).contains(found), "{denied}");
            assert_eq!(rules(&[("deny", denied), ("allow", lan)]), "");
        }
        let island = peers("\"island\"");
        let shown = rules(&[("allow", "peers = [\"*\"]"), ("deny", island.as_str())]);
        assert!(shown.contains(found), "{shown}");
        // it holds for others, or for what the first one does not allow
        let wider = format!("from = [\"192.168.0.0/16\", \"10.0.0.0/8\"]\n{mail}");
        for denied in [wider.as_str(), island.as_str(), "from = [\"10.0.0.0/8\"]"] {
            assert_eq!(rules(&[("allow", lan), ("deny", denied)]), "", "{denied}");
        }
        assert_eq!(rules(&[("allow", lan), ("deny", "")]), "", "the last word");
        let exempt = "from = [\"192.168.0.2\"]";
        assert_eq!(rules(&[("allow", exempt), ("deny", mail), ("allow", lan)]), "", "an exemption");
        let web = format!("{lan}\nto = [\":80\"]");
        assert_eq!(rules(&[("allow", web.as_str()), ("deny", part.as_str())]), "");
    }

    #[test]
    fn methods_for_private_use_belong_to_socks() {
        assert_eq!(upstream("socks5://a.example:1080", "private_methods = false"), "");
        let other = upstream("http://a.example:80", "private_methods = false");
        assert!(other.contains("is for SOCKS5"), "{other}");
    }

    #[test]
    fn keys_of_tls_to_an_upstream_belong_to_https() {
        let pin = format!("fingerprint = \"sha256:{}\"", "0a".repeat(32));
        assert_eq!(upstream("https://relay.example:443", ""), "");
        assert_eq!(upstream("https://relay.example:443", "ca = \"/ca.pem\""), "");
        assert_eq!(upstream("https://relay.example:443", &pin), "");
        assert!(upstream("http://relay.example:80", &pin).contains("speaks none"));
        let both = upstream("https://relay.example:443", &format!("ca = \"/ca.pem\"\n{pin}"));
        assert!(both.contains("exclude each other"), "{both}");
        assert!(
            upstream("https://a.example:1", "fingerprint = \"sha256:1\"")
                .contains("64 hexadecimal")
        );
    }
}
