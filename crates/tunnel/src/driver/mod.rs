//! A core on a UDP socket: a thread keeps the schedule, tokio tasks move the bytes of flows.
//!
//! The thread sleeps until just before the next slot and spins for the rest, within its budget.
//! Datagrams wake it. Tasks lock the core for a moment, and wake the thread when data is to be
//! sent.
//!
//! A panic of the thread ends its tunnels, and nothing else (`restart.rs`).

mod carrier;
mod drain;
mod flow;
mod flow_io;
mod flow_stream;
mod flow_view;
mod news;
mod pacing;
mod peers;
mod restart;
mod send_batch;
mod siblings;
pub(crate) mod tcp_framing;
mod thread;

pub use crate::driver::drain::{DRAIN_WITHOUT_PROGRESS, wait_until_sent};
pub use crate::driver::flow::{Ended, Flow};
pub use crate::driver::flow_stream::FlowStream;
pub use crate::driver::flow_view::FlowView;
pub use crate::driver::peers::{
    Incoming, OpenError, Peers, Probe, Settings, StartError, TransportMode, TunnelStatus, probe,
};
pub use pacing::PacingError;

use crate::core::{Endpoint, Event, FlowId, TunnelId};
use crate::driver::carrier::CarrierEnd;
use crate::driver::news::News;
use crate::driver::siblings::Siblings;
use crate::frame::reason::Reason;
use bytes::Bytes;
use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use ekiden_model::units::Time;
use rustix::event::{EventfdFlags, eventfd};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc;

#[derive(Debug)]
struct Shared {
    core: Mutex<Endpoint>,
    /// Tasks that wait for events of a flow.
    waiting: Mutex<BTreeMap<FlowId, Arc<News>>>,
    /// Rung when the thread sleeps and something changed.
    bell: OwnedFd,
    asleep: AtomicBool,
    /// Until then, in nanoseconds; written with the core locked.
    until: AtomicU64,
    stop: AtomicBool,
    /// Events that concern no flow.
    events: mpsc::UnboundedSender<Event>,
    /// How late slots were kept.
    late: Mutex<PacingError>,
    /// Datagrams to these addresses go to carriers, and not to the socket.
    carriers: Mutex<BTreeMap<SocketAddr, mpsc::Sender<Bytes>>>,
    /// The other threads of its address.
    siblings: Siblings,
    /// A test wants the thread to panic.
    #[cfg(test)]
    panics: AtomicBool,
}

#[derive(Debug)]
struct Driver {
    shared: Arc<Shared>,
}

impl Driver {
    /// Begins to drive `core` on `socket`, with a DSCP for each lane.
    fn start(
        core: Endpoint,
        socket: UdpSocket,
        dscp: [u8; 2],
    ) -> io::Result<(Self, mpsc::UnboundedReceiver<Event>)> {
        let (driver, events) = Self::prepare(core, Siblings::default())?;
        driver.run(socket, dscp)?;
        Ok((driver, events))
    }

    /// Drives nothing yet.
    fn prepare(
        core: Endpoint,
        siblings: Siblings,
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
            carriers: Mutex::default(),
            siblings,
            #[cfg(test)]
            panics: AtomicBool::new(false),
        });
        Ok((Self { shared }, receiver))
    }

    fn run(&self, socket: UdpSocket, dscp: [u8; 2]) -> io::Result<()> {
        self.with(|core| core.set_dscp(dscp));
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name("tunnel".to_owned());
        thread.spawn(move || restart::run(&shared, &socket, dscp)).map(drop)
    }

    fn with<T>(&self, work: impl FnOnce(&mut Endpoint) -> T) -> T {
        self.shared.with(work)
    }

    /// An end for datagrams that come and go over a connection of TCP; `from` this address where another relay connected.
    fn carrier(&self, from: Option<IpAddr>) -> CarrierEnd {
        CarrierEnd::new(Arc::clone(&self.shared), from)
    }

    fn flow(&self, id: FlowId) -> Flow {
        let news = Arc::new(News::default());
        locked(&self.shared.waiting).insert(id, Arc::clone(&news));
        // earlier events come first
        news.ring();
        Flow::new(Arc::clone(&self.shared), id, news)
    }

    fn close(&self, tunnel: TunnelId, reason: &str) {
        let now = clock::now();
        self.with(|core| core.close(now, tunnel, reason));
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.shared.end();
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
        if self.asleep.swap(false, Ordering::SeqCst) {
            // the counter cannot be full: it is read before each sleep
            let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
        }
    }

    /// Lets the thread send its final frames and end.
    fn end(&self) {
        // before the thread looks whether it may sleep, or it is rung
        self.stop.store(true, Ordering::SeqCst);
        self.ring();
    }

    fn tell(&self, events: Vec<Event>) {
        for event in events {
            match event {
                Event::Flow(flow) => {
                    if let Some(news) = locked(&self.waiting).get(&flow) {
                        news.ring();
                    }
                }
                // nobody receives while the driver is being dropped
                other => drop(self.events.send(other)),
            }
        }
    }

    /// Wakes all that wait for a flow.
    fn ring_all(&self) {
        for news in locked(&self.waiting).values() {
            news.ring();
        }
    }

    fn forget(&self, flow: FlowId, give_up: bool) {
        locked(&self.waiting).remove(&flow);
        let now = clock::now();
        if give_up {
            let words = "given up".to_owned();
            self.with(|core| core.abort(now, flow, Reason::Closed, words));
        } else {
            self.with(|core| core.leave(now, flow));
        }
    }
}
