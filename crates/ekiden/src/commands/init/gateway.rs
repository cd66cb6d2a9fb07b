//! The router of a network whose devices know no proxy.

use super::Failed;
use super::session::{Plan, Session};
use crate::cli::init::Gateway;
use crate::commands::doctor::gateway::{CLIENTS, judge};
use crate::commands::doctor::{Finding, Severity};
use crate::commands::kernel::gateway::{named_clients, plan_to_judge};
use crate::exit;
use crate::setup::lan;
use crate::setup::ports::{self, Obstacle, Transport};
use ekiden_linux::links::divert::DivertFacts;
use ekiden_proxy::settings::Settings;
use ipnet::IpNet;
use std::net::SocketAddr;

/// RFC 1035 §4.2.
const DNS_PORT: u16 = 53;
/// The port that WireGuard's tools propose.
const WIREGUARD_PORT: u16 = 51_820;

pub(super) fn set_up(mut session: Session, args: Gateway) -> Result<u8, Failed> {
    let configured = session.document.draft().gateway.devices.clone();
    let devices = match (args.device, configured) {
        (given, _) if !given.is_empty() => given,
        (_, configured) if !configured.is_empty() => configured,
        _ => {
            let guess = lan::device();
            let question = ("--device", "Device behind which the clients are, such as eth1");
            let read = |text: &str| Ok::<_, &str>(text.to_owned());
            vec![session.asker.answer(None, question, guess.as_deref(), read)?]
        }
    };
    session.document.set_list(&["gateway"], "devices", &devices)?;
    if args.block_quic {
        session.document.set(&["gateway"], "quic", "block")?;
    }
    let from = match args.from {
        given if !given.is_empty() => given,
        _ => strangers(&session, &devices)?,
    };
    if !from.is_empty() {
        session.document.admit(&from)?;
    }
    let handed = match &args.wireguard {
        Some(host) => Some(let_telephones_in(&mut session, host)?),
        None => None,
    };
    let elsewhere = answer_names(&mut session, &devices)?;
    let steps: Vec<String> = session.restart().into_iter().collect();
    let changes = match session.propose(&steps)? {
        Plan::Do(changes) => changes,
        Plan::Nothing | Plan::Not => return Ok(exit::FINE),
    };
    let mut remains = remains(&changes.reading.settings);
    remains.extend(elsewhere.into_iter().chain(handed));
    session.document.prepare(&changes, &session.place)?.commit()?;
    Ok(session.finish(&remains, ""))
}

/// The networks of the devices that are to be admitted: those of which no rule names anybody yet. Whoever is asked may name
/// others.
fn strangers(session: &Session, devices: &[String]) -> Result<Vec<IpNet>, Failed> {
    let named = named_clients(session.document.settings());
    let found = devices.iter().flat_map(|device| lan::networks_of_device(device)).collect();
    let (found, _) = named.leave(found);
    if found.is_empty() && !named.is_empty() {
        return Ok(Vec::new());
    }
    session.ask_networks(found)
}

/// The WireGuard door, and accounts for those who come by it. What is to be done then.
fn let_telephones_in(session: &mut Session, host: &str) -> Result<String, Failed> {
    let document = &mut session.document;
    let bare_v6 = host.parse::<std::net::Ipv6Addr>().is_ok();
    let given = host.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
    let given = given.filter(|_| !bare_v6);
    let port = given.unwrap_or(WIREGUARD_PORT);
    let endpoint = match (given, bare_v6) {
        (Some(_), _) => host.to_owned(),
        (None, true) => format!("[{host}]:{port}"),
        (None, false) => format!("{host}:{port}"),
    };
    let everywhere = lan::everywhere().into_iter().map(|ip| SocketAddr::new(ip, port).to_string());
    let listen: Vec<String> = everywhere.collect();
    document.set_list(&["wireguard"], "listen", &listen)?;
    document.set(&["wireguard"], "endpoint", endpoint.as_str())?;
    if session.begin_accounts()? {
        // those at home have none
        session.document.set(&["accounts"], "required", false)?;
    }
    Ok("hand out a code: ekiden account add NAME --wireguard".to_owned())
}

/// Clients may ask at this machine's addresses there, where nobody else answers them already. What is to be said of
/// that.
fn answer_names(session: &mut Session, devices: &[String]) -> Result<Option<String>, Failed> {
    if session.document.says("dns.listen") {
        return Ok(None);
    }
    let addresses = devices.iter().flat_map(|device| lan::addresses_of_device(device));
    let listen: Vec<SocketAddr> = addresses.map(|ip| SocketAddr::new(ip, DNS_PORT)).collect();
    let taken = listen.iter().find_map(|at| {
        let both = [Transport::Udp, Transport::Tcp];
        both.into_iter().find_map(|transport| ports::taken(*at, transport, None))
    });
    if let Some(obstacle) = taken {
        return Ok(Some(unanswered(&obstacle)));
    }
    if listen.is_empty() {
        return Ok(None);
    }
    let text: Vec<String> = listen.iter().map(ToString::to_string).collect();
    session.document.set_list(&["dns"], "listen", &text)?;
    Ok(Some(format!("clients may ask {} for names: let DHCP hand that out", text.join(" and "))))
}

/// Why clients may not ask for names, and what to do.
fn unanswered(obstacle: &Obstacle) -> String {
    let then = match (obstacle.mend(), obstacle.is_taken) {
        (Some(mend), _) => format!("Run this again after: {mend}"),
        (None, true) => "When that port is free, run this again".to_owned(),
        (None, false) => "When that is mended, run this again".to_owned(),
    };
    format!("names are not answered here: {}. {then}", obstacle.why)
}

/// What stands in the way on this machine, and how to see that it works.
fn remains(settings: &Settings) -> Vec<String> {
    let mut found = Vec::new();
    if let Some(plan) = plan_to_judge(settings) {
        judge(&DivertFacts::look(&plan), &plan, &mut found);
    }
    let line = |Finding { what, mend, .. }: Finding| match mend {
        Some(mend) => format!("{what}: {mend}"),
        None => what,
    };
    // whom the rules leave out is told of, also where that is meant
    let matters = |finding: &Finding| finding.severity > Severity::Note || finding.id == CLIENTS;
    let mut remains: Vec<String> = found.into_iter().filter(matters).map(line).collect();
    remains.push(
        "clients use this machine as their router; `ekiden status` counts their connections"
            .to_owned(),
    );
    remains
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_of_addresses_is_not_to_be_switched_off() {
        let said = |by: &str, is_taken| {
            let why = format!("UDP 192.168.7.1:53 is taken by {by}, process 7");
            unanswered(&Obstacle { why, is_taken })
        };
        let dnsmasq = said("dnsmasq", true);
        assert!(dnsmasq.contains("process 7. Run this again after: printf 'port=0"), "{dnsmasq}");
        assert!(!dnsmasq.contains("disable"), "{dnsmasq}");
        assert!(said("x", true).ends_with(". When that port is free, run this again"));
        assert!(said("x", false).ends_with(". When that is mended, run this again"));
    }
}
