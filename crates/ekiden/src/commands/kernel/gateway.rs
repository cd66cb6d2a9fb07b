//! `ekiden gateway`: the rules that the gateway sets, as nft and ip read them.

use crate::cli::GatewayCommand;
use crate::commands::{client, usable, with_runtime};
use crate::print::out;
use ekiden_linux::links::divert::DivertPlan;
use ekiden_proxy::settings::Settings;
use ekiden_proxy::{Ports, divert_plan};
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
    settings.gateway.is_on().then(|| divert_plan(settings, [Some(PORT); 2], [Some(PORT); 2]))
}

fn show(plan: &DivertPlan, from: &str) -> String {
    format!("{from}{}# and for packets with the mark:\n{}\n", plan.nft(), plan.ip().join("\n"))
}
