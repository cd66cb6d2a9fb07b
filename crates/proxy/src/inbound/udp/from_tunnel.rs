//! Packet flows from a tunnel: datagrams to one destination, by this relay's routes and rules,
//! registered and logged as connections are.

use super::{GAVE_WAY, cut_by_relay, end_if_refused, no_association, wait, within_limits_or_over};
use crate::destination::Destination;
use crate::error::{Failure, FailureKind};
use crate::observe::access_log::{AccessLog, CutBy};
use crate::observe::registry::{ConnectionState, Protocol, Registration};
use crate::observe::udp_counts::{DropReason, Holder, UdpTally};
use crate::outbound::tunnel::{destination, ended, reason};
use crate::outbound::udp::IN_A_ROW;
use crate::outbound::udp::route::{DatagramOwner, DatagramPaths, Received};
use crate::policy::quota::AccountConnection;
use crate::resources::AdmissionPermit;
use crate::runtime::RuntimeConfig;
use crate::session::LogEntry;
use bytes::Bytes;
use ekiden_linux::host::clock;
use ekiden_model::resources::quota::Direction;
use ekiden_tunnel::driver::{Flow, Incoming};
use ekiden_tunnel::frame::Opening;
use ekiden_tunnel::frame::reason::Reason;
use std::sync::Arc;
use tokio::sync::watch;

/// Datagrams are off for peers where they are off for clients.
const NO_UDP: &str = "UDP is off at this relay (udp.associations = 0)";

/// A packet flow from its arrival on. Its drop tells the peer and the log.
pub(crate) struct PacketFlow {
    config: Arc<RuntimeConfig>,
    flow: Flow,
    opening: Opening,
    peer: String,
    log: Arc<AccessLog>,
    entry: LogEntry,
    share: Option<Arc<AccountConnection>>,
    answered: bool,
    tally: UdpTally,
    /// Why it ended; `None` when it was cut.
    end: Option<FlowEnd>,
    /// Dropped last: a flow that holds something is in the status.
    registration: Registration,
}

enum FlowEnd {
    /// It ended regularly, or the peer gave a reason.
    Closed(String),
    Failed(Failure),
}

impl PacketFlow {
    pub(crate) fn new(
        config: Arc<RuntimeConfig>,
        incoming: Incoming,
        registration: Registration,
        log: Arc<AccessLog>,
    ) -> Self {
        let Incoming { flow, opening, peer } = incoming;
        let mut entry = LogEntry::new(Protocol::Udp, &registration);
        registration.set_protocol(Protocol::Udp);
        entry.method = Some(peer.clone());
        let tally = config.shared.udp.flow();
        Self {
            config,
            flow,
            opening,
            peer,
            registration,
            log,
            entry,
            share: None,
            answered: false,
            tally,
            end: None,
        }
    }

    pub(crate) async fn serve(mut self, mut stopping: watch::Receiver<bool>) {
        let end = tokio::select! {
            end = self.run() => end,
            _ = stopping.wait_for(|stopping| *stopping) => {
                FlowEnd::Closed(cut_by_relay(&mut self.entry, "the relay is stopping"))
            }
        };
        self.end = Some(end);
    }

    async fn run(&mut self) -> FlowEnd {
        let (to, mut way, _place) = match self.begin() {
            Ok(begun) => begun,
            Err(failure) => return FlowEnd::Failed(failure),
        };
        let idle = self.config.settings.udp.idle;
        let mut last = clock::now();
        loop {
            // packets from elsewhere may keep this loop busy
            if clock::now() >= last + idle {
                return FlowEnd::Closed(format!("silent for {idle}"));
            }
            let moved = tokio::select! {
                packet = self.flow.packet() => match packet {
                    Ok(packet) => self.receive_from_peer(&mut way, &to, &packet),
                    Err(over) => {
                        let on_failure = ended(&self.peer, over).err();
                        let why = on_failure.map_or_else(|| "closed".to_owned(), |failure| failure.text);
                        return FlowEnd::Closed(why);
                    }
                },
                () = way.ready() => self.receive_from_outside(&mut way),
                () = self.tally.gives_way() => {
                    return FlowEnd::Closed(cut_by_relay(&mut self.entry, GAVE_WAY));
                }
                () = wait(last + idle) => continue,
            };
            match moved {
                Ok(true) => last = clock::now(),
                Ok(false) => {}
                Err(failure) => return FlowEnd::Failed(failure),
            }
        }
    }

