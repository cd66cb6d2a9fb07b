//! `ekiden gateway`: the rules that the gateway sets, as nft and ip read them.

use crate::cli::GatewayCommand;
use crate::commands::{client, usable, with_runtime};
use crate::print::out;
use crate::setup::document::refuses_all_of;
use crate::setup::lan;
use ekiden_linux::links::divert::{DivertPlan, Strangers};
use ekiden_proxy::settings::{Pattern, Rule, Settings};
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

/// Clients behind the devices whom no rule names. Where accounts are required, rules let nobody in.
fn strangers(settings: &Settings) -> Vec<Strangers> {
    if settings.accounts.enabled && settings.accounts.required {
        return Vec::new();
    }
    let named = named_clients(settings);
    let tunnel = settings.wireguard.is_on().then_some(&settings.wireguard.device);
    // each client there is an account's
    let devices = settings.gateway.devices.iter().filter(|device| Some(*device) != tunnel);
    let of_device = |device: &String| {
        let (all, some) = named.leave(lan::networks_of_device(device));
        let strangers = |networks: Vec<IpNet>, in_part| Strangers {
            device: device.clone(),
            networks: networks.iter().map(|net| (net.network(), net.prefix_len())).collect(),
            in_part,
            but_accounts: settings.accounts.enabled,
        };
        [strangers(all, false), strangers(some, true)]
    };
    devices.flat_map(of_device).filter(|found| !found.networks.is_empty()).collect()
}

/// Clients of whom the rules say whether they may come in.
#[derive(Debug, Default)]
pub(crate) struct NamedClients {
    named: Vec<IpNet>,
    admitted: Vec<IpNet>,
}

/// Clients whom rules name. What refuses some destinations, or everybody else, does not, nor does a rule behind that.
pub(crate) fn named_clients(settings: &Settings) -> NamedClients {
    let rules = &settings.access.rules;
    let mut found = NamedClients::default();
    for (number, Rule { from, peers, to, allow, .. }) in rules.iter().enumerate() {
        let everybody = [IpNet::V4(Ipv4Net::default()), IpNet::V6(Ipv6Net::default())];
        let from = match *allow && from.is_empty() && peers.is_empty() {
            true => &everybody[..],
            false => from.as_slice(),
        };
        let is_late = |net: &IpNet| rules.iter().take(number).any(|rule| refuses_all_of(net, rule));
        let refuses = |net: &IpNet| Pattern::match_all(to) && net.prefix_len() > 0;
        let meant = from.iter().filter(|net| (*allow || refuses(net)) && !is_late(net));
        let meant: Vec<IpNet> = meant.copied().collect();
        if *allow {
            found.admitted.extend(&meant);
        }
        found.named.extend(meant);
    }
    found.named = IpNet::aggregate(&found.named);
    found
}

impl NamedClients {
    /// Whether nobody is named.
    pub(crate) const fn is_empty(&self) -> bool {
        self.named.is_empty()
    }

    /// Those of some networks that are not named, and those of which some clients are admitted. One address alone has no
    /// clients behind it.
    pub(crate) fn leave(&self, networks: Vec<IpNet>) -> (Vec<IpNet>, Vec<IpNet>) {
        let is_meant = |net: &IpNet| {
            net.prefix_len() < net.max_prefix_len()
                && !self.named.iter().any(|one| one.contains(net))
        };
        let has_none = |net: &IpNet| !self.admitted.iter().any(|one| net.contains(one));
        networks.into_iter().filter(is_meant).partition(has_none)
    }
}

fn show(plan: &DivertPlan, from: &str) -> String {
    format!("{from}{}# and for packets with the mark:\n{}\n", plan.nft(), plan.ip().join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The networks that are left: nobody of them is named, and behind a bar those of which some are admitted.
    fn left(text: &str) -> String {
        let reading = ekiden_config::read(text, "f");
        assert!(reading.is_usable(), "{text}");
        let networks = ["192.168.7.0/24", "fd12::/64", "192.168.9.1/32"];
        let networks = networks.iter().map(|net| net.parse().unwrap()).collect();
        let (all, some) = named_clients(&reading.settings).leave(networks);
        let words =
            |nets: &[IpNet]| nets.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        format!("{}|{}", words(&all), words(&some))
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
        assert_eq!(left(""), "192.168.7.0/24 fd12::/64|");
        assert_eq!(left(&allow("\"192.168.0.0/16\"")), "fd12::/64|");
        assert_eq!(left(&allow("\"192.168.7.0/25\", \"192.168.7.128/25\"")), "fd12::/64|");
        assert_eq!(left(&rule("action = \"allow\"")), "|");
        // the refusal of a name, or of all others, leaves them unnamed
        let some = format!("{}to = [\"ads.example\"]\n", deny("\"192.168.7.0/24\""));
        for text in [&deny("\"0.0.0.0/0\", \"::/0\""), &some] {
            assert_eq!(left(text), "192.168.7.0/24 fd12::/64|", "{text}");
        }
        // who is refused by name is meant to be
        let named = format!("{}{}", deny("\"192.168.7.0/24\""), allow("\"fd00::/8\""));
        assert_eq!(left(&named), "|");
    }

    #[test]
    fn rules_behind_one_that_refuses_everybody_name_nobody() {
        let all = deny("\"0.0.0.0/0\", \"::/0\"");
        let (four, six) = (allow("\"192.168.7.0/24\""), allow("\"fd12::/64\""));
        assert_eq!(left(&format!("{all}{four}{six}")), "192.168.7.0/24 fd12::/64|");
        assert_eq!(left(&format!("{four}{all}{six}")), "fd12::/64|");
        assert_eq!(left(&format!("{four}{}{six}", rule("action = \"deny\""))), "fd12::/64|");
        let anything = rule("to = [\"*\"]\naction = \"deny\"");
        assert_eq!(left(&format!("{four}{anything}{six}")), "fd12::/64|");
        let denied = "from = [\"192.168.7.0/24\"]\nto = [\"*\"]\naction = \"deny\"";
        assert_eq!(left(&format!("{}{four}{six}", rule(denied))), "|");
        // who denied it by name meant that
        assert_eq!(left(&format!("{}{four}{six}", deny("\"192.168.0.0/16\""))), "|");
        let of_v6 = deny("\"::/0\"");
        assert_eq!(left(&format!("{of_v6}{four}{six}")), "fd12::/64|");
        let mail = rule("to = [\":25\"]\naction = \"deny\"");
        assert_eq!(left(&format!("{mail}{four}{six}")), "|");
    }

    #[test]
    fn a_network_of_which_some_clients_are_admitted_is_told_from_one_of_strangers() {
        assert_eq!(left(&allow("\"192.168.7.7\"")), "fd12::/64|192.168.7.0/24");
        assert_eq!(left(&allow("\"192.168.7.0/25\"")), "fd12::/64|192.168.7.0/24");
        // whoever is refused by name is not admitted
        assert_eq!(left(&deny("\"192.168.7.7\"")), "192.168.7.0/24 fd12::/64|");
    }
}
