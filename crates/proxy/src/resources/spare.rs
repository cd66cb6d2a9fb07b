//! Sockets beside the clients' own: those that could be done without, waiting beside the first of an opening, the
//! one that is needed and for which there is no descriptor, and a flow's on loopback.

use super::{After, Resources};
use crate::registry::locked;
use ekiden_model::pressure::Resource;
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

    /// The same for a socket that is wanted as much as a newcomer: the longest idle connection is closed for
    /// it where there is no place.
    pub(crate) fn make_room(self: &Arc<Self>) -> Option<Spare> {
        let mut after = After::default();
        let made = {
            let state = &mut *locked(&self.state);
            state.level();
            if state.pressure.low() && state.settings.evicts() {
                state.evict(1, &mut after);
                state.level();
            }
            let full = state.clients + state.spares + state.watchers.len() as u64
                >= state.settings.connections;
            state.spares += u64::from(!full);
            !full
        };
        after.run(self);
        made.then(|| Spare { resources: Arc::clone(self) })
    }

    /// The kernel has no descriptor for a connection to be made: the longest idle one is closed for it, as
    /// for a newcomer. Its descriptors come back when whoever serves it has noticed.
    pub(crate) fn give_way(self: &Arc<Self>) {
        let mut after = After::default();
        {
            let state = &mut *locked(&self.state);
            if state.settings.evicts() {
                state.evict_for(Resource::Descriptors, 1, &mut after);
            }
        }
        after.run(self);
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
