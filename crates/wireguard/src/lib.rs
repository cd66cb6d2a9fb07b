//! The WireGuard door: a phone's own app sends its packets here, by UDP, and they leave by a TUN device.
//!
//! ```text
//! UDP ─▶ Engine::on_datagram ─▶ decrypted, its source checked, the gate asked ─▶ TUN ─▶ the kernel
//! UDP ◀─ encrypted, the gate asked ◀─ Engine::on_packet ◀─ split into segments ◀─ TUN ◀─ the kernel
//! ```
//! The protocol is boringtun's. This crate adds who the peers are, which addresses each may send from and is sent
//! to, limits on handshakes, the batches, and the thread. It never resolves a name, decides a route, or
//! reads a configuration. Who may go where is the [`Gate`]'s, and the kernel forwards.

mod driver;
mod engine;
mod inspect;
mod keys;
mod limits;
mod peer;
mod segments;
mod send_batch;

pub use driver::{Door, DoorError};
pub use engine::{Counts, Engine, Gate, Outbox, Way};
pub use inspect::{Header, Protocol, inspect};
pub use keys::{BadKey, KeyError, PrivateKey, PublicKey, server_key};
pub use limits::SourceLimits;
pub use peer::{PeerSettings, PeerSnapshot};
pub use segments::split;
