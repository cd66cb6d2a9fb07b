//! Permits for auxiliary sockets: extra SYN attempts, UDP sockets.

use super::{Deferred, Resources, State};
use ekiden_linux::host::sync::locked;
use ekiden_model::resources::overload::{Resource, Source};
use std::sync::Arc;

/// A connection's worth of the limit, held for an auxiliary socket. To other clients it counts as a connection.
#[derive(Debug)]
pub(crate) struct DescriptorReserve {
    resources: Arc<Resources>,
}

impl Resources {
    /// Reserves if no resource is low and no client waits.
    pub(crate) fn try_reserve(self: &Arc<Self>) -> Option<DescriptorReserve> {
        let state = &mut *locked(&self.state);
        state.level();
        if state.pressure.low() || state.admission.waiting() > 0 {
            return None;
        }
        state.spares += 1;
        Some(DescriptorReserve { resources: Arc::clone(self) })
    }

    /// Reserves as for a new client of `source`: evicts the longest idle connection if the limit is
    /// reached, or a silent one of an address that holds more.
    pub(crate) fn make_room(self: &Arc<Self>, source: Source) -> Option<DescriptorReserve> {
        let made = self.change(|state, deferred| {
            let found = state.find_room(source, deferred);
            state.spares += u64::from(found);
            found
        });
        made.then(|| DescriptorReserve { resources: Arc::clone(self) })
    }

    /// Evicts the longest idle connection for want of a descriptor, which returns when its task
    /// notices.
    pub(crate) fn evict_for_descriptor(self: &Arc<Self>) {
        self.change(|state, deferred| {
            if state.settings.evicts() {
                state.evict_for(Resource::Descriptors, 1, deferred);
            }
        });
    }
}

impl State {
    /// Finds a place for one that cannot wait for it.
    pub(super) fn find_room(&mut self, source: Source, deferred: &mut Deferred) -> bool {
        self.level();
        if self.pressure.low() && self.settings.evicts() {
            self.evict(1, deferred);
        }
        if self.is_full() {
            self.evict_silent(self.sources.held(source), false, deferred);
        }
        !self.is_full()
    }
}

impl Drop for DescriptorReserve {
    fn drop(&mut self) {
        self.resources.change(|state, deferred| {
            state.spares -= 1;
            state.serve(deferred);
        });
    }
}
