//! The network: hosts and links, connections over them, the flows of each direction.

pub(crate) mod carrier;
pub mod connection;
pub mod dumbbell;
pub mod flow;
pub(crate) mod packet;
pub mod topology;
pub(crate) mod writes;
