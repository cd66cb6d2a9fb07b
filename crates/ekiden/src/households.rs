//! Households for the doors: what `ekiden-accounts` keeps, as `ekiden-proxy` asks for it.

use crate::config::pattern;
use ekiden_accounts::{Account, AccountId, Directory, Keeper, Part, Verdict, WhenSpent};
use ekiden_model::units::Span;
use ekiden_proxy::accounts::{self, LogIn, Looking, Member};
use ekiden_proxy::households;
use ekiden_proxy::settings::{Allowance, Limits, Pattern, Then};
use ekiden_proxy::status::{AccountsStatus, FleetStatus, LogInsStatus};
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// The households of a keeper.
#[derive(Debug)]
pub(crate) struct Households {
    keeper: Arc<Keeper>,
    /// Lists of destinations are read once for each version of the directory.
    members: Mutex<(i64, BTreeMap<AccountId, Arc<Member>>)>,
    /// The relay's limits, and what was said to them.
    limits: OnceLock<Arc<households::Households>>,
    given: Mutex<BTreeMap<AccountId, Given>>,
    /// By name, what of the relay's count is in the journal: up and down. Locked within `given`.
    counted: Mutex<BTreeMap<Arc<str>, [u64; 2]>>,
    log_ins: Mutex<LogInsStatus>,
}

/// What a household was given.
#[derive(Debug)]
struct Given {
    name: String,
    limits: Limits,
    /// When the period of its quota began, what this relay may carry in it, and whether it may be more, as they were
    /// told last.
    books: Option<(Timestamp, u64, bool)>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What an account's household may. Its period is the calendar's, so it ends when that is told.
fn limits_of(account: &Account) -> Limits {
    let attributes = &account.attributes;
    let then = match attributes.when_spent {
        WhenSpent::Slower => Then::Slower(attributes.slower),
        WhenSpent::Cut => Then::Cut,
    };
    Limits {
        rates: [attributes.up, attributes.down],
        weight: attributes.weight,
        connections: attributes.connections,
        connects: attributes.connects_per_second,
        quota: attributes.quota_bytes().map(|bytes| Allowance { bytes, period: Span::MAX, then }),
        ..Limits::default()
    }
}

impl Households {
    pub(crate) fn new(keeper: Arc<Keeper>) -> Self {
        let members = Mutex::new((-1, BTreeMap::new()));
        Self {
            keeper,
            members,
            limits: OnceLock::new(),
            given: Mutex::default(),
            counted: Mutex::default(),
            log_ins: Mutex::default(),
        }
    }

    /// Where limits are kept, once the relay runs.
    pub(crate) fn limit(&self, limits: Arc<households::Households>) {
        let _once = self.limits.set(limits);
        self.give();
    }

    /// Writes into the journal what the relay counted since the last time: the count that also spends quotas. To be
    /// called several times a second, and at the end.
    pub(crate) fn count(&self) {
        if let Some(limits) = self.limits.get() {
            self.count_for(limits, &locked(&self.given));
        }
    }

    /// The relay's counters, all of them in the journal: bytes in both directions by name.
    fn count_for(
        &self,
        limits: &households::Households,
        given: &BTreeMap<AccountId, Given>,
    ) -> BTreeMap<Arc<str>, u64> {
        let ids: BTreeMap<&str, AccountId> =
            given.iter().map(|(id, one)| (one.name.as_str(), *id)).collect();
        let mut counted = locked(&self.counted);
        let mut sums = BTreeMap::new();
        for households::Usage { household, down, up } in limits.usage() {
            sums.insert(Arc::clone(&household), down.saturating_add(up));
            // one that was not given anything yet is written down when it is
            let Some(id) = ids.get(&*household) else { continue };
            let before = counted.entry(household).or_default();
            let [more_up, more_down] = [up - before[0], down - before[1]];
            if (more_up, more_down) != (0, 0) {
                self.keeper.used(*id, more_down, more_up);
                *before = [up, down];
            }
        }
        sums
    }

    /// Gives households what their accounts may: after each change, and each second, since periods end and a relay's
    /// part of a quota grows. It counts, too.
    pub(crate) fn give(&self) {
        let Some(limits) = self.limits.get() else { return };
        let directory = self.keeper.directory();
        let mut given = locked(&self.given);
        // a name may be another account's from now on
        self.count_for(limits, &given);
        given.retain(|id, one| {
            let stays = directory.get(*id).is_some_and(|account| account.name == one.name);
            if !stays {
                limits.remove(&one.name);
            }
            stays
        });
        for account in directory.accounts() {
            let wanted = limits_of(account);
            let new = || Given { name: account.name.clone(), limits: wanted, books: None };
            let is_new = !given.contains_key(&account.id);
            let one = given.entry(account.id).or_insert_with(new);
            if is_new || one.limits != wanted {
                limits.set(&account.name, wanted);
                (one.limits, one.books) = (wanted, None);
            }
        }
        let counted = self.count_for(limits, &given);
        for (id, one) in given.iter_mut().filter(|(_, one)| one.limits.quota.is_some()) {
            let Some(account) = directory.get(*id) else { continue };
            self.keep_books(limits, account, one, *counted.get(one.name.as_str()).unwrap_or(&0));
        }
    }

