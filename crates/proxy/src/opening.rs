//! Opening one connection to one address, as [`ekiden_model::opening`] plans it.
//!
//! ```text
//! first SYN ─────────────────────────── 1 s ─▶ the kernel repeats it, again and again
//!   └─ second SYN after δ, if asked for and permitted
//!       └─ no answer by rto0 ─▶ another ─▶ at 3 · rto0 another …, each in the place of the one before
//! the first answer wins; what else waits is closed
//! ```
//! A socket that waits for its SYN's answer is closed without a packet. Should the answer still come, the
//! kernel resets it, and the server's program never hears of it.

use crate::dial::Dialed;
use crate::means::Means;
use crate::registry::locked;
use crate::world::NamedLeg;
use ekiden_linux::answer::{Outcomes, Stage};
use ekiden_linux::clock;
use ekiden_linux::options::SocketOptions;
use ekiden_linux::tcp_info::{TcpInfo, TcpState};
use ekiden_model::opening::{Answered, Copy, Kind, Opening, Step};
use ekiden_model::units::{Span, Time};
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::OwnedSemaphorePermit;

/// A copy that waits for its answer.
struct Waiting {
    copy: Copy,
    since: Time,
    outcomes: Outcomes,
    /// Its receive buffer was asked for, so that the handshake announces a window scale to match.
    announced: bool,
    connecting: Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>,
    /// Copies beside the first are counted, so that descriptors suffice for all.
    _place: Option<OwnedSemaphorePermit>,
}

/// Connects to `address` over a leg.
///
/// # Errors
/// What the kernel said of the first copy that was refused; `TimedOut` when nobody answered in the leg's
/// time.
pub(crate) async fn open(
    means: &Arc<Means>,
    leg: &Arc<NamedLeg>,
    address: SocketAddr,
) -> io::Result<Dialed> {
    let plan = leg.known.plan(&leg.leg, address.ip());
    let mut opening = Opening::new(plan, clock::now());
    let mut waiting: Vec<Waiting> = Vec::with_capacity(1);
    loop {
        let now = clock::now();
        let mut place = None;
        while let Some(step) = opening.next(now, |kind| {
            place = means.place();
            place.is_some()
                && (kind != Kind::Second
                    || means.grant(now, address.ip(), leg.known.loss(address.ip())))
        }) {
            match step {
                Step::Start(copy) => match connect(means, leg, address, copy, place.take()) {
                    Ok(more) => {
                        leg.known.on_started(copy.kind);
                        waiting.push(more);
                    }
                    Err(error) if copy.kind == Kind::First => return Err(error),
                    // no descriptor or no port left: those that wait already may still do
                    Err(_) => opening.on_failed(copy.number),
                },
                Step::Close(number) => waiting.retain(|other| other.copy.number != number),
                Step::GiveUp => return Err(io::ErrorKind::TimedOut.into()),
            }
        }
        drop(place);
        let deadline = opening.deadline();
        let (winner, result) = tokio::select! {
            biased;
            answered = answer(&mut waiting) => answered,
            () = crate::dial::wait_until(deadline), if deadline != Time::NEVER => continue,
        };
        match result {
            Ok(stream) => {
                leg.known.on_established();
                return Ok(established(leg, address, &winner, stream));
            }
            Err(error) if !waiting.is_empty() && !is_answer(winner.copy.kind, &error) => {
                opening.on_failed(winner.copy.number);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Whether a copy's failure is one for all: what the first meets, the kernel alone would have met, but its
/// time-out; of the others, only what the peer itself said. No port, no memory or no way for them is no
/// reason to give up the first.
fn is_answer(kind: Kind, error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, ConnectionReset, TimedOut};
    match kind {
        Kind::First => error.kind() != TimedOut,
        _ => matches!(error.kind(), ConnectionRefused | ConnectionReset),
    }
}

fn connect(
    means: &Means,
    leg: &NamedLeg,
    address: SocketAddr,
    copy: Copy,
    place: Option<OwnedSemaphorePermit>,
) -> io::Result<Waiting> {
    let ipv6 = address.is_ipv6();
    let (socket, outcomes) = match leg.leg.establish_timeout {
        // in Linux the limit of unacknowledged data ends a handshake, too
        Some(_) if leg.leg.socket.user_timeout.is_some() => {
            SocketOptions { user_timeout: None, ..leg.leg.socket.clone() }
                .new_stream_socket(ipv6, Stage::Connecting)?
        }
        _ => leg.leg.socket.new_stream_socket(ipv6, Stage::Connecting)?,
    };
    let announced = means.resources.announce(socket.as_fd(), &leg.leg);
    let socket = TcpSocket::from_std_stream(socket.into());
    let connecting = Box::pin(socket.connect(address));
    Ok(Waiting { copy, since: clock::now(), outcomes, announced, connecting, _place: place })
}

/// The first copy that came to something, in the order in which they were sent.
async fn answer(waiting: &mut Vec<Waiting>) -> (Waiting, io::Result<TcpStream>) {
    poll_fn(|cx| {
        for at in 0..waiting.len() {
            if let Poll::Ready(result) = waiting[at].connecting.as_mut().poll(cx) {
                return Poll::Ready((waiting.remove(at), result));
            }
        }
        Poll::Pending
    })
    .await
}

/// Learns from the handshake, and asks the socket for what had to wait for its end.
fn established(leg: &NamedLeg, address: SocketAddr, winner: &Waiting, stream: TcpStream) -> Dialed {
    let took = clock::now().since(winner.since);
    if let Ok(info) = TcpInfo::read(stream.as_fd())
        // with Fast Open there was no handshake yet, and nothing was learnt
        && !matches!(info.state, TcpState::SynSent | TcpState::SynRecv | TcpState::Close)
    {
        let answered = Answered {
            by_first: winner.copy.kind == Kind::First,
            repeated: info.total_retrans > 0,
            took,
            rtt: (info.rtt > 0).then(|| Span::from_micros(info.rtt.into())),
        };
        leg.known.on_answered(address.ip(), answered);
    }
    let mut outcomes = winner.outcomes.clone();
    if leg.leg.establish_timeout.is_some() && leg.leg.socket.user_timeout.is_some() {
        let late =
            SocketOptions { user_timeout: leg.leg.socket.user_timeout, ..SocketOptions::default() };
        outcomes.add(late.apply(stream.as_fd(), Stage::Connecting));
    }
    Dialed { stream: Arc::new(stream), outcomes, announced: winner.announced }
}

impl Means {
    /// Room for one more descriptor, if nothing is short and nobody waits for it.
    fn place(&self) -> Option<OwnedSemaphorePermit> {
        if !self.resources.has_spare() {
            return None;
        }
        Arc::clone(&self.room).try_acquire_owned().ok()
    }

    /// Whether an extra SYN may be sent.
    fn grant(
        &self,
        now: Time,
        address: std::net::IpAddr,
        loss: ekiden_model::units::Share,
    ) -> bool {
        locked(&self.guard).grant(now, address, loss)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use io::ErrorKind as E;

    #[test]
    fn only_the_peers_word_counts_of_a_copy() {
        let answer = |kind, error: E| is_answer(kind, &error.into());
        for error in [E::ConnectionRefused, E::ConnectionReset] {
            assert!(answer(Kind::First, error) && answer(Kind::Repeat, error), "{error}");
        }
        for error in [E::AddrNotAvailable, E::HostUnreachable, E::OutOfMemory] {
            assert!(answer(Kind::First, error) && !answer(Kind::Second, error), "{error}");
        }
        assert!(!answer(Kind::First, E::TimedOut) && !answer(Kind::Repeat, E::TimedOut));
    }
}
