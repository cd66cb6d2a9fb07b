//! What stands in the way of diverting, as far as it can be seen without changing anything.

use super::{DivertPlan, TABLE, TunnelRules};
use crate::host::facts::Capabilities;
use crate::host::sysctl;
use crate::links::netlink::Netlink;
use std::io::Write as _;
use std::process::{Command, Stdio};

/// What diverting takes, on this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DivertFacts {
    /// The version of nft; `None`: it is not installed.
    pub nft: Option<String>,
    /// Whether this process has CAP_NET_ADMIN. Without it the rest of nftables is not seen.
    pub net_admin: bool,
    /// Devices of the plan that are not there.
    pub missing: Vec<String>,
    /// Families that are not forwarded, as their setting.
    pub not_forwarded: Vec<&'static str>,
    /// Whether answers are checked against routes with the packet's mark, which drops diverted packets.
    pub src_valid_mark: bool,
    /// Why the kernel would not take the rules, in nft's words.
    pub refused: Option<String>,
    /// Others' rules.
    pub others: Vec<OtherRules>,
}

/// Rules of another table that concern diverted packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OtherRules {
    /// Another table diverts: whose rule comes first decides.
    Diverts {
        /// Family and name of the table.
        table: String,
    },
    /// A chain drops what it does not accept, and diverted packets arrive there.
    Drops {
        /// Family, table and name of the chain.
        chain: String,
    },
    /// A chain drops what it does not accept, and the kernel forwards a tunnel's packets through it.
    DropsForwarded {
        /// Family, table and name of the chain.
        chain: String,
    },
}

impl DivertFacts {
    /// Looks at what a plan takes.
    pub fn look(plan: &DivertPlan) -> Self {
        let net_admin = Capabilities::of_this_process().net_admin;
        let nft = output(&["--version"]).map(|text| text.trim().to_owned());
        let see = nft.is_some() && net_admin;
        let ruleset = see.then(|| output(&["--stateless", "list", "ruleset"])).flatten();
        let is_off = |name: &&&str| sysctl::read(name).is_none_or(|value| value == "0");
        let forwarded = ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"];
        // of this network namespace, which /sys need not be
        let devices = Netlink::here().ok().and_then(|netlink| netlink.devices().ok());
        let devices = devices.unwrap_or_default();
        let there = |name: &&String| devices.iter().any(|(known, _)| known == *name);
        Self {
            refused: see.then(|| refused(plan)).flatten(),
            others: ruleset.map_or_else(Vec::new, |text| {
                let closed = plan.tunnel.iter().flat_map(|tunnel| closed_to(tunnel, &text));
                others(&text, plan.mark).into_iter().chain(closed).collect()
            }),
            missing: plan.devices.iter().filter(|name| !there(name)).cloned().collect(),
            not_forwarded: forwarded.iter().filter(is_off).copied().collect(),
            src_valid_mark: sysctl::read("net.ipv4.conf.all.src_valid_mark")
                .is_some_and(|value| value != "0"),
            net_admin,
            nft,
        }
    }
}

fn output(args: &[&str]) -> Option<String> {
    let output = Command::new("nft").args(args).stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Has the kernel check the rules, under another name, and keep none.
fn refused(plan: &DivertPlan) -> Option<String> {
    let check = || {
        let mut command = Command::new("nft");
        command.args(["--check", "--file", "-"]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        // a running daemon owns the table of that name
        let text = plan.nft().replace(TABLE, "ekiden_check");
        child.stdin.take().map(|mut stdin| stdin.write_all(text.as_bytes())).transpose()?;
        child.wait_with_output()
    };
    match check() {
        Ok(output) if output.status.success() => None,
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr);
            Some(text.lines().next().unwrap_or("nft failed without a word").to_owned())
        }
        Err(error) => Some(error.to_string()),
    }
}

