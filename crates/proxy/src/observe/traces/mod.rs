//! Traces of connections: which are taken, and those that wait to be sent to a collector.
//!
//! A connection costs one load while traces are off. What waits is bounded; a collector that is away holds nothing
//! back, and what finds no room is dropped and counted.

mod parent;
mod trace;

pub(crate) use parent::TraceParent;
pub use trace::{FinishedTrace, Phase, PhaseKind};
pub(crate) use trace::{Trace, TraceEnd};

use crate::observe::status::TracesStatus;
use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use ekiden_model::rng::Rng;
use ekiden_model::units::{Share, Time};
use std::collections::VecDeque;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

/// Traces that wait at most: some kilobytes each.
const ROOM: usize = 2048;
/// Traces that begin in a second at most. Clients may ask for one each, by `traceparent`.
const A_SECOND: u32 = 200;
const SECOND: u64 = 1_000_000_000;

/// Decides which connections are traced, and keeps their traces until they are sent.
#[derive(Debug)]
pub struct TraceQueue {
    /// Parts per 10⁹ of connections; 0 while traces are off.
    share: AtomicU64,
    inner: Mutex<Inner>,
    more: Notify,
}

#[derive(Debug)]
struct Inner {
    rng: Rng,
    /// The second that `begun` counts, since the clock's origin.
    second: u64,
    begun: u32,
    waiting: VecDeque<FinishedTrace>,
    status: TracesStatus,
}

impl Default for TraceQueue {
    fn default() -> Self {
        let inner = Inner {
            rng: Rng::new(RandomState::new().hash_one(std::process::id())),
            second: 0,
            begun: 0,
            waiting: VecDeque::new(),
            status: TracesStatus::default(),
        };
        Self { share: AtomicU64::new(0), inner: Mutex::new(inner), more: Notify::new() }
    }
}

impl TraceQueue {
    /// Which share of connections is traced from now on, and to where in words; with `None` none are, and those that
    /// wait are forgotten.
    pub fn follow(&self, collector: Option<(Share, String)>) {
        let mut inner = locked(&self.inner);
        let (share, endpoint) = match collector {
            Some((share, endpoint)) => (share.as_parts_per_billion(), Some(endpoint)),
            None => (0, None),
        };
        if endpoint.is_none() {
            inner.waiting = VecDeque::new();
            inner.status.last_error = None;
        }
        inner.status.endpoint = endpoint;
        self.share.store(share, Relaxed);
    }

    /// Waits until a trace waits to be sent.
    pub async fn wait(&self) {
        loop {
            let more = self.more.notified();
            if !locked(&self.inner).waiting.is_empty() {
                return;
            }
            more.await;
        }
    }

    /// The oldest traces that wait, at most `most`.
    pub fn take(&self, most: usize) -> Vec<FinishedTrace> {
        let waiting = &mut locked(&self.inner).waiting;
        let n = most.min(waiting.len());
        waiting.drain(..n).collect()
    }

    /// What became of a batch: sent, or why not; `gone` is the number of traces that were given up.
    pub fn on_sent(&self, sent: u64, gone: u64, error: Option<String>) {
        let status = &mut locked(&self.inner).status;
        status.sent += sent;
        status.dropped += gone;
        status.last_error = error;
    }

    /// The begin of a request or tunnel to `host` and `port`, if it is traced. A client's own trace decides where it has
    /// one, else the share.
    pub(crate) fn begin(
        &self,
        parent: Option<TraceParent>,
        server: (String, u16),
    ) -> Option<Arc<Trace>> {
        let share = self.share.load(Relaxed);
        if share == 0 || parent.as_ref().is_some_and(|parent| !parent.sampled) {
            return None;
        }
        let now = clock::now();
        let mut inner = locked(&self.inner);
        let id = match &parent {
            Some(parent) => parent.trace_id,
            None => {
                let random = inner.rng.next_u64();
                if !is_taken(random, share) {
                    return None;
                }
                (u128::from(inner.rng.next_u64()) << 64) | u128::from(random)
            }
        };
        if !inner.has_room(now) {
            inner.status.dropped += 1;
            return None;
        }
        inner.status.begun += 1;
        // odd, so that it is not zero
        let span = inner.rng.next_u64() | 1;
        let parent = parent.map(|parent| parent.span_id);
        Some(Arc::new(Trace::new((id, span, parent), server, now)))
    }

