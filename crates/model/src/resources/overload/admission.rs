//! Newcomers while resources are low: in, in after an idle one was closed, or in turn.

use super::Pressure;
use crate::slab::{Handle, List, Slab};
use crate::units::{Span, Time};
use alloc::collections::BTreeMap;

/// Whether idle connections make room, and how many clients may wait for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdmissionConfig {
    /// Whether idle connections are closed for new clients (the study's schemes 3 and 4); without
    /// it they wait for a release (1 and 2). Default true.
    pub evict: bool,
    /// Most clients that wait at a time; default 1,024. With 0 all are refused.
    pub most_waiting: usize,
    /// How long one waits before it is refused; default 10 s, below the patience of common clients.
    pub patience: Span,
}

impl Default for AdmissionConfig {
    fn default() -> Self {
        Self { evict: true, most_waiting: 1_024, patience: Span::from_secs(10) }
    }
}

/// The decision on a new client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdmissionVerdict {
    /// Open it.
    Proceed,
    /// Close so many idle connections first, the longest idle first; several only after a lowered
    /// limit.
    Evict(u64),
    /// All are busy: [`Admission::next`] or `on_deadline` will name it; [`Admission::leave`] if it
    /// goes.
    Wait(Ticket),
    /// Too many wait already: refuse it, with a time to try again (`Retry-After`).
    Refuse {
        /// When the one that has waited longest is in or refused: the next place.
        retry_after: Span,
    },
}

/// The ticket of a waiting client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket(Handle);

/// A snapshot of the waiting clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct AdmissionSnapshot {
    /// Waiting now.
    pub waiting: usize,
    /// Since when the first of them has waited.
    pub since: Option<Time>,
    /// Let in at once.
    pub proceeded: u64,
    /// Let in at once after idle connections were closed.
    pub evicted_for: u64,
    /// Had to wait.
    pub waited: u64,
    /// Of those, let in.
    pub served: u64,
    /// Of those, refused because their patience was over.
    pub timed_out: u64,
    /// Of those, gone by themselves.
    pub left: u64,
    /// Of those, refused for a newcomer whose source waits with fewer.
    pub displaced: u64,
    /// Refused since too many waited.
    pub refused: u64,
}

#[derive(Debug, Clone)]
struct Waiting<W> {
    who: W,
    since: Time,
}

/// Decides on new clients, in constant time each. After every event that could make room (a
/// connection closed or became idle, a level fell) call `next` until `None`: then nobody waits
/// while a connection is idle. Waiting clients precede new ones. Report levels in between
/// ([`Pressure::on_level`]), because each admitted client uses some.
#[derive(Debug, Clone)]
pub struct Admission<W> {
    config: AdmissionConfig,
    waiting: Slab<Waiting<W>, 1>,
    turns: List,
    counts: AdmissionSnapshot,
}

impl<W> Admission<W> {
    /// Nobody waits.
    pub fn new(config: AdmissionConfig) -> Self {
        let counts = AdmissionSnapshot { ..AdmissionSnapshot::default() };
        Self { config, waiting: Slab::with_capacity(0), turns: List::new(0), counts }
    }

    /// Sets other limits, also the patience of waiting clients; a smaller number refuses none of
    /// them.
    pub const fn set_config(&mut self, config: AdmissionConfig) {
        self.config = config;
    }

    /// Somebody wants a new connection, with `idle` connections in the register.
    pub fn ask(&mut self, now: Time, who: W, pressure: &Pressure, idle: usize) -> AdmissionVerdict {
        let ahead = self.waiting.len();
        // those ahead have the first idle ones
        let verdict = if ahead == 0 || idle > ahead {
            self.room(pressure, idle.saturating_sub(ahead))
        } else {
            None
        };
        if let Some(verdict) = verdict {
            match verdict {
                AdmissionVerdict::Proceed => self.counts.proceeded += 1,
                _ => self.counts.evicted_for += 1,
            }
            return verdict;
        }
        self.wait(now, who)
    }

