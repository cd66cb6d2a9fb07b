//! Households for the doors: what `ekiden-accounts` keeps, as `ekiden-proxy` asks for it.

use crate::config::pattern;
use ekiden_accounts::{Account, AccountId, Directory, Keeper, Verdict, WhenSpent};
use ekiden_model::units::{Bytes, Span};
use ekiden_proxy::accounts::{self, LogIn, Looking, Member};
use ekiden_proxy::households;
use ekiden_proxy::settings::{Allowance, Limits, Pattern, Then};
use ekiden_proxy::status::{AccountsStatus, FleetStatus};
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
}

/// What a household was given.
#[derive(Debug)]
struct Given {
    name: String,
    limits: Limits,
    books: Option<Books>,
}

/// A quota in a period.
#[derive(Debug)]
struct Books {
    begun: Timestamp,
    /// What this relay may carry in it.
    may: u64,
    /// Carried before the relay was told, and its counter then.
    before: u64,
    at: u64,
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
        Self { keeper, members, limits: OnceLock::new(), given: Mutex::default() }
    }

    /// Where limits are kept, once the relay runs.
    pub(crate) fn limit(&self, limits: Arc<households::Households>) {
        let _once = self.limits.set(limits);
        self.give();
    }

    /// Gives households what their accounts may: after each change, and each second, since periods end and a relay's
    /// part of a quota grows.
    pub(crate) fn give(&self) {
        let Some(limits) = self.limits.get() else { return };
        let directory = self.keeper.directory();
        let mut given = locked(&self.given);
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
        let carried: BTreeMap<Arc<str>, u64> =
            limits.usage().into_iter().map(|one| (one.household, one.down + one.up)).collect();
        for (id, one) in given.iter_mut().filter(|(_, one)| one.limits.quota.is_some()) {
            let Some(account) = directory.get(*id) else { continue };
            self.keep_books(limits, account, one, *carried.get(one.name.as_str()).unwrap_or(&0));
        }
    }

    /// Says what is left of a quota where that is not what the relay counts by itself.
    fn keep_books(
        &self,
        limits: &households::Households,
        account: &Account,
        one: &mut Given,
        carried: u64,
    ) {
        let Some((may, used)) = self.keeper.allowance(account.id) else { return };
        let Ok(calendar) = account.attributes.calendar() else { return };
        let now = Timestamp::now();
        let begun = calendar.begun(now);
        if one.books.as_ref().is_some_and(|books| (books.begun, books.may) == (begun, may)) {
            return;
        }
        let same = one.books.take().filter(|books| books.begun == begun);
        let books = match same {
            Some(books) => Books { may, ..books },
            None => Books { begun, may, before: used, at: carried },
        };
        let left = may.saturating_sub(books.before + (carried - books.at.min(carried)));
        let ends = calendar.next(now).map_or(Span::MAX, |next| {
            let nanos = next.duration_since(now).as_nanos();
            Span::from_nanos(u64::try_from(nanos).unwrap_or(0))
        });
        limits.set_left(&one.name, Bytes::new(left), ends);
        one.books = Some(books);
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
            match self.keeper.look_at(user, password, from).await {
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
            }
        })
    }

    fn may_stay(&self, id: i64) -> Result<(), String> {
        let directory = self.keeper.directory();
        let account = directory.get(AccountId(id)).ok_or("this account was removed")?;
        may_come_in(account)
    }

    fn used(&self, id: i64, down: u64, up: u64) {
        self.keeper.used(AccountId(id), down, up);
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
