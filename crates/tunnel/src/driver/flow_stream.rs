//! A flow as a stream of bytes, with the calls that tokio has for a TCP socket.
//!
//! Bytes go from the core to whoever reads, and from whoever writes to the core; nothing is kept here.

use super::flow::{Flow, Hold};
use super::flow_view::FlowView;
use super::news::Wanted;
use super::{Shared, locked};
use crate::core::{End, Endpoint, FlowId, Read};
use crate::frame::reason::Reason;
use bytes::Bytes;
use ekiden_linux::host::clock;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::sync::Mutex;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::task::coop::poll_proceed;

/// How long the other end may take to end its direction after this end was dropped: the kernel's `tcp_fin_timeout`.
const LINGER: Duration = Duration::from_secs(60);

/// Called once where the flow breaks: with the reason, its words, and whether the far end refused the flow.
type OnBreak = Box<dyn FnOnce(Reason, &str, bool) + Send>;

/// A flow as a stream. One task each may read, write, and wait for a break.
///
/// Dropping it closes it as a TCP socket is closed: what was written is still sent, then the end of the stream. Bytes
/// that nobody read, or that come afterwards, reset the flow. So does a far end that takes nothing for a minute. An
/// incoming flow without an answer is refused.
pub struct FlowStream {
    flow: Flow,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Taken from the core, and more than the reader asked for.
    rest: Bytes,
    /// How the received bytes end, once that is known.
    end: Option<End>,
    /// The far end reached the destination, as far as was seen.
    accepted: bool,
    /// Nothing more is written.
    finished: bool,
    /// The flow was reset here.
    aborted: bool,
    on_break: Option<OnBreak>,
}

impl std::fmt::Debug for FlowStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("FlowStream").field(&self.flow.id).finish()
    }
}

impl Flow {
    /// The flow as a stream of bytes. `on_break` is called once where it breaks at the far end or on the way, before
    /// the error is returned: with the reason, its words, and whether the far end refused the flow.
    pub fn into_stream(
        self,
        on_break: impl FnOnce(Reason, &str, bool) + Send + 'static,
    ) -> FlowStream {
        let state = State { on_break: Some(Box::new(on_break)), ..State::default() };
        FlowStream { flow: self, state: Mutex::new(state) }
    }
}

impl FlowStream {
    /// Looks at the flow from elsewhere.
    pub fn view(&self) -> FlowView {
        self.flow.view()
    }

    /// Says that the destination of an incoming flow was reached.
    pub fn accept(&self) {
        self.flow.accept();
    }

    /// Says that it was not; nothing else can be done with the flow.
    pub fn refuse(&self, reason: Reason, words: String) {
        self.give_up(|shared, id| {
            let now = clock::now();
            shared.with(|core| core.refuse(now, id, reason, words));
        });
    }

    /// Takes at most `most` bytes that have come and appends them to `pieces`; how many. 0: the stream has ended.
    /// Errors: the flow broke, after all bytes that came before.
    pub fn poll_pieces(
        &self,
        cx: &Context<'_>,
        most: usize,
        pieces: &mut VecDeque<Bytes>,
    ) -> Poll<io::Result<usize>> {
        let mut state = locked(&self.state);
        let mut taken = self.take(&mut state, most, pieces);
        if matches!(&taken, Err(error) if error.kind() == ErrorKind::WouldBlock) {
            self.flow.news.wait_for(Wanted::Bytes, cx);
            taken = self.take(&mut state, most, pieces);
        }
        match taken {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Poll::Pending,
            taken => Poll::Ready(taken),
        }
    }

    fn take(
        &self,
        state: &mut State,
        most: usize,
        pieces: &mut VecDeque<Bytes>,
    ) -> io::Result<usize> {
        let mut taken = state.rest.len().min(most);
        if taken > 0 {
            pieces.push_back(state.rest.split_to(taken));
        }
        if self.flow.news.is_shut() {
            return Ok(taken);
        }
        if state.end.is_none() && taken < most {
            let (now, id) = (clock::now(), self.flow.id);
            self.flow.shared.with(|core| {
                // until it is; asked before the end is read, which forgets the flow
                state.accepted = state.accepted || core.answer(id) == Some(Ok(()));
                while taken < most {
                    match core.read(now, id) {
                        Read::Bytes(mut bytes) => {
                            if bytes.len() > most - taken {
                                state.rest = bytes.split_off(most - taken);
                            }
                            taken += bytes.len();
                            pieces.push_back(bytes);
                        }
                        Read::Blocked => break,
                        Read::End(end) => {
                            state.end = Some(end);
                            break;
                        }
                        Read::Gone => {
                            state.end = Some(lost());
                            break;
                        }
                    }
                }
            });
            state.tell();
        }
        match &state.end {
            _ if taken > 0 => Ok(taken),
            Some(End::Fin) => Ok(0),
            Some(End::Reset(reason, words)) => Err(broken(*reason, words)),
            None => Err(ErrorKind::WouldBlock.into()),
        }
    }

