//! A flow for tokio, and its bytes carried to and from a TCP connection.

use super::drain::wait_until_sent;
use super::flow_view::FlowView;
use super::{Shared, locked};
use crate::core::{End, FlowId, Read};
use crate::frame::reason::Reason;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use ekiden_linux::host::clock;
use ekiden_linux::sockets::socket;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::sync::Arc;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::Notify;

/// Bytes read from the connection at a time, and taken from the flow.
const AT_A_TIME: usize = 64 * 1024;
/// Pieces of a flow, one datagram each, that are written at a time.
const PIECES: usize = 64;

/// A flow. Dropping it before its end abandons it, and the peer is informed.
#[derive(Debug)]
pub struct Flow {
    shared: Arc<Shared>,
    id: FlowId,
    news: Arc<Notify>,
    /// Both directions ended: the core sends what still waits, and forgets the flow.
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

impl Ended {
    fn lost() -> Self {
        Self::There(Reason::TunnelLost, "the tunnel was lost".to_owned())
    }
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

    /// Looks at it from elsewhere.
    pub fn view(&self) -> FlowView {
        FlowView::new(Arc::downgrade(&self.shared), self.id)
    }

    /// Waits for the answer to a flow that was opened here. Errors: why it was not accepted.
    pub async fn answered(&self) -> Result<(), (Reason, String)> {
        loop {
            let answer = locked(&self.shared.core).answer(self.id);
            if let Some(answer) = answer { return answer } else { self.news.notified().await }
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

    /// Copies bytes between the flow and a connection until both directions ended or one breaks. A
    /// far end's break becomes a reset of the connection, after a call of `before` with its reason, its
    /// words, and whether it refused the flow.
    pub async fn carry(
        mut self,
        stream: TcpStream,
        before: impl FnOnce(Reason, &str, bool) + Send,
    ) -> Ended {
        let mut carrier = Bridge {
            flow: &self,
            stream: &stream,
            waiting: VecDeque::new(),
            end: None,
            accepted: false,
            read: BytesMut::new(),
            came_all: false,
            went_all: false,
        };
        let ended = carrier.run().await.err().unwrap_or(Ended::Closed);
        let accepted = carrier.accepted;
        self.left = true;
        if let Ended::There(reason, words) = &ended {
            before(*reason, words, !accepted && *reason != Reason::TunnelLost);
            wait_until_sent(&stream).await;
            let _ = socket::abort(stream.as_fd());
        }
        ended
    }
}

struct Bridge<'a> {
    flow: &'a Flow,
    stream: &'a TcpStream,
    /// From the flow, not yet written; and its end.
    waiting: VecDeque<Bytes>,
    end: Option<Read>,
    /// The far end reached the destination, as far as was seen.
    accepted: bool,
    read: BytesMut,
    came_all: bool,
    went_all: bool,
}

impl Bridge<'_> {
    async fn run(&mut self) -> Result<(), Ended> {
        loop {
            let wrote = self.write_connection()?;
            let (read, room) = self.read_connection()?;
            if self.came_all && self.went_all {
                return Ok(());
            }
            if wrote || read {
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
                    return Err(self.broke(&error));
                }
            }
        }
    }

    /// From the flow to the connection; whether anything moved.
    fn write_connection(&mut self) -> Result<bool, Ended> {
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
                // fails only where the connection is gone, which reading reports
                let _ = socket2::SockRef::from(self.stream).shutdown(Shutdown::Write);
            }
            Some(Read::End(End::Reset(reason, words))) => return Err(Ended::There(reason, words)),
            Some(Read::Gone) if !(self.came_all && self.went_all) => return Err(Ended::lost()),
            _ => {}
        }
        Ok(moved)
    }

    /// Takes enough received bytes to make a write worthwhile, and the end behind them.
    fn take(&mut self) {
        let (now, id) = (clock::now(), self.flow.id);
        let (waiting, end, accepted) = (&mut self.waiting, &mut self.end, &mut self.accepted);
        self.flow.shared.with(|core| {
            // until it is; asked before the end is read, which forgets the flow
            *accepted = *accepted || core.answer(id) == Some(Ok(()));
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

    fn read_connection(&mut self) -> Result<(bool, usize), Ended> {
        if self.went_all {
            return Ok((false, 0));
        }
        let room = locked(&self.flow.shared.core).room(self.flow.id);
        if room == 0 {
            return Ok((false, 0));
        }
        let most = room.min(AT_A_TIME);
        // what was read before is still waited for, and small pieces share one buffer
        if self.read.capacity() < most / 2 {
            self.read.reserve(most);
        }
        let now = clock::now();
        let id = self.flow.id;
        match self.stream.try_read_buf(&mut (&mut self.read).limit(most)) {
            Ok(0) => {
                self.went_all = true;
                self.flow.shared.with(|core| core.finish(now, id, End::Fin));
                Ok((true, 0))
            }
            Ok(length) => {
                let bytes = self.read.split().freeze();
                self.flow.shared.with(|core| core.write(now, id, bytes));
                Ok((true, room - length))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok((false, room)),
            Err(error) => Err(self.broke(&error)),
        }
    }

    /// The connection here broke: a client's bytes that wait are discarded, a destination's are sent before the break.
    fn broke(&mut self, error: &io::Error) -> Ended {
        let now = clock::now();
        let words = format!("the connection beyond broke: {error}");
        let (id, told) = (self.flow.id, words.clone());
        self.flow.shared.with(|core| core.on_broken(now, id, Reason::Closed, told));
        Ended::Here(words)
    }
}

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
