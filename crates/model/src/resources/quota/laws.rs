//! What holds whatever happens, by random operations.

use super::*;
use crate::testing::*;

/// What a level let pass: when, how many bytes, and what its rate had brought by then (bits × 10⁹).
#[derive(Debug, Default)]
struct Level {
    rate: Option<u64>,
    burst: u64,
    brought: u128,
    passed: Vec<(u64, u128)>,
}

impl Level {
    /// The rate from here on, and what is lent at this moment, which cannot be called back.
    fn set(&mut self, rate: Option<Rate>, out: u64) {
        let bits = rate.map(Rate::as_bits_per_second);
        if bits != self.rate || self.burst == 0 {
            self.passed.clear();
            self.rate = bits;
            self.burst = Bucket::burst(rate).max(out);
        }
    }

    fn pass_time(&mut self, span: Span) {
        let rate = u128::from(self.rate.unwrap_or(0));
        self.brought += u128::from(span.as_nanos()) * rate;
    }

    fn on_used(&mut self, bytes: u64) -> Result<(), TestCaseError> {
        if self.rate.is_none() {
            return Ok(());
        }
        self.passed.push((bytes, self.brought));
        let mut sum = 0_u128;
        for (bytes, at) in self.passed.iter().rev() {
            sum += u128::from(*bytes) * 8_000_000_000;
            let most = self.brought - at + u128::from(self.burst) * 8_000_000_000;
            prop_assert!(sum <= most, "{sum} > {most}");
        }
        Ok(())
    }
}

#[derive(Debug, Clone)]
enum Do {
    Join(Limits),
    Admit(usize),
    Ask(usize, Direction, u64),
    /// In thousandths of what was given.
    Moved(usize, Direction, u64),
    Datagram(usize, Direction, u64),
    Rest(usize, Direction),
    Limit(usize, Limits),
    Relay([Option<u64>; 2]),
    Close(usize),
    Leave(usize),
    Pass(u64),
    Deadline,
}

fn some_rate() -> impl Strategy<Value = Option<Rate>> {
    prop::option::weighted(0.7, prop_oneof![1 => Just(0), 9 => 10_000_u64..50_000_000])
        .prop_map(|rate| rate.map(Rate::from_bits_per_second))
}

fn limits() -> impl Strategy<Value = Limits> {
    let quota = prop::option::weighted(0.5, (0_u64..2_000_000, 1_u64..5_000, any::<bool>()));
    let both = || [some_rate(), some_rate()];
    (both(), both(), 0_u32..5, quota).prop_map(|(rates, each, weight, quota)| Limits {
        rates,
        each,
        weight,
        connections: Some(6),
        connects: None,
        quota: quota.map(|(bytes, period, cut)| Allowance {
            bytes: Bytes::new(bytes),
            period: ms(period),
            on_exceeded: if cut {
                ExceededAction::Cut
            } else {
                ExceededAction::Throttle(Rate::from_bits_per_second(256_000))
            },
        }),
    })
}

fn direction() -> impl Strategy<Value = Direction> {
    prop_oneof![Just(Direction::Up), Just(Direction::Down)]
}

fn action() -> impl Strategy<Value = Do> {
    let relay = || prop::option::of(0_u64..40_000_000);
    prop_oneof![
        2 => limits().prop_map(Do::Join),
        4 => (0_usize..4).prop_map(Do::Admit),
        20 => (0_usize..12, direction(), 1_u64..300_000).prop_map(|(n, d, b)| Do::Ask(n, d, b)),
        16 => (0_usize..12, direction(), 0_u64..=1_000).prop_map(|(n, d, b)| Do::Moved(n, d, b)),
        4 => (0_usize..12, direction(), 1_u64..9_000).prop_map(|(n, d, b)| Do::Datagram(n, d, b)),
        2 => (0_usize..12, direction()).prop_map(|(n, d)| Do::Rest(n, d)),
        2 => (0_usize..4, limits()).prop_map(|(n, l)| Do::Limit(n, l)),
        1 => [relay(), relay()].prop_map(Do::Relay),
        1 => (0_usize..12).prop_map(Do::Close),
        1 => (0_usize..4).prop_map(Do::Leave),
        8 => (0_u64..100_000_000).prop_map(Do::Pass),
        8 => Just(Do::Deadline),
    ]
}

struct Kept {
    account: Account,
    limits: Limits,
    levels: [Level; 2],
}

