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
    /// Its length, where it was said.
    length: Option<u64>,
    bytes: Vec<u8>,
    reserved: Vec<Reserved>,
    given_up: bool,
}

impl Copy {
    pub(super) const fn new(policy: CachePolicy, length: Option<u64>, most: u64) -> Self {
        Self { policy, most, length, bytes: Vec::new(), reserved: Vec::new(), given_up: false }
    }

    /// So much more of the body.
    pub(crate) fn push(&mut self, means: &Arc<Means>, bytes: &[u8]) {
        if self.given_up {
            return;
        }
        let length = self.bytes.len() + bytes.len();
        let mut fits = length as u64 <= self.most;
        while fits && length > self.reserved.len() * STEP {
            match means.reserve(STEP) {
                Some(more) => self.reserved.push(more),
                None => fits = false,
            }
        }
        if !fits {
            self.given_up = true;
            (self.bytes, self.reserved) = (Vec::new(), Vec::new());
            return;
        }
        if length > self.bytes.capacity() {
            // as much as there will be, once; where that is not said an eighth more at a time, and not twice as much
            let said = self.length.map_or(length + length / 8 + STEP, |said| said as usize);
            let most = usize::try_from(self.most).unwrap_or(usize::MAX);
            self.bytes.reserve_exact(said.min(most).max(length) - self.bytes.len());
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The whole body, unless it was given up.
    pub(super) fn finish(self) -> Option<(CachePolicy, Bytes)> {
        (!self.given_up).then(|| (self.policy, Bytes::from(self.bytes.into_boxed_slice())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::households::Households;
    use crate::resources::Resources;
    use crate::settings::Settings;

    fn means() -> Arc<Means> {
        let settings = Settings::default();
        let (resources, _) = Resources::new(&settings);
        let households = Households::new(&settings.households);
        Means::new(&settings.budgets, settings.relay.movement, resources, households, None)
    }

    fn copy(length: Option<u64>, most: u64) -> Copy {
        let policy = CachePolicy::new(&http::Request::new(()), &http::Response::new(()));
        Copy::new(policy, length, most)
    }

    #[test]
    fn memory_is_for_what_comes_and_little_more() {
        let means = means();
        let part = [7; 10_000];
        for said in [Some(1_000_000), None] {
            let mut copy = copy(said, 4 << 20);
            for n in 1..=100 {
                copy.push(&means, &part);
                let (length, capacity) = (n * part.len(), copy.bytes.capacity());
                match said {
                    Some(said) => assert_eq!(capacity as u64, said),
                    None => {
                        assert!(capacity <= length + length / 4 + STEP, "{capacity} for {length}")
                    }
                }
            }
            assert_eq!(copy.finish().unwrap().1.len(), 1_000_000);
        }
    }

    #[test]
    fn what_is_said_is_not_believed_beyond_the_most() {
        let means = means();
        let mut copy = copy(None, 100_000);
        copy.push(&means, &[7; 100_000]);
        assert_eq!(copy.bytes.capacity(), 100_000);
        copy.push(&means, &[7]);
        assert!(copy.finish().is_none());
        assert_eq!(means.status()[1].used, 0);
    }
}
