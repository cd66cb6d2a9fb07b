//! Socket buffers by need: E2-ATBT (seed 2; ALGORITHMS §A.3 to §A.5).
//!
//! A connection needs γ · λ · RTT of buffer: what its congestion control has in flight at the peak, where
//! λ comes from an [equation](Throughput) of loss and round-trip time, or of the connection at the
//! relay's other end where that is slower. While all needs fit into the pool everybody has what it needs
//! (or the kernel tunes, [`Enough::Automatic`]); where they do not, [`distribute`] divides.
//!
//! [`Allocator`] is told and asked in this order:
//! ```text
//! on_open(now, id, open)     a connection; answers what its buffers have until more is known
//! on_pair(a, b)              a relay: what one receives the other sends; on_unpair(a) when that ends
//! on_hit(id), on_miss(id)    what it sends comes from the cache, or from its partner again
//! on_facts(now, id, facts)   a look at TCP_INFO and queues, each 100 ms while it is busy
//! on_idle(id)                nobody uses it; on_active(now, id) when somebody does again: answers as on_open
//! on_shrink(id)              idle::Register::shrink says so: half of what it had, until it answers false
//! on_close(id)
//! on_limit(side, most)       the system gives no buffer more than so much
//! deadline()                 wake up then and apply what on_deadline(now) answers, in its order
//! ```
//! The tick in which all of it belongs together, so that what idle connections free is given out at once:
//! ```text
//! pressure.on_level(…)       then close idle connections while low, with on_close
//! register.shrink(…)         with on_shrink
//! allocator.on_deadline(…)   then apply the changes
//! ```
//! A buffer's bytes here are payload; what an operating system counts on top (Linux doubles `SO_SNDBUF`
//! and counts its packet headers) the driver adds. [`Widening`] stands beside: it says where a buffer that
//! the kernel tunes is to be larger than its tuning goes. A change to less than what is queued does no harm:
//! nothing more fits until it has drained.

mod allocation;
mod allocator;
#[cfg(test)]
mod cases;
mod connection;
mod demand;
mod estimate;
mod grant;
#[cfg(test)]
mod laws;
mod scheme;
mod snapshot;
mod throughput;
mod utilisation;
mod widen;

pub use allocation::{Claim, Excess, UNIT, allocate, distribute};
pub use allocator::{Allocator, Relay};
pub use demand::{CUBIC, Limit, RENO, Side, Why, demand};
pub use estimate::{ENOUGH, Estimator, Facts, LEAST, PRIOR};
pub use grant::{Change, Grant};
pub use scheme::Scheme;
pub use snapshot::{Row, Snapshot};
pub use throughput::Throughput;
pub use utilisation::{ReceiveUse, SendUse};
pub use widen::{Looked, Widen, Widening};

use crate::formula::Equation;
use crate::units::{Bytes, Span};

/// How sizes come about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Every buffer the same, whatever the pool: what programs do (scheme 1).
    Fixed(Bytes),
    /// By need, out of the pool.
    Shared,
}

/// What is done while there is enough for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Enough {
    /// The kernel tunes each buffer, as it does well where memory is not scarce.
    #[default]
    Automatic,
    /// Each buffer has what it needs, explicitly.
    Demand,
}

/// Settings of an [`Allocator`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Config<T = Equation> {
    /// B: what all send and receive buffers together may have.
    pub pool: Bytes,
    /// How sizes come about; by default out of the pool.
    pub policy: Policy,
    /// What is done while there is enough; by default the kernel tunes.
    pub enough: Enough,
    /// How what is left is divided among those who need more than their fair share; by default in
    /// proportion.
    pub excess: Excess,
    /// Where λ comes from; by default Padhye's equation.
    pub throughput: T,
    /// Between two ticks: 1 s.
    pub period: Span,
    /// Before anything is known: 16 KiB, or an equal part of the pool where that is less.
    pub initial: Bytes,
    /// No buffer is asked for that is larger: 4 MiB.
    pub ceiling: Bytes,
    /// Nor one that is smaller than so many segments: 2.
    pub floor_segments: u64,
    /// What halving leaves an idle connection: 1 KiB.
    pub idle_least: Bytes,
    /// Whether a buffer's filling corrects its demand where no pairing is known; by default yes.
    pub by_use: bool,
}

impl Config {
    /// The defaults of ALGORITHMS §A.4 to §A.6.
    #[must_use]
    pub const fn new(pool: Bytes) -> Self {
        Self {
            pool,
            policy: Policy::Shared,
            enough: Enough::Automatic,
            excess: Excess::Proportional,
            throughput: Equation::Padhye,
            period: Span::from_secs(1),
            initial: Bytes::kib(16),
            ceiling: Bytes::mib(4),
            floor_segments: 2,
            idle_least: Bytes::kib(1),
            by_use: true,
        }
    }
}

impl<T> Config<T> {
    /// The same with another equation.
    #[must_use]
    pub fn with_throughput<U>(self, throughput: U) -> Config<U> {
        let Self { pool, policy, enough, excess, period, .. } = self;
        let Self { initial, ceiling, floor_segments, idle_least, by_use, .. } = self;
        Config {
            pool,
            policy,
            enough,
            excess,
            throughput,
            period,
            initial,
            ceiling,
            floor_segments,
            idle_least,
            by_use,
        }
    }

    /// Whether these can be kept to.
    ///
    /// # Errors
    /// What cannot, and what to write instead.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.pool == Bytes::ZERO {
            return Err(
                "a pool of no bytes leaves no connection a buffer; write a size like «64 MiB»",
            );
        }
        if self.policy == Policy::Fixed(Bytes::ZERO) {
            return Err("buffers of no bytes carry nothing; write a size like «16 KiB»");
        }
        if self.period == Span::ZERO {
            return Err("a period of no time never ends; write one like «1 s»");
        }
        if self.ceiling < Bytes::new(UNIT) {
            return Err(
                "the largest buffer is smaller than the unit of 1 KiB; write a size like «4 MiB»",
            );
        }
        if self.initial < Bytes::new(UNIT) || self.initial > self.ceiling {
            return Err("the first buffer is smaller than 1 KiB or larger than the largest");
        }
        Ok(())
    }
}

/// A connection as it is opened.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Open {
    /// γ of its congestion control: [`RENO`] (the default), [`CUBIC`], 2 for BBR, whose window is twice
    /// what it measures.
    pub gamma: f64,
    /// Payload bytes of a segment until a look tells better.
    pub mss: u64,
    /// Whether its send buffer is shared out; of one that sends next to nothing it need not be.
    pub send: bool,
    /// Whether its receive buffer is.
    pub receive: bool,
}

impl Default for Open {
    fn default() -> Self {
        Self { gamma: RENO, mss: 1_460, send: true, receive: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_refused_with_a_hint() {
        let good = Config::new(Bytes::mib(64));
        assert_eq!(good.check(), Ok(()));
        assert_eq!(good.with_throughput(Equation::SquareRoot).check(), Ok(()));
        for (bad, part) in [
            (Config { pool: Bytes::ZERO, ..good }, "pool"),
            (Config { policy: Policy::Fixed(Bytes::ZERO), ..good }, "16 KiB"),
            (Config { period: Span::ZERO, ..good }, "period"),
            (Config { ceiling: Bytes::new(1_000), ..good }, "largest"),
            (Config { initial: Bytes::mib(5), ..good }, "first"),
        ] {
            assert!(bad.check().is_err_and(|why| why.contains(part)), "{bad:?}");
        }
    }
}
