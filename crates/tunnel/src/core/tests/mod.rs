//! Two cores with the model's link between them, on virtual time.

mod coded;
mod flows;
mod held;
mod hostile;
mod liar;
mod lies;
mod measures;
mod network;
mod packets;
mod paths;
mod pending;
mod repairs;
mod send_queues;
mod trust;