    /// Puts a finished trace with those that wait.
    pub(crate) fn finish(&self, trace: &Trace, client: SocketAddr, end: TraceEnd) {
        let finished = trace.finish(client, end, clock::now());
        let mut inner = locked(&self.inner);
        // off since
        if self.share.load(Relaxed) == 0 {
            return;
        }
        if inner.waiting.len() >= ROOM {
            inner.status.dropped += 1;
            return;
        }
        inner.waiting.push_back(finished);
        drop(inner);
        self.more.notify_one();
    }

    pub(crate) fn status(&self) -> Option<TracesStatus> {
        let inner = locked(&self.inner);
        inner.status.endpoint.as_ref()?;
        Some(TracesStatus { waiting: inner.waiting.len() as u64, ..inner.status.clone() })
    }
}

impl Inner {
    fn has_room(&mut self, now: Time) -> bool {
        let second = now.as_nanos() / SECOND;
        if second != self.second {
            (self.second, self.begun) = (second, 0);
        }
        self.begun += 1;
        self.begun <= A_SECOND
    }
}

/// Whether a trace with this randomness is in a share of parts per 10⁹. The last 56 bits decide, as others that see the
/// same trace decide (W3C Trace Context level 2 §2.3; OpenTelemetry's consistent probability sampling).
fn is_taken(random: u64, share: u64) -> bool {
    const SPACE: u128 = 1 << 56;
    let rejected = SPACE - SPACE * u128::from(share) / 1_000_000_000;
    u128::from(random) % SPACE >= rejected
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> (String, u16) {
        ("h".to_owned(), 80)
    }

    fn on(percent: u64) -> TraceQueue {
        let queue = TraceQueue::default();
        queue.follow(Some((Share::from_percent(percent).unwrap(), "http://c:4318/".to_owned())));
        queue
    }

    #[test]
    fn takes_the_share_that_is_asked_for() {
        assert!(is_taken(0, 1_000_000_000) && is_taken(u64::MAX, 1) && !is_taken(0, 1));
        let mut rng = Rng::new(5);
        let taken = (0..100_000).filter(|_| is_taken(rng.next_u64(), 10_000_000)).count();
        assert!((800..1200).contains(&taken), "{taken} of 100,000 at 1 %");
    }

    #[test]
    fn traces_nothing_while_it_is_off() {
        let queue = TraceQueue::default();
        assert!(queue.begin(None, server()).is_none() && queue.status().is_none());
        let queue = on(100);
        assert!(queue.begin(None, server()).is_some());
        queue.follow(None);
        assert!(queue.begin(None, server()).is_none() && queue.status().is_none());
    }

    #[test]
    fn a_clients_trace_decides() {
        let parent = |sampled| TraceParent { trace_id: 7, span_id: 9, sampled };
        assert!(on(100).begin(Some(parent(false)), server()).is_none());
        let queue = TraceQueue::default();
        queue.follow(Some((Share::from_parts_per_billion(1).unwrap(), String::new())));
        assert!(queue.begin(Some(parent(true)), server()).is_some());
    }

    #[test]
    fn traces_without_room_are_dropped_and_counted() {
        let queue = on(100);
        let trace = Trace::new((1, 1, None), server(), clock::now());
        for _ in 0..ROOM + 5 {
            queue.finish(&trace, ([127, 0, 0, 1], 1).into(), TraceEnd::default());
        }
        let status = queue.status().unwrap();
        assert_eq!((status.waiting, status.dropped), (ROOM as u64, 5));
        assert_eq!(queue.take(10).len(), 10);
        queue.on_sent(8, 2, Some("refused".to_owned()));
        let status = queue.status().unwrap();
        assert_eq!((status.waiting, status.sent, status.dropped), (ROOM as u64 - 10, 8, 7));
        assert_eq!(status.last_error.as_deref(), Some("refused"));
    }

    #[test]
    fn clients_begin_a_bounded_number_a_second() {
        let queue = on(100);
        let mut state = locked(&queue.inner);
        let at = Time::from_nanos(SECOND);
        assert!((0..A_SECOND).all(|_| state.has_room(at)) && !state.has_room(at));
        assert!(state.has_room(Time::from_nanos(2 * SECOND)));
    }
}
