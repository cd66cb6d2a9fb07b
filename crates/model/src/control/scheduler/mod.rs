//! Scheduling of a shared rate: interactive before bulk, accounts in turn by weight, the parts of an
//! account in turn, the flows of a part in turn, and a guaranteed share for bulk.
//!
//! ```text
//! join(weight), divide(account), open(part, lane)    accounts, parts and flows; keep the handles
//! on_waiting(flow, bytes)                            more of its bytes wait with the driver
//! next(room)                                         the next flow, and how many bytes; they count as sent
//! set_lane, close, leave
//! ```
//! Call it at each slot of a pacer with the room of one packet; it answers in constant time.
//!
//! **Accounts** take turns by deficit round robin (Shreedhar and Varghese 1995) in its surplus
//! form: one that sent more than its quantum pays that back later. So each gets its weight's
//! share, to within a quantum and a packet. An idle account earns neither debt nor credit.
//!
//! **Parts** of an account take turns within its turns, in the same way and with equal weights. An account
//! may be another relay, and its parts those behind it: however many it names, its share is the same.
//!
//! **Flows** of a part take turns, a packet each. One that had nothing waiting goes once before
//! each that had, with its first packets, so that an answer of one packet does not wait for redraws
//! (FQ-CoDel's new flows, RFC 8290 §3.1; `sch_fq`'s `initial_quantum`). A browser opens thirty connections at
//! once: their greetings go one after another, and the first is answered a round trip after it began.
//!
//! **Lanes.** Interactive flows go first, also across accounts. Waiting bulk earns its minimum
//! share of all that leaves, and is paid once that is a packet's worth.

#[cfg(test)]
mod laws;
mod turns;

use crate::slab::{Handle, List, Slab};
use crate::units::{Bytes, Share};
use turns::{AccountState, Credit, PartState};

/// Which of the two goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub enum Lane {
    /// First.
    Interactive,
    /// What is left, and its floor.
    Bulk,
}

/// Bytes that go before others': a ClientHello with a post-quantum key share (2 kB), or a request with its cookies.
const FIRST: u64 = 4_096;

const WHOLE: u64 = Share::ALL.as_parts_per_billion();

/// The configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Bytes of a turn at weight 1; at least the largest room, or a turn takes several rounds.
    pub quantum: Bytes,
    /// Bulk's share of what leaves while some of it waits; 10 % by default.
    pub floor: Share,
}

impl Default for Config {
    fn default() -> Self {
        let floor = Share::from_percent(10).unwrap_or(Share::NONE);
        Self { quantum: Bytes::new(1_500), floor }
    }
}

/// An account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Account(Handle);

/// A part of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Part(Handle);

/// A flow of a part of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Flow(Handle);

/// Whose bytes go now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// Whose.
    pub flow: Flow,
    /// How many, at least 1.
    pub bytes: Bytes,
    /// In which lane it stood.
    pub lane: Lane,
}

/// Bytes waiting and sent; interactive, bulk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Snapshot {
    /// Waiting now.
    pub waiting: [u64; 2],
    /// Gone.
    pub sent: [u64; 2],
    /// Accounts there are.
    pub accounts: usize,
    /// Parts of all accounts.
    pub parts: usize,
    /// Flows there are.
    pub flows: usize,
}

#[derive(Debug, Clone)]
struct LaneQueue {
    part: Handle,
    lane: Lane,
    waiting: u64,
    /// Which of the two lists it stands in, and what went since it came into the first.
    fresh: bool,
    went: u64,
    /// At which of the others' turns it last went before them.
    preferred: Option<u64>,
}

/// Flows of accounts and their parts, and the turn.
#[derive(Debug, Clone)]
pub struct Scheduler {
    config: Config,
    accounts: Slab<AccountState, 2>,
    parts: Slab<PartState, 2>,
    flows: Slab<LaneQueue, 1>,
    /// By lane: accounts with something waiting there, in turn.
    turns: [List; 2],
    /// Bulk's credit, in bytes × 10⁹.
    owed: u128,
    waiting: [u64; 2],
    sent: [u64; 2],
}

