//! Connections beside those of clients: sockets that wait beside the first of an opening and could be done
//! without, and a flow's on loopback.

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

    /// A place for what cannot be done without: the connection on loopback between a flow and whoever it is
    /// for, who has been let in already.
    pub(crate) fn taken(self: &Arc<Self>) -> Spare {
        locked(&self.state).spares += 1;
        Spare { resources: Arc::clone(self) }
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
