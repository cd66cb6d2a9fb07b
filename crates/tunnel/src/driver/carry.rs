//! A flow for tokio, and its bytes carried to and from a TCP connection.

use super::{Shared, locked};
use crate::core::{End, FlowId, Read};
use crate::reason::Reason;
use bytes::{Buf, Bytes, BytesMut};
use ekiden_linux::{clock, socket};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::Notify;

/// Bytes read from the connection at a time, and taken from the flow.
const AT_A_TIME: usize = 64 * 1024;
/// Pieces of a flow, each what a datagram brought, that are written at a time.
const PIECES: usize = 64;
/// After a break, how long the connection may take without progress to accept what came before.
const DRAIN: Duration = Duration::from_secs(10);

/// A flow. Dropped before its end it is given up, and the peer is told.
#[derive(Debug)]
pub struct Flow {
    shared: Arc<Shared>,
    id: FlowId,
    news: Arc<Notify>,
    /// Nothing is left to be decided: the core sends what still waits, and forgets the flow.
    left: bool,
}

/// How a flow that was carried ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// Both directions came to their end.
    Closed,
    /// The connection here broke.
    Here(String),
    /// It broke at the other end, or on the way.
    There(Reason, String),
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.shared.forget(self.id, !self.left);
    }
}

impl Flow {
    pub(super) const fn new(shared: Arc<Shared>, id: FlowId, news: Arc<Notify>) -> Self {
        Self { shared, id, news, left: false }
    }

    /// Waits for the answer to a flow that was opened here.
    ///
    /// # Errors
    /// Why it was not accepted.
    pub async fn answered(&self) -> Result<(), (Reason, String)> {
        loop {
            let answer = locked(&self.shared.core).answer(self.id);
            match answer {
                Some(answer) => return answer,
                None => self.news.notified().await,
            }
        }
    }

    /// Sends a packet of a flow that carries them; `false` where it is dropped.
    #[must_use]
    pub fn send_packet(&self, packet: Bytes) -> bool {
        let now = clock::now();
        self.shared.with(|core| core.send_packet(now, self.id, packet))
    }

    /// Waits for the next packet.
    ///
    /// # Errors
    /// The flow is over, and why.
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
                Read::Gone => {
                    let words = "the tunnel was lost".to_owned();
                    return Err(Ended::There(Reason::TunnelLost, words));
                }
                Read::Blocked | Read::Bytes(_) => self.news.notified().await,
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

    /// Ends it from here, answered or not; the peer is told why, and what waits is thrown away.
    pub fn abort(&self, reason: Reason, words: String) {
        let now = clock::now();
        self.shared.with(|core| {
            // does nothing to a flow that was answered, and leaves nothing of one that was not
            core.refuse(now, self.id, reason, words.clone());
            core.abort(now, self.id, reason, words);
        });
    }

    /// Carries bytes between the flow and a connection until both directions have ended or one breaks. A
    /// break at the other end becomes a reset of the connection; `before` is told of it first.
    pub async fn carry(
        mut self,
        stream: TcpStream,
        before: impl FnOnce(Reason, &str) + Send,
    ) -> Ended {
        let mut carrier = Carrier {
            flow: &self,
            stream: &stream,
            waiting: VecDeque::new(),
            end: None,
            read: BytesMut::new(),
            came_all: false,
            went_all: false,
        };
        let ended = carrier.run().await;
        self.left = true;
        if let Ended::There(reason, words) = &ended {
            before(*reason, words);
            drained(&stream).await;
            let _ = socket::abort(stream.as_fd());
        }
        ended
    }
}

struct Carrier<'a> {
    flow: &'a Flow,
    stream: &'a TcpStream,
    /// From the flow, not yet written; and what comes behind it.
    waiting: VecDeque<Bytes>,
    end: Option<Read>,
    /// What the connection's bytes are read into.
    read: BytesMut,
    /// The flow's direction has ended, and the connection's.
    came_all: bool,
    went_all: bool,
}

