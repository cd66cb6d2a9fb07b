//! Who takes part: each is started on the gateway, and connections of its clients are diverted to it.

use crate::network::{Failure, LAN, Network};
use ekiden_linux::links::divert::{Divert, DivertPlan};
use ekiden_linux::links::nft::Nft;
use ekiden_testbed::peers::{
    Peer, PeerError, Start, diverted, ekiden, haproxy, sing_box, squid, threaded,
};
use std::path::Path;

/// Of packets that TPROXY diverts to others than Ekiden; any will do.
const MARK: u32 = 4242;

/// Who takes part.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Contestant {
    /// As in tables and arguments.
    pub(crate) name: &'static str,
    start: fn(&Field<'_>) -> Result<Relay, Failure>,
}

/// What relays are started in.
pub(crate) struct Field<'a> {
    pub(crate) network: &'a Network,
    /// The relay's processor.
    pub(crate) relay_cpu: Option<usize>,
    /// The load's.
    pub(crate) generator_cpu: Option<usize>,
    /// Ekiden's.
    pub(crate) binary: Option<&'a Path>,
}

/// A relay that runs and gets connections, until dropped.
#[derive(Debug, Default)]
pub(crate) struct Relay {
    /// None: the gateway forwards.
    pub(crate) peer: Option<Peer>,
    _rules: Option<Rules>,
    _upstream: Option<Peer>,
}

/// Held, because they go with their owner.
#[derive(Debug)]
#[allow(dead_code)] // alive for what they do when dropped
enum Rules {
    Redirect(Nft),
    Tproxy(Box<Divert>),
}

const fn contestant(
    name: &'static str,
    start: fn(&Field<'_>) -> Result<Relay, Failure>,
) -> Contestant {
    Contestant { name, start }
}

impl Contestant {
    /// All of them.
    pub(crate) const ALL: [Self; 9] = [
        contestant("ekiden", |field| {
            let gateway = format!("[gateway]\ndevices = [\"{LAN}\"]\n");
            let binary = field.binary.unwrap_or(Path::new("ekiden"));
            Ok(Relay::of(ekiden::start(&field.start()?, binary, &gateway)?))
        }),
        contestant("redsocks", |field| field.redsocks(false)),
        contestant("redsocks-splice", |field| field.redsocks(true)),
        contestant("squid", |field| {
            let (peer, port) = squid::intercept(&field.start()?)?;
            field.redirected(peer, port)
        }),
        contestant("sing-box", |field| {
            let (peer, port) = sing_box::tproxy(&field.start()?)?;
            field.diverted(peer, port)
        }),
        contestant("pepsal", |field| {
            let peer = diverted::pepsal(&field.start()?)?;
            let port = peer.address.port();
            field.diverted(peer, port)
        }),
        contestant("haproxy-splice", |field| {
            let (peer, port) = haproxy::transparent(&field.start()?, true)?;
            field.diverted(peer, port)
        }),
        contestant("haproxy-copy", |field| {
            let (peer, port) = haproxy::transparent(&field.start()?, false)?;
            field.diverted(peer, port)
        }),
        contestant("none", |field| {
            field.network.forward()?;
            Ok(Relay::default())
        }),
    ];

    /// Starts it and waits until it gets connections. Errors: it is missing, does not start, or nothing is diverted.
    pub(crate) fn start(self, field: &Field<'_>) -> Result<Relay, Failure> {
        let relay = (self.start)(field)?;
        match field.network.await_diversion() {
            Ok(()) => Ok(relay),
            Err(e) => {
                let log = relay.peer.as_ref().map(Peer::log).unwrap_or_default();
                Err(format!("{e}:\n{log}").into())
            }
        }
    }
}

impl Field<'_> {
    fn start(&self) -> Result<Start, Failure> {
        let place = Some(self.network.gateway_host()?);
        Ok(Start { cpu: self.relay_cpu, place, ..Start::default() })
    }

    /// Its upstream is beside the server, on the load's processor.
    fn redsocks(&self, splice: bool) -> Result<Relay, Failure> {
        let place = Some(self.network.server_host()?);
        let beside = Start { cpu: self.generator_cpu, place, ..Start::default() };
        let upstream = threaded::microsocks(&beside)?;
        let start = Start { upstream: Some(upstream.address), ..self.start()? };
        let peer = diverted::redsocks(&start, splice)?;
        let port = peer.address.port();
        Ok(Relay { _upstream: Some(upstream), ..self.redirected(peer, port)? })
    }

    /// By REDIRECT, to a port of the gateway's own address.
    fn redirected(&self, peer: Peer, port: u16) -> Result<Relay, Failure> {
        let mut nft = Nft::start(Some(&self.network.gateway))?;
        nft.run(&format!(
            "table ip redirected {{\n flags owner\n chain arriving {{\n \
             type nat hook prerouting priority dstnat; policy accept\n \
             iifname \"{LAN}\" meta l4proto tcp redirect to :{port}\n }}\n}}\n"
        ))?;
        Ok(Relay { _rules: Some(Rules::Redirect(nft)), ..Relay::of(peer) })
    }

    /// By TPROXY, to a port of 127.0.0.1, with the very rules that Ekiden sets for itself.
    fn diverted(&self, peer: Peer, port: u16) -> Result<Relay, Failure> {
        let plan = DivertPlan {
            devices: vec![LAN.to_owned()],
            v4: Some(port),
            mark: MARK,
            ..DivertPlan::default()
        };
        let mut divert = self.network.gateway.run(Divert::start)??;
        divert.set(&plan)?;
        Ok(Relay { _rules: Some(Rules::Tproxy(Box::new(divert))), ..Relay::of(peer) })
    }
}

impl Relay {
    fn of(peer: Peer) -> Self {
        Self { peer: Some(peer), ..Self::default() }
    }
}

/// Whether a failure says that a program is not installed.
pub(crate) fn is_missing(failure: &Failure) -> bool {
    matches!(failure.downcast_ref(), Some(PeerError::Missing(..)))
}
