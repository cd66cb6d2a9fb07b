//! What one leg has learnt from its connections: their openings, and their paths.

use crate::registry::locked;
use crate::settings::{InitialRto, Leg};
use crate::status::{OpeningStatus, PathStatus, TroubleStatus};
use ekiden_linux::clock;
use ekiden_model::opening::{Answered, Config, First, Handshakes, Kind, Plan, second_after};
use ekiden_model::path_mtu::{Paths, Verdict};
use ekiden_model::units::{Share, Span};
use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Shared by all connections of one leg.
#[derive(Debug)]
pub(crate) struct Known {
    handshakes: Mutex<Handshakes>,
    paths: Mutex<Paths>,
    openings: AtomicU64,
    established: AtomicU64,
    lost: AtomicU64,
    repeats: AtomicU64,
    seconds: AtomicU64,
}

impl Known {
    pub(crate) fn new() -> Self {
        let handshakes = Handshakes::new(Config::default(), clock::now());
        let none = || AtomicU64::new(0);
        Self {
            handshakes: Mutex::new(handshakes),
            paths: Mutex::new(Paths::new()),
            openings: none(),
            established: none(),
            lost: none(),
            repeats: none(),
            seconds: none(),
        }
    }

    /// What an opening to `address` may do. With Fast Open and a cookie, the connection stands before a
    /// SYN is sent, and no plan gets to do anything; without one, this is an opening like any other.
    pub(crate) fn plan(&self, leg: &Leg, address: IpAddr) -> Plan {
        let remembers = leg.second_syn || leg.initial_rto == InitialRto::Cached;
        let now = clock::now();
        let rto = if remembers { locked(&self.handshakes).initial_rto(now, address) } else { None };
        Plan {
            within: leg.establish_timeout.unwrap_or(Span::MAX),
            repeat_after: rto.filter(|_| leg.initial_rto == InitialRto::Cached),
            second_after: leg.second_syn.then(|| second_after(rto)),
        }
    }

    /// The share of handshakes with `address` that is held to be lost.
    pub(crate) fn loss(&self, address: IpAddr) -> Share {
        locked(&self.handshakes).loss(clock::now(), address)
    }

    pub(crate) fn on_started(&self, kind: Kind) {
        let counter = match kind {
            Kind::First => &self.openings,
            Kind::Repeat => &self.repeats,
            Kind::Second => &self.seconds,
        };
        counter.fetch_add(1, Relaxed);
    }

    pub(crate) fn on_established(&self) {
        self.established.fetch_add(1, Relaxed);
    }

