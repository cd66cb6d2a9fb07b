//! The network with both ends of its way, warmed, and the web server of the pages.

use super::curl::{Fetch, curl};
use crate::kernel::hosts::{place, place_asking};
use crate::long_link::testbed::Testbed;
use crate::pages::page::{Page, host_name, host_names};
use crate::pages::steps::apart;
use ekiden_lab::engine::{During, EngineError, Outcome};
use ekiden_lab::study::KernelRun;
use ekiden_model::rng::Rng;
use ekiden_testbed::load::far_server::FarServer;
use ekiden_testbed::load::meter::Meter;
use ekiden_testbed::peers::http3::{Http3, caddy, quiche};
use ekiden_testbed::peers::{Peer, PeerHost, Protocol, Start, nginx, unbound};
use std::fs::{self, File, Permissions};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// What goes over the way before anything is measured, so that its ends know the line.
const WARMING: u64 = 1_000_000;
/// Files beyond this are holes: nothing on the way makes zeros shorter.
const HOLE: u64 = 16 << 20;
/// A gateway takes QUIC of this port alone.
const HTTPS: u16 = 443;
const FILES: &str = "the pages' files";

pub(super) struct Site {
    pub(super) scene: Testbed,
    /// Serves what else goes over the line.
    beside: FarServer,
    server: Peer,
    /// Knows the hosts' names, where clients ask for them.
    resolver: Option<Peer>,
    /// SHA-256 of its public keys, of those who serve by HTTP/3.
    keys: Vec<String>,
    near: PeerHost,
    _files: TempDir,
}

impl Site {
    /// Builds the network, serves the pages, and fetches a file. Errors: the kernel's, or a program's.
    pub(super) fn build(run: &KernelRun<'_>, pages: &[Page]) -> Result<Self, EngineError> {
        let files =
            tempfile::Builder::new().prefix("pages-").tempdir_in(run.files).during(FILES)?;
        let make = || -> io::Result<()> {
            fs::set_permissions(files.path(), Permissions::from_mode(0o755))?;
            let mut noise = Rng::new(3);
            let warming = Page::file(WARMING);
            pages
                .iter()
                .chain([&warming])
                .try_for_each(|page| write(page, files.path(), &mut noise))
        };
        make().during(FILES)?;
        let scene = Testbed::warm_named(run, &host_names())?;
        let beside = scene.serve(Meter::new(Instant::now(), Duration::ZERO))?;
        let [near, far] = [scene.clients()?, scene.far()?].map(place);
        let (near, far) = (near.during("the near machine")?, far.during("the far machine")?);
        let start = Start { place: Some(far), ..Start::default() };
        let versions = match run.cell.text("way")? {
            "http3" | "gateway-quic" => Some(caddy::Versions::Http3),
            "gateway-block" => Some(caddy::Versions::All),
            _ => None,
        };
        let by_quiche = run.cell.text("way")?.ends_with("quiche");
        let by_http3 = by_quiche || versions == Some(caddy::Versions::Http3);
        let (server, keys) = if by_quiche {
            let start = Start { port: Some(HTTPS), ..start.clone() };
            let Http3 { server, keys } = quiche::https(&start, &host_name(1))?;
            (server, keys)
        } else if let Some(versions) = versions {
            let start = Start { port: Some(HTTPS), ..start.clone() };
            let Http3 { server, keys } =
                caddy::https(&start, files.path(), &host_names(), versions)?;
            (server, keys)
        } else {
            (nginx::https(&start, files.path(), &host_names())?, Vec::new())
        };
        let resolver = match run.cell.text("load")? {
            "names" => {
                let known = host_names().into_iter().map(|name| (name, server.address.ip()));
                Some(unbound::start(&start, &known.collect::<Vec<_>>())?)
            }
            _ => None,
        };
        let site = Self { scene, beside, server, resolver, keys, near, _files: files };
        // Debian's curl has no HTTP/3; and nothing on a plain way would remember
        if !by_http3 {
            site.fetch(&Page::file(WARMING))?;
        }
        thread::sleep(apart(run.cell)?.into());
        Ok(site)
    }

    /// Fetches a page of one file by curl.
    pub(super) fn fetch(&self, page: &Page) -> Result<Fetch, EngineError> {
        let bytes = page.objects.first().map_or(0, |object| object.bytes);
        let (door, server) = (self.scene.way.door(), self.server.address);
        let fetched = curl(&self.near, door, server, (&host_name(1), &page.document()));
        let fetched = fetched.map_err(|error| self.error(&page.name, &error))?;
        if fetched.bytes != bytes {
            let text = format!("{} of {bytes} bytes came", fetched.bytes);
            return Err(self.error(&page.name, &text));
        }
        Ok(fetched)
    }

    pub(super) const fn near(&self) -> &PeerHost {
        &self.near
    }

    /// Where clients ask this resolver for names. Errors: the kernel's.
    pub(super) fn asking(&self, resolver: IpAddr) -> Result<PeerHost, EngineError> {
        place_asking(self.scene.clients()?, resolver).during("a resolver of clients")
    }

    pub(super) const fn server(&self) -> SocketAddr {
        self.server.address
    }

    /// Where the server has a page. Quiche's has no files: of such a page it serves as many bytes.
    pub(super) fn path(&self, page: &Page) -> String {
        let bytes = page.objects.first().map_or(0, |object| object.bytes);
        match self.server.protocol {
            Protocol::Http3Server => format!("{}/{bytes}", quiche::BYTES),
            _ => page.document(),
        }
    }

    /// SHA-256 of the server's public keys in base64, if it serves by HTTP/3.
    pub(super) fn http3_keys(&self) -> &[String] {
        &self.keys
    }

    /// Why something did not come, with the programs' logs.
    pub(super) fn error(&self, what: &str, why: &dyn std::fmt::Display) -> EngineError {
        let (name, log) = (&self.server.name, self.server.log());
        EngineError(format!("{what}: {why}{}\n{name}: {}", self.scene.way.log(), log.trim_end()))
    }

    /// Ends everything. Errors: as [`Testbed::finish`].
    pub(super) fn finish(self, outcome: &mut Outcome) -> Result<(), EngineError> {
        drop((self.server, self.resolver));
        self.scene.finish(self.beside, outcome)
    }
}

/// Files of a page: text where it asks for others, noise otherwise.
fn write(page: &Page, folder: &Path, noise: &mut Rng) -> io::Result<()> {
    for (number, object) in page.objects.iter().enumerate() {
        let path = folder.join(&object.name);
        if object.bytes > HOLE {
            File::create(&path)?.set_len(object.bytes)?;
            fs::set_permissions(&path, Permissions::from_mode(0o644))?;
            continue;
        }
        let asks = page.children(number).next().is_some() || !object.name.ends_with(".html");
        let bytes = match page.text(number).filter(|_| asks) {
            Some(text) => text.into_bytes(),
            None => {
                let size = usize::try_from(object.bytes).unwrap_or(usize::MAX);
                let words = (0..size.div_ceil(8)).flat_map(|_| noise.next_u64().to_be_bytes());
                words.take(size).collect()
            }
        };
        fs::write(&path, bytes)?;
        fs::set_permissions(&path, Permissions::from_mode(0o644))?;
    }
    Ok(())
}
