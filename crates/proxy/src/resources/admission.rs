//! Admission of clients: at once, after an eviction, or in turn. A waiting client holds only its
//! socket.

use super::legs::Holder;
use super::{Deferred, Resources, State};
use crate::resources::arrival::{Directed, TunnelArrival, reset};
use crate::resources::place::{AdmissionPermit, Place};
use crate::transfer::end::End;
use crate::transfer::rejection::Rejection;
use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use ekiden_linux::sockets::apply::Inherited;
use ekiden_model::resources::overload::{AdmissionVerdict, Pressure, Resource, Source};
use ekiden_model::units::{Span, Time};
use std::net::SocketAddr;
use std::sync::Arc;

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

    /// By what address it shares; `None` out of a tunnel, whose peer was invited.
    fn source(&self) -> Option<Source> {
        self.arrival.is_none().then(|| self.address.ip().into())
    }

    /// By what it shares the queue: its address, or the peer whose tunnel it came out of.
    fn queued_by(&self) -> (Option<Source>, Option<String>) {
        let peer = self.arrival.as_ref().map(|arrival| arrival.peer().to_owned());
        (self.source(), peer)
    }

    pub(super) fn is_gone(&self) -> bool {
        self.stream.is_gone()
    }
}

impl Resources {
    /// Admits a client at once and returns its permit; otherwise the client waits or is rejected.
    pub(crate) fn admit(self: &Arc<Self>, client: &AcceptedClient) -> Option<AdmissionPermit> {
        let admitted = self.change(|state, deferred| state.admit(client, deferred));
        match admitted {
            Ok(place) => Some(AdmissionPermit::counted(self, place, false)),
            Err(AdmissionVerdict::Refuse { retry_after }) => {
                self.refuse(client.clone(), retry_after);
                None
            }
            Err(_) => None,
        }
    }

    /// Rejects a client that waited too long.
    pub(super) fn reject_late(&self, client: AcceptedClient) {
        let patience = locked(&self.state).settings.pressure.patience;
        self.refuse(client, patience);
    }

    fn refuse(&self, client: AcceptedClient, retry_after: Span) {
        if let Some(arrival) = client.arrival {
            return arrival.refuse_for_room();
        }
        if client.directed.is_some() {
            return reset(&client.stream);
        }
        let name = Arc::clone(&locked(&self.state).name);
        let text = "all connections are in use".to_owned();
        let rejection = Rejection { status: 503, text, retry_after: Some(retry_after) };
        if let Some(slot) = self.rejections.slot() {
            tokio::spawn(async move { slot.reject(&client.stream, &name, &rejection).await });
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
            if self.passes_socket_memory(source) && self.has_room(source, now) {
                // who waits and passes is before it
                self.serve(deferred);
                self.level();
                if self.passes_socket_memory(source) {
                    return Ok(self.take_place_beside(now, source));
                }
            }
            if self.evict_silent_for(source, now, deferred) {
                return Ok(self.take_place(now, source));
            }
            if !self.has_room(source, now) {
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
        match self.admission.displace(&client.queued_by(), AcceptedClient::queued_by) {
            Some(other) => {
                deferred.refused.push(other);
                self.admission.wait(now, client.clone())
            }
            None => verdict,
        }
    }

    /// Whether the places kept for accounts leave one for a newcomer.
    fn has_room(&self, source: Option<Source>, now: Time) -> bool {
        source.is_none_or(|source| self.sources.has_room(now, source))
    }

    /// What else is low beside the kernel's socket memory, while that is.
    fn beside_socket_memory(&self) -> Option<Pressure> {
        let memory = Resource::SocketMemory;
        let low = self.pressure.snapshot()[memory as usize].low;
        low.then(|| self.pressure.with_enough(memory))
    }

    /// Whether only the kernel's socket memory is low, of which this source holds little.
    fn passes_socket_memory(&self, source: Option<Source>) -> bool {
        let holds_little = |source| self.socket_memory.admits(&Holder::Address(source));
        self.beside_socket_memory().is_some_and(|pressure| !pressure.low())
            && source.is_none_or(holds_little)
    }

    fn take_place_beside(&mut self, now: Time, source: Option<Source>) -> Arc<Place> {
        let holder = source.map(Holder::Address);
        holder.into_iter().for_each(|holder| self.socket_memory.on_admitted(now, holder));
        self.take_place(now, source)
    }

    /// Closes a silent connection of the largest source for a newcomer that finds no place.
    fn evict_silent_for(
        &mut self,
        source: Option<Source>,
        now: Time,
        deferred: &mut Deferred,
    ) -> bool {
        let room = self.has_room(source, now);
        let held = source.map_or(0, |source| self.sources.held(source));
        (!room || self.pressure.low()) && self.evict_silent(held, !room, deferred)
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
            if let Some((false, source)) = first
                && self.evict_silent_for(source, now, deferred)
            {
                if let Some(client) = self.admission.admit_first() {
                    self.admit_later(client, now, deferred);
                }
                continue;
            }
            let sources = &self.sources;
            let may = |client: &AcceptedClient| {
                client.source().is_none_or(|source| sources.has_room(now, source))
            };
            let idle = self.register.len();
            let next = self.admission.next_of(&self.pressure, idle, may);
            let Some((client, verdict)) = next.or_else(|| self.next_beside(now)) else { return };
            if client.is_gone() {
                continue;
            }
            if let AdmissionVerdict::Evict(n) = verdict {
                // idle connections may just have become active: the client is admitted all the
                // same, as promised
                self.evict(n, deferred);
            }
            self.admit_later(client, now, deferred);
        }
    }

    /// The next who waits for socket memory alone, of which its source holds little.
    fn next_beside(&mut self, now: Time) -> Option<(AcceptedClient, AdmissionVerdict)> {
        let pressure = self.beside_socket_memory()?;
        let (sources, memory) = (&self.sources, &self.socket_memory);
        let may = |client: &AcceptedClient| {
            let passes =
                |source| sources.has_room(now, source) && memory.admits(&Holder::Address(source));
            client.source().is_none_or(passes)
        };
        let next = self.admission.next_of(&pressure, 0, may)?;
        let holder = next.0.source().map(Holder::Address);
        holder.into_iter().for_each(|holder| self.socket_memory.on_admitted(now, holder));
        Some(next)
    }

    fn admit_later(&mut self, client: AcceptedClient, now: Time, deferred: &mut Deferred) {
        let place = self.take_place(now, client.source());
        deferred.admitted.push((client, place));
    }
}
