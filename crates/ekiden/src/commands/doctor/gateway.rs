//! What stands in the way of the gateway that the configuration asks for.

use super::findings::finding;
use super::{Finding, Severity};
use ekiden_linux::links::divert::{DivertFacts, DivertPlan, OtherRules, Strangers};
use ekiden_proxy::observe::status::{GatewayStatus, Status, WireguardStatus};
use std::path::Path;

/// The finding about clients whom no rule admits.
pub(crate) const CLIENTS: &str = "gateway-clients";

/// Everything about a gateway; `plan` is the configuration's.
pub(super) fn gateway(plan: &DivertPlan, running: Option<&Status>, found: &mut Vec<Finding>) {
    let status = running.and_then(|status| status.gateway.as_ref());
    if let Some(GatewayStatus { error: Some(error), .. }) = status {
        let why = "the clients' connections pass by, unaccelerated; `systemctl reload ekiden` tries again";
        let what = format!("the gateway is not in effect: {error}");
        found.push(finding("gateway", Severity::Problem, what, why));
    }
    if plan.tunnel.is_some() {
        let status = running.and_then(|status| status.wireguard.as_ref());
        wireguard(Path::new("/dev/net/tun").exists(), status, found);
    }
    let before = found.len();
    judge(&DivertFacts::look(plan), plan, found);
    if found.len() == before && status.is_none_or(|status| status.in_effect) {
        let devices = plan.devices.join(", ");
        let what = match plan.devices.is_empty() {
            true => "nothing stands in the way of diverting this machine's connections".to_owned(),
            false => format!("nothing stands in the way of the gateway for {devices}"),
        };
        found.push(finding(
            "gateway",
            Severity::Ok,
            what,
            "connections of clients are accelerated",
        ));
    }
}

/// What stands in the way of clients that come by WireGuard.
fn wireguard(has_tun: bool, status: Option<&WireguardStatus>, found: &mut Vec<Finding>) {
    if !has_tun {
        let why =
            "WireGuard's packets reach the kernel by it; a container has to be given that device";
        let none =
            finding("wireguard-tun", Severity::Problem, "there is no /dev/net/tun".to_owned(), why);
        found.push(Finding { mend: Some("modprobe tun".to_owned()), ..none });
    }
    match status {
        Some(WireguardStatus { error: Some(error), .. }) => {
            let what = format!("nobody comes in by WireGuard: {error}");
            let why = "the daemon tries again every ten seconds; all others are served";
            found.push(finding("wireguard", Severity::Problem, what, why));
        }
        Some(status) if status.peers.is_empty() => {
            let why = "`ekiden account add NAME --wireguard` prints a code for one";
            found.push(finding(
                "wireguard",
                Severity::Note,
                "no device has a key of WireGuard".to_owned(),
                why,
            ));
        }
        Some(status) => {
            let there = status
                .peers
                .iter()
                .filter(|peer| peer.handshake_seconds_ago.is_some_and(|ago| ago < 180.0));
            let what = format!(
                "WireGuard is open: {} of {} devices are there",
                there.count(),
                status.peers.len()
            );
            found.push(finding("wireguard", Severity::Ok, what, "`ekiden status` lists them"));
        }
        None => {}
    }
}

/// What these facts mean for the plan.
pub(crate) fn judge(facts: &DivertFacts, plan: &DivertPlan, found: &mut Vec<Finding>) {
    let mut add = |id: &str, severity, what: String, why: &str, mend: Option<String>| {
        found.push(Finding { mend, ..finding(id, severity, what, why) });
    };
    if facts.nft.is_none() {
        add(
            "gateway-nft",
            Severity::Problem,
            "nft is not installed".to_owned(),
            "the gateway sets its rules with it",
            Some("apt-get install nftables".to_owned()),
        );
    }
    if !facts.net_admin {
        add(
            "gateway-privilege",
            Severity::Note,
            "without CAP_NET_ADMIN the rules of nftables are not seen here".to_owned(),
            "the daemon needs CAP_NET_ADMIN for the gateway; the service has it. Run this as root to see more",
            None,
        );
    }
    if let Some(why) = &facts.refused {
        add(
            "gateway-rules",
            Severity::Problem,
            format!("the kernel would not take the gateway's rules: {why}"),
            "the kernel lacks a module (nft_tproxy, nft_socket, nft_fib_inet, nft_reject_inet, nft_redir), or nftables is older than 1.0",
            None,
        );
    }
    let own = plan.tunnel.as_ref().map(|tunnel| &tunnel.device);
    // the daemon makes that one
    for device in facts.missing.iter().filter(|device| Some(*device) != own) {
        add(
            "gateway-device",
            Severity::Warning,
            format!("there is no device {device}"),
            "its connections are diverted as soon as it is there",
            None,
        );
    }
    found.extend(plan.strangers.iter().map(turned_away));
    if plan.devices.is_empty() {
        return;
    }
    found.extend(facts.not_forwarded.iter().map(|setting| forwarding(setting)));
    if facts.src_valid_mark {
        let name = "net.ipv4.conf.all.src_valid_mark";
        let why = "the kernel then drops diverted packets as coming from an impossible place; wg-quick sets it";
        let what = format!("{name} is 1");
        let mark = finding("gateway-src-valid-mark", Severity::Problem, what, why);
        found.push(mark.set(&[(name, "0".to_owned())]));
    }
    found.extend(facts.others.iter().map(|other| conflict(other, plan)));
}

