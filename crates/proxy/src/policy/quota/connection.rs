//! A connection of an account.

use super::framing::Payer;
use super::state::{State, UsageCounters};
use super::{Quotas, meter};
use crate::observe::registry::{AccountUse, ConnectionEntry};
use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use ekiden_model::resources::quota::{DatagramAnswer, Direction, Flow, QuotaAnswer, QuotaWait};
use ekiden_model::units::{Bytes, Rate, Time};
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};

/// A connection of an account. Its drop gives its slot to another.
#[derive(Debug)]
pub(crate) struct AccountConnection {
    quotas: Arc<Quotas>,
    flow: Flow,
    name: Arc<str>,
    used: Arc<UsageCounters>,
}

impl AccountConnection {
    pub(super) fn new(
        quotas: &Arc<Quotas>,
        flow: Flow,
        name: Arc<str>,
        used: Arc<UsageCounters>,
    ) -> Self {
        Self { quotas: Arc::clone(quotas), flow, name, used }
    }

    /// The account's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// How many bytes may pass now: 1 to `want`, to be reported with [`Self::on_moved`] before the
    /// next call. A pending caller is woken. Fails with [`io::ErrorKind::QuotaExceeded`]: no bytes
    /// may pass any more.
    pub(super) fn poll_grant(
        &self,
        cx: &mut Context<'_>,
        direction: Direction,
        want: usize,
    ) -> Poll<io::Result<usize>> {
        self.change(|state, now| {
            match state.quota.ask(now, self.flow, direction, Bytes::new(want as u64)) {
                // the grant may exceed what the caller wants now; the rest returns with `on_moved`
                QuotaAnswer::Go(bytes) => Poll::Ready(Ok(bytes.as_usize().min(want))),
                QuotaAnswer::Over => Poll::Ready(Err(io::Error::new(
                    io::ErrorKind::QuotaExceeded,
                    self.why_over(state.quota.is_gone(self.flow)),
                ))),
                QuotaAnswer::Wait => {
                    if let Some(slot) = state.slots.get_mut(&self.flow) {
                        let waker = &mut slot.wakers[direction as usize];
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

    /// Of the granted bytes, this many passed.
    pub(super) fn on_moved(&self, direction: Direction, bytes: usize) {
        let used = bytes as u64;
        self.change(|state, now| {
            state.quota.on_moved(now, self.flow, direction, Bytes::new(used));
            self.used.add(direction, used);
        });
    }

    pub(super) fn rest(&self, direction: Direction) {
        self.change(|state, now| state.quota.rest(now, self.flow, direction));
    }

    /// Waits until all of `bytes` may pass, and counts them. Fails with
    /// [`io::ErrorKind::QuotaExceeded`].
    pub(crate) async fn pass(&self, direction: Direction, bytes: usize) -> io::Result<()> {
        let mut left = bytes;
        while left > 0 {
            // a caller that gives up while it waits must not keep its turn
            let _rest = meter::RestOnDrop(self, direction);
            let granted = poll_fn(|cx| self.poll_grant(cx, direction, left)).await?;
            self.on_moved(direction, granted);
            left -= granted;
        }
        Ok(())
    }

    /// Counts bytes that have moved, and that nothing waited for: within a second, with what carried other messages.
    pub(crate) fn charge_later(&self, direction: Direction, bytes: usize) {
        self.used.due[direction as usize].fetch_add(bytes as u64, Relaxed);
    }

    /// Whether a datagram may pass; if so, it is counted. `None`: no datagram may pass any more.
    pub(crate) fn datagram(&self, direction: Direction, bytes: usize) -> Option<bool> {
        let size = Bytes::new(bytes as u64);
        self.change(|state, now| {
            let (passes, used) = match state.quota.datagram(now, self.flow, direction, size)? {
                DatagramAnswer::Pass => (true, size),
                DatagramAnswer::Drop => (false, Bytes::ZERO),
                DatagramAnswer::UsesUp(last) => (false, last),
            };
            self.used.add(direction, used.as_u64());
            Some(passes)
        })
    }

    /// Who pays for what carries this connection's messages; `None`: its account is gone.
    pub(super) fn payer(&self) -> Option<Payer> {
        let account = locked(&self.quotas.state).quota.whose(self.flow)?;
        let (quotas, used) = (Arc::clone(&self.quotas), Arc::clone(&self.used));
        Some(Payer { quotas, account, used })
    }

    /// Moves the slot to another connection, which then ends when its account is cut.
    pub(crate) fn set_entry(&self, entry: &Arc<ConnectionEntry>) {
        if let Some(slot) = locked(&self.quotas.state).slots.get_mut(&self.flow) {
            slot.entry = Some(Arc::downgrade(entry));
        }
    }

    /// Why nothing may pass any more, if so.
    pub(crate) fn ended(&self) -> Option<String> {
        let state = locked(&self.quotas.state);
        let over = state.quota.is_over(self.flow);
        over.then(|| self.why_over(state.quota.is_gone(self.flow)))
    }

    fn why_over(&self, gone: bool) -> String {
        let why = if gone { "is not served any more" } else { "has used up its quota" };
        format!("account \"{}\" {why}", self.name)
    }

    fn change<T>(&self, work: impl FnOnce(&mut State, Time) -> T) -> T {
        let (result, deferred) = {
            let state = &mut *locked(&self.quotas.state);
            let result = work(state, clock::now());
            (result, state.deferred())
        };
        deferred.run(&self.quotas);
        result
    }
}

impl AccountUse for AccountConnection {
    fn account(&self) -> &str {
        &self.name
    }

    fn waits(&self) -> Option<String> {
        let state = locked(&self.quotas.state);
        let reason = |(direction, name)| {
            let why = state.quota.why(self.flow, direction)?;
            let whose = state
                .quota
                .whose(self.flow)
                .filter(|_| matches!(why, QuotaWait::Account | QuotaWait::Throttle));
            let rate = whose
                .and_then(|account| state.quota.account(account)?.rates[direction as usize])
                .map_or_else(String::new, |rate| format!(", {}", Rate::from_bits_per_second(rate)));
            Some(format!("{name} waits {why}{rate}"))
        };
        let both = [(Direction::Up, "up"), (Direction::Down, "down")];
        let waits: Vec<String> = both.into_iter().filter_map(reason).collect();
        (!waits.is_empty()).then(|| waits.join("; "))
    }
}

impl Drop for AccountConnection {
    fn drop(&mut self) {
        self.change(|state, now| {
            state.slots.remove(&self.flow);
            state.quota.close(now, self.flow);
        });
    }
}
