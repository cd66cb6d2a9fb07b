//! Handshake statistics of one leg's destinations.

use super::loss::{Loss, PRIOR};
use super::table::{Prefix, Table};
use crate::units::{Share, Span, Time};
use core::net::IpAddr;

/// Size and constants of the table (algorithms/asymmetric D.6, 1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Destinations, at most. Default 4096.
    pub entries: usize,
    /// Lifetime of an unconfirmed round-trip time. Default 10 min.
    pub lifetime: Span,
    /// The shortest initial time-out. Default 200 ms.
    pub least: Span,
    /// The longest, and the default where nothing is known: RFC 6298 §2.1's 1 s.
    pub most: Span,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            entries: 4096,
            lifetime: Span::from_secs(600),
            least: Span::from_millis(200),
            most: Span::from_secs(1),
        }
    }
}

/// The outcome of an answered attempt's first SYN. Later SYNs and unanswered attempts do not count:
/// the former mostly follow a loss or are closed early, and the host may be off. So where most
/// attempts fail the loss is underestimated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstSyn {
    /// It was answered.
    Answered,
    /// A later SYN was answered first: it or its answer was lost, or it was overtaken.
    Lost,
}

/// How an attempt was answered, from the winning socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answered {
    /// Whether the first copy won.
    pub by_first: bool,
    /// Whether the kernel repeated the winner's SYN.
    pub repeated: bool,
    /// From the winner's first SYN to its answer.
    pub took: Span,
    /// The kernel's round-trip time, where it has one.
    pub rtt: Option<Span>,
}

impl Answered {
    /// The first SYN's outcome; `known` is the destination's round-trip time.
    ///
    /// On a path of more than a second the kernel always repeats, so a repeated SYN need not be
    /// lost. With time stamps (RFC 7323) the round-trip time is that of the answered SYN: where it
    /// fills the whole wait (less a tenth for rounding and waking up) and is not known to be less
    /// than half of that, the first SYN was answered.
    pub fn first(&self, known: Option<Span>) -> FirstSyn {
        let fills = |rtt: Span| rtt.saturating_mul(10) >= self.took.saturating_mul(9);
        let slow = known.is_none_or(|known| known.saturating_mul(2) >= self.took);
        match (self.by_first, self.repeated) {
            (true, false) => FirstSyn::Answered,
            (true, true) if slow && self.rtt.is_some_and(fills) => FirstSyn::Answered,
            _ => FirstSyn::Lost,
        }
    }

    /// The round-trip time, where it is certain which SYN it is of (Karn).
    pub fn clean_rtt(&self) -> Option<Span> {
        self.rtt.filter(|rtt| !self.repeated && *rtt > Span::ZERO)
    }
}

#[derive(Debug, Clone, Copy)]
struct Rtt {
    smoothed: Span,
    deviation: Span,
    confirmed: Time,
}

#[derive(Debug, Clone, Copy)]
struct KnownDestination {
    rtt: Option<Rtt>,
    loss: Loss,
}

/// Round-trip times and losses of handshakes, by destination. Ask `initial_rto` before the first
/// SYN and `loss` before an extra one; report to `on_answered`.
#[derive(Debug, Clone)]
pub struct Handshakes {
    config: Config,
    known: Table<KnownDestination>,
    all: Loss,
}

impl Handshakes {
    /// Nothing known.
    pub fn new(config: Config, now: Time) -> Self {
        Self { config, known: Table::new(config.entries), all: Loss::new(now) }
    }

    /// An opening was answered.
    pub fn on_answered(&mut self, now: Time, address: IpAddr, answered: Answered) -> FirstSyn {
        let before = self.rtt(now, address);
        let first = answered.first(before.map(|rtt| rtt.smoothed));
        self.all.on_handshake(now, first == FirstSyn::Lost);
        let nothing = || KnownDestination { rtt: None, loss: Loss::new(now) };
        if let Some(known) = self.known.touch(now, Prefix::of(address), |_| true, nothing) {
            known.loss.on_handshake(now, first == FirstSyn::Lost);
            if let Some(rtt) = answered.clean_rtt() {
                known.rtt = Some(smoothed(before, rtt, now));
            }
        }
        first
    }

    /// The first SYN's wait, `2 · srtt + 4 · rttvar` within bounds; `None` for the kernel's own 1
    /// s.
    pub fn initial_rto(&self, now: Time, address: IpAddr) -> Option<Span> {
        let rtt = self.rtt(now, address)?;
        let rto = rtt.smoothed.saturating_mul(2) + rtt.deviation.saturating_mul(4);
        Some(rto.max(self.config.least).min(self.config.most))
    }

    /// How long ago a handshake told the round-trip time of `address`.
    pub fn age(&self, now: Time, address: IpAddr) -> Option<Span> {
        Some(now.since(self.rtt(now, address)?.confirmed))
    }

    fn rtt(&self, now: Time, address: IpAddr) -> Option<Rtt> {
        let rtt = self.known.get(Prefix::of(address))?.rtt?;
        (now.since(rtt.confirmed) < self.config.lifetime).then_some(rtt)
    }

    /// Estimated handshake loss of `address`: its recent handshakes and ten of the whole leg's. On
    /// a leg that loses 10 % a clean destination stays above 1 % for some ninety handshakes.
    pub fn loss(&self, now: Time, address: IpAddr) -> Share {
        let all = self.all.share(now, PRIOR);
        self.known.get(Prefix::of(address)).map_or(all, |known| known.loss.share(now, all))
    }

    /// The same of all destinations together, as it was seen; `None` where nothing was seen lately.
    pub fn loss_of_all(&self, now: Time) -> Option<Share> {
        self.all.seen(now)
    }

