//! Sockets that could be done without: those that wait beside the first of an opening.

use super::{After, Resources};
use crate::registry::locked;
use std::sync::Arc;

/// The place of a connection, taken for such a socket for as long as this is there. Nothing is closed for
/// one; to a newcomer it is a connection like any other.
#[derive(Debug)]
pub(crate) struct Spare {
    resources: Arc<Resources>,
}

impl Resources {
    /// A place, if nothing is short and nobody waits for it.
    pub(crate) fn spare(self: &Arc<Self>) -> Option<Spare> {
        let state = &mut *locked(&self.state);
        state.level();
        if state.pressure.low() || state.admission.waiting() > 0 {
            return None;
        }
        state.spares += 1;
        Some(Spare { resources: Arc::clone(self) })
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        let mut after = After::default();
        {
            let state = &mut *locked(&self.resources.state);
            state.spares -= 1;
            state.serve(&mut after);
        }
        after.run(&self.resources);
    }
}
