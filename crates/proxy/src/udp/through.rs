//! The way through a tunnel: for each destination a flow of packets, which the other relay sends on by its own
//! routes and rules.
//!
//! A flow is a task: what it is to carry waits in a short queue while it is being opened. Names are resolved
//! by the other relay, so an answer from a destination that was given by name says the address 0.0.0.0 and
//! its port.

use super::way::{Lost, Received, Whose};
use crate::destination::{Destination, Host};
use crate::failure::{Failure, Kind};
use crate::tunnels::Asked;
use crate::world::{Hop, World};
use bytes::Bytes;
use ekiden_model::units::Span;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Datagrams that wait for a flow to be opened, or for its task.
const WAITING: usize = 64;
/// Datagrams that came and wait for the association.
const CAME: usize = 256;

/// One association's way through tunnels.
#[derive(Debug)]
pub(super) struct Through {
    world: Arc<World>,
    whose: Whose,
    hops: u8,
    /// By relay and destination.
    flows: BTreeMap<(String, String), mpsc::Sender<Bytes>>,
    tasks: JoinSet<()>,
    sender: mpsc::Sender<Result<Received, Lost>>,
    receiver: mpsc::Receiver<Result<Received, Lost>>,
    came: VecDeque<Result<Received, Lost>>,
}

impl Through {
    pub(super) fn new(world: Arc<World>, whose: Whose, hops: u8) -> Self {
        let (sender, receiver) = mpsc::channel(CAME);
        let (flows, tasks, came) = (BTreeMap::new(), JoinSet::new(), VecDeque::new());
        Self { world, whose, hops, flows, tasks, sender, receiver, came }
    }

    /// Sends a datagram through the tunnel that is this hop.
    pub(super) fn send(
        &mut self,
        hop: &Arc<Hop>,
        to: &Destination,
        payload: &[u8],
    ) -> Result<(), Lost> {
        let decider = self.whose.decider(&self.world);
        decider.named(to).map_err(|denied| Lost::Refused(denied.into()))?;
        while self.tasks.try_join_next().is_some() {}
        let key = (hop.upstream.host.clone(), to.to_string());
        let packet = Bytes::copy_from_slice(payload);
        let packet = match self.flows.get(&key).map(|flow| flow.try_send(packet.clone())) {
            Some(Ok(())) => return Ok(()),
            Some(Err(mpsc::error::TrySendError::Full(_))) => {
                let text = format!("{to}: too many datagrams wait for the tunnel");
                return Err(Lost::Undelivered(Failure::new(Kind::Exhausted, text)));
            }
            // its flow is over: another one
            Some(Err(mpsc::error::TrySendError::Closed(packet))) => packet,
            None => packet,
        };
        while self.flows.len() >= self.world.settings.udp.destinations as usize {
            self.flows.pop_first();
        }
        let (flow, packets) = mpsc::channel(WAITING);
        // there is room: it was just made
        let _ = flow.try_send(packet);
        self.flows.insert(key, flow);
        let carried = Carried {
            world: Arc::clone(&self.world),
            hop: Arc::clone(hop),
            to: to.clone(),
            client: match self.whose {
                Whose::Client(address, _) => address,
                Whose::Relay(..) => Ipv4Addr::UNSPECIFIED.into(),
            },
            hops: self.hops,
            sender: self.sender.clone(),
        };
        self.tasks.spawn(carried.run(packets));
        Ok(())
    }

    /// Until there is something to receive.
    pub(super) async fn ready(&mut self) {
        if self.came.is_empty()
            && let Some(received) = self.receiver.recv().await
        {
            self.came.push_back(received);
        }
    }

    /// The next that came, if any has.
    pub(super) fn receive(&mut self) -> Option<Result<Received, Lost>> {
        self.came.pop_front().or_else(|| self.receiver.try_recv().ok())
    }
}

/// One flow to one destination.
struct Carried {
    world: Arc<World>,
    hop: Arc<Hop>,
    to: Destination,
    client: IpAddr,
    hops: u8,
    sender: mpsc::Sender<Result<Received, Lost>>,
}

impl Carried {
    async fn run(self, mut packets: mpsc::Receiver<Bytes>) {
        if let Err(failure) = self.carry(&mut packets).await {
            let lost = match failure.kind {
                Kind::Denied | Kind::UpstreamRefused | Kind::Loop => Lost::Refused(failure),
                _ => Lost::Undelivered(failure),
            };
            // fails where nobody is left who would count it
            let _ = self.sender.send(Err(lost)).await;
        }
    }

    /// Until nothing was sent for as long as a destination is remembered, or nobody sends any more.
    async fn carry(&self, packets: &mut mpsc::Receiver<Bytes>) -> Result<(), Failure> {
        let relay = &self.hop.upstream.host;
        let tunnels = self.world.means.tunnels().ok_or_else(|| {
            Failure::new(Kind::Unreachable, format!("the tunnel to relay «{relay}» has not begun"))
        })?;
        let asked = Asked { to: &self.to, client: self.client, hops: self.hops, dscp: None };
        let patience: Span = self.hop.leg.leg.connect_timeout;
        let flow = tunnels.open_packets(relay, asked, patience).await?;
        let from = match self.to.host {
            Host::Address(address) => address,
            Host::Name(_) => Ipv4Addr::UNSPECIFIED.into(),
        };
        let from = SocketAddr::new(from, self.to.port);
        let idle = self.world.settings.udp.idle;
        loop {
            tokio::select! {
                packet = packets.recv() => match packet {
                    // what does not fit is lost, as anywhere
                    Some(packet) => drop(flow.send_packet(packet)),
                    None => return Ok(()),
                },
                packet = flow.packet() => match packet {
                    // so is what nobody takes in time
                    Ok(packet) => drop(self.sender.try_send(Ok(Received::Came(from, packet.to_vec())))),
                    Err(ended) => return crate::tunnels::ended(relay, ended),
                },
                () = tokio::time::sleep(idle.into()) => return Ok(()),
            }
        }
    }
}
