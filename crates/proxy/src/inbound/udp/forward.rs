//! Datagrams to a forwarded port: each client has a flow to the port's one destination, by rules and routes as
//! all have. A flow is registered and logged as connections are, and counts as an association.

use super::{GAVE_WAY, cut_by_relay, drop_datagram, no_association, wait, within_limits_or_over};
use crate::destination::Destination;
use crate::error::{Failure, FailureKind};
use crate::observe::access_log::{AccessLog, CutBy};
use crate::observe::log_throttle::LogThrottle;
use crate::observe::registry::{ConnectionState, Protocol, Registration};
use crate::observe::udp_counts::{DropReason, Holder, UdpTally};
use crate::outbound::udp::route::{DatagramError, DatagramOwner, DatagramPaths, Received};
use crate::outbound::udp::{IN_A_ROW, send};
use crate::policy::accounts::KnownAccount;
use crate::policy::quota::AccountConnection;
use crate::resources::DescriptorReserve;
use crate::runtime::RuntimeConfig;
use crate::session::LogEntry;
use bytes::Bytes;
use ekiden_linux::host::clock;
use ekiden_model::resources::overload::Source;
use ekiden_model::resources::quota::Direction;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::UdpSocket;
use tokio::sync::{mpsc, watch};

/// Datagrams of one client that wait for its flow.
pub(crate) const WAITING: usize = 64;

/// One client's datagrams to a forwarded port.
pub(crate) struct ForwardFlow {
    pub(super) config: Arc<RuntimeConfig>,
    port: Arc<UdpSocket>,
    pub(super) client: SocketAddr,
    pub(super) to: Destination,
    pub(super) way: DatagramPaths,
    share: Option<Arc<AccountConnection>>,
    tally: UdpTally,
    log: Arc<AccessLog>,
    pub(super) entry: LogEntry,
    /// Why it ended; `None` when it was cut.
    pub(super) end: Option<String>,
    /// Whether the end of its path is its own.
    pub(super) ends_with_path: bool,
    _place: DescriptorReserve,
    /// Dropped last: a flow that holds something is in the status.
    pub(super) registration: Registration,
}

/// Why a flow ended.
#[derive(Debug)]
pub(super) enum FlowEnd {
    Closed(String),
    Failed(Failure),
}

impl From<Failure> for FlowEnd {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl std::fmt::Display for FlowEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Closed(why) => f.write_str(why),
            Self::Failed(failure) => f.write_str(&failure.text),
        }
    }
}

/// The account of a client of a forwarded port. Fails where the client may not come in: such a client gets no flow
/// and no line in the log.
pub(crate) fn admit(
    config: &RuntimeConfig,
    client: SocketAddr,
) -> Result<Option<Arc<KnownAccount>>, Failure> {
    let known = config.account_at(client.ip());
    let account = known.transpose().map_err(|why| Failure::new(FailureKind::Denied, why))?;
    if account.is_none() {
        config.settings.decider(client.ip()).client()?;
        if config.directory.is_some() && config.settings.accounts.required {
            let text = "this relay requires an account, and datagrams cannot log in";
            return Err(Failure::new(FailureKind::LogIn, text));
        }
    }
    Ok(account)
}

impl ForwardFlow {
    /// A flow for an admitted client. `port` is asked for its socket once the flow has its place. Fails for want of room,
    /// by the rules for the destination, by the account's limits, or without a socket; the access log says why.
    /// `owner`: who chose the destination, too.
    pub(crate) fn open(
        config: Arc<RuntimeConfig>,
        (port, client): (impl FnOnce() -> Result<Arc<UdpSocket>, Failure>, SocketAddr),
        to: &Destination,
        owner: DatagramOwner,
        (registration, log): (Registration, Arc<AccessLog>),
    ) -> Option<Self> {
        registration.begin(Protocol::Udp, to.to_string());
        registration.set_account(owner.account().cloned());
        let mut entry = LogEntry::new(Protocol::Udp, &registration);
        entry.target = Some(to.to_string());
        let made = Self::make(&config, client, to, owner, &registration);
        match made.and_then(|made| Ok((made, port()?))) {
            Ok(((way, share, tally, place), port)) => {
                let route = config.route(to);
                entry.through = route.tunnel().map(|hop| hop.name.clone()).into_iter().collect();
                entry.status = Some(0);
                registration.set_upstream_leg(Arc::clone(&entry.through), None);
                registration.set_route(&route.why);
                registration.set_state(ConnectionState::Relaying);
                let to = to.clone();
                let _place = place;
                Some(Self {
                    config,
                    port,
                    client,
                    to,
                    way,
                    share,
                    tally,
                    log,
                    entry,
                    end: None,
                    ends_with_path: false,
                    _place,
                    registration,
                })
            }
            Err(failure) => {
                registration.count(&failure);
                // each datagram of a client that gets no flow comes here, and its address may be forged
                static LOGGED: LogThrottle = LogThrottle::new();
                if LOGGED.is_due() {
                    let more = "; the status counts all, and this log says it every ten seconds";
                    entry.write(&log, &registration, &format!("{}{more}", failure.text));
                }
                None
            }
        }
    }

