//! How a load goes over the long link: by itself, or between two ends that hold a rate.

use super::{FAR, NEAR};
use crate::cell::Cell;
use crate::engine::EngineError;
use crate::kernel::set_up::place;
use crate::load::asking::Ask;
use crate::peers::{Peer, Start, ekiden, sing_box};
use ekiden_emulator::topology::{Host, Topology};
use ekiden_model::units::Rate;
use serde_json::Value;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Where the far relay listens for tunnels.
const PORT: u16 = 4433;
/// A tunnel that has not come up by then does not come.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Direct,
    Ekiden,
    /// The same, told that the line is its own: this wide up and down.
    Dedicated([Rate; 2]),
    Hysteria,
    /// One relay at the far end, asked over the long link by whoever wants something.
    Hold,
}

impl Kind {
    const fn is_ekiden(self) -> bool {
        matches!(self, Self::Ekiden | Self::Dedicated(_))
    }
}

/// The ends, as far as they were started.
#[derive(Debug)]
pub(super) struct Way {
    kind: Kind,
    near: Option<Peer>,
    far: Option<Peer>,
    told: sing_box::Told,
    binary: PathBuf,
    /// Who is known to whom.
    state: TempDir,
}

/// What one end of a tunnel says of what it sends.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Said {
    /// Payload bytes, each once.
    pub(super) sent: f64,
    /// Bytes of copies.
    pub(super) copied: f64,
    /// How late datagrams left, microseconds.
    pub(super) pacing: Option<[f64; 2]>,
}

impl Way {
    /// Starts the far end.
    ///
    /// # Errors
    /// The cell lacks a value, or a program did not start.
    pub(super) fn far(
        cell: &Cell,
        topology: &Topology,
        binary: &Path,
    ) -> Result<Self, EngineError> {
        let told = sing_box::Told { down: cell.value("told-down")?, up: cell.value("told-up")? };
        let kind = match cell.text("way")? {
            "cubic" | "bbr" => Kind::Direct,
            "ekiden" => Kind::Ekiden,
            "dedicated" => Kind::Dedicated([cell.value("uplink")?, cell.value("downlink")?]),
            "hysteria2" => Kind::Hysteria,
            "hold" => Kind::Hold,
            other => return Err(cell.error("way", &format!("«{other}» is not known")).into()),
        };
        let state = tempfile::Builder::new().prefix("ekiden-relays-").tempdir();
        let state = state.map_err(|e| EngineError::during("a folder for relays")(&e))?;
        let mut this = Self { kind, near: None, far: None, told, binary: binary.to_owned(), state };
        let host = host(topology, FAR)?;
        let start = Start { place: Some(place(host).map_err(|e| there(&e))?), ..Start::default() };
        this.far = match kind {
            Kind::Direct => None,
            Kind::Hysteria => Some(sing_box::server(&start, told)?),
            Kind::Hold => {
                let leg =
                    format!("[leg.client]\ncongestion = [\"hold\"]\nrate = \"{}\"\n", told.down);
                let far = ekiden::start_asked(&start, binary, &leg)?;
                let status = ekiden::control(&far).status();
                let status = status.map_err(|e| EngineError::during("the relay's status")(&e))?;
                let legs = status["legs"].as_array();
                // another congestion control in its place would be another measurement
                if !legs.is_some_and(|legs| legs.iter().any(|leg| leg["held"].is_object())) {
                    return Err(EngineError(format!("the relay holds no rate: {}", far.log())));
                }
                Some(far)
            }
            Kind::Ekiden | Kind::Dedicated(_) => {
                let at = SocketAddr::from((host.address(), PORT));
                this.join(at)?;
                let more = format!("{}listen = [\"{at}\"]\n", this.tunnel(FAR));
                Some(ekiden::start_asked(&start, binary, &more)?)
            }
        };
        Ok(this)
    }

    /// Starts the near end; a tunnel is begun, and not waited for.
    ///
    /// # Errors
    /// It did not start.
    pub(super) fn near(&mut self, topology: &Topology) -> Result<(), EngineError> {
        let at = place(host(topology, NEAR)?).map_err(|e| there(&e))?;
        let start = Start { place: Some(at), ..Start::default() };
        self.near = match (self.kind, &self.far) {
            (Kind::Hysteria, Some(far)) => Some(sing_box::client(&start, far.address, self.told)?),
            (Kind::Ekiden | Kind::Dedicated(_), Some(_)) => {
                let more = format!(
                    "{}\n[upstream.far]\nurl = \"tunnel://far\"\n\n[[route]]\nthrough = [\"far\"]\n",
                    self.tunnel(NEAR)
                );
                Some(ekiden::start_asked(&start, &self.binary, &more)?)
            }
            _ => None,
        };
        Ok(())
    }

