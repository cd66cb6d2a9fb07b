//! What stands while cells of one condition are measured: hosts, links, relays, a web server.

use super::MEMORY;
use super::network::Network;
use super::transfer::{self, Transfer};
use crate::cell::Cell;
use crate::engine::EngineError;
use crate::peers::{Peer, Place, Start, dante, ekiden, nginx, squid};
use ekiden_emulator::report::LinkReport;
use ekiden_emulator::topology::{Host, Topology};
use ekiden_linux::netns::{self, Netns};
use ekiden_model::units::Span;
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

/// All hosts of a topology: the space shared by carriers (RFC 6598).
const NETWORK: &str = "100.64.0.0/10";
/// What relays that listen are given besides two round trips to be ready.
const SETTLING: Duration = Duration::from_millis(100);

/// A running network with all that is on it. Programs end before their hosts do.
#[derive(Debug)]
pub(super) struct SetUp {
    /// From the client's side.
    relays: Vec<Peer>,
    server: Peer,
    pub(super) topology: Topology,
    pub(super) super_packets: bool,
    /// As the kernel says it is, on the server and all relays.
    pub(super) congestion: String,
}

impl SetUp {
    /// Stands up what `cell` needs.
    pub(super) fn build(
        cell: &Cell,
        network: Network,
        files: &Path,
        ekiden: &Path,
    ) -> Result<Self, EngineError> {
        let failed = |error: &dyn std::fmt::Display| EngineError(format!("the network: {error}"));
        let topology = Topology::build(&network.plan).map_err(|error| failed(&error))?;
        let host = |name: &str| {
            topology.host(name).ok_or_else(|| EngineError(format!("the host {name} is not there")))
        };
        let start = |name: &str, upstream| {
            let place = place(host(name)?).map_err(|error| failed(&error))?;
            Ok::<_, EngineError>(Start { cpu: None, place: Some(place), upstream })
        };
        let server = nginx::files(&start("server", None)?, files)?;
        let peer = cell.text("peer")?;
        let mut relays: Vec<Peer> = Vec::new();
        for name in network.hosts.iter().filter(|name| name.starts_with("relay")).rev() {
            let start = start(name, relays.first().map(|next| next.address))?;
            let relay = match peer {
                "squid" => squid::start(&start)?,
                "dante" => dante::start(&start)?,
                "ekiden" => ekiden::start(&start, ekiden, "")?,
                other => return Err(cell.error("peer", &format!("no «{other}» can relay")).into()),
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
            let said = host(far)?.congestion_towards(host(near)?);
            let said =
                said.map_err(|error| failed(&error))?.unwrap_or_else(|| "default".to_owned());
            if !used.contains(&said) {
                used.push(said);
            }
        }
        let congestion = used.join(", ");
        Ok(Self { relays, server, topology, super_packets: network.super_packets, congestion })
    }

    /// Ends it all and says what the links did, the client's first.
    pub(super) fn finish(self) -> Result<Vec<LinkReport>, EngineError> {
        let Self { relays, server, topology, .. } = self;
        drop((relays, server));
        topology.finish().map_err(|error| EngineError(format!("the links: {error}")))
    }

    /// Fetches a file on the client.
    pub(super) fn download(
        &self,
        file: &str,
        size: u64,
        cut: Span,
    ) -> Result<Transfer, EngineError> {
        let client = self.topology.host("client");
        let client = client.ok_or_else(|| EngineError("the client is not there".to_owned()))?;
        let url = format!("http://{}/{file}", self.server.address);
        transfer::download(client, self.relays.first(), &url, size, cut)
    }
}

/// Where peers run that are to run on `host`.
pub(super) fn place(host: &Host) -> io::Result<Place> {
    let netns = Arc::new(host.netns().try_clone()?);
    let there: Arc<Netns> = Arc::clone(&netns);
    let accepts = move |address: SocketAddr| {
        let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_ok();
        there.run(connect).unwrap_or(false)
    };
    Ok(Place {
        address: host.address().into(),
        network: NETWORK.to_owned(),
        // out of descriptors: it starts in the wrong place, nobody accepts in the right one, and that is told
        prepare: Arc::new(move |command| drop(netns::place(command, &netns))),
        accepts: Arc::new(accepts),
    })
}

/// Files in memory, made when they are first asked for.
#[derive(Debug)]
pub(super) struct Files {
    folder: TempDir,
}

impl Files {
    pub(super) fn new() -> Result<Self, EngineError> {
        let made = || {
            let folder = tempfile::Builder::new().prefix("ekiden-files-").tempdir_in(MEMORY)?;
            fs::set_permissions(folder.path(), Permissions::from_mode(0o755))?;
            Ok(Self { folder })
        };
        made().map_err(|error: io::Error| EngineError(format!("files in {MEMORY}: {error}")))
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The name of a file of this size.
    pub(super) fn of(&mut self, size: u64) -> Result<String, EngineError> {
        let name = format!("{size}.bin");
        let path = self.folder.path().join(&name);
        let write = || {
            let mut file = File::create(&path)?;
            let block: Vec<u8> =
                (0..1_u32 << 16).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
            let mut left = size as usize;
            while left > 0 {
                let some = left.min(block.len());
                file.write_all(&block[..some])?;
                left -= some;
            }
            fs::set_permissions(&path, Permissions::from_mode(0o644))
        };
        if path.is_file() {
            return Ok(name);
        }
        write()
            .map_err(|error| EngineError(format!("a file of {size} bytes in {MEMORY}: {error}")))?;
        Ok(name)
    }
}
