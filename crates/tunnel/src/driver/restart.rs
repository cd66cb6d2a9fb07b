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
//! A task that panics: see [`ekiden_linux::host::panics`].

use super::{Shared, locked, thread};
use ekiden_linux::host::panics::message;
use std::net::UdpSocket;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
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
