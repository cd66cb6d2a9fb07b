//! How a load goes over the long link: by itself, or between two ends that hold a rate.

use super::{FAR, NEAR};
use crate::kernel::hosts::{host, place, place_knowing};
use ekiden_emulator::topology::{Host, Topology};
use ekiden_lab::cell::Cell;
use ekiden_lab::engine::{During, EngineError};
use ekiden_model::units::Rate;
use ekiden_testbed::load::far_client::FarClient;
use ekiden_testbed::peers::{Peer, Start, ekiden, sing_box};
use serde_json::Value;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const PORT: u16 = 4433;
/// A tunnel that has not come up by then does not come.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(50);
/// The device of a gateway's clients: its machine's second.
const HOME: &str = "link1";
const MACHINE: &str = "a machine of the network";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RouteKind {
    Direct,
    Ekiden,
    /// The same on a link of its own, of these rates up and down.
    Dedicated([Rate; 2]),
    Hysteria,
    /// The same, but the near end is the gateway of a machine that knows no proxy; this becomes of QUIC.
    Gateway(&'static str),
    /// One relay at the far end, used over the long link by all clients.
    Hold,
}

impl RouteKind {
    const fn is_ekiden(self) -> bool {
        matches!(self, Self::Ekiden | Self::Dedicated(_) | Self::Gateway(_))
    }
}

#[derive(Debug)]
pub(crate) struct LinkEnds {
    kind: RouteKind,
    near: Option<Peer>,
    far: Option<Peer>,
    configured: sing_box::Hysteria2Rates,
    binary: PathBuf,
    /// Whether the near relay answers clients' questions for names.
    answers_names: bool,
    /// Who is known to whom.
    state: TempDir,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct TunnelFigures {
    /// Payload bytes, each once.
    pub(crate) sent: f64,
    pub(crate) copied: f64,
    /// How late datagrams left, microseconds.
    pub(crate) pacing: Option<[f64; 2]>,
}

impl LinkEnds {
    /// Starts the far end, which knows these names of its own machine. Errors: the cell lacks a value, or a program
    /// did not start.
    pub(crate) fn far(
        cell: &Cell,
        topology: &Topology,
        binary: &Path,
        names: &[String],
    ) -> Result<Self, EngineError> {
        let configured =
            sing_box::Hysteria2Rates { down: cell.value("told-down")?, up: cell.value("told-up")? };
        let kind = match cell.text("way")? {
            "cubic" | "bbr" | "http3" | "quiche" => RouteKind::Direct,
            "ekiden" => RouteKind::Ekiden,
            "gateway" => RouteKind::Gateway("direct"),
            "gateway-quic" | "gateway-quiche" => RouteKind::Gateway("tunnel"),
            "gateway-block" => RouteKind::Gateway("block"),
            "dedicated" => RouteKind::Dedicated([cell.value("uplink")?, cell.value("downlink")?]),
            "hysteria2" => RouteKind::Hysteria,
            "hold" => RouteKind::Hold,
            other => return Err(cell.error("way", &format!("`{other}` is not known")).into()),
        };
        let state = tempfile::Builder::new().prefix("ekiden-relays-").tempdir();
        let state = state.during("a folder for relays")?;
        let (binary, answers_names) = (binary.to_owned(), cell.text("load")? == "names");
        let mut this =
            Self { kind, near: None, far: None, configured, binary, answers_names, state };
        let host = host(topology, FAR)?;
        let known: Vec<(String, IpAddr)> =
            names.iter().map(|name| (name.clone(), host.address().into())).collect();
        let at = place_knowing(host, &known).during(MACHINE)?;
        let start = Start { place: Some(at), ..Start::default() };
        this.far = match kind {
            RouteKind::Direct => None,
            RouteKind::Hysteria => Some(sing_box::server(&start, configured, &known)?),
            RouteKind::Hold => {
                let leg = format!(
                    "[leg.client]\ncongestion = [\"hold\"]\nrate = \"{}\"\n",
                    configured.down
                );
                let far = ekiden::start_asked(&start, &this.binary, &leg)?;
                let status = ekiden::control(&far).status().during("the relay's status")?;
                let legs = status["legs"].as_array();
                // another congestion control in its place would be another measurement
                if !legs.is_some_and(|legs| legs.iter().any(|leg| leg["held"].is_object())) {
                    return Err(EngineError(format!("the relay holds no rate: {}", far.log())));
                }
                Some(far)
            }
            RouteKind::Ekiden | RouteKind::Dedicated(_) | RouteKind::Gateway(_) => {
                let at = SocketAddr::from((host.address(), PORT));
                this.join(at)?;
                let more = format!("{}listen = [\"{at}\"]\n", this.tunnel(FAR));
                Some(ekiden::start_asked(&start, &this.binary, &more)?)
            }
        };
        Ok(this)
    }

    /// Starts the near end; a tunnel is begun, and not waited for. Errors: it did not start.
    pub(crate) fn near(&mut self, topology: &Topology) -> Result<(), EngineError> {
        let near = host(topology, NEAR)?;
        let start = Start { place: Some(place(near).during(MACHINE)?), ..Start::default() };
        self.near = match (self.kind, &self.far) {
            (RouteKind::Hysteria, Some(far)) => {
                Some(sing_box::client(&start, far.address, self.configured)?)
            }
            (kind, Some(far)) if kind.is_ekiden() => {
                let mut gateway = match kind {
                    RouteKind::Gateway(quic) => {
                        format!("[gateway]\ndevices = [\"{HOME}\"]\nquic = \"{quic}\"\n")
                    }
                    _ => String::new(),
                };
                if self.answers_names {
                    let (listen, server) = (near.address(), far.address.ip());
                    gateway +=
                        &format!("[dns]\nlisten = [\"{listen}:53\"]\nservers = [\"{server}\"]\n");
                }
                let more = format!(
                    "{}\n{gateway}[upstream.far]\nurl = \"tunnel://far\"\n\n[[route]]\nthrough = [\"far\"]\n",
                    self.tunnel(NEAR)
                );
                Some(ekiden::start_asked(&start, &self.binary, &more)?)
            }
            _ => None,
        };
        Ok(())
    }

    /// Waits for the tunnel, and fetches a byte through it, from the machine of the clients.
    pub(crate) fn warm(&self, clients: &Host, server: SocketAddr) -> Result<(), EngineError> {
        let end = Instant::now() + PATIENCE;
        while self.kind.is_ekiden() && !self.is_up() {
            if Instant::now() > end {
                return Err(EngineError(format!("the tunnel did not come up{}", self.log())));
            }
            thread::sleep(LOOK);
        }
        let ask = FarClient { proxy: self.door(), server, end };
        let got = clients.run(|| ask.get(&mut ask.door()?, 1)).during(MACHINE)?;
        got.during("the first byte over the long link").map(drop)
    }

    fn is_up(&self) -> bool {
        let status = self.near.as_ref().and_then(|near| ekiden::control(near).status().ok());
        status.is_some_and(|status| status["tunnels"][0]["up"] == true)
    }

    /// Who is asked by SOCKS5 and HTTP, if anybody is: nobody, behind a gateway.
    pub(crate) fn door(&self) -> Option<SocketAddr> {
        self.first()
            .filter(|_| !matches!(self.kind, RouteKind::Gateway(_)))
            .map(|first| first.address)
    }

    /// The proxy that near clients use, if there is one.
    fn first(&self) -> Option<&Peer> {
        if self.kind == RouteKind::Hold { self.far.as_ref() } else { self.near.as_ref() }
    }

    /// Processor time of the ends so far; nothing where there are none.
    pub(crate) fn cpu(&self) -> Option<Duration> {
        let near = self.near.as_ref().map_or(Duration::ZERO, Peer::cpu_time);
        Some(near + self.far.as_ref()?.cpu_time())
    }

    /// The tunnel's figures at the end that sends downwards, or at the other; ekiden's tunnels only.
    pub(crate) fn message(&self, down: bool) -> Option<TunnelFigures> {
        message(&self.status(down)?["tunnels"][0])
    }

    /// Bytes of the repairs that the far end has sent, in packets for which nobody asked; ekiden's tunnels only.
    pub(crate) fn repairs(&self) -> Option<f64> {
        self.status(true)?["tunnels"][0]["bytes_repairs"].as_f64()
    }

    /// What the far relay says of itself, or the near one; ekiden's tunnels only.
    fn status(&self, of_far: bool) -> Option<Value> {
        let peer = if of_far { &self.far } else { &self.near };
        let peer = peer.as_ref().filter(|_| self.kind.is_ekiden())?;
        ekiden::control(peer).status().ok()
    }

    pub(crate) fn version(&self) -> Option<String> {
        self.first().map(|first| first.version.clone())
    }

    /// What both ends logged last, for error messages.
    pub(crate) fn log(&self) -> String {
        let ends = [(NEAR, &self.near), (FAR, &self.far)];
        let log = |(side, peer): (&str, &Option<Peer>)| {
            let text = peer.as_ref().map(Peer::log).filter(|text| !text.trim().is_empty())?;
            Some(format!("\n{side}: {}", text.trim_end()))
        };
        ends.into_iter().filter_map(log).collect()
    }

    fn tunnel(&self, side: &str) -> String {
        format!("[tunnel]\nstate = \"{}\"\n", self.state.path().join(side).display())
    }

    /// One line on each side, as their operators would type them.
    fn join(&self, far: SocketAddr) -> Result<(), EngineError> {
        let (down, up) = (self.configured.down.to_string(), self.configured.up.to_string());
        let at = far.to_string();
        let mut invite = vec!["invite", "--name", NEAR, "--address", &at];
        invite.extend(["--send", &down, "--receive", &up]);
        let mut join = vec!["join", "--name", FAR];
        let lines = match self.kind {
            RouteKind::Dedicated(lines) => Some(lines.map(|rate| rate.to_string())),
            _ => None,
        };
        if let Some([up, down]) = &lines {
            invite.extend(["--dedicated", down]);
            join.extend(["--dedicated", up]);
        }
        let token = self.relay(FAR, &invite)?;
        join.push(token.trim());
        self.relay(NEAR, &join)?;
        Ok(())
    }

    fn relay(&self, side: &str, words: &[&str]) -> Result<String, EngineError> {
        let file = self.state.path().join(format!("{side}.toml"));
        let operation = format!("ekiden peer on the {side} side");
        let output = std::fs::write(&file, self.tunnel(side)).and_then(|()| {
            // an experiment is no change of this machine's own relay, whose audit log root would write
            Command::new(&self.binary)
                .env("STATE_DIRECTORY", self.state.path())
                .arg("peer")
                .args(words)
                .arg("--config")
                .arg(&file)
                .output()
        });
        let output = output.during(&operation)?;
        if !output.status.success() {
            let message = String::from_utf8_lossy(&output.stderr);
            return Err(EngineError(format!("{operation}: {message}")));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

fn message(tunnel: &Value) -> Option<TunnelFigures> {
    let number = |key: &str| tunnel[key].as_f64();
    let pacing = number("pacing_error_p50_us").zip(number("pacing_error_p99_us"));
    Some(TunnelFigures {
        sent: number("bytes_sent")?,
        copied: number("bytes_copied")?,
        pacing: pacing.map(|(half, most)| [half, most]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reads_the_figures_of_a_tunnel() {
        let configured = json!({ "bytes_sent": 1_000, "bytes_copied": 20,
            "pacing_error_p50_us": 7.5, "pacing_error_p99_us": 90.0 });
        let read = TunnelFigures { sent: 1_000.0, copied: 20.0, pacing: Some([7.5, 90.0]) };
        assert_eq!(message(&configured), Some(read));
        let young = json!({ "bytes_sent": 0, "bytes_copied": 0, "pacing_error_p50_us": null });
        assert_eq!(message(&young), Some(TunnelFigures::default()));
        assert_eq!(message(&Value::Null), None);
    }
}
