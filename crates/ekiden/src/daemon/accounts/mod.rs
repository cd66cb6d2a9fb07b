//! The accounts of `ekiden-accounts` as the directory that `ekiden-proxy` asks.

mod books;
mod password;
mod shared;

pub(crate) use shared::shared_use;

use books::Books;
use ekiden_accounts::{
    Account, AccountId, AccountSync, Credential, Directory, LoginVerdict, OnQuotaExceeded,
    check_password,
};
use ekiden_config::pattern;
use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use ekiden_model::units::Span;
use ekiden_proxy::observe::status::{AccountsStatus, FleetStatus, LogInsStatus};
use ekiden_proxy::policy::accounts::{
    self, AccountDetails, KnownAccount, LoginOutcome, PasswordChange, PendingChange, PendingLogin,
    TunnelDevice,
};
use ekiden_proxy::policy::quota;
use ekiden_proxy::settings::{Allowance, ExceededAction, Limits, Pattern};
use jiff::Timestamp;
use password::Tries;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, OnceLock};

/// The accounts of a sync.
#[derive(Debug)]
pub(crate) struct AccountDirectory {
    sync: Arc<AccountSync>,
    /// Lists of destinations are read once for each version of the directory.
    members: Mutex<(i64, BTreeMap<AccountId, Arc<KnownAccount>>)>,
    /// The relay's limits, and what was said to them.
    limits: OnceLock<Arc<quota::Quotas>>,
    given: Mutex<BTreeMap<AccountId, Given>>,
    /// By name, what of the relay's count is in the journal: up and down. Locked within `given`.
    counted: Mutex<HashMap<Arc<str>, [u64; 2]>>,
    log_ins: Mutex<LogInsStatus>,
    /// Held while a password is changed: one at a time, as log-ins are.
    changing: Arc<tokio::sync::Mutex<Tries>>,
}

/// The limits that an account has in the proxy.
#[derive(Debug)]
struct Given {
    name: String,
    limits: Limits,
    /// What was told last of its quota.
    books: Option<Books>,
}

/// The limits of an account. The calendar ends its periods, so the period itself is unlimited.
fn limits_of(account: &Account) -> Limits {
    let attributes = &account.attributes;
    let on_exceeded = match attributes.on_quota_exceeded {
        OnQuotaExceeded::Throttle => ExceededAction::Throttle(attributes.throttle_rate),
        OnQuotaExceeded::Cut => ExceededAction::Cut,
    };
    Limits {
        rates: [attributes.up, attributes.down],
        weight: attributes.weight,
        connections: attributes.connections,
        connects: attributes.connects_per_second,
        quota: attributes.quota_bytes().map(|bytes| Allowance {
            bytes,
            period: Span::MAX,
            on_exceeded,
        }),
        ..Limits::default()
    }
}

impl AccountDirectory {
    pub(crate) fn new(sync: Arc<AccountSync>) -> Self {
        let members = Mutex::new((-1, BTreeMap::new()));
        Self {
            sync,
            members,
            limits: OnceLock::new(),
            given: Mutex::default(),
            counted: Mutex::default(),
            log_ins: Mutex::default(),
            changing: Arc::new(tokio::sync::Mutex::new(Tries::new())),
        }
    }

    /// Writes into the journal what the relay counted since the last time: the count that also spends quotas. To be
    /// called several times a second, and at the end.
    pub(crate) fn count(&self) {
        if let Some(limits) = self.limits.get() {
            self.count_for(limits, &locked(&self.given));
        }
    }

    /// The relay's counters, all of them in the journal: bytes in both directions by name. Several times a second, and
    /// most accounts moved nothing meanwhile.
    fn count_for(
        &self,
        limits: &quota::Quotas,
        given: &BTreeMap<AccountId, Given>,
    ) -> HashMap<Arc<str>, u64> {
        let by_name = || given.iter().map(|(id, one)| (one.name.as_str(), *id)).collect();
        let mut ids: Option<HashMap<&str, AccountId>> = None;
        let mut counted = locked(&self.counted);
        let usage = limits.usage();
        let mut sums = HashMap::with_capacity(usage.len());
        for quota::Usage { account, down, up } in usage {
            sums.insert(Arc::clone(&account), down.saturating_add(up));
            let before = counted.get(&account).copied().unwrap_or_default();
            if before == [up, down] {
                continue;
            }
            // one that was not given anything yet is written down when it is
            let Some(id) = ids.get_or_insert_with(by_name).get(&*account) else { continue };
            self.sync.used(*id, down - before[1], up - before[0]);
            counted.insert(account, [up, down]);
        }
        sums
    }

