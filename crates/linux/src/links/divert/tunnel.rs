//! The rules for a device whose clients are far away: a tunnel of the WireGuard door.
//!
//! What is diverted from it arrives at the relay as from any device. The kernel forwards the rest, and these rules see to
//! it that nothing else comes in, that nobody else uses the clients' addresses or calls them, and that answers find back.

use super::rules::{DivertPlan, Prefix, bypassed};
use std::fmt::Write as _;
use std::net::IpAddr;

/// A device of clients that are far away.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TunnelRules {
    /// Its name, which is one of the plan's devices, too.
    pub device: String,
    /// The addresses of its clients, which come from nowhere else.
    pub networks: Vec<Prefix>,
    /// Whether what is forwarded goes out under this machine's address.
    pub masquerade: bool,
    /// This machine's addresses at which clients may ask for names.
    pub names: Vec<IpAddr>,
}

impl TunnelRules {
    pub(super) fn write(&self, plan: &DivertPlan, text: &mut String) {
        let (device, mark) = (&self.device, plan.mark);
        let source = |(address, bits): &Prefix| {
            let keyword = if address.is_ipv6() { "ip6" } else { "ip" };
            format!("{keyword} saddr {address}/{bits}")
        };
        text.push_str(
            "\tchain spoofed {\n\t\ttype filter hook prerouting priority raw; policy accept\n",
        );
        for network in &self.networks {
            let _ = writeln!(
                text,
                "\t\tiifname != {{ \"lo\", \"{device}\" }} {} drop",
                source(network)
            );
        }
        // this machine's own services are not for them
        let _ = write!(
            text,
            "\t}}\n\tchain entering {{\n\
             \t\ttype filter hook input priority filter - 5; policy accept\n\
             \t\tiifname \"{device}\" jump entered\n\t}}\n\
             \tchain entered {{\n\
             \t\tmeta mark {mark:#x} return\n"
        );
        for address in &self.names {
            let keyword = if address.is_ipv6() { "ip6" } else { "ip" };
            let _ = writeln!(
                text,
                "\t\t{keyword} daddr {address} meta l4proto {{ tcp, udp }} th dport 53 return"
            );
        }
        let _ = write!(
            text,
            "\t\ticmp type {{ echo-request, destination-unreachable, time-exceeded, parameter-problem }} return\n\
             \t\ticmpv6 type {{ echo-request, destination-unreachable, packet-too-big, time-exceeded, parameter-problem }} return\n\
             \t\treject with icmpx admin-prohibited\n\t}}\n\
             \tchain crossing {{\n\
             \t\ttype filter hook forward priority filter - 5; policy accept\n\
             \t\tiifname \"{device}\" oifname \"{device}\" reject with icmpx admin-prohibited\n\
             \t\toifname \"{device}\" ct state != {{ established, related }} drop\n\
             \t\tiifname \"{device}\" meta l4proto tcp jump unrelayed\n\t}}\n"
        );
        // nor are they for this machine's programs, which only answer. A connection that was silent for long is not tracked
        // any more, so of TCP its beginning counts
        let _ = write!(
            text,
            "\tchain departing {{\n\
             \t\ttype filter hook output priority filter - 5; policy accept\n\
             \t\toifname \"{device}\" tcp flags & (fin | syn | rst | ack) == syn drop\n\
             \t\toifname \"{device}\" meta l4proto != tcp ct state != {{ established, related }} drop\n\t}}\n\
             \tchain unrelayed {{\n"
        );
        bypassed(&plan.bypass, "\t\t", text);
        // neither accounts nor rules would see it
        text.push_str("\t\treject with tcp reset\n\t}\n");
        if self.masquerade {
            text.push_str(
                "\tchain masqueraded {\n\t\ttype nat hook postrouting priority srcnat; policy accept\n",
            );
            for network in &self.networks {
                let _ =
                    writeln!(text, "\t\toifname != \"{device}\" {} masquerade", source(network));
            }
            text.push_str("\t}\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rules_of_a_tunnel() {
        let tunnel = TunnelRules {
            device: "ekiden-wg".into(),
            networks: vec![([10, 77, 0, 0].into(), 24), ("fd77::".parse().unwrap(), 64)],
            masquerade: true,
            names: vec![[10, 77, 0, 1].into(), "fd77::1".parse().unwrap()],
        };
        let plan = DivertPlan {
            devices: vec!["ekiden-wg".into()],
            v4: Some(40_001),
            v6: Some(40_002),
            bypass: vec![([192, 168, 0, 0].into(), 16)],
            mark: 25_963,
            tunnel: Some(tunnel),
            ..DivertPlan::default()
        };
        assert_eq!(plan.nft(), include_str!("tunnel.nft"));
        // its QUIC is not diverted
        let quic = DivertPlan { quic: [Some(40_003), Some(40_004)], ..plan.clone() };
        assert_eq!(quic.nft(), plan.nft());
        let quiet =
            TunnelRules { masquerade: false, names: vec![], ..plan.tunnel.clone().unwrap() };
        let text = DivertPlan { tunnel: Some(quiet), ..plan }.nft();
        assert!(!text.contains("masquerade") && !text.contains("dport 53"), "{text}");
    }
}
