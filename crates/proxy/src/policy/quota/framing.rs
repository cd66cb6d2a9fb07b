//! Bytes that carry a client's messages: TLS records and frames of HTTP/2. They have moved when they are counted. So the
//! account of the client's requests is charged: its rate pays for them before it lets anything else pass.

use super::Quotas;
use super::connection::AccountConnection;
use super::state::{State, UsageCounters};
use crate::observe::registry::CarrierUse;
use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use ekiden_model::resources::quota::{Account, Direction};
use ekiden_model::units::{Bytes, Span, Time};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// Bytes that are charged together: fewer cost more than they weigh.
const AT_ONCE: u64 = 4 * 1024;

/// Where it is the turn of others, the rest is charged after so long.
const AGAIN: Span = Span::from_millis(20);

/// The framing of one client's connection, and the account that it is charged to.
#[derive(Debug, Default)]
pub(crate) struct Framing {
    /// Not charged yet, up and down.
    due: [AtomicU64; 2],
    payer: Mutex<Option<Payer>>,
    /// When the account has paid for it, in nanoseconds of the clock.
    paid_at: AtomicU64,
}

/// An account, also after its connection has ended: framing follows the last message.
#[derive(Debug, Clone)]
pub(super) struct Payer {
    pub(super) quotas: Arc<Quotas>,
    pub(super) account: Account,
    pub(super) used: Arc<UsageCounters>,
}

impl Framing {
    /// So many bytes have moved.
    pub(crate) fn add(&self, direction: Direction, bytes: usize) {
        self.due[direction as usize].fetch_add(bytes as u64, Relaxed);
    }

    /// What is not charged yet.
    #[cfg(test)]
    pub(crate) fn due(&self, direction: Direction) -> u64 {
        self.due[direction as usize].load(Relaxed)
    }

    /// Whose request was read last: it is charged from now on, also for what moved before. `None`: nobody.
    pub(crate) fn set_payer(&self, connection: Option<&AccountConnection>) {
        let payer = connection.and_then(AccountConnection::payer);
        let account = |payer: &Payer| payer.account;
        let mut known = locked(&self.payer);
        if known.as_ref().map(account) != payer.as_ref().map(account) {
            if let Some(before) = &*known {
                self.leave(before);
            }
            self.paid_at.store(0, Relaxed);
        }
        *known = payer;
    }

    /// Charges what is worth it. Returns when the account has paid: nothing more is to be read before. It may lock the
    /// quotas and end connections, so its caller holds no lock.
    pub(crate) fn settle(&self) -> Time {
        let is_worth_it = self.due.iter().any(|due| due.load(Relaxed) >= AT_ONCE);
        if is_worth_it || self.paid_at.load(Relaxed) > 0 {
            let payer = locked(&self.payer).clone();
            let paid_at = payer.map_or(Time::ZERO, |payer| self.charge(&payer));
            self.paid_at.store(paid_at.as_nanos(), Relaxed);
        }
        Time::from_nanos(self.paid_at.load(Relaxed))
    }

    /// When all is paid; [`Time::ZERO`]: it is.
    fn charge(&self, payer: &Payer) -> Time {
        let Some((rest, paid_at, now)) = payer.charge(&self.due) else {
            // like a client of no account, until it logs in to another
            let mut known = locked(&self.payer);
            if let Some(before) = known.take_if(|known| known.account == payer.account) {
                self.leave(&before);
            }
            return Time::ZERO;
        };
        match rest.iter().any(|rest| *rest >= AT_ONCE) {
            true => paid_at.max(now + AGAIN),
            false if paid_at > now => paid_at,
            false => Time::ZERO,
        }
    }

    /// What is due is charged later, with what other connections of the account leave.
    fn leave(&self, payer: &Payer) {
        for (due, later) in self.due.iter().zip(&payer.used.due) {
            later.fetch_add(due.swap(0, Relaxed), Relaxed);
        }
    }
}

