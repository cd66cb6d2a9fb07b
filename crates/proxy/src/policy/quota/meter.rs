//! The meter of one direction of a connection.

use super::AccountConnection;
use ekiden_model::resources::quota::Direction;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// How much one direction of a connection may read. An unlimited direction costs a branch.
#[derive(Debug, Default)]
pub(crate) struct Meter(Option<MeterState>);

#[derive(Debug)]
struct MeterState {
    connection: Arc<AccountConnection>,
    direction: Direction,
    /// It asked, and waits for its turn.
    waits: bool,
    /// It has a grant whose use it has not reported.
    granted: bool,
}

impl Meter {
    pub(crate) fn new(connection: Option<&Arc<AccountConnection>>, direction: Direction) -> Self {
        Self(connection.map(|connection| MeterState {
            connection: Arc::clone(connection),
            direction,
            waits: false,
            granted: false,
        }))
    }

    /// Whether anything is metered.
    pub(crate) const fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// How many of `want` bytes may be read now; [`Meter::on_moved`] follows. Fails as
    /// [`AccountConnection::poll_grant`] does.
    pub(crate) fn poll_grant(
        &mut self,
        cx: &mut Context<'_>,
        want: usize,
    ) -> Poll<io::Result<usize>> {
        let Some(state) = &mut self.0 else { return Poll::Ready(Ok(want)) };
        state.waits = true;
        let grant = ready!(state.connection.poll_grant(cx, state.direction, want));
        state.waits = false;
        state.granted = grant.is_ok();
        Poll::Ready(grant)
    }

    /// Of the granted bytes, this many were read.
    pub(crate) fn on_moved(&mut self, bytes: usize) {
        if let Some(state) = self.0.as_mut().filter(|state| state.granted) {
            state.granted = false;
            state.connection.on_moved(state.direction, bytes);
        }
    }

    /// Nothing is left to read: gives up a turn that it waits for.
    pub(crate) fn rest(&mut self) {
        if let Some(state) = self.0.as_mut().filter(|state| state.waits) {
            state.waits = false;
            state.connection.rest(state.direction);
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.on_moved(0);
        self.rest();
    }
}

/// Gives up a turn when the wait for it is dropped.
pub(super) struct RestOnDrop<'a>(pub(super) &'a AccountConnection, pub(super) Direction);

impl Drop for RestOnDrop<'_> {
    fn drop(&mut self) {
        self.0.rest(self.1);
    }
}
