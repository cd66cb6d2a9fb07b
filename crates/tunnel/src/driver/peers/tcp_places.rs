//! Who may come over TCP: so many connections a second, and so many that carry no tunnel yet, with a share for each
//! address. Of those that a tunnel goes over, the two newest.

use crate::core::{Limits, TunnelId};
use crate::driver::locked;
use ekiden_model::resources::initial_rate::{self, Attempt, InitialRate};
use ekiden_model::resources::overload::{PendingPlaces, PlaceId, Source};
use ekiden_model::units::Time;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use tokio::sync::oneshot;

/// Connections that a tunnel may go over: one that broke and is not given up yet, and the one after it.
const OF_A_TUNNEL: usize = 2;

type Places = Arc<Mutex<PendingPlaces<oneshot::Sender<()>>>>;
/// What ends the connections that each tunnel goes over, the newest last.
type Claims = Arc<Mutex<BTreeMap<TunnelId, Vec<oneshot::Sender<()>>>>>;

/// Of one listener.
#[derive(Debug)]
pub(super) struct Door {
    /// A handshake of TLS costs as much as one of QUIC, and TCP has validated the address.
    rate: InitialRate,
    places: Places,
    claims: Claims,
    /// A test wants the next attempt to panic.
    #[cfg(test)]
    pub(super) panics: bool,
}

/// A place, until a tunnel goes over the connection or this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Places,
    claims: Claims,
    id: PlaceId,
    lost: oneshot::Receiver<()>,
}

/// A connection that a tunnel goes over, until this is dropped.
#[derive(Debug)]
pub(super) struct Claim {
    claims: Claims,
    tunnel: TunnelId,
    lost: oneshot::Receiver<()>,
}

impl Door {
    pub(super) fn new(now: Time, limits: &Limits) -> Self {
        let rate = InitialRate::new(initial_rate::Config::default(), now);
        let places = Arc::new(Mutex::new(PendingPlaces::new(limits.pending())));
        Self {
            rate,
            places,
            claims: Claims::default(),
            #[cfg(test)]
            panics: false,
        }
    }

    /// Somebody connected; `None` where the connection is to be closed.
    pub(super) fn on_attempt(&mut self, now: Time, from: IpAddr) -> Option<Place> {
        #[cfg(test)]
        assert!(!std::mem::take(&mut self.panics), "a test asked for it");
        let source = Source::from(from);
        if self.rate.on_attempt(now, source, true) != Attempt::Accept {
            return None;
        }
        let (gives_way, lost) = oneshot::channel();
        // whoever gives way learns it by the end of its channel
        let admitted = locked(&self.places).on_attempt(now, source, gives_way)?;
        let (places, claims) = (Arc::clone(&self.places), Arc::clone(&self.claims));
        Some(Place { places, claims, id: admitted.place, lost })
    }

    /// Connections that tunnels go over.
    #[cfg(test)]
    pub(super) fn claimed(&self) -> usize {
        let claims = locked(&self.claims);
        claims.values().flatten().filter(|gives_way| !gives_way.is_closed()).count()
    }
}

impl Place {
    /// Waits until another has it.
    pub(super) async fn lost(&mut self) {
        let _ = (&mut self.lost).await;
    }

    /// This tunnel goes over the connection. The place is free.
    pub(super) fn identified(self, now: Time, tunnel: TunnelId) -> Claim {
        locked(&self.places).on_identified(now, self.id);
        Claim::new(Arc::clone(&self.claims), tunnel)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = locked(&self.places).on_closed(self.id);
    }
}

impl Claim {
    fn new(claims: Claims, tunnel: TunnelId) -> Self {
        let (gives_way, lost) = oneshot::channel();
        let mut all = locked(&claims);
        all.retain(|_, claimed| {
            claimed.retain(|gives_way| !gives_way.is_closed());
            !claimed.is_empty()
        });
        let claimed = all.entry(tunnel).or_default();
        if claimed.len() >= OF_A_TUNNEL {
            claimed.remove(0);
        }
        claimed.push(gives_way);
        drop(all);
        Self { claims, tunnel, lost }
    }

    /// Waits until the tunnel goes over newer connections.
    pub(super) async fn lost(&mut self) {
        let _ = (&mut self.lost).await;
    }

    /// This tunnel goes over the connection now.
    pub(super) fn taken_over(self, tunnel: TunnelId) -> Self {
        if tunnel == self.tunnel { self } else { Self::new(self.claims, tunnel) }
    }
}
