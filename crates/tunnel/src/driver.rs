//! A core on a UDP socket: a thread of its own keeps the schedule, tasks of tokio carry flows.
//!
//! The thread sleeps until just before the next slot and spins the rest, as far as its budget for that
//! goes; what comes meanwhile wakes it. Tasks take the core for a moment to hand over bytes or take them,
//! and ring when something new is to be sent.

mod carry;
mod outbox;
mod pacing;
mod relays;
mod thread;

pub use carry::{Ended, Flow};
pub use pacing::PacingError;
pub use relays::{Carrier, Incoming, OpenError, Relays, Settings, StartError, TunnelStatus};

use crate::core::{Endpoint, Event, FlowId, TunnelId};
use crate::reason::Reason;
use ekiden_linux::clock;
use ekiden_model::units::Time;
use rustix::event::{EventfdFlags, eventfd};
use std::collections::BTreeMap;
use std::io;
use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, mpsc};

/// What thread and tasks share.
#[derive(Debug)]
struct Shared {
    core: Mutex<Endpoint>,
    /// Who waits for news of a flow.
    waiting: Mutex<BTreeMap<FlowId, Arc<Notify>>>,
    /// Rung when the thread sleeps and something changed.
    bell: OwnedFd,
    asleep: AtomicBool,
    /// Until then, in nanoseconds; written with the core locked.
    until: AtomicU64,
    stop: AtomicBool,
    /// What is not about a flow.
    events: mpsc::UnboundedSender<Event>,
    /// How late slots were kept.
    late: Mutex<PacingError>,
}

/// A socket with its thread; it ends when this is dropped.
#[derive(Debug)]
struct Driver {
    shared: Arc<Shared>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Driver {
    /// Begins to drive `core` on `socket`, with a DSCP for each lane.
    fn start(
        core: Endpoint,
        socket: UdpSocket,
        dscp: [u8; 2],
    ) -> io::Result<(Self, mpsc::UnboundedReceiver<Event>)> {
        let (events, receiver) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            core: Mutex::new(core),
            waiting: Mutex::default(),
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            asleep: AtomicBool::new(false),
            until: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            events,
            late: Mutex::default(),
        });
        let for_thread = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("tunnel".to_owned())
            .spawn(move || thread::run(&for_thread, &socket, dscp))?;
        Ok((Self { shared }, receiver))
    }

    /// The core, for a moment; the thread looks at it again afterwards.
    fn with<T>(&self, work: impl FnOnce(&mut Endpoint) -> T) -> T {
        self.shared.with(work)
    }

    /// A flow that is there, for tokio.
    fn flow(&self, id: FlowId) -> Flow {
        let news = Arc::new(Notify::new());
        locked(&self.shared.waiting).insert(id, Arc::clone(&news));
        // what happened before this is looked at first
        news.notify_one();
        Flow::new(Arc::clone(&self.shared), id, news)
    }

    /// Says that a tunnel is over, and why.
    fn close(&self, tunnel: TunnelId, reason: &str) {
        let now = clock::now();
        self.with(|core| core.close(now, tunnel, reason));
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.ring();
    }
}

impl Shared {
    fn with<T>(&self, work: impl FnOnce(&mut Endpoint) -> T) -> T {
        let mut core = locked(&self.core);
        let result = work(&mut core);
        // where it is awake it looks before it sleeps; where it wakes in time, being rung costs both more than the rest
        let until = Time::from_nanos(self.until.load(Ordering::Acquire));
        let rings = self.asleep.load(Ordering::Acquire)
            && (core.has_happened() || core.deadline(clock::now()) < until);
        drop(core);
        if rings {
            self.ring();
        }
        result
    }

    fn ring(&self) {
        if self.asleep.swap(false, Ordering::AcqRel) {
            // the counter cannot be full: it is read before each sleep
            let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
        }
    }

    /// Hands on what happened.
    fn tell(&self, events: Vec<Event>) {
        for event in events {
            match event {
                Event::Flow(flow) => {
                    if let Some(news) = locked(&self.waiting).get(&flow) {
                        news.notify_one();
                    }
                }
                // nobody listens while the driver is being ended
                other => drop(self.events.send(other)),
            }
        }
    }

    fn forget(&self, flow: FlowId, give_up: bool) {
        locked(&self.waiting).remove(&flow);
        if give_up {
            let now = clock::now();
            let words = "given up".to_owned();
            self.with(|core| core.abort(now, flow, Reason::Closed, words));
        }
    }
}
