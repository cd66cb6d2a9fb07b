//! Opening a connection over a path that loses packets: when to send another SYN, and when not to.
//!
//! The kernel waits a second for the answer to its first SYN, whatever the path (RFC 6298 §2.1); seed 3
//! names three remedies and leaves them open. Here they are values:
//!
//! | remedy | value | source |
//! |---|---|---|
//! | an initial time-out of the destination's own | [`Handshakes`] remembers, [`Opening`] repeats | ALGORITHMS §D.6, 1 |
//! | a time-out of establishing, apart from those of data | [`Plan::within`] | §D.6, 2 |
//! | a second SYN soon after the first | [`Plan::second_after`], permitted by [`Guard`] | §D.6, 3 |
//!
//! A user-space program cannot repeat a SYN. A copy is therefore a `connect` of its own, from another
//! port: the first that is answered wins, the others are closed, which sends nothing.

mod guard;
mod handshakes;
#[cfg(test)]
mod laws;
mod loss;
mod plan;
mod table;

pub use guard::{Guard, INTERVAL, LEAST_LOSS};
pub use handshakes::{Answered, Config, First, Handshakes};
pub use loss::{Loss, PRIOR, PRIOR_WEIGHT};
pub use plan::{Copy, Kind, MOST_COPIES, Opening, Plan, SPARE_AGE, Step, second_after};
pub use table::{Prefix, Table, WAYS};