struct Running {
    flow: Flow,
    of: Account,
    levels: [Level; 2],
    given: [u64; 2],
}

struct World {
    quota: Quota,
    now: Time,
    relay: [Level; 2],
    accounts: Vec<Kept>,
    flows: Vec<Running>,
}

impl World {
    fn pass(&mut self, to: Time) {
        let span = to.since(self.now);
        let of_accounts = self.accounts.iter_mut().flat_map(|kept| &mut kept.levels);
        let of_flows = self.flows.iter_mut().flat_map(|running| &mut running.levels);
        self.relay.iter_mut().chain(of_accounts).chain(of_flows).for_each(|l| l.pass_time(span));
        self.now = self.now.max(to);
    }

    /// The rates that hold, as the quota says; and that nothing waits that could be served.
    fn follow(&mut self) -> Result<(), TestCaseError> {
        while self.quota.next_cut().is_some() {}
        for kept in &mut self.accounts {
            let Some(seen) = self.quota.account(kept.account) else { continue };
            for (nth, (level, rate)) in kept.levels.iter_mut().zip(seen.rates).enumerate() {
                let out = self.quota.lent(kept.account, nth);
                level.set(rate.map(Rate::from_bits_per_second), out);
            }
            if let Some(plan) = kept.limits.quota {
                let left = seen.left.unwrap_or_default();
                prop_assert!(left <= plan.bytes);
            }
        }
        let due = self.quota.deadline();
        prop_assert!(due > self.now, "{due} at {}", self.now);
        Ok(())
    }

    fn used(&mut self, nth: usize, direction: Direction, bytes: u64) -> Result<(), TestCaseError> {
        if bytes == 0 {
            return Ok(());
        }
        let d = direction as usize;
        let running = &mut self.flows[nth];
        running.levels[d].on_used(bytes)?;
        self.relay[d].on_used(bytes)?;
        let of = running.of;
        if let Some(kept) = self.accounts.iter_mut().find(|kept| kept.account == of) {
            kept.levels[d].on_used(bytes)?;
        }
        Ok(())
    }

    fn act(&mut self, action: Do) -> Result<(), TestCaseError> {
        let now = self.now;
        match action {
            Do::Join(limits) if self.accounts.len() < 4 => {
                let account = self.quota.join(now, limits);
                let levels = <[Level; 2]>::default();
                self.accounts.push(Kept { account, limits, levels });
            }
            Do::Admit(at) => {
                if let Some(kept) = self.accounts.get(at)
                    && let Ok(flow) = self.quota.admit(now, kept.account)
                {
                    let mut levels = <[Level; 2]>::default();
                    for (level, rate) in levels.iter_mut().zip(kept.limits.each) {
                        level.set(rate, 0);
                    }
                    let of = kept.account;
                    self.flows.push(Running { flow, of, levels, given: [0; 2] });
                }
            }
            Do::Ask(at, direction, want) if at < self.flows.len() => {
                let flow = self.flows[at].flow;
                let given = self.flows[at].given[direction as usize];
                if given > 0 {
                    self.moved(at, direction, given)?;
                }
                if let QuotaAnswer::Go(bytes) =
                    self.quota.ask(now, flow, direction, Bytes::new(want))
                {
                    prop_assert!(bytes > Bytes::ZERO);
                    self.flows[at].given[direction as usize] = bytes.as_u64();
                }
            }
            Do::Moved(at, direction, part) if at < self.flows.len() => {
                let given = self.flows[at].given[direction as usize];
                self.moved(at, direction, given * part / 1_000)?;
            }
            Do::Datagram(at, direction, bytes) if at < self.flows.len() => {
                let flow = self.flows[at].flow;
                let passed = self.quota.datagram(now, flow, direction, Bytes::new(bytes));
                match passed {
                    Some(DatagramAnswer::Pass) => self.used(at, direction, bytes)?,
                    Some(DatagramAnswer::UsesUp(last)) => {
                        prop_assert!(last < Bytes::new(bytes));
                        self.used(at, direction, last.as_u64())?;
                    }
                    Some(DatagramAnswer::Drop) | None => {}
                }
            }
            Do::Rest(at, direction) if at < self.flows.len() => {
                self.quota.rest(now, self.flows[at].flow, direction);
            }
            Do::Limit(at, limits) if at < self.accounts.len() => {
                let kept = &mut self.accounts[at];
                self.quota.set_limits(now, kept.account, limits);
                kept.limits = limits;
                let of = kept.account;
                for running in self.flows.iter_mut().filter(|running| running.of == of) {
                    for (nth, (level, rate)) in
                        running.levels.iter_mut().zip(limits.each).enumerate()
                    {
                        level.set(rate, self.quota.lent_to(running.flow, nth));
                    }
                }
            }
            Do::Relay(rates) => {
                let rates = rates.map(|rate| rate.map(Rate::from_bits_per_second));
                self.quota.set_relay(now, Config { rates });
                for (nth, (level, rate)) in self.relay.iter_mut().zip(rates).enumerate() {
                    level.set(rate, self.quota.relay[nth].lent());
                }
            }
            Do::Close(at) if at < self.flows.len() => {
                self.moved(at, Direction::Up, 0)?;
                self.moved(at, Direction::Down, 0)?;
                self.quota.close(now, self.flows.swap_remove(at).flow);
            }
            Do::Leave(at) if at < self.accounts.len() => {
                let gone = self.accounts.swap_remove(at);
                self.quota.leave(now, gone.account);
                prop_assert_eq!(self.quota.admit(now, gone.account), Err(Refused::Gone));
            }
            Do::Pass(nanos) => {
                let to = now + Span::from_nanos(nanos);
                while self.quota.deadline() <= to {
                    let due = self.quota.deadline();
                    self.pass(due);
                    self.quota.on_deadline(due);
                    self.follow()?;
                }
                self.pass(to);
            }
            Do::Deadline => {
                let due = self.quota.deadline();
                if due != Time::NEVER {
                    self.pass(due);
                    self.quota.on_deadline(due);
                }
            }
            _ => {}
        }
        self.follow()
    }

