//! What is diverted, as rules of nftables and of `ip`.

use super::blocked::{BLOCKED_SECONDS, MOST as MOST_BLOCKED, Pair};
use super::{PRIORITY, TABLE, TunnelRules};
use std::fmt::Write as _;
use std::net::IpAddr;

/// Clients, with their ports, and destinations between which QUIC is answered with "port
/// unreachable" for a while: a set of each family.
const BLOCKED: [(&str, &str); 2] =
    [("ipv4_addr", "blocked_quic"), ("ipv6_addr", "blocked_quic_v6")];
const BLOCKED_PAIRS: [&str; 2] = [
    "ip saddr . udp sport . ip daddr @blocked_quic",
    "ip6 saddr . udp sport . ip6 daddr @blocked_quic_v6",
];

/// Statements that block QUIC of these clients to these destinations for [`BLOCKED_SECONDS`].
pub(super) fn block(pairs: &[Pair]) -> String {
    let mut text = String::new();
    for ((_, name), ipv6) in BLOCKED.iter().zip([false, true]) {
        let both = |(client, to): &&Pair| client.is_ipv6() == ipv6 && to.is_ipv6() == ipv6;
        let elements: Vec<String> = pairs
            .iter()
            .filter(both)
            .map(|(client, to)| format!("{} . {} . {to}", client.ip(), client.port()))
            .collect();
        if !elements.is_empty() {
            let _ = writeln!(text, "add element inet {TABLE} {name} {{ {} }}", elements.join(", "));
        }
    }
    text
}

/// An address and how many bits of it count.
pub type Prefix = (IpAddr, u8);

/// What is diverted, and where to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DivertPlan {
    /// Devices whose forwarded connections are diverted, by name; one that is not there yet counts when
    /// it comes.
    pub devices: Vec<String>,
    /// Port of the transparent listener on 127.0.0.1.
    pub v4: Option<u16>,
    /// Port of the one on ::1.
    pub v6: Option<u16>,
    /// Diverts connections of the machine itself, too, but for those of this user: this program's.
    pub own_except: Option<u32>,
    /// Whether UDP port 443 from the devices is answered with "port unreachable".
    pub reject_quic: bool,
    /// Ports of the transparent sockets for UDP port 443 from the devices, on 127.0.0.1 and ::1.
    pub quic: [Option<u16>; 2],
    /// Destinations that are never diverted.
    pub bypass: Vec<Prefix>,
    /// The mark of diverted packets, and the number of the table that routes them.
    pub mark: u32,
    /// A device of clients that are far away.
    pub tunnel: Option<TunnelRules>,
    /// Clients whom the listeners turn away. The rules do not depend on it: it is for whoever judges the plan.
    pub strangers: Vec<Strangers>,
}

/// Clients behind a device whom the listeners turn away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Strangers {
    /// The device, by name.
    pub device: String,
    /// Their networks.
    pub networks: Vec<Prefix>,
    /// Whether others of each network are admitted.
    pub in_part: bool,
    /// Whether those come in whose address is an account's.
    pub but_accounts: bool,
}

impl DivertPlan {
    /// The families with a listener; `true` is IPv6.
    pub fn families(&self) -> impl Iterator<Item = bool> + use<> {
        let families = [(self.v4, false), (self.v6, true)];
        families.into_iter().filter_map(|(port, ipv6)| port.map(|_| ipv6))
    }

    /// Whether QUIC of the devices arrives at this machine.
    pub fn diverts_quic(&self) -> bool {
        self.quic_devices().next().is_some() && self.quic.iter().any(Option::is_some)
    }

    /// Devices whose QUIC is diverted: that of clients far away is judged and counted where it comes out of their tunnel.
    fn quic_devices(&self) -> impl Iterator<Item = &String> {
        let far = self.tunnel.as_ref().map(|tunnel| &tunnel.device);
        self.devices.iter().filter(move |device| far != Some(device))
    }

