//! Clients that come: in, in after an idle connection was closed, or in turn. Who waits has its socket and
//! nothing else: no task, no buffer.

use super::{After, Resources};
use crate::http::reply;
use crate::incoming::{close_gently, write_all};
use crate::registry::{Entry, locked};
use crate::tunnels::Arrival;
use ekiden_linux::clock;
use ekiden_model::pressure::Verdict;
use ekiden_model::units::Span;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::net::TcpStream;

/// A connection that was accepted.
#[derive(Debug, Clone)]
pub(crate) struct Newcomer {
    pub(crate) stream: Arc<TcpStream>,
    pub(crate) address: SocketAddr,
    /// The flow it is the outer end of, where it came out of a tunnel.
    pub(crate) arrival: Option<Arc<Arrival>>,
}

/// A client's place among all; its end is room for another.
#[derive(Debug)]
pub(crate) struct Place {
    resources: Arc<Resources>,
    entry: OnceLock<Arc<Entry>>,
}

/// Refusals under way at a time; beyond, connections are closed without a word.
const MOST_REFUSALS: u64 = 256;

/// How long the client's first bytes are waited for, to be told in its own protocol.
const FOR_A_WORD: Duration = Duration::from_secs(2);

static REFUSALS: AtomicU64 = AtomicU64::new(0);

impl Place {
    /// A place that was counted already.
    pub(super) fn taken(resources: &Arc<Resources>) -> Self {
        Self { resources: Arc::clone(resources), entry: OnceLock::new() }
    }

    /// Whose it is.
    pub(crate) fn belongs_to(&self, entry: &Arc<Entry>) {
        // said once, when it begins
        let _ = self.entry.set(Arc::clone(entry));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut after = After::default();
        {
            let state = &mut *locked(&self.resources.state);
            let entry = self.entry.get();
            if let Some(entry) = entry {
                state.unpark(entry.id);
            }
            // the place of one that was closed for another is taken already
            if !entry.is_some_and(|entry| entry.evicted.load(Relaxed)) {
                state.clients -= 1;
            }
            state.serve(&mut after);
        }
        after.run(&self.resources);
    }
}

impl Newcomer {
    /// Whether the client has given up.
    pub(super) fn is_gone(&self) -> bool {
        let mut byte = [std::mem::MaybeUninit::uninit()];
        match socket2::SockRef::from(&*self.stream).peek(&mut byte) {
            Ok(n) => n == 0,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        }
    }
}

impl Resources {
    /// A client's place for a connection within one that has its own, as what is said under TLS.
    pub(crate) fn another(self: &Arc<Self>) -> Option<Place> {
        let room = self.make_room()?;
        locked(&self.state).clients += 1;
        drop(room);
        Some(Place::taken(self))
    }

    /// A client has come. Answers its place, if it is to be begun with now; otherwise it waits, or is being refused.
    pub(crate) fn arrive(self: &Arc<Self>, newcomer: &Newcomer) -> Option<Place> {
        let mut after = After::default();
        let verdict = {
            let state = &mut *locked(&self.state);
            loop {
                state.level();
                let idle = state.register.len();
                let verdict =
                    state.admission.ask(clock::now(), newcomer.clone(), &state.pressure, idle);
                match verdict {
                    // all that were idle spoke in this very moment: asked anew, with those less
                    Verdict::Evict(n) if state.evict(n, &mut after) == 0 => {}
                    Verdict::Proceed | Verdict::Evict(_) => {
                        state.clients += 1;
                        break verdict;
                    }
                    Verdict::Wait(_) => break verdict,
                    Verdict::Refuse { .. } => {
                        state.count_refusal();
                        break verdict;
                    }
                }
            }
        };
        after.run(self);
        match verdict {
            Verdict::Proceed | Verdict::Evict(_) => Some(Place::taken(self)),
            Verdict::Wait(_) => None,
            Verdict::Refuse { retry_after } => {
                self.refuse(newcomer.clone(), retry_after);
                None
            }
        }
    }

    /// One whose patience is over.
    pub(super) fn turn_away(&self, newcomer: Newcomer) {
        let patience = locked(&self.state).settings.pressure.patience;
        self.refuse(newcomer, patience);
    }

    fn refuse(&self, newcomer: Newcomer, retry_after: Span) {
        if let Some(arrival) = newcomer.arrival {
            return arrival.refuse();
        }
        let name = Arc::clone(&locked(&self.state).name);
        let text = "all connections are at work".to_owned();
        let turned = Turned { status: 503, text, retry_after: Some(retry_after) };
        if REFUSALS.load(Relaxed) < MOST_REFUSALS {
            tokio::spawn(async move { turn_away(&newcomer.stream, &name, &turned).await });
        }
    }
}

/// What one is told that is not served.
#[derive(Debug, Clone)]
pub(crate) struct Turned {
    pub(crate) status: u16,
    pub(crate) text: String,
    /// When it may come again.
    pub(crate) retry_after: Option<Span>,
}

/// Says in the client's own protocol that it is not served; without a word where too many are told.
pub(crate) async fn turn_away(stream: &TcpStream, name: &str, turned: &Turned) {
    let counted = Counted::new();
    if counted.is_some() {
        // gone or silent, there is nobody to be told
        let _ = say_no(stream, name, turned).await;
    }
}

/// One of the refusals under way.
struct Counted;

impl Counted {
    fn new() -> Option<Self> {
        let counted = Self;
        (REFUSALS.fetch_add(1, Relaxed) < MOST_REFUSALS).then_some(counted)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        REFUSALS.fetch_sub(1, Relaxed);
    }
}

async fn say_no(stream: &TcpStream, name: &str, turned: &Turned) -> io::Result<()> {
    let speaking = async {
        let mut first = [0; 5];
        let n = stream.peek(&mut first).await?;
        let first = first.get(..n).unwrap_or_default();
        match first.first() {
            None => return Ok::<_, io::Error>(()),
            // RFC 1928: a method is agreed on before a reply can be given
            Some(5) => {
                write_all(stream, &[5, 0]).await?;
                let methods = first.get(1).copied().map_or(3, |n| usize::from(n) + 3);
                wait_for(stream, methods).await?;
                // general failure, or not allowed
                let reply = if turned.status == 403 { 2 } else { 1 };
                write_all(stream, &[5, reply, 0, 1, 0, 0, 0, 0, 0, 0]).await?;
            }
            Some(4) => write_all(stream, &[0, 91, 0, 0, 0, 0, 0, 0]).await?,
            Some(_) => {
                let Turned { status, text, retry_after } = turned;
                let head_only = first == b"HEAD ";
                let words = match retry_after {
                    Some(after) => reply::later(*status, name, text, *after, head_only),
                    None => reply::refusal(*status, name, text, false, head_only),
                };
                write_all(stream, &words).await?;
            }
        }
        Ok(())
    };
    tokio::time::timeout(FOR_A_WORD, speaking).await.unwrap_or(Ok(()))?;
    close_gently(stream).await;
    Ok(())
}

/// Waits until so many bytes have come.
async fn wait_for(stream: &TcpStream, n: usize) -> io::Result<()> {
    let mut bytes = [0; 260];
    let wanted = bytes.get_mut(..n).unwrap_or_default();
    let mut before = 0;
    loop {
        let got = stream.peek(wanted).await?;
        if got >= wanted.len() || got == 0 {
            return Ok(());
        }
        // peeking does not wait for more than there is
        if got == before {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        before = got;
    }
}