    pub(crate) fn on_answered(&self, address: IpAddr, answered: Answered) {
        let first = locked(&self.handshakes).on_answered(clock::now(), address, answered);
        if first == First::Lost {
            self.lost.fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn on_path_mtu(&self, mtu: u32) {
        locked(&self.paths).on_path_mtu(mtu);
    }

    /// What a connection of `leg` to `address` comes to; a black hole is told in the log, once.
    pub(crate) fn on_verdict(
        &self,
        leg: &str,
        address: IpAddr,
        verdict: Verdict,
        passed: Option<u32>,
    ) {
        let news = locked(&self.paths).on_verdict(clock::now(), address, verdict, passed);
        match verdict {
            Verdict::BlackHole if news => tracing::warn!(
                %leg,
                %address,
                "large packets seem to vanish on the way; `mss = 1200` on the leg, or \
                 `sysctl -w net.ipv4.tcp_mtu_probing=1`, may help"
            ),
            Verdict::Smaller(mtu) if news => {
                tracing::info!(%leg, %address, mtu, "a smaller path MTU")
            }
            _ => {}
        }
    }

    pub(crate) fn path(&self) -> PathStatus {
        let now = clock::now();
        let paths = locked(&self.paths);
        let troubled = paths.troubled(now).map(|trouble| TroubleStatus {
            address: trouble.address,
            state: verdict_name(trouble.verdict).to_owned(),
            mtu: match trouble.verdict {
                Verdict::Smaller(mtu) => Some(mtu),
                _ => None,
            },
            seconds_ago: now.since(trouble.seen).as_millis() as f64 / 1e3,
        });
        PathStatus {
            usual_mtu: paths.usual(),
            smallest_mtu: paths.smallest(now),
            troubled: troubled.collect(),
        }
    }

    pub(crate) fn opening(&self) -> OpeningStatus {
        let now = clock::now();
        let handshakes = locked(&self.handshakes);
        let openings = self.openings.load(Relaxed);
        let loss = handshakes.loss_of_all(now);
        OpeningStatus {
            openings,
            established: self.established.load(Relaxed),
            lost_syns: self.lost.load(Relaxed),
            repeated_syns: self.repeats.load(Relaxed),
            second_syns: self.seconds.load(Relaxed),
            recent_loss: loss.map(|share| share.as_parts_per_billion() as f64 / 1e9),
            known_destinations: handshakes.known(now) as u64,
        }
    }
}

/// As the status says it.
pub(crate) const fn verdict_name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Fine => "fine",
        Verdict::Smaller(_) => "smaller",
        Verdict::BlackHole => "black hole",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ekiden_linux::options::SocketOptions;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    fn ms(n: u64) -> Span {
        Span::from_millis(n)
    }

    /// A leg that has met `HERE` at 100 ms.
    fn known() -> Known {
        let known = Known::new();
        let rtt = Some(ms(100));
        let answered = Answered { by_first: true, repeated: false, took: ms(100), rtt };
        known.on_answered(HERE, answered);
        known
    }

    #[test]
    fn each_remedy_is_asked_for_alone() {
        let known = known();
        let kernel = Leg { initial_rto: InitialRto::Kernel, ..Leg::default() };
        let none = Plan { within: Span::MAX, repeat_after: None, second_after: None };
        assert_eq!(known.plan(&kernel, HERE), none);
        let cached = Plan { repeat_after: Some(ms(400)), ..none };
        assert_eq!(known.plan(&Leg::default(), HERE), cached);
        let apart = Leg { establish_timeout: Some(ms(5_000)), ..kernel.clone() };
        assert_eq!(known.plan(&apart, HERE), Plan { within: ms(5_000), ..none });
        // how long the second waits follows what is known, whoever repeats
        let second = Leg { second_syn: true, ..kernel };
        assert_eq!(known.plan(&second, HERE), Plan { second_after: Some(ms(50)), ..none });
        let elsewhere = "198.51.100.1".parse().unwrap();
        assert_eq!(known.plan(&second, elsewhere), Plan { second_after: Some(ms(125)), ..none });
        assert_eq!(known.plan(&Leg::default(), elsewhere), none);
    }

    #[test]
    fn fast_open_switches_nothing_off() {
        let socket = SocketOptions { fast_open: Some(true), ..SocketOptions::default() };
        let leg = Leg { socket, second_syn: true, ..Leg::default() };
        let plan = known().plan(&leg, HERE);
        assert_eq!((plan.repeat_after, plan.second_after), (Some(ms(400)), Some(ms(50))));
    }

    #[test]
    fn counts_and_paths_are_told() {
        let known = known();
        for kind in [Kind::First, Kind::First, Kind::Repeat, Kind::Second] {
            known.on_started(kind);
        }
        known.on_established();
        let answered = Answered { by_first: false, repeated: false, took: ms(9), rtt: None };
        known.on_answered(HERE, answered);
        let opening = known.opening();
        let sent = (opening.openings, opening.repeated_syns, opening.second_syns);
        assert_eq!((sent, opening.established, opening.lost_syns), ((2, 1, 1), 1, 1));
        assert_eq!((opening.recent_loss, Known::new().opening().recent_loss), (Some(0.5), None));
        assert!(known.loss(HERE) > Share::from_percent(5).unwrap());
        known.on_path_mtu(1500);
        known.on_verdict("sea", HERE, Verdict::BlackHole, None);
        known.on_verdict("sea", HERE, Verdict::Smaller(1400), Some(1400));
        let path = known.path();
        assert_eq!((path.usual_mtu, path.smallest_mtu), (Some(1500), Some(1400)));
        assert_eq!((path.troubled.len(), path.troubled[0].state.as_str()), (1, "smaller"));
    }
}
