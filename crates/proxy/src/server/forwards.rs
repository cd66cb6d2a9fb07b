//! Forwarded ports: their sockets over reloads, and what arrives there. Where a port leads is looked up in the
//! configuration in effect, so a reload that changes it keeps the socket.

use super::listener::listen;
use super::{Inner, StartError};
use crate::inbound::udp::flows::Flows;
use crate::inbound::udp::forward::{ForwardFlow, WAITING, admit};
use crate::observe::log_throttle::LogThrottle;
use crate::resources::AcceptedClient;
use crate::resources::arrival::Directed;
use crate::settings::{PortForward, Settings};
use crate::transfer::scratch::with_scratch;
use bytes::Bytes;
use ekiden_linux::host::sync::locked;
use ekiden_linux::sockets::apply::Inherited;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::task::coop::consume_budget;

/// A forwarded port: its address, and whether it is for datagrams.
type Port = (SocketAddr, bool);

/// Those that are served.
pub(super) type ForwardedPorts = BTreeMap<Port, JoinHandle<()>>;

/// A new socket.
pub(super) enum BoundPort {
    Tcp(SocketAddr, TcpListener),
    Udp(SocketAddr, UdpSocket),
}

fn ports(settings: &Settings) -> BTreeSet<Port> {
    let of = |forward: &Arc<PortForward>| {
        let kinds = [(forward.protocol.tcp(), false), (forward.protocol.udp(), true)];
        let kinds = kinds.into_iter().filter(|(is, _)| *is).map(|(_, udp)| udp);
        let pairs = kinds.flat_map(|udp| forward.listen.iter().map(move |at| (*at, udp)));
        pairs.collect::<Vec<_>>()
    };
    settings.forwards.iter().flat_map(of).collect()
}

/// Opens every port that is not in `running`.
pub(super) fn bind_forwards(
    settings: &Settings,
    running: &ForwardedPorts,
) -> Result<Vec<BoundPort>, StartError> {
    let client = settings.legs.get("client").cloned().unwrap_or_default();
    let mut bound = Vec::new();
    for port in ports(settings).into_iter().filter(|port| !running.contains_key(port)) {
        let (address, udp) = port;
        let opened = match udp {
            false => listen(&client, address, false).map(|(_, it)| BoundPort::Tcp(address, it)),
            true => bind_udp(address).map(|it| BoundPort::Udp(address, it)),
        };
        bound.push(opened.map_err(|error| StartError::Listen { address, error })?);
    }
    Ok(bound)
}

fn bind_udp(address: SocketAddr) -> std::io::Result<UdpSocket> {
    let socket = std::net::UdpSocket::bind(address)?;
    socket.set_nonblocking(true)?;
    UdpSocket::from_std(socket)
}

impl Inner {
    /// Serves new ports, and closes those that the settings no longer have. Flows of datagrams end with their port;
    /// connections go on.
    pub(super) fn forward_on(self: &Arc<Self>, settings: &Settings, bound: Vec<BoundPort>) {
        let wanted = ports(settings);
        let mut running = locked(&self.forwards);
        running.retain(|port, task| {
            let stays = wanted.contains(port);
            if !stays {
                task.abort();
            }
            stays
        });
        for port in bound {
            let inner = Arc::clone(self);
            let (port, task) = match port {
                BoundPort::Tcp(at, it) => ((at, false), tokio::spawn(inner.forward_tcp(at, it))),
                BoundPort::Udp(at, it) => ((at, true), tokio::spawn(inner.forward_udp(at, it))),
            };
            running.insert(port, task);
        }
    }

    pub(super) fn stop_forwarding(&self) {
        let running = std::mem::take(&mut *locked(&self.forwards));
        running.into_values().for_each(|task| task.abort());
    }

    fn forward_at(&self, address: SocketAddr, udp: bool) -> Option<Arc<PortForward>> {
        let config = self.config();
        let is_meant = |forward: &&Arc<PortForward>| {
            let protocol = forward.protocol;
            forward.listen.contains(&address) && if udp { protocol.udp() } else { protocol.tcp() }
        };
        config.settings.forwards.iter().find(is_meant).cloned()
    }

    async fn forward_tcp(self: Arc<Self>, at: SocketAddr, listener: TcpListener) {
        let inherited = Inherited::from_listener(listener.as_fd());
        loop {
            match listener.accept().await {
                Ok((stream, address)) => {
                    // a port that a reload is about to close is no proxy's
                    let Some(forward) = self.forward_at(at, false) else { continue };
                    let directed = Some(Directed::Forward(forward));
                    let client = AcceptedClient::new(stream.into(), address, inherited);
                    self.arrive(AcceptedClient { directed, ..client });
                }
                Err(error) => self.on_accept_error(&error).await,
            }
        }
    }

    async fn forward_udp(self: Arc<Self>, at: SocketAddr, port: UdpSocket) {
        let port = Arc::new(port);
        let mut flows = Flows::new();
        loop {
            // a port that always has datagrams must not keep other tasks from their turn
            consume_budget().await;
            if let Err(error) = port.readable().await {
                return tracing::error!("the UDP port {at} broke: {error}");
            }
            let received = with_scratch(|scratch| {
                let (n, from) = port.try_recv_from(scratch)?;
                Ok::<_, std::io::Error>((Bytes::copy_from_slice(&scratch[..n]), from))
            });
            // nothing there, or an ICMP error about an earlier datagram to a client
            let Ok((packet, client)) = received else { continue };
            let Some(packet) = flows.pass(&client, packet) else { continue };
            if let Some(flow) = self.begin_forward_flow(at, &port, client) {
                flows.insert(client, flow, packet);
            }
        }
    }

    /// A flow for the first datagram of a client; `None`: it is not admitted, or there is no room.
    fn begin_forward_flow(
        &self,
        at: SocketAddr,
        port: &Arc<UdpSocket>,
        client: SocketAddr,
    ) -> Option<mpsc::Sender<Bytes>> {
        let (config, forward) = (self.config(), self.forward_at(at, true)?);
        let account = match admit(&config, client) {
            Ok(account) => account,
            Err(failure) => {
                self.registry.totals.refused.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                static LOGGED: LogThrottle = LogThrottle::new();
                if LOGGED.is_due() {
                    tracing::warn!(%client, "a datagram to {at} refused: {failure}");
                }
                return None;
            }
        };
        let registration = self.registry.enter(client);
        let entry = Arc::clone(&registration.entry);
        let named = (registration, Arc::clone(&self.log));
        let flow = ForwardFlow::open(
            config,
            (|| Ok(Arc::clone(port)), client),
            &forward.to,
            account,
            named,
        )?;
        let (sender, packets) = mpsc::channel(WAITING);
        let task = tokio::spawn(flow.serve(packets, self.stopping.subscribe()));
        entry.set_task(task.abort_handle());
        Some(sender)
    }
}
