//! What all connections share to move bytes: pipes, and memory for bytes that cannot be written yet.

use crate::registry::locked;
use crate::settings::{Budgets, Movement as Setting};
use crate::status::BudgetStatus;
use ekiden_linux::splice::PipePool;
use ekiden_model::budget::Budget;
use ekiden_model::movement::{Choice, Movement, Way};
use ekiden_model::rng::Rng;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Waker;

/// Bytes read at a time when copying. Each thread has one buffer of this size; a connection has none.
pub(crate) const SCRATCH: usize = 64 * 1024;

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
    memory: Budget,
    /// Directions that wait for memory.
    starved: Mutex<Vec<Waker>>,
    anyone_starved: AtomicBool,
    movement: Setting,
    /// Distinguishes the directions' random sequences.
    directions: AtomicU64,
}

impl Means {
    pub(crate) fn new(budgets: &Budgets, movement: Setting) -> Arc<Self> {
        Arc::new(Self {
            pipes: PipePool::new(budgets.pipes, budgets.pipe_size.as_usize()),
            memory: Budget::new(budgets.memory.as_u64()),
            starved: Mutex::default(),
            anyone_starved: AtomicBool::new(false),
            movement,
            directions: AtomicU64::new(0),
        })
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

    /// Reserves memory for `n` bytes. When there is none, `waker` is woken once some is given back.
    pub(crate) fn reserve(self: &Arc<Self>, n: usize, waker: &Waker) -> Option<Reserved> {
        let reserved = || Reserved { means: Arc::clone(self), bytes: n as u64 };
        if self.memory.take(n as u64) {
            return Some(reserved());
        }
        locked(&self.starved).push(waker.clone());
        self.anyone_starved.store(true, Ordering::SeqCst);
        // given back in the meantime: nobody would wake us
        self.memory.take(n as u64).then(reserved)
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
        self.give(self.bytes - kept);
        self.bytes = kept;
    }

    fn give(&self, n: u64) {
        self.means.memory.give(n);
        if self.means.anyone_starved.swap(false, Ordering::SeqCst) {
            let woken = std::mem::take(&mut *locked(&self.means.starved));
            woken.into_iter().for_each(Waker::wake);
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.give(self.bytes);
    }
}
