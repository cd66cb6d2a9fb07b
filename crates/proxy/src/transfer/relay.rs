//! Both directions of a connection, independent of each other.
//!
//! | event on one leg | effect on the other leg |
//! |---|---|
//! | end of stream (FIN) | FIN, after all earlier bytes; the other direction goes on |
//! | RST, or any other failure | all earlier bytes, for ten minutes at most, then RST |
//! | RST of the client, where the other leg is a tunnel | RST; the bytes that wait are discarded |
//! | the account's limits refuse its bytes | as after RST |
//! | silence for longer than the leg allows | FIN on both; RST where bytes are undelivered |

use crate::observe::registry::{ConnectionState, Registration};
use crate::policy::quota::{AccountConnection, Meter};
use crate::transfer::budget::{EarlyBytes, TransferShare};
use crate::transfer::end::{DRAIN_AT_MOST, End};
use crate::transfer::pump::{MovedBytes, Pump, PumpError};
use ekiden_linux::host::clock;
use ekiden_model::resources::idle_timeout::{Expired, Lifetime, Limits};
use ekiden_model::resources::quota;
use ekiden_model::units::{Span, Time};
use ekiden_tunnel::driver::DRAIN_WITHOUT_PROGRESS;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::time::{Instant, Sleep};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Upstream,
}

impl Side {
    const fn other(self) -> Self {
        match self {
            Self::Client => Self::Upstream,
            Self::Upstream => Self::Client,
        }
    }
}

/// How a relayed connection ended.
#[derive(Debug)]
pub(crate) enum RelayEnd {
    Closed,
    /// One leg broke, and the other was reset in turn.
    Reset(Side, io::Error),
    Expired(Expired),
}

/// Relays until both directions have ended, one leg breaks, or silence lasts too long. `early`:
/// bytes read before, from the client and from upstream. `tunnel`: upstream is a peer's tunnel, whose line a client that
/// has reset its connection must not hold.
pub(crate) async fn relay(
    client: End,
    (upstream, tunnel): (End, bool),
    [early_up, early_down]: [EarlyBytes; 2],
    limits: Limits,
    registration: &Registration,
    member: Option<&Arc<AccountConnection>>,
    budget: &TransferShare,
) -> RelayEnd {
    registration.set_state(ConnectionState::Relaying);
    let pump = |from: &End, to: &End, early: EarlyBytes, direction| {
        let meter = Meter::new(member, direction);
        Pump::new(from.clone(), to.clone(), early, None, meter, budget.clone())
    };
    let up = pump(&client, &upstream, early_up, quota::Direction::Up);
    let down = pump(&upstream, &client, early_down, quota::Direction::Down);
    let mut relay = Relay {
        directions: [up, down].map(|pump| Direction { pump, ended: false }),
        ends: [client, upstream],
        life: Lifetime::new(limits, clock::now()),
        timer: None,
        watches: [None, None],
        registration,
    };
    let _resets = registration.reset_on_panic();
    let ended = poll_fn(|cx| relay.poll(cx)).await;
    registration.set_state(ConnectionState::Closing);
    registration.check_paths();
    match &ended {
        RelayEnd::Reset(Side::Client, error) if tunnel && relay.is_cancelled(error) => {
            relay.abort(&beyond(error));
        }
        RelayEnd::Reset(side, error) => relay.pass_reset(*side, error).await,
        // an end of stream would hide that bytes were not delivered
        RelayEnd::Expired(_) if relay.is_blocked() => {
            relay.abort("the connection beyond takes no bytes");
        }
        RelayEnd::Expired(_) | RelayEnd::Closed => {}
    }
    ended
}

/// What a peer is told of a connection that broke here.
fn beyond(error: &io::Error) -> String {
    format!("the connection beyond broke: {error}")
}

#[derive(Debug)]
struct Direction {
    pump: Pump,
    ended: bool,
}

/// Resolves when a socket that is not being read has an error.
type Watch = Pin<Box<dyn Future<Output = ()> + Send>>;

struct Relay<'a> {
    /// By [`Side`], and the direction from it.
    ends: [End; 2],
    directions: [Direction; 2],
    life: Lifetime,
    timer: Option<Pin<Box<Sleep>>>,
    /// Detect an RST of either side while it is not read: after its FIN, or while the other side
    /// blocks.
    watches: [Option<Watch>; 2],
    registration: &'a Registration,
}

