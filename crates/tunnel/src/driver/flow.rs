//! A flow for tokio.

use super::flow_view::FlowView;
use super::news::News;
use super::{Shared, locked};
use crate::core::{End, FlowId, Read};
use crate::frame::reason::Reason;
use bytes::Bytes;
use ekiden_linux::host::clock;
use std::sync::Arc;

/// A flow. Dropping it before its end abandons it, and the peer is informed.
#[derive(Debug)]
pub struct Flow {
    pub(super) shared: Arc<Shared>,
    pub(super) id: FlowId,
    pub(super) news: Arc<News>,
    pub(super) hold: Hold,
}

/// What becomes of a flow when its handle is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hold {
    /// It is abandoned.
    Open,
    /// Both directions ended: the core sends what still waits, and forgets it.
    Left,
    /// Another handle has it.
    Passed,
}

/// How a flow of packets ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// Both directions came to their end.
    Closed,
    /// It broke at the other end, or on the way.
    There(Reason, String),
}

impl Ended {
    fn lost() -> Self {
        Self::There(Reason::TunnelLost, "the tunnel was lost".to_owned())
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        match self.hold {
            Hold::Open => self.shared.forget(self.id, true),
            Hold::Left => self.shared.forget(self.id, false),
            Hold::Passed => {}
        }
    }
}

impl Flow {
    pub(super) const fn new(shared: Arc<Shared>, id: FlowId, news: Arc<News>) -> Self {
        Self { shared, id, news, hold: Hold::Open }
    }

    /// Looks at it from elsewhere.
    pub fn view(&self) -> FlowView {
        FlowView::new(Arc::downgrade(&self.shared), self.id)
    }

    /// Waits for the answer to a flow that was opened here. Errors: why it was not accepted.
    pub async fn answered(&self) -> Result<(), (Reason, String)> {
        loop {
            let answer = locked(&self.shared.core).answer(self.id);
            if let Some(answer) = answer { return answer } else { self.news.any().await }
        }
    }

    /// Sends a packet of a flow that carries them; `false` where it is dropped.
    pub fn send_packet(&self, packet: Bytes) -> bool {
        let now = clock::now();
        self.shared.with(|core| core.send_packet(now, self.id, packet))
    }

    /// Waits for the next packet. Errors: the flow is over, and why.
    pub async fn packet(&self) -> Result<Bytes, Ended> {
        loop {
            let now = clock::now();
            let (packet, end) = {
                let mut core = locked(&self.shared.core);
                let packet = core.packet(self.id);
                let end = match packet {
                    Some(_) => Read::Blocked,
                    None => core.read(now, self.id),
                };
                (packet, end)
            };
            if let Some(packet) = packet {
                return Ok(packet);
            }
            match end {
                Read::End(End::Fin) => return Err(Ended::Closed),
                Read::End(End::Reset(reason, words)) => return Err(Ended::There(reason, words)),
                Read::Gone => return Err(Ended::lost()),
                Read::Blocked | Read::Bytes(_) => self.news.any().await,
            }
        }
    }

    /// Says that the destination of an incoming flow was reached.
    pub fn accept(&self) {
        let now = clock::now();
        self.shared.with(|core| core.accept(now, self.id));
    }

    /// Says that it was not.
    pub fn refuse(self, reason: Reason, words: String) {
        let now = clock::now();
        self.shared.with(|core| core.refuse(now, self.id, reason, words));
    }

    /// Ends it from here, answered or not; waiting bytes are discarded, and the peer gets the
    /// reason.
    pub fn abort(&self, reason: Reason, words: String) {
        let now = clock::now();
        self.shared.with(|core| {
            // does nothing to a flow that was answered, and leaves nothing of one that was not
            core.refuse(now, self.id, reason, words.clone());
            core.abort(now, self.id, reason, words);
        });
    }
}
