//! Which refused calls have a line in the audit log. Anybody can have calls refused, and lines push older ones out.

use ekiden_model::resources::initial_rate::{Allowance, Config, InitialRate};
use ekiden_model::units::{Span, Time};
use std::net::IpAddr;

/// Lines of one network, an IPv4 address or an IPv6 /64: so many at once, and one more a second.
const OWN: Allowance = Allowance { burst: 20, interval: Span::from_secs(1) };
/// Lines of all together: so many at once, and as many a second.
const ALL: Allowance = Allowance { burst: 50, interval: Span::from_millis(20) };
/// Networks that are remembered.
const NETWORKS: usize = 256;
/// The others are counted, and said to be so many after so long.
const COUNTED: Span = Span::from_secs(60);

#[derive(Debug)]
pub(super) struct Refusals {
    /// A call counts as a stranger's Initial does: of its network, and of all.
    rate: InitialRate,
    left_out: u64,
    /// When the first of these came.
    since: Time,
}

impl Refusals {
    pub(super) const fn new(now: Time) -> Self {
        let config = Config { address: [OWN; 4], all: [ALL; 4], remembered: NETWORKS };
        Self { rate: InitialRate::new(config, now), left_out: 0, since: now }
    }

    /// A call is refused: whether it has a line. None has where there is no room for it.
    pub(super) fn on_refused(&mut self, now: Time, from: IpAddr, has_room: bool) -> bool {
        let has_line = has_room && self.rate.on_initial(now, from.into(), false);
        if !has_line {
            if self.left_out == 0 {
                self.since = now;
            }
            self.left_out += 1;
        }
        has_line
    }

    /// How many had none, where it is time to say so.
    pub(super) fn take_left_out(&mut self, now: Time) -> Option<u64> {
        let is_due = self.left_out > 0 && now.since(self.since) >= COUNTED;
        is_due.then(|| std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_network_leaves_lines_to_others_and_the_rest_are_counted() {
        let at = |seconds| Time::ZERO + Span::from_secs(seconds);
        let mut refusals = Refusals::new(at(0));
        let [one, other] = [IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2])];
        let mut lines =
            |now, from| (0..1_000).filter(|_| refusals.on_refused(now, from, true)).count();
        assert_eq!([lines(at(0), one), lines(at(0), other)], [20, 20]);
        assert_eq!([lines(at(3), one), lines(at(3), other)], [3, 3]);
        assert_eq!(refusals.take_left_out(at(59)), None);
        assert_eq!(refusals.take_left_out(at(60)), Some(4_000 - 46));
        assert_eq!(refusals.take_left_out(at(600)), None);
    }

    #[test]
    fn many_networks_have_as_many_lines_a_second_as_all_may() {
        let mut refusals = Refusals::new(Time::ZERO);
        let from = |n: u32| IpAddr::from(std::net::Ipv4Addr::from(n));
        let lines = (0..10_000).filter(|n| refusals.on_refused(Time::ZERO, from(*n), true)).count();
        assert_eq!(lines, 50);
    }
}
