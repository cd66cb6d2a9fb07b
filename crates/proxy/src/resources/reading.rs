//! When the kernel is asked about a leg, and what it answers.

use super::leg::OVERHEAD;
use crate::observe::registry::ConnectionEntry;
use crate::observe::rest::Rest;
use ekiden_linux::sockets::buffers::{self, Memory};
use ekiden_linux::sockets::tcp_info::TcpInfo;
use ekiden_model::resources::buffers::{BufferSample, ConnectionFacts, Side};
use ekiden_model::resources::socket_memory::QueueProgress;
use ekiden_model::units::{Span, Time};
use std::os::fd::AsFd as _;
use std::sync::{Arc, Weak};
use tokio::net::TcpStream;

/// Whether a leg has moved bytes since the last look.
#[derive(Debug, Default)]
pub(super) struct LegActivity {
    /// Whose bytes it carries. A leg without is always looked at.
    owner: Option<Weak<ConnectionEntry>>,
    /// How often its owner had moved bytes before the last look.
    moves: Option<u64>,
    rest: Rest,
    /// What waits in its send and receive buffer.
    queues: [QueueProgress; 2],
}

/// A leg that the kernel is to be asked about.
#[derive(Debug)]
pub(super) struct DueLook {
    pub(super) id: u64,
    /// Whether its congestion control is known, and it is paced where it is to be.
    pub(super) is_settled: bool,
    stream: Weak<TcpStream>,
    moves: Option<u64>,
}

#[derive(Debug, Clone)]
pub(super) struct LegReading {
    pub(super) id: u64,
    /// How often its owner had moved bytes before; `None` without an owner.
    pub(super) moves: Option<u64>,
    pub(super) info: TcpInfo,
    pub(super) memory: Memory,
}

impl LegActivity {
    pub(super) fn set_owner(&mut self, owner: &Arc<ConnectionEntry>) {
        *self = Self { owner: Some(Arc::downgrade(owner)), ..Self::default() };
    }

    pub(super) fn owner(&self) -> Option<Arc<ConnectionEntry>> {
        self.owner.as_ref().and_then(Weak::upgrade)
    }

    /// What waits in one of its buffers.
    pub(super) const fn queue(&self, side: Side) -> QueueProgress {
        self.queues[side as usize]
    }

    /// The look that is due at the leg of this number and stream, if any.
    pub(super) fn due(
        &mut self,
        id: u64,
        stream: &Weak<TcpStream>,
        is_settled: bool,
    ) -> Option<DueLook> {
        let owner = self.owner();
        // before the look, so that what moves meanwhile counts as moved after it
        let moves = owner.map(|owner| owner.moves());
        if moves == self.moves && self.rest.leaves_out() {
            return None;
        }
        Some(DueLook { id, is_settled, stream: Weak::clone(stream), moves })
    }

    pub(super) const fn is_at_rest(&self) -> bool {
        self.rest.is_at_rest()
    }

    /// It is looked at in its next turn.
    pub(super) const fn wake(&mut self) {
        self.rest.wake();
    }

    /// A leg is at rest while it `may` be, nothing has moved since the look before, and nothing is under way. `leg`: 0
    /// for a client's, 1 for an upstream's.
    pub(super) fn note(&mut self, now: Time, seen: &LegReading, may: bool, leg: usize) {
        let taken = self.owner().map_or(0, |owner| owner.taken_from(leg));
        let accepted = [seen.info.bytes_acked.unwrap_or_default(), taken];
        for (side, accepted) in Side::ALL.into_iter().zip(accepted) {
            self.queues[side as usize].on_look(now, accepted, seen.memory.used(side).into());
        }
        let rests = may && seen.moves.is_some() && seen.moves == self.moves && seen.is_empty();
        self.rest.on_check(rests);
        self.moves = seen.moves;
    }
}

impl DueLook {
    /// Asks the kernel; `None` where the socket is closed.
    pub(super) fn look(&self) -> Option<LegReading> {
        let stream = self.stream.upgrade()?;
        let info = TcpInfo::read(stream.as_fd()).ok()?;
        let memory = buffers::memory(stream.as_fd()).ok()?;
        Some(LegReading { id: self.id, moves: self.moves, info, memory })
    }
}

