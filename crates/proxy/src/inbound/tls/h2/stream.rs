//! A stream of HTTP/2: its head and body to a session of HTTP/1.1, and the answer back.

mod interim;

use super::slow::{STALLED, SlowStream};
use super::unsent::{LEAST, Room, Unsent};
use super::{Common, WINDOW};
use crate::observe::registry::ConnectionEntry;
use crate::resources::HeldMemory;
use crate::transfer::buffered::{BufferedStream, write_all, write_and_tell};
use crate::transfer::end::End;
use crate::transfer::pipe::{self, PIPE};
use crate::wire::http::body::{self, Body};
use crate::wire::http::chunked::{Chunked, Output};
use crate::wire::http::h2::response_head;
use crate::wire::http::head::{HeadSearch, Limits, Response};
use bytes::Bytes;
use ekiden_model::units::Span;
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::Method;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes of an answer read at a time: what a pipe holds.
const AT_ONCE: usize = pipe::MOST;
/// The same where half of the memory is not free: a frame of the usual size (RFC 9113 §6.5.2).
const FRAME: usize = 16 * 1024;
/// The memory that counts for a stream: its pipe, and a frame of its answer.
pub(super) const STREAM: usize = PIPE + FRAME;

/// What follows the heads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tunnel {
    /// Bodies.
    None,
    /// Bytes of a CONNECT.
    Bytes,
    /// Capsules of an extended CONNECT for UDP (RFC 9298).
    Capsules,
}

/// A stream, and the session of HTTP/1.1 that serves it.
pub(super) struct H2Stream {
    inside: End,
    method: Method,
    tunnel: Tunnel,
    limits: Limits,
    /// How long one direction may be silent after the other has ended.
    silence: Span,
    /// How long the client may accept nothing.
    patience: Span,
    /// What counts for its pipe, and for a head on its way.
    held: HeldMemory,
    /// What counts for a frame, and whose turn it is to have it.
    frame: Arc<HeldMemory>,
    turn: Arc<Semaphore>,
    /// Whose turn it is to wait for the client with less than [`LEAST`], or with an interim response.
    little: Arc<Semaphore>,
    number: u32,
    all: Arc<Common>,
    /// The session's.
    entry: Arc<ConnectionEntry>,
    /// Data frames from the client so far.
    sent: AtomicU64,
    answered: AtomicBool,
    whole: AtomicBool,
}

impl Drop for H2Stream {
    fn drop(&mut self) {
        self.all.kept.close(self.number);
        // the session must not take a cut for an end of stream, nor one of its connection for its client's
        match self.entry.outer() {
            _ if self.whole.load(Relaxed) => {}
            Some(outer) if outer.has_ended() || self.all.is_cut() => self.entry.end(),
            _ => self.inside.abort("the stream was cut"),
        }
    }
}

pub(super) struct StreamBroken;

/// How the client's direction ended early.
enum UploadEnd {
    /// The client's stream broke.
    Client,
    /// The session takes no more. Its answer may have come.
    Session,
}

impl From<h2::Error> for StreamBroken {
    fn from(_: h2::Error) -> Self {
        Self
    }
}

impl From<io::Error> for StreamBroken {
    fn from(_: io::Error) -> Self {
        Self
    }
}

impl H2Stream {
    /// `patience`: how long one direction may be silent after the other has ended, and how long the client may accept
    /// nothing. `held`: [`STREAM`], and the head until it is written.
    pub(super) fn new(
        inside: End,
        (method, tunnel): (Method, Tunnel),
        limits: Limits,
        patience: [Span; 2],
        mut held: HeldMemory,
        (number, all, entry): (u32, Arc<Common>, Arc<ConnectionEntry>),
    ) -> Self {
        all.kept.open(number);
        let [silence, patience] = patience;
        let [answered, whole] = [false; 2].map(AtomicBool::new);
        let (frame, turn) = (Arc::new(held.split(FRAME)), Arc::new(Semaphore::new(1)));
        Self {
            inside,
            method,
            tunnel,
            limits,
            silence,
            patience,
            held,
            frame,
            turn,
            little: Arc::new(Semaphore::new(1)),
            number,
            all,
            entry,
            sent: AtomicU64::new(0),
            answered,
            whole,
        }
    }

    /// All of it was carried.
    pub(super) fn set_whole(&self) {
        self.whole.store(true, Relaxed);
    }

    /// `chunks`: the body follows in chunks.
    pub(super) async fn carry(
        &mut self,
        head: Vec<u8>,
        chunks: bool,
        body: RecvStream,
        respond: &mut SendResponse<Bytes>,
    ) -> Result<(), StreamBroken> {
        write_all(&self.inside, &head).await?;
        drop(head);
        // less is always granted
        self.held.resize(PIPE).await;
        self.both(chunks, body, respond).await
    }

