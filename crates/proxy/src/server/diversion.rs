//! What the gateway diverts, as a plan of its settings.

use crate::settings::{Quic, Settings, Wireguard};
use ekiden_linux::links::divert::{Divert, DivertError, DivertPlan, Prefix, TunnelRules};
use ipnet::IpNet;

/// Ports of loopback for IPv4 and IPv6.
pub type Ports = [Option<u16>; 2];

/// The plan of these settings, for listeners at these ports of loopback, and sockets for QUIC at those.
pub fn divert_plan(settings: &Settings, [v4, v6]: Ports, quic: Ports) -> DivertPlan {
    let gateway = &settings.gateway;
    // a user of its own has no connections but this relay's
    let own = gateway.own.then(|| rustix::process::geteuid().as_raw());
    DivertPlan {
        devices: gateway.devices.clone(),
        v4,
        v6,
        own_except: own,
        reject_quic: gateway.quic == Quic::Block,
        quic: if gateway.quic == Quic::Tunnel { quic } else { Ports::default() },
        bypass: bypass(settings),
        mark: gateway.mark,
        tunnel: settings.wireguard.is_on().then(|| tunnel_rules(settings, &settings.wireguard)),
        strangers: Vec::new(),
    }
}

fn bypass(settings: &Settings) -> Vec<Prefix> {
    settings.gateway.bypass.iter().map(|net| (net.network(), net.prefix_len())).collect()
}

fn tunnel_rules(settings: &Settings, wireguard: &Wireguard) -> TunnelRules {
    let Wireguard { device, network, network_v6, masquerade, .. } = wireguard;
    let own = wireguard.own();
    let others = wireguard.dns.iter().copied().filter(|address| !own.contains(address));
    let names = own.into_iter().chain(others);
    TunnelRules {
        device: device.clone(),
        networks: vec![
            (network.network().into(), network.prefix_len()),
            (network_v6.network().into(), network_v6.prefix_len()),
        ],
        masquerade: *masquerade,
        names: names.filter(|ip| wireguard.asks_at(*ip, &settings.dns.listen)).collect(),
    }
}

/// Whether these rules judge all that comes in by a WireGuard door with these keys. After a reload whose rules could not
/// be set, those before hold, for the device and the networks before.
#[cfg(feature = "wireguard")]
pub(super) fn serves_tunnel(plan: &DivertPlan, settings: &Settings, wireguard: &Wireguard) -> bool {
    plan.devices.contains(&wireguard.device)
        && plan.tunnel.as_ref() == Some(&tunnel_rules(settings, wireguard))
        // what passes the relay by is judged at the door
        && plan.bypass == bypass(settings)
}

/// The plan whose rules the kernel has.
pub(super) fn held_plan(rules: &mut Option<Divert>) -> Option<DivertPlan> {
    let divert = rules.as_mut()?;
    if divert.is_held() { divert.plan().cloned() } else { None }
}

/// The networks whose addresses the rules of this plan leave to WireGuard devices.
pub(super) fn guarded(plan: Option<&DivertPlan>) -> Vec<IpNet> {
    let tunnel = plan.and_then(|plan| plan.tunnel.as_ref());
    let networks = tunnel.into_iter().flat_map(|tunnel| &tunnel.networks);
    networks.filter_map(|(address, bits)| IpNet::new(*address, *bits).ok()).collect()
}

/// Keeps the rules for packets of live connections alone.
pub(super) fn divert_nothing_new(rules: &mut Option<Divert>) -> Result<(), DivertError> {
    let Some(divert) = rules else { return Ok(()) };
    let Some(before) = divert.plan() else { return Ok(()) };
    let plan = DivertPlan {
        devices: Vec::new(),
        own_except: None,
        quic: Ports::default(),
        ..before.clone()
    };
    divert.set(&plan)
}

#[cfg(all(test, feature = "wireguard"))]
mod tests {
    use super::*;

    #[test]
    fn rules_serve_no_door_but_that_of_their_settings() {
        let mut settings = Settings::default();
        settings.wireguard.listen = vec!["0.0.0.0:51820".parse().unwrap()];
        settings.dns.listen = vec!["192.168.1.1:53".parse().unwrap()];
        settings.gateway.devices = vec!["eth1".into(), settings.wireguard.device.clone()];
        let plan = divert_plan(&settings, [Some(1); 2], Ports::default());
        assert!(serves_tunnel(&plan, &settings, &settings.wireguard));
        // keys that the rules do not hold
        let same =
            Wireguard { mtu: 1_280, endpoint: Some("a:1".into()), ..settings.wireguard.clone() };
        assert!(serves_tunnel(&plan, &settings, &same));
        for other in [
            Wireguard { device: "eth1".into(), ..settings.wireguard.clone() },
            Wireguard { network: "10.78.0.0/24".parse().unwrap(), ..settings.wireguard.clone() },
            Wireguard { network_v6: "fd78::/64".parse().unwrap(), ..settings.wireguard.clone() },
            Wireguard { dns: vec!["192.168.1.1".parse().unwrap()], ..settings.wireguard.clone() },
        ] {
            assert!(!serves_tunnel(&plan, &settings, &other), "{other:?}");
        }
        let mut passing = settings.clone();
        passing.gateway.bypass = vec!["192.0.2.0/24".parse().unwrap()];
        assert!(!serves_tunnel(&plan, &passing, &passing.wireguard));
        // those that are left for live connections divert no new one
        let leaving = DivertPlan { devices: Vec::new(), ..plan };
        assert!(!serves_tunnel(&leaving, &settings, &settings.wireguard));
    }
}
