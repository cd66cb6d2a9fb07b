//! Addresses that two parts of this relay ask for.

use super::access::remove_included;
use crate::draft::{At, Draft};
use crate::problem::Severity;
use crate::reader::Reader;
use ekiden_proxy::settings::TransportMode;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// An address that a configuration asks to listen on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// The key that names it, in words, as for an error.
    pub key: &'static str,
    /// The address.
    pub at: SocketAddr,
    /// For connections.
    pub tcp: bool,
    /// For datagrams.
    pub udp: bool,
    /// Its place in the file, such as `listen[0]`.
    pub path: String,
}

impl Listener {
    /// Whether the kernel gives only one of the two, where both are of the same protocol.
    pub fn overlaps(&self, at: SocketAddr) -> bool {
        let every = self.at.ip().is_unspecified() || at.ip().is_unspecified();
        let kind = self.at.is_ipv4() == at.is_ipv4();
        kind && self.at.port() == at.port() && (every || self.at.ip() == at.ip())
    }
}

const TOP: &str = "`listen`";
const TUNNEL: &str = "`listen` of [tunnel]";

/// All addresses that `draft` asks for. The key before counts as the one that has an address which two ask for.
pub fn listeners(draft: &Draft) -> Vec<Listener> {
    let mut all = Vec::new();
    let mut list = |key, path: &str, listen: &[SocketAddr], (tcp, udp): (bool, bool)| {
        all.extend(listen.iter().enumerate().map(|(nth, at)| {
            let path = format!("{path}[{nth}]");
            Listener { key, at: *at, tcp, udp, path }
        }));
    };
    list(TOP, "listen", &draft.top.listen, (true, false));
    if let At::Address(at) = draft.management.listen {
        list("`listen` of [management]", "management.listen", &[at], (true, false));
    }
    for (nth, forward) in draft.forwards.iter().enumerate() {
        let kinds = (forward.protocol.tcp(), forward.protocol.udp());
        let path = format!("forward[{nth}].listen");
        list("`listen` of [[forward]]", &path, &forward.listen, kinds);
    }
    let over_tcp = draft.tunnel.carrier != TransportMode::Udp;
    list(TUNNEL, "tunnel.listen", &draft.tunnel.listen, (over_tcp, true));
    list("`listen` of [dns]", "dns.listen", &draft.dns.listen, (true, true));
    let door = &draft.wireguard.listen;
    list("`listen` of [wireguard]", "wireguard.listen", door, (false, true));
    all
}

/// Each address that an earlier key asks for, too.
pub(super) fn clashes(reader: &mut Reader<'_>, draft: &Draft) {
    let all = listeners(draft);
    // by address, and by port for those that are every address; the first of each
    let mut exact: BTreeMap<(SocketAddr, bool), &Listener> = BTreeMap::new();
    let mut of_port: BTreeMap<(bool, u16, bool), &Listener> = BTreeMap::new();
    for one in all.iter().filter(|one| one.at.port() != 0) {
        let (at, v4) = (one.at, one.at.is_ipv4());
        let every: IpAddr =
            if v4 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let mut said = false;
        for (_, udp) in [(one.udp, true), (one.tcp, false)].into_iter().filter(|(is, _)| *is) {
            let same = exact.get(&(at, udp)).copied();
            let wide = match at.ip().is_unspecified() {
                true => of_port.get(&(v4, at.port(), udp)).copied(),
                false => exact.get(&(SocketAddr::new(every, at.port()), udp)).copied(),
            };
            // two of `listen` are told there, beside who may reach them
            let before = same.or(wide).filter(|before| (before.key, one.key) != (TOP, TOP));
            if let Some(before) = before.filter(|_| !said) {
                clash(reader, one, before, udp);
                said = true;
            }
            exact.entry((at, udp)).or_insert(one);
            of_port.entry((v4, at.port(), udp)).or_insert(one);
        }
    }
}

