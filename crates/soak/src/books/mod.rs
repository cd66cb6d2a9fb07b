//! Accounts: what the relay booked, beside what clients and servers counted, and at each kill.

pub(crate) mod balance;
pub(crate) mod kills;
