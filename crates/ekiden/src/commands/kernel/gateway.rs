//! `ekiden gateway`: the rules that the gateway sets, as nft and ip read them.

use crate::cli::GatewayCommand;
use crate::commands::{client, usable, with_runtime};
use crate::print::out;
use ekiden_linux::links::divert::DivertPlan;
use ekiden_proxy::divert_plan;
use ekiden_proxy::settings::Settings;
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
        Ok(out(&show(&plan(settings, running.unwrap_or([Some(PORT); 2])), &from)))
    })
}

/// The ports of the running daemon's listeners for IPv4 and IPv6.
async fn ports(socket: Option<&Path>) -> Option<[Option<u16>; 2]> {
    let (status, _) = client::status(socket).await.ok()?;
    let listen = status.gateway?.listen;
    let port = |ipv6| listen.iter().find(|at| at.is_ipv6() == ipv6).map(|at| at.port());
    (!listen.is_empty()).then(|| [port(false), port(true)])
}

/// The plan of a configuration, for listeners at these ports.
pub(crate) fn plan(settings: &Settings, [v4, v6]: [Option<u16>; 2]) -> DivertPlan {
    divert_plan(settings, v4, v6)
}

/// The plan of a configuration, to be judged without a daemon; `None` where nothing is diverted.
pub(crate) fn plan_to_judge(settings: &Settings) -> Option<DivertPlan> {
    settings.gateway.is_on().then(|| plan(settings, [Some(PORT); 2]))
}

fn show(plan: &DivertPlan, from: &str) -> String {
    format!("{from}{}# and for packets with the mark:\n{}\n", plan.nft(), plan.ip().join("\n"))
}
