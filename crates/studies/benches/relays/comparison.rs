//! Who takes part, and one measurement: bytes per CPU-second, connections per second, memory per idle connection.

use crate::Stage;
use ekiden_studies::comparison::{Row, Test, window};
use ekiden_testbed::certificate::Certificate;
use ekiden_testbed::load::Method;
use ekiden_testbed::load::generator::{Generator, Servers};
use ekiden_testbed::peers::{
    Peer, PeerError, Start, dante, ekiden, haproxy, nginx, ports, sing_box, squid, threaded,
};
use std::io;
use std::path::{Path, PathBuf};

/// Who takes part.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Contestant {
    /// As in tables and arguments.
    pub(crate) name: &'static str,
    /// How its clients ask.
    method: Method,
    /// Within TLS.
    is_secure: bool,
    start: Starter,
}

/// What some need: Ekiden its binary, and those that end TLS a certificate.
#[derive(Debug)]
pub(crate) struct Needs {
    pub(crate) binary: Option<PathBuf>,
    pub(crate) certificate: Certificate,
}

/// Forwarders go to the servers, the others wherever they are asked.
type Starter = fn(&Start, &Servers, &Needs) -> Result<Peer, PeerError>;

const fn contestant(name: &'static str, method: Method, start: Starter) -> Contestant {
    Contestant { name, method, is_secure: false, start }
}

const fn secure(name: &'static str, method: Method, start: Starter) -> Contestant {
    Contestant { name, method, is_secure: true, start }
}

impl Contestant {
    /// All of them.
    pub(crate) const ALL: [Self; 16] = [
        contestant("squid", Method::Connect, |start, _, _| squid::start(start)),
        contestant("dante", Method::Socks5, |start, _, _| dante::start(start)),
        contestant("haproxy-splice", Method::None, |start, servers, _| {
            haproxy::start(start, servers.addresses(), true)
        }),
        contestant("haproxy-copy", Method::None, |start, servers, _| {
            haproxy::start(start, servers.addresses(), false)
        }),
        contestant("nginx-stream", Method::None, |start, servers, _| {
            nginx::stream(start, servers.addresses(), None)
        }),
        contestant("microsocks", Method::Socks5, |start, _, _| threaded::microsocks(start)),
        contestant("tinyproxy", Method::Connect, |start, _, _| threaded::tinyproxy(start)),
        contestant("sing-box-connect", Method::Connect, |start, _, _| sing_box::proxy(start)),
        contestant("sing-box-socks5", Method::Socks5, |start, _, _| sing_box::proxy(start)),
        contestant("ekiden-connect", Method::Connect, start_ekiden),
        contestant("ekiden-socks5", Method::Socks5, start_ekiden),
        contestant("ekiden-forward", Method::None, start_forward),
        secure("haproxy-tls", Method::None, |start, servers, needs| {
            haproxy::tls_stream(start, servers.addresses(), &needs.certificate)
        }),
        secure("nginx-tls", Method::None, |start, servers, needs| {
            nginx::stream(start, servers.addresses(), Some(&needs.certificate))
        }),
        secure("sing-box-tls", Method::Connect, |start, _, needs| {
            sing_box::tls_proxy(start, &needs.certificate)
        }),
        secure("ekiden-tls", Method::Connect, start_secure),
    ];

    /// Whether it takes part in a test.
    pub(crate) fn is_in(self, test: Test) -> bool {
        self.is_secure == test.is_secure()
    }

    /// Starts it. Errors: see [`PeerError`]; without a binary, Ekiden is [`PeerError::Missing`].
    pub(crate) fn start(
        self,
        start: &Start,
        servers: &Servers,
        needs: &Needs,
    ) -> Result<Peer, PeerError> {
        (self.start)(start, servers, needs)
    }
}

fn start_with(start: &Start, needs: &Needs, more: &str) -> Result<Peer, PeerError> {
    ekiden::start(start, needs.binary.as_deref().unwrap_or(Path::new("ekiden")), more)
}

fn start_ekiden(start: &Start, _: &Servers, needs: &Needs) -> Result<Peer, PeerError> {
    start_with(start, needs, "")
}

/// An HTTPS proxy.
fn start_secure(start: &Start, _: &Servers, needs: &Needs) -> Result<Peer, PeerError> {
    let (certificate, key) = (needs.certificate.certificate(), needs.certificate.key());
    let tls = format!(
        "[tls]\ncertificate = \"{}\"\nkey = \"{}\"\n",
        certificate.display(),
        key.display()
    );
    start_with(start, needs, &tls)
}

/// A forwarded port, which does what HAProxy and nginx do here: no client asks for anything. One leads to one server.
fn start_forward(start: &Start, servers: &Servers, needs: &Needs) -> Result<Peer, PeerError> {
    let io = |error| PeerError::Io("ekiden".to_owned(), error);
    let none = || io(io::Error::other("there is no server"));
    let (at, to) = (ports::free().map_err(io)?, servers.addresses().first().ok_or_else(none)?);
    let forward = format!("[[forward]]\nlisten = [\"{at}\"]\nto = \"{to}\"\n");
    let mut peer = start_with(start, needs, &forward)?;
    peer.address = at;
    Ok(peer)
}

impl Stage<'_> {
    /// Puts `test` on `peer` once, and gives the servers back. Errors: beside the servers: the peer does not do
    /// what is asked, with the first failure as the message.
    pub(crate) fn measure(
        &self,
        test: Test,
        contestant: Contestant,
        peer: &Peer,
        servers: Servers,
        round: usize,
    ) -> (Option<Servers>, io::Result<Row>) {
        let mut generator = match Generator::new(servers, peer.address, contestant.method) {
            Ok(generator) => generator,
            Err(e) => return (None, Err(e)),
        };
        if contestant.is_secure {
            generator = generator.with_tls(self.needs.certificate.client());
        }
        let (effort, cpu) = (self.record.effort, self.record.relay_cpu);
        let relay = (contestant.name, Some(peer));
        let row = window(test, relay, &mut generator, effort, cpu, round);
        (Some(generator.into_servers()), row)
    }
}
