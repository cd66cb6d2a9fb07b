//! Every byte that moves on an account's behalf goes through its meter.

mod carrier;
mod doors;
mod heads;