    /// Says up to where in the relay's count a quota goes, where that has changed. `counted` is that count now, all of
    /// it in the journal: so both end at the same byte.
    fn keep_books(
        &self,
        limits: &households::Households,
        account: &Account,
        one: &mut Given,
        counted: u64,
    ) {
        let Ok(calendar) = account.attributes.calendar() else { return };
        // before the part is asked for: should a period end in between, its successor is told at the next look, where
        // the old one's use would be held against all of the new one
        let now = Timestamp::now();
        let Some(part) = self.keeper.part(account.id) else { return };
        let Part { may, used, more } = part;
        let begun = calendar.begun(now);
        if one.books == Some((begun, may, more)) {
            return;
        }
        let ends = calendar.next(now).map_or(Span::MAX, |next| {
            let nanos = next.duration_since(now).as_nanos();
            Span::from_nanos(u64::try_from(nanos).unwrap_or(0))
        });
        let until = counted.saturating_add(may.saturating_sub(used));
        limits.set_until(&one.name, until, ends, more);
        one.books = Some((begun, may, more));
    }

    /// The household for the doors, if it may come in now.
    fn admitted(&self, directory: &Directory, account: &Account) -> Result<Arc<Member>, String> {
        may_come_in(account)?;
        let mut members = locked(&self.members);
        if members.0 != directory.version() {
            *members = (directory.version(), BTreeMap::new());
            self.give();
        }
        let member = members.1.entry(account.id).or_insert_with(|| Arc::new(member(account)));
        Ok(Arc::clone(member))
    }
}

fn may_come_in(account: &Account) -> Result<(), String> {
    account.attributes.may_come_in(Timestamp::now()).map_err(|barred| barred.to_string())
}

/// A pattern that an ekiden of another version wrote and this one does not know would let too much pass if it
/// were left out of `deny`, and matches nothing in `allow`.
fn member(account: &Account) -> Member {
    let read = |texts: &[String]| -> Result<Vec<Pattern>, String> {
        texts.iter().map(|text| pattern::pattern(text)).collect()
    };
    let attributes = &account.attributes;
    let (allow, deny) = match (read(&attributes.allow), read(&attributes.deny)) {
        (Ok(allow), Ok(deny)) => (allow, deny),
        (allow, deny) => {
            let why = allow.err().or(deny.err()).unwrap_or_default();
            tracing::error!(account = %account.name, "its destinations are not understood, and it may go nowhere: {why}");
            let everything =
                Pattern { host: ekiden_proxy::settings::HostPattern::Any, ports: None };
            (Vec::new(), vec![everything])
        }
    };
    Member { id: account.id.0, name: account.name.clone(), allow, deny }
}

impl accounts::Directory for Households {
    fn at(&self, address: IpAddr) -> Option<Result<Arc<Member>, String>> {
        let directory = self.keeper.directory();
        Some(self.admitted(&directory, directory.by_address(address)?))
    }

    fn behind(&self, relay: &str) -> Option<Result<Arc<Member>, String>> {
        let directory = self.keeper.directory();
        Some(self.admitted(&directory, directory.by_relay(relay)?))
    }

    fn log_in<'a>(&'a self, user: &'a str, password: &'a str, from: IpAddr) -> Looking<'a> {
        Box::pin(async move {
            let seen = match self.keeper.look_at(user, password, from).await {
                Verdict::Known(id) => {
                    let directory = self.keeper.directory();
                    match directory.get(id).map(|account| self.admitted(&directory, account)) {
                        Some(Ok(member)) => LogIn::Known(member),
                        Some(Err(why)) => LogIn::Barred(why),
                        // removed while it was looked at
                        None => LogIn::Wrong,
                    }
                }
                Verdict::Wrong => LogIn::Wrong,
                Verdict::Wait(span) => LogIn::Wait(span),
                Verdict::Busy => LogIn::Busy,
            };
            let mut counted = locked(&self.log_ins);
            *match &seen {
                LogIn::Known(_) => &mut counted.known,
                LogIn::Barred(_) => &mut counted.barred,
                LogIn::Wrong => &mut counted.wrong,
                LogIn::Wait(_) => &mut counted.waited,
                LogIn::Busy => &mut counted.busy,
            } += 1;
            seen
        })
    }

    fn may_stay(&self, id: i64) -> Result<(), String> {
        let directory = self.keeper.directory();
        let account = directory.get(AccountId(id)).ok_or("this account was removed")?;
        may_come_in(account)
    }

    fn status(&self) -> AccountsStatus {
        let standing = self.keeper.standing();
        let now = Timestamp::now().as_second();
        let ago = |second: i64| now.saturating_sub(second) as f64;
        let relay = |relay: ekiden_accounts::Relay| FleetStatus {
            name: relay.name,
            version: relay.version,
            seen_seconds_ago: ago(relay.seen),
        };
        AccountsStatus {
            households: standing.accounts as u64,
            database: standing.database.to_owned(),
            away: standing.away,
            heard_seconds_ago: standing.heard.map(ago),
            unsettled: standing.unsettled as u64,
            relays: standing.relays.into_iter().map(relay).collect(),
            log_ins: *locked(&self.log_ins),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ekiden_accounts::Attributes;
    use ekiden_proxy::settings::HostPattern;

    #[test]
    fn lists_that_are_not_understood_open_nothing() {
        let attributes = Attributes { deny: vec!["(".into()], ..Attributes::default() };
        let account = Account { id: AccountId(1), name: "h".into(), devices: vec![], attributes };
        let member = member(&account);
        assert!(matches!(member.deny[..], [Pattern { host: HostPattern::Any, ports: None }]));
        let attributes =
            Attributes { allow: vec!["*.example.org:443".into()], ..Attributes::default() };
        let account = Account { attributes, ..account };
        assert_eq!(
            (super::member(&account).allow.len(), super::member(&account).deny.len()),
            (1, 0)
        );
    }
}