/// Others' rules in the listing of all tables, which has a statement on each line.
fn others(ruleset: &str, mark: u32) -> Vec<OtherRules> {
    let mut found = Vec::new();
    let (mut table, mut chain, mut drops) = ("", "", false);
    let ours = [format!("inet {TABLE}"), "inet ekiden_check".to_owned()];
    let marks = [format!("0x{mark:08x}"), mark.to_string()];
    for line in ruleset.lines() {
        let words = line.trim();
        let named = |keyword| words.strip_prefix(keyword).and_then(|rest| rest.split(" {").next());
        if let Some(name) = named("table ") {
            table = name;
        } else if let Some(name) = named("chain ") {
            (chain, drops) = (name, false);
        }
        if ours.iter().any(|own| own == table) {
            continue;
        }
        let diverts = OtherRules::Diverts { table: table.to_owned() };
        if words.contains("tproxy ") && !found.contains(&diverts) {
            found.push(diverts);
        }
        if words.contains("hook input ") && words.contains("policy drop") {
            drops = true;
        }
        // one that knows the mark was written for this
        if marks.iter().any(|mark| words.contains(mark.as_str())) {
            drops = false;
        }
        if words == "}" && drops {
            found.push(OtherRules::Drops { chain: format!("{table} {chain}") });
            drops = false;
        }
    }
    found
}

/// Others' chains that drop a tunnel's packets where the kernel forwards them. A table that accepts its device or its
/// clients anywhere, perhaps by a set, was written for it.
fn closed_to(tunnel: &TunnelRules, ruleset: &str) -> Vec<OtherRules> {
    let networks = tunnel.networks.iter().map(|(address, bits)| format!("{address}/{bits}"));
    let names: Vec<String> = networks.chain([format!("\"{}\"", tunnel.device)]).collect();
    let is_named = |line: &str| names.iter().any(|name| line.contains(name.as_str()));
    let mut found = Vec::new();
    for listing in format!("\n{ruleset}").split("\ntable ").skip(1) {
        let table = listing.split(" {").next().unwrap_or_default();
        // those of bridges see other packets
        if table.starts_with("bridge ") {
            continue;
        }
        let (mut chain, mut is_set, mut is_known, mut closed) = ("", false, false, Vec::new());
        let mut is_elsewhere = false;
        for line in listing.lines().map(str::trim).filter(|line| !line.starts_with("comment ")) {
            if let Some(rest) = line.strip_prefix("chain ") {
                (chain, is_set) = (rest.split(" {").next().unwrap_or_default(), false);
                is_elsewhere = false;
            } else if line.starts_with("set ") || line.starts_with("map ") {
                is_set = true;
            }
            // such as what arrives at this machine
            is_elsewhere |= line.contains(" hook ") && !line.contains(" hook forward ");
            let plain = without_comments(line);
            let accepts =
                ["accept", "jump ", "goto "].iter().any(|verdict| plain.contains(verdict));
            is_known |= (accepts || is_set)
                && (is_named(&plain) || is_among(&tunnel.device, &plain))
                || !is_elsewhere && accepts_all_but(&plain);
            if line.contains("hook forward ") && line.contains("policy drop") {
                closed.push(OtherRules::DropsForwarded { chain: format!("{table} {chain}") });
            }
        }
        if !is_known {
            found.append(&mut closed);
        }
    }
    found
}

/// A rule or elements of a set, each of which may have a comment that says anything.
fn without_comments(line: &str) -> String {
    let mut parts = line.split(" comment \"");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| all + part.split_once('"').map_or("", |(_, rest)| rest))
}

/// Whether a line names devices by how they begin, this one among them.
fn is_among(device: &str, line: &str) -> bool {
    let mut quoted = line.split('"').skip(1).step_by(2);
    quoted.any(|name| name.strip_suffix('*').is_some_and(|start| device.starts_with(start)))
}

