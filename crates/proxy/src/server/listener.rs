//! Listening sockets, and the connections and flows that arrive.

use super::housekeeping::keep;
use super::{Inner, StartError};
use crate::inbound::detect::serve;
use crate::inbound::udp::PacketFlow;
use crate::outbound::tunnel::Tunnels;
use crate::resources::arrival::{NoPlace, TunnelArrival};
use crate::resources::{AcceptedClient, AdmissionPermit};
use crate::session::Session;
use crate::settings::{DnsServer, Leg, Settings, Upstream, UpstreamProtocol};
use ekiden_linux::host::panics::restarted;
use ekiden_linux::host::sync::locked;
use ekiden_linux::sockets::apply::Inherited;
use ekiden_linux::sockets::key::Key;
use ekiden_linux::sockets::outcome::{OptionOutcome, Outcomes, Stage};
use ekiden_tunnel::driver::Incoming;
use socket2::SockRef;
use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr};
use std::os::fd::AsFd as _;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

pub(super) type Bound = (SocketAddr, TcpListener);

pub(super) type Listeners = BTreeMap<SocketAddr, (Arc<TcpListener>, JoinHandle<()>)>;

/// Clients that waited, as their turn comes.
pub(super) type Admitted = mpsc::UnboundedReceiver<(AcceptedClient, AdmissionPermit)>;

/// The limit on connections that wait to be accepted; the kernel caps it at net.core.somaxconn.
pub(super) const BACKLOG: i32 = 4096;

/// Pause after a failed accept: a missing resource returns only when connections end.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Listens on every address not in `running`, with the client leg's options; port 0 becomes the
/// chosen one. One that will be closed and is in the way, as 127.0.0.1 is in that of 0.0.0.0, shares
/// its port meanwhile: it serves on until the caller closes it, and stays where the rest fails.
pub(super) fn bind(
    settings: Arc<Settings>,
    running: &Listeners,
) -> Result<(Vec<Bound>, Arc<Settings>), StartError> {
    let client = settings.legs.get("client").cloned().unwrap_or_default();
    let mut listeners = Vec::new();
    let mut addresses = Vec::new();
    for &address in &settings.listen {
        if running.contains_key(&address) {
            addresses.push(address);
            continue;
        }
        let leaving = running
            .iter()
            .filter(|(old, _)| overlap(**old, address) && !settings.listen.contains(old));
        let leaving: Vec<_> =
            leaving.map(|(_, (listener, _))| SockRef::from(&**listener)).collect();
        let shared = share(&leaving, true);
        let bound = shared.and_then(|()| listen(&client, address, !leaving.is_empty()));
        // from here on no other program may join
        let closed = share(&leaving, false);
        let bound = bound.and_then(|bound| closed.map(|()| bound));
        let bound = bound.map_err(|error| StartError::Listen { address, error })?;
        addresses.push(bound.0);
        listeners.push(bound);
    }
    let settings = match addresses == settings.listen {
        true => settings,
        false => Arc::new(Settings { listen: addresses, ..Settings::clone(&settings) }),
    };
    Ok((listeners, settings))
}

/// Whether one of two addresses is every address of the other's kind, at the same port.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    one.port() == other.port()
        && one.is_ipv6() == other.is_ipv6()
        && (one.ip().is_unspecified() || other.ip().is_unspecified())
}

