//! Places for streams of events, few in all, and shared by those who look.

use ekiden_linux::host::sync::locked;
use std::sync::{Arc, Mutex};
use tokio::sync::oneshot;

/// Streams at once; each takes one of the port's connections.
pub(super) const VIEWERS: usize = 16;

/// Who looks.
#[derive(Debug, Default)]
pub(super) struct Viewers(Mutex<State>);

/// The oldest first.
#[derive(Debug, Default)]
struct State {
    next: u64,
    open: Vec<Viewer>,
}

#[derive(Debug)]
struct Viewer {
    number: u64,
    /// Stands for who looks.
    caller: String,
    /// Dropped with the viewer, which ends the stream.
    _stays: oneshot::Sender<()>,
}

/// A place of a stream, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    viewers: Arc<Viewers>,
    number: u64,
    lost: oneshot::Receiver<()>,
}

impl Viewers {
    /// A place for another stream of a caller. Where all are taken, the oldest of whoever has most makes room, if that is
    /// more than the caller then has.
    pub(super) fn take(self: &Arc<Self>, caller: &str) -> Option<Place> {
        let (stays, lost) = oneshot::channel();
        let mut state = locked(&self.0);
        if state.open.len() >= VIEWERS {
            let held = |(at, viewer): (usize, &Viewer)| (at, state.held_by(&viewer.caller));
            let all = state.open.iter().enumerate().map(held);
            // of those that have equally many, the last is taken: the oldest
            let (oldest, most) = all.rev().max_by_key(|(_, held)| *held)?;
            if most <= state.held_by(caller) + 1 {
                return None;
            }
            state.open.remove(oldest);
        }
        let number = state.next;
        state.next += 1;
        state.open.push(Viewer { number, caller: caller.to_owned(), _stays: stays });
        Some(Place { viewers: Arc::clone(self), number, lost })
    }
}

impl State {
    fn held_by(&self, caller: &str) -> usize {
        self.open.iter().filter(|viewer| viewer.caller == caller).count()
    }
}

impl Place {
    /// Waits until another caller got this place.
    pub(super) async fn lost(&mut self) {
        // nothing is ever sent
        let _lost = (&mut self.lost).await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let number = self.number;
        locked(&self.viewers.0).open.retain(|viewer| viewer.number != number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_caller_leaves_places_to_others() {
        let viewers = Arc::new(Viewers::default());
        let mut one: Vec<Place> = (0..VIEWERS).map_while(|_| viewers.take("one")).collect();
        assert_eq!(one.len(), VIEWERS);
        assert!(viewers.take("one").is_none());
        let other: Vec<Place> = (0..VIEWERS).map_while(|_| viewers.take("other")).collect();
        assert_eq!(other.len(), VIEWERS / 2);
        let third = viewers.take("third").unwrap();
        assert_eq!(locked(&viewers.0).open.len(), VIEWERS);
        // the oldest ones were lost, and the newest are not
        for place in one.iter_mut().take(VIEWERS / 2) {
            place.lost().await;
        }
        let last = one.last_mut().unwrap();
        assert!(
            last.lost.try_recv().is_err_and(|error| error == oneshot::error::TryRecvError::Empty)
        );
        drop((one, other, third));
        assert_eq!(locked(&viewers.0).open.len(), 0);
    }
}
