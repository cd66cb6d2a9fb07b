//! Questions on a stream (RFC 7766): over TCP, or out of a peer's tunnel. Replies leave as they are there, in any
//! order.

use super::{Asked, Client, Handled, Incoming, answer, count_discarded, receive, reply};
use crate::outbound::dns::pipe::read_some;
use crate::outbound::dns::state::Answered;
use crate::runtime::RuntimeConfig;
use crate::transfer::budget::{ReservedMemory, TransferShare};
use crate::wire::dns::{Messages, framed};
use ekiden_model::dns::Outcome;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

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
/// Whether the client still may ask is looked at again after so long: an account may be disabled meanwhile, or a rule
/// taken away.
const LOOKED: Duration = Duration::from_secs(1);
/// A message that a rate holds up is tried again after so long.
const AGAIN: Duration = Duration::from_millis(100);
/// An answer that takes so many bytes takes no more than the question that waits for it, and does not count.
const SHORT: usize = 512;

/// A question whose answer is there. The reply is written in its turn: until then equal ones share the answer.
struct Ready {
    asked: Asked,
    outcome: Answered,
    /// What counts the answer, as if no other question shared it, and then the reply.
    _counted: Option<ReservedMemory>,
    /// Of a stream, one that waits goes without: who asks one after another has all its answers.
    _spare: Option<OwnedSemaphorePermit>,
}

impl Ready {
    /// A long answer that `memory` has no room for is none, unless `spare` is free.
    fn new(asked: Asked, outcome: Answered, memory: &TransferShare, spare: Arc<Semaphore>) -> Self {
        let bytes = match &outcome {
            Outcome::Fresh(answer, _) | Outcome::Stale(answer) => answer.size(),
            Outcome::Failed | Outcome::GaveWay => 0,
        };
        if bytes <= SHORT {
            return Self { asked, outcome, _counted: None, _spare: None };
        }
        let counted = memory.reserve(bytes);
        let spare = if counted.is_none() { spare.try_acquire_owned().ok() } else { None };
        let outcome = match (&counted, &spare) {
            (None, None) => Outcome::Failed,
            _ => outcome,
        };
        Self { asked, outcome, _counted: counted, _spare: spare }
    }
}

/// Answers until the client ends the stream, asks nothing for too long, or sends a message that is shorter than a header.
/// While a rate holds up a client's message, nothing more is read: replies on their way are not lost. `admit`: the client
/// as it may ask now; where that is nobody, or another, its next question ends the stream. `memory`: for answers that wait
/// for their turn.
pub(crate) async fn serve(
    config: impl Fn() -> Arc<RuntimeConfig>,
    admit: impl Fn() -> Option<Client>,
    memory: TransferShare,
    limits: Limits,
    stream: impl AsyncRead + AsyncWrite + Send,
) {
    let Some(client) = admit() else { return };
    let mut received = Messages::default();
    answer_all(&config, (&client, admit), memory, limits, stream, &mut received).await;
    count_discarded(&config(), &client, received.left());
}

/// The same, and leaves in `received` what is no question.
async fn answer_all(
    config: &impl Fn() -> Arc<RuntimeConfig>,
    (client, admit): (&Client, impl Fn() -> Option<Client>),
    memory: TransferShare,
    Limits { idle, waiting }: Limits,
    stream: impl AsyncRead + AsyncWrite + Send,
    received: &mut Messages,
) {
    let mut looked = Instant::now();
    let (mut from, mut to) = tokio::io::split(stream);
    let mut later: JoinSet<Ready> = JoinSet::new();
    let spare = Arc::new(Semaphore::new(1));
    let mut ended = false;
    let mut due = Instant::now() + idle;
    // held up by a rate, and tried again then
    let (mut held, mut again): (Option<Incoming>, _) = (None, due);
    while !ended || held.is_some() || !later.is_empty() {
        let mut out = Vec::new();
        tokio::select! {
            Some(done) = later.join_next(), if !later.is_empty() => {
                if let Ok(ready) = done {
                    reply(&config(), client, &ready.asked, &ready.outcome, &mut out);
                    if !send(&mut to, &out).await {
                        return;
                    }
                }
                due = Instant::now() + idle;
            }
            () = sleep_until(again.min(due)), if held.is_some() => {
                if Instant::now() >= due {
                    config().shared.dns.counts.limited.fetch_add(1, Relaxed);
                    let given_up = held.take().map_or(0, |incoming| incoming.bytes);
                    count_discarded(&config(), client, given_up + received.left());
                    (*received, ended) = (Messages::default(), true);
                }
            }
            read = timeout_at(due, read_some(&mut from, received)),
                if !ended && held.is_none() && later.len() < waiting =>
            {
                // whoever has nothing more to ask may still wait for answers
                ended = !matches!(read, Ok(Ok(n)) if n > 0);
            }
        }
        while later.len() < waiting {
            let incoming = match held.take() {
                Some(incoming) => incoming,
                None => match received.take() {
                    Ok(Some(message)) => {
                        due = Instant::now() + idle;
                        receive(&config(), client, &message)
                    }
                    Ok(None) => break,
                    Err(_) => return,
                },
            };
            if looked.elapsed() >= LOOKED {
                if admit().as_ref() != Some(client) {
                    config().shared.dns.counts.refused.fetch_add(1, Relaxed);
                    count_discarded(&config(), client, incoming.bytes + received.left());
                    // what it asked before is answered
                    (*received, ended) = (Messages::default(), true);
                    break;
                }
                looked = Instant::now();
            }
            let now = config();
            match answer(&now, client, incoming, &mut out) {
                Handled::Reply => {
                    if !send(&mut to, &out).await {
                        return;
                    }
                }
                Handled::Silence => return,
                Handled::Wait(incoming) => {
                    held = Some(incoming);
                    again = Instant::now() + AGAIN;
                    break;
                }
                Handled::Later(asked, outcome) => {
                    let (memory, spare) = (memory.clone(), Arc::clone(&spare));
                    later.spawn(async move { Ready::new(asked, outcome.await, &memory, spare) });
                }
            }
        }
    }
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
