//! Numbers that nobody can guess.

use ring::rand::{SecureRandom as _, SystemRandom};

/// Random bytes. `None`: the system's source fails.
pub(super) fn random<const N: usize>() -> Option<[u8; N]> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).ok().map(|()| bytes)
}

/// A random identifier (RFC 5452 §9.2).
pub(super) fn random_id() -> u16 {
    // fails only without the system's source, and the port is random all the same
    u16::from_be_bytes(random().unwrap_or_default())
}