    /// The table, as `nft -f` reads it.
    pub fn nft(&self) -> String {
        let mut text = format!("table inet {TABLE} {{\n\tflags owner\n");
        if !self.devices.is_empty() {
            self.arriving(&mut text);
        }
        self.known(&mut text);
        if let Some(user) = self.own_except {
            self.leaving(user, &mut text);
        }
        if let Some(tunnel) = &self.tunnel {
            tunnel.write(self, &mut text);
        }
        text.push_str("}\n");
        text
    }

    /// The rules and routes, as arguments of `ip`.
    pub fn ip(&self) -> Vec<String> {
        let mark = self.mark;
        let lines = self.families().flat_map(|ipv6| {
            let family = if ipv6 { "-6" } else { "-4" };
            [
                format!("ip {family} rule add fwmark {mark:#x} lookup {mark} priority {PRIORITY}"),
                format!("ip {family} route replace local default dev lo table {mark}"),
            ]
        });
        lines.collect()
    }

    fn arriving(&self, text: &mut String) {
        let devices = quoted(self.devices.iter());
        let quic_devices = quoted(self.quic_devices());
        let diverts_quic = self.diverts_quic();
        let quic = |devices| format!("\t\tiifname {{ {devices} }} udp dport 443 jump divert\n");
        let quic = match (diverts_quic, self.reject_quic) {
            (true, _) => quic(&quic_devices),
            (false, true) => quic(&devices),
            (false, false) => String::new(),
        };
        if diverts_quic {
            for (family, name) in BLOCKED {
                let _ = write!(
                    text,
                    "\tset {name} {{\n\t\ttype {family} . inet_service . {family}\n\t\tsize {MOST_BLOCKED}\n\t\tflags timeout\n\t\ttimeout {BLOCKED_SECONDS}s\n\t}}\n"
                );
            }
        }
        let _ = write!(
            text,
            "\tchain arriving {{\n\
             \t\ttype filter hook prerouting priority mangle; policy accept\n\
             \t\tiifname {{ {devices} }} tcp flags & (fin | syn | rst | ack) == syn jump divert\n\
             {quic}\t}}\n\
             \tchain divert {{\n\
             \t\tfib daddr type {{ local, broadcast, multicast }} return\n"
        );
        bypassed(&self.bypass, "\t\t", text);
        if diverts_quic {
            for keyword in BLOCKED_PAIRS {
                rejected(keyword, text);
            }
        } else if self.reject_quic {
            rejected("", text);
        }
        // without the listener the rule ends at tproxy, and the packet passes by without a mark
        self.diverted_to(("tcp", [self.v4, self.v6]), text);
        if diverts_quic {
            self.diverted_to(("udp", self.quic), text);
        }
        text.push_str("\t}\n");
    }

    fn diverted_to(&self, (protocol, [v4, v6]): (&str, [Option<u16>; 2]), text: &mut String) {
        let mark = self.mark;
        for (family, keyword, at, port) in
            [("ipv4", "ip", "127.0.0.1", v4), ("ipv6", "ip6", "[::1]", v6)]
        {
            let Some(port) = port else { continue };
            let _ = writeln!(
                text,
                "\t\tmeta nfproto {family} meta l4proto {protocol} tproxy {keyword} to {at}:{port} meta mark set {mark:#x} accept"
            );
        }
    }

    /// Later packets belong to a socket: also those of connections from before the devices were taken out.
    fn known(&self, text: &mut String) {
        let mark = self.mark;
        // after dstnat, because a masqueraded answer has its address back there
        let _ = write!(
            text,
            "\tchain known {{\n\
             \t\ttype filter hook prerouting priority dstnat + 5; policy accept\n\
             \t\tmeta l4proto tcp socket transparent 1 meta mark set {mark:#x} accept\n\t}}\n"
        );
    }