impl Scheduler {
    /// Nobody yet.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            accounts: Slab::with_capacity(0),
            parts: Slab::with_capacity(0),
            flows: Slab::with_capacity(0),
            turns: [List::new(0), List::new(1)],
            owed: 0,
            waiting: [0; 2],
            sent: [0; 2],
        }
    }

    /// An account comes, without parts; it goes with its last part. A weight of 0 counts as 1.
    pub fn join(&mut self, weight: u32) -> Account {
        Account(self.accounts.insert(AccountState::new(weight.max(1))))
    }

    /// Another part of an account; `None` when there is no such account.
    pub fn divide(&mut self, account: Account) -> Option<Part> {
        self.accounts.get_mut(account.0)?.parts += 1;
        Some(Part(self.parts.insert(PartState::new(account.0))))
    }

    /// A part goes, and its account with the last one. `false` when it still has flows, which then stay as they are.
    pub fn leave(&mut self, part: Part) -> bool {
        let empty = self.parts.get(part.0).is_some_and(|state| state.flows == 0);
        let Some(gone) = empty.then(|| self.parts.remove(part.0)).flatten() else { return false };
        if let Some(account) = self.accounts.get_mut(gone.account) {
            account.parts -= 1;
            if account.parts == 0 {
                self.accounts.remove(gone.account);
            }
        }
        true
    }

    /// A flow with nothing waiting; `None` when there is no such part.
    pub fn open(&mut self, part: Part, lane: Lane) -> Option<Flow> {
        self.parts.get_mut(part.0)?.flows += 1;
        Some(Flow(self.flows.insert(LaneQueue {
            part: part.0,
            lane,
            waiting: 0,
            fresh: false,
            went: 0,
            preferred: None,
        })))
    }

    /// Removes a flow with its waiting bytes.
    pub fn close(&mut self, flow: Flow) {
        self.take_out(flow.0);
        if let Some(queue) = self.flows.remove(flow.0)
            && let Some(part) = self.parts.get_mut(queue.part)
        {
            part.flows -= 1;
        }
    }

    /// So many bytes more of a flow wait.
    pub fn on_waiting(&mut self, flow: Flow, bytes: Bytes) {
        let Some(queue) = self.flows.get_mut(flow.0) else { return };
        let before = queue.waiting;
        queue.waiting = before.saturating_add(bytes.as_u64());
        let (more, lane) = (queue.waiting - before, queue.lane as usize);
        self.waiting[lane] = self.waiting[lane].saturating_add(more);
        if before == 0 && more > 0 {
            self.put_in(flow.0);
        }
    }

    /// A flow turned out to be of the other kind: all that waits of it goes over, to the end of the turn.
    pub fn set_lane(&mut self, flow: Flow, lane: Lane) {
        let Some(queue) = self.flows.get(flow.0).filter(|queue| queue.lane != lane) else { return };
        let waiting = queue.waiting;
        self.take_out(flow.0);
        if let Some(queue) = self.flows.get_mut(flow.0) {
            queue.lane = lane;
            queue.waiting = 0;
        }
        self.on_waiting(flow, Bytes::new(waiting));
    }

    /// Whose bytes to send now, at most `room` of them; `None` when nothing waits, or there is no room.
    pub fn next(&mut self, room: Bytes) -> Option<Turn> {
        let room = room.as_u64();
        let [interactive, bulk] = self.turns.map(|turns| !turns.is_empty());
        // a share of what leaves, once it is worth a packet
        let paid = bulk && self.owed >= u128::from(room) * u128::from(WHOLE);
        let lane = match (interactive, bulk) {
            _ if room == 0 => return None,
            (false, false) => return None,
            (true, _) if !paid => Lane::Interactive,
            _ => Lane::Bulk,
        };
        let turn = self.serve(lane, room)?;
        self.account(turn, interactive);
        Some(turn)
    }

    /// Bytes of a flow that wait.
    pub fn waiting(&self, flow: Flow) -> Bytes {
        Bytes::new(self.flows.get(flow.0).map_or(0, |queue| queue.waiting))
    }

    /// Bytes gone, of both lanes.
    pub const fn sent(&self) -> u64 {
        self.sent[0].saturating_add(self.sent[1])
    }

    /// A snapshot for the status.
    pub const fn snapshot(&self) -> Snapshot {
        Snapshot {
            waiting: self.waiting,
            sent: self.sent,
            accounts: self.accounts.len(),
            parts: self.parts.len(),
            flows: self.flows.len(),
        }
    }

    /// The account whose turn it is, the part whose turn it is there, and the flow whose turn it is there.
    fn serve(&mut self, lane: Lane, room: u64) -> Option<Turn> {
        let nth = lane as usize;
        let account = self.account_in_turn(nth)?;
        let part = self.part_in_turn(account, nth)?;
        let waiting = &mut self.parts.get_mut(part)?.lanes[nth];
        let fresh = !waiting.fresh.is_empty();
        let handle = waiting.list(fresh).head(&self.flows)?;
        let queue = self.flows.get_mut(handle)?;
        let bytes = queue.waiting.min(room);
        queue.waiting -= bytes;
        queue.went = queue.went.saturating_add(bytes);
        let empty = queue.waiting == 0;
        let goes_on = fresh && !empty && queue.went < FIRST;
        queue.fresh = goes_on;
        waiting.turns += u64::from(!fresh);
        if !goes_on {
            waiting.list(fresh).unlink(&mut self.flows, handle);
        }
        if !empty && !goes_on {
            waiting.others.push_back(&mut self.flows, handle);
        }
        let part_over = waiting.credit.spend(bytes);
        let parts = &mut self.accounts.get_mut(account)?.lanes[nth];
        let account_over = parts.credit.spend(bytes);
        if waiting.is_empty() {
            self.rest(account, part, nth);
        } else if part_over {
            parts.turns.rotate(&mut self.parts);
        }
        // one that rests is out of turn already
        if account_over && self.turns[nth].head(&self.accounts) == Some(account) {
            self.turns[nth].rotate(&mut self.accounts);
        }
        self.waiting[nth] -= bytes;
        Some(Turn { flow: Flow(handle), bytes: Bytes::new(bytes), lane })
    }

    fn quantum(&self) -> i64 {
        i64::try_from(self.config.quantum.as_u64().max(1)).unwrap_or(i64::MAX)
    }

    fn account_in_turn(&mut self, nth: usize) -> Option<Handle> {
        let quantum = self.quantum();
        loop {
            let handle = self.turns[nth].head(&self.accounts)?;
            let account = self.accounts.get_mut(handle)?;
            let quantum = quantum.saturating_mul(i64::from(account.weight));
            if account.lanes[nth].credit.begins(quantum) {
                return Some(handle);
            }
            self.turns[nth].rotate(&mut self.accounts);
        }
    }

    fn part_in_turn(&mut self, account: Handle, nth: usize) -> Option<Handle> {
        let quantum = self.quantum();
        let turns = &mut self.accounts.get_mut(account)?.lanes[nth].turns;
        loop {
            let handle = turns.head(&self.parts)?;
            if self.parts.get_mut(handle)?.lanes[nth].credit.begins(quantum) {
                return Some(handle);
            }
            turns.rotate(&mut self.parts);
        }
    }

    /// Nothing of a part waits any more, nor perhaps of its account: neither debt nor credit stays.
    fn rest(&mut self, account: Handle, part: Handle, nth: usize) {
        let Some(state) = self.parts.get_mut(part) else { return };
        state.lanes[nth].credit = Credit::NONE;
        let Some(parts) = self.accounts.get_mut(account).map(|state| &mut state.lanes[nth]) else {
            return;
        };
        parts.turns.unlink(&mut self.parts, part);
        if parts.turns.is_empty() {
            parts.credit = Credit::NONE;
            self.turns[nth].unlink(&mut self.accounts, account);
        }
    }

    fn account(&mut self, turn: Turn, interactive: bool) {
        let bytes = u128::from(turn.bytes.as_u64());
        self.sent[turn.lane as usize] =
            self.sent[turn.lane as usize].saturating_add(turn.bytes.as_u64());
        let floor = u128::from(self.config.floor.as_parts_per_billion());
        if self.waiting[Lane::Bulk as usize] == 0 {
            self.owed = 0;
        } else {
            // of all that leaves while both wait
            self.owed += if interactive { bytes * floor } else { 0 };
        }
        if turn.lane == Lane::Bulk {
            self.owed = self.owed.saturating_sub(bytes * u128::from(WHOLE));
        }
    }

    /// Into its part's turns, the part into its account's, and the account into the lane's.
    fn put_in(&mut self, flow: Handle) {
        let Some(queue) = self.flows.get_mut(flow) else { return };
        let (part, nth) = (queue.part, queue.lane as usize);
        let Some(state) = self.parts.get_mut(part) else { return };
        let (account, waiting) = (state.account, &mut state.lanes[nth]);
        let part_rested = waiting.is_empty();
        let fresh = queue.preferred != Some(waiting.turns);
        (queue.fresh, queue.went) = (fresh, 0);
        queue.preferred = Some(waiting.turns);
        waiting.list(fresh).push_back(&mut self.flows, flow);
        let Some(state) = self.accounts.get_mut(account).filter(|_| part_rested) else { return };
        let turns = &mut state.lanes[nth].turns;
        let account_rested = turns.is_empty();
        turns.push_back(&mut self.parts, part);
        if account_rested {
            self.turns[nth].push_back(&mut self.accounts, account);
        }
    }

    /// Out of all of them, with what waits.
    fn take_out(&mut self, flow: Handle) {
        let Some(queue) = self.flows.get(flow).filter(|queue| queue.waiting > 0) else { return };
        let (part, nth, fresh) = (queue.part, queue.lane as usize, queue.fresh);
        self.waiting[nth] -= queue.waiting;
        let Some(state) = self.parts.get_mut(part) else { return };
        let (account, waiting) = (state.account, &mut state.lanes[nth]);
        waiting.list(fresh).unlink(&mut self.flows, flow);
        if waiting.is_empty() {
            self.rest(account, part, nth);
        }
    }
}
