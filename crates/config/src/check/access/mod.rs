//! Whether it is safe: who can reach the listening addresses, and how secrets travel.

mod open;

pub(super) use open::doors;

use super::beyond;
use crate::draft::{At, Control, Draft, RuleDraft};
use crate::problem::Problem;
use crate::problem::Severity::{self, Error, Warning};
use crate::reader::Reader;
use ekiden_proxy::policy::access::METADATA;
use ekiden_proxy::settings::Pattern;
use ipnet::IpNet;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The token gives access to every account, so it must not cross a network in the clear by accident.
pub(super) fn management(reader: &mut Reader<'_>, draft: &Draft) {
    let At::Address(address) = draft.management.listen else { return };
    if !beyond(&address) {
        return;
    }
    if draft.management.cleartext {
        reader.warn(
            "management.listen",
            format!("the token is accepted without encryption on {address}"),
            "anybody on the network can read it, and change every account with it; listen on 127.0.0.1 and use ssh -L \
             or a web server with TLS, unless the network is your own",
        );
    } else {
        reader.error(
            "management.listen",
            format!("{address} is beyond loopback, and the token would cross the network in the clear"),
            "listen on 127.0.0.1 and use ssh -L or a web server with TLS; or set cleartext = true if the network is your own",
        );
    }
}

/// Destinations that are closed by default and opened here.
pub(super) fn destinations(reader: &mut Reader<'_>, draft: &Draft) {
    opened(reader, "access.allow_destinations", &draft.access.allow_destinations);
    for (index, rule) in draft.rules.iter().enumerate() {
        let path = format!("rule[{index}].allow_destinations");
        opened(reader, &path, &rule.allow_destinations);
    }
}

/// Whoever connects from there says who the client is: of many networks, that is whoever likes to be on loopback.
pub(super) fn proxies(reader: &mut Reader<'_>, draft: &Draft) {
    for (index, net) in draft.access.proxy_protocol_from.iter().enumerate() {
        let narrowest = if matches!(net, IpNet::V4(_)) { 8 } else { 16 };
        let severity = match net.prefix_len() {
            0 => Error,
            length if length < narrowest => Warning,
            _ => continue,
        };
        reader.report(
            severity,
            &format!("access.proxy_protocol_from[{index}]"),
            format!("`{net}` lets strangers claim to be any client, this machine included: an open proxy"),
            "name the proxies before this relay, such as 192.0.2.7",
        );
    }
}

/// Open proxies on public addresses are abused within hours, so the relay refuses to be one by accident.
pub(super) fn listen(reader: &mut Reader<'_>, draft: &Draft, file_listens: bool) {
    let report =
        |reader: &mut Reader<'_>, severity: Severity, index: usize, message: String, hint: &str| {
            if file_listens {
                reader.report(severity, &format!("listen[{index}]"), message, hint);
            } else {
                reader.problems.push(Problem::general(severity, message, hint));
            }
        };
    if draft.top.listen.is_empty() {
        reader.error("listen", "`listen` is empty", "listen = [\"127.0.0.1:3128\"]");
    }
    let mut seen = BTreeSet::new();
    let allows = |rule: &&RuleDraft| rule.action == "allow";
    let named = draft.rules.iter().filter(allows).any(|rule| !rule.from.is_empty());
    // a missing `from` must not open the proxy to the world
    let unnamed =
        draft.rules.iter().filter(allows).any(|rule| {
            rule.from.is_empty() && rule.peers.is_empty() && Pattern::match_all(&rule.to)
        });
    let open = open::to_proxy(draft);
    // who is admitted is not known then
    let misread = reader.has_misread("rule[") || reader.has_misread("accounts.");
    // where a rule admits clients without an account, users need not be who comes
    let admits =
        |rule: &RuleDraft| allows(&rule) && (!rule.from.is_empty() || rule.peers.is_empty());
    let log_in =
        draft.accounts.enabled && (draft.accounts.required || !draft.rules.iter().any(admits));
    let no_passwords = log_in && !draft.accounts.cleartext && !has_tls(reader, draft);
    for (index, address) in draft.top.listen.iter().enumerate() {
        if !seen.insert(address) && address.port() != 0 {
            report(
                reader,
                Error,
                index,
                format!("{address} is listed twice"),
                "remove one of them",
            );
        }
        if let Some(every) = draft.top.listen.iter().find(|every| includes(**every, *address)) {
            let why = format!("{every} has {address} in it, and both cannot be listened on");
            report(reader, Error, index, why, &remove_included(*every, *address));
        }
        if !beyond(address) {
            continue;
        }
        // unknown clients must log in, regardless of the rules
        if draft.accounts.enabled && draft.accounts.cleartext {
            report(
                reader,
                Warning,
                index,
                format!("passwords are accepted without encryption on {address}"),
                "anybody on the network can read them; set [accounts] cleartext = false and a certificate in [tls], \
                 unless the network is your own",
            );
        }
        if no_passwords && !misread {
            report(
                reader,
                Warning,
                index,
                format!(
                    "users with passwords cannot log in at {address}: they get 403, because others could read the passwords"
                ),
                "order a certificate by [acme], or name one in [tls]; accounts that are known by address, peer or WireGuard need none. Where the network is your own, set [accounts] cleartext = true",
            );
        }
        if misread || (draft.accounts.enabled && draft.accounts.required) {
            continue;
        }
        if !named && (unnamed || !draft.accounts.enabled) {
            report(
                reader,
                Error,
                index,
                format!(
                    "refusing to listen on {address}: other machines can reach it, and neither a rule nor an account restricts who may use it"
                ),
                "open proxies are found and abused within hours, and you answer for what they do\n\
                 name your clients; for example, add:\n\
                 [[rule]]\n\
                 from = [\"192.168.0.0/16\"]\n\
                 action = \"allow\"\n\
                 or let accounts log in (`ekiden account`):\n\
                 [accounts]\n\
                 enabled = true",
            );
        } else if unnamed {
            report(
                reader,
                Error,
                index,
                format!(
                    "refusing to listen on {address}: a rule without `from` admits every client of any network"
                ),
                "name your clients in its `from`; to admit everybody, write:\n\
                 from = [\"0.0.0.0/0\", \"::/0\"]",
            );
        } else if open[usize::from(address.is_ipv6())] {
            report(
                reader,
                Warning,
                index,
                format!("{} without a log-in", open::crowd(*address)),
                "name your clients in `from`, or let accounts log in; open proxies are abused within hours",
            );
        }
    }
    if let Control::At(path) = &draft.top.control
        && path.to_string_lossy().ends_with('/')
    {
        reader.error(
            "control",
            "`control` names a directory",
            "name the socket in it, such as /run/ekiden/ekiden.sock",
        );
    }
}

