//! News of a flow for the tasks that wait for them.

use ekiden_linux::host::sync::locked;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};
use tokio::sync::Notify;

/// What a task waits for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wanted {
    Bytes,
    Room,
    Break,
}

/// One task each may wait for bytes, for room and for a break, and one for anything.
#[derive(Debug, Default)]
pub(super) struct News {
    any: Notify,
    wakers: Mutex<[Option<Waker>; 3]>,
    shut: AtomicBool,
}

impl News {
    pub(super) fn ring(&self) {
        self.any.notify_one();
        let wakers = locked(&self.wakers).each_mut().map(Option::take);
        wakers.into_iter().flatten().for_each(Waker::wake);
    }

    pub(super) async fn any(&self) {
        self.any.notified().await;
    }

    /// Called before looking for what is wanted, so that nothing happens unseen in between.
    pub(super) fn wait_for(&self, wanted: Wanted, cx: &Context<'_>) {
        let waker = &mut locked(&self.wakers)[wanted as usize];
        match waker {
            Some(known) if known.will_wake(cx.waker()) => {}
            _ => *waker = Some(cx.waker().clone()),
        }
    }

    /// Ends the stream here, for its reader and its writer.
    pub(super) fn shut(&self) {
        self.shut.store(true, Ordering::Release);
        self.ring();
    }

    pub(super) fn is_shut(&self) -> bool {
        self.shut.load(Ordering::Acquire)
    }
}
