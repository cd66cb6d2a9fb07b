//! `ekiden gateway`: the rules that the gateway sets, as nft and ip read them.

use crate::cli::GatewayCommand;
use crate::commands::{client, usable, with_runtime};
use crate::print::out;
use crate::setup::document::refuses_everybody;
use crate::setup::lan;
use ekiden_linux::links::divert::{DivertPlan, Prefix};
use ekiden_proxy::settings::{Rule, Settings};
use ekiden_proxy::{Ports, divert_plan};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::net::SocketAddr;
use std::path::Path;

/// Stands for the ports of the listeners, which the kernel chooses at the daemon's start.
const PORT: u16 = 40_000;

/// Runs it. Returns the exit code.
pub(crate) fn run(command: &GatewayCommand) -> u8 {
    let GatewayCommand::Show { config, socket } = command;
    with_runtime("gateway", |runtime| {
        let loaded = usable(config.as_deref())?;
        let settings = &loaded.reading.settings;
        if !settings.gateway.is_on() {
            return Err(
                "the configuration has no gateway: `devices` and `own_traffic` of [gateway] are not set"
                    .to_owned(),
            );
        }
        let running = runtime.block_on(ports(socket.as_deref()));
        let from = match running {
            Some(_) => "# ports of the running daemon\n".to_owned(),
            None => format!("# port {PORT} stands for one that the daemon's start chooses\n"),
        };
        let (tcp, quic) = running.unwrap_or(([Some(PORT); 2], [Some(PORT); 2]));
        Ok(out(&show(&divert_plan(settings, tcp, quic), &from)))
    })
}

/// The ports of the running daemon's listeners for IPv4 and IPv6, and of its sockets for QUIC.
async fn ports(socket: Option<&Path>) -> Option<(Ports, Ports)> {
    let (status, _) = client::status(socket).await.ok()?;
    let gateway = status.gateway?;
    let of = |listen: &[SocketAddr]| {
        let port = |ipv6| listen.iter().find(|at| at.is_ipv6() == ipv6).map(|at| at.port());
        [port(false), port(true)]
    };
    (!gateway.listen.is_empty()).then(|| (of(&gateway.listen), of(&gateway.listen_quic)))
}

/// The plan of a configuration, to be judged without a daemon; `None` where nothing is diverted.
pub(crate) fn plan_to_judge(settings: &Settings) -> Option<DivertPlan> {
    if !settings.gateway.is_on() {
        return None;
    }
    let plan = divert_plan(settings, [Some(PORT); 2], [Some(PORT); 2]);
    Some(DivertPlan { strangers: strangers(settings), ..plan })
}

/// Networks behind the devices whose clients no rule names. Where accounts are required, rules let nobody in.
fn strangers(settings: &Settings) -> Vec<(String, Vec<Prefix>)> {
    if settings.accounts.enabled && settings.accounts.required {
        return Vec::new();
    }
    let named = named_clients(settings);
    let tunnel = settings.wireguard.is_on().then_some(&settings.wireguard.device);
    // each client there is an account's
    let devices = settings.gateway.devices.iter().filter(|device| Some(*device) != tunnel);
    let of_device = |device: &String| {
        let networks = unnamed(lan::networks_of_device(device), &named);
        let networks: Vec<Prefix> =
            networks.iter().map(|net| (net.network(), net.prefix_len())).collect();
        (device.clone(), networks)
    };
    devices.map(of_device).filter(|(_, networks)| !networks.is_empty()).collect()
}

