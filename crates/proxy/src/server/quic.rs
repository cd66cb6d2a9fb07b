//! The gateway's QUIC: datagrams that arrive at transparent sockets, and the flows that they begin.

use super::Inner;
use super::gateway::{GatewayDoor, is_off};
use super::housekeeping::keep;
use crate::error::Failure;
use crate::inbound::udp::diverted::{Blocked, WAITING};
use crate::inbound::udp::flows::{FlowRate, Flows};
use crate::inbound::udp::forward::{ForwardFlow, admit};
use crate::observe::log_throttle::LogThrottle;
use crate::observe::udp_counts::DropReason;
use crate::outbound::udp::route::DatagramOwner;
use bytes::Bytes;
use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use ekiden_linux::links::divert::{Divert, DivertError, DivertPlan};
use ekiden_linux::sockets::receive_batch::{ReceiveBatch, merge};
use ekiden_linux::sockets::transparent;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::sync::{Mutex, mpsc};
use tokio::task::coop::consume_budget;

/// Datagrams taken in with one call, and more where the kernel merged more than before; those are of one flow.
const AT_ONCE: usize = 64;
/// Those to be blocked that wait for nft, which sets them in batches at this interval.
const MOST_BLOCKED: usize = 1_024;
const BLOCK_INTERVAL: Duration = Duration::from_millis(20);

/// A flow's client and destination.
type Ends = (SocketAddr, SocketAddr);

impl Inner {
    /// Opens the sockets for QUIC where there are none yet.
    pub(super) fn listen_for_quic(
        self: &Arc<Self>,
        door: &mut GatewayDoor,
    ) -> Result<(), DivertError> {
        if !door.quic.is_empty() {
            return Ok(());
        }
        let (blocked, to_block) = mpsc::channel(MOST_BLOCKED);
        for ipv6 in [false, true] {
            match transparent::datagrams(ipv6) {
                Ok(plain) => {
                    // without it they come one by one
                    let _ = merge(&plain);
                    let at = plain.local_addr()?;
                    let socket = UdpSocket::from_std(plain.try_clone()?)?;
                    let (sockets, blocked) = (Arc::new((socket, plain)), blocked.clone());
                    let take = move |inner: Arc<Self>| {
                        inner.take_quic(Arc::clone(&sockets), at, blocked.clone())
                    };
                    door.quic.push((at, keep("diverted QUIC", self, take)));
                }
                Err(error) if ipv6 && is_off(&error) => {}
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    let text = "a transparent socket takes CAP_NET_ADMIN";
                    return Err(io::Error::new(error.kind(), text).into());
                }
                Err(error) => return Err(error.into()),
            }
        }
        let to_block = Arc::new(Mutex::new(to_block));
        let block = move |inner: Arc<Self>| inner.block_quic(Arc::clone(&to_block));
        keep("QUIC to be blocked", self, block);
        Ok(())
    }

    /// Flows from before a panic end, and begin anew with their next datagram.
    async fn take_quic(
        self: Arc<Self>,
        sockets: Arc<(UdpSocket, std::net::UdpSocket)>,
        at: SocketAddr,
        blocked: Blocked,
    ) {
        let (socket, plain) = &*sockets;
        let (mut flows, mut rate) = (Flows::new(), FlowRate::new(clock::now()));
        let mut batch = ReceiveBatch::default();
        loop {
            // a port that always has datagrams must not keep other tasks from their turn
            consume_budget().await;
            if let Err(error) = socket.readable().await {
                return tracing::error!("the UDP port {at} broke: {error}");
            }
            if socket.try_io(Interest::READABLE, || batch.receive(plain, AT_ONCE)).is_err() {
                continue;
            }
            // merged datagrams are neighbours, and one attempt stands for all of them
            let (mut refused, mut taken) = (None, 0);
            for datagram in batch.datagrams() {
                taken += 1;
                // what comes to the port itself was not diverted
                let Some(to) = datagram.asked.filter(|to| !to.ip().is_loopback()) else {
                    self.shared.gateway.stray.fetch_add(1, Relaxed);
                    continue;
                };
                let ends = (datagram.from, to);
                if refused == Some(ends) {
                    self.shared.gateway.quic_blocked.fetch_add(1, Relaxed);
                    continue;
                }
                let packet = Bytes::copy_from_slice(datagram.bytes);
                let Some(packet) = flows.pass(&ends, packet) else { continue };
                // its client repeats it, or takes TCP
                if !rate.on_datagram(clock::now(), datagram.from.ip()) {
                    self.shared.udp.count_dropped(DropReason::Limited);
                    continue;
                }
                match self.begin_quic_flow(ends, &blocked) {
                    Some(flow) => flows.insert(ends, flow, packet),
                    None => {
                        refused = Some(ends);
                        self.shared.gateway.quic_blocked.fetch_add(1, Relaxed);
                        let _ = blocked.try_send((ends.0, to.ip()));
                    }
                }
            }
            // a turn is bounded by datagrams, not by batches: the kernel may have merged a thousand
            for _ in 0..taken {
                consume_budget().await;
            }
        }
    }

    /// A flow for the first datagram of a client to a destination; `None`: it is not admitted, or there is no room.
    fn begin_quic_flow(
        &self,
        (client, to): Ends,
        blocked: &Blocked,
    ) -> Option<mpsc::Sender<Bytes>> {
        let config = self.config();
        static LOGGED: LogThrottle = LogThrottle::new();
        let account = match admit(&config, client) {
            Ok(account) => account,
            Err(failure) => {
                self.registry.totals.refused.fetch_add(1, Relaxed);
                if LOGGED.is_due() {
                    tracing::warn!(%client, "QUIC to {to} refused: {failure}");
                }
                return None;
            }
        };
        let answers = || {
            let socket = transparent::datagrams_from(to).and_then(UdpSocket::from_std);
            socket.map(Arc::new).map_err(|error| {
                if LOGGED.is_due() {
                    tracing::warn!(%client, "QUIC to {to} blocked: no socket for its answers: {error}");
                }
                Failure::io(&format!("no socket for answers from {to}"), &error)
            })
        };
        let registration = self.registry.enter(client);
        let entry = Arc::clone(&registration.entry);
        let named = (registration, Arc::clone(&self.log));
        let owner = DatagramOwner::Client(client.ip(), account);
        let flow = ForwardFlow::open(config, (answers, client), &to.into(), owner, named)?;
        let (sender, packets) = mpsc::channel(WAITING);
        let told = (to.ip(), blocked.clone());
        let task = tokio::spawn(flow.serve_diverted(told, packets, self.stopping.subscribe()));
        entry.set_task(task.abort_handle());
        Some(sender)
    }

    /// Has the kernel answer with "port unreachable", until the sockets are closed.
    async fn block_quic(
        self: Arc<Self>,
        to_block: Arc<Mutex<mpsc::Receiver<(SocketAddr, IpAddr)>>>,
    ) {
        let mut to_block = to_block.lock().await;
        let mut pairs = Vec::new();
        while to_block.recv_many(&mut pairs, MOST_BLOCKED).await > 0 {
            let (inner, batch) = (Arc::clone(&self), std::mem::take(&mut pairs));
            // nft answers after a millisecond or so
            let done = tokio::task::spawn_blocking(move || {
                let rules = Arc::clone(&locked(&inner.gateway).rules);
                block_quic(&mut locked(&rules), &batch)
            });
            if let Ok(Err(error)) = done.await {
                static LOGGED: LogThrottle = LogThrottle::new();
                if LOGGED.is_due() {
                    tracing::warn!("gateway: QUIC is dropped that should be blocked: {error}");
                }
            }
            tokio::time::sleep(BLOCK_INTERVAL).await;
        }
    }
}