    /// Gives accounts what their accounts may: after each change, and each second, since periods end and a relay's
    /// part of a quota grows. It counts, too.
    pub(crate) fn give(&self) {
        let Some(limits) = self.limits.get() else { return };
        let directory = self.sync.directory();
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
    fn keep_books(&self, limits: &quota::Quotas, account: &Account, one: &mut Given, counted: u64) {
        let calendar = account.attributes.calendar_here();
        // before the part is asked for: should a period end in between, its successor is told at the next look, where
        // the old one's use would be held against all of the new one
        let (now, instant) = (self.sync.now(), clock::now());
        let Some(part) = self.sync.part(account.id) else { return };
        let books = Books::new(&calendar, (now, instant), part, counted);
        if books.are_kept(one.books, instant) {
            return;
        }
        let until = counted.saturating_add(part.may.saturating_sub(part.used));
        limits.set_until(&one.name, until, books.ends_in(instant), part.more);
        one.books = Some(books);
    }

    /// The account for the doors, if it may come in now.
    fn admitted(
        &self,
        directory: &Directory,
        account: &Account,
    ) -> Result<Arc<KnownAccount>, String> {
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
fn member(account: &Account) -> KnownAccount {
    let read = |texts: &[String]| -> Result<Vec<Pattern>, String> {
        texts.iter().map(|text| pattern::pattern(text)).collect()
    };
    let attributes = &account.attributes;
    let (allow, deny) = match (read(&attributes.allow), read(&attributes.deny)) {
        (Ok(allow), Ok(deny)) => (allow, deny),
        (allow, deny) => {
            let why = allow.err().or(deny.err()).unwrap_or_default();
            tracing::error!(account = %account.name, "invalid destinations, so the account may reach none: {why}");
            let everything =
                Pattern { host: ekiden_proxy::settings::HostPattern::Any, ports: None };
            (Vec::new(), vec![everything])
        }
    };
    KnownAccount { id: account.id.0, name: account.name.clone(), allow, deny }
}

impl accounts::Directory for AccountDirectory {
    fn begin(&self, quotas: &Arc<quota::Quotas>) {
        let _once = self.limits.set(Arc::clone(quotas));
        self.give();
    }

    fn at(&self, address: IpAddr) -> Option<Result<Arc<KnownAccount>, String>> {
        let directory = self.sync.directory();
        Some(self.admitted(&directory, directory.by_address(address)?))
    }

    fn at_device(&self, address: IpAddr) -> Option<Result<Arc<KnownAccount>, String>> {
        let directory = self.sync.directory();
        Some(self.admitted(&directory, directory.by_wireguard(address)?))
    }

    fn behind(&self, relay: &str) -> Option<Result<Arc<KnownAccount>, String>> {
        let directory = self.sync.directory();
        Some(self.admitted(&directory, directory.by_peer(relay)?))
    }

    fn tunnel_devices(&self) -> Vec<TunnelDevice> {
        let directory = self.sync.directory();
        let of = |account: &Arc<Account>| {
            let barred = may_come_in(account).err();
            let device = |device: &ekiden_accounts::Device| match &device.credential {
                Credential::Wireguard { v4, v6, key } => Some(TunnelDevice {
                    account: account.name.clone(),
                    name: device.name.clone(),
                    v4: *v4,
                    v6: *v6,
                    key: key.clone(),
                    barred: barred.clone(),
                }),
                _ => None,
            };
            account.devices.iter().filter_map(device).collect::<Vec<_>>()
        };
        directory.accounts().flat_map(of).collect()
    }

    fn log_in<'a>(&'a self, user: &'a str, password: &'a str, from: IpAddr) -> PendingLogin<'a> {
        Box::pin(async move {
            let seen = match self.sync.verify_login(user, password, from).await {
                LoginVerdict::Known(id) => {
                    let directory = self.sync.directory();
                    match directory.get(id).map(|account| self.admitted(&directory, account)) {
                        Some(Ok(member)) => LoginOutcome::Known(member),
                        Some(Err(why)) => LoginOutcome::Barred(why),
                        // removed while it was looked at
                        None => LoginOutcome::Wrong,
                    }
                }
                LoginVerdict::Wrong => LoginOutcome::Wrong,
                LoginVerdict::WrongAgain => LoginOutcome::WrongAgain,
                LoginVerdict::Wait(span) => LoginOutcome::Wait(span),
                LoginVerdict::Busy => LoginOutcome::Busy,
            };
            let mut counted = locked(&self.log_ins);
            *match &seen {
                LoginOutcome::Known(_) => &mut counted.known,
                LoginOutcome::Barred(_) => &mut counted.barred,
                LoginOutcome::Wrong | LoginOutcome::WrongAgain => &mut counted.wrong,
                LoginOutcome::Wait(_) => &mut counted.waited,
                LoginOutcome::Busy => &mut counted.busy,
            } += 1;
            seen
        })
    }

    fn change_password<'a>(
        &'a self,
        user: &'a str,
        account: &'a KnownAccount,
        new: &'a str,
    ) -> PendingChange<'a> {
        Box::pin(async move {
            // what has no other cost is no try
            if let Err(bad) = check_password(new) {
                return PasswordChange::Refused(bad.to_string());
            }
            let Ok(mut tries) = Arc::clone(&self.changing).try_lock_owned() else {
                return PasswordChange::Busy;
            };
            if let Err(wait) = tries.begin(AccountId(account.id), clock::now()) {
                return PasswordChange::Wait(wait);
            }
            password::change(&self.sync, (user, &account.name), new, tries).await
        })
    }

    fn standing(&self, account: &str) -> Option<Result<(), String>> {
        let directory = self.sync.directory();
        let found = directory.accounts().find(|found| found.name == account)?;
        Some(may_come_in(found))
    }

    fn may_stay(&self, id: i64) -> Result<(), String> {
        let directory = self.sync.directory();
        let account = directory.get(AccountId(id)).ok_or("this account was removed")?;
        may_come_in(account)
    }

    fn details(&self, id: i64) -> Option<AccountDetails> {
        let directory = self.sync.directory();
        let account = directory.get(AccountId(id))?;
        let devices = account.devices.iter();
        let devices =
            devices.map(|device| (device.name.clone(), device.credential.identity().1)).collect();
        let user = |device: &ekiden_accounts::Device| match &device.credential {
            Credential::Password { user, .. } => Some(user.clone()),
            _ => None,
        };
        let users = account.devices.iter().filter_map(user).collect();
        let renews = accounts::Directory::renews(self, id);
        let expires = account.attributes.expires.map(|day| day.to_string());
        Some(AccountDetails { devices, users, renews, expires })
    }

    fn renews(&self, id: i64) -> Option<String> {
        let directory = self.sync.directory();
        let attributes = &directory.get(AccountId(id))?.attributes;
        let calendar = attributes.quota.map(|_| attributes.calendar_here());
        calendar.and_then(|calendar| calendar.next_in_words(self.sync.now()))
    }

    fn status(&self) -> AccountsStatus {
        let standing = self.sync.status();
        let now = self.sync.now().as_second();
        let ago = |second: i64| now.saturating_sub(second) as f64;
        let relay = |relay: ekiden_accounts::FleetRelay| FleetStatus {
            name: relay.name,
            version: relay.version,
            seen_seconds_ago: ago(relay.seen),
        };
        AccountsStatus {
            known: standing.accounts as u64,
            unreadable: standing.unreadable as u64,
            unreadable_first: standing.unreadable_first,
            database: standing.database.to_owned(),
            away: standing.away,
            heard_seconds_ago: standing.heard.map(ago),
            unsettled: standing.unsettled as u64,
            unwritten: standing.unwritten,
            relays: standing.relays.into_iter().map(relay).collect(),
            log_ins: *locked(&self.log_ins),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ekiden_accounts::{Attributes, Device, Store};
    use ekiden_proxy::Server;
    use ekiden_proxy::settings::{HostPattern, Settings};

    #[tokio::test]
    async fn accounts_have_their_limits_when_the_relay_starts() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::in_folder(folder.path()).await.unwrap();
        let credential = Credential::Prefix("100.64.0.0/24".parse().unwrap());
        let devices = vec![Device { name: "router".to_owned(), credential }];
        let attributes = Attributes { connections: Some(7), ..Attributes::default() };
        let (id, name) = (AccountId(0), "tanaka".to_owned());
        store.add(&Account { id, name, devices, attributes }).await.unwrap();
        let sync = AccountSync::open(folder.path(), None, "r").await.unwrap();
        let directory = Arc::new(AccountDirectory::new(Arc::new(sync)));
        let settings = Settings { listen: vec![([127, 0, 0, 1], 0).into()], ..Settings::default() };
        // on this runtime's only thread nobody can come in before the assertion
        let server = Server::start_with(Arc::new(settings), Some(directory)).unwrap();
        let limited = server.handle().accounts().account("tanaka").unwrap();
        assert_eq!(limited.connections_limit, Some(7));
    }

    #[test]
    fn invalid_lists_open_nothing() {
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
