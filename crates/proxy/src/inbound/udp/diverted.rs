//! Diverted QUIC: each client and destination have a flow, as clients of a forwarded port have. Its first datagrams may
//! name the destination, for rules, the route and the log. Answers leave from the destination's address.

use super::forward::{FlowEnd, ForwardFlow};
use crate::destination::{Destination, Host};
use crate::error::{Failure, FailureKind};
use crate::outbound::udp::route::DatagramOwner;
use crate::settings::GoTo;
use crate::wire::quic_initial::{InitialReader, InitialWords};
use bytes::Bytes;
use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use ekiden_model::units::Span;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering::Relaxed;
use tokio::sync::{mpsc, watch};

/// Datagrams of one client that wait for its flow. A browser sends as many in a burst.
pub(crate) const WAITING: usize = 256;

/// Where clients and destinations go whose QUIC is to be answered with "port unreachable".
pub(crate) type Blocked = mpsc::Sender<(SocketAddr, IpAddr)>;

impl ForwardFlow {
    /// Relays a diverted flow as [`ForwardFlow::serve`] does, by the name in its first datagrams. Where it may not or
    /// cannot go on, the client is told so by `blocked`.
    pub(crate) async fn serve_diverted(
        mut self,
        (at, blocked): (IpAddr, Blocked),
        mut packets: mpsc::Receiver<Bytes>,
        mut stopping: watch::Receiver<bool>,
    ) {
        self.ends_with_path = true;
        let end = tokio::select! {
            end = self.run_diverted(&mut packets) => end,
            _ = stopping.wait_for(|stopping| *stopping) => self.cut("the relay is stopping"),
        };
        if let FlowEnd::Failed(failure) = &end {
            self.registration.count(failure);
            // when a tunnel is lost in the midst, the next datagram finds another way or none
            let lost = matches!(failure.kind, FailureKind::NoTunnel | FailureKind::Closed);
            if !lost || self.way.settled_hop().is_none() {
                self.config.shared.gateway.quic_blocked.fetch_add(1, Relaxed);
                let _ = blocked.try_send((self.client, at));
            }
        }
        self.end = Some(end.to_string());
    }

    async fn run_diverted(&mut self, packets: &mut mpsc::Receiver<Bytes>) -> FlowEnd {
        let (held, claimed) = self.first_datagrams(packets).await;
        if let Err(failure) = self.settle(claimed) {
            return FlowEnd::Failed(failure);
        }
        for packet in held {
            if let Err(end) = self.forward(&packet) {
                return end;
            }
        }
        self.run(packets).await
    }

    /// The first datagrams, and the name in them.
    async fn first_datagrams(
        &self,
        packets: &mut mpsc::Receiver<Bytes>,
    ) -> (Vec<Bytes>, Option<Destination>) {
        let patience = self.config.settings.gateway.first_bytes;
        let until = clock::now() + patience;
        let (mut held, mut reader) = (Vec::new(), InitialReader::default());
        loop {
            let left = until.since(clock::now());
            let Ok(Some(packet)) = tokio::time::timeout(left.into(), packets.recv()).await else {
                return (held, None);
            };
            let words =
                if patience == Span::ZERO { InitialWords::Nameless } else { reader.read(&packet) };
            held.push(packet);
            match words {
                InitialWords::Partial => {}
                InitialWords::Nameless => return (held, None),
                InitialWords::Name(name) => {
                    let to = Destination { host: Host::Name(name), port: self.to.port };
                    return (held, Some(to));
                }
            }
        }
    }

    /// Settles where the flow goes and how. Fails where the client may not go there under that name, or no way leads there.
    fn settle(&mut self, claimed: Option<Destination>) -> Result<(), Failure> {
        let counts = &self.config.shared.gateway;
        if claimed.is_some() {
            counts.quic_named.fetch_add(1, Relaxed);
        }
        let claimed = claimed.or_else(|| self.heard_name());
        let address = match &self.to.host {
            Host::Address(address) => Some(*address),
            Host::Name(_) => None,
        };
        if let Some(named) = &claimed {
            let shown = match address {
                Some(address) => format!("{named} ({address})"),
                None => named.to_string(),
            };
            self.registration.set_destination(shown.clone());
            self.entry.target = Some(shown);
        }
        let account = self.registration.entry.account();
        let owner = DatagramOwner::Client(self.client.ip(), account);
        if let (Some(named), Some(address)) = (&claimed, address) {
            owner.decider(&self.config).claimed(named, address)?;
        }
        let claimed = match (self.config.settings.gateway.go_to, claimed) {
            (GoTo::Name, Some(named)) => {
                self.to = named;
                None
            }
            (_, claimed) => claimed,
        };
        owner.decider(&self.config).unresolved(&self.to)?;
        let route = self.way.settle(&self.to, claimed.as_ref())?;
        self.registration.set_route(&route.why);
        let hop = self.way.settled_hop();
        let counter = if hop.is_some() { &counts.quic_tunneled } else { &counts.quic_direct };
        counter.fetch_add(1, Relaxed);
        self.entry.through = hop.map(|hop| hop.name.clone()).into_iter().collect();
        self.registration.set_upstream_leg(self.entry.through.clone(), None);
        Ok(())
    }

    /// The name for which this relay answered the client with the destination's address.
    fn heard_name(&self) -> Option<Destination> {
        let Host::Address(address) = self.to.host else { return None };
        let dns = &self.config.shared.dns;
        let heard = locked(&dns.heard);
        let name = heard.name(clock::now(), self.client.ip(), address)?;
        let host = Host::from_name(name).ok()?;
        dns.counts.named.fetch_add(1, Relaxed);
        Some(Destination { host, port: self.to.port })
    }
}
