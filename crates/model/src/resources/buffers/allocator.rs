//! The buffers of all connections of a relay, out of one pool.

use super::allocation::in_units;
use super::connection::{Buffer, Connection};
use super::demand::{DemandOrigin, Side};
use super::grant::{Change, Grant, Step, settle};
use super::snapshot::{Row, Snapshot};
use super::{Claim, Config, ConnectionFacts, Enough, NewConnection, Policy, UNIT, distribute};
use crate::units::{Bytes, Rate, Span, Time};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Delay of an allocation for new connections, so that many that find the pool used up cause one.
const HURRY: Span = Span::from_millis(10);

/// Divides a pool among connections; see [`super`] for the order of calls. Calls for a connection
/// that is not open are ignored. Connections are kept by number, so nothing depends on a hash.
#[derive(Debug, Clone)]
pub struct Allocator {
    pub(super) config: Config,
    /// Boxed: a map of numbers that only grow keeps half of its room empty.
    pub(super) connections: BTreeMap<u64, Box<Connection>>,
    /// Those for which a tick may decide something else than the last did: of settled ones only those that something was
    /// told of since.
    pub(super) awake: BTreeSet<u64>,
    /// The next tick is to decide for all of them.
    pub(super) all_due: bool,
    /// The first size at the last tick.
    pub(super) initial: u64,
    /// Part of the demand: of those closed since the last tick.
    pub(super) gone: u64,
    /// Buffers of all of them.
    buffers: u64,
    /// The explicit ones' sum.
    pub(super) granted: u64,
    pub(super) demand: u64,
    pub(super) short: bool,
    /// The system's largest send buffer and receive buffer.
    most: [u64; 2],
    period_end: Time,
    next: Time,
}

pub(super) struct Asked {
    pub(super) id: u64,
    pub(super) side: Side,
    pub(super) claim: Claim,
    why: DemandOrigin,
    pub(super) old: Option<u64>,
    mss: u64,
}

impl Asked {
    pub(super) fn note(&self, buffer: &mut Buffer) {
        buffer.demand = self.claim.demand;
        buffer.wanted = self.claim.wanted();
        buffer.why = self.why;
    }
}

impl Allocator {
    /// No connections yet. `config` is to be [checked](Config::check) before.
    pub fn new(config: Config, now: Time) -> Self {
        let next = now + config.period;
        Self {
            config,
            connections: BTreeMap::new(),
            awake: BTreeSet::new(),
            all_due: true,
            initial: 0,
            gone: 0,
            buffers: 0,
            granted: 0,
            demand: 0,
            short: false,
            most: [u64::MAX; 2],
            period_end: next,
            next,
        }
    }

    /// The settings in force.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Other settings, which apply at a tick that is due now.
    pub fn set_config(&mut self, now: Time, config: Config) {
        self.config = config;
        self.all_due = true;
        self.next = now;
    }

    /// The system's limit for buffers of this side: from the next tick on no more is requested.
    pub fn on_limit(&mut self, side: Side, most: Bytes) {
        let most = most.as_u64().max(UNIT);
        self.all_due |= core::mem::replace(&mut self.most[side as usize], most) != most;
    }

    /// Adds a connection, by a number unique while open; returns its buffers until the next tick.
    pub fn on_open(&mut self, now: Time, id: u64, open: NewConnection) -> Vec<Change> {
        self.on_close(id);
        let connection = Box::new(Connection::new(now, open));
        self.buffers += connection.buffers().count() as u64;
        self.connections.insert(id, connection);
        self.awake.insert(id);
        self.start(now, id, true)
    }

    /// It is closed.
    pub fn on_close(&mut self, id: u64) {
        self.on_unpair(id);
        let Some(connection) = self.connections.remove(&id) else { return };
        self.awake.remove(&id);
        for (_, buffer) in connection.buffers() {
            self.buffers -= 1;
            self.gone = self.gone.saturating_add(buffer.wanted);
            self.granted -= buffer.grant.unwrap_or(0);
        }
    }

