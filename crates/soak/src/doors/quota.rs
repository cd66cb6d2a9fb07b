//! Transfers by CONNECT of an account whose quota is used up about half-way through the run. Its clients go on trying.

use super::{Clients, book, domain, raw, target, volume};
use crate::exchange::{Failure, Order};
use crate::laws::{Door, Leg};
use crate::ledger::Ledger;
use crate::origin::Service;
use ekiden_model::rng::Rng;
use std::time::Duration;
use tokio::time::sleep;

/// Bytes a second of a client, each way, and the most of a transfer each way.
const RATE: u64 = 20_000;
const MOST: u64 = 40_000;
/// A client that was refused tries again after this.
const AGAIN: Duration = Duration::from_secs(1);
/// The relay's answers to CONNECT that count and have not come yet, and more.
const ANSWERS: u64 = 64 << 10;
/// In the words of a client that was refused as the book says.
const REFUSED: &str = "HTTP/1.1 403 ";

/// Half of what six clients move in a second, both ways together.
const HALF: u64 = 75_000;
/// The unit in which quotas are given.
const MEGABYTE: u64 = 1_000_000;

/// The quota of a run of this length, in bytes: whole megabytes.
pub(crate) fn quota(length: Duration) -> u64 {
    (length.as_secs() * HALF / MEGABYTE).max(1) * MEGABYTE
}

fn draw(rng: &mut Rng) -> Order {
    let (up, down) = (rng.below(MOST), rng.below(MOST));
    Order { seed: rng.next_u64(), up, down, rate: RATE }
}

pub(super) async fn exchanges(clients: &Clients, leg: Leg, mut rng: Rng) {
    let (ledger, door) = (&clients.ledger, Door::Quota);
    while !clients.is_over() {
        let order = draw(&mut rng);
        let to = target(&mut rng, leg, Service::Exchange, door);
        let live = ledger.begin(domain(&to.0));
        ledger.expect(order.seed, &live);
        let moves = || live.on_moved();
        match raw::transfer(clients, (door, leg), &to, &order, moves).await {
            // before that, a refusal is a transfer that broke
            Err(Failure::Ended(why) | Failure::Finished(why))
                if may_be_used_up(ledger, clients.quota) =>
            {
                ledger.on_left(door, leg);
                if why.contains(REFUSED) {
                    ledger.on_refused();
                }
                sleep(AGAIN).await;
            }
            result => book(clients, (door, leg), &live, volume(&order), result).await,
        }
    }
}

/// Whether as much was sent as the quota has: a relay counts no more than that, and its own answers.
fn may_be_used_up(ledger: &Ledger, quota: u64) -> bool {
    let sides = [ledger.up(Door::Quota), ledger.down(Door::Quota)];
    let sent: u64 = sides.iter().map(|side| side.read().0 + side.framing()).sum();
    sent + ANSWERS >= quota
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_refusal_counts_once_as_much_was_sent_as_the_quota_has() {
        let ledger = Ledger::new(Instant::now(), Duration::from_secs(9));
        let up = ledger.up(Door::Quota);
        up.on_sent(1_000_000 - ANSWERS - 1);
        assert!(!may_be_used_up(&ledger, 1_000_000));
        ledger.down(Door::Quota).on_sent(1);
        assert!(may_be_used_up(&ledger, 1_000_000));
    }

    #[test]
    fn quotas_are_whole_megabytes() {
        assert_eq!(quota(Duration::from_secs(1)), 1_000_000);
        assert_eq!(quota(Duration::from_secs(7_200)), 540_000_000);
    }
}
