//! Questions on a stream (RFC 7766): over TCP, or out of a peer's tunnel. Replies leave as they are there, in any
//! order.

use super::{Handled, Origin, handle, reply};
use crate::outbound::dns::pipe::{framed, take_message};
use crate::runtime::RuntimeConfig;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// A client's stream is closed after this long without a question (RFC 7766 §6.2.3).
pub(crate) const CLIENT_IDLE: Duration = Duration::from_secs(10);
/// A peer's: it asks on one for all its clients.
pub(crate) const PEER_IDLE: Duration = Duration::from_secs(60);
/// A reply must be taken within this time.
const WRITING: Duration = Duration::from_secs(5);
/// Questions of one stream that wait for their answers; others wait in the kernel.
const MOST: usize = 64;
/// Bytes that are read at a time.
const AT_ONCE: usize = 4_096;

/// Answers until the client ends the stream or asks nothing for `idle`.
pub(crate) async fn serve(
    config: impl Fn() -> Arc<RuntimeConfig>,
    origin: Origin,
    idle: Duration,
    stream: impl AsyncRead + AsyncWrite + Send,
) {
    let (mut from, mut to) = tokio::io::split(stream);
    let mut received = Vec::new();
    let mut later: JoinSet<Vec<u8>> = JoinSet::new();
    let mut ended = false;
    while !ended || !later.is_empty() {
        let mut out = Vec::new();
        tokio::select! {
            Some(done) = later.join_next(), if !later.is_empty() => {
                if let Ok(reply) = done
                    && !send(&mut to, &reply).await
                {
                    return;
                }
            }
            read = timeout(idle, read_some(&mut from, &mut received)),
                if !ended && later.len() < MOST =>
            {
                // whoever has nothing more to ask may still wait for answers
                ended = !matches!(read, Ok(Ok(n)) if n > 0);
            }
        }
        while later.len() < MOST
            && let Some(message) = take_message(&mut received)
        {
            let now = config();
            match handle(&now, origin, &message, &mut out) {
                Handled::Reply => {
                    if !send(&mut to, &out).await {
                        return;
                    }
                }
                Handled::Silence => return,
                Handled::Later(question, answer) => {
                    later.spawn(async move {
                        let outcome = answer.await;
                        let mut out = Vec::new();
                        reply(&now, origin, &question, &outcome, &mut out);
                        out
                    });
                }
            }
        }
    }
}

async fn read_some(
    from: &mut (impl AsyncRead + Unpin),
    received: &mut Vec<u8>,
) -> std::io::Result<usize> {
    received.reserve(AT_ONCE);
    from.read_buf(received).await
}

/// Whether a reply was taken.
async fn send(to: &mut (impl AsyncWrite + Unpin), reply: &[u8]) -> bool {
    let Some(framed) = framed(reply) else { return true };
    let sending = async {
        to.write_all(&framed).await?;
        to.flush().await
    };
    matches!(timeout(WRITING, sending).await, Ok(Ok(())))
}