    /// Pairs two connections: one sends what the other receives, until [`Allocator::on_unpair`],
    /// another pairing, or one is idle or closed.
    pub fn on_pair(&mut self, a: u64, b: u64) {
        self.on_unpair(a);
        self.on_unpair(b);
        if a == b || !self.connections.contains_key(&a) || !self.connections.contains_key(&b) {
            return;
        }
        for (one, other) in [(a, b), (b, a)] {
            if let Some(connection) = self.connections.get_mut(&one) {
                connection.partner = Some(other);
                connection.from_cache = false;
                self.awake.insert(one);
            }
        }
    }

    /// The two belong together no longer.
    pub fn on_unpair(&mut self, id: u64) {
        let partner = self.connections.get_mut(&id).and_then(|one| one.partner.take());
        let Some(partner) = partner else { return };
        if let Some(other) = self.connections.get_mut(&partner) {
            other.partner = None;
        }
        self.awake.extend([id, partner]);
    }

    /// It sends from the cache: only its own path limits it.
    pub fn on_hit(&mut self, id: u64) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.from_cache = true;
            self.awake.insert(id);
        }
    }

    /// It sends from elsewhere again: from its partner, if it has one.
    pub fn on_miss(&mut self, id: u64) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.from_cache = false;
            self.awake.insert(id);
        }
    }

    /// A look at it. What follows from it is decided at the tick.
    pub fn on_facts(&mut self, now: Time, id: u64, facts: &ConnectionFacts) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.on_facts(now, facts);
            if connection.is_settled() {
                self.awake.insert(id);
            }
        }
    }

    /// It has moved nothing between two looks, has no explicit size, and is looked at no more until
    /// [`Allocator::on_awake`]: looks would find the same. What is known of it stays, and costs the ticks nothing.
    pub fn on_rest(&mut self, id: u64) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.at_rest = true;
        }
    }

    /// A look at one at rest follows. What it has moved, it has moved from `since` on.
    pub fn on_awake(&mut self, since: Time, id: u64) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.on_awake(since);
            self.awake.insert(id);
        }
    }

    /// Its congestion control is known now, and so the part of a window that it fills ([`NewConnection::gamma`]).
    pub fn on_gamma(&mut self, id: u64, gamma: f64) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.open.gamma = gamma;
        }
    }

    /// The driver's own λ (algorithms/buffers A.5 (iii)); `None` to estimate it again.
    pub fn on_known(&mut self, id: u64, side: Side, rate: Option<Rate>) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.know(side, rate);
            self.awake.insert(id);
        }
    }

    /// Nobody uses it: its demand stays as it was, until [`Allocator::on_shrink`].
    pub fn on_idle(&mut self, id: u64) {
        self.on_unpair(id);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.idle = true;
        self.awake.insert(id);
        for side in Side::ALL {
            if let Some(buffer) = connection.buffer_mut(side) {
                buffer.halved = 0;
            }
        }
    }

    /// Halves an idle connection's buffers from the next tick on, down to [`Config::idle_least`];
    /// returns whether another halving is possible.
    pub fn on_shrink(&mut self, id: u64) -> bool {
        let least = self.config.idle_least.as_u64();
        let idle = self.connections.get_mut(&id).filter(|one| one.idle);
        let Some(connection) = idle else { return false };
        let mut again = false;
        for side in Side::ALL {
            let Some(buffer) = connection.buffer_mut(side) else { continue };
            let has = buffer.demand.min(buffer.grant.unwrap_or(u64::MAX));
            if has > least {
                buffer.demand = (has / 2).max(least);
                buffer.halved += 1;
            }
            again |= buffer.demand > least;
        }
        self.awake.insert(id);
        again
    }

    /// The connection is used again. Returns buffers raised to the first size now; the rest
    /// follows.
    pub fn on_active(&mut self, now: Time, id: u64) -> Vec<Change> {
        let idle = self.connections.get_mut(&id).filter(|one| one.idle);
        let Some(connection) = idle else { return Vec::new() };
        connection.on_active(now);
        self.awake.insert(id);
        self.start(now, id, false)
    }

    /// When [`Allocator::on_deadline`] is to be called.
    pub const fn deadline(&self) -> Time {
        self.next
    }

    /// The tick: new demands, and the changes to apply in this order: shrinking first, so that the
    /// pool holds at every step.
    pub fn on_deadline(&mut self, now: Time) -> Vec<Change> {
        if now < self.next {
            return Vec::new();
        }
        let all = self.decides_for_all();
        let period = now >= self.period_end;
        if period {
            self.period_end = now + self.config.period;
            self.end_period(all);
        }
        self.next = self.period_end;
        let changes = if all { None } else { self.decide_awake() };
        let changes = changes.unwrap_or_else(|| self.decide());
        (self.all_due, self.initial, self.gone) = (false, self.initial(), 0);
        // within a period, what was told of them is not taken in yet
        if period {
            let connections = &self.connections;
            self.awake.retain(|id| {
                connections.get(id).is_some_and(|connection| !connection.is_settled())
            });
        }
        changes
    }

    /// Decides for all connections.
    fn decide(&mut self) -> Vec<Change> {
        let asked: Vec<Asked> =
            self.connections.iter().flat_map(|(id, one)| self.asked(*id, one)).collect();
        let wanted = asked.iter().fold(0_u64, |sum, one| sum.saturating_add(one.claim.wanted()));
        self.demand = wanted;
        let pool = self.config.pool.as_u64();
        // a tenth less before it counts as enough again, so that it does not come and go
        self.short = wanted > if self.short { pool - pool / 10 } else { pool };
        let sizes = match (self.config.policy, self.config.enough) {
            (Policy::Fixed(size), _) => Some(asked.iter().map(|_| size.as_u64()).collect()),
            (Policy::Shared, Enough::Automatic) if !self.short => None,
            (Policy::Shared, _) => Some(self.divide(&asked, pool)),
        };
        self.apply(&asked, sizes)
    }

    /// One look, with every buffer.
    pub fn snapshot(&self) -> Snapshot {
        let pool = self.config.pool.as_u64();
        let buffers: Vec<Row> = self.connections.keys().flat_map(|id| self.explain(*id)).collect();
        let queued = buffers.iter().fold(Bytes::ZERO, |sum, row| sum + row.queued);
        Snapshot {
            budget: self.config.pool,
            granted: Bytes::new(self.granted),
            demand: Bytes::new(self.demand),
            shortage: Bytes::new(self.demand.saturating_sub(pool)),
            queued,
            overdrawn: Bytes::new(queued.as_u64().saturating_sub(pool)),
            short: self.short,
            buffers,
        }
    }

    /// The buffers of one connection, to be printed.
    pub fn explain(&self, id: u64) -> Vec<Row> {
        let row = |(side, buffer): (Side, &Buffer)| Row {
            id,
            side,
            demand: Bytes::new(buffer.demand),
            grant: buffer.grant.map(Bytes::new),
            queued: Bytes::new(buffer.queued),
            why: buffer.why,
        };
        let connection = self.connections.get(&id);
        connection.map(|one| one.buffers().map(row).collect()).unwrap_or_default()
    }

    /// The size of a new connection's buffers.
    pub(super) fn initial(&self) -> u64 {
        let equal = self.config.pool.as_u64() / self.buffers.max(1);
        in_units(self.config.initial.as_u64().min(equal))
    }

    /// The first size of one that is new, or of one that was idle and has less.
    fn start(&mut self, now: Time, id: u64, new: bool) -> Vec<Change> {
        let initial = self.initial();
        let automatic = self.config.enough == Enough::Automatic && !self.short;
        let free = self.config.pool.as_u64().saturating_sub(self.granted);
        let Some(connection) = self.connections.get_mut(&id) else { return Vec::new() };
        let (mut changes, mut free, mut hurry) = (Vec::new(), free, false);
        for side in Side::ALL {
            let Some(buffer) = connection.buffer_mut(side) else { continue };
            buffer.demand = buffer.demand.max(initial);
            buffer.halved = 0;
            let old = if new { Some(0) } else { buffer.grant };
            let size = match (self.config.policy, old) {
                (Policy::Fixed(size), _) => Some(size.as_u64()),
                (Policy::Shared, _) if new && automatic => None,
                // the kernel tunes it until the tick
                (Policy::Shared, None) => None,
                (Policy::Shared, Some(old)) => {
                    let more = initial.saturating_sub(old).min(free);
                    let size = in_units(old + more).max(old);
                    free -= size - old;
                    hurry |= size < initial;
                    Some(size)
                }
            };
            if new || size != buffer.grant {
                changes.push(Change { id, side, grant: as_grant(size) });
            }
            self.granted += size.unwrap_or(0);
            self.granted -= buffer.grant.unwrap_or(0);
            buffer.grant = size;
        }
        if hurry {
            self.next = self.next.min(now + HURRY);
        }
        changes
    }

    pub(super) fn asked(&self, id: u64, connection: &Connection) -> Vec<Asked> {
        let initial = self.initial();
        let ask = |(side, buffer): (Side, &Buffer)| {
            let ceiling = self.config.ceiling.as_u64().min(self.most[side as usize]);
            let segment = connection.mss();
            let floor = segment.saturating_mul(self.config.floor_segments).min(ceiling);
            let (demand, floor, why) = if let Policy::Fixed(size) = self.config.policy {
                (size.as_u64(), 0, DemandOrigin::Fixed)
            } else if connection.idle {
                let why = DemandOrigin::Idle { halved: buffer.halved };
                (buffer.demand, floor.min(buffer.demand), why)
            } else {
                let other = connection.partner.and_then(|id| self.connections.get(&id));
                let need =
                    connection.need(side, other.map(|one| &**one), ceiling, self.config.by_use);
                let (demand, why) = need.unwrap_or((initial, DemandOrigin::Initial));
                (demand.max(floor).min(ceiling), floor, why)
            };
            let claim = Claim { demand, floor, queued: buffer.queued };
            Asked { id, side, claim, why, old: buffer.grant, mss: segment }
        };
        connection.buffers().map(ask).collect()
    }

    fn divide(&self, asked: &[Asked], pool: u64) -> Vec<u64> {
        let claims: Vec<Claim> = asked.iter().map(|one| one.claim).collect();
        let sizes = distribute(&claims, pool, self.config.excess);
        let step = |(one, new): (&Asked, &u64)| {
            let Asked { old, mss, claim, .. } = one;
            Step { old: *old, new: *new, least: claim.least(), mss: *mss }
        };
        let steps: Vec<Step> = asked.iter().zip(&sizes).map(step).collect();
        settle(&steps, pool)
    }

    /// Records the decision, and returns the differences; `None` for the kernel's tuning.
    fn apply(&mut self, asked: &[Asked], sizes: Option<Vec<u64>>) -> Vec<Change> {
        let mut changes = Vec::new();
        self.granted = 0;
        // asked is in the order of the connections, and of each one's buffers
        let buffers = self.connections.values_mut().flat_map(|one| one.buffers_mut());
        for (at, (buffer, one)) in buffers.zip(asked).enumerate() {
            let size = sizes.as_ref().and_then(|sizes| sizes.get(at).copied());
            one.note(buffer);
            if one.old != size {
                let order = match (one.old, size) {
                    (Some(old), Some(new)) if new < old => 0,
                    (None, Some(_)) => 1,
                    (Some(_), Some(_)) => 2,
                    (_, None) => 3,
                };
                let change = Change { id: one.id, side: one.side, grant: as_grant(size) };
                changes.push((order, change));
            }
            buffer.grant = size;
            self.granted += size.unwrap_or(0);
        }
        changes.sort_by_key(|(order, _)| *order);
        changes.into_iter().map(|(_, change)| change).collect()
    }
}

fn as_grant(size: Option<u64>) -> Grant {
    size.map_or(Grant::Automatic, |size| Grant::Bytes(Bytes::new(size)))
}
