//! Admission of clients: at once, after an eviction, or in turn. A waiting client holds only its
//! socket.

use super::legs::Holder;
use super::{Deferred, Resources, State};
use crate::observe::log_throttle::LogThrottle;
use crate::resources::arrival::{Directed, JoinedPeer, NoPlace, TunnelArrival, reset};
use crate::resources::place::{AdmissionPermit, Place};
use crate::transfer::end::End;
use crate::transfer::rejection::Rejection;
use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use ekiden_linux::host::usage::Usage;
use ekiden_linux::sockets::apply::Inherited;
use ekiden_model::resources::overload::{AdmissionVerdict, Pressure, Resource, Source, Sources};
use ekiden_model::resources::socket_memory::SocketMemory;
use ekiden_model::units::{Span, Time};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::runtime::Handle;

/// Clients that wait have this part of the descriptors at most, as the daemon sees to.
const WAITING_AT_MOST: u64 = 8;

#[derive(Debug, Clone)]
pub(crate) struct AcceptedClient {
    pub(crate) stream: End,
    pub(crate) address: SocketAddr,
    /// What its socket has from the one that listens.
    pub(crate) inherited: Inherited,
    /// The flow whose outer end this is, where the connection came out of a tunnel.
    pub(crate) arrival: Option<Arc<TunnelArrival>>,
    /// Where it goes, if it does not speak with this relay.
    pub(crate) directed: Option<Directed>,
}

impl AcceptedClient {
    /// One that arrived at a listening address.
    pub(crate) const fn new(stream: End, address: SocketAddr, inherited: Inherited) -> Self {
        Self { stream, address, inherited, arrival: None, directed: None }
    }

    /// By what it shares places and the queue: its address, or the peer whose tunnel it came out of.
    pub(super) fn source(&self) -> Source {
        match &self.arrival {
            Some(arrival) => arrival.joined().source(),
            None => self.address.ip().into(),
        }
    }

    pub(super) fn is_gone(&self) -> bool {
        self.stream.is_gone()
    }
}

impl Resources {
    /// Admits a client at once and returns its permit; otherwise the client waits or is rejected.
    pub(crate) fn admit(
        self: &Arc<Self>,
        client: &AcceptedClient,
    ) -> Result<AdmissionPermit, NoPlace> {
        let admitted = self.change(|state, deferred| match state.may_begin(client.source()) {
            true => state.admit(client, deferred).map_err(Some),
            false => Err(None),
        });
        match admitted {
            Ok(place) => Ok(AdmissionPermit::counted(self, place, false)),
            Err(None) => {
                self.refuse_share(client);
                Err(NoPlace::Share)
            }
            Err(Some(verdict)) => {
                if let AdmissionVerdict::Refuse { retry_after } = verdict {
                    self.refuse(client.clone(), retry_after, false);
                }
                Err(NoPlace::Room)
            }
        }
    }

    /// A place for a peer's flow of packets. It does not wait for one.
    pub(crate) fn admit_packets(
        self: &Arc<Self>,
        peer: &JoinedPeer,
    ) -> Result<AdmissionPermit, NoPlace> {
        let source = peer.source();
        let admitted = self.change(|state, deferred| {
            if !state.may_begin(source) {
                return Err(NoPlace::Share);
            }
            let found = state.find_room(source, deferred);
            found.then(|| state.take_place(clock::now(), source)).ok_or(NoPlace::Room)
        });
        if matches!(admitted, Err(NoPlace::Share)) {
            self.log_share_used(source);
        }
        admitted.map(|place| AdmissionPermit::counted(self, place, false))
    }

    /// Refuses a flow whose peer has its share of what is in service.
    pub(super) fn refuse_share(&self, client: &AcceptedClient) {
        self.log_share_used(client.source());
        client.arrival.iter().for_each(|arrival| arrival.refuse_for_room(NoPlace::Share));
    }

    fn log_share_used(&self, source: Source) {
        static LOGGED: LogThrottle = LogThrottle::new();
        if LOGGED.is_due() {
            let source = self.peers.name_of(source);
            tracing::warn!(
                "a flow is refused, because {source} has its share of connections in service; the status counts all"
            );
        }
    }

    /// Rejects a client that waited too long.
    pub(super) fn reject_late(&self, client: AcceptedClient) {
        let patience = locked(&self.state).settings.pressure.patience;
        self.refuse(client, patience, false);
    }

