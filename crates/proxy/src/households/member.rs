//! A connection of a household, and the meter that stands before each of its pumps.

use super::{Households, Used};
use crate::registry::{Entry, locked};
use ekiden_linux::clock;
use ekiden_model::quota::{Answer, Direction, Flow};
use ekiden_model::units::{Bytes, Time};
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};

/// A connection of a household; dropping it gives its place to another.
#[derive(Debug)]
pub(crate) struct Member {
    households: Arc<Households>,
    flow: Flow,
    name: Arc<str>,
    used: Arc<Used>,
}

impl Member {
    pub(super) fn new(
        households: &Arc<Households>,
        flow: Flow,
        name: Arc<str>,
        used: Arc<Used>,
    ) -> Self {
        Self { households: Arc::clone(households), flow, name, used }
    }

    /// The household's name.
    pub(crate) fn household(&self) -> &str {
        &self.name
    }

    /// How many bytes may go now, at least 1 and at most `want`; to be settled before it is asked again. Who is told
    /// to wait is woken.
    ///
    /// # Errors
    /// Of kind [`io::ErrorKind::QuotaExceeded`]: none any more.
    pub(crate) fn poll_go(
        &self,
        cx: &mut Context<'_>,
        direction: Direction,
        want: usize,
    ) -> Poll<io::Result<usize>> {
        self.change(|state, now| {
            match state.quota.ask(now, self.flow, direction, Bytes::new(want as u64)) {
                // called for more than it wants now, it gives the rest back
                Answer::Go(bytes) => Poll::Ready(Ok(bytes.as_usize().min(want))),
                Answer::Over => Poll::Ready(Err(self.over(state.quota.is_gone(self.flow)))),
                Answer::Wait => {
                    if let Some(seat) = state.seats.get_mut(&self.flow) {
                        let waker = &mut seat.wakers[direction as usize];
                        match waker {
                            Some(waker) => waker.clone_from(cx.waker()),
                            None => *waker = Some(cx.waker().clone()),
                        }
                    }
                    Poll::Pending
                }
            }
        })
    }

    /// Of what may go, so much went.
    pub(crate) fn on_moved(&self, direction: Direction, bytes: usize) {
        let used = bytes as u64;
        self.change(|state, now| {
            state.quota.on_moved(now, self.flow, direction, Bytes::new(used));
            // under the same lock: the quota and whoever keeps its books see one count
            self.used.0[direction as usize].fetch_add(used, Relaxed);
        });
    }

    /// It does not want anything any more for now.
    pub(crate) fn rest(&self, direction: Direction) {
        self.change(|state, now| state.quota.rest(now, self.flow, direction));
    }

    /// Waits until some bytes may go, at most `most`, and counts them as gone.
    ///
    /// # Errors
    /// As of [`Member::poll_go`].
    pub(crate) async fn some(&self, direction: Direction, most: usize) -> io::Result<usize> {
        // given up while it waits, its turn goes to others
        let _rest = Rest(self, direction);
        let go = poll_fn(|cx| self.poll_go(cx, direction, most)).await?;
        self.on_moved(direction, go);
        Ok(go)
    }

    /// Waits until so many bytes may go, all of them, and counts them as gone.
    ///
    /// # Errors
    /// As of [`Member::poll_go`].
    pub(crate) async fn pass(&self, direction: Direction, bytes: usize) -> io::Result<()> {
        let mut left = bytes;
        while left > 0 {
            left -= self.some(direction, left).await?;
        }
        Ok(())
    }

    /// Whether a datagram may pass; it is counted then. `None`: none any more.
    pub(crate) fn datagram(&self, direction: Direction, bytes: usize) -> Option<bool> {
        let size = Bytes::new(bytes as u64);
        self.change(|state, now| {
            let passes = state.quota.datagram(now, self.flow, direction, size);
            if passes == Some(true) {
                self.used.0[direction as usize].fetch_add(size.as_u64(), Relaxed);
            }
            passes
        })
    }

