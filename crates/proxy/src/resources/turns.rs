//! One at a time, in the order of a weight: the lightest first, of equals the first that came.

use ekiden_linux::host::sync::locked;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tokio::sync::oneshot;

/// The turns of all who wait. A turn that is given back goes to the next.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    taken: bool,
    /// The number of the next that comes.
    next: u64,
    waiting: BTreeMap<(u64, u64), oneshot::Sender<Turn>>,
}

/// Its drop gives the turn to the next, also where nobody received it.
#[derive(Debug)]
pub(super) struct Turn(Option<Arc<Turns>>);

/// Leaves the order where its caller gives up.
struct Waiting<'a> {
    turns: &'a Turns,
    key: (u64, u64),
}

impl Turns {
    pub(super) fn is_free(&self) -> bool {
        !locked(&self.0).taken
    }

    pub(super) async fn turn(self: &Arc<Self>, weight: u64) -> Turn {
        let (waiting, turn) = {
            let state = &mut *locked(&self.0);
            if !std::mem::replace(&mut state.taken, true) {
                return Turn(Some(Arc::clone(self)));
            }
            let key = (weight, state.next);
            state.next += 1;
            let (to, turn) = oneshot::channel();
            state.waiting.insert(key, to);
            (Waiting { turns: self, key }, turn)
        };
        let turn = turn.await;
        drop(waiting);
        // a sender is dropped by its own guard alone
        turn.unwrap_or(Turn(None))
    }

    fn pass_on(self: Arc<Self>) {
        let state = &mut *locked(&self.0);
        let mut turn = Turn(Some(Arc::clone(&self)));
        while let Some((_, to)) = state.waiting.pop_first() {
            match to.send(turn) {
                Ok(()) => return,
                Err(back) => turn = back,
            }
        }
        // not passed on again
        turn.0 = None;
        state.taken = false;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(turns) = self.0.take() {
            turns.pass_on();
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        locked(&self.turns.0).waiting.remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn lightest_goes_first_and_of_equals_the_first() {
        let turns = Arc::new(Turns::default());
        let Poll::Ready(first) = poll(pin!(turns.turn(9))) else { panic!("nobody has it") };
        let (mut heavy, mut light) = (pin!(turns.turn(46)), pin!(turns.turn(1)));
        let mut later = pin!(turns.turn(1));
        assert!(poll(heavy.as_mut()).is_pending());
        assert!(poll(light.as_mut()).is_pending());
        assert!(poll(later.as_mut()).is_pending());
        drop(first);
        assert!(poll(heavy.as_mut()).is_pending());
        assert!(poll(later.as_mut()).is_pending());
        let Poll::Ready(turn) = poll(light) else { panic!("the lightest") };
        drop(turn);
        let Poll::Ready(turn) = poll(later) else { panic!("the next") };
        drop(turn);
        assert!(poll(heavy).is_ready());
        assert!(turns.is_free());
    }

    #[test]
    fn a_turn_that_nobody_received_is_passed_on() {
        let turns = Arc::new(Turns::default());
        let Poll::Ready(first) = poll(pin!(turns.turn(0))) else { panic!("nobody has it") };
        let mut gone = Box::pin(turns.turn(1));
        let mut gone_before = Box::pin(turns.turn(2));
        let mut last = pin!(turns.turn(3));
        assert!(poll(gone.as_mut()).is_pending());
        assert!(poll(gone_before.as_mut()).is_pending());
        assert!(poll(last.as_mut()).is_pending());
        drop(gone_before);
        drop(first);
        // it was sent, and not received
        drop(gone);
        assert!(poll(last.as_mut()).is_ready());
        assert!(turns.is_free() && locked(&turns.0).waiting.is_empty());
    }
}