/// Whether a rule accepts all that comes in by other devices than those that it names, without a further condition.
fn accepts_all_but(line: &str) -> bool {
    let Some(rest) = line.strip_prefix("iifname != ") else { return false };
    let Some((devices, verdict)) = rest.rsplit_once(['"', '}']) else { return false };
    let words = verdict.split_whitespace();
    let mut words = words.skip_while(|word| {
        matches!(*word, "counter" | "packets" | "bytes") || word.parse::<u64>().is_ok()
    });
    !devices.contains("ifname ") && words.next() == Some("accept")
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULESET: &str = "table inet filter {\n\
        \tchain input {\n\t\ttype filter hook input priority filter; policy drop;\n\
        \t\tiif \"lo\" accept\n\t}\n\
        \tchain forward {\n\t\ttype filter hook forward priority filter; policy drop;\n\t}\n}\n\
        table ip mangle {\n\tchain PREROUTING {\n\
        \t\ttype filter hook prerouting priority mangle; policy accept;\n\
        \t\tmeta l4proto tcp tproxy to :12345 meta mark set 0x00000001 accept\n\t}\n}\n\
        table inet ekiden_gateway {\n\tchain divert {\n\
        \t\ttproxy ip to 127.0.0.1:40001 meta mark set 0x0000656b accept\n\t}\n}\n";

    #[test]
    fn finds_others_that_drop_or_divert() {
        let drops = OtherRules::Drops { chain: "inet filter input".into() };
        let diverts = OtherRules::Diverts { table: "ip mangle".into() };
        assert_eq!(others(RULESET, 25_963), [drops, diverts.clone()]);
        let knows = RULESET.replace("iif \"lo\" accept", "meta mark 0x0000656b accept");
        assert_eq!(others(&knows, 25_963), [diverts]);
        assert_eq!(others("", 25_963), []);
    }

    #[test]
    fn finds_others_that_drop_what_a_tunnel_s_clients_send_on() {
        let tunnel = TunnelRules {
            device: "ekiden-wg".into(),
            networks: vec![([10, 77, 0, 0].into(), 24)],
            ..TunnelRules::default()
        };
        let closed = |ruleset: &str| closed_to(&tunnel, ruleset);
        let chain = "inet filter forward".to_owned();
        assert_eq!(closed(RULESET), [OtherRules::DropsForwarded { chain }]);
        let head = "hook forward priority filter; policy drop;\n";
        for rule in [
            "\t\tiifname \"ekiden-wg\" accept\n",
            "\t\tip saddr 10.77.0.0/24 counter jump lan\n",
            "\t}\n\tchain user {\n\t\tiifname { \"eth1\", \"ekiden-wg\" } accept\n",
            "\t}\n\tset lan {\n\t\ttype ifname\n\t\telements = { \"eth1\",\n\t\t\t\"ekiden-wg\" }\n",
            "\t\tiifname \"ekiden*\" accept\n",
            "\t\tiifname { \"eth1\", \"ek*\" } counter packets 0 bytes 0 accept\n",
            "\t\tiifname != \"eth0\" accept\n",
            "\t\tiifname != \"eth0\" accept comment \"lan\"\n",
            "\t\tiifname != { \"eth0\", \"ppp0\" } counter packets 7 bytes 420 accept\n",
        ] {
            assert_eq!(closed(&RULESET.replace(head, &format!("{head}{rule}"))), [], "{rule}");
        }
        // none says that its packets may pass, nor does another table
        for rule in [
            "\t\tiifname \"ekiden-wg\" counter\n",
            "\t\tip saddr 10.77.0.0/24 masquerade\n",
            "\t\tiifname \"eth*\" accept\n",
            "\t\ttcp dport 22 accept comment \"ekiden-wg\"\n",
            "\t\tcomment \"accept ekiden-wg\"\n",
            "\t\tiifname != \"eth0\" counter packets 0 bytes 0 drop\n",
            "\t\tiifname != \"eth0\" ip saddr 10.0.0.0/8 accept\n",
            "\t\tiifname != \"docker0\" oifname \"docker0\" accept\n",
            "\t\tiifname \"docker0\" oifname != \"docker0\" accept\n",
        ] {
            let unknown = RULESET.replace(head, &format!("{head}{rule}"));
            assert_eq!(closed(&unknown).len(), 1, "{rule}");
        }
        let arriving = "iif \"lo\" accept";
        let arriving = RULESET.replace(arriving, "iifname != \"eth0\" accept");
        assert_eq!(closed(&arriving).len(), 1);
        let other = "table ip other {\n\tchain x {\n\t\tiifname \"ekiden-wg\" accept\n\t}\n}\n";
        assert_eq!(closed(&format!("{RULESET}{other}")).len(), 1);
        assert_eq!(closed(&RULESET.replace("inet filter", "bridge filter")), []);
        assert_eq!(closed(""), []);
    }
}