    async fn both(
        &self,
        chunks: bool,
        body: RecvStream,
        respond: &mut SendResponse<Bytes>,
    ) -> Result<(), StreamBroken> {
        let up = self.up(body, chunks);
        let down = self.down(respond);
        tokio::pin!(up, down);
        let mut sent = false;
        loop {
            tokio::select! {
                up = &mut up, if !sent => match up {
                    Ok(()) | Err(UploadEnd::Session) => sent = true,
                    Err(UploadEnd::Client) => {
                        self.on_reset();
                        return Err(StreamBroken);
                    }
                },
                // the answer may come before the whole request is sent
                down = &mut down => {
                    down?;
                    break;
                }
            }
        }
        // where the relay ends a flow of datagrams, nothing that still comes has a meaning
        if self.tunnel != Tunnel::Bytes || sent {
            return Ok(());
        }
        // a tunnel needs the end of both directions
        loop {
            let before = self.sent.load(Relaxed);
            match tokio::time::timeout(self.silence.into(), &mut up).await {
                Ok(up) => return up.map_err(|_| StreamBroken),
                Err(_) if self.sent.load(Relaxed) == before => return Err(StreamBroken),
                Err(_) => {}
            }
        }
    }

    /// The client reset the stream.
    fn on_reset(&self) {
        if !self.answered.load(Relaxed) {
            self.all.on_given_up();
        }
    }

    async fn up(&self, mut body: RecvStream, chunks: bool) -> Result<(), UploadEnd> {
        let mut slow = None;
        while let Some(data) = body.data().await {
            let data = data.map_err(|_| UploadEnd::Client)?;
            if data.is_empty() {
                continue;
            }
            if chunks {
                let size = format!("{:x}\r\n", data.len());
                self.write(write_all(&self.inside, size.as_bytes()), &mut slow).await?;
            }
            let taken = |bytes| self.all.untaken.take_body(bytes);
            self.write(write_and_tell(&self.inside, &data, taken), &mut slow).await?;
            if chunks {
                self.write(write_all(&self.inside, b"\r\n"), &mut slow).await?;
            }
            self.sent.fetch_add(1, Relaxed);
            let length = data.len();
            drop(data);
            self.all.kept.take(self.number);
            let released = body.flow_control().release_capacity(length);
            released.map_err(|_| UploadEnd::Client)?;
            // its bytes have left the window that it was given
            if body.flow_control().used_capacity() <= FRAME {
                slow = None;
            }
        }
        if chunks {
            self.write(write_all(&self.inside, b"0\r\n\r\n"), &mut slow).await?;
        }
        if self.tunnel != Tunnel::None {
            self.inside.finish();
        }
        Ok(())
    }

    /// Waits for a part of the body to be written. While nobody takes it, other streams do not wait for that.
    async fn write(
        &self,
        writing: impl Future<Output = io::Result<()>>,
        slow: &mut Option<SlowStream>,
    ) -> Result<(), UploadEnd> {
        let mut writing = std::pin::pin!(writing);
        if let Ok(written) = tokio::time::timeout(STALLED, &mut writing).await {
            return written.map_err(|_| UploadEnd::Session);
        }
        if slow.is_none() {
            let window = self.held.beside_if_free(WINDOW as usize);
            *slow = window.map(|window| self.all.slow.begin(window));
        }
        writing.await.map_err(|_| UploadEnd::Session)
    }

    async fn down(&self, respond: &mut SendResponse<Bytes>) -> Result<(), StreamBroken> {
        let mut incoming = BufferedStream::new(self.inside.clone(), Vec::new());
        let mut counted = self.held.beside();
        let response = self.head(&mut incoming, respond, &mut counted).await?;
        self.answered.store(true, Relaxed);
        self.all.on_answer(response.status, self.entry.was_served());
        let tunnel = self.tunnel != Tunnel::None;
        let body = match tunnel && (200..300).contains(&response.status) {
            true => Body::UntilClose,
            false => {
                body::of_response(self.method.as_str(), &response).map_err(|_| StreamBroken)?
            }
        };
        let empty = matches!(body, Body::None | Body::Length(0));
        let (memory, beyond) = (response.memory(), incoming.capacity().saturating_sub(FRAME));
        // the library copies the fields, and keeps them until the client's connection takes them; no more than counts
        // already, which never fails
        counted.resize(2 * memory + beyond).await;
        let unsent = counted.split(memory);
        let head = response_head(&response, tunnel, unsent).ok_or(StreamBroken)?;
        let mut to = respond.send_response(head, empty)?;
        drop((response, counted));
        if empty {
            return Ok(());
        }
        self.body(&mut incoming, body, &mut to).await?;
        to.send_data(Bytes::new(), true)?;
        Ok(())
    }