fn clash(reader: &mut Reader<'_>, one: &Listener, before: &Listener, udp: bool) {
    let (kind, at) = (if udp { "UDP" } else { "TCP" }, one.at);
    if one.key == TUNNEL && !udp {
        reader.warn(
            &one.path,
            format!(
                "{at} is listened on for TCP already, by {}: tunnels come by UDP alone",
                before.key
            ),
            "choose another port, or set carrier = \"udp\"",
        );
    } else if one.key == before.key && one.at != before.at {
        let (every, other) = match at.ip().is_unspecified() {
            true => (at, before.at),
            false => (before.at, at),
        };
        let message = format!("{every} has {other} in it, and both cannot be listened on");
        reader.error(&one.path, message, remove_included(every, other));
    } else {
        // the management port is opened first, also where nobody chose it
        let chosen = reader.spans.contains_key("management.listen");
        let unasked = one.key.contains("[management]") && !chosen;
        let (path, hint) = match unasked {
            true => (&before.path, "choose another port, here or by `listen` in [management]"),
            false => (&one.path, "choose another port"),
        };
        let default = unasked || !chosen && before.key.contains("[management]");
        let has = if default { "[management], by default" } else { before.key };
        let place = match one.at == before.at {
            true => format!("{at} is listened on for {kind} already, by {has}"),
            false if unasked => {
                format!("{} has {at} in it, which is listened on by {has}", before.at)
            }
            false => {
                format!("{at} is listened on for {kind} already, by {has}, which has {}", before.at)
            }
        };
        reader.report(Severity::Error, path, place, hint);
    }
}

#[cfg(test)]
mod tests {
    use crate::draft::At;
    use crate::{read, render_all};

    fn problems(text: &str) -> (String, bool) {
        let reading = read(text, "test.toml");
        (render_all(&reading.problems), reading.is_usable())
    }

    #[test]
    fn blanks_around_the_address_of_the_management_port_do_not_turn_it_off() {
        let listen = |text: &str| {
            let reading = read(&format!("[management]\nlisten = \"{text}\"\n"), "test.toml");
            (reading.draft.management.listen, render_all(&reading.problems))
        };
        let at = At::Address(([127, 0, 0, 1], 3129).into());
        assert_eq!(listen(" 127.0.0.1:3129 "), (at, String::new()));
        assert_eq!(listen(" off "), (At::Off, String::new()));
        for text in ["", "  ", "on"] {
            let (at, problems) = listen(text);
            assert_eq!(at, At::default());
            assert!(problems.contains("is not an address and port, nor `off`"), "{problems}");
        }
    }

    #[test]
    fn every_pair_of_keys_that_ask_for_one_address_is_found() {
        let accounts = "[accounts]\nenabled = true\n[wireguard]\nendpoint = \"a.example:51820\"\n";
        for (text, why, usable) in [
            (
                "[management]\nlisten = \"127.0.0.1:3128\"\n",
                "127.0.0.1:3128 is listened on for TCP already, by `listen`",
                false,
            ),
            (
                "listen = [\"127.0.0.1:9128\"]\n",
                "127.0.0.1:9128 is listened on for TCP already, by [management], by default",
                false,
            ),
            (
                "[tunnel]\nlisten = [\"127.0.0.1:3128\"]\n",
                "by `listen`: tunnels come by UDP alone",
                true,
            ),
            (
                "[tunnel]\nlisten = [\"127.0.0.1:4433\", \"127.0.0.1:4433\"]\n",
                "127.0.0.1:4433 is listened on for UDP already, by `listen` of [tunnel]",
                false,
            ),
            (
                "[tunnel]\nlisten = [\"127.0.0.1:53\"]\n[dns]\nlisten = [\"127.0.0.1:53\"]\n",
                "by `listen` of [tunnel]",
                false,
            ),
            (
                &format!(
                    "[tunnel]\nlisten = [\"0.0.0.0:4433\"]\n{accounts}listen = [\"192.0.2.1:4433\"]\n"
                ),
                "for UDP already, by `listen` of [tunnel], which has 0.0.0.0:4433",
                false,
            ),
            (
                "[management]\nlisten = \"127.0.0.1:80\"\n[[rule]]\nfrom = [\"10.0.0.0/8\"]\naction = \"allow\"\n[[forward]]\nlisten = [\"0.0.0.0:80\"]\nto = \"a.example:80\"\n",
                "by `listen` of [management], which has 127.0.0.1:80",
                false,
            ),
        ] {
            let (found, is_usable) = problems(text);
            assert!(found.contains(why), "{text}: {found}");
            assert_eq!(is_usable, usable, "{text}: {found}");
        }
        // by UDP alone there is nothing of TCP in the way; other ports and addresses are free
        for text in [
            "[tunnel]\nlisten = [\"127.0.0.1:3128\"]\ncarrier = \"udp\"\n",
            "[tunnel]\nlisten = [\"127.0.0.2:3128\"]\n",
            "listen = [\"127.0.0.1:0\"]\n[management]\nlisten = \"127.0.0.1:0\"\n",
        ] {
            assert_eq!(problems(text).0, "", "{text}");
        }
    }
}