/// Clients of whom the rules say whether they may come in. What refuses some destinations, or everybody else, does not, nor
/// does a rule behind that.
pub(crate) fn named_clients(settings: &Settings) -> Vec<IpNet> {
    let rules = &settings.access.rules;
    let mut named: Vec<IpNet> = Vec::new();
    for (number, Rule { from, peers, to, allow, .. }) in rules.iter().enumerate() {
        let everybody = [IpNet::V4(Ipv4Net::default()), IpNet::V6(Ipv6Net::default())];
        let from = match *allow && from.is_empty() && peers.is_empty() {
            true => &everybody[..],
            false => from.as_slice(),
        };
        let is_late =
            |net: &IpNet| rules.iter().take(number).any(|rule| refuses_everybody(rule, net));
        let refuses = |net: &IpNet| to.is_empty() && net.prefix_len() > 0;
        named.extend(from.iter().filter(|net| (*allow || refuses(net)) && !is_late(net)));
    }
    IpNet::aggregate(&named)
}

/// Those of some networks that are not named. One address alone has no clients behind it.
pub(crate) fn unnamed(networks: Vec<IpNet>, named: &[IpNet]) -> Vec<IpNet> {
    let is_meant = |net: &IpNet| {
        net.prefix_len() < net.max_prefix_len() && !named.iter().any(|one| one.contains(net))
    };
    networks.into_iter().filter(is_meant).collect()
}

fn show(plan: &DivertPlan, from: &str) -> String {
    format!("{from}{}# and for packets with the mark:\n{}\n", plan.nft(), plan.ip().join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The networks of which no rule names all.
    fn left(text: &str) -> String {
        let reading = ekiden_config::read(text, "f");
        assert!(reading.is_usable(), "{text}");
        let networks = ["192.168.7.0/24", "fd12::/64", "192.168.9.1/32"];
        let networks = networks.iter().map(|net| net.parse().unwrap()).collect();
        let left = unnamed(networks, &named_clients(&reading.settings));
        left.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    }

    fn rule(text: &str) -> String {
        format!("[[rule]]\n{text}\n")
    }

    fn allow(from: &str) -> String {
        rule(&format!("from = [{from}]\naction = \"allow\""))
    }

    fn deny(from: &str) -> String {
        rule(&format!("from = [{from}]\naction = \"deny\""))
    }

    #[test]
    fn clients_are_named_by_rules_that_say_whether_they_may_come_in() {
        assert_eq!(left(""), "192.168.7.0/24 fd12::/64");
        assert_eq!(left(&allow("\"192.168.0.0/16\"")), "fd12::/64");
        assert_eq!(left(&allow("\"192.168.7.0/25\", \"192.168.7.128/25\"")), "fd12::/64");
        assert_eq!(left(&rule("action = \"allow\"")), "");
        // one address, or the refusal of a name or of all others, leaves them unnamed
        let some = format!("{}to = [\"ads.example\"]\n", deny("\"192.168.7.0/24\""));
        for text in [&allow("\"192.168.7.7\""), &deny("\"0.0.0.0/0\", \"::/0\""), &some] {
            assert_eq!(left(text), "192.168.7.0/24 fd12::/64", "{text}");
        }
        // who is refused by name is meant to be
        let named = format!("{}{}", deny("\"192.168.7.0/24\""), allow("\"fd00::/8\""));
        assert_eq!(left(&named), "");
    }

    #[test]
    fn rules_behind_one_that_refuses_everybody_name_nobody() {
        let all = deny("\"0.0.0.0/0\", \"::/0\"");
        let (four, six) = (allow("\"192.168.7.0/24\""), allow("\"fd12::/64\""));
        assert_eq!(left(&format!("{all}{four}{six}")), "192.168.7.0/24 fd12::/64");
        assert_eq!(left(&format!("{four}{all}{six}")), "fd12::/64");
        assert_eq!(left(&format!("{four}{}{six}", rule("action = \"deny\""))), "fd12::/64");
        let of_v6 = deny("\"::/0\"");
        assert_eq!(left(&format!("{of_v6}{four}{six}")), "fd12::/64");
        let mail = rule("to = [\":25\"]\naction = \"deny\"");
        assert_eq!(left(&format!("{mail}{four}{six}")), "");
    }
}