    /// Rejects a client that waits at a stop. One that has asked waits for a slot; for others, who may never ask, the stop
    /// does not wait beyond the free ones.
    pub(super) fn reject_at_stop(&self, client: AcceptedClient) {
        let patience = locked(&self.state).settings.pressure.patience;
        let has_asked = client.stream.has_spoken();
        self.refuse(client, patience, has_asked);
    }

    /// `waits`: for a slot, where too many rejections are in progress. Others are closed without an answer.
    fn refuse(&self, client: AcceptedClient, retry_after: Span, waits: bool) {
        if let Some(arrival) = client.arrival {
            return arrival.refuse_for_room(NoPlace::Room);
        }
        if client.directed.is_some() {
            return reset(&client.stream);
        }
        let name = Arc::clone(&locked(&self.state).name);
        let text = "all connections are in use".to_owned();
        let rejection = Rejection { status: 503, text, retry_after: Some(retry_after) };
        let free = self.rejections.slot();
        if free.is_none() && !waits {
            return;
        }
        // a relay may be dropped outside of its runtime
        if let Ok(runtime) = Handle::try_current() {
            let next = self.rejections.next_slot();
            runtime.spawn(async move {
                let slot = if free.is_some() { free } else { next.await };
                if let Some(slot) = slot {
                    slot.reject(&client.stream, &name, &rejection).await;
                }
            });
        }
    }
}

impl State {
    /// The client's place, or the verdict without one.
    fn admit(
        &mut self,
        client: &AcceptedClient,
        deferred: &mut Deferred,
    ) -> Result<Arc<Place>, AdmissionVerdict> {
        let (now, source) = (clock::now(), client.source());
        loop {
            self.level();
            if self.passes_socket_memory(source, now) {
                // those who wait and pass are before it
                self.serve(deferred);
                self.level();
                if self.passes_socket_memory(source, now) {
                    return Ok(self.take_place_beside(now, source));
                }
            }
            if self.evict_silent_for(source, now, deferred) {
                return Ok(self.take_place(now, source));
            }
            if !self.sources.has_room(now, source) {
                let verdict = self.admission.wait(now, client.clone());
                return Err(self.or_displace(verdict, client, now, deferred));
            }
            if self.admission.waiting() > 0 && !self.pressure.low() {
                // who still waits is kept out by the places kept for accounts, which are this client's
                self.serve(deferred);
                self.level();
                if !self.pressure.low() {
                    return Ok(self.take_place(now, source));
                }
            }
            let idle = self.register.len();
            let verdict = self.admission.ask(now, client.clone(), &self.pressure, idle);
            match verdict {
                // all idle connections became active at this moment: asked again, without them
                AdmissionVerdict::Evict(n) if self.evict(n, deferred) == 0 => continue,
                AdmissionVerdict::Proceed | AdmissionVerdict::Evict(_) => {
                    return Ok(self.take_place(now, source));
                }
                verdict => return Err(self.or_displace(verdict, client, now, deferred)),
            }
        }
    }

    /// Lets a client wait after all where another address waits with more.
    fn or_displace(
        &mut self,
        verdict: AdmissionVerdict,
        client: &AcceptedClient,
        now: Time,
        deferred: &mut Deferred,
    ) -> AdmissionVerdict {
        if !matches!(verdict, AdmissionVerdict::Refuse { .. }) {
            return verdict;
        }
        self.count_refusal();
        match self.admission.displace(&client.source()) {
            Some(other) => {
                deferred.refused.push(other);
                self.admission.wait(now, client.clone())
            }
            None => verdict,
        }
    }

    /// Whether a newcomer may come in now, as far as what is in service matters; counts a refusal. A client of an address
    /// takes a place first, and asks with each request.
    fn may_begin(&mut self, source: Source) -> bool {
        let may = !self.has_share_used(source);
        self.counts.share_refused += u64::from(!may);
        may
    }

    /// Whether a peer has as many flows as it may have beside others.
    fn has_share_used(&self, source: Source) -> bool {
        source.is_invited() && !self.sources.may_begin(source, self.shared_places())
    }

    /// What else is low beside the kernel's socket memory, while that is.
    fn beside_socket_memory(&self) -> Option<Pressure> {
        let memory = Resource::SocketMemory;
        let low = self.pressure.snapshot()[memory as usize].low;
        low.then(|| self.pressure.with_enough(memory))
    }

