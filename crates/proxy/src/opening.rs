//! Opening one connection to one address, as [`ekiden_model::opening`] plans it.
//!
//! ```text
//! first SYN ─────────────────────────── 1 s ─▶ the kernel repeats it, again and again
//!   └─ second SYN after δ, if asked for and permitted
//!       └─ no answer by rto0 ─▶ another ─▶ at 3 · rto0 another …, each in the place of the one before
//! the first answer wins; what else waits is aborted
//! ```
//! A socket that waits for its SYN's answer is closed without a packet. Should the answer still come, the
//! kernel resets it, and the server's program never hears of it. Where two are answered before this program
//! wakes, the one that is not wanted is reset, not ended: a program that has accepted it learns so at once.

use crate::dial::Dialed;
use crate::means::Means;
use crate::registry::locked;
use crate::resources::Spare;
use crate::world::NamedLeg;
use ekiden_linux::answer::{Outcomes, Stage};
use ekiden_linux::options::SocketOptions;
use ekiden_linux::tcp_info::{TcpInfo, TcpState};
use ekiden_linux::{clock, socket};
use ekiden_model::opening::{Answered, Copy, Kind, Opening, Step};
use ekiden_model::units::{Span, Time};
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::net::TcpStream;

/// A copy that waits for its answer.
struct Waiting {
    copy: Copy,
    since: Time,
    outcomes: Outcomes,
    stream: TcpStream,
    /// Copies beside the first are counted as connections, so that descriptors suffice for all.
    _place: Option<Spare>,
}

/// Those that wait. What is dropped with it, or struck out of it, nobody wants any more.
struct Race(Vec<Waiting>);

/// How long a connection waits for a descriptor, and how often it asks: others end all the time, and an idle
/// one that is closed for it takes a moment to be gone. Longer, and clients would rather have been told.
pub(crate) const FOR_A_DESCRIPTOR: Span = Span::from_secs(1);
const ASKS_EVERY: Span = Span::from_millis(20);

/// Connects to `address` over a leg. Where this process has no descriptor left, idle connections are closed
/// for it, one at a time.
///
/// # Errors
/// What the kernel said of the first copy that was refused; `TimedOut` when nobody answered in the leg's
/// time.
pub(crate) async fn open(
    means: &Arc<Means>,
    leg: &Arc<NamedLeg>,
    address: SocketAddr,
) -> io::Result<Dialed> {
    let until = clock::now() + FOR_A_DESCRIPTOR;
    loop {
        match open_at_once(means, leg, address).await {
            Err(error) if gave_way(means, until, &error).await => {}
            other => return other,
        }
    }
}

/// Whether an idle connection was closed for want of a descriptor, and what failed is worth another try.
pub(crate) async fn gave_way(means: &Arc<Means>, until: Time, error: &io::Error) -> bool {
    let lacks = matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE));
    if !lacks || clock::now() >= until {
        return false;
    }
    means.resources.give_way();
    tokio::time::sleep(ASKS_EVERY.into()).await;
    true
}