    /// Destinations with a recent round-trip time.
    pub fn known(&self, now: Time) -> usize {
        let fresh = |rtt: Rtt| now.since(rtt.confirmed) < self.config.lifetime;
        self.known.values().filter(|known| known.rtt.is_some_and(fresh)).count()
    }

    /// The most destinations remembered.
    pub const fn capacity(&self) -> usize {
        self.known.capacity()
    }
}

/// RFC 6298 §2.2 and §2.3, in whole nanoseconds.
fn smoothed(before: Option<Rtt>, sample: Span, now: Time) -> Rtt {
    let weighed = |old: Span, new: Span, of: u64| {
        Span::from_nanos((old.as_nanos() * (of - 1) + new.as_nanos()) / of)
    };
    match before {
        None => Rtt {
            smoothed: sample,
            deviation: Span::from_nanos(sample.as_nanos() / 2),
            confirmed: now,
        },
        Some(rtt) => {
            let off = rtt.smoothed.as_nanos().abs_diff(sample.as_nanos());
            Rtt {
                smoothed: weighed(rtt.smoothed, sample, 8),
                deviation: weighed(rtt.deviation, Span::from_nanos(off), 4),
                confirmed: now,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;

    const HERE: IpAddr = IpAddr::V4(core::net::Ipv4Addr::new(192, 0, 2, 1));

    fn clean(rtt: u64) -> Answered {
        Answered { by_first: true, repeated: false, took: ms(rtt), rtt: Some(ms(rtt)) }
    }

    #[test]
    fn initial_rto_follows_round_trips() {
        let mut handshakes = Handshakes::new(Config::default(), Time::ZERO);
        assert_eq!(handshakes.initial_rto(Time::ZERO, HERE), None);
        let mut rtos = Vec::new();
        for rtt in [150, 150, 150, 150, 250] {
            handshakes.on_answered(Time::ZERO, HERE, clean(rtt));
            rtos.push(handshakes.initial_rto(Time::ZERO, HERE).unwrap().as_micros());
        }
        // 2 · 150 + 4 · 75; the deviation fades by a quarter each time, until one is 100 off
        assert_eq!(rtos, [600_000, 525_000, 468_750, 426_562, 519_921]);
        for (rtt, rto) in [(3, 200), (700, 1000)] {
            let mut handshakes = Handshakes::new(Config::default(), Time::ZERO);
            handshakes.on_answered(Time::ZERO, HERE, clean(rtt));
            assert_eq!(handshakes.initial_rto(Time::ZERO, HERE), Some(ms(rto)));
        }
    }

    #[test]
    fn unconfirmed_entries_expire_after_ten_minutes() {
        let mut handshakes = Handshakes::new(Config::default(), Time::ZERO);
        let at = |s| Time::ZERO + Span::from_secs(s);
        handshakes.on_answered(at(0), HERE, clean(300));
        assert!(handshakes.initial_rto(at(599), HERE).is_some());
        assert_eq!((handshakes.initial_rto(at(600), HERE), handshakes.known(at(600))), (None, 0));
        handshakes.on_answered(at(600), HERE, clean(60));
        assert_eq!(handshakes.initial_rto(at(600), HERE), Some(ms(240)), "without the old 300 ms");
        assert_eq!(handshakes.known(at(601)), 1);
    }

    #[test]
    fn classifies_the_first_syn() {
        let took = |by_first, repeated, took, rtt: Option<u64>| Answered {
            by_first,
            repeated,
            took: ms(took),
            rtt: rtt.map(ms),
        };
        assert_eq!(took(true, false, 50, Some(50)).first(None), FirstSyn::Answered);
        assert_eq!(took(true, true, 1051, Some(51)).first(None), FirstSyn::Lost);
        assert_eq!(took(true, true, 1051, None).first(None), FirstSyn::Lost);
        // the kernel repeated on a path of 1.3 s, and the first was answered all the same
        let late = took(true, true, 1301, Some(1300));
        assert_eq!([None, Some(ms(700))].map(|known| late.first(known)), [FirstSyn::Answered; 2]);
        // on a path of 50 ms, its answer was lost and sent again
        assert_eq!(late.first(Some(ms(50))), FirstSyn::Lost);
        assert_eq!(took(false, false, 50, Some(50)).first(None), FirstSyn::Lost);
        assert_eq!(took(true, true, 1051, Some(51)).clean_rtt(), None);
        assert_eq!(took(false, false, 50, Some(50)).clean_rtt(), Some(ms(50)));
    }

    #[test]
    fn new_destination_starts_with_the_legs_loss() {
        let mut handshakes = Handshakes::new(Config::default(), Time::ZERO);
        let elsewhere = "203.0.113.1".parse().unwrap();
        assert_eq!(handshakes.loss(Time::ZERO, elsewhere), PRIOR);
        let lost = Answered { by_first: false, ..clean(50) };
        for nth in 0..100 {
            let answered = if nth % 5 == 0 { lost } else { clean(50) };
            handshakes.on_answered(Time::ZERO, HERE, answered);
        }
        assert_eq!(handshakes.loss_of_all(Time::ZERO), Share::from_percent(20));
        assert!(handshakes.loss(Time::ZERO, elsewhere) > "15 %".parse().unwrap());
        for _ in 0..400 {
            handshakes.on_answered(Time::ZERO, elsewhere, clean(50));
        }
        let there = handshakes.loss(Time::ZERO, elsewhere);
        assert!(
            there < super::super::LEAST_LOSS,
            "its own handshakes outweigh the others: {there}"
        );
    }
}
