//! The idle register: unused connections, kept for the next request and closed longest idle first
//! (the proxy-pressure study's hash function and time scheduling list).
//!
//! ```text
//! insert(now, key, payload)   a connection became idle; keep the returned handle
//! reuse(&key)                 a request: the connection that became idle last under this key
//! remove(handle)              the peer closed it, or its client sent again
//! evict()                     resources are low: the longest idle connection
//! deadline()                  wake up then, and call both (two kinds of deadline) until nothing:
//!   due(now)                  one that was idle for the persistent time-out: close it
//!   shrink(now, halve)        those whose buffers are to be halved again
//! ```
//! Calls take constant time (`due` and `shrink`: for each due entry), and allocate nothing once the
//! maximum number of entries has been reached. The list is in the order of becoming idle; an
//! earlier instant than the last counts as that.
//!
//! **Keys.** Many connections may be idle under one key; [`Pool`] is a proxy's. Results are the
//! same with every hasher. Because peers choose keys, a daemon passes a hasher with a random seed.

mod keepers;
mod key;
mod register;

pub use crate::slab::Handle;
pub use keepers::Keepers;
pub use key::Pool;
pub use register::{Config, Idle, Register, Snapshot};
