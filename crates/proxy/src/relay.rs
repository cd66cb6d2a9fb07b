//! Both directions of a connection, each for itself.
//!
//! | what happens on one leg | what the other leg sees |
//! |---|---|
//! | end of stream (FIN) | the same, once everything before it is written; the other direction goes on |
//! | RST, or any other failure | what arrived before it, then RST |
//! | what it sends may not go any more, by its household's limits | as after RST |
//! | silence for longer than the leg allows | FIN on both; RST where bytes are left undelivered |

use crate::households::{Member, Meter};
use crate::means::Means;
use crate::pump::{Broken, Moved, Pump};
use crate::registry::{Registered, State};
use ekiden_linux::tcp_info::{TcpInfo, TcpState};
use ekiden_linux::{clock, socket};
use ekiden_model::lifetime::{Expired, Lifetime, Limits};
use ekiden_model::quota;
use ekiden_model::units::{Span, Time};
use socket2::SockRef;
use std::future::{Future, poll_fn};
use std::io;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

/// One of the two legs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Upstream,
}

/// How a relayed connection ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// Both directions came to their end.
    Closed,
    /// One leg broke, and the other was reset in turn.
    Reset(Side, io::Error),
    /// Silence.
    Expired(Expired),
}

/// After a leg broke, how long the other may take without progress to accept what arrived before.
const DRAIN_WITHOUT_PROGRESS: Duration = Duration::from_secs(10);

/// Relays until both directions have ended, one leg breaks, or silence lasts too long. `early` was read
/// already, from the client and from upstream.
pub(crate) async fn relay(
    client: Arc<TcpStream>,
    upstream: Arc<TcpStream>,
    [early_up, early_down]: [Vec<u8>; 2],
    limits: Limits,
    registered: &Registered,
    member: Option<&Arc<Member>>,
    means: &Arc<Means>,
) -> Ended {
    registered.set_state(State::Relaying);
    let pump = |from: &Arc<TcpStream>, to: &Arc<TcpStream>, early, direction| {
        let meter = Meter::new(member, direction);
        Pump::new(Arc::clone(from), Arc::clone(to), early, None, meter, Arc::clone(means))
    };
    let mut relay = Relay {
        up: Direction {
            pump: pump(&client, &upstream, early_up, quota::Direction::Up),
            ended: false,
        },
        down: Direction {
            pump: pump(&upstream, &client, early_down, quota::Direction::Down),
            ended: false,
        },
        client,
        upstream,
        life: Lifetime::new(limits, clock::now()),
        timer: None,
        watches: [None, None],
        registered,
    };
    let ended = poll_fn(|cx| relay.poll(cx)).await;
    registered.set_state(State::Closing);
    registered.look_at_paths();
    match &ended {
        Ended::Reset(side, _) => relay.pass_reset(*side).await,
        // an end of stream would say that what was not delivered was never sent
        Ended::Expired(_) if relay.is_blocked() => relay.abort(),
        Ended::Expired(_) | Ended::Closed => {}
    }
    ended
}

#[derive(Debug)]
struct Direction {
    pump: Pump,
    ended: bool,
}

/// Resolves when a socket that is not being read meets an error.
type Watch = Pin<Box<dyn Future<Output = ()> + Send>>;

struct Relay<'a> {
    client: Arc<TcpStream>,
    upstream: Arc<TcpStream>,
    up: Direction,
    down: Direction,
    life: Lifetime,
    timer: Option<Pin<Box<Sleep>>>,
    /// For the client's and the upstream's RST while reading does not tell it: after the side's FIN,
    /// or while the other side does not take what it sent.
    watches: [Option<Watch>; 2],
    registered: &'a Registered,
}

