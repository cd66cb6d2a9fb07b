//! Opens one connection to one address, as [`ekiden_model::connect::syn_race`] plans it.
//!
//! ```text
//! first SYN ─────────────────────────── 1 s ─▶ the kernel retransmits it, again and again
//!   └─ second SYN after δ, if requested and permitted
//!       └─ no answer by rto0 ─▶ another ─▶ at 3 · rto0 another …, each replacing the one before
//! the first answer wins; the other attempts are aborted
//! ```
//! A socket in SYN-SENT closes without a packet; if an answer still arrives, the kernel resets it.
//! If two attempts are answered before this program wakes, the losing one is reset, not closed: a
//! program that accepted it learns so at once.

use crate::observe::named_leg::NamedLeg;
use crate::outbound::dial::Dialed;
use crate::resources::DescriptorReserve;
use crate::runtime::shared::Shared;
use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use ekiden_linux::sockets::options::SocketOptions;
use ekiden_linux::sockets::outcome::{Outcomes, Stage};
use ekiden_linux::sockets::socket;
use ekiden_linux::sockets::tcp_info::{TcpInfo, TcpState};
use ekiden_linux::sockets::transparent;
use ekiden_model::connect::syn_race::{Answered, SynAttempt, SynKind, SynRace, SynStep};
use ekiden_model::units::{Span, Time};
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// The kernel repeats a SYN after 1 s at the earliest (RFC 6298 §2.1); programs of BPF may ask for less, but hardly for
/// less than half.
const KERNEL_REPEATS: Span = Span::from_millis(500);

struct PendingAttempt {
    copy: SynAttempt,
    since: Time,
    outcomes: Outcomes,
    stream: TcpStream,
    /// Extra attempts count as connections, so that descriptors suffice for all.
    _place: Option<DescriptorReserve>,
}

/// The waiting attempts. Dropping an attempt aborts it.
struct PendingAttempts(Vec<PendingAttempt>);

/// How long a connection waits for a descriptor, and how often it retries: connections end all the
/// time, and a longer wait would only delay the client's error.
pub(crate) const DESCRIPTOR_WAIT: Span = Span::from_secs(1);
const DESCRIPTOR_RETRY: Span = Span::from_millis(20);

/// Connects to `address` over a leg, evicting idle connections one by one for a missing descriptor.
/// Fails with the first failed attempt's error, or `TimedOut` after the leg's time-out.
pub(crate) async fn open(
    shared: &Arc<Shared>,
    leg: &Arc<NamedLeg>,
    address: SocketAddr,
    foreign: Option<IpAddr>,
) -> io::Result<Dialed> {
    let until = clock::now() + DESCRIPTOR_WAIT;
    loop {
        match open_at_once(shared, leg, address, foreign).await {
            Err(error) if made_room(shared, until, &error).await => {}
            other => return other,
        }
    }
}

/// Whether an idle connection was evicted for a missing descriptor, so that the call may be
/// retried.
pub(crate) async fn made_room(shared: &Arc<Shared>, until: Time, error: &io::Error) -> bool {
    let lacks = matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE));
    if !lacks || clock::now() >= until {
        return false;
    }
    shared.resources.evict_for_descriptor();
    tokio::time::sleep(DESCRIPTOR_RETRY.into()).await;
    true
}

