//! What stands while cells of one condition are measured: hosts, links, relays, a web server.

use super::network::Network;
use super::transfer::{self, Transfer};
use crate::kernel::hosts::{host, place};
use ekiden_emulator::report::LinkReport;
use ekiden_emulator::topology::Topology;
use ekiden_lab::engine::{During, EngineError, Outcome};
use ekiden_lab::study::KernelRun;
use ekiden_model::units::Span;
use ekiden_testbed::peers::{Peer, Start, dante, ekiden, nginx, squid};
use std::thread;
use std::time::Duration;

/// What relays that listen are given besides two round trips to be ready.
const SETTLING: Duration = Duration::from_millis(100);

/// A running network with all that is on it. Programs end before their hosts do.
#[derive(Debug)]
pub(crate) struct SetUp {
    /// From the client's side.
    relays: Vec<Peer>,
    server: Peer,
    pub(crate) topology: Topology,
    pub(crate) super_packets: bool,
    /// As read back from the kernel, on the server and all relays.
    pub(crate) congestion: String,
}

impl SetUp {
    pub(crate) fn build(run: &KernelRun<'_>, network: Network) -> Result<Self, EngineError> {
        let cell = run.cell;
        const NETWORK: &str = "the network";
        let topology = Topology::build(&network.plan).during(NETWORK)?;
        let start = |name: &str, upstream| {
            let place = place(host(&topology, name)?).during(NETWORK)?;
            Ok::<_, EngineError>(Start { place: Some(place), upstream, ..Start::default() })
        };
        let server = nginx::files(&start("server", None)?, run.files)?;
        let peer = cell.text("peer")?;
        let mut relays: Vec<Peer> = Vec::new();
        for name in network.hosts.iter().filter(|name| name.starts_with("relay")).rev() {
            let start = start(name, relays.first().map(|next| next.address))?;
            let relay = match peer {
                "squid" => squid::start(&start)?,
                "dante" => dante::start(&start)?,
                "ekiden" => ekiden::start(&start, run.ekiden, "")?,
                other => return Err(cell.error("peer", &format!("no `{other}` can relay")).into()),
            };
            relays.insert(0, relay);
        }
        if !relays.is_empty() {
            // squid takes its parent for dead until a first connection to it stood
            let rtt: Span = cell.value("rtt")?;
            thread::sleep(SETTLING + Duration::from_nanos(2 * rtt.as_nanos()));
        }
        let mut used: Vec<String> = Vec::new();
        for pair in network.hosts.windows(2) {
            let [near, far] = pair else { continue };
            let message = host(&topology, far)?.congestion_towards(host(&topology, near)?);
            let message = message.during(NETWORK)?.unwrap_or_else(|| "default".to_owned());
            if !used.contains(&message) {
                used.push(message);
            }
        }
        let congestion = used.join(", ");
        Ok(Self { relays, server, topology, super_packets: network.super_packets, congestion })
    }

    /// Ends everything; returns the links' reports, the client's first.
    pub(crate) fn finish(self) -> Result<Vec<LinkReport>, EngineError> {
        let Self { relays, server, topology, .. } = self;
        drop((relays, server));
        topology.finish().during("the links")
    }

    pub(crate) fn download(
        &self,
        file: &str,
        size: u64,
        cut: Span,
    ) -> Result<Transfer, EngineError> {
        let client = host(&self.topology, "client")?;
        let url = format!("http://{}/{file}", self.server.address);
        transfer::download(client, self.relays.first(), &url, size, cut)
    }
}

/// Adds the window that a cell really had, if it was not the machine's own.
pub(crate) fn window_figure(run: &KernelRun<'_>, outcome: &mut Outcome) {
    outcome.add_figures(run.window.map(|made| ("window_kib", made.effective as f64 / 1024.0)));
}
