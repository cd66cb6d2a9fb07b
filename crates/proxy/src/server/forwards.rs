//! Forwarded ports: their sockets over reloads, and what arrives there. Where a port leads is looked up in the
//! configuration in effect, so a reload that changes it keeps the socket.

use super::housekeeping::keep;
use super::listener::listen;
use super::{Inner, StartError};
use crate::inbound::udp::flows::Flows;
use crate::inbound::udp::forward::{ForwardFlow, WAITING, admit};
use crate::observe::log_throttle::LogThrottle;
use crate::outbound::udp::route::DatagramOwner;
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
            let what = "a forwarded port";
            let (port, task) = match port {
                BoundPort::Tcp(at, it) => {
                    let it = Arc::new(it);
                    let forward = move |inner: Arc<Self>| inner.forward_tcp(at, Arc::clone(&it));
                    ((at, false), keep(what, self, forward))
                }
                BoundPort::Udp(at, it) => {
                    let it = Arc::new(it);
                    let forward = move |inner: Arc<Self>| inner.forward_udp(at, Arc::clone(&it));
                    ((at, true), keep(what, self, forward))
                }
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

    async fn forward_tcp(self: Arc<Self>, at: SocketAddr, listener: Arc<TcpListener>) {
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

    /// Flows from before a panic end, and begin anew with their next datagram.
    async fn forward_udp(self: Arc<Self>, at: SocketAddr, port: Arc<UdpSocket>) {
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
        #[cfg(test)]
        self.panic_if_asked();
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
            DatagramOwner::Forwarded(client.ip(), account, forward.to.clone()),
            named,
        )?;
        let (sender, packets) = mpsc::channel(WAITING);
        let task = tokio::spawn(flow.serve(packets, self.stopping.subscribe()));
        entry.set_task(task.abort_handle());
        Some(sender)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::destination::Destination;
    use crate::server::Server;
    use crate::settings::{AccessLog, ForwardProtocol, SendProxy};
    use ekiden_linux::sockets::datagram;
    use std::net::Ipv4Addr;
    use std::sync::atomic::Ordering::Relaxed;
    use std::time::Duration;
    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpStream;

    /// Ports that were free a moment ago.
    fn free() -> [SocketAddr; 2] {
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        [tcp.local_addr().unwrap(), udp.local_addr().unwrap()]
    }

    #[tokio::test]
    async fn a_panic_loses_one_client_of_a_port_and_no_other() {
        let [tcp, udp] = free();
        let forward = |at, protocol| {
            let to = Destination::parse("127.0.0.1:9", None).unwrap();
            let listen = vec![at];
            Arc::new(PortForward { listen, to, protocol, send_proxy: SendProxy::Off })
        };
        let forwards = vec![forward(tcp, ForwardProtocol::Tcp), forward(udp, ForwardProtocol::Udp)];
        let listen = vec![(Ipv4Addr::LOCALHOST, 0).into()];
        let settings = Settings { listen, forwards, ..Settings::default() };
        let server = Server::start(Arc::new(settings)).unwrap();
        let accepted = async |count: u64| {
            let accepted = async {
                while server.status().totals.accepted < count {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(60), accepted).await.expect("nobody accepts");
        };
        server.inner.panics.store(true, Relaxed);
        let mut lost = TcpStream::connect(tcp).await.unwrap();
        assert!(!matches!(lost.read(&mut [0; 1]).await, Ok(1)));
        let _served = TcpStream::connect(tcp).await.unwrap();
        accepted(1).await;
        server.inner.panics.store(true, Relaxed);
        for client in [(); 2].map(|()| std::net::UdpSocket::bind("127.0.0.1:0").unwrap()) {
            client.send_to(b"?", udp).unwrap();
        }
        accepted(2).await;
    }

    #[tokio::test]
    async fn a_client_s_flow_that_the_relay_ends_is_logged_as_its_cut() {
        for why in ["cut off", "the relay is stopping", "the port is closed"] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("access.log");
            let [_, at] = free();
            let beyond = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            let to = beyond.local_addr().unwrap().to_string();
            let to = Destination::parse(&to, None).unwrap();
            let (listen, protocol) = (vec![at], ForwardProtocol::Udp);
            let forward = PortForward { listen, to, protocol, send_proxy: SendProxy::Off };
            let forwards = vec![Arc::new(forward)];
            let listen = vec![(Ipv4Addr::LOCALHOST, 0).into()];
            let access_log = AccessLog::File(path.clone());
            let mut settings = Settings { listen, forwards, access_log, ..Settings::default() };
            settings.access.allow_destinations = vec!["127.0.0.0/8".parse().unwrap()];
            let server = Server::start(Arc::new(settings)).unwrap();
            let client = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            client.send_to(b"?", at).unwrap();
            let cut = async {
                while server.status().udp.datagrams_up == 0 {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                match why {
                    "cut off" => assert_eq!(server.handle().cut(), 1),
                    "the port is closed" => server.inner.stop_forwarding(),
                    _ => assert!(!server.inner.stopping.send_replace(true)),
                }
                while !server.status().connections.is_empty() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(60), cut).await.expect("it goes on");
            assert!(server.handle().pending_lines().wait(Duration::from_secs(60)));
            let text = std::fs::read_to_string(&path).unwrap();
            let result =
                format!("\"cut_by\":\"relay\",\"result\":\"{why}; 1 datagrams up, 0 down\"");
            assert!(text.contains(&result), "{text}");
        }
    }

    #[tokio::test]
    async fn datagrams_that_came_together_leave_other_tasks_their_turn() {
        // more than the budget of a turn
        const MANY: u64 = 200;
        let [_, at] = free();
        let to = Destination::parse("127.0.0.1:9", None).unwrap();
        let (listen, protocol) = (vec![at], ForwardProtocol::Udp);
        let forward = PortForward { listen, to, protocol, send_proxy: SendProxy::Off };
        let (listen, forwards) = (vec![(Ipv4Addr::LOCALHOST, 0).into()], vec![Arc::new(forward)]);
        let settings = Settings { listen, forwards, ..Settings::default() };
        let server = Server::start(Arc::new(settings)).unwrap();
        // another socket than the server's, so that nothing is taken before all have come
        let port = datagram::open((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        for _ in 0..MANY {
            let client = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            client.send_to(b"?", port.local_addr().unwrap()).unwrap();
        }
        let port = Arc::new(UdpSocket::from_std(port).unwrap());
        let serving = tokio::spawn(Arc::clone(&server.inner).forward_udp(at, port));
        let taken = || server.status().totals.accepted;
        while taken() == 0 {
            tokio::task::yield_now().await;
        }
        let taken = taken();
        assert!(taken < MANY, "no turn before {taken} were taken");
        serving.abort();
    }
}
