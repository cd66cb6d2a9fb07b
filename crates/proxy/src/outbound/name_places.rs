//! Places of lookups by plain servers, each of which takes sockets.

use crate::settings::Budgets;
use ekiden_linux::host::sync::locked;
use ekiden_model::dns::{Asker, Places};
use std::convert::Infallible;
use std::sync::Mutex;
use tokio::sync::oneshot;

/// The drop of a sender tells that the place gave way.
#[derive(Debug)]
pub(crate) struct NamePlaces(Mutex<Places<oneshot::Sender<Infallible>>>);

/// A lookup's place, until it is dropped.
#[derive(Debug)]
pub(super) struct NamePlace<'a> {
    places: &'a NamePlaces,
    asker: &'a Asker,
    number: u64,
    gone: oneshot::Receiver<Infallible>,
}

impl NamePlaces {
    pub(crate) fn new(budgets: &Budgets) -> Self {
        let [clients, own] = [budgets.lookups, budgets.own_lookups()].map(|most| most as usize);
        Self(Mutex::new(Places::new(clients, own)))
    }

    /// There always is one. The oldest of whoever has the most may give way to it.
    pub(super) fn take<'a>(&'a self, asker: &'a Asker) -> NamePlace<'a> {
        let (sender, gone) = oneshot::channel();
        let (number, displaced) = locked(&self.0).take(asker, sender);
        drop(displaced);
        NamePlace { places: self, asker, number, gone }
    }
}

impl NamePlace<'_> {
    /// Returns once the place has given way to another's.
    pub(super) async fn gave_way(&mut self) {
        // nothing is ever sent
        let _ = (&mut self.gone).await;
    }
}

impl Drop for NamePlace<'_> {
    fn drop(&mut self) {
        let _sender = locked(&self.places.0).give(self.asker, self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot::error::TryRecvError::{Closed, Empty};

    #[test]
    fn places_that_are_given_back_take_nobody_elses() {
        let places = NamePlaces::new(&Budgets { lookups: 2, ..Budgets::default() });
        let asker = Asker::Account(1);
        let mut first = places.take(&asker);
        for _ in 0..3 {
            drop(places.take(&asker));
        }
        let mut second = places.take(&asker);
        assert_eq!(first.gone.try_recv(), Err(Empty));
        let third = places.take(&asker);
        assert_eq!(first.gone.try_recv(), Err(Closed));
        // one that gave way has none to give back
        drop(first);
        drop(third);
        let _fourth = places.take(&asker);
        assert_eq!(second.gone.try_recv(), Err(Empty));
        let _own = places.take(&Asker::Relay);
        assert_eq!(second.gone.try_recv(), Err(Empty), "the relay's own is apart");
    }
}
