//! A body that passes, and is kept beside.

use crate::means::{Means, Reserved};
use bytes::Bytes;
use http_cache_semantics::CachePolicy;
use std::sync::Arc;

/// Memory is taken in steps of so much while a body comes.
const STEP: usize = 64 * 1024;

/// The copy. It is given up where it becomes too large, or where memory is short: who waits for the body
/// waits for neither.
#[derive(Debug)]
pub(crate) struct Copy {
    policy: CachePolicy,
    most: u64,
    bytes: Vec<u8>,
    reserved: Vec<Reserved>,
    given_up: bool,
}

impl Copy {
    pub(super) const fn new(policy: CachePolicy, most: u64) -> Self {
        Self { policy, most, bytes: Vec::new(), reserved: Vec::new(), given_up: false }
    }

    /// So much more of the body.
    pub(crate) fn push(&mut self, means: &Arc<Means>, bytes: &[u8]) {
        if self.given_up {
            return;
        }
        let length = self.bytes.len() + bytes.len();
        while length > self.reserved.len() * STEP {
            match means.reserve(STEP) {
                Some(more) if length as u64 <= self.most => self.reserved.push(more),
                _ => {
                    self.given_up = true;
                    (self.bytes, self.reserved) = (Vec::new(), Vec::new());
                    return;
                }
            }
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The whole body, unless it was given up.
    pub(super) fn finish(self) -> Option<(CachePolicy, Bytes)> {
        (!self.given_up).then(|| (self.policy, Bytes::from(self.bytes.into_boxed_slice())))
    }
}