    fn moved(&mut self, at: usize, direction: Direction, bytes: u64) -> Result<(), TestCaseError> {
        let flow = self.flows[at].flow;
        self.flows[at].given[direction as usize] = 0;
        self.used(at, direction, bytes)?;
        self.quota.on_moved(self.now, flow, direction, Bytes::new(bytes));
        Ok(())
    }
}

impl Quota {
    /// Bytes that an account has been lent and has not said of.
    fn lent(&self, account: Account, nth: usize) -> u64 {
        self.accounts.get(account.0).map_or(0, |member| member.lanes[nth].bucket.lent())
    }

    fn lent_to(&self, flow: Flow, nth: usize) -> u64 {
        self.flows
            .get(flow.0)
            .map_or(0, |conn| conn.sides[nth].bucket.as_ref().map_or(0, |bucket| bucket.lent()))
    }
}

proptest! {
    /// No level lets more pass than its rate and burst, in any interval, whatever happens.
    #[test]
    fn the_envelope_is_never_left(actions in prop::collection::vec(action(), 1..300)) {
        let mut world = World {
            quota: Quota::new(Config::default(), Time::ZERO),
            now: Time::ZERO,
            relay: Default::default(),
            accounts: Vec::new(),
            flows: Vec::new(),
        };
        for action in actions {
            world.act(action)?;
        }
        // and when all is over nothing is left
        while !world.flows.is_empty() {
            world.act(Do::Close(0))?;
        }
        while !world.accounts.is_empty() {
            world.act(Do::Leave(0))?;
        }
        prop_assert_eq!(world.quota.snapshot(), Snapshot::default());
        prop_assert_eq!(world.quota.deadline(), Time::NEVER);
    }

    /// Of two that want more than there is, each gets its weight's part, however many connections
    /// it has; all is used, and no connection starves.
    #[test]
    fn weights_hold_and_nobody_starves(
        weights in [1_u32..6, 1_u32..6],
        connections in [1_usize..12, 1_usize..12],
        want in prop_oneof![Just(65_536_u64), 20_000_u64..300_000],
        mbit in 4_u64..100,
        direction in direction(),
    ) {
        let rate = Some(Rate::from_bits_per_second(mbit * 1_000_000));
        let mut quota = Quota::new(Config { rates: [rate; 2] }, Time::ZERO);
        let mut flows = Vec::new();
        for (weight, n) in weights.into_iter().zip(connections) {
            let account = quota.join(Time::ZERO, Limits { weight, ..Limits::default() });
            flows.extend((0..n).map(|_| quota.admit(Time::ZERO, account).unwrap()));
        }
        let until = Time::ZERO + Span::from_secs(20);
        let got = cases::greedy(&mut quota, &flows, direction, want, Time::ZERO, until);
        let all: u64 = got.iter().sum();
        let first: u64 = got[..connections[0]].iter().sum();
        prop_assert!(all >= mbit * 125_000 * 20 - 65_536, "{all}");
        let expected = f64::from(weights[0]) / f64::from(weights[0] + weights[1]);
        let share = first as f64 / all as f64;
        prop_assert!((share - expected).abs() <= 0.03, "{share} {expected}");
        for (of, connections) in [(&got[..connections[0]], connections[0]), (&got[connections[0]..], connections[1])] {
            let fair = of.iter().sum::<u64>() / connections as u64;
            let burst = mbit * 125_000 / 5;
            prop_assert!(of.iter().all(|got| got.abs_diff(fair) <= burst + 65_536), "{of:?}");
        }
    }

    /// Somebody is served as long as somebody asks, whoever else was called and never asks again.
    #[test]
    fn lost_flows_hold_nobody_up(
        lost in prop::collection::vec((0_usize..3, 100_u64..300_000), 0..60),
        asks in 1_u64..300_000,
        kbit in 100_u64..50_000,
        level in 0_usize..2,
        direction in direction(),
    ) {
        let limit = Some(Rate::from_bits_per_second(kbit * 1_000));
        let of = |here: usize| [if level == here { limit } else { None }; 2];
        let mut quota = Quota::new(Config { rates: of(0) }, Time::ZERO);
        let limits = Limits { rates: of(1), ..Limits::default() };
        let accounts = [(); 3].map(|()| quota.join(Time::ZERO, limits));
        let living = quota.admit(Time::ZERO, accounts[0]).unwrap();
        for (account, want) in lost {
            let flow = quota.admit(Time::ZERO, accounts[account]).unwrap();
            while let QuotaAnswer::Go(bytes) = quota.ask(Time::ZERO, flow, direction, Bytes::new(want)) {
                quota.on_moved(Time::ZERO, flow, direction, bytes);
            }
        }
        let (mut now, mut got) = (Time::ZERO, 0_u64);
        let mut is_asking = true;
        while got < 3 && now <= Time::ZERO + Span::from_secs(600) {
            if is_asking && let QuotaAnswer::Go(bytes) = quota.ask(now, living, direction, Bytes::new(asks)) {
                quota.on_moved(now, living, direction, bytes);
                got += 1;
                continue;
            }
            now = quota.deadline();
            quota.on_deadline(now);
            is_asking = core::iter::from_fn(|| quota.next_ready()).any(|(flow, _)| flow == living);
        }
        prop_assert_eq!(got, 3, "{:?} at {}", quota.snapshot(), now);
    }

    /// A quota is used to the byte and never passed, with loans out at the same time.
    #[test]
    fn a_quota_is_never_passed(
        bytes in 1_u64..1_000_000,
        steps in prop::collection::vec((0_usize..5, direction(), 1_u64..200_000, 0_u64..=100), 1..200),
    ) {
        let plan = Allowance { bytes: Bytes::new(bytes), period: Span::MAX, on_exceeded: ExceededAction::Cut };
        let mut quota = Quota::new(Config::default(), Time::ZERO);
        let account = quota.join(Time::ZERO, Limits { quota: Some(plan), ..Limits::default() });
        let flows: Vec<_> = (0..4).map(|_| quota.admit(Time::ZERO, account).unwrap()).collect();
        let mut given = [[0_u64; 2]; 4];
        let mut used = 0;
        for (at, direction, want, part) in steps {
            if at == 4 {
                used += quota.charge(Time::ZERO, account, direction, Bytes::new(want)).unwrap_or_default().as_u64();
                continue;
            }
            let slot = &mut given[at][direction as usize];
            if *slot > 0 {
                let moved = *slot * part / 100;
                quota.on_moved(Time::ZERO, flows[at], direction, Bytes::new(moved));
                used += moved;
                *slot = 0;
            } else if let QuotaAnswer::Go(go) = quota.ask(Time::ZERO, flows[at], direction, Bytes::new(want)) {
                *slot = go.as_u64();
            }
            let out: u64 = given.iter().flatten().sum();
            prop_assert!(used + out <= bytes, "{used} + {out} > {bytes}");
            let seen = quota.account(account).unwrap();
            prop_assert_eq!(seen.used.iter().sum::<u64>(), used);
            prop_assert_eq!(seen.spent, used == bytes);
        }
    }
}