impl CarrierUse for Framing {
    fn waits(&self) -> Option<String> {
        let paid_at = Time::from_nanos(self.paid_at.load(Relaxed));
        let text = "nothing more is read of its HTTP/2 connection until its account's rate has paid for frames and records";
        (paid_at > clock::now()).then(|| text.to_owned())
    }
}

impl Drop for Framing {
    // perhaps within a lock
    fn drop(&mut self) {
        if let Some(payer) = locked(&self.payer).take() {
            self.leave(&payer);
        }
    }
}

impl Payer {
    /// The bytes up and down that stay due, when those that counted are paid, and the time now; `None`: nothing of the
    /// account may pass any more.
    fn charge(&self, due: &[AtomicU64; 2]) -> Option<([u64; 2], Time, Time)> {
        self.quotas.change(|state, now| {
            let (mut rest, mut paid_at) = ([0; 2], Time::ZERO);
            for direction in Direction::ALL {
                let left = charge_due(state, now, (self.account, &self.used), due, direction)?;
                rest[direction as usize] = left;
                paid_at = paid_at.max(state.quota.paid_at(now, self.account, direction));
            }
            Some((rest, paid_at, now))
        })
    }
}

/// Charges an account for what is due in a direction. What does not count yet stays due, also where the account is cut: its
/// next period pays for it. Returns how much stays; `None`: nothing of the account may pass any more.
pub(super) fn charge_due(
    state: &mut State,
    now: Time,
    (account, used): (Account, &UsageCounters),
    due: &[AtomicU64; 2],
    direction: Direction,
) -> Option<u64> {
    let due = &due[direction as usize];
    // connections may add to it meanwhile
    let bytes = due.swap(0, Relaxed);
    let charged = state.quota.charge(now, account, direction, Bytes::new(bytes));
    let counted = charged.map_or(0, Bytes::as_u64);
    used.add(direction, counted);
    due.fetch_add(bytes - counted, Relaxed);
    charged.map(|_| bytes - counted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Allowance, ExceededAction, Limits, Sharing};
    use ekiden_model::units::Rate;

    #[test]
    fn a_carrier_waits_until_its_account_has_paid() {
        let quotas = Quotas::new(&Sharing::default());
        let rates = [Some(Rate::from_bits_per_second(8_000)); 2];
        quotas.set("home", Limits { rates, ..Limits::default() });
        let connection = quotas.admit_known("home", None).unwrap();
        let framing = Framing::default();
        framing.set_payer(Some(&*connection));
        framing.settle();
        assert_eq!(framing.waits(), None);
        // more than is saved up
        framing.add(Direction::Up, 64 * 1024);
        framing.settle();
        assert!(framing.waits().is_some_and(|why| why.contains("HTTP/2")));
    }

    #[test]
    fn framing_that_moved_before_an_account_was_cut_counts_once_it_has_more() {
        let limits = |bytes| {
            let (bytes, period) = (Bytes::new(bytes), Span::from_secs(3_600));
            let quota = Allowance { bytes, period, on_exceeded: ExceededAction::Cut };
            Limits { quota: Some(quota), ..Limits::default() }
        };
        let quotas = Quotas::new(&Sharing::default());
        quotas.set("home", limits(1_000));
        let connection = quotas.admit_known("home", None).unwrap();
        let framing = Framing::default();
        framing.set_payer(Some(&*connection));
        framing.add(Direction::Up, 5_000);
        framing.add(Direction::Down, 300);
        framing.settle();
        let used = || quotas.usage().iter().map(|usage| usage.up + usage.down).sum::<u64>();
        assert_eq!(used(), 1_000);
        quotas.set("home", limits(10_000));
        quotas.on_second();
        assert_eq!(used(), 5_300);
        drop(framing);
        quotas.on_second();
        assert_eq!(used(), 5_300, "each byte once");
    }
}