/// Whether clients may speak TLS to this relay, or are meant to.
fn has_tls(reader: &Reader<'_>, draft: &Draft) -> bool {
    let named = draft.tls.certificate.is_some() || draft.tls.key.is_some();
    named || draft.acme.is_on() || reader.has_misread("tls.") || reader.has_misread("acme.")
}

/// What to try where both are listed.
pub(super) fn remove_included(every: SocketAddr, other: SocketAddr) -> String {
    format!("remove {other}: {every} listens on every address of its kind")
}

/// Whether listening on `every` takes another one's place: 0.0.0.0 is all IPv4 addresses, `::` all
/// of IPv6.
pub fn includes(every: SocketAddr, other: SocketAddr) -> bool {
    every.ip().is_unspecified()
        && !other.ip().is_unspecified()
        && every.is_ipv4() == other.is_ipv4()
        && every.port() == other.port()
        && every.port() != 0
}

/// Prefixes that hold more than an operator's own network: this machine and a cloud's metadata service.
fn opened(reader: &mut Reader<'_>, path: &str, nets: &[IpNet]) {
    let own: [IpAddr; 4] = [
        Ipv4Addr::LOCALHOST.into(),
        Ipv6Addr::LOCALHOST.into(),
        Ipv4Addr::new(169, 254, 169, 254).into(),
        Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254).into(),
    ];
    for (index, net) in nets.iter().enumerate() {
        // one that is written as exactly that is meant
        let all = own.iter().find(|own| net.contains(*own)).filter(|_| net.prefix_len() < 8);
        let is_one = net.prefix_len() == net.max_prefix_len();
        let metadata = METADATA.iter().find(|service| !is_one && net.contains(*service));
        let message = match (all, metadata) {
            (Some(within), _) => format!(
                "`{net}` opens every special address to these clients, {within} among them: this machine, private networks, a cloud's metadata"
            ),
            (None, Some(service)) => format!(
                "`{net}` opens a cloud's metadata service to these clients: {service}, which may give out keys"
            ),
            (None, None) => continue,
        };
        let hint = "name the network that they need, such as 10.1.2.0/24";
        reader.warn(&format!("{path}[{index}]"), message, hint);
    }
}

#[cfg(test)]
mod tests {
    use crate::{read, render_all};

    fn problems(text: &str) -> String {
        render_all(&read(text, "test.toml").problems)
    }

    #[test]
    fn a_management_port_that_takes_the_token_in_the_clear_is_warned_of() {
        let at = |listen: &str| format!("[management]\nlisten = \"{listen}\"\n");
        for listen in ["0.0.0.0:9128", "[::]:9128", "192.168.1.1:9128"] {
            let text = at(listen) + "cleartext = true\n";
            let found = problems(&text);
            let said = format!("warning: the token is accepted without encryption on {listen}\n");
            assert!(found.starts_with(&said) && found.contains("test.toml:2:10"), "{found}");
            assert!(read(&text, "test.toml").is_usable());
            assert!(!read(&at(listen), "test.toml").is_usable());
        }
        assert_eq!(problems(&(at("127.0.0.1:9129") + "cleartext = true\n")), "");
    }

    #[test]
    fn users_with_passwords_and_without_tls_are_warned_of() {
        let (beyond, accounts) = ("listen = [\"0.0.0.0:3128\"]\n", "[accounts]\nenabled = true\n");
        let rule = "[[rule]]\nfrom = [\"10.0.0.0/8\"]\naction = \"allow\"\n";
        let said = "users with passwords cannot log in at 0.0.0.0:3128";
        let optional = format!("{accounts}required = false\n");
        for text in [
            format!("{beyond}{accounts}"),
            format!("{beyond}{rule}{accounts}"),
            format!("{beyond}{optional}"),
        ] {
            let found = problems(&text);
            assert!(found.starts_with("warning: users") && found.contains(said), "{text}: {found}");
            assert!(found.contains("[acme]") && found.contains("WireGuard"), "{found}");
        }
        let tls = "[tls]\ncertificate = \"/c.pem\"\nkey = \"/k.pem\"\n";
        let order = "[acme]\nnames = [\"relay.example\"]\nagree_to_terms = true\n";
        for text in [
            accounts.to_owned(),
            format!("{beyond}{rule}"),
            format!("{beyond}{rule}{optional}"),
            format!("{beyond}{accounts}cleartext = true\n"),
            format!("{beyond}{accounts}{tls}"),
            format!("{beyond}{accounts}{order}"),
            format!("{beyond}{accounts}[tls]\ncertificate = 3\n"),
        ] {
            let found = problems(&text);
            assert!(!found.contains("cannot log in"), "{text}: {found}");
        }
    }
}
