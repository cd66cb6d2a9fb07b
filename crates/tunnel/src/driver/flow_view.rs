//! A flow as others than its carrier see it.

use super::{Shared, locked};
use crate::core::{FlowId, FlowStatus};
use crate::frame::reason::Reason;
use ekiden_linux::host::clock;
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

    /// Ends its [`FlowStream`](super::FlowStream) here: its reader and its writer find it ended.
    pub fn shut(&self) {
        let Some(shared) = self.shared.upgrade() else { return };
        let news = locked(&shared.waiting).get(&self.id).cloned();
        news.inspect(|news| news.shut());
    }

    /// Resets the flow: bytes that wait are discarded.
    pub fn abort(&self) {
        let Some(shared) = self.shared.upgrade() else { return };
        let (now, words) = (clock::now(), "ended by the operator or by a limit".to_owned());
        shared.with(|core| {
            // an incoming flow without an answer is refused
            core.refuse(now, self.id, Reason::Closed, words.clone());
            core.abort(now, self.id, Reason::Closed, words);
        });
        let news = locked(&shared.waiting).get(&self.id).cloned();
        news.inspect(|news| news.ring());
    }
}
