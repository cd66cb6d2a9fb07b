//! Who may come over TCP: so many connections a second, and so many that carry no tunnel yet, with a share for each
//! address.

use crate::core::Limits;
use crate::driver::locked;
use ekiden_model::resources::initial_rate::{self, Attempt, InitialRate};
use ekiden_model::resources::overload::{PendingPlaces, PlaceId, Source};
use ekiden_model::units::Time;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use tokio::sync::oneshot;

type Places = Arc<Mutex<PendingPlaces<oneshot::Sender<()>>>>;

/// Of one listener.
#[derive(Debug)]
pub(super) struct Door {
    /// A handshake of TLS costs as much as one of QUIC, and TCP has validated the address.
    rate: InitialRate,
    places: Places,
}

/// A place, until a tunnel goes over the connection or this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Places,
    id: PlaceId,
    lost: oneshot::Receiver<()>,
}

impl Door {
    pub(super) fn new(now: Time, limits: &Limits) -> Self {
        let rate = InitialRate::new(initial_rate::Config::default(), now);
        Self { rate, places: Arc::new(Mutex::new(PendingPlaces::new(limits.pending()))) }
    }

    /// Somebody connected; `None` where the connection is to be closed.
    pub(super) fn on_attempt(&mut self, now: Time, from: IpAddr) -> Option<Place> {
        let source = Source::from(from);
        if self.rate.on_attempt(now, source, true) != Attempt::Accept {
            return None;
        }
        let (gives_way, lost) = oneshot::channel();
        // whoever gives way learns it by the end of its channel
        let admitted = locked(&self.places).on_attempt(now, source, gives_way)?;
        Some(Place { places: Arc::clone(&self.places), id: admitted.place, lost })
    }
}

impl Place {
    /// Waits until another has it.
    pub(super) async fn lost(&mut self) {
        let _ = (&mut self.lost).await;
    }

    /// A tunnel goes over the connection.
    pub(super) fn identified(self, now: Time) {
        locked(&self.places).on_identified(now, self.id);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = locked(&self.places).on_closed(self.id);
    }
}
