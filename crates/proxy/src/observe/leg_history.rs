//! What one leg learned from its connections: handshakes and paths.

use crate::observe::log_throttle::LogThrottle;
use crate::observe::status::{OpeningStatus, PathStatus, TroubleStatus};
use crate::settings::{InitialRto, Leg};
use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use ekiden_model::connect::path_mtu::{MtuVerdict, PathLook, Paths};
use ekiden_model::connect::syn_race::{
    Answered, Config, FirstSyn, Handshakes, SynKind, SynPlan, second_after,
};
use ekiden_model::units::{Share, Span};
use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[derive(Debug)]
pub(crate) struct LegHistory {
    handshakes: Mutex<Handshakes>,
    paths: Mutex<Paths>,
    openings: AtomicU64,
    established: AtomicU64,
    lost: AtomicU64,
    repeats: AtomicU64,
    seconds: AtomicU64,
    holes_logged: LogThrottle,
    smaller_logged: LogThrottle,
}

impl LegHistory {
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
            holes_logged: LogThrottle::new(),
            smaller_logged: LogThrottle::new(),
        }
    }

    /// The plan for a connection to `address`; it has no effect with Fast Open and a cookie.
    pub(crate) fn plan(&self, leg: &Leg, address: IpAddr) -> SynPlan {
        let remembers = leg.second_syn || leg.initial_rto == InitialRto::Cached;
        let now = clock::now();
        let rto = if remembers { locked(&self.handshakes).initial_rto(now, address) } else { None };
        SynPlan {
            within: leg.establish_timeout.unwrap_or(Span::MAX),
            repeat_after: rto.filter(|_| leg.initial_rto == InitialRto::Cached),
            second_after: leg.second_syn.then(|| second_after(rto)),
        }
    }

    /// The estimated share of lost handshakes with `address`.
    pub(crate) fn loss(&self, address: IpAddr) -> Share {
        locked(&self.handshakes).loss(clock::now(), address)
    }

    pub(crate) fn on_started(&self, kind: SynKind) {
        let counter = match kind {
            SynKind::First => &self.openings,
            SynKind::Repeat => &self.repeats,
            SynKind::Second => &self.seconds,
        };
        counter.fetch_add(1, Relaxed);
    }

    pub(crate) fn on_established(&self) {
        self.established.fetch_add(1, Relaxed);
    }

    pub(crate) fn on_answered(&self, address: IpAddr, answered: Answered) {
        let first = locked(&self.handshakes).on_answered(clock::now(), address, answered);
        if first == FirstSyn::Lost {
            self.lost.fetch_add(1, Relaxed);
        }
    }

    /// Whether the next handshake with `address` should tell the round-trip time: one a second suffices.
    pub(crate) fn wants_rtt(&self, address: IpAddr) -> bool {
        let age = locked(&self.handshakes).age(clock::now(), address);
        age.is_none_or(|age| age >= Span::from_secs(1))
    }

    pub(crate) fn on_path_mtu(&self, mtu: u32) {
        locked(&self.paths).on_path_mtu(mtu);
    }

    /// Records a look at a connection of `leg` to `address`; logs a new black hole once. Paths to many addresses may have
    /// one, so not all are logged; the status lists them.
    pub(crate) fn on_path_look(&self, leg: &str, address: IpAddr, look: PathLook) {
        let news = locked(&self.paths).on_look(clock::now(), address, look);
        match look.verdict {
            MtuVerdict::BlackHole if news && self.holes_logged.is_due() => tracing::warn!(
                %leg,
                %address,
                "large packets seem to vanish on the way; `mss = 1200` on the leg, or \
                 `sysctl -w net.ipv4.tcp_mtu_probing=1`, may help"
            ),
            MtuVerdict::Smaller(mtu) if news && self.smaller_logged.is_due() => {
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
                MtuVerdict::Smaller(mtu) => Some(mtu),
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

pub(crate) const fn verdict_name(verdict: MtuVerdict) -> &'static str {
    match verdict {
        MtuVerdict::Fine => "fine",
        MtuVerdict::Smaller(_) => "smaller",
        MtuVerdict::BlackHole => "black hole",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::log_throttle::counting::lines_of;
    use ekiden_linux::sockets::options::SocketOptions;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    fn ms(n: u64) -> Span {
        Span::from_millis(n)
    }

    /// A leg that measured 100 ms to `HERE`.
    fn history() -> LegHistory {
        let history = LegHistory::new();
        let rtt = Some(ms(100));
        let answered = Answered { by_first: true, repeated: false, took: ms(100), rtt };
        history.on_answered(HERE, answered);
        history
    }

    #[test]
    fn options_enable_their_own_plan_only() {
        let history = history();
        let kernel = Leg { initial_rto: InitialRto::Kernel, ..Leg::default() };
        let none = SynPlan { within: Span::MAX, repeat_after: None, second_after: None };
        assert_eq!(history.plan(&kernel, HERE), none);
        let cached = SynPlan { repeat_after: Some(ms(400)), ..none };
        assert_eq!(history.plan(&Leg::default(), HERE), cached);
        let apart = Leg { establish_timeout: Some(ms(5_000)), ..kernel.clone() };
        assert_eq!(history.plan(&apart, HERE), SynPlan { within: ms(5_000), ..none });
        // the delay of the second SYN uses the measured RTT
        let second = Leg { second_syn: true, ..kernel };
        assert_eq!(history.plan(&second, HERE), SynPlan { second_after: Some(ms(50)), ..none });
        let elsewhere = "198.51.100.1".parse().unwrap();
        assert!(history.wants_rtt(elsewhere) && !history.wants_rtt(HERE));
        assert_eq!(
            history.plan(&second, elsewhere),
            SynPlan { second_after: Some(ms(125)), ..none }
        );
        assert_eq!(history.plan(&Leg::default(), elsewhere), none);
    }

    #[test]
    fn fast_open_keeps_the_plan() {
        let socket = SocketOptions { fast_open: Some(true), ..SocketOptions::default() };
        let leg = Leg { socket, second_syn: true, ..Leg::default() };
        let plan = history().plan(&leg, HERE);
        assert_eq!((plan.repeat_after, plan.second_after), (Some(ms(400)), Some(ms(50))));
    }

    #[test]
    fn reports_counts_and_paths() {
        let history = history();
        for kind in [SynKind::First, SynKind::First, SynKind::Repeat, SynKind::Second] {
            history.on_started(kind);
        }
        history.on_established();
        let answered = Answered { by_first: false, repeated: false, took: ms(9), rtt: None };
        history.on_answered(HERE, answered);
        let opening = history.opening();
        let sent = (opening.openings, opening.repeated_syns, opening.second_syns);
        assert_eq!((sent, opening.established, opening.lost_syns), ((2, 1, 1), 1, 1));
        assert_eq!(
            (opening.recent_loss, LegHistory::new().opening().recent_loss),
            (Some(0.5), None)
        );
        assert!(history.loss(HERE) > Share::from_percent(5).unwrap());
        history.on_path_mtu(1500);
        let look = PathLook { verdict: MtuVerdict::BlackHole, packet: 1500, passed: None };
        history.on_path_look("sea", HERE, look);
        let verdict = MtuVerdict::Smaller(1400);
        history.on_path_look("sea", HERE, PathLook { verdict, packet: 1400, passed: Some(1400) });
        let path = history.path();
        assert_eq!((path.usual_mtu, path.smallest_mtu), (Some(1500), Some(1400)));
        assert_eq!((path.troubled.len(), path.troubled[0].state.as_str()), (1, "smaller"));
    }

    #[test]
    fn black_holes_to_many_addresses_get_one_line_in_ten_seconds() {
        let history = history();
        let holes = || {
            for last in 0..100 {
                let look = PathLook { verdict: MtuVerdict::BlackHole, packet: 1500, passed: None };
                history.on_path_look("sea", [192, 0, 2, last].into(), look);
            }
        };
        assert!((1..=2).contains(&lines_of(holes)));
    }
}