/// Clients whom no rule admits.
fn turned_away(strangers: &Strangers) -> Finding {
    let names: Vec<String> =
        strangers.networks.iter().map(|(address, bits)| format!("{address}/{bits}")).collect();
    let options: String = names.iter().map(|name| format!(" --from {name}")).collect();
    let whose = format!("clients of {} on {}", names.join(" and "), strangers.device);
    let unless = if strangers.but_accounts { ", unless an account has their address" } else { "" };
    let (severity, what) = match strangers.in_part {
        // somebody chose them
        true => (
            Severity::Note,
            format!("only some {whose} are admitted, connections of others are reset{unless}"),
        ),
        false => (
            if strangers.but_accounts { Severity::Warning } else { Severity::Problem },
            format!("{whose} are not admitted, their connections are reset{unless}"),
        ),
    };
    let why = "who is named by no rule and is of no account does not come in; `from` of a [[rule]] names networks";
    finding(CLIENTS, severity, what, why).run(&format!("ekiden init gateway{options}"))
}

/// A family that is not forwarded, as its setting.
fn forwarding(setting: &str) -> Finding {
    let of = |family, severity| {
        let what = format!("this machine does not forward {family}");
        let why = "only TCP of the clients is relayed; DNS, QUIC and all else take forwarding";
        finding("gateway-forwarding", severity, what, why)
    };
    if !setting.contains("ipv6") {
        return of("IPv4", Severity::Warning).set(&[(setting, "1".to_owned())]);
    }
    // not by --apply: a machine that takes its own routes from advertisements would lose them
    let note = of("IPv6", Severity::Note);
    let why = format!(
        "{}; a device with routes from advertisements loses them then, unless its accept_ra is 2",
        note.why
    );
    let file = "/etc/sysctl.d/90-forward.conf";
    let mend = Some(format!("echo {setting}=1 >>{file} && sysctl -p {file}"));
    Finding { why, mend, ..note }
}

