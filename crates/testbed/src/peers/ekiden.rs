//! `ekiden serve` itself, as a user starts it: from its binary, with a configuration file.

use super::control::Control;
use super::process::{Preparation, version};
use super::{Peer, PeerError, Protocol, Start, find};
use std::path::{Path, PathBuf};

/// In the peer's folder.
const CONTROL: &str = "control.sock";

/// Starts `binary serve --config FILE` on a free port, its network allowed as a destination. `more` is further
/// TOML; without a table `[budgets]` in it there are 40,000 connections.
pub fn start(start: &Start, binary: &Path, more: &str) -> Result<Peer, PeerError> {
    run(start, binary, more, false, None)
}

/// The same with a control socket, for [`control`].
pub fn start_asked(start: &Start, binary: &Path, more: &str) -> Result<Peer, PeerError> {
    run(start, binary, more, true, None)
}

/// The same with so few descriptors, by util-linux's `prlimit`.
pub fn start_limited(
    start: &Start,
    binary: &Path,
    more: &str,
    descriptors: u64,
) -> Result<Peer, PeerError> {
    run(start, binary, more, true, Some(descriptors))
}

/// The control socket of a peer that [`start_asked`] started.
pub fn control(peer: &Peer) -> Control {
    Control::at(&peer.folder().join(CONTROL))
}

fn run(
    start: &Start,
    binary: &Path,
    more: &str,
    asked: bool,
    descriptors: Option<u64>,
) -> Result<Peer, PeerError> {
    if !binary.is_file() {
        let program = binary.display().to_string();
        return Err(PeerError::Missing(program, "(none: make build)"));
    }
    let binary = binary.canonicalize().unwrap_or_else(|_| binary.to_owned());
    let version = version(&binary, "--version");
    let mut peer = Preparation::of_file(start, "ekiden", binary, version)?;
    let mut more = more.to_owned();
    if let Some(next) = start.upstream {
        let route = format!(
            "\n[upstream.next]\nurl = \"http://{next}\"\n\n[[route]]\nthrough = [\"next\"]\n"
        );
        more += &route;
    }
    let network = start.place.as_ref().map_or("127.0.0.0/8", |place| place.network.as_str());
    if start.place.is_some() {
        more += &format!("\n[[rule]]\nfrom = [\"{network}\"]\naction = \"allow\"\n");
    }
    let budgets = if more.contains("[budgets]") { "" } else { "[budgets]\nconnections = 40000\n" };
    let control = if asked { peer.path(CONTROL).display().to_string() } else { "off".to_owned() };
    // Keys of the root come before any table.
    let file = peer.write(
        "ekiden.toml",
        format!(
            "listen = [\"{}\"]\ncontrol = \"{control}\"\n\n[management]\nlisten = \"off\"\n\n[access]\nallow_destinations = [\"{network}\"]\n\n{budgets}\n{more}",
            peer.address
        ),
    )?;
    let mut arguments = vec!["serve".into(), "--config".into(), file.into_os_string()];
    if let Some(most) = descriptors {
        let program = std::mem::replace(&mut peer.program, find("prlimit", "util-linux")?);
        arguments.splice(..0, [format!("--nofile={most}:{most}").into(), program.into_os_string()]);
    }
    peer.start(start, arguments, Protocol::AnyProxy)
}

/// The binary: `EKIDEN_BIN`, else the newer of `target/{release,debug}/ekiden` in this workspace.
pub fn binary() -> Option<PathBuf> {
    if let Some(given) = std::env::var_os("EKIDEN_BIN") {
        return Some(PathBuf::from(given));
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(here, PathBuf::from);
    let changed = |p: &PathBuf| p.metadata().and_then(|m| m.modified()).ok();
    ["release", "debug"]
        .map(|profile| target.join(profile).join("ekiden"))
        .into_iter()
        .filter(|p| p.is_file())
        .max_by_key(changed)
}