    /// Reads what has come; 0 at the end of the stream. Errors: `WouldBlock`, or the flow broke.
    pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut pieces = VecDeque::new();
        let n = self.take(&mut locked(&self.state), buffer.len(), &mut pieces)?;
        let mut at = 0;
        for piece in pieces {
            buffer[at..at + piece.len()].copy_from_slice(&piece);
            at += piece.len();
        }
        Ok(n)
    }

    /// Waits until something can be read: bytes, the end of the stream, or a break.
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<()> {
        // other tasks get their turn between two reads, as with a socket
        let turn = ready!(poll_proceed(cx));
        self.flow.news.wait_for(Wanted::Bytes, cx);
        let state = locked(&self.state);
        let ready = !state.rest.is_empty()
            || state.end.is_some()
            || self.flow.news.is_shut()
            || locked(&self.flow.shared.core).is_readable(self.flow.id);
        if !ready {
            return Poll::Pending;
        }
        turn.made_progress();
        Poll::Ready(())
    }

    /// See [`Self::poll_read_ready`].
    pub async fn readable(&self) {
        poll_fn(|cx| self.poll_read_ready(cx)).await;
    }

    /// Whether bytes have come that nobody has read, or an end.
    pub fn is_readable(&self) -> bool {
        let state = locked(&self.state);
        !state.rest.is_empty() || locked(&self.flow.shared.core).is_readable(self.flow.id)
    }

    /// How many bytes it takes now. Errors: the flow broke, or its writing end was shut.
    pub fn room(&self) -> io::Result<usize> {
        self.writing(|| {
            let mut core = locked(&self.flow.shared.core);
            unless_broken(&mut core, self.flow.id, |core, id| core.room(id))
        })
    }

    /// Does something with the flow's writing end. Errors: the flow broke, or its writing end was shut.
    fn writing<T>(&self, work: impl FnOnce() -> Result<T, (Reason, String)>) -> io::Result<T> {
        let shut = self.flow.news.is_shut() || locked(&self.state).finished;
        if shut {
            return Err(ErrorKind::BrokenPipe.into());
        }
        work().map_err(|(reason, words)| {
            locked(&self.state).on_end(reason, &words);
            broken(reason, &words)
        })
    }

    /// Waits for room that is worth a write, or for a break; returns the room in bytes.
    pub fn poll_room(&self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let turn = ready!(poll_proceed(cx));
        self.flow.news.wait_for(Wanted::Room, cx);
        let room = self.writing(|| {
            let mut core = locked(&self.flow.shared.core);
            unless_broken(&mut core, self.flow.id, |core, id| core.writable(id))
        });
        match room {
            Ok(0) => Poll::Pending,
            ready => {
                turn.made_progress();
                Poll::Ready(ready)
            }
        }
    }

    /// See [`Self::poll_room`].
    pub async fn writable(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_room(cx)).await.map(|_| ())
    }

    /// Writes as much as there is room for. Errors: `WouldBlock`, the flow broke, or its writing end was shut.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let room = self.room()?.min(bytes.len());
        // copied before the core is locked again; meanwhile others may have taken the room
        let (now, id) = (clock::now(), self.flow.id);
        let copy = Bytes::copy_from_slice(&bytes[..room]);
        let n = self.flow.shared.with(|core| core.try_write(now, id, copy));
        if n == 0 && !bytes.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        Ok(n)
    }

    /// Nothing more is written: the other end reads the end of the stream after all bytes.
    pub fn finish(&self) {
        if !std::mem::replace(&mut locked(&self.state).finished, true) {
            let (now, id) = (clock::now(), self.flow.id);
            self.flow.shared.with(|core| core.finish(now, id, End::Fin));
        }
    }

    /// Resets the flow at once: bytes that wait are discarded, and the peer gets the reason.
    pub fn abort(&self, reason: Reason, words: &str) {
        self.give_up(|shared, id| {
            let now = clock::now();
            shared.with(|core| {
                // an incoming flow without an answer is refused
                core.refuse(now, id, reason, words.to_owned());
                core.abort(now, id, reason, words.to_owned());
            });
        });
    }

    /// Resets the flow once all that was written is sent.
    pub fn reset_when_sent(&self, reason: Reason, words: &str) {
        self.give_up(|shared, id| {
            let now = clock::now();
            shared.with(|core| core.finish(now, id, End::Reset(reason, words.to_owned())));
        });
    }

    /// Waits until the flow breaks at the far end or on the way.
    pub async fn broken(&self) {
        poll_fn(|cx| {
            self.flow.news.wait_for(Wanted::Break, cx);
            if self.is_broken() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Whether it broke at the far end or on the way.
    pub fn is_broken(&self) -> bool {
        let both_ended = {
            let state = locked(&self.state);
            state.finished && state.end == Some(End::Fin)
        };
        // the core forgets a flow whose directions have both ended
        if both_ended {
            return false;
        }
        let end = locked(&self.flow.shared.core).broken(self.flow.id);
        if let Some((reason, words)) = &end {
            locked(&self.state).on_end(*reason, words);
        }
        end.is_some()
    }

    fn give_up(&self, end: impl FnOnce(&Shared, FlowId)) {
        if !std::mem::replace(&mut locked(&self.state).aborted, true) {
            end(&self.flow.shared, self.flow.id);
            self.flow.news.ring();
        }
    }
}

impl State {
    /// Reports a break that was read.
    fn tell(&mut self) {
        if let Some(End::Reset(reason, words)) = self.end.clone() {
            self.on_end(reason, &words);
        }
    }

    fn on_end(&mut self, reason: Reason, words: &str) {
        let refused = !self.accepted && reason != Reason::TunnelLost;
        if let Some(on_break) = self.on_break.take() {
            on_break(reason, words, refused);
        }
    }
}

fn unless_broken<T>(
    core: &mut Endpoint,
    id: FlowId,
    work: impl FnOnce(&mut Endpoint, FlowId) -> T,
) -> Result<T, (Reason, String)> {
    core.broken(id).map_or_else(|| Ok(work(core, id)), Err)
}

fn lost() -> End {
    End::Reset(Reason::TunnelLost, "the tunnel was lost".to_owned())
}

fn broken(reason: Reason, words: &str) -> io::Error {
    let words = if words.is_empty() { reason.to_string() } else { words.to_owned() };
    io::Error::new(ErrorKind::ConnectionReset, words)
}

impl Drop for FlowStream {
    fn drop(&mut self) {
        let state = locked(&self.state);
        let received_all = state.end == Some(End::Fin);
        let (aborted, finished) = (state.aborted, state.finished);
        let unread = !state.rest.is_empty();
        drop(state);
        if aborted || (received_all && finished) {
            self.flow.hold = Hold::Left;
            return;
        }
        // an end alone would pass for an empty answer of the destination; other flows are left as they are
        let (now, id) = (clock::now(), self.flow.id);
        let words = "closed without an answer".to_owned();
        self.flow.shared.with(|core| core.refuse(now, id, Reason::Closed, words));
        // without a runtime nobody could wait for the other end
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if unread {
            self.reset_when_sent(Reason::Closed, "closed with bytes unread");
            self.flow.hold = Hold::Left;
            return;
        }
        self.finish();
        if received_all {
            self.flow.hold = Hold::Left;
            return;
        }
        let Flow { shared, id, news, .. } = &self.flow;
        // what waits has its time from now on, whatever the other end does with its direction
        let now = clock::now();
        shared.with(|core| core.leave(now, *id));
        let flow = Flow::new(shared.clone(), *id, news.clone());
        self.flow.hold = Hold::Passed;
        runtime.spawn(linger(flow));
    }
}

/// Waits for the other end's end of stream; bytes or silence reset the flow.
async fn linger(mut flow: Flow) {
    let ended = async {
        loop {
            let now = clock::now();
            match flow.shared.with(|core| core.read(now, flow.id)) {
                Read::Bytes(_) => return false,
                Read::Blocked => flow.news.any().await,
                Read::End(_) | Read::Gone => return true,
            }
        }
    };
    let ended = tokio::time::timeout(LINGER, ended).await.unwrap_or(false);
    let (now, id) = (clock::now(), flow.id);
    if !ended {
        // what was written before is sent
        let end = End::Reset(Reason::Closed, "closed".to_owned());
        flow.shared.with(|core| core.finish(now, id, end));
    }
    flow.hold = Hold::Left;
}
