//! Questions on a stream (RFC 7766): over TCP, or out of a peer's tunnel. Replies leave as they are there, in any
//! order.

use super::{Handled, Origin, handle, reply};
use crate::outbound::dns::pipe::{framed, take_message};
use crate::runtime::RuntimeConfig;
use ekiden_model::dns::Asker;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

/// Limits of a stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// It is closed after this long without a whole message or a reply (RFC 7766 §6.2.3); bytes of one do not count.
    pub(super) idle: Duration,
    /// Questions that wait for their answers; others wait in the kernel.
    pub(super) waiting: usize,
}

/// Of a client.
pub(crate) const CLIENT: Limits = Limits { idle: Duration::from_secs(10), waiting: 64 };
/// Of a peer: it asks on one stream for all its clients, and some ask for names of slow servers.
pub(crate) const PEER: Limits = Limits { idle: Duration::from_secs(60), waiting: 1_024 };
/// A reply must be taken within this time.
const WRITING: Duration = Duration::from_secs(5);
/// Bytes that are read at a time.
const AT_ONCE: usize = 4_096;

/// Answers until the client ends the stream or asks nothing for too long.
pub(crate) async fn serve(
    config: impl Fn() -> Arc<RuntimeConfig>,
    (origin, asker): (Origin, Asker),
    Limits { idle, waiting }: Limits,
    stream: impl AsyncRead + AsyncWrite + Send,
) {
    let (mut from, mut to) = tokio::io::split(stream);
    let mut received = Vec::new();
    let mut later: JoinSet<Vec<u8>> = JoinSet::new();
    let mut ended = false;
    let mut due = Instant::now() + idle;
    while !ended || !later.is_empty() {
        let mut out = Vec::new();
        tokio::select! {
            Some(done) = later.join_next(), if !later.is_empty() => {
                if let Ok(reply) = done
                    && !send(&mut to, &reply).await
                {
                    return;
                }
                due = Instant::now() + idle;
            }
            read = timeout_at(due, read_some(&mut from, &mut received)),
                if !ended && later.len() < waiting =>
            {
                // whoever has nothing more to ask may still wait for answers
                ended = !matches!(read, Ok(Ok(n)) if n > 0);
            }
        }
        while later.len() < waiting
            && let Some(message) = take_message(&mut received)
        {
            due = Instant::now() + idle;
            let now = config();
            match handle(&now, (origin, &asker), &message, &mut out) {
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