    /// Waits for the tunnel, and has something go through it.
    ///
    /// # Errors
    /// It does not come up, or nothing goes through.
    pub(super) fn warm(&self, near: &Host, server: SocketAddr) -> Result<(), EngineError> {
        let end = Instant::now() + PATIENCE;
        while self.kind.is_ekiden() && !self.is_up() {
            if Instant::now() > end {
                return Err(EngineError(format!("the tunnel did not come up{}", self.log())));
            }
            thread::sleep(LOOK);
        }
        let ask = Ask { proxy: self.door(), server, end };
        let got = near.run(|| ask.get(&mut ask.door()?, 1));
        match got.map_err(|e| there(&e))? {
            Ok(_) => Ok(()),
            Err(error) => Err(EngineError(format!("the first byte over the long link: {error}"))),
        }
    }

    fn is_up(&self) -> bool {
        let status = self.near.as_ref().and_then(|near| ekiden::control(near).status().ok());
        status.is_some_and(|status| status["tunnels"][0]["up"] == true)
    }

    /// Who is asked by SOCKS5 and HTTP, if anybody is.
    pub(super) fn door(&self) -> Option<SocketAddr> {
        self.first().map(|first| first.address)
    }

    /// Who is asked first by whoever is near.
    fn first(&self) -> Option<&Peer> {
        if self.kind == Kind::Hold { self.far.as_ref() } else { self.near.as_ref() }
    }

    /// Processor time of the ends so far; nothing where there are none.
    pub(super) fn cpu(&self) -> Option<Duration> {
        let near = self.near.as_ref().map_or(Duration::ZERO, Peer::cpu_time);
        Some(near + self.far.as_ref()?.cpu_time())
    }

    /// What the tunnel says of the end that sends downwards, and of the other; nothing but of ekiden's.
    pub(super) fn said(&self, down: bool) -> Option<Said> {
        let peer = if down { &self.far } else { &self.near };
        let peer = peer.as_ref().filter(|_| self.kind.is_ekiden())?;
        said(&ekiden::control(peer).status().ok()?["tunnels"][0])
    }

    /// What programs say of themselves.
    pub(super) fn version(&self) -> Option<String> {
        self.first().map(|first| first.version.clone())
    }

    /// What both ends logged last, for error messages.
    pub(super) fn log(&self) -> String {
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
        let (down, up) = (self.told.down.to_string(), self.told.up.to_string());
        let at = far.to_string();
        let mut invite = vec!["invite", "--name", NEAR, "--address", &at];
        invite.extend(["--send", &down, "--receive", &up]);
        let mut join = vec!["join", "--name", FAR];
        let lines = match self.kind {
            Kind::Dedicated(lines) => Some(lines.map(|rate| rate.to_string())),
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
        let failed = EngineError::during(format!("ekiden relay on the {side} side"));
        let output = std::fs::write(&file, self.tunnel(side)).and_then(|()| {
            Command::new(&self.binary).arg("relay").args(words).arg("--config").arg(&file).output()
        });
        let output = output.map_err(|error| failed(&error))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(EngineError(format!("ekiden relay on the {side} side: {said}")));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

fn said(tunnel: &Value) -> Option<Said> {
    let number = |key: &str| tunnel[key].as_f64();
    let pacing = number("pacing_error_p50_us").zip(number("pacing_error_p99_us"));
    Some(Said {
        sent: number("bytes_sent")?,
        copied: number("bytes_copied")?,
        pacing: pacing.map(|(half, most)| [half, most]),
    })
}

/// A machine of the network, which has it unless its plan is another.
pub(super) fn host<'a>(topology: &'a Topology, name: &str) -> Result<&'a Host, EngineError> {
    topology.host(name).ok_or_else(|| EngineError(format!("the host {name} is not there")))
}

fn there(error: &dyn std::fmt::Display) -> EngineError {
    EngineError(format!("a machine of the network: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_a_tunnel_says_is_read() {
        let told = json!({ "bytes_sent": 1_000, "bytes_copied": 20,
            "pacing_error_p50_us": 7.5, "pacing_error_p99_us": 90.0 });
        let read = Said { sent: 1_000.0, copied: 20.0, pacing: Some([7.5, 90.0]) };
        assert_eq!(said(&told), Some(read));
        let young = json!({ "bytes_sent": 0, "bytes_copied": 0, "pacing_error_p50_us": null });
        assert_eq!(said(&young), Some(Said::default()));
        assert_eq!(said(&Value::Null), None);
    }
}