    #[allow(clippy::type_complexity)] // four parts of one flow, named where they are used
    fn make(
        config: &Arc<RuntimeConfig>,
        client: SocketAddr,
        to: &Destination,
        owner: DatagramOwner,
        registration: &Registration,
    ) -> Result<(DatagramPaths, Option<Arc<AccountConnection>>, UdpTally, DescriptorReserve), Failure>
    {
        let (limits, shared) = (config.association_limits(), &config.shared);
        let exhausted = |text: String| Failure::new(FailureKind::Exhausted, text);
        let account = owner.account().cloned();
        owner.decider(config).unresolved(to)?;
        let holder = Holder::of(account.as_ref().map(|account| account.id), client.ip());
        let tally = shared.udp.begin(limits, holder, false);
        let tally = tally.map_err(|why| no_association(why, limits.most))?;
        let place = shared.resources.make_room(client.ip().into());
        let place = place.ok_or_else(|| exhausted("all connections are in use".to_owned()))?;
        let (accounts, entry) = (&shared.quotas, &registration.entry);
        let share = match &account {
            Some(account) => accounts.admit_known(&account.name, Some(entry)).map(Some),
            None => accounts.admit_by_origin(client.ip(), None, Some(entry)),
        }?;
        entry.set_share(share.as_ref());
        // forged datagrams take nothing of the share of the client's connections
        let memory = shared.transfer_of(Source::unproven(client.ip()));
        Ok((DatagramPaths::new(Arc::clone(config), owner, memory, 0), share, tally, place))
    }

    /// Forwards until it was silent for `udp.idle`, the relay stops, or the account has nothing left.
    pub(crate) async fn serve(
        mut self,
        mut packets: mpsc::Receiver<Bytes>,
        mut stopping: watch::Receiver<bool>,
    ) {
        let why = tokio::select! {
            why = self.run(&mut packets) => why.to_string(),
            _ = stopping.wait_for(|stopping| *stopping) => {
                cut_by_relay(&mut self.entry, "the relay is stopping")
            }
        };
        self.end = Some(why);
    }

    pub(super) async fn run(&mut self, packets: &mut mpsc::Receiver<Bytes>) -> FlowEnd {
        let idle = self.config.settings.udp.idle;
        let mut last = clock::now();
        loop {
            if clock::now() >= last + idle {
                return FlowEnd::Closed(format!("silent for {idle}"));
            }
            let moved = tokio::select! {
                packet = packets.recv() => match packet {
                    Some(packet) => self.forward(&packet),
                    None => return self.cut("the port is closed"),
                },
                () = self.way.ready() => self.receive(),
                () = self.tally.gives_way() => return self.cut(GAVE_WAY),
                () = wait(last + idle) => continue,
            };
            match moved {
                Ok(true) => last = clock::now(),
                Ok(false) => {}
                Err(why) => return why,
            }
        }
    }

    pub(super) fn cut(&mut self, why: &str) -> FlowEnd {
        FlowEnd::Closed(cut_by_relay(&mut self.entry, why))
    }

    pub(super) fn forward(&mut self, packet: &[u8]) -> Result<bool, FlowEnd> {
        if self.within_limits(Direction::Up, packet.len())? {
            match self.way.send(&self.to, packet) {
                Ok(true) => self.on_sent(packet.len()),
                // waits for name resolution
                Ok(false) => {}
                // the next one may pass, but for a flow of one destination that may not be gone to
                Err(DatagramError::Refused(failure)) if self.ends_with_path => {
                    return Err(FlowEnd::Failed(failure));
                }
                Err(on_error) => drop_datagram(&mut self.tally, on_error),
            }
        }
        Ok(true)
    }

    /// Forwards datagrams that came back; returns whether any came.
    fn receive(&mut self) -> Result<bool, FlowEnd> {
        let mut moved = false;
        for _ in 0..IN_A_ROW {
            let Some(received) = self.way.receive() else { break };
            match received {
                Ok(Received::Came(_, payload)) => {
                    moved = true;
                    self.deliver(&payload)?;
                }
                Ok(Received::Sent(bytes)) => self.on_sent(bytes),
                Err(DatagramError::Refused(failure) | DatagramError::Undelivered(failure))
                    if self.ends_with_path =>
                {
                    return Err(FlowEnd::Failed(failure));
                }
                Err(on_error) => drop_datagram(&mut self.tally, on_error),
            }
        }
        Ok(moved)
    }

    fn deliver(&mut self, payload: &[u8]) -> Result<(), Failure> {
        if !self.within_limits(Direction::Down, payload.len())? {
            return Ok(());
        }
        match send(&self.port, payload, self.client) {
            Ok(()) => {
                self.tally.down();
                self.registration.moved(clock::now(), 0, payload.len() as u64, 0);
            }
            Err(error) => {
                let client = self.client;
                self.tally.on_dropped(DropReason::Undelivered, || format!("{client}: {error}"));
            }
        }
        Ok(())
    }

    fn on_sent(&mut self, bytes: usize) {
        self.tally.up();
        self.registration.moved(clock::now(), bytes as u64, 0, 0);
    }

    fn within_limits(&mut self, direction: Direction, bytes: usize) -> Result<bool, Failure> {
        let counted = (&mut self.tally, &mut self.entry);
        within_limits_or_over(self.share.as_deref(), counted, direction, bytes)
    }
}

impl Drop for ForwardFlow {
    fn drop(&mut self) {
        let why = self.end.take().unwrap_or_else(|| {
            self.entry.cut_by = Some(CutBy::Relay);
            let account = self.registration.entry.account();
            let ended = self.config.why_ended(account.as_deref(), self.share.as_deref());
            ended.unwrap_or_else(|| "cut off".to_owned())
        });
        let result = self.tally.in_words(&why);
        self.entry.write(&self.log, &self.registration, &result);
    }
}