async fn open_at_once(
    means: &Arc<Means>,
    leg: &Arc<NamedLeg>,
    address: SocketAddr,
) -> io::Result<Dialed> {
    let plan = leg.known.plan(&leg.leg, address.ip());
    let mut opening = Opening::new(plan, clock::now());
    let mut race = Race(Vec::with_capacity(1));
    loop {
        let now = clock::now();
        let mut place = None;
        while let Some(step) = opening.next(now, |kind| {
            place = means.resources.spare();
            place.is_some() && means.grant(now, address.ip(), kind, leg)
        }) {
            match step {
                Step::Start(copy) => match connect(leg, address, copy, place.take()) {
                    Ok(more) => {
                        leg.known.on_started(copy.kind);
                        if copy.kind != Kind::First {
                            let (kind, at_us) = (copy.kind, now.as_nanos() / 1_000);
                            tracing::debug!(leg = %leg.name, %address, ?kind, at_us, "another SYN");
                        }
                        race.0.push(more);
                    }
                    Err(error) if copy.kind == Kind::First => return Err(error),
                    // no descriptor or no port left: those that wait already may still do
                    Err(_) => opening.on_failed(copy.number),
                },
                Step::Close(number) => race.close(number),
                Step::GiveUp => return Err(io::ErrorKind::TimedOut.into()),
            }
        }
        drop(place);
        let deadline = opening.deadline();
        let (winner, result) = tokio::select! {
            biased;
            answered = poll_fn(|cx| race.poll(cx)) => answered,
            () = crate::dial::wait_until(deadline), if deadline != Time::NEVER => continue,
        };
        match result {
            Ok(()) => {
                leg.known.on_established();
                return Ok(established(leg, address, winner));
            }
            Err(error) if !race.0.is_empty() && !is_answer(winner.copy.kind, &error) => {
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
    leg: &NamedLeg,
    address: SocketAddr,
    copy: Copy,
    place: Option<Spare>,
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
    let since = clock::now();
    match socket.connect(&address.into()) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => return Err(error),
        // at once, as with Fast Open, or later: either is told by its becoming writable
        Ok(()) | Err(_) => {}
    }
    let stream = TcpStream::from_std(socket.into())?;
    Ok(Waiting { copy, since, outcomes, stream, _place: place })
}

impl Race {
    /// The first copy that came to something, in the order in which they were sent.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<(Waiting, io::Result<()>)> {
        for at in 0..self.0.len() {
            if let Poll::Ready(ready) = self.0[at].stream.poll_write_ready(cx) {
                let one = self.0.remove(at);
                let error = ready.and_then(|()| one.stream.take_error());
                return Poll::Ready((one, error.and_then(|error| error.map_or(Ok(()), Err))));
            }
        }
        Poll::Pending
    }

    fn close(&mut self, number: u8) {
        if let Some(at) = self.0.iter().position(|waiting| waiting.copy.number == number) {
            self.0.remove(at).abort();
        }
    }
}

impl Drop for Race {
    fn drop(&mut self) {
        self.0.iter().for_each(Waiting::abort);
    }
}

impl Waiting {
    /// Its closing is to be a reset, should it have been answered meanwhile.
    fn abort(&self) {
        // fails only on what is no socket
        let _ = socket::abort(self.stream.as_fd());
    }
}

/// Learns from the handshake, and asks the socket for what had to wait for its end.
fn established(leg: &NamedLeg, address: SocketAddr, winner: Waiting) -> Dialed {
    let took = clock::now().since(winner.since);
    let Waiting { copy, mut outcomes, stream, .. } = winner;
    if let Ok(info) = TcpInfo::read(stream.as_fd())
        // with Fast Open there was no handshake yet, and nothing was learnt
        && !matches!(info.state, TcpState::SynSent | TcpState::SynRecv | TcpState::Close)
    {
        let answered = Answered {
            by_first: copy.kind == Kind::First,
            repeated: info.total_retrans > 0,
            took,
            rtt: (info.rtt > 0).then(|| Span::from_micros(info.rtt.into())),
        };
        leg.known.on_answered(address.ip(), answered);
    }
    if leg.leg.establish_timeout.is_some() && leg.leg.socket.user_timeout.is_some() {
        let late =
            SocketOptions { user_timeout: leg.leg.socket.user_timeout, ..SocketOptions::default() };
        outcomes.add(late.apply(stream.as_fd(), Stage::Connecting));
    }
    Dialed { stream: Arc::new(stream), peer: address, outcomes }
}

impl Means {
    /// Whether a copy may be sent.
    fn grant(&self, now: Time, address: IpAddr, kind: Kind, leg: &NamedLeg) -> bool {
        let loss = leg.known.loss(address);
        locked(&self.guard).grant(now, address, kind, loss)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use io::ErrorKind as E;
    use std::io::Read as _;
    use std::time::Duration;

    /// One that was answered while nobody looked.
    async fn answered(to: SocketAddr) -> Waiting {
        let options = SocketOptions::default();
        let (socket, outcomes) = options.new_stream_socket(false, Stage::Connecting).unwrap();
        // it is under way, as the error says
        let _ = socket.connect(&to.into());
        let stream = TcpStream::from_std(socket.into()).unwrap();
        stream.writable().await.unwrap();
        let copy = Copy { number: 1, kind: Kind::Repeat };
        Waiting { copy, since: clock::now(), outcomes, stream, _place: None }
    }

    #[tokio::test]
    async fn what_nobody_wants_is_reset_and_not_ended() {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let to = listener.local_addr().unwrap();
        for by_number in [true, false] {
            let mut race = Race(vec![answered(to).await]);
            let (mut accepted, _) = listener.accept().unwrap();
            accepted.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            if by_number {
                race.close(1);
                assert!(race.0.is_empty());
            }
            drop(race);
            let told = accepted.read(&mut [0]).unwrap_err();
            assert_eq!(told.kind(), E::ConnectionReset);
        }
    }

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