    /// Somebody has to wait, or to be refused, whatever room there is.
    pub fn wait(&mut self, now: Time, who: W) -> AdmissionVerdict {
        if self.waiting.len() >= self.config.most_waiting {
            self.counts.refused += 1;
            let next = self.deadline();
            let soonest = if next == Time::NEVER { self.config.patience } else { next.since(now) };
            return AdmissionVerdict::Refuse { retry_after: soonest.max(SHORTEST_RETRY) };
        }
        self.counts.waited += 1;
        let handle = self.waiting.insert(Waiting { who, since: now });
        self.turns.push_back(&mut self.waiting, handle);
        AdmissionVerdict::Wait(Ticket(handle))
    }

    /// The next waiting client that may enter, with `Proceed` or `Evict`.
    pub fn next(&mut self, pressure: &Pressure, idle: usize) -> Option<(W, AdmissionVerdict)> {
        self.next_of(pressure, idle, |_| true)
    }

    /// The same, of those that `may` enter.
    pub fn next_of(
        &mut self,
        pressure: &Pressure,
        idle: usize,
        may: impl Fn(&W) -> bool,
    ) -> Option<(W, AdmissionVerdict)> {
        let verdict = self.room(pressure, idle)?;
        let mut first = self.turns.head(&self.waiting)?;
        while !self.waiting.get(first).is_some_and(|waiting| may(&waiting.who)) {
            first = self.waiting.after(0, first)?;
        }
        let who = self.take(first)?;
        self.counts.served += 1;
        Some((who, verdict))
    }

    /// The client that leaves a full queue to a newcomer: the last of the source that waits with the
    /// most, where that has two more than the newcomer's.
    pub fn displace<S: Ord>(&mut self, newcomer: &S, source: impl Fn(&W) -> S) -> Option<W> {
        if self.waiting.len() < self.config.most_waiting {
            return None;
        }
        let mut sources = BTreeMap::new();
        let mut next = self.turns.head(&self.waiting);
        while let Some(handle) = next {
            next = self.waiting.after(0, handle);
            let Some(waiting) = self.waiting.get(handle) else { continue };
            let of = sources.entry(source(&waiting.who)).or_insert((0_usize, handle));
            *of = (of.0 + 1, handle);
        }
        let own = sources.get(newcomer).map_or(0, |(n, _)| *n);
        let (most, last) = sources.into_values().max_by_key(|(n, _)| *n)?;
        let who = (most >= own + 2).then(|| self.take(last)).flatten();
        self.counts.displaced += u64::from(who.is_some());
        who
    }

    /// The client that has waited longest.
    pub fn first(&self) -> Option<&W> {
        let first = self.turns.head(&self.waiting)?;
        self.waiting.get(first).map(|waiting| &waiting.who)
    }

    /// Lets that client in, for which another gave its place.
    pub fn admit_first(&mut self) -> Option<W> {
        let who = self.turns.head(&self.waiting).and_then(|first| self.take(first));
        self.counts.served += u64::from(who.is_some());
        who
    }

    /// One who waited has gone by itself; `None` when it was named or refused before.
    pub fn leave(&mut self, ticket: Ticket) -> Option<W> {
        let who = self.take(ticket.0);
        self.counts.left += u64::from(who.is_some());
        who
    }

    /// When the first one's patience is over.
    pub fn deadline(&self) -> Time {
        let first = self.turns.head(&self.waiting).and_then(|first| self.waiting.get(first));
        first.map_or(Time::NEVER, |first| first.since + self.config.patience)
    }

    /// A client whose patience is over: refuse it. Call until `None`.
    pub fn on_deadline(&mut self, now: Time) -> Option<W> {
        if now < self.deadline() {
            return None;
        }
        let first = self.turns.head(&self.waiting)?;
        let who = self.take(first)?;
        self.counts.timed_out += 1;
        Some(who)
    }

    /// How many wait.
    pub const fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// One look.
    pub fn snapshot(&self) -> AdmissionSnapshot {
        let first = self.turns.head(&self.waiting).and_then(|first| self.waiting.get(first));
        AdmissionSnapshot {
            waiting: self.waiting(),
            since: first.map(|first| first.since),
            ..self.counts
        }
    }

    fn room(&self, pressure: &Pressure, idle: usize) -> Option<AdmissionVerdict> {
        if !pressure.low() {
            return Some(AdmissionVerdict::Proceed);
        }
        let idle = idle as u64;
        (self.config.evict && idle > 0)
            .then(|| AdmissionVerdict::Evict((1 + pressure.over_limit()).min(idle)))
    }