impl Carrier<'_> {
    async fn run(&mut self) -> Ended {
        loop {
            let mut moved = match self.bring() {
                Ok(moved) => moved,
                Err(ended) => return ended,
            };
            let room = match self.carry_off() {
                Ok((more, room)) => {
                    moved |= more;
                    room
                }
                Err(ended) => return ended,
            };
            if self.came_all && self.went_all {
                return Ended::Closed;
            }
            if moved {
                // others are served in between
                tokio::task::yield_now().await;
                continue;
            }
            let reads = !self.went_all && room > 0;
            let writes = !self.waiting.is_empty();
            tokio::select! {
                () = self.flow.news.notified() => {}
                _ = self.stream.readable(), if reads => {}
                _ = self.stream.writable(), if writes => {}
                // a reset while nothing is read or written
                _ = self.stream.ready(Interest::ERROR), if !reads && !writes => {
                    let error = socket::take_error(self.stream.as_fd()).ok().flatten();
                    let error = error.unwrap_or_else(|| io::ErrorKind::ConnectionReset.into());
                    return self.broke(&error);
                }
            }
        }
    }

    /// From the flow to the connection; whether anything moved.
    fn bring(&mut self) -> Result<bool, Ended> {
        let mut moved = false;
        if self.waiting.is_empty() && self.end.is_none() {
            self.take();
        }
        while !self.waiting.is_empty() {
            let pieces: Vec<_> =
                self.waiting.iter().take(PIECES).map(|bytes| IoSlice::new(bytes)).collect();
            match self.stream.try_write_vectored(&pieces) {
                Ok(written) => {
                    advance(&mut self.waiting, written);
                    moved = true;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(moved),
                Err(error) => return Err(self.broke(&error)),
            }
        }
        match self.end.take() {
            Some(Read::End(End::Fin)) => {
                self.came_all = true;
                moved = true;
                // fails only where the connection is gone, which reading tells
                let _ = socket2::SockRef::from(self.stream).shutdown(Shutdown::Write);
            }
            Some(Read::End(End::Reset(reason, words))) => return Err(Ended::There(reason, words)),
            Some(Read::Gone) if !(self.came_all && self.went_all) => {
                let words = "the tunnel was lost".to_owned();
                return Err(Ended::There(Reason::TunnelLost, words));
            }
            _ => {}
        }
        Ok(moved)
    }

    /// Takes what has come, so much that writing it is worth its while, and the end behind it.
    fn take(&mut self) {
        let (now, id) = (clock::now(), self.flow.id);
        let (waiting, end) = (&mut self.waiting, &mut self.end);
        self.flow.shared.with(|core| {
            let mut taken = 0;
            while taken < AT_A_TIME {
                match core.read(now, id) {
                    Read::Bytes(bytes) => {
                        taken += bytes.len();
                        waiting.push_back(bytes);
                    }
                    Read::Blocked => return,
                    over => {
                        *end = Some(over);
                        return;
                    }
                }
            }
        });
    }

    /// From the connection to the flow; whether anything moved, and how much more may.
    fn carry_off(&mut self) -> Result<(bool, usize), Ended> {
        if self.went_all {
            return Ok((false, 0));
        }
        let room = locked(&self.flow.shared.core).room(self.flow.id);
        if room == 0 {
            return Ok((false, 0));
        }
        self.read.resize(room.min(AT_A_TIME), 0);
        let now = clock::now();
        let id = self.flow.id;
        match self.stream.try_read(&mut self.read) {
            Ok(0) => {
                self.went_all = true;
                self.flow.shared.with(|core| core.finish(now, id, End::Fin));
                Ok((true, 0))
            }
            Ok(length) => {
                let bytes = self.read.split_to(length).freeze();
                self.flow.shared.with(|core| core.write(now, id, bytes));
                Ok((true, room - length))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok((false, room)),
            Err(error) => {
                let broken = self.broke(&error);
                Err(broken)
            }
        }
    }

    /// The connection here broke: what was read from it before still goes, then the break.
    fn broke(&mut self, error: &io::Error) -> Ended {
        let now = clock::now();
        let words = format!("the connection beyond broke: {error}");
        let id = self.flow.id;
        let end = End::Reset(Reason::Closed, words.clone());
        self.flow.shared.with(|core| core.finish(now, id, end));
        Ended::Here(words)
    }
}

/// Takes what was written away from the front.
fn advance(waiting: &mut VecDeque<Bytes>, mut written: usize) {
    while let Some(first) = waiting.front_mut() {
        if written < first.len() {
            first.advance(written);
            return;
        }
        written -= first.len();
        waiting.pop_front();
    }
}

/// Waits until everything written is acknowledged, or nothing moves for a while: an abort throws away what
/// is still unsent.
async fn drained(stream: &TcpStream) {
    let mut before = u32::MAX;
    let mut since = tokio::time::Instant::now();
    while let Ok(queue) = socket::unsent(stream.as_fd()) {
        let left = queue.unacked.saturating_add(queue.unsent);
        if left == 0 {
            return;
        }
        if left < before {
            before = left;
            since = tokio::time::Instant::now();
        } else if since.elapsed() > DRAIN {
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
