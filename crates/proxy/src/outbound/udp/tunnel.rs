//! Datagrams through a peer's tunnel: a packet flow for each destination, by the peer's routes and
//! rules.
//!
//! Beyond `udp.destinations` the flow that was sent to longest ago ends. Each flow has a task and a short queue. It never waits for the tunnel: while that is down, a flow
//! ends as soon as it begins, so an outage collects neither flows nor datagrams. The peer resolves
//! names, so an answer from a named destination carries 0.0.0.0 and its port.

use crate::destination::{Destination, Host};
use crate::error::{Failure, FailureKind};
use crate::observe::udp_counts::DropReason;
use crate::outbound::recent::Recent;
use crate::outbound::tunnel::FlowRequest;
use crate::outbound::udp::DECIDED;
use crate::outbound::udp::route::{DatagramError, DatagramOwner, Received};
use crate::policy::upstream::Hop;
use crate::runtime::RuntimeConfig;
use crate::wire::quic_initial::is_initial;
use bytes::Bytes;
use ekiden_linux::host::clock;
use ekiden_model::units::{Span, Time};
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};

/// Datagrams that wait for a flow.
const WAITING: usize = 64;
/// Received datagrams that wait for the association.
const CAME: usize = 256;

/// A peer, and a destination beyond it.
type FlowKey = (String, String);

/// The datagrams for a flow, and when the rules last let its destination be sent to.
#[derive(Debug)]
struct Flow {
    sender: mpsc::Sender<Bytes>,
    permitted: Time,
}

/// One association's flows through tunnels.
#[derive(Debug)]
pub(crate) struct TunnelFlows {
    config: Arc<RuntimeConfig>,
    owner: DatagramOwner,
    hops: u8,
    flows: Recent<FlowKey, Flow>,
    tasks: JoinSet<FlowKey>,
    sender: mpsc::Sender<Result<Received, DatagramError>>,
    receiver: mpsc::Receiver<Result<Received, DatagramError>>,
    came: VecDeque<Result<Received, DatagramError>>,
}

impl TunnelFlows {
    pub(crate) fn new(config: Arc<RuntimeConfig>, owner: DatagramOwner, hops: u8) -> Self {
        let (sender, receiver) = mpsc::channel(CAME);
        let flows = Recent::new(config.settings.udp.destinations as usize);
        let (tasks, came) = (JoinSet::new(), VecDeque::new());
        Self { config, owner, hops, flows, tasks, sender, receiver, came }
    }

    /// Whether the rules let datagrams go there, as far as this relay can judge: the peer resolves the name.
    pub(crate) fn check(&self, to: &Destination) -> Result<(), Failure> {
        Ok(self.owner.decider(&self.config).named(to)?)
    }

    /// Sends a datagram through the tunnel of this hop.
    pub(crate) fn send(
        &mut self,
        hop: &Arc<Hop>,
        to: &Destination,
        payload: &[u8],
    ) -> Result<(), DatagramError> {
        let now = clock::now();
        let key = (hop.upstream.host.clone(), to.to_string());
        let permitted = self.flows.get(&key).map(|flow| flow.permitted);
        let permitted = permitted.filter(|since| now.since(*since) < DECIDED);
        if permitted.is_none() {
            self.check(to)?;
        }
        let permitted = permitted.unwrap_or(now);
        while let Some(ended) = self.tasks.try_join_next() {
            self.on_ended(ended);
        }
        let packet = Bytes::copy_from_slice(payload);
        let used = self.flows.used(&key).map(|flow| {
            flow.permitted = permitted;
            flow.sender.try_send(packet.clone())
        });
        let packet = match used {
            Some(Ok(())) => return Ok(()),
            Some(Err(mpsc::error::TrySendError::Full(_))) => {
                let text = format!("{to}: too many datagrams wait for the tunnel");
                return Err(DatagramError::undelivered(FailureKind::Exhausted, text));
            }
            // its flow ended: open another
            Some(Err(mpsc::error::TrySendError::Closed(packet))) => packet,
            None => packet,
        };
        let (sender, packets) = mpsc::channel(WAITING);
        // cannot fail: the queue is new
        let _ = sender.try_send(packet);
        // one that is forgotten here ends, since nothing more comes for it
        drop(self.flows.insert(key.clone(), Flow { sender, permitted }));
        let carried = FlowTask {
            config: Arc::clone(&self.config),
            hop: Arc::clone(hop),
            to: to.clone(),
            owner: self.owner.clone(),
            hops: self.hops,
            sender: self.sender.clone(),
            coded: is_initial(payload),
        };
        self.tasks.spawn(async move {
            carried.run(packets).await;
            key
        });
        Ok(())
    }

    /// A flow ended by itself; it must not take the place of one that lives.
    fn on_ended(&mut self, ended: Result<FlowKey, JoinError>) {
        if let Ok(key) = ended
            && self.flows.get(&key).is_some_and(|flow| flow.sender.is_closed())
        {
            self.flows.remove(&key);
        }
    }

    pub(crate) async fn ready(&mut self) {
        if self.came.is_empty()
            && let Some(received) = self.receiver.recv().await
        {
            self.came.push_back(received);
        }
    }