    fn take(&mut self, handle: Handle) -> Option<W> {
        self.waiting.get(handle)?;
        self.turns.unlink(&mut self.waiting, handle);
        self.waiting.remove(handle).map(|waiting| waiting.who)
    }
}

/// `Retry-After` counts whole seconds (RFC 9110 §10.2.3), and 0 would be an invitation to hammer.
const SHORTEST_RETRY: Span = Span::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::overload::{Resource, Watermarks};
    use crate::testing::*;
    use AdmissionVerdict::{Evict, Proceed, Refuse, Wait};

    fn full_at(max: u64, used: u64) -> Pressure {
        let mut pressure = Pressure::new(Watermarks { high: Share::ALL, low: Share::ALL });
        pressure.on_level(Resource::Connections, used, Some(max));
        pressure
    }

    #[test]
    fn lowered_limit_evicts_several() {
        let mut admission = Admission::new(AdmissionConfig::default());
        let ask = |admission: &mut Admission<u8>, used, idle| {
            admission.ask(Time::ZERO, 1, &full_at(200, used), idle)
        };
        assert_eq!(ask(&mut admission, 199, 50), Proceed);
        assert_eq!(ask(&mut admission, 200, 50), Evict(1));
        assert_eq!(ask(&mut admission, 210, 50), Evict(11));
        assert_eq!(ask(&mut admission, 210, 4), Evict(4));
    }

    #[test]
    fn without_connection_management_idle_ones_are_no_room() {
        let config = AdmissionConfig { evict: false, ..AdmissionConfig::default() };
        let mut admission = Admission::new(config);
        assert!(matches!(admission.ask(Time::ZERO, 1, &full_at(9, 9), 5), Wait(_)));
        assert_eq!(admission.next(&full_at(9, 9), 5), None);
        assert_eq!(admission.next(&full_at(9, 8), 0), Some((1, Proceed)));
    }

    #[test]
    fn newcomer_queues_behind_waiting_clients() {
        let mut admission = Admission::new(AdmissionConfig::default());
        let mut ask = |who, used, idle| admission.ask(Time::ZERO, who, &full_at(9, used), idle);
        assert!(matches!(ask(1, 9, 0), Wait(_)));
        assert!(matches!(ask(2, 8, 0), Wait(_)), "a place came free for the first one");
        assert!(matches!(ask(3, 9, 2), Wait(_)), "as many are idle as wait");
        assert_eq!(ask(4, 9, 4), Evict(1), "one is idle beyond them");
        assert_eq!(ask(5, 13, 5), Evict(2), "five would have to go, three are the others'");
        let order: Vec<u8> =
            (0..3).filter_map(|_| admission.next(&full_at(9, 9), 1)).map(|(who, _)| who).collect();
        assert_eq!(order, [1, 2, 3]);
    }

    #[test]
    fn refusal_names_the_retry_time() {
        let config = AdmissionConfig { most_waiting: 1, ..AdmissionConfig::default() };
        let mut admission = Admission::new(config);
        assert!(matches!(admission.ask(at(0), 1, &full_at(9, 9), 0), Wait(_)));
        let mut refused = |ms| admission.ask(at(ms), 2, &full_at(9, 9), 0);
        assert_eq!(refused(4_000), Refuse { retry_after: Span::from_secs(6) });
        assert_eq!(refused(9_999), Refuse { retry_after: Span::from_secs(1) });
        let config = AdmissionConfig { most_waiting: 0, ..config };
        let verdict = Admission::new(config).ask(at(0), 1, &full_at(9, 9), 0);
        assert_eq!(verdict, Refuse { retry_after: Span::from_secs(10) });
    }

    #[derive(Debug, Clone, Copy)]
    enum Step {
        Come { after_ms: u64 },
        Finish,
        Close,
        Leave { at: usize },
        Wait { after_ms: u64 },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            6 => (0_u64..400).prop_map(|after_ms| Step::Come { after_ms }),
            3 => Just(Step::Finish),
            2 => Just(Step::Close),
            1 => any::<usize>().prop_map(|at| Step::Leave { at }),
            1 => (0_u64..3_000).prop_map(|after_ms| Step::Wait { after_ms }),
        ];
        proptest::collection::vec(step, 0..300)
    }

    const MOST: u64 = 6;
    const CONFIG: AdmissionConfig =
        AdmissionConfig { evict: true, most_waiting: 5, patience: Span::from_secs(2) };

    /// A small proxy: so many connections at work, so many idle.
    struct Small {
        admission: Admission<u32>,
        active: u64,
        idle: u64,
        /// Who waits, in the order of coming, with the deadline.
        queue: VecDeque<(u32, Time, Ticket)>,
        last_in: Option<u32>,
    }

    impl Small {
        fn pressure(&self) -> Pressure {
            full_at(MOST, self.active + self.idle)
        }

        fn let_in(&mut self, who: u32, verdict: AdmissionVerdict) {
            if let Evict(n) = verdict {
                assert!(n >= 1 && n <= self.idle, "only idle ones are closed");
                self.idle -= n;
            }
            self.active += 1;
            assert!(self.active + self.idle <= MOST);
            assert!(self.last_in.is_none_or(|last| last < who), "in the order of coming");
            self.last_in = Some(who);
        }

        fn serve(&mut self) {
            while let Some((who, verdict)) =
                self.admission.next(&self.pressure(), self.idle as usize)
            {
                let (expected, ..) = self.queue.pop_front().unwrap();
                assert_eq!(who, expected);
                self.let_in(who, verdict);
            }
            // none waits while there is room or something idle
            assert!(self.queue.is_empty() || (self.idle == 0 && self.active == MOST));
        }
    }

    proptest! {
        #[test]
        fn nobody_waits_beside_an_idle_connection_nor_longer_than_told(steps in steps()) {
            let admission = Admission::new(CONFIG);
            let mut small =
                Small { admission, active: 0, idle: 0, queue: VecDeque::new(), last_in: None };
            let (mut now, mut who) = (Time::ZERO, 0);
            for step in steps {
                match step {
                    Step::Come { after_ms } | Step::Wait { after_ms } => {
                        now += Span::from_millis(after_ms);
                    }
                    Step::Finish if small.active > 0 => {
                        small.active -= 1;
                        small.idle += 1;
                    }
                    Step::Close if small.active > 0 => small.active -= 1,
                    Step::Leave { at } if !small.queue.is_empty() => {
                        let at = at % small.queue.len();
                        let (who, _, ticket) = small.queue.remove(at).unwrap();
                        prop_assert_eq!(small.admission.leave(ticket), Some(who));
                        prop_assert_eq!(small.admission.leave(ticket), None);
                    }
                    _ => {}
                }
                // the first deadline is the first one's, and nobody waits beyond it
                let first = small.queue.front().map_or(Time::NEVER, |(_, deadline, _)| *deadline);
                prop_assert_eq!(small.admission.deadline(), first);
                while let Some(refused) = small.admission.on_deadline(now) {
                    let (expected, deadline, _) = small.queue.pop_front().unwrap();
                    prop_assert_eq!(refused, expected);
                    prop_assert!(now >= deadline);
                }
                prop_assert!(small.queue.iter().all(|(_, deadline, _)| *deadline > now));
                small.serve();
                if let Step::Come { .. } = step {
                    let (idle, active) = (small.idle, small.active);
                    let pressure = small.pressure();
                    match small.admission.ask(now, who, &pressure, idle as usize) {
                        Wait(ticket) => {
                            prop_assert!(idle == 0 && active == MOST);
                            small.queue.push_back((who, now + CONFIG.patience, ticket));
                        }
                        Refuse { retry_after } => {
                            prop_assert!(idle == 0 && active == MOST);
                            prop_assert_eq!(small.queue.len(), CONFIG.most_waiting);
                            prop_assert!(retry_after >= SHORTEST_RETRY);
                            prop_assert!(retry_after <= CONFIG.patience);
                        }
                        verdict => {
                            prop_assert!(small.queue.is_empty(), "before those who wait");
                            prop_assert_eq!(verdict == Proceed, active + idle < MOST);
                            small.let_in(who, verdict);
                        }
                    }
                    who += 1;
                }
                prop_assert_eq!(small.admission.waiting(), small.queue.len());
            }
            let told = small.admission.snapshot();
            let all = told.proceeded + told.evicted_for + told.waited + told.refused;
            prop_assert_eq!(all, u64::from(who));
            let out = told.served + told.timed_out + told.left;
            prop_assert_eq!(told.waited, out + told.waiting as u64);
        }
    }
}