    fn leaving(&self, user: u32, text: &mut String) {
        let _ = write!(
            text,
            "\tchain leaving {{\n\
             \t\ttype nat hook output priority -100; policy accept\n\
             \t\tmeta skuid {user} return\n"
        );
        // link-local: this link's own business, and the metadata of clouds
        text.push_str(
            "\t\tfib daddr type { local, broadcast, multicast } return\n\
             \t\tip daddr 169.254.0.0/16 return\n\
             \t\tip6 daddr fe80::/10 return\n",
        );
        bypassed(&self.bypass, "\t\t", text);
        for (port, family) in [(self.v4, "ipv4"), (self.v6, "ipv6")] {
            if let Some(port) = port {
                let _ = writeln!(
                    text,
                    "\t\tmeta nfproto {family} meta l4proto tcp redirect to :{port}"
                );
            }
        }
        text.push_str("\t}\n");
    }
}

fn quoted<'a>(devices: impl Iterator<Item = &'a String>) -> String {
    devices.map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ")
}

/// Datagrams, or these of them, are answered before they are routed: without forwarding, or a route to the destination,
/// none would come to a later hook.
fn rejected(which: &str, text: &mut String) {
    let space = if which.is_empty() { "" } else { " " };
    let _ = writeln!(text, "\t\tmeta l4proto udp{space}{which} reject with icmpx port-unreachable");
}

/// Lets destinations pass by.
pub(super) fn bypassed(nets: &[Prefix], indent: &str, text: &mut String) {
    for (keyword, ipv6) in [("ip", false), ("ip6", true)] {
        let nets = nets.iter().filter(|(address, _)| address.is_ipv6() == ipv6);
        for (address, bits) in nets {
            let _ = writeln!(text, "{indent}{keyword} daddr {address}/{bits} return");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> DivertPlan {
        DivertPlan {
            devices: vec!["eth1".into(), "wlan0".into()],
            v4: Some(40_001),
            v6: Some(40_002),
            mark: 25_963,
            ..DivertPlan::default()
        }
    }

    #[test]
    fn the_rules_of_two_devices() {
        let all = DivertPlan {
            own_except: Some(998),
            reject_quic: true,
            bypass: vec![([192, 168, 0, 0].into(), 16), ("2001:db8::".parse().unwrap(), 32)],
            ..plan()
        };
        assert_eq!(all.nft(), include_str!("all.nft"));
        assert_eq!(
            all.ip(),
            [
                "ip -4 rule add fwmark 0x656b lookup 25963 priority 10650",
                "ip -4 route replace local default dev lo table 25963",
                "ip -6 rule add fwmark 0x656b lookup 25963 priority 10650",
                "ip -6 route replace local default dev lo table 25963",
            ]
        );
    }

    #[test]
    fn quic_is_diverted_but_for_what_is_blocked() {
        let quic = DivertPlan { quic: [Some(40_003), Some(40_004)], ..plan() };
        assert_eq!(quic.nft(), include_str!("quic.nft"));
        let pair = |client: &str, to: &str| (client.parse().unwrap(), to.parse().unwrap());
        let pairs = [
            pair("192.168.1.7:1", "192.0.2.1"),
            pair("[fd77::2]:2", "2001:db8::1"),
            pair("192.168.1.8:3", "192.0.2.1"),
        ];
        assert_eq!(
            block(&pairs),
            "add element inet ekiden_gateway blocked_quic { 192.168.1.7 . 1 . 192.0.2.1, 192.168.1.8 . 3 . 192.0.2.1 }\n\
             add element inet ekiden_gateway blocked_quic_v6 { fd77::2 . 2 . 2001:db8::1 }\n"
        );
    }

    #[test]
    fn a_family_without_listener_is_left_alone() {
        let only_v4 = DivertPlan { v6: None, ..plan() };
        let text = only_v4.nft();
        assert!(text.contains("tproxy ip to 127.0.0.1:40001") && !text.contains("tproxy ip6"));
        assert_eq!(only_v4.ip().len(), 2);
        assert!(!text.contains("chain leaving"), "{text}");
        assert!(!text.contains("udp"), "{text}");
        // without devices, packets of live connections still arrive
        let leaving = DivertPlan { devices: Vec::new(), ..plan() }.nft();
        assert!(
            leaving.contains("chain known") && !leaving.contains("chain arriving"),
            "{leaving}"
        );
    }
}
