//! Uploads that nobody takes. Their bytes fill the window that all streams of a connection share, so each gets a window of
//! its own beside that, while there is memory.

use crate::resources::HeldMemory;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::Notify;

/// Bytes that are not taken for so long stall others.
pub(super) const STALLED: Duration = Duration::from_millis(200);

/// The stalled uploads of one connection.
#[derive(Debug, Default)]
pub(super) struct SlowStreams {
    count: AtomicU32,
    changed: Notify,
}

/// One of them, and the memory of its window. Its drop says that it goes on.
pub(super) struct SlowStream {
    of: Arc<SlowStreams>,
    _window: HeldMemory,
}

impl SlowStreams {
    /// An upload has stalled.
    pub(super) fn begin(self: &Arc<Self>, window: HeldMemory) -> SlowStream {
        self.count.fetch_add(1, Relaxed);
        self.changed.notify_one();
        SlowStream { of: Arc::clone(self), _window: window }
    }

    pub(super) fn count(&self) -> u32 {
        self.count.load(Relaxed)
    }

    /// Until there are more or fewer.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }
}

impl Drop for SlowStream {
    fn drop(&mut self) {
        self.of.count.fetch_sub(1, Relaxed);
        self.of.changed.notify_one();
    }
}
