//! What is diverted, as rules of nftables and of `ip`.

use super::{PRIORITY, TABLE, TunnelRules};
use std::fmt::Write as _;
use std::net::IpAddr;

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
    /// Destinations that are never diverted.
    pub bypass: Vec<Prefix>,
    /// The mark of diverted packets, and the number of the table that routes them.
    pub mark: u32,
    /// A device of clients that are far away.
    pub tunnel: Option<TunnelRules>,
}

impl DivertPlan {
    /// The families with a listener; `true` is IPv6.
    pub fn families(&self) -> impl Iterator<Item = bool> + use<> {
        let families = [(self.v4, false), (self.v6, true)];
        families.into_iter().filter_map(|(port, ipv6)| port.map(|_| ipv6))
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
        let devices: Vec<String> = self.devices.iter().map(|name| format!("\"{name}\"")).collect();
        let devices = devices.join(", ");
        let mark = self.mark;
        let _ = write!(
            text,
            "\tchain arriving {{\n\
             \t\ttype filter hook prerouting priority mangle; policy accept\n\
             \t\tiifname {{ {devices} }} tcp flags & (fin | syn | rst | ack) == syn jump divert\n\t}}\n\
             \tchain divert {{\n\
             \t\tfib daddr type {{ local, broadcast, multicast }} return\n"
        );
        bypassed(&self.bypass, "\t\t", text);
        // without the listener the rule ends at tproxy, and the packet passes by without a mark
        if let Some(port) = self.v4 {
            let _ = writeln!(
                text,
                "\t\tmeta nfproto ipv4 meta l4proto tcp tproxy ip to 127.0.0.1:{port} meta mark set {mark:#x} accept"
            );
        }
        if let Some(port) = self.v6 {
            let _ = writeln!(
                text,
                "\t\tmeta nfproto ipv6 meta l4proto tcp tproxy ip6 to [::1]:{port} meta mark set {mark:#x} accept"
            );
        }
        text.push_str("\t}\n");
        if self.reject_quic {
            let _ = write!(
                text,
                "\tchain forwarded {{\n\
                 \t\ttype filter hook forward priority filter; policy accept\n\
                 \t\tiifname {{ {devices} }} udp dport 443 reject with icmpx port-unreachable\n\t}}\n"
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
    fn a_family_without_listener_is_left_alone() {
        let only_v4 = DivertPlan { v6: None, ..plan() };
        let text = only_v4.nft();
        assert!(text.contains("tproxy ip to 127.0.0.1:40001") && !text.contains("tproxy ip6"));
        assert_eq!(only_v4.ip().len(), 2);
        assert!(!text.contains("chain leaving") && !text.contains("chain forwarded"), "{text}");
        // without devices, packets of live connections still arrive
        let leaving = DivertPlan { devices: Vec::new(), ..plan() }.nft();
        assert!(
            leaving.contains("chain known") && !leaving.contains("chain arriving"),
            "{leaving}"
        );
    }
}
