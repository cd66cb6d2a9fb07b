//! Connecting over a path that loses packets: when to send another SYN.
//!
//! The kernel waits a second for its first SYN's answer, whatever the path (RFC 6298 §2.1). The
//! asymmetric study's three remedies (algorithms/asymmetric D.6):
//!
//! 1. an initial time-out by destination: [`Handshakes`] remembers, [`SynRace`] repeats;
//! 2. a time-out for establishing, apart from data: [`SynPlan::within`];
//! 3. a second SYN soon after the first: [`SynPlan::second_after`], permitted by [`Guard`].
//!
//! A user-space program cannot repeat a SYN: each further one is a `connect` from another port. The
//! first that is answered wins; the others are closed, which sends nothing.

mod guard;
mod handshakes;
#[cfg(test)]
mod laws;
mod loss;
mod plan;
mod table;

pub use guard::{Guard, INTERVAL, LEAST_LOSS};
pub use handshakes::{Answered, Config, FirstSyn, Handshakes};
pub use loss::{Loss, PRIOR, PRIOR_WEIGHT};
pub use plan::{
    MOST_AT_ONCE, SPARE_AGE, SynAttempt, SynKind, SynPlan, SynRace, SynStep, second_after,
};
pub use table::{Prefix, Table, WAYS};
