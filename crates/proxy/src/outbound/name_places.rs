//! Places of lookups of destinations' names, and a line of those that wait for one.

use crate::settings::Budgets;
use ekiden_linux::host::sync::locked;
use ekiden_model::dns::{Asker, Places, Standing};
use ekiden_model::units::{Span, Time};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// Lookups in the line; of this relay as many again.
const MOST_WAITING: usize = 4_096;

#[derive(Debug)]
pub(crate) struct NamePlaces {
    /// Who is told looks how it stands.
    places: Mutex<Places<Arc<Notify>>>,
    origin: Instant,
}

/// A lookup's place, or its wait for one, until it is dropped.
#[derive(Debug)]
struct NamePlace<'a> {
    all: &'a NamePlaces,
    asker: &'a Asker,
    number: u64,
    told: Arc<Notify>,
}

impl NamePlaces {
    pub(crate) fn new(budgets: &Budgets) -> Self {
        let [clients, own] = [budgets.lookups, budgets.own_lookups()].map(|most| most as usize);
        let places = Mutex::new(Places::new(clients, own, MOST_WAITING));
        Self { places, origin: Instant::now() }
    }

    /// Lookups that wait for a place.
    pub(crate) fn waiting(&self) -> usize {
        locked(&self.places).waiting()
    }

    /// Looks up in a place of `asker`, for which it waits as long as a third of `limit` is left. `waits` is called where it
    /// has to wait. If another asker's takes the place, the lookup begins anew. `None`: it had no place in time, or one that
    /// an own one took after a third of `limit`.
    pub(crate) async fn look<T, F: Future<Output = T>>(
        &self,
        asker: &Asker,
        limit: Duration,
        waits: impl Fn(),
        look: impl Fn() -> F,
    ) -> Option<T> {
        let patience = limit / 3;
        let end = Instant::now() + (limit - patience);
        let mut again = false;
        loop {
            let place = self.take(asker, patience.into(), again);
            if place.standing() == Standing::Waiting {
                waits();
                timeout_at(end, place.stands_no_longer(Standing::Waiting)).await.ok()?;
                // others that wait less have its turn
                if place.standing() == Standing::Gone {
                    return None;
                }
            }
            let old_at = Instant::now() + patience;
            // dropped before its place, which is thus given back once the sockets are closed
            let mut looking = pin!(look());
            tokio::select! {
                found = &mut looking => return Some(found),
                () = place.lost(old_at) => {}
            }
            if Instant::now() >= old_at {
                return None;
            }
            again = true;
        }
    }

    fn take<'a>(&'a self, asker: &'a Asker, patience: Span, again: bool) -> NamePlace<'a> {
        let holder = Arc::new(Notify::new());
        let told = Arc::clone(&holder);
        let (number, others) =
            locked(&self.places).take(self.now(), asker, patience, again, holder);
        tell(others);
        NamePlace { all: self, asker, number, told }
    }

    /// By the clock of timers.
    fn now(&self) -> Time {
        Time::ZERO + Span::from(self.origin.elapsed())
    }
}

fn tell(told: impl IntoIterator<Item = Arc<Notify>>) {
    told.into_iter().for_each(|one| one.notify_one());
}

impl NamePlace<'_> {
    fn standing(&self) -> Standing {
        locked(&self.all.places).standing(self.asker, self.number)
    }

    async fn stands_no_longer(&self, so: Standing) {
        while self.standing() == so {
            self.told.notified().await;
        }
    }

    /// Returns once the place has given way to another's. `old_at`: when it is old.
    async fn lost(&self, old_at: Instant) {
        if timeout_at(old_at, self.stands_no_longer(Standing::Placed)).await.is_err() {
            let told = locked(&self.all.places).on_old(self.all.now(), self.asker);
            tell(told);
            self.stands_no_longer(Standing::Placed).await;
        }
    }
}

impl Drop for NamePlace<'_> {
    fn drop(&mut self) {
        let next = locked(&self.all.places).give(self.all.now(), self.asker, self.number);
        tell(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::task::{JoinHandle, yield_now};
    use tokio::time::sleep;

    const LIMIT: Duration = Duration::from_secs(3);
    const QUICK: Duration = Duration::from_millis(300);
    const SLOW: Duration = Duration::from_secs(100);

    fn places(lookups: u32) -> Arc<NamePlaces> {
        Arc::new(NamePlaces::new(&Budgets { lookups, ..Budgets::default() }))
    }

    /// A lookup that takes so long: whether it ended.
    fn look(places: &Arc<NamePlaces>, asker: &Asker, takes: Duration) -> JoinHandle<bool> {
        let (places, asker) = (Arc::clone(places), asker.clone());
        tokio::spawn(
            async move { places.look(&asker, LIMIT, || {}, || sleep(takes)).await.is_some() },
        )
    }

    /// All that can go on without a later time has gone on.
    async fn settle() {
        for _ in 0..100 {
            yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn lookups_beyond_the_places_wait_and_those_that_leave_hold_nothing() {
        let (places, asker) = (places(2), Asker::Account(1));
        let all: Vec<_> = (0..10).map(|_| look(&places, &asker, QUICK)).collect();
        let own = look(&places, &Asker::Relay, QUICK);
        settle().await;
        assert_eq!(places.waiting(), 8, "the relay's own is apart");
        all[1].abort();
        all[9].abort();
        for (nth, one) in all.into_iter().enumerate() {
            assert_eq!(one.await.ok(), (nth != 1 && nth != 9).then_some(true));
        }
        assert!(own.await.unwrap());
        assert_eq!(places.waiting(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn an_old_place_goes_to_the_next_of_its_asker_and_one_that_others_took_comes_again() {
        let (places, [one, other]) = (places(2), [1, 2].map(Asker::Account));
        let (first, second) = (look(&places, &one, SLOW), look(&places, &one, QUICK));
        settle().await;
        let others = look(&places, &other, QUICK);
        settle().await;
        assert_eq!(places.waiting(), 1, "the first waits for the next one");
        assert!(others.await.unwrap() && second.await.unwrap() && !first.is_finished());
        // of two slow ones the older one gives way once it is old, to one that waits
        let third = look(&places, &one, SLOW);
        settle().await;
        let fourth = look(&places, &one, QUICK);
        assert!(!first.await.unwrap());
        assert!(fourth.await.unwrap());
        // while nobody waits it may take its time
        sleep(LIMIT).await;
        assert!(!third.is_finished());
        let _fills = look(&places, &other, SLOW);
        settle().await;
        assert!(look(&places, &one, QUICK).await.unwrap() && !third.await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn a_lookup_that_has_waited_for_too_long_ends() {
        let places = places(1);
        // each takes the one place, but none that had it before
        let all: Vec<_> = (0..9).map(|n| look(&places, &Asker::Account(n), SLOW)).collect();
        settle().await;
        assert_eq!(places.waiting(), 8);
        sleep(LIMIT).await;
        assert_eq!(places.waiting(), 0);
        assert_eq!(all.iter().filter(|one| one.is_finished()).count(), 8);
    }
}
