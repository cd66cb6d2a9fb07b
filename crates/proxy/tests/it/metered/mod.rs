//! Every byte that moves on an account's behalf goes through its meter.

mod carrier;
mod discarded;
mod doors;
mod heads;
