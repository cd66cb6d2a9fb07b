//! Bytes that carry a client's messages: TLS records and frames of HTTP/2. They have moved when they are counted. So the
//! account of the client's requests is charged: its rate pays for them before it lets anything else pass.

use super::Quotas;
use super::connection::AccountConnection;
use super::state::UsageCounters;
use ekiden_linux::host::sync::locked;
use ekiden_model::resources::quota::{Account, Direction};
use ekiden_model::units::{Bytes, Time};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// Bytes that are charged together: fewer cost more than they weigh.
const AT_ONCE: u64 = 4 * 1024;

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

    /// Whose request was read last: it is charged from now on, also for what moved before. `None`: nobody.
    pub(crate) fn set_payer(&self, connection: Option<&AccountConnection>) {
        self.charge(1);
        let payer = connection.and_then(AccountConnection::payer);
        if payer.is_none() {
            self.paid_at.store(0, Relaxed);
        }
        *locked(&self.payer) = payer;
    }

    /// Charges what is worth it. Returns when the account has paid: nothing more is to be read before. It may lock the
    /// quotas and end connections, so its caller holds no lock.
    pub(crate) fn settle(&self) -> Time {
        if self.due.iter().any(|due| due.load(Relaxed) >= AT_ONCE) {
            self.charge(AT_ONCE);
        }
        Time::from_nanos(self.paid_at.load(Relaxed))
    }

    fn charge(&self, least: u64) {
        let Some(payer) = locked(&self.payer).clone() else { return };
        for direction in Direction::ALL {
            let due = &self.due[direction as usize];
            if due.load(Relaxed) < least {
                continue;
            }
            let bytes = due.swap(0, Relaxed);
            match payer.charge(direction, bytes) {
                Some((counted, paid_at)) => {
                    // its quota may get more later
                    due.fetch_add(bytes - counted, Relaxed);
                    self.paid_at.fetch_max(paid_at.as_nanos(), Relaxed);
                }
                // like a client of no account, until it logs in to another
                None => self.set_over(),
            }
        }
    }

    fn set_over(&self) {
        *locked(&self.payer) = None;
        self.paid_at.store(0, Relaxed);
    }
}

impl Drop for Framing {
    fn drop(&mut self) {
        self.charge(1);
    }
}

impl Payer {
    /// How many bytes counted, and when they are paid; `None`: nothing of the account may pass any more.
    fn charge(&self, direction: Direction, bytes: u64) -> Option<(u64, Time)> {
        self.quotas.change(|state, now| {
            let counted = state.quota.charge(now, self.account, direction, Bytes::new(bytes))?;
            let counted = counted.as_u64();
            // under the same lock, so that the quota and the usage never differ
            self.used.0[direction as usize].fetch_add(counted, Relaxed);
            Some((counted, state.quota.paid_at(now, self.account, direction)))
        })
    }
}