fn share(listeners: &[SockRef<'_>], shares: bool) -> io::Result<()> {
    listeners.iter().try_for_each(|listener| listener.set_reuse_port(shares))
}

pub(super) fn listen(client: &Leg, address: SocketAddr, shares: bool) -> io::Result<Bound> {
    let (socket, outcomes) =
        client.socket.new_stream_socket(address.is_ipv6(), Stage::Listening)?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    if shares {
        socket.set_reuse_port(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    if shares {
        socket.set_reuse_port(false)?;
    }
    let listener = TcpListener::from_std(socket.into())?;
    log_refused_options(address, &outcomes, client);
    Ok((listener.local_addr()?, listener))
}

/// Logs options that the kernel refused, which no connection's status shows. A source address does
/// not matter here.
pub(super) fn log_refused_options(address: SocketAddr, outcomes: &Outcomes, client: &Leg) {
    for OptionOutcome { option, asked, refused, .. } in outcomes.in_words(&client.socket) {
        if let Some(why) = refused.filter(|_| option != Key::Source.name()) {
            tracing::warn!("listening on {address}: {option} = {asked} not granted: {why}");
        }
    }
}

impl Inner {
    pub(super) fn accept_on(self: &Arc<Self>, listeners: Vec<Bound>) {
        let mut running = locked(&self.listeners);
        for (address, listener) in listeners {
            let listener = Arc::new(listener);
            let kept = Arc::clone(&listener);
            let accept = move |inner: Arc<Self>| inner.accept(Arc::clone(&kept));
            let task = keep("clients that connect", self, accept);
            running.insert(address, (listener, task));
        }
    }

    pub(super) fn stop_listening(&self) {
        self.stop_forwarding();
        let listeners = std::mem::take(&mut *locked(&self.listeners));
        listeners.into_values().for_each(|(_, task)| task.abort());
    }

    /// Serves those who had connected, and listens no more. The aborted task drops the socket later; until then it
    /// would take connections that it resets.
    pub(super) fn end_listening(self: &Arc<Self>, listener: &TcpListener) {
        let socket = SockRef::from(listener);
        let inherited = Inherited::from_listener(listener.as_fd());
        while let Ok((accepted, address)) = socket.accept() {
            let stream =
                accepted.set_nonblocking(true).and_then(|()| TcpStream::from_std(accepted.into()));
            if let (Ok(stream), Some(address)) = (stream, address.as_socket()) {
                self.arrive(AcceptedClient::new(stream.into(), address, inherited));
            }
        }
        if let Err(error) = socket.shutdown(Shutdown::Both) {
            tracing::debug!(%error, "an old listening socket did not stop at once");
        }
    }

    async fn accept(self: Arc<Self>, listener: Arc<TcpListener>) {
        let inherited = Inherited::from_listener(listener.as_fd());
        loop {
            match listener.accept().await {
                Ok((stream, address)) => {
                    self.arrive(AcceptedClient::new(stream.into(), address, inherited));
                }
                Err(error) => self.on_accept_error(&error).await,
            }
        }
    }

    pub(super) async fn on_accept_error(&self, error: &io::Error) {
        match error.raw_os_error() {
            // the client closed before it was accepted
            Some(libc::ECONNABORTED | libc::EINTR | libc::EAGAIN | libc::EPROTO) => {}
            _ => {
                if self.no_descriptors.is_due() {
                    tracing::error!(%error, "cannot accept connections; raise the descriptor limit (LimitNOFILE, ulimit -n) or lower budgets.connections");
                }
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }

    pub(super) fn admit(&self, client: AcceptedClient) {
        #[cfg(test)]
        self.panic_if_asked();
        match self.shared.resources.admit(&client) {
            Ok(permit) => self.begin(client, permit),
            Err(NoPlace::Room) if self.no_room.is_due() => {
                let short = self.shared.resources.shortage();
                tracing::warn!(
                    limit = self.limit,
                    short = short.map(tracing::field::display),
                    "no room for another connection; new clients wait or are rejected"
                );
            }
            Err(_) => {}
        }
    }

    /// Begins the clients that waited, in turn.
    pub(super) async fn begin_waiting(
        self: Arc<Self>,
        admitted: Arc<tokio::sync::Mutex<Admitted>>,
    ) {
        let mut admitted = admitted.lock().await;
        while let Some((client, permit)) = admitted.recv().await {
            self.begin(client, permit);
        }
    }

    fn begin(&self, client: AcceptedClient, permit: AdmissionPermit) {
        let AcceptedClient { stream, address, inherited, arrival, directed } = client;
        self.peak.fetch_max(self.registry.len() as u64 + 1, Relaxed);
        let config = self.config();
        let managed = self.shared.resources.manage(&stream, &config.client_leg.leg, None);
        let registration = self.registry.enter(address);
        let entry = Arc::clone(&registration.entry);
        entry.legs[0].store(managed.id, Relaxed);
        permit.assign_to(&entry);
        let session = Session {
            config,
            in_effect: self.config.subscribe(),
            client: stream,
            managed,
            address,
            inherited,
            hops: arrival.as_ref().map_or(0, |arrival| arrival.hops()),
            arrival,
            directed,
            slot: Mutex::default(),
            tls: None,
            tls_name: None,
            framing: None,
            log: Arc::clone(&self.log),
            stopping: self.stopping.subscribe(),
            permit,
            registration,
        };
        let task = tokio::spawn(serve(session));
        entry.set_task(task.abort_handle());
    }

    /// Starts tunnels where the settings ask for some and none run yet; they run until the server stops.
    pub(super) fn start_tunnels(
        self: &Arc<Self>,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let settings = Arc::clone(&self.config().settings);
        let through = |upstream: &Upstream| upstream.protocol == UpstreamProtocol::Tunnel;
        let asked = |server: &DnsServer| matches!(server, DnsServer::Tunnel { .. });
        let wanted = !settings.tunnel.listen.is_empty()
            || settings.upstreams.values().any(through)
            || settings.dns.servers.iter().any(asked);
        if !wanted || self.shared.tunnels().is_some() {
            return Ok(());
        }
        let (tunnels, incoming) = Tunnels::start(&settings)?;
        // set once: reloads do not overlap
        let _ = self.shared.tunnels.set(tunnels);
        let (inner, mut stopping) = (Arc::clone(self), self.stopping.subscribe());
        let incoming = Arc::new(tokio::sync::Mutex::new(incoming));
        let accept = move || Arc::clone(&inner).accept_flows(Arc::clone(&incoming));
        // flows are connections: a stopping relay accepts none
        tokio::spawn(async move {
            tokio::select! {
                () = restarted("flows that peers open", accept) => {}
                _ = stopping.wait_for(|stopping| *stopping) => {}
            }
        });
        Ok(())
    }

    async fn accept_flows(
        self: Arc<Self>,
        incoming: Arc<tokio::sync::Mutex<mpsc::Receiver<Incoming>>>,
    ) {
        let mut incoming = incoming.lock().await;
        while let Some(incoming) = incoming.recv().await {
            if incoming.opening.carries.is_packets() {
                self.begin_packet_flow(incoming);
                continue;
            }
            let (arrival, end) = TunnelArrival::new(incoming, &self.shared.resources.peers);
            // it has no address of its own
            let client =
                AcceptedClient::new(end, (Ipv4Addr::LOCALHOST, 0).into(), Inherited::default());
            self.admit(AcceptedClient { arrival: Some(arrival), ..client });
        }
    }

    /// A packet flow is registered and logged as connections are.
    fn begin_packet_flow(&self, incoming: Incoming) {
        self.peak.fetch_max(self.registry.len() as u64 + 1, Relaxed);
        let registration = self.registry.enter((Ipv4Addr::UNSPECIFIED, 0).into());
        let entry = Arc::clone(&registration.entry);
        let flow = PacketFlow::new(self.config(), incoming, registration, Arc::clone(&self.log));
        let task = tokio::spawn(flow.serve(self.stopping.subscribe()));
        entry.set_task(task.abort_handle());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Server;
    use tokio::io::AsyncReadExt as _;

    #[tokio::test]
    async fn a_panic_loses_one_client_and_no_other() {
        let listen = vec![(Ipv4Addr::LOCALHOST, 0).into()];
        let settings = Settings { listen, ..Settings::default() };
        let server = Server::start(Arc::new(settings)).unwrap();
        let at = server.status().listen[0];
        server.inner.panics.store(true, Relaxed);
        let mut lost = TcpStream::connect(at).await.unwrap();
        assert!(!matches!(lost.read(&mut [0; 1]).await, Ok(1)));
        let _served = TcpStream::connect(at).await.unwrap();
        let served = async {
            while server.status().totals.accepted == 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), served).await.expect("nobody accepts");
    }
}
