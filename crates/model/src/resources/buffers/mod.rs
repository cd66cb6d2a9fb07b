//! Socket buffers by demand: E2-ATBT (the proxy-pressure study; algorithms/buffers A.3 to A.5).
//!
//! A connection needs γ · λ · RTT of buffer: its data in flight at the peak. λ comes from an
//! [equation](crate::control::formula::Path::rate) of loss and round-trip time, or from the relay's other end where that is
//! slower. While all demands fit into the pool every connection gets its demand (or the kernel
//! tunes, [`Enough::Automatic`]); otherwise [`distribute`] divides.
//!
//! Calls of [`Allocator`], in order:
//! ```text
//! on_open(now, id, open)     a connection; returns its buffers until more is known
//! on_pair(a, b)              a relay: one sends what the other receives; on_unpair(a) at its end
//! on_hit(id), on_miss(id)    it sends from the cache, or from its partner again
//! on_facts(now, id, facts)   TCP_INFO and queues, each 100 ms while it is busy
//! on_idle(id)                unused; on_active(now, id) when used again: returns as on_open
//! on_shrink(id)              by idle::Register::shrink: half of its size, until it returns false
//! on_close(id)
//! on_limit(side, most)       the system's limit of a buffer
//! deadline()                 wake up then and apply the result of on_deadline(now), in its order
//! ```
//! At the tick: `pressure.on_level(…)` and close idle connections while low, `register.shrink(…)`,
//! then `allocator.on_deadline(…)`, so that freed memory is given out at once.
//!
//! Sizes are payload bytes; the driver adds the system's overhead (Linux doubles `SO_SNDBUF` and
//! counts headers). A size below the queued bytes only has to drain first. [`Widening`] decides
//! separately where a kernel-tuned buffer should exceed its tuning.

mod allocation;
mod allocator;
mod awake;
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
mod utilisation;
mod widen;

pub use allocation::{Claim, Excess, UNIT, allocate, distribute};
pub use allocator::Allocator;
pub use demand::{CUBIC, DemandOrigin, Limit, RENO, Side, demand};
pub use estimate::{ConnectionFacts, ENOUGH, Estimator, LEAST, PRIOR};
pub use grant::{Change, Grant};
pub use scheme::Scheme;
pub use snapshot::{Row, Snapshot};
pub use utilisation::{ReceiveUse, SendUse};
pub use widen::{BufferSample, Widen, Widening};

use crate::units::{Bytes, Span};

/// How sizes come about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Every buffer the same, whatever the pool: what programs do (scheme 1).
    Fixed(Bytes),
    /// By need, out of the pool.
    Shared,
}

/// The policy while there is enough for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Enough {
    /// The kernel tunes each buffer, as it does well where memory is not scarce.
    #[default]
    Automatic,
    /// Each buffer gets its demand, explicitly.
    Demand,
}

/// Settings of an [`Allocator`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Config {
    /// B: the limit of all send and receive buffers together.
    pub pool: Bytes,
    /// How sizes come about; by default out of the pool.
    pub policy: Policy,
    /// The policy while there is enough; by default the kernel tunes.
    pub enough: Enough,
    /// Division of the rest among demands above their fair share; by default in proportion.
    pub excess: Excess,
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
    /// The defaults of algorithms/buffers A.4 to §A.6.
    pub const fn new(pool: Bytes) -> Self {
        Self {
            pool,
            policy: Policy::Shared,
            enough: Enough::Automatic,
            excess: Excess::Proportional,
            period: Span::from_secs(1),
            initial: Bytes::kib(16),
            ceiling: Bytes::mib(4),
            floor_segments: 2,
            idle_least: Bytes::kib(1),
            by_use: true,
        }
    }

    /// Checks the settings. The error names the impossible value and what to write instead.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.pool == Bytes::ZERO {
            return Err(
                "a pool of no bytes leaves no connection a buffer; write a size like `64 MiB`",
            );
        }
        if self.policy == Policy::Fixed(Bytes::ZERO) {
            return Err("buffers of no bytes carry nothing; write a size like `16 KiB`");
        }
        if self.period == Span::ZERO {
            return Err("a period of no time never ends; write one like `1 s`");
        }
        if self.ceiling < Bytes::new(UNIT) {
            return Err(
                "the largest buffer is smaller than the unit of 1 KiB; write a size like `4 MiB`",
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
pub struct NewConnection {
    /// γ of its congestion control: [`RENO`] (default), [`CUBIC`], 2 for BBR (window 2 × measured).
    pub gamma: f64,
    /// Payload bytes of a segment until a look tells better.
    pub mss: u64,
    /// Whether its send buffer is shared out; of one that sends next to nothing it need not be.
    pub send: bool,
    /// Whether its receive buffer is.
    pub receive: bool,
}

impl Default for NewConnection {
    fn default() -> Self {
        Self { gamma: RENO, mss: 1_460, send: true, receive: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_impossible_settings_with_a_hint() {
        let good = Config::new(Bytes::mib(64));
        assert_eq!(good.check(), Ok(()));
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
