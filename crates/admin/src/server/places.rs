//! A bounded number of places; a newcomer takes the one that was silent longest.

use ekiden_linux::host::sync::locked;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

#[derive(Debug)]
pub(super) struct Places {
    most: usize,
    state: Mutex<State>,
    /// One was given back, or fell silent.
    freed: Notify,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    /// By number: when it fell silent, or none while it is answered; and how it learns that it lost its place.
    held: BTreeMap<u64, (Option<u64>, Arc<Notify>)>,
}

/// A place; given back when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    state: PlaceState,
    lost: Arc<Notify>,
}

/// Marks a place as silent or not.
#[derive(Debug, Clone)]
pub(super) struct PlaceState {
    places: Arc<Places>,
    number: u64,
}

/// A request is being answered for as long as this lives.
#[derive(Debug)]
pub(super) struct Answering(PlaceState);

impl Places {
    pub(super) fn new(most: usize) -> Self {
        Self { most, state: Mutex::default(), freed: Notify::new() }
    }

    /// Waits only while all are being answered.
    pub(super) async fn take(places: &Arc<Self>) -> Place {
        loop {
            let freed = places.freed.notified();
            if let Some(place) = Self::try_take(places) {
                return place;
            }
            freed.await;
        }
    }

    fn try_take(places: &Arc<Self>) -> Option<Place> {
        let mut state = locked(&places.state);
        if state.held.len() >= places.most {
            let silent = |(number, (since, _)): (&u64, &(Option<u64>, Arc<Notify>))| {
                since.map(|since| (since, *number))
            };
            let (_, longest) = state.held.iter().filter_map(silent).min()?;
            if let Some((_, lost)) = state.held.remove(&longest) {
                lost.notify_one();
            }
        }
        let (number, lost) = (state.next, Arc::new(Notify::new()));
        state.next += 1;
        state.held.insert(number, (Some(number), Arc::clone(&lost)));
        Some(Place { state: PlaceState { places: Arc::clone(places), number }, lost })
    }
}

impl Place {
    /// Returns when the place was taken away.
    pub(super) async fn lost(&self) {
        self.lost.notified().await;
    }

    pub(super) fn state(&self) -> PlaceState {
        self.state.clone()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        locked(&self.state.places.state).held.remove(&self.state.number);
        self.state.places.freed.notify_one();
    }
}

impl PlaceState {
    /// Keeps the place while a request is answered.
    pub(super) fn answer(&self) -> Answering {
        if let Some((since, _)) = locked(&self.places.state).held.get_mut(&self.number) {
            *since = None;
        }
        Answering(self.clone())
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        let PlaceState { places, number } = &self.0;
        let mut state = locked(&places.state);
        let now = state.next;
        state.next += 1;
        if let Some((since, _)) = state.held.get_mut(number) {
            *since = Some(now);
        }
        drop(state);
        places.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::{Context, Poll, Waker};

    fn is_lost(place: &Place) -> bool {
        let lost = std::pin::pin!(place.lost());
        lost.poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
    }

    #[test]
    fn a_newcomer_takes_the_place_that_was_silent_longest() {
        let places = Arc::new(Places::new(3));
        let take = || Places::try_take(&places);
        let held = [take(), take(), take()].map(Option::unwrap);
        // the first has just had its answer, the second waits for one
        drop(held[0].state().answer());
        let answering = held[1].state().answer();
        let fourth = take().unwrap();
        assert_eq!(held.each_ref().map(is_lost), [false, false, true]);
        let fifth = take().unwrap();
        assert_eq!(held.each_ref().map(is_lost), [true, false, false]);
        let answered = [&fourth, &fifth].map(|place| place.state().answer());
        assert!(take().is_none(), "all are being answered");
        drop(answering);
        assert!(take().is_some());
        assert!(is_lost(&held[1]));
        drop((held, answered, fourth, fifth));
        assert!(locked(&places.state).held.is_empty());
    }

    #[tokio::test]
    async fn a_place_that_is_given_back_wakes_who_waits() {
        let places = Arc::new(Places::new(1));
        let first = Places::take(&places).await;
        let answering = first.state().answer();
        let waits = tokio::spawn({
            let places = Arc::clone(&places);
            async move { drop(Places::take(&places).await) }
        });
        tokio::task::yield_now().await;
        drop((first, answering));
        waits.await.unwrap();
    }
}