    /// The head of the final response. Beyond a frame, `counted` counts what is read.
    async fn head(
        &self,
        incoming: &mut BufferedStream,
        respond: &mut SendResponse<Bytes>,
        counted: &mut HeldMemory,
    ) -> Result<Response, StreamBroken> {
        let mut search = HeadSearch::default();
        loop {
            match search.whole_response(incoming.bytes(), self.limits) {
                Ok(Some(whole)) => {
                    let beyond = incoming.capacity().saturating_sub(FRAME);
                    if !counted.resize(2 * whole.memory + beyond).await {
                        return Err(StreamBroken);
                    }
                    let read = whole.response(incoming.bytes(), self.limits);
                    let (response, used) = read.map_err(|_| StreamBroken)?;
                    incoming.consume(used);
                    search = HeadSearch::default();
                    match response.status {
                        200.. => return Ok(response),
                        // RFC 8441 §5: the stream takes no upgrade, it is open
                        101 if self.tunnel == Tunnel::Capsules => {
                            return Ok(Response { status: 200, ..response });
                        }
                        _ if response.is_interim() && self.tunnel == Tunnel::None => {
                            self.pass_on(&response, respond, counted).await?;
                        }
                        _ => {}
                    }
                }
                Ok(None) => {
                    let more = tokio::select! {
                        more = incoming.fill(FRAME) => more?,
                        // a client that reset its stream must not occupy a connection meanwhile
                        _ = poll_fn(|context| respond.poll_reset(context)) => {
                            self.on_reset();
                            0
                        }
                    };
                    let beyond = incoming.capacity().saturating_sub(FRAME);
                    if more == 0 || !counted.resize(beyond).await {
                        return Err(StreamBroken);
                    }
                }
                Err(_) => return Err(StreamBroken),
            }
        }
    }

    async fn body(
        &self,
        incoming: &mut BufferedStream,
        body: Body,
        to: &mut SendStream<Bytes>,
    ) -> Result<(), StreamBroken> {
        let mut left = match body {
            Body::Length(n) => n,
            _ => u64::MAX,
        };
        let mut chunked =
            matches!(body, Body::Chunked).then(|| Chunked::new(Output::Plain, self.limits));
        // what came with the head
        let (mut room, _) = self.room(to).await?;
        loop {
            let read = incoming.take();
            match &mut chunked {
                Some(chunked) => {
                    let mut data = Vec::with_capacity(read.len());
                    chunked.read(&read, &mut data).map_err(|_| StreamBroken)?;
                    drop(read);
                    self.send(to, data, room).await?;
                    if chunked.is_done() {
                        return Ok(());
                    }
                }
                None => {
                    left = left.saturating_sub(read.len() as u64);
                    self.send(to, read, room).await?;
                    if left == 0 {
                        return Ok(());
                    }
                }
            }
            tokio::select! {
                readable = incoming.stream.readable() => readable?,
                _ = poll_fn(|context| to.poll_reset(context)) => return Err(StreamBroken),
            }
            // counted before it is read
            let most;
            (room, most) = self.room(to).await?;
            let more = incoming.fill(most).await?;
            if more == 0 {
                return if matches!(body, Body::UntilClose) { Ok(()) } else { Err(StreamBroken) };
            }
        }
    }

    /// Memory for so many bytes more of the answer. While it is not ample, for one frame after another.
    async fn room(&self, to: &mut SendStream<Bytes>) -> Result<(Room, usize), StreamBroken> {
        if let Some(beside) = self.held.beside_if_free(AT_ONCE) {
            return Ok((Room::Beside(beside), AT_ONCE));
        }
        let turn = self.turn_of(&self.turn, to).await?;
        Ok((Room::Own(turn, Arc::clone(&self.frame)), FRAME))
    }

    /// Sends within the client's flow-control window. Each part takes some 300 bytes in the library until it is sent, so
    /// that windows of a byte must not make a part of each byte.
    async fn send(
        &self,
        to: &mut SendStream<Bytes>,
        bytes: Vec<u8>,
        room: Room,
    ) -> Result<(), StreamBroken> {
        if bytes.is_empty() {
            return Ok(());
        }
        let mut data = Unsent::new(bytes, room);
        while !data.is_empty() {
            to.reserve_capacity(data.len());
            let room = poll_fn(|context| to.poll_capacity(context));
            let room = tokio::time::timeout(self.patience.into(), room).await;
            let Ok(Some(room)) = room else { return Err(StreamBroken) };
            let mut turn = None;
            if room? < data.len().min(LEAST) {
                turn = Some(self.turn_of(&self.little, to).await?);
            }
            // it may have grown meanwhile, or be gone
            let part = data.split_to(to.capacity().min(data.len()), turn);
            if !part.is_empty() {
                to.send_data(part, false)?;
            }
        }
        Ok(())
    }

    /// A turn that whoever has it gives back once its bytes are sent.
    async fn turn_of(
        &self,
        turns: &Arc<Semaphore>,
        to: &mut SendStream<Bytes>,
    ) -> Result<OwnedSemaphorePermit, StreamBroken> {
        let turn = tokio::time::timeout(self.patience.into(), Arc::clone(turns).acquire_owned());
        tokio::select! {
            turn = turn => turn.ok().and_then(Result::ok).ok_or(StreamBroken),
            _ = poll_fn(|context| to.poll_reset(context)) => Err(StreamBroken),
        }
    }
}

#[cfg(test)]
mod tests;
