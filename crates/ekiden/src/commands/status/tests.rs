//! The status as text.

use super::*;
use crate::commands::sample;
use ekiden_proxy::observe::status::{
    AccountsStatus, AcmeStatus, AlertReceiverStatus, AlertStatus, AlertsStatus, CertificateStatus,
    DnsServerStatus, DnsStatus, FleetStatus, GatewayDevice, GatewayStatus, RefusedReload,
    TracesStatus, TunnelStatus, WireguardPeerStatus, WireguardStatus,
};
use serde_json::Value;

#[test]
fn everything() {
    insta::assert_snapshot!(render(&sample(), None));
}

#[test]
fn on_80_columns() {
    let text = render(&sample(), Some(80));
    assert!(text.lines().all(|line| line.chars().count() <= 80));
    insta::assert_snapshot!(text);
}

#[test]
fn a_client_out_of_a_tunnel_is_its_peer_and_sessions_have_a_unit() {
    let mut status = sample();
    let connection = &mut status.connections[0];
    connection.client = ([127, 0, 0, 1], 40_000).into();
    connection.account = None;
    connection.legs[0].side = "client".to_owned();
    connection.legs[0].tunnel = Some("ship".to_owned());
    status.budgets[0].name = "sessions".to_owned();
    status.budgets[0].limit = 64 << 20;
    let text = render(&status, None);
    assert!(text.contains("peer ship") && !text.contains("127.0.0.1:40000"), "{text}");
    assert!(text.contains("64.0 MiB"), "{text}");
}

/// A status in which every part has something to say. `broken`: what is shown in place of something else.
fn full(broken: bool) -> Status {
    let error = || Some("an error".to_owned());
    let names = vec!["relay.example".to_owned()];
    let mut status = sample();
    status.refused_reload =
        Some(RefusedReload { for_seconds: 1.0, errors: error().into_iter().collect() });
    status.operators = error();
    status.accounts = Some(AccountsStatus {
        away: error(),
        unwritten: error(),
        unreadable: 1,
        unreadable_first: error(),
        relays: vec![FleetStatus::default(); 2],
        ..AccountsStatus::default()
    });
    let receiver = AlertReceiverStatus { last_error: error(), ..AlertReceiverStatus::default() };
    status.alerts =
        Some(AlertsStatus { standing: vec![AlertStatus::default()], receivers: vec![receiver] });
    status.traces = Some(TracesStatus { last_error: error(), ..TracesStatus::default() });
    status.certificates =
        vec![CertificateStatus { names: names.clone(), ..CertificateStatus::default() }];
    status.acme =
        broken.then(|| AcmeStatus { names, last_failure: error(), ..AcmeStatus::default() });
    status.gateway = Some(GatewayStatus {
        in_effect: true,
        error: error().filter(|_| broken),
        devices: vec![GatewayDevice::default()],
        ..GatewayStatus::default()
    });
    status.wireguard = Some(WireguardStatus {
        public_key: Some("a key".to_owned()),
        error: error().filter(|_| broken),
        peers: vec![WireguardPeerStatus { barred: error(), ..WireguardPeerStatus::default() }],
        ..WireguardStatus::default()
    });
    let server = DnsServerStatus { last_error: error(), ..DnsServerStatus::default() };
    status.dns = Some(DnsStatus { asked: 1, servers: vec![server], ..DnsStatus::default() });
    status.tunnels = vec![TunnelStatus { last_error: error(), ..TunnelStatus::default() }];
    status
}

/// The places of all texts in a document, as JSON pointers.
fn texts(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::String(_) => found.push(at.to_owned()),
        Value::Array(all) => {
            all.iter().enumerate().for_each(|(nth, one)| texts(one, &format!("{at}/{nth}"), found));
        }
        Value::Object(all) => {
            all.iter().for_each(|(key, one)| texts(one, &format!("{at}/{key}"), found));
        }
        _ => {}
    }
}

#[test]
fn control_characters_do_not_reach_the_terminal() {
    const ESCAPE: &str = "\u{1b}[2J";
    for broken in [false, true] {
        let document = serde_json::to_value(full(broken)).unwrap();
        let mut places = Vec::new();
        texts(&document, "", &mut places);
        let mut tried = 0;
        for place in places {
            let mut document = document.clone();
            let text = document.pointer_mut(&place).unwrap();
            *text = format!("{}{ESCAPE}", text.as_str().unwrap()).into();
            // an address, or one of some words, is no such text
            let Ok(status) = serde_json::from_value::<Status>(document) else { continue };
            tried += 1;
            for width in [None, Some(80)] {
                assert!(!render(&status, width).contains('\u{1b}'), "{place}");
            }
        }
        assert!(tried > 40, "{tried} texts");
    }
}