impl Relay<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Ended> {
        let (mut up, mut down) = (Moved::default(), Moved::default());
        let broken = self
            .poll_direction(Side::Client, cx, &mut up)
            .or_else(|| self.poll_direction(Side::Upstream, cx, &mut down));
        if up.bytes + down.bytes > 0 {
            let now = clock::now();
            self.life.on_moved(now);
            self.registered.moved(now, up.bytes, down.bytes, up.spliced + down.spliced);
        }
        if let Some((side, error)) = broken {
            return Poll::Ready(Ended::Reset(side, error));
        }
        if self.up.ended && self.down.ended {
            return Poll::Ready(Ended::Closed);
        }
        for side in [Side::Client, Side::Upstream] {
            if self.poll_watch(side, cx).is_ready() {
                let error = socket::take_error(self.stream(side).as_fd()).ok().flatten();
                let reset = || io::Error::from(io::ErrorKind::ConnectionReset);
                return Poll::Ready(Ended::Reset(side, error.unwrap_or_else(reset)));
            }
        }
        self.poll_timer(cx).map(Ended::Expired)
    }

    fn poll_watch(&mut self, side: Side, cx: &mut Context<'_>) -> Poll<()> {
        let (direction, nth, stream) = match side {
            Side::Client => (&self.up, 0, &self.client),
            Side::Upstream => (&self.down, 1, &self.upstream),
        };
        if !direction.ended && !direction.pump.is_blocked() {
            return Poll::Pending;
        }
        let watch = self.watches[nth].get_or_insert_with(|| {
            let stream = Arc::clone(stream);
            Box::pin(async move {
                let _ = stream.ready(Interest::ERROR).await;
            })
        });
        watch.as_mut().poll(cx)
    }

    fn is_blocked(&self) -> bool {
        self.up.pump.is_blocked() || self.down.pump.is_blocked()
    }

    fn abort(&self) {
        for stream in [&self.client, &self.upstream] {
            let _ = socket::abort(stream.as_fd());
        }
    }

    fn stream(&self, side: Side) -> &Arc<TcpStream> {
        match side {
            Side::Client => &self.client,
            Side::Upstream => &self.upstream,
        }
    }

    /// The direction that `side` sends. Says which side broke, if one did.
    fn poll_direction(
        &mut self,
        side: Side,
        cx: &mut Context<'_>,
        moved: &mut Moved,
    ) -> Option<(Side, io::Error)> {
        let (direction, other) = match side {
            Side::Client => (&mut self.up, Side::Upstream),
            Side::Upstream => (&mut self.down, Side::Client),
        };
        if direction.ended {
            return None;
        }
        match direction.pump.poll(cx, moved) {
            Poll::Pending => None,
            Poll::Ready(Err(Broken::Source(error))) => Some((side, error)),
            Poll::Ready(Err(Broken::Sink(error))) => Some((other, error)),
            Poll::Ready(Ok(())) => {
                direction.ended = true;
                self.on_ended(side);
                None
            }
        }
    }

    /// `side` has sent its FIN and all before it is written.
    fn on_ended(&mut self, side: Side) {
        let to = match side {
            Side::Client => &self.upstream,
            Side::Upstream => &self.client,
        };
        // fails only when the peer is gone already, which the other direction will tell
        let _ = SockRef::from(&**to).shutdown(Shutdown::Write);
        if !(self.up.ended && self.down.ended) {
            self.life.on_half_closed(clock::now());
            self.timer = None;
            self.registered.set_state(State::HalfClosed);
        }
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<Expired> {
        loop {
            let deadline = self.life.deadline();
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            if let Some(expired) = self.life.on_deadline(clock::now()) {
                return Poll::Ready(expired);
            }
            // bytes moved since the timer was set
            self.timer = None;
        }
    }

    /// `side` is gone: what it sent before goes to the other side, which is then reset.
    async fn pass_reset(&mut self, side: Side) {
        let (direction, other) = match side {
            Side::Client => (&mut self.up, &self.upstream),
            Side::Upstream => (&mut self.down, &self.client),
        };
        let mut moved = Moved::default();
        let mut patience = Box::pin(tokio::time::sleep(DRAIN_WITHOUT_PROGRESS));
        poll_fn(|cx| {
            let before = moved.bytes;
            if direction.pump.poll(cx, &mut moved).is_ready() {
                return Poll::Ready(());
            }
            if moved.bytes > before {
                patience.as_mut().reset(Instant::now() + DRAIN_WITHOUT_PROGRESS);
            }
            // the other side may never read again
            patience.as_mut().poll(cx)
        })
        .await;
        wait_until_sent(other).await;
        let (to_upstream, to_client) = match side {
            Side::Client => (moved.bytes, 0),
            Side::Upstream => (0, moved.bytes),
        };
        self.registered.moved(clock::now(), to_upstream, to_client, moved.spliced);
        self.abort();
    }
}

/// Waits until everything written is acknowledged, or nothing moves for a while: an abort throws away
/// what is still unsent.
pub(crate) async fn wait_until_sent(stream: &TcpStream) {
    let mut before = u32::MAX;
    let mut last_progress = Instant::now();
    let mut pause = Duration::from_micros(200);
    while let Ok(queue) = socket::unsent(stream.as_fd()) {
        let waiting = queue.unacked.saturating_add(queue.unsent);
        if waiting == 0 {
            return;
        }
        if waiting < before {
            before = waiting;
            last_progress = Instant::now();
        } else if last_progress.elapsed() > DRAIN_WITHOUT_PROGRESS || is_gone(stream) {
            return;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

/// Whether the connection was reset: what its queue still counts goes nowhere.
fn is_gone(stream: &TcpStream) -> bool {
    TcpInfo::read(stream.as_fd()).is_ok_and(|info| info.state == TcpState::Close)
}

fn sleep_until(deadline: Time) -> Sleep {
    // the clock of the timers has no instant for «never»
    const LONGEST: Span = Span::from_secs(365 * 86_400);
    let wait = deadline.since(clock::now()).min(LONGEST);
    tokio::time::sleep(wait.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn what_was_reset_is_not_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (near, far) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (near, (far, _)) = (near.unwrap(), far.unwrap());
        near.writable().await.unwrap();
        while near.try_write(&[0; 1 << 16]).is_ok() {}
        // closed so, it sends a reset
        socket::abort(far.as_fd()).unwrap();
        drop(far);
        near.ready(Interest::ERROR).await.unwrap();
        let waited = tokio::time::timeout(DRAIN_WITHOUT_PROGRESS / 2, wait_until_sent(&near));
        assert!(waited.await.is_ok(), "it waits for what can never be sent");
    }
}