    /// Whether a newcomer of this source finds all but the kernel's socket memory, of which the source holds little.
    fn passes_socket_memory(&self, source: Source, now: Time) -> bool {
        self.beside_socket_memory().is_some_and(|pressure| !pressure.low())
            && may_enter(&self.sources, self.shared_places(), source, now)
            && holds_little(&self.socket_memory, source)
    }

    fn take_place_beside(&mut self, now: Time, source: Source) -> Arc<Place> {
        self.note_admitted(now, source);
        self.take_place(now, source)
    }

    fn note_admitted(&mut self, now: Time, source: Source) {
        if !source.is_invited() {
            self.socket_memory.on_admitted(now, Holder::Address(source));
        }
    }

    /// Closes a silent connection of the largest source for a newcomer that finds no place.
    fn evict_silent_for(&mut self, source: Source, now: Time, deferred: &mut Deferred) -> bool {
        let room = self.sources.has_room(now, source);
        let held = self.sources.held(source);
        (!room || self.pressure.low()) && self.evict_silent(held, !room, deferred)
    }

    /// Descriptors but those of clients that wait, and those set aside for them: a queue must not keep itself out.
    pub(super) fn without_waiting(&self, usage: Usage) -> Usage {
        let (now, most) = (self.admission.waiting() as u64, self.settings.pressure.waiting);
        let aside = |limit: u64| u64::from(most).min(limit / WAITING_AT_MOST);
        Usage {
            used: usage.used.saturating_sub(now),
            most: usage.most.map(|limit| limit - aside(limit)),
        }
    }

    /// Admits waiting clients, as far as there is room.
    pub(super) fn serve(&mut self, deferred: &mut Deferred) {
        while self.admission.waiting() > 0 {
            self.level();
            let now = clock::now();
            let first = self.admission.first().map(|client| (client.is_gone(), client.source()));
            if let Some((true, _)) = first {
                self.admission.admit_first();
                continue;
            }
            // its peer's flows before it took what was left: others must not wait behind it
            if let Some((false, source)) = first
                && self.has_share_used(source)
            {
                self.counts.share_refused += 1;
                deferred.beyond_share.extend(self.admission.admit_first());
                continue;
            }
            if let Some((false, source)) = first
                && self.evict_silent_for(source, now, deferred)
            {
                if let Some(client) = self.admission.admit_first() {
                    self.admit_later(client, now, deferred);
                }
                continue;
            }
            let (sources, most) = (&self.sources, self.shared_places());
            let may = |source: &Source| may_enter(sources, most, *source, now);
            let idle = self.register.len();
            let client = match self.admission.find(&self.pressure, idle, may) {
                Some((ticket, verdict)) => {
                    let gone = self.admission.get(ticket).is_none_or(AcceptedClient::is_gone);
                    if let AdmissionVerdict::Evict(n) = verdict
                        && !gone
                        && self.evict(n, deferred) == 0
                    {
                        // all idle connections became active at this moment: asked again, without them
                        continue;
                    }
                    self.admission.admit(ticket).filter(|_| !gone)
                }
                None => match self.next_beside(now) {
                    Some(client) => Some(client).filter(|client| !client.is_gone()),
                    None => return,
                },
            };
            if let Some(client) = client {
                self.admit_later(client, now, deferred);
            }
        }
    }

    /// The next who waits for socket memory alone, of which its source holds little.
    fn next_beside(&mut self, now: Time) -> Option<AcceptedClient> {
        let pressure = self.beside_socket_memory()?;
        let most = self.shared_places();
        let (sources, memory) = (&self.sources, &self.socket_memory);
        let may = |source: &Source| {
            may_enter(sources, most, *source, now) && holds_little(memory, *source)
        };
        let (client, _) = self.admission.next_of(&pressure, 0, may)?;
        self.note_admitted(now, client.source());
        Some(client)
    }

    fn admit_later(&mut self, client: AcceptedClient, now: Time, deferred: &mut Deferred) {
        let place = self.take_place(now, client.source());
        deferred.admitted.push((client, place));
    }
}

/// Whether the share of a peer, and the places kept for accounts, leave one for who waits.
fn may_enter(sources: &Sources<Arc<Place>>, most: u64, source: Source, now: Time) -> bool {
    let share = !source.is_invited() || sources.may_begin(source, most);
    share && sources.has_room(now, source)
}

/// Of the kernel's socket memory. What flows out of tunnels hold of it is not known.
fn holds_little(memory: &SocketMemory<Holder>, source: Source) -> bool {
    source.is_invited() || memory.admits(&Holder::Address(source))
}