impl Relay<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<RelayEnd> {
        let (mut up, mut down) = (MovedBytes::default(), MovedBytes::default());
        let broken = self
            .poll_direction(Side::Client, cx, &mut up)
            .or_else(|| self.poll_direction(Side::Upstream, cx, &mut down));
        if up.bytes + down.bytes > 0 {
            let now = clock::now();
            self.life.on_moved(now);
            self.registration.moved(now, up.bytes, down.bytes, up.spliced + down.spliced);
        }
        if let Some((side, error)) = broken {
            return Poll::Ready(RelayEnd::Reset(side, error));
        }
        if self.has_ended() {
            return Poll::Ready(RelayEnd::Closed);
        }
        for side in [Side::Client, Side::Upstream] {
            if self.poll_watch(side, cx).is_ready() {
                return Poll::Ready(RelayEnd::Reset(side, self.ends[side as usize].error()));
            }
        }
        self.poll_timer(cx).map(RelayEnd::Expired)
    }

    fn poll_watch(&mut self, side: Side, cx: &mut Context<'_>) -> Poll<()> {
        let (direction, end) = (&self.directions[side as usize], &self.ends[side as usize]);
        if !direction.ended && !direction.pump.is_blocked() {
            return Poll::Pending;
        }
        let watch = self.watches[side as usize].get_or_insert_with(|| {
            let end = end.clone();
            Box::pin(async move { end.broken().await })
        });
        watch.as_mut().poll(cx)
    }

    fn is_blocked(&self) -> bool {
        self.directions.iter().any(|direction| direction.pump.is_blocked())
    }

    fn has_ended(&self) -> bool {
        self.directions.iter().all(|direction| direction.ended)
    }

    /// Whether the client gave up what it was sending. One that had ended its stream has not.
    fn is_cancelled(&self, error: &io::Error) -> bool {
        error.kind() != io::ErrorKind::QuotaExceeded
            && !self.directions[Side::Client as usize].ended
    }

    fn abort(&self, why: &str) {
        self.ends.iter().for_each(|end| end.abort(why));
    }

    fn poll_direction(
        &mut self,
        side: Side,
        cx: &mut Context<'_>,
        moved: &mut MovedBytes,
    ) -> Option<(Side, io::Error)> {
        let direction = &mut self.directions[side as usize];
        if direction.ended {
            return None;
        }
        match direction.pump.poll(cx, moved) {
            Poll::Pending => None,
            Poll::Ready(Err(PumpError::Source(error))) => Some((side, error)),
            Poll::Ready(Err(PumpError::Sink(error))) => Some((side.other(), error)),
            Poll::Ready(Ok(())) => {
                direction.ended = true;
                self.on_ended(side);
                None
            }
        }
    }

    /// `side` has sent its FIN, and all its bytes are written.
    fn on_ended(&mut self, side: Side) {
        let other = &self.ends[side.other() as usize];
        // a socket that both sides have ended, and that has nothing unread, sends its FIN as it is closed, which is now
        if !self.has_ended() || other.socket().is_none() {
            other.finish();
        }
        if !self.has_ended() {
            self.life.on_half_closed(clock::now());
            self.timer = None;
            self.registration.set_state(ConnectionState::HalfClosed);
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

    /// `side` broke: delivers its earlier bytes to the other side, then resets it.
    async fn pass_reset(&mut self, side: Side, error: &io::Error) {
        let why = &beyond(error);
        let [up, down] = &mut self.directions;
        let (direction, other) = match side {
            Side::Client => (up, down),
            Side::Upstream => (down, up),
        };
        other.pump.give_up();
        let sink = &self.ends[side.other() as usize];
        let mut moved = MovedBytes::default();
        let mut patience = Box::pin(tokio::time::sleep(DRAIN_WITHOUT_PROGRESS));
        let drained = async {
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
            direction.pump.give_up();
            sink.abort_when_sent(why).await;
        };
        // nor may it take a little now and then, for ever
        if Box::pin(tokio::time::timeout(DRAIN_AT_MOST, drained)).await.is_err() {
            sink.abort(why);
        }
        let (to_upstream, to_client) = match side {
            Side::Client => (moved.bytes, 0),
            Side::Upstream => (0, moved.bytes),
        };
        self.registration.moved(clock::now(), to_upstream, to_client, moved.spliced);
        // a socket that was reset answers nothing as it is closed
        let end = &self.ends[side as usize];
        if error.kind() != io::ErrorKind::ConnectionReset || end.socket().is_none() {
            end.abort(why);
        }
    }
}

fn sleep_until(deadline: Time) -> Sleep {
    // timers cannot represent "never"
    const LONGEST: Span = Span::from_secs(365 * 86_400);
    let wait = deadline.since(clock::now()).min(LONGEST);
    tokio::time::sleep(wait.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::leg_stats::TlsLeg as _;
    use crate::observe::registry::{AccountUse as _, Nobody, Registry};
    use crate::policy::quota::Quotas;
    use crate::settings::{Budgets, CopyMode, Sharing};
    use crate::transfer::budget::{CountedMemory, TransferBudget};
    use crate::transfer::pipe::{MOST, Pipe};
    use ekiden_model::units::{Bytes, Rate};
    use std::pin::pin;
    use std::task::Waker;

    /// The relay's end, and the other one.
    fn pipe() -> (End, Arc<Pipe>) {
        let (near, far) = Pipe::pair();
        (End::Pipe(Arc::new(near)), Arc::new(far))
    }

    fn registration() -> Registration {
        let registry = Arc::new(Registry::new(Arc::new(Nobody)));
        registry.enter(([192, 0, 2, 1], 5_000).into())
    }

    fn budget() -> TransferShare {
        TransferBudget::new(&Budgets::default(), CopyMode::Auto).unshared()
    }

    const LIMITS: Limits =
        Limits { idle: Span::from_secs(3_600), half_closed: Span::from_secs(3_600) };

    #[tokio::test(start_paused = true)]
    async fn a_receiver_of_single_bytes_does_not_keep_a_broken_connection() {
        let ((client, receiver), (upstream, sender)) = (pipe(), pipe());
        client.try_write(&[7; MOST]).unwrap();
        sender.try_write(&[7; MOST]).unwrap();
        sender.abort("");
        let reads = Arc::clone(&receiver);
        tokio::spawn(async move {
            while reads.try_read(&mut [0]).is_ok() {
                tokio::time::sleep(DRAIN_WITHOUT_PROGRESS / 2).await;
            }
        });
        let (registration, budget) = (registration(), budget());
        let early = [EarlyBytes::default(), EarlyBytes::default()];
        let upstream = (upstream, false);
        let ended = relay(client, upstream, early, LIMITS, &registration, None, &budget);
        let ended = tokio::time::timeout(10 * DRAIN_AT_MOST, ended).await;
        assert!(matches!(ended, Ok(RelayEnd::Reset(Side::Upstream, _))), "{ended:?}");
        receiver.broken().await;
    }

    /// Early bytes that another budget counts while somebody else has this.
    #[derive(Debug)]
    struct Elsewhere(#[expect(dead_code)] Arc<()>);

    impl CountedMemory for Elsewhere {}

    #[tokio::test]
    async fn early_bytes_count_until_they_are_sent() {
        let ((client, _sender), (upstream, server)) = (pipe(), pipe());
        let budgets = Budgets { memory: Bytes::new(MOST as u64), ..Budgets::default() };
        let spent = TransferBudget::new(&budgets, CopyMode::Auto).unshared();
        let registration = registration();
        let counted = Arc::new(());
        let early = EarlyBytes::new(vec![7; 2 * MOST], Elsewhere(Arc::clone(&counted)));
        let (early, upstream) = ([early, EarlyBytes::default()], (upstream, false));
        let relaying = relay(client, upstream, early, LIMITS, &registration, None, &spent);
        let mut relaying = pin!(relaying);
        let mut cx = Context::from_waker(Waker::noop());
        assert!(relaying.as_mut().poll(&mut cx).is_pending());
        assert_eq!(Arc::strong_count(&counted), 2);
        let mut bytes = vec![0; 2 * MOST];
        let mut came = 0;
        while came < bytes.len() {
            came += server.try_read(&mut bytes[came..]).unwrap();
            assert!(relaying.as_mut().poll(&mut cx).is_pending());
        }
        assert_eq!((Arc::strong_count(&counted), bytes == vec![7; 2 * MOST]), (1, true));
    }

    #[tokio::test(start_paused = true)]
    async fn a_break_gives_up_the_turn_of_the_other_direction() {
        let rates = [Some(Rate::from_bits_per_second(8_000)); 2];
        let quotas = Quotas::new(&Sharing::default());
        quotas.set("home", quota::Limits { rates, ..quota::Limits::default() });
        let member = quotas.admit_known("home", None).unwrap();
        let ((client, sender), (upstream, server)) = (pipe(), pipe());
        // more than is saved up, each way
        sender.try_write(&[7; MOST]).unwrap();
        server.try_write(&[7; MOST]).unwrap();
        let (registration, budget) = (registration(), budget());
        let early = [EarlyBytes::default(), EarlyBytes::default()];
        let upstream = (upstream, false);
        let relaying =
            relay(client, upstream, early, LIMITS, &registration, Some(&member), &budget);
        let mut relaying = pin!(relaying);
        let mut cx = Context::from_waker(Waker::noop());
        let waits = || member.waits().unwrap_or_default();
        assert!(relaying.as_mut().poll(&mut cx).is_pending());
        assert!(waits().contains("up waits") && waits().contains("down waits"), "{}", waits());
        sender.abort("");
        assert!(relaying.as_mut().poll(&mut cx).is_pending());
        assert!(waits().contains("up waits") && !waits().contains("down"), "{}", waits());
    }
}