    /// It is this connection's from now on, which ends when its household is cut.
    pub(crate) fn seat(&self, entry: &Arc<Entry>) {
        if let Some(seat) = locked(&self.households.state).seats.get_mut(&self.flow) {
            seat.entry = Some(Arc::downgrade(entry));
        }
    }

    /// What it waits for, in words; `None` when it does not.
    pub(crate) fn why(&self) -> Option<String> {
        let state = locked(&self.households.state);
        let words = |(direction, word)| {
            let why = state.quota.why(self.flow, direction)?;
            Some(format!("{word} waits {why}"))
        };
        let both = [(Direction::Up, "up"), (Direction::Down, "down")];
        let waits: Vec<String> = both.into_iter().filter_map(words).collect();
        (!waits.is_empty()).then(|| waits.join("; "))
    }

    /// Why nothing may go any more, if that is so.
    pub(crate) fn ended(&self) -> Option<String> {
        let state = locked(&self.households.state);
        let over = state.quota.is_over(self.flow);
        over.then(|| self.why_over(state.quota.is_gone(self.flow)))
    }

    fn over(&self, gone: bool) -> io::Error {
        io::Error::new(io::ErrorKind::QuotaExceeded, self.why_over(gone))
    }

    fn why_over(&self, gone: bool) -> String {
        let why = if gone { "is not served any more" } else { "has used up its quota" };
        format!("household «{}» {why}", self.name)
    }

    fn change<T>(&self, work: impl FnOnce(&mut super::State, Time) -> T) -> T {
        let (result, after) = {
            let state = &mut *locked(&self.households.state);
            let result = work(state, clock::now());
            (result, state.after())
        };
        after.run(&self.households);
        result
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.change(|state, now| {
            state.seats.remove(&self.flow);
            state.quota.close(now, self.flow);
        });
    }
}

struct Rest<'a>(&'a Member, Direction);

impl Drop for Rest<'_> {
    fn drop(&mut self) {
        self.0.rest(self.1);
    }
}

/// Before one direction of a connection: what it may read. A direction that nobody limits has none, and what it
/// costs then is a branch.
#[derive(Debug, Default)]
pub(crate) struct Meter(Option<Metered>);

#[derive(Debug)]
struct Metered {
    member: Arc<Member>,
    direction: Direction,
    /// It asked, and has not heard.
    waits: bool,
    /// It was told how many, and has not said how many went.
    moves: bool,
}

impl Meter {
    /// The meter of a direction.
    pub(crate) fn new(member: Option<&Arc<Member>>, direction: Direction) -> Self {
        Self(member.map(|member| Metered {
            member: Arc::clone(member),
            direction,
            waits: false,
            moves: false,
        }))
    }

    /// Whether anything is measured.
    pub(crate) const fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// How many bytes may be read now, of `want`; then [`Meter::on_moved`].
    ///
    /// # Errors
    /// As of [`Member::poll_go`].
    pub(crate) fn poll_go(&mut self, cx: &mut Context<'_>, want: usize) -> Poll<io::Result<usize>> {
        let Some(metered) = &mut self.0 else { return Poll::Ready(Ok(want)) };
        metered.waits = true;
        let go = ready!(metered.member.poll_go(cx, metered.direction, want));
        metered.waits = false;
        metered.moves = go.is_ok();
        Poll::Ready(go)
    }

    /// So many of them were read.
    pub(crate) fn on_moved(&mut self, bytes: usize) {
        if let Some(metered) = self.0.as_mut().filter(|metered| metered.moves) {
            metered.moves = false;
            metered.member.on_moved(metered.direction, bytes);
        }
    }

    /// There is nothing to read any more: a turn that was waited for goes to others.
    pub(crate) fn rest(&mut self) {
        if let Some(metered) = self.0.as_mut().filter(|metered| metered.waits) {
            metered.waits = false;
            metered.member.rest(metered.direction);
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.on_moved(0);
        self.rest();
    }
}
