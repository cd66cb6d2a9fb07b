//! Rejections in the client's own protocol.

use crate::transfer::buffered::{close_gently, write_all};
use crate::transfer::end::End;
use crate::wire::http::reply::Refusal;
use ekiden_model::units::Span;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How long to wait for the client's first bytes, which show its protocol.
const FIRST_BYTES: Duration = Duration::from_secs(2);

/// The answer to a client that is not served.
#[derive(Debug, Clone)]
pub(crate) struct Rejection {
    /// The HTTP status; SOCKS5 distinguishes 403 from all others.
    pub(crate) status: u16,
    pub(crate) text: String,
    /// When the client may try again.
    pub(crate) retry_after: Option<Span>,
}

/// The rejections of one relay that may be in progress.
#[derive(Debug)]
pub(crate) struct Rejections {
    slots: Arc<Semaphore>,
    /// Shared by all that are in progress or wait for a slot.
    pending: Arc<()>,
}

impl Rejections {
    /// At most so many at a time; beyond, connections are closed without an answer.
    pub(crate) fn new(most: u32) -> Self {
        Self { slots: Arc::new(Semaphore::new(most as usize)), pending: Arc::default() }
    }

    /// Whether one is in progress, or waits for a slot.
    pub(crate) fn are_any(&self) -> bool {
        Arc::strong_count(&self.pending) > 1
    }

    /// A slot for one rejection, where too many are not in progress.
    pub(crate) fn slot(&self) -> Option<RejectionSlot> {
        let slot = Arc::clone(&self.slots).try_acquire_owned().ok()?;
        Some(RejectionSlot { _slot: slot, _pending: Arc::clone(&self.pending) })
    }

    /// The same, once one is free.
    pub(crate) fn next_slot(&self) -> impl Future<Output = Option<RejectionSlot>> + use<> {
        let (slots, pending) = (Arc::clone(&self.slots), Arc::clone(&self.pending));
        async move {
            let slot = slots.acquire_owned().await.ok()?;
            Some(RejectionSlot { _slot: slot, _pending: pending })
        }
    }
}

/// Ends with the rejection.
#[derive(Debug)]
pub(crate) struct RejectionSlot {
    _slot: OwnedSemaphorePermit,
    _pending: Arc<()>,
}

impl RejectionSlot {
    /// Rejects a client in its own protocol and closes.
    pub(crate) async fn reject(self, stream: &End, name: &str, rejection: &Rejection) {
        // fails where the client is gone or silent
        let _ = send(stream, name, rejection).await;
    }
}

async fn send(stream: &End, name: &str, rejection: &Rejection) -> io::Result<()> {
    let answering = async {
        let mut first = [0; 5];
        let n = stream.peek(&mut first).await?;
        let first = first.get(..n).unwrap_or_default();
        match first.first() {
            None => return Ok::<_, io::Error>(()),
            // RFC 1928: a method is agreed on before a reply can be sent
            Some(5) => {
                write_all(stream, &[5, 0]).await?;
                let methods = first.get(1).copied().map_or(3, |n| usize::from(n) + 3);
                wait_for(stream, methods).await?;
                // general failure, or not allowed
                let reply = if rejection.status == 403 { 2 } else { 1 };
                write_all(stream, &[5, reply, 0, 1, 0, 0, 0, 0, 0, 0]).await?;
            }
            Some(4) => write_all(stream, &[0, 91, 0, 0, 0, 0, 0, 0]).await?,
            // RFC 8446 §6: a fatal alert, access_denied or internal_error
            Some(22) => {
                let alert = if rejection.status == 403 { 49 } else { 80 };
                write_all(stream, &[21, 3, 3, 0, 2, 2, alert]).await?;
            }
            Some(_) => {
                let Rejection { status, text, retry_after } = rejection;
                let refusal = Refusal { retry_after: *retry_after, ..Refusal::new(*status, text) };
                write_all(stream, &refusal.response(name, first == b"HEAD ")).await?;
            }
        }
        Ok(())
    };
    tokio::time::timeout(FIRST_BYTES, answering).await.unwrap_or(Ok(()))?;
    close_gently(stream, None).await;
    Ok(())
}

async fn wait_for(stream: &End, n: usize) -> io::Result<()> {
    let mut bytes = [0; 260];
    let wanted = bytes.get_mut(..n).unwrap_or_default();
    let mut before = 0;
    loop {
        let got = stream.peek(wanted).await?;
        if got >= wanted.len() || got == 0 {
            return Ok(());
        }
        // a peek returns at once when some bytes are there
        if got == before {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        before = got;
    }
}