async fn open_at_once(
    shared: &Arc<Shared>,
    leg: &Arc<NamedLeg>,
    address: SocketAddr,
    foreign: Option<IpAddr>,
) -> io::Result<Dialed> {
    let plan = leg.history.plan(&leg.leg, address.ip());
    let mut opening = SynRace::new(plan, clock::now());
    let mut race = PendingAttempts(Vec::with_capacity(1));
    loop {
        let now = clock::now();
        let mut place = None;
        while let Some(step) = opening.next(now, |kind| {
            place = shared.resources.try_reserve();
            place.is_some() && shared.grant(now, address.ip(), kind, leg)
        }) {
            match step {
                SynStep::Start(copy) => {
                    match connect(leg, address, (copy, foreign), place.take()) {
                        Ok(more) => {
                            leg.history.on_started(copy.kind);
                            if copy.kind != SynKind::First {
                                let (kind, at_us) = (copy.kind, now.as_nanos() / 1_000);
                                tracing::debug!(leg = %leg.name, %address, ?kind, at_us, "another SYN");
                            }
                            race.0.push(more);
                        }
                        Err(error) if copy.kind == SynKind::First => return Err(error),
                        // no descriptor or no port left: waiting attempts may still succeed
                        Err(_) => opening.on_failed(copy.number),
                    }
                }
                SynStep::Close(number) => race.close(number),
                SynStep::GiveUp => return Err(io::ErrorKind::TimedOut.into()),
            }
        }
        drop(place);
        let deadline = opening.deadline();
        let (winner, result) = tokio::select! {
            biased;
            answered = poll_fn(|cx| race.poll(cx)) => answered,
            () = crate::outbound::dial::wait_until(deadline), if deadline != Time::NEVER => continue,
        };
        match result {
            Ok(()) => {
                leg.history.on_established();
                return Ok(established(leg, address, winner));
            }
            Err(error) if !race.0.is_empty() && !is_answer(winner.copy.kind, &error) => {
                opening.on_failed(winner.copy.number);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Whether an attempt's failure decides for all. The first attempt's does, but for a time-out; an
/// extra attempt's only if the remote host answered, since a port, memory or a route may be
/// missing.
fn is_answer(kind: SynKind, error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, ConnectionReset, TimedOut};
    match kind {
        SynKind::First => error.kind() != TimedOut,
        _ => matches!(error.kind(), ConnectionRefused | ConnectionReset),
    }
}

fn connect(
    leg: &NamedLeg,
    address: SocketAddr,
    (copy, foreign): (SynAttempt, Option<IpAddr>),
    place: Option<DescriptorReserve>,
) -> io::Result<PendingAttempt> {
    let ipv6 = address.is_ipv6();
    // in Linux, TCP_USER_TIMEOUT also ends a handshake
    let late = leg.leg.establish_timeout.is_some() && leg.leg.socket.user_timeout.is_some();
    let options = &leg.leg.socket;
    let (socket, outcomes) = if late || foreign.is_some() {
        let user_timeout = options.user_timeout.filter(|_| !late);
        let source = options.source.filter(|_| foreign.is_none());
        SocketOptions { user_timeout, source, ..options.clone() }
            .new_stream_socket(ipv6, Stage::Connecting)?
    } else {
        options.new_stream_socket(ipv6, Stage::Connecting)?
    };
    if let Some(foreign) = foreign {
        transparent::bind_foreign(socket.as_fd(), foreign)?;
    }
    let since = clock::now();
    match socket.connect(&address.into()) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => return Err(error),
        // connected at once, as with Fast Open, or later: the socket becomes writable either way
        Ok(()) | Err(_) => {}
    }
    let stream = TcpStream::from_std(socket.into())?;
    Ok(PendingAttempt { copy, since, outcomes, stream, _place: place })
}

impl PendingAttempts {
    /// The first finished attempt, in the order in which they were sent.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<(PendingAttempt, io::Result<()>)> {
        for at in 0..self.0.len() {
            if let Poll::Ready(ready) = self.0[at].stream.poll_write_ready(cx) {
                let one = self.0.remove(at);
                let answer = ready.and_then(|()| one.answer());
                return Poll::Ready((one, answer));
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

impl Drop for PendingAttempts {
    fn drop(&mut self) {
        self.0.iter().for_each(PendingAttempt::abort);
    }
}

impl PendingAttempt {
    /// Once it is writable: whether it is connected. The socket is asked only where epoll tells of an error.
    fn answer(&self) -> io::Result<()> {
        match self.stream.try_io(Interest::ERROR, || Ok(())) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            _ => self.stream.take_error()?.map_or(Ok(()), Err),
        }
    }

    fn abort(&self) {
        // fails only on something that is not a socket
        let _ = socket::abort(self.stream.as_fd());
    }
}

/// Records the handshake, and sets the options that had to wait for its end.
fn established(leg: &NamedLeg, address: SocketAddr, winner: PendingAttempt) -> Dialed {
    let took = clock::now().since(winner.since);
    let PendingAttempt { copy, mut outcomes, stream, .. } = winner;
    let by_first = copy.kind == SynKind::First;
    if took < KERNEL_REPEATS
        && leg.leg.socket.fast_open != Some(true)
        && !leg.history.wants_rtt(address.ip())
    {
        leg.history
            .on_answered(address.ip(), Answered { by_first, repeated: false, took, rtt: None });
    } else if let Ok(info) = TcpInfo::read(stream.as_fd())
        // with Fast Open there was no handshake yet
        && !matches!(info.state, TcpState::SynSent | TcpState::SynRecv | TcpState::Close)
    {
        let answered = Answered {
            by_first,
            repeated: info.total_retrans > 0,
            took,
            rtt: (info.rtt > 0).then(|| Span::from_micros(info.rtt.into())),
        };
        leg.history.on_answered(address.ip(), answered);
    }
    if leg.leg.establish_timeout.is_some() && leg.leg.socket.user_timeout.is_some() {
        let late =
            SocketOptions { user_timeout: leg.leg.socket.user_timeout, ..SocketOptions::default() };
        outcomes.add(late.apply(stream.as_fd(), Stage::Connecting));
    }
    Dialed { stream: stream.into(), peer: address, outcomes: Some(outcomes) }
}

impl Shared {
    /// Whether an extra SYN may be sent.
    fn grant(&self, now: Time, address: IpAddr, kind: SynKind, leg: &NamedLeg) -> bool {
        let loss = leg.history.loss(address);
        locked(&self.syn_guard).grant(now, address, kind, loss)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use io::ErrorKind as E;
    use std::io::Read as _;
    use std::time::Duration;

    /// An attempt that was answered but not polled.
    async fn answered(to: SocketAddr) -> PendingAttempt {
        let options = SocketOptions::default();
        let (socket, outcomes) = options.new_stream_socket(false, Stage::Connecting).unwrap();
        // in progress, as the error says
        let _ = socket.connect(&to.into());
        let stream = TcpStream::from_std(socket.into()).unwrap();
        stream.writable().await.unwrap();
        let copy = SynAttempt { number: 1, kind: SynKind::Repeat };
        PendingAttempt { copy, since: clock::now(), outcomes, stream, _place: None }
    }

    #[tokio::test]
    async fn resets_losing_attempts() {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let to = listener.local_addr().unwrap();
        for by_number in [true, false] {
            let mut race = PendingAttempts(vec![answered(to).await]);
            let (mut accepted, _) = listener.accept().unwrap();
            accepted.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            if by_number {
                race.close(1);
                assert!(race.0.is_empty());
            }
            drop(race);
            let error = accepted.read(&mut [0]).unwrap_err();
            assert_eq!(error.kind(), E::ConnectionReset);
        }
    }

    #[test]
    fn extra_attempts_fail_the_race_only_by_a_remote_answer() {
        let answer = |kind, error: E| is_answer(kind, &error.into());
        for error in [E::ConnectionRefused, E::ConnectionReset] {
            assert!(answer(SynKind::First, error) && answer(SynKind::Repeat, error), "{error}");
        }
        for error in [E::AddrNotAvailable, E::HostUnreachable, E::OutOfMemory] {
            assert!(answer(SynKind::First, error) && !answer(SynKind::Second, error), "{error}");
        }
        assert!(!answer(SynKind::First, E::TimedOut) && !answer(SynKind::Repeat, E::TimedOut));
    }
}
