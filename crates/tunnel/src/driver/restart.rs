//! A thread that panics: its tunnels end, and it goes on without them.
//!
//! A panic in the midst of a step may leave the core's connections half changed, so none of them is used again. Every
//! tunnel of the thread is reported as down and every task that waits for one of its flows is woken, and finds the flow
//! lost. Relays that this one joined are connected to again, by a thread of their own. One that listens goes on with the same
//! socket and a core without connections; peers get a stateless reset at once and come again.
//!
//! That is sound, because the new core takes over values alone that no step leaves half changed: keys, limits, who is
//! admitted, and the last number of a tunnel. What threads of an address share are counters and small tables, each
//! behind a mutex of its own. The process does not end, because one peer's packets would then end the
//! connections of all clients. It ends where even this fails, so that the service manager starts it again. Builds with
//! `panic = "abort"` always end.
//!
//! A task that panics: see [`restarted`].

use super::{Shared, locked, thread};
use std::any::Any;
use std::future::poll_fn;
use std::net::UdpSocket;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::{Duration, Instant};

/// Before the thread goes on: a panic that comes again and again fills neither the log nor a processor.
const PAUSE: Duration = Duration::from_secs(1);
/// How often it is looked meanwhile whether the thread is to end.
const LOOK: Duration = Duration::from_millis(20);

/// Keeps the schedule until the driver is dropped.
pub(super) fn run(shared: &Shared, socket: &UdpSocket, dscp: [u8; 2]) {
    // all that a panic may leave half changed is forgotten
    while let Err(panic) = catch_unwind(AssertUnwindSafe(|| thread::run(shared, socket, dscp))) {
        let reason = format!("its thread panicked: {}", message(panic.as_ref()));
        tracing::error!(
            why = message(panic.as_ref()),
            "the thread of a tunnel panicked, which is a fault of this program: all tunnels of the thread end, and it begins anew"
        );
        if catch_unwind(AssertUnwindSafe(|| abandon(shared, &reason))).is_err() {
            tracing::error!(
                "the thread of a tunnel cannot begin anew after a panic: the program ends"
            );
            std::process::abort();
        }
        if pause(shared) {
            return;
        }
    }
}

/// Runs a task until it ends by itself, and begins it anew a second after each panic: one on which everybody depends must
/// not be missing until the next start. It shares with others only what is behind mutexes that outlive a panic.
pub async fn restarted<F>(what: &'static str, mut begin: impl FnMut() -> F)
where
    F: Future<Output = ()>,
{
    loop {
        let mut task = Box::pin(begin());
        // not in a task of its own, which would go on for a moment where this one is aborted
        let ended = poll_fn(|context| {
            match catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(context))) {
                Ok(polled) => polled.map(Ok),
                Err(panic) => Poll::Ready(Err(panic)),
            }
        });
        let Err(panic) = ended.await else { return };
        drop(task);
        tracing::error!(
            task = what,
            why = message(panic.as_ref()),
            "a task panicked, which is a fault of this program: it begins anew"
        );
        tokio::time::sleep(PAUSE).await;
    }
}

fn abandon(shared: &Shared, reason: &str) {
    let events = {
        let mut core = locked(&shared.core);
        core.abandon(reason);
        std::iter::from_fn(|| core.event()).collect()
    };
    shared.tell(events);
    shared.ring_all();
}

/// Whether the thread is to end.
fn pause(shared: &Shared) -> bool {
    let until = Instant::now() + PAUSE;
    loop {
        let ends = shared.stop.load(Ordering::Acquire);
        if ends || Instant::now() >= until {
            return ends;
        }
        std::thread::sleep(LOOK);
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no reason given")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    #[tokio::test]
    async fn a_task_that_panics_begins_anew_and_one_that_ends_does_not() {
        let begun = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&begun);
        restarted("a test", move || {
            let nth = counted.fetch_add(1, Ordering::Relaxed);
            async move { assert!(nth > 0, "a test asked for it") }
        })
        .await;
        assert_eq!(begun.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn a_task_ends_with_the_one_that_begins_it_anew() {
        let held = Arc::new(());
        let holds = Arc::clone(&held);
        let task = tokio::spawn(restarted("a test", move || {
            let holds = Arc::clone(&holds);
            async move {
                std::future::pending::<()>().await;
                drop(holds);
            }
        }));
        while Arc::strong_count(&held) < 3 {
            tokio::task::yield_now().await;
        }
        task.abort();
        while Arc::strong_count(&held) > 1 {
            tokio::task::yield_now().await;
        }
    }
}
