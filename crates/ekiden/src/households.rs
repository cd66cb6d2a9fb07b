//! Households for the doors: what `ekiden-accounts` keeps, as `ekiden-proxy` asks for it.

use crate::config::pattern;
use ekiden_accounts::{Account, AccountId, Directory, Keeper, Verdict};
use ekiden_proxy::accounts::{self, LogIn, Looking, Member};
use ekiden_proxy::settings::Pattern;
use ekiden_proxy::status::{AccountsStatus, FleetStatus};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// The households of a keeper.
#[derive(Debug)]
pub(crate) struct Households {
    keeper: Arc<Keeper>,
    /// Lists of destinations are read once for each version of the directory.
    members: Mutex<(i64, BTreeMap<AccountId, Arc<Member>>)>,
}

impl Households {
    pub(crate) fn new(keeper: Arc<Keeper>) -> Self {
        Self { keeper, members: Mutex::new((-1, BTreeMap::new())) }
    }

    /// The household for the doors, if it may come in now.
    fn admitted(&self, directory: &Directory, account: &Account) -> Result<Arc<Member>, String> {
        may_come_in(account)?;
        let mut members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        if members.0 != directory.version() {
            *members = (directory.version(), BTreeMap::new());
        }
        let member = members.1.entry(account.id).or_insert_with(|| Arc::new(member(account)));
        Ok(Arc::clone(member))
    }
}

fn may_come_in(account: &Account) -> Result<(), String> {
    account.attributes.may_come_in(jiff::Timestamp::now()).map_err(|barred| barred.to_string())
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
        let now = jiff::Timestamp::now().as_second();
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