impl LegReading {
    pub(super) fn facts(&self) -> ConnectionFacts {
        let Self { info, memory, .. } = self;
        let micros = |n: u32| Span::from_micros(n.into());
        let unread = u64::from(memory.used(Side::Receive)) / OVERHEAD;
        ConnectionFacts {
            rtt: micros(info.rtt),
            rto: micros(info.rto),
            backoff: info.backoff.into(),
            mss: info.snd_mss.into(),
            send_window: info.snd_wnd.map(u64::from),
            segments_sent: info.data_segs_out.unwrap_or_default().into(),
            retransmitted: info.total_retrans.into(),
            spurious: info.dsack_dups.unwrap_or_default().into(),
            busy: Span::from_micros(info.busy_time.unwrap_or_default()),
            buffer_limited: info.sndbuf_limited.map(Span::from_micros),
            bytes_received: info.bytes_received.unwrap_or_default(),
            queued: u64::from(memory.used(Side::Send)) / OVERHEAD,
            unread,
            // a pump reads at once unless its sink is full
            held_back: unread > 0,
        }
    }

    /// Whether no byte waits in its buffers or on its way to the peer.
    fn is_empty(&self) -> bool {
        self.info.unacked == 0 && Side::ALL.into_iter().all(|side| self.memory.used(side) == 0)
    }

    pub(super) fn looked(&self) -> BufferSample {
        let Self { info, memory, .. } = self;
        let half = memory.size(Side::Receive) / 2;
        // the receiver's own estimate, for connections that only receive
        let rtt = if info.rcv_rtt > 0 { info.rcv_rtt } else { info.rtt };
        BufferSample {
            send_size: memory.size(Side::Send).into(),
            send_used: memory.used(Side::Send).into(),
            busy: Span::from_micros(info.busy_time.unwrap_or_default()),
            limited: Span::from_micros(info.sndbuf_limited.unwrap_or_default()),
            sent: info.bytes_acked.unwrap_or_default(),
            held: 0,
            receive_size: memory.size(Side::Receive).into(),
            receive_used: memory.used(Side::Receive).into(),
            window: info.rcv_wnd.filter(|window| *window > 0).unwrap_or(half).into(),
            received: info.bytes_received.unwrap_or_default(),
            rtt: Span::from_micros(rtt.into()),
            path: Span::from_micros(info.min_rtt_us().unwrap_or_default().into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks that were taken in so many seconds, and whether the leg is empty at each.
    async fn taken(activity: &mut LegActivity, seconds: u64, moves: impl Fn(u64)) -> Vec<u64> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _other) = (Arc::new(stream), listener.accept().await.unwrap());
        let mut taken = Vec::new();
        for second in 0..seconds {
            moves(second);
            if let Some(due) = activity.due(1, &Arc::downgrade(&stream), true) {
                taken.push(second);
                activity.note(Time::ZERO, &due.look().unwrap(), true, 0);
            }
        }
        taken
    }

    fn entry() -> Arc<ConnectionEntry> {
        Arc::new(ConnectionEntry::new(1, ([127, 0, 0, 1], 1).into(), None))
    }

    #[tokio::test]
    async fn a_leg_at_rest_is_looked_at_each_tenth_second_and_once_it_moves() {
        let (owner, mut activity) = (entry(), LegActivity::default());
        activity.set_owner(&owner);
        let moves = |second| {
            if matches!(second, 5 | 17) {
                owner.on_moved();
            }
        };
        let taken = taken(&mut activity, 30, moves).await;
        // the first look has none before it
        assert_eq!(taken, [0, 1, 5, 6, 16, 17, 18, 28]);
    }

    #[tokio::test]
    async fn legs_that_nobody_owns_are_always_looked_at() {
        let mut activity = LegActivity::default();
        assert_eq!(taken(&mut activity, 20, |_| ()).await.len(), 20);
        activity.set_owner(&entry());
        assert_eq!(taken(&mut activity, 20, |_| ()).await.len(), 20, "its owner is gone");
    }
}