    /// Checks the destination and opens the paths to it.
    fn begin(&mut self) -> Result<(Destination, DatagramPaths, AdmissionPermit), Failure> {
        let (config, peer) = (Arc::clone(&self.config), self.peer.clone());
        let to = destination(&self.opening.target).ok_or_else(|| {
            Failure::new(FailureKind::NoName, "the flow has no valid destination")
        })?;
        self.registration.begin(Protocol::Udp, to.to_string());
        self.entry.target = Some(to.to_string());
        let limits = config.association_limits();
        if limits.most == 0 {
            return Err(Failure::new(FailureKind::Denied, NO_UDP));
        }
        let resources = &config.shared.resources;
        let joined = resources.peers.get(&peer);
        let entered = self.tally.enter(limits, Holder::Source(joined.source()), true);
        entered.map_err(|why| no_association(why, limits.most))?;
        // its socket counts as a connection
        let place = resources
            .admit_packets(&joined)
            .map_err(|why| Failure::new(FailureKind::Exhausted, why.to_string()))?;
        let directory = config.directory.as_ref();
        let account = directory.and_then(|directory| directory.behind(&peer)).transpose();
        let account = account.map_err(|why| Failure::new(FailureKind::Denied, why))?;
        self.registration.set_account(account.clone());
        let number = self.opening.account.clone();
        let owner = DatagramOwner::Peer(peer.clone(), number, account.clone());
        owner.decider(&config).unresolved(&to)?;
        let (accounts, entry) = (&config.shared.quotas, &self.registration.entry);
        let share = match &account {
            Some(account) => accounts.admit_known(&account.name, Some(entry)).map(Some),
            None => accounts.admit_by_origin(entry.client.ip(), Some(&peer), Some(entry)),
        };
        self.share = share.map_err(|not| Failure::new(FailureKind::Denied, not.to_string()))?;
        entry.set_share(self.share.as_ref());
        let route = config.route(&to);
        self.entry.through = route.tunnel().map(|hop| hop.name.clone()).into_iter().collect();
        self.registration.set_upstream_leg(Arc::clone(&self.entry.through), None);
        self.registration.set_route(&route.why);
        let memory = config.shared.transfer_of(joined.source());
        let way = DatagramPaths::new(Arc::clone(&config), owner, memory, self.opening.hops);
        Ok((to, way, place))
    }

    fn receive_from_peer(
        &mut self,
        way: &mut DatagramPaths,
        to: &Destination,
        packet: &Bytes,
    ) -> Result<bool, Failure> {
        if self.within_limits(Direction::Up, packet.len())? {
            match way.send(to, packet) {
                Ok(true) => self.on_sent(packet.len()),
                // waits for name resolution
                Ok(false) => {}
                Err(on_error) => end_if_refused(&mut self.tally, on_error)?,
            }
        }
        Ok(true)
    }

    /// Forwards packets that came back; returns whether any packet moved.
    fn receive_from_outside(&mut self, way: &mut DatagramPaths) -> Result<bool, Failure> {
        let mut moved = false;
        for _ in 0..IN_A_ROW {
            let Some(received) = way.receive() else { break };
            match received {
                Ok(Received::Came(_, payload)) => {
                    moved = true;
                    self.deliver(payload)?;
                }
                Ok(Received::Sent(bytes)) => {
                    moved = true;
                    self.on_sent(bytes);
                }
                Err(on_error) => end_if_refused(&mut self.tally, on_error)?,
            }
        }
        Ok(moved)
    }

    fn deliver(&mut self, payload: Vec<u8>) -> Result<(), Failure> {
        let bytes = payload.len();
        if !self.within_limits(Direction::Down, bytes)? {
            return Ok(());
        }
        if self.flow.send_packet(payload.into()) {
            self.tally.down();
            self.registration.moved(clock::now(), 0, bytes as u64, 0);
        } else {
            self.tally.on_dropped(DropReason::Undelivered, || {
                "too many datagrams wait for the tunnel".to_owned()
            });
        }
        Ok(())
    }

    /// Counts a datagram that was sent: the destination is reachable.
    fn on_sent(&mut self, bytes: usize) {
        self.tally.up();
        self.registration.moved(clock::now(), bytes as u64, 0, 0);
        if !self.answered {
            self.answered = true;
            self.entry.status = Some(0);
            self.registration.set_state(ConnectionState::Relaying);
            self.flow.accept();
        }
    }

    fn within_limits(&mut self, direction: Direction, bytes: usize) -> Result<bool, Failure> {
        let counted = (&mut self.tally, &mut self.entry);
        within_limits_or_over(self.share.as_deref(), counted, direction, bytes)
    }

    fn cut(&mut self) -> FlowEnd {
        self.entry.cut_by = Some(CutBy::Relay);
        let account = self.registration.entry.account();
        match self.config.why_ended(account.as_deref(), self.share.as_deref()) {
            Some(why) => FlowEnd::Failed(Failure::new(FailureKind::Denied, why)),
            None => FlowEnd::Closed("cut off".to_owned()),
        }
    }
}

impl Drop for PacketFlow {
    fn drop(&mut self) {
        let end = self.end.take().unwrap_or_else(|| self.cut());
        let words = match end {
            FlowEnd::Closed(why) => {
                self.flow.abort(Reason::Closed, why.clone());
                why
            }
            FlowEnd::Failed(failure) => {
                self.flow.abort(reason(failure.kind), failure.text.clone());
                if !self.answered {
                    self.entry.status = Some(failure.socks() as u16);
                    self.registration.count(&failure);
                    return self.entry.write(&self.log, &self.registration, &failure.text);
                }
                failure.text
            }
        };
        let result = self.tally.in_words(&words);
        self.entry.write(&self.log, &self.registration, &result);
    }
}
