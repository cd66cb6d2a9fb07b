//! Bytes of an answer, until the connection has taken them.

use crate::resources::HeldMemory;
use bytes::Bytes;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

/// Parts with fewer bytes wait until the one before them is sent.
pub(super) const LEAST: usize = 1024;

/// Memory for bytes of an answer, until they are sent, also after the stream has ended.
#[derive(Debug)]
pub(super) enum Room {
    /// The stream's frame, which one part at a time has.
    Own(#[expect(dead_code)] OwnedSemaphorePermit, #[expect(dead_code)] Arc<HeldMemory>),
    /// More beside it.
    Beside(#[expect(dead_code)] HeldMemory),
}

/// Bytes of an answer. They count until all parts are sent.
#[derive(Debug)]
pub(super) struct Unsent(Bytes);

#[derive(Debug)]
struct Whole {
    bytes: Vec<u8>,
    _room: Room,
}

impl AsRef<[u8]> for Whole {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A part that the next one waits for.
#[derive(Debug)]
struct Part {
    bytes: Bytes,
    _turn: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Unsent {
    pub(super) fn new(bytes: Vec<u8>, room: Room) -> Self {
        Self(Bytes::from_owner(Whole { bytes, _room: room }))
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) const fn len(&self) -> usize {
        self.0.len()
    }

    /// The next so many bytes. `turn` comes back when they are sent.
    pub(super) fn split_to(&mut self, bytes: usize, turn: Option<OwnedSemaphorePermit>) -> Bytes {
        let part = self.0.split_to(bytes);
        match turn {
            Some(turn) => Bytes::from_owner(Part { bytes: part, _turn: turn }),
            None => part,
        }
    }
}