/// Has QUIC of these clients to these destinations answered with "port unreachable". Fails where nft does.
fn block_quic(
    rules: &mut Option<Divert>,
    pairs: &[(SocketAddr, IpAddr)],
) -> Result<(), DivertError> {
    let diverts = |divert: &&mut Divert| divert.plan().is_some_and(DivertPlan::diverts_quic);
    // otherwise it passes by anyway
    rules.as_mut().filter(diverts).map_or(Ok(()), |divert| divert.block_quic(clock::now(), pairs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Server;
    use crate::settings::Settings;
    use ekiden_linux::sockets::datagram;
    use std::net::Ipv4Addr;

    #[tokio::test]
    async fn datagrams_that_came_together_leave_other_tasks_their_turn() {
        // more than the budget of a turn, in fewer batches than that
        const MANY: u64 = 200;
        let listen = vec![(Ipv4Addr::LOCALHOST, 0).into()];
        let server = Server::start(Arc::new(Settings { listen, ..Settings::default() })).unwrap();
        // nothing is diverted to it, so each datagram is a stray one
        let plain = datagram::open((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let at = plain.local_addr().unwrap();
        let client = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..MANY {
            client.send_to(b"?", at).unwrap();
        }
        let socket = UdpSocket::from_std(plain.try_clone().unwrap()).unwrap();
        let (blocked, _to_block) = mpsc::channel(1);
        let taking = Arc::clone(&server.inner).take_quic(Arc::new((socket, plain)), at, blocked);
        let serving = tokio::spawn(taking);
        let taken = || server.inner.shared.gateway.stray.load(Relaxed);
        while taken() == 0 {
            tokio::task::yield_now().await;
        }
        let taken = taken();
        assert!(taken < MANY, "no turn before {taken} were taken");
        serving.abort();
    }
}
