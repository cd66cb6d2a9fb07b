//! What all connections share: pipes, memory for bytes that cannot be written yet.

use crate::cache::Cache;
use crate::households::Households;
use crate::resources::Resources;
use crate::settings::{Budgets, Movement as Setting};
use crate::status::BudgetStatus;
use crate::tunnels::Tunnels;
use crate::udp;
use ekiden_linux::splice::PipePool;
use ekiden_model::budget::Budget;
use ekiden_model::movement::{Choice, Movement, Way};
use ekiden_model::opening::Guard;
use ekiden_model::rng::Rng;
use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// Bytes read at a time when copying. Each thread has one buffer of this size; a connection has none.
pub(crate) const SCRATCH: usize = 64 * 1024;

/// Destinations that may be sent an extra SYN in the same second.
const GUARDED: usize = 4096;

thread_local! {
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; SCRATCH].into());
}

/// Lends this thread's buffer. Not to be nested, and nothing is kept in it between two loans.
pub(crate) fn with_scratch<T>(work: impl FnOnce(&mut [u8]) -> T) -> T {
    BUFFER.with_borrow_mut(|buffer| work(buffer))
}

/// Shared by every connection.
#[derive(Debug)]
pub(crate) struct Means {
    pub(crate) pipes: PipePool,
    /// Of each pipe, in bytes.
    pub(crate) pipe_size: usize,
    /// Before all legs' extra SYNs.
    pub(crate) guard: Mutex<Guard>,
    pub(crate) resources: Arc<Resources>,
    pub(crate) households: Arc<Households>,
    /// The HTTP cache, if there is to be one.
    pub(crate) cache: Option<Arc<Cache>>,
    /// To other relays, once some are wanted.
    pub(crate) tunnels: OnceLock<Tunnels>,
    /// Associations of UDP, counted.
    pub(crate) udp: Arc<udp::Counts>,
    memory: Budget,
    movement: Setting,
    /// Distinguishes the directions' random sequences.
    directions: AtomicU64,
}

impl Means {
    pub(crate) fn new(
        budgets: &Budgets,
        movement: Setting,
        resources: Arc<Resources>,
        households: Arc<Households>,
        cache: Option<Arc<Cache>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            pipes: PipePool::new(budgets.pipes, budgets.pipe_size.as_usize()),
            pipe_size: budgets.pipe_size.as_usize(),
            guard: Mutex::new(Guard::new(GUARDED)),
            resources,
            households,
            cache,
            tunnels: OnceLock::new(),
            udp: Arc::default(),
            memory: Budget::new(budgets.memory.as_u64()),
            movement,
            directions: AtomicU64::new(0),
        })
    }

    pub(crate) fn tunnels(&self) -> Option<&Tunnels> {
        self.tunnels.get()
    }

    /// The way of moving bytes for a new direction.
    pub(crate) fn movement(&self) -> Movement {
        Movement::new(match self.movement {
            Setting::Auto => Choice::Auto,
            Setting::Splice => Choice::Always(Way::Splice),
            Setting::Copy => Choice::Always(Way::Copy),
            Setting::Random(seed) => {
                let nth = self.directions.fetch_add(1, Ordering::Relaxed);
                Choice::Random(Rng::new(seed.wrapping_add(nth)))
            }
        })
    }

    /// Reserves memory for `n` bytes, if there is so much. Nobody waits for memory: those who hold it
    /// may hold it for hours.
    pub(crate) fn reserve(self: &Arc<Self>, n: usize) -> Option<Reserved> {
        let bytes = n as u64;
        self.memory.take(bytes).then(|| Reserved { means: Arc::clone(self), bytes })
    }

    pub(crate) fn status(&self) -> [BudgetStatus; 2] {
        let pipes = (self.pipes.used(), self.pipes.peak(), self.pipes.limit());
        let (used, peak, limit) = pipes;
        [
            BudgetStatus {
                name: "pipes".into(),
                used: used.into(),
                peak: peak.into(),
                limit: limit.into(),
            },
            BudgetStatus {
                name: "memory".into(),
                used: self.memory.used(),
                peak: self.memory.peak(),
                limit: self.memory.limit(),
            },
        ]
    }
}

/// Memory out of the budget, given back when dropped.
#[derive(Debug)]
pub(crate) struct Reserved {
    means: Arc<Means>,
    bytes: u64,
}

impl Reserved {
    /// Gives back all but `n` bytes.
    pub(crate) fn keep(&mut self, n: usize) {
        let kept = self.bytes.min(n as u64);
        self.means.memory.give(self.bytes - kept);
        self.bytes = kept;
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.means.memory.give(self.bytes);
    }
}
