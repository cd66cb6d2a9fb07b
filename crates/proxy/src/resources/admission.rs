//! Admission of clients: at once, after an eviction, or in turn. A waiting client holds only its
//! socket.

use super::Resources;
use crate::observe::registry::ConnectionEntry;
use crate::resources::arrival::TunnelArrival;
use crate::transfer::rejection::{Rejection, can_reject, reject};
use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use ekiden_model::resources::overload::AdmissionVerdict;
use ekiden_model::units::Span;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use tokio::net::TcpStream;

#[derive(Debug, Clone)]
pub(crate) struct AcceptedClient {
    pub(crate) stream: Arc<TcpStream>,
    pub(crate) address: SocketAddr,
    /// The flow whose outer end this is, where the connection came out of a tunnel.
    pub(crate) arrival: Option<Arc<TunnelArrival>>,
}

/// A client's share of the connection limit. Its drop makes room for another client.
#[derive(Debug)]
pub(crate) struct AdmissionPermit {
    resources: Arc<Resources>,
    entry: OnceLock<Arc<ConnectionEntry>>,
}

impl AdmissionPermit {
    /// A permit that was counted before.
    pub(super) fn counted(resources: &Arc<Resources>) -> Self {
        Self { resources: Arc::clone(resources), entry: OnceLock::new() }
    }

    pub(crate) fn assign_to(&self, entry: &Arc<ConnectionEntry>) {
        // set once, at the beginning
        let _ = self.entry.set(Arc::clone(entry));
    }
}

impl Drop for AdmissionPermit {
    fn drop(&mut self) {
        let entry = self.entry.get();
        self.resources.change(|state, deferred| {
            if let Some(entry) = entry {
                state.unpark(entry.id);
            }
            // the permit of an evicted connection was passed on at its eviction
            if !entry.is_some_and(|entry| entry.evicted.load(Relaxed)) {
                state.clients -= 1;
            }
            state.serve(deferred);
        });
    }
}

impl AcceptedClient {
    pub(super) fn is_gone(&self) -> bool {
        let mut byte = [std::mem::MaybeUninit::uninit()];
        match socket2::SockRef::from(&*self.stream).peek(&mut byte) {
            Ok(n) => n == 0,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        }
    }
}

impl Resources {
    pub(crate) fn inner_permit(self: &Arc<Self>) -> Option<AdmissionPermit> {
        let room = self.make_room()?;
        locked(&self.state).clients += 1;
        drop(room);
        Some(AdmissionPermit::counted(self))
    }

    /// Admits a client at once and returns its permit; otherwise the client waits or is rejected.
    pub(crate) fn admit(self: &Arc<Self>, client: &AcceptedClient) -> Option<AdmissionPermit> {
        let verdict = self.change(|state, deferred| {
            loop {
                state.level();
                let idle = state.register.len();
                let verdict =
                    state.admission.ask(clock::now(), client.clone(), &state.pressure, idle);
                match verdict {
                    // all idle connections became active at this moment: asked again, without them
                    AdmissionVerdict::Evict(n) if state.evict(n, deferred) == 0 => continue,
                    AdmissionVerdict::Proceed | AdmissionVerdict::Evict(_) => state.clients += 1,
                    AdmissionVerdict::Wait(_) => {}
                    AdmissionVerdict::Refuse { .. } => state.count_refusal(),
                }
                return verdict;
            }
        });
        match verdict {
            AdmissionVerdict::Proceed | AdmissionVerdict::Evict(_) => {
                Some(AdmissionPermit::counted(self))
            }
            AdmissionVerdict::Wait(_) => None,
            AdmissionVerdict::Refuse { retry_after } => {
                self.refuse(client.clone(), retry_after);
                None
            }
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
        let name = Arc::clone(&locked(&self.state).name);
        let text = "all connections are in use".to_owned();
        let rejection = Rejection { status: 503, text, retry_after: Some(retry_after) };
        if can_reject() {
            tokio::spawn(async move { reject(&client.stream, &name, &rejection).await });
        }
    }
}