/// Rules of others that stand in the way.
fn conflict(other: &OtherRules, plan: &DivertPlan) -> Finding {
    match other {
        OtherRules::Diverts { table } => finding(
            "gateway-others",
            Severity::Warning,
            format!("the table {table} diverts connections, too"),
            "the rule that comes first decides; use one of both programs",
        ),
        OtherRules::Drops { chain } => {
            let what = format!(
                "the chain {chain} drops what it does not accept, and does not know diverted packets"
            );
            let why = "diverted connections arrive at this machine, and a firewall drops them there; let it accept the mark, and keep that in its own configuration";
            let mend = Some(format!("nft insert rule {chain} meta mark {:#x} accept", plan.mark));
            Finding { mend, ..finding("gateway-firewall", Severity::Problem, what, why) }
        }
        OtherRules::DropsForwarded { chain } => {
            let device = plan.tunnel.as_ref().map_or("", |tunnel| tunnel.device.as_str());
            let what = format!(
                "the chain {chain} drops what it does not accept, and does not know the device {device}"
            );
            let why = "clients by WireGuard have TCP, and neither UDP nor ping; let it accept the device, and keep that in its own configuration";
            let mend = Some(format!(
                "nft insert rule {chain} iifname \"{device}\" accept && nft insert rule {chain} oifname \"{device}\" ct state established,related accept"
            ));
            Finding { mend, ..finding("wireguard-firewall", Severity::Problem, what, why) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ekiden_linux::links::divert::TunnelRules;

    fn judged(facts: &DivertFacts) -> Vec<String> {
        let plan =
            DivertPlan { devices: vec!["eth1".into()], mark: 25_963, ..DivertPlan::default() };
        let mut found = Vec::new();
        judge(facts, &plan, &mut found);
        found.into_iter().map(|f| format!("{} {} {:?}", f.id, f.severity, f.mend)).collect()
    }

    #[test]
    fn says_what_is_missing_and_what_mends_it() {
        let fine = DivertFacts {
            nft: Some("nftables v1.0.6".into()),
            net_admin: true,
            ..DivertFacts::default()
        };
        assert_eq!(judged(&fine), [""; 0]);
        let facts = DivertFacts {
            nft: None,
            net_admin: false,
            missing: vec!["eth1".into()],
            not_forwarded: vec!["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"],
            src_valid_mark: true,
            refused: Some("No such file or directory".into()),
            others: vec![
                OtherRules::Drops { chain: "inet filter input".into() },
                OtherRules::Diverts { table: "ip mangle".into() },
            ],
        };
        insta::assert_snapshot!(judged(&facts).join("\n"));
    }

    /// What is found of clients of two networks whom no rule names.
    fn found_of(in_part: bool, but_accounts: bool) -> (Severity, String) {
        let networks = vec![([192, 168, 7, 0].into(), 24), ("fd12::".parse().unwrap(), 64)];
        let strangers = Strangers { device: "eth1".into(), networks, in_part, but_accounts };
        let plan = DivertPlan { strangers: vec![strangers], ..DivertPlan::default() };
        let facts = DivertFacts {
            nft: Some("nftables v1.0.6".into()),
            net_admin: true,
            ..DivertFacts::default()
        };
        let mut found = Vec::new();
        judge(&facts, &plan, &mut found);
        let [one] = found.as_slice() else { panic!("{found:?}") };
        let mend = "ekiden init gateway --from 192.168.7.0/24 --from fd12::/64";
        assert_eq!((one.id.as_str(), one.mend.as_deref()), (CLIENTS, Some(mend)));
        (one.severity, one.what.clone())
    }

    #[test]
    fn clients_that_no_rule_names_are_found_with_the_option_that_admits_them() {
        let whose = "clients of 192.168.7.0/24 and fd12::/64 on eth1";
        let none = format!("{whose} are not admitted, their connections are reset");
        assert_eq!(found_of(false, false), (Severity::Problem, none.clone()));
        // those who are known by their address come in
        let unless = ", unless an account has their address";
        assert_eq!(found_of(false, true), (Severity::Warning, format!("{none}{unless}")));
        // somebody chose the others
        let some = format!("only some {whose} are admitted, connections of others are reset");
        assert_eq!(found_of(true, false), (Severity::Note, some.clone()));
        assert_eq!(found_of(true, true), (Severity::Note, format!("{some}{unless}")));
    }

    #[test]
    fn settings_for_ipv4_are_applied_and_kept_and_ipv6_is_forwarded_by_hand() {
        let facts = DivertFacts {
            nft: Some("nftables v1.0.6".into()),
            net_admin: true,
            not_forwarded: vec!["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"],
            src_valid_mark: true,
            ..DivertFacts::default()
        };
        let plan = DivertPlan { devices: vec!["eth1".into()], ..DivertPlan::default() };
        let mut found = Vec::new();
        judge(&facts, &plan, &mut found);
        let settings = found.iter().flat_map(|finding| &finding.settings);
        let settings: Vec<String> =
            settings.map(|setting| format!("{}={}", setting.name, setting.value)).collect();
        assert_eq!(settings, ["net.ipv4.ip_forward=1", "net.ipv4.conf.all.src_valid_mark=0"]);
    }

    #[test]
    fn a_firewall_that_forwards_nothing_for_telephones_gets_two_rules() {
        let chain = "inet filter forward".to_owned();
        let tunnel = TunnelRules { device: "ekiden-wg".into(), ..TunnelRules::default() };
        let plan = DivertPlan { tunnel: Some(tunnel), ..DivertPlan::default() };
        let found = conflict(&OtherRules::DropsForwarded { chain }, &plan);
        assert_eq!(found.severity, Severity::Problem);
        assert_eq!(
            found.mend.unwrap(),
            "nft insert rule inet filter forward iifname \"ekiden-wg\" accept && \
             nft insert rule inet filter forward oifname \"ekiden-wg\" ct state established,related accept"
        );
    }

    #[test]
    fn says_why_nobody_comes_in_by_wireguard() {
        use ekiden_proxy::observe::status::WireguardPeerStatus;
        let said = |has_tun, status: Option<WireguardStatus>| {
            let mut found = Vec::new();
            wireguard(has_tun, status.as_ref(), &mut found);
            found.into_iter().map(|finding| (finding.severity, finding.what)).collect::<Vec<_>>()
        };
        assert_eq!(said(true, None), []);
        let broken = WireguardStatus { error: Some("no key".into()), ..WireguardStatus::default() };
        let both = said(false, Some(broken));
        assert!(both.iter().all(|(severity, _)| *severity == Severity::Problem), "{both:?}");
        assert!(both[0].1.contains("/dev/net/tun") && both[1].1.contains("no key"), "{both:?}");
        let handshake_seconds_ago = Some(3.0);
        let there = WireguardPeerStatus { handshake_seconds_ago, ..WireguardPeerStatus::default() };
        let peers = vec![there, WireguardPeerStatus::default()];
        let open = said(true, Some(WireguardStatus { peers, ..WireguardStatus::default() }));
        assert_eq!(open, [(Severity::Ok, "WireGuard is open: 1 of 2 devices are there".into())]);
    }
}
