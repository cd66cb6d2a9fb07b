//! UDP proxying over HTTP (RFC 9298): datagrams between one client and one destination, in capsules on the stream of
//! the client's request, as long as it lasts.
//!
//! ```text
//! client ── capsules ──▶ CapsuleReader ─▶ rules, route ─▶ DatagramPaths ── bytes ──▶ destination
//!        ◀─ capsules ── Backlog ◀──────────────────────────────────────── bytes ──
//! ```
//! The request is checked and answered by `inbound::http::connect_udp`. Nothing here waits for the client: a datagram
//! that it does not take in time is dropped.

use super::{GAVE_WAY, begin, cut_by_relay, end_if_refused, paths, wait, within_limits_or_over};
use crate::destination::Destination;
use crate::error::Failure;
use crate::observe::registry::ConnectionState;
use crate::observe::udp_counts::{DropReason, UdpTally};
use crate::outbound::udp::IN_A_ROW;
use crate::outbound::udp::route::{DatagramPaths, Received};
use crate::resources::DescriptorReserve;
use crate::session::{LogEntry, Session, within};
use crate::transfer::backlog::Backlog;
use crate::transfer::budget::ReservedMemory;
use crate::transfer::buffered::BufferedStream;
use crate::transfer::scratch::with_scratch;
use crate::transfer::transient::is_transient;
use crate::wire::http::capsule::{BadCapsule, CapsuleReader, HEAD, UdpPayload, write_head};
use ekiden_linux::host::clock;
use ekiden_model::resources::quota::Direction;
use ekiden_model::units::Span;
use std::io;

/// How long a client may take for the last capsules.
const LAST_WORD: Span = Span::from_secs(2);

/// The datagrams of one request.
pub(crate) struct CapsuleFlow<'a> {
    session: &'a Session,
    pub(crate) entry: &'a mut LogEntry,
    to: Destination,
    way: DatagramPaths,
    reader: CapsuleReader,
    /// For a payload that arrives in parts.
    partial: Option<ReservedMemory>,
    /// Bytes that came besides payloads, and do not count yet.
    around: usize,
    backlog: Backlog,
    tally: UdpTally,
    _place: DescriptorReserve,
}

impl Drop for CapsuleFlow<'_> {
    fn drop(&mut self) {
        let tally = &self.tally;
        self.session.log_cut(self.entry, |why| tally.in_words(why));
    }
}

/// Why a flow ended.
enum FlowEnd {
    /// The stream is to end in order.
    Closed(String),
    /// The client broke the protocol: the stream is to be reset.
    Malformed(String),
    /// The destination is not reached any more.
    Failed(Failure),
}

impl From<BadCapsule> for FlowEnd {
    fn from(bad: BadCapsule) -> Self {
        Self::Malformed(bad.to_string())
    }
}

impl From<Failure> for FlowEnd {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<io::Error> for FlowEnd {
    fn from(error: io::Error) -> Self {
        Self::Closed(format!("the client's connection broke: {error}"))
    }
}

impl<'a> CapsuleFlow<'a> {
    /// Finds the way to the destination: rules, the route, and the name where this relay resolves it. Fails where
    /// UDP is off or full, too.
    pub(crate) async fn open(
        session: &'a Session,
        to: Destination,
        entry: &'a mut LogEntry,
    ) -> Result<Self, Failure> {
        let (tally, place) = begin(session)?;
        let mut way = paths(session);
        let route = way.open(&to).await?;
        entry.through = way.settled_hop().map(|hop| hop.name.clone()).into_iter().collect();
        session.registration.set_upstream_leg(entry.through.clone(), None);
        session.registration.set_route(&route.why);
        let backlog = Backlog::new(session.transfer());
        let (reader, partial) = (CapsuleReader::default(), None);
        let (around, _place) = (0, place);
        Ok(Self { session, entry, to, way, reader, partial, around, backlog, tally, _place })
    }

    /// Relays until the stream ends, it was silent for `udp.idle`, or the account has nothing left. `early`: what the
    /// client sent behind its request.
    pub(crate) async fn serve(mut self, mut incoming: BufferedStream) {
        self.session.registration.set_state(ConnectionState::Relaying);
        let early = incoming.take();
        let end = match self.read(&early) {
            Ok(_) => {
                drop((early, incoming));
                self.run().await
            }
            Err(end) => end,
        };
        self.count_around();
        if self.session.is_cut_off() {
            return;
        }
        let (client, registration) = (&self.session.client, &self.session.registration);
        registration.set_state(ConnectionState::Closing);
        let (why, malformed) = match &end {
            FlowEnd::Closed(why) => (why.clone(), false),
            FlowEnd::Malformed(why) => (format!("malformed capsules: {why}"), true),
            FlowEnd::Failed(failure) => {
                registration.count(failure);
                self.session.trace_error(failure.kind.word());
                (failure.text.clone(), false)
            }
        };
        if malformed {
            self.tally.count_dropped(DropReason::Malformed);
            registration.count_failed();
            self.session.trace_error("malformed");
        }
        self.session.log(self.entry, &self.tally.in_words(&why));
        let whole = !malformed && within(LAST_WORD, self.backlog.drain(client)).await.is_ok();
        let (client, session) = (client.clone(), self.session);
        // the destination's socket is closed before the client is waited for
        drop(self);
        if whole {
            session.close_gently().await;
        } else {
            client.abort(&why);
        }
    }

