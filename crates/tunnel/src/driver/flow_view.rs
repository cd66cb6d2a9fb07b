//! A flow as others than its carrier see it.

use super::{Shared, locked};
use crate::core::{FlowId, FlowStatus};
use std::sync::Weak;

/// Looks at a flow. It does not keep the flow open, nor its tunnel.
#[derive(Debug, Clone)]
pub struct FlowView {
    shared: Weak<Shared>,
    id: FlowId,
}

impl FlowView {
    pub(super) const fn new(shared: Weak<Shared>, id: FlowId) -> Self {
        Self { shared, id }
    }

    /// The flow as it is now; `None` once it has ended.
    pub fn status(&self) -> Option<FlowStatus> {
        locked(&self.shared.upgrade()?.core).flow_status(self.id)
    }
}
