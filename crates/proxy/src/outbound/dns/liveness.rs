//! Whether a connection still carries replies. One whose network went away does not say so.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::time::Instant;

/// A question that was given up earlier gave way to others, which says nothing of the connection.
const LONG: Duration = Duration::from_secs(1);

/// What the questions of one connection know of it.
#[derive(Debug, Default)]
pub(super) struct Liveness {
    replies: AtomicU64,
    /// It broke, or a question had no reply in time while nothing else came.
    dead: AtomicBool,
}

/// A question on its way. Where it is given up, and nothing has come since it began, the connection is taken for dead.
pub(super) struct Waiting<'a> {
    liveness: &'a Liveness,
    replies: u64,
    begun: Instant,
}

impl Liveness {
    /// A question begins; it ends with the drop of the result.
    pub(super) fn on_question(&self) -> Waiting<'_> {
        Waiting { liveness: self, replies: self.replies.load(Relaxed), begun: Instant::now() }
    }

    /// Something came. Whatever it is, the server is there.
    pub(super) fn on_reply(&self) {
        self.replies.fetch_add(1, Relaxed);
    }

    pub(super) fn on_broken(&self) {
        self.dead.store(true, Relaxed);
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead.load(Relaxed)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let replies = self.liveness.replies.load(Relaxed);
        if replies == self.replies && self.begun.elapsed() >= LONG {
            self.liveness.on_broken();
        }
    }
}
