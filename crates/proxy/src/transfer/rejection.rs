//! Rejections in the client's own protocol.

use crate::transfer::buffered::{close_gently, write_all};
use crate::wire::http::reply::Refusal;
use ekiden_model::units::Span;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::net::TcpStream;

/// Rejections in progress at a time; beyond, connections are closed without an answer.
const MOST_REJECTIONS: u64 = 256;

/// How long to wait for the client's first bytes, which show its protocol.
const FIRST_BYTES: Duration = Duration::from_secs(2);

static REJECTIONS: AtomicU64 = AtomicU64::new(0);

/// The answer to a client that is not served.
#[derive(Debug, Clone)]
pub(crate) struct Rejection {
    /// The HTTP status; SOCKS5 distinguishes 403 from all others.
    pub(crate) status: u16,
    pub(crate) text: String,
    /// When the client may try again.
    pub(crate) retry_after: Option<Span>,
}

pub(crate) fn can_reject() -> bool {
    REJECTIONS.load(Relaxed) < MOST_REJECTIONS
}

/// Rejects a client in its own protocol and closes; silently where too many rejections are in progress.
pub(crate) async fn reject(stream: &TcpStream, name: &str, rejection: &Rejection) {
    if let Some(_slot) = RejectionSlot::take() {
        // fails where the client is gone or silent
        let _ = send(stream, name, rejection).await;
    }
}

struct RejectionSlot;

impl RejectionSlot {
    fn take() -> Option<Self> {
        // counted first, so that the drop of a refused slot balances it
        let slot = Self;
        (REJECTIONS.fetch_add(1, Relaxed) < MOST_REJECTIONS).then_some(slot)
    }
}

impl Drop for RejectionSlot {
    fn drop(&mut self) {
        REJECTIONS.fetch_sub(1, Relaxed);
    }
}

async fn send(stream: &TcpStream, name: &str, rejection: &Rejection) -> io::Result<()> {
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
    close_gently(stream).await;
    Ok(())
}

async fn wait_for(stream: &TcpStream, n: usize) -> io::Result<()> {
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