    async fn run(&mut self) -> FlowEnd {
        let session = self.session;
        let (client, idle) = (&session.client, session.config.settings.udp.idle);
        let mut last = clock::now();
        loop {
            // packets from elsewhere may keep this loop busy
            if clock::now() >= last + idle {
                return FlowEnd::Closed(format!("silent for {idle}"));
            }
            let moved = tokio::select! {
                ready = client.readable() => match ready {
                    Ok(()) => self.receive_from_client(),
                    Err(error) => Err(error.into()),
                },
                () = self.way.ready() => self.receive_from_outside(),
                () = self.tally.gives_way() => {
                    return FlowEnd::Closed(cut_by_relay(self.entry, GAVE_WAY));
                }
                drained = self.backlog.drain(client), if self.backlog.is_waiting() => {
                    drained.map(|()| false).map_err(FlowEnd::from)
                }
                () = wait(last + idle) => continue,
            };
            match moved {
                Ok(true) => last = clock::now(),
                Ok(false) => {}
                Err(end) => return end,
            }
        }
    }

    /// Reads once from the client; returns whether a datagram came.
    fn receive_from_client(&mut self) -> Result<bool, FlowEnd> {
        let session = self.session;
        with_scratch(|scratch| match session.client.try_read(scratch) {
            Ok(0) if self.reader.is_within_capsule() => {
                Err(FlowEnd::Malformed("the stream ended within a capsule".to_owned()))
            }
            Ok(0) => Err(FlowEnd::Closed("closed".to_owned())),
            Ok(n) => self.read(scratch.get(..n).unwrap_or_default()),
            Err(error) if is_transient(&error) => Ok(false),
            Err(error) => Err(error.into()),
        })
    }

    /// Forwards the datagrams in these bytes; returns whether there were any.
    fn read(&mut self, mut bytes: &[u8]) -> Result<bool, FlowEnd> {
        let mut moved = false;
        self.around += bytes.len();
        // apart, because its payloads are sent
        let mut reader = std::mem::take(&mut self.reader);
        let end = loop {
            let (partial, budget) = (&mut self.partial, self.backlog.budget());
            let hold = |length| {
                *partial = budget.reserve(length);
                partial.is_some()
            };
            match reader.read(&mut bytes, hold) {
                Ok(Some(UdpPayload::Whole(payload))) => {
                    moved = true;
                    self.around = self.around.saturating_sub(payload.len());
                    if let Err(end) = self.forward(payload) {
                        break Err(end);
                    }
                }
                Ok(Some(UdpPayload::NoRoom)) => {
                    self.tally.on_dropped(DropReason::Undelivered, || {
                        "no memory is left for a datagram in parts".to_owned()
                    })
                }
                Ok(None) => break Ok(moved),
                Err(bad) => break Err(bad.into()),
            }
        };
        if !reader.is_holding() {
            self.partial = None;
            self.count_around();
        }
        self.reader = reader;
        end
    }

    /// Counts heads of capsules, and what is skipped.
    fn count_around(&mut self) {
        self.session.count_moved(Direction::Up, std::mem::take(&mut self.around));
    }

    fn forward(&mut self, payload: &[u8]) -> Result<(), FlowEnd> {
        if !self.within_limits(Direction::Up, payload.len())? {
            return Ok(());
        }
        match self.way.send(&self.to, payload) {
            Ok(true) => self.on_sent(payload.len()),
            // waits for name resolution
            Ok(false) => {}
            Err(on_error) => end_if_refused(&mut self.tally, on_error)?,
        }
        Ok(())
    }

    fn on_sent(&mut self, bytes: usize) {
        self.tally.up();
        self.session.registration.moved(clock::now(), bytes as u64, 0, 0);
    }

    /// Forwards datagrams that came back; returns whether any went to the client.
    fn receive_from_outside(&mut self) -> Result<bool, FlowEnd> {
        let mut moved = false;
        for _ in 0..IN_A_ROW {
            let Some(received) = self.way.receive() else { break };
            match received {
                Ok(Received::Came(_, payload)) => moved |= self.deliver(&payload)?,
                Ok(Received::Sent(bytes)) => self.on_sent(bytes),
                Err(on_error) => end_if_refused(&mut self.tally, on_error)?,
            }
        }
        Ok(moved)
    }

    /// Returns whether there was room: a client that reads nothing does not keep the flow by what it is sent.
    fn deliver(&mut self, payload: &[u8]) -> Result<bool, FlowEnd> {
        let Some(room) = self.backlog.room(HEAD + payload.len()) else {
            self.tally.on_dropped(DropReason::Undelivered, || {
                "the client reads too slowly, and too much waits for it".to_owned()
            });
            return Ok(false);
        };
        if !self.within_limits(Direction::Down, payload.len())? {
            return Ok(false);
        }
        let mut head = Vec::with_capacity(HEAD);
        write_head(&mut head, payload.len());
        self.session.count_moved(Direction::Down, head.len());
        self.backlog.send(&self.session.client, room, (&head, payload))?;
        self.tally.down();
        self.session.registration.moved(clock::now(), 0, payload.len() as u64, 0);
        Ok(true)
    }

    fn within_limits(&mut self, direction: Direction, bytes: usize) -> Result<bool, Failure> {
        let counted = (&mut self.tally, &mut *self.entry);
        within_limits_or_over(self.session.share().as_deref(), counted, direction, bytes)
    }
}