    pub(crate) fn receive(&mut self) -> Option<Result<Received, DatagramError>> {
        self.came.pop_front().or_else(|| self.receiver.try_recv().ok())
    }
}

struct FlowTask {
    config: Arc<RuntimeConfig>,
    hop: Arc<Hop>,
    to: Destination,
    owner: DatagramOwner,
    hops: u8,
    sender: mpsc::Sender<Result<Received, DatagramError>>,
    /// It looks like QUIC, whose lost packets are repaired. Voice and games would rather lose them.
    coded: bool,
}

impl FlowTask {
    async fn run(self, mut packets: mpsc::Receiver<Bytes>) {
        if let Err(failure) = self.carry(&mut packets).await {
            packets.close();
            // the association counts the first by the failure
            let _ = packets.try_recv();
            while packets.try_recv().is_ok() {
                self.count_undelivered();
            }
            // fails where the association has ended
            let _ = self.sender.send(Err(failure.into())).await;
        }
    }

    /// Counts a datagram that did not fit, or that nobody read in time.
    fn count_undelivered(&self) {
        self.config.shared.udp.count_dropped(DropReason::Undelivered);
    }

    /// Runs until the destination is idle, or the association ends.
    async fn carry(&self, packets: &mut mpsc::Receiver<Bytes>) -> Result<(), Failure> {
        let peer = &self.hop.upstream.host;
        let tunnels = self.config.shared.tunnels_to(peer)?;
        let client = match &self.owner {
            DatagramOwner::Client(address, _) | DatagramOwner::Forwarded(address, ..) => *address,
            DatagramOwner::Peer(..) => Ipv4Addr::UNSPECIFIED.into(),
        };
        let owner = self.owner.of_flows();
        let asked = FlowRequest { to: &self.to, client, owner, hops: self.hops, dscp: None };
        let flow = tunnels.open_packets(peer, asked, Span::ZERO, self.coded).await?;
        let from = match self.to.host {
            Host::Address(address) => address,
            Host::Name(_) => Ipv4Addr::UNSPECIFIED.into(),
        };
        let from = SocketAddr::new(from, self.to.port);
        let idle = self.config.settings.udp.idle;
        loop {
            tokio::select! {
                packet = packets.recv() => match packet {
                    Some(packet) => {
                        if !flow.send_packet(packet) {
                            self.count_undelivered();
                        }
                    }
                    None => return Ok(()),
                },
                packet = flow.packet() => match packet {
                    Ok(packet) => {
                        let came = Received::Came(from, packet.to_vec());
                        if self.sender.try_send(Ok(came)).is_err() {
                            self.count_undelivered();
                        }
                    }
                    Err(ended) => return crate::outbound::tunnel::ended(peer, ended),
                },
                () = tokio::time::sleep(idle.into()) => return Ok(()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::named_leg::NamedLeg;
    use crate::resources::Resources;
    use crate::runtime::shared::Shared;
    use crate::settings::{Leg, Settings, Upstream, UpstreamProtocol};

    /// Two flows at most, and a peer without a tunnel, where flows end as soon as their tasks run.
    fn flows() -> (TunnelFlows, Arc<Hop>) {
        let mut settings = Settings::default();
        settings.udp.destinations = 2;
        let (resources, _admitted) = Resources::new(&settings, false);
        let shared = Shared::new(&settings, resources, None);
        let config = RuntimeConfig::new(Arc::new(settings), shared, None, None).unwrap();
        let owner = DatagramOwner::Client(Ipv4Addr::LOCALHOST.into(), None);
        let upstream = Upstream::new(UpstreamProtocol::Tunnel, "far", 0);
        let leg = Arc::new(NamedLeg::new("direct", &Leg::default(), None));
        let hop = Hop::new("far", &upstream, leg, None).unwrap();
        (TunnelFlows::new(Arc::new(config), owner, 0), Arc::new(hop))
    }

    fn to(name: &str) -> Destination {
        Destination { host: Host::from_name(name).unwrap(), port: 53 }
    }

    fn is_kept(flows: &TunnelFlows, name: &str) -> bool {
        flows.flows.get(&("far".to_owned(), to(name).to_string())).is_some()
    }

    #[tokio::test]
    async fn the_flow_that_was_sent_to_longest_ago_gives_way() {
        let (mut flows, hop) = flows();
        // nothing is waited for, so that no task runs
        for name in ["a.example", "b.example", "a.example", "c.example"] {
            flows.send(&hop, &to(name), b"packet").unwrap();
        }
        let kept = ["a.example", "b.example", "c.example"].map(|name| is_kept(&flows, name));
        assert_eq!(kept, [true, false, true]);
    }

    #[tokio::test]
    async fn a_flow_that_ended_takes_no_place() {
        let (mut flows, hop) = flows();
        flows.send(&hop, &to("a.example"), b"packet").unwrap();
        flows.send(&hop, &to("b.example"), b"packet").unwrap();
        while !flows.tasks.is_empty() {
            let ended = flows.tasks.join_next().await.unwrap();
            flows.on_ended(ended);
        }
        assert_eq!(flows.flows.len(), 0);
    }
}
