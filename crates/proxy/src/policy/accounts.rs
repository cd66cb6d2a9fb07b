//! The interface to the accounts: who a client is, by its address, its peer, or its user name and
//! password. An account store implements [`Directory`].

use crate::policy::access::Denied;
use crate::policy::quota::Quotas;
pub use crate::settings::KnownAccount;
use crate::settings::Pattern;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ekiden_model::units::Span;
use std::fmt;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::pin::Pin;
use std::sync::Arc;

/// The result of a log-in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoginOutcome {
    /// The account is known.
    Known(Arc<KnownAccount>),
    /// The account may not log in now; the reason is for its user.
    Barred(String),
    /// User or password is wrong.
    Wrong,
    /// The same, as it was before from the same address; it was not checked anew.
    WrongAgain,
    /// Too many wrong log-ins before; none is checked for this long.
    Wait(Span),
    /// Too many log-ins are being checked.
    Busy,
}

/// A log-in that is being checked.
pub type PendingLogin<'a> = Pin<Box<dyn Future<Output = LoginOutcome> + Send + 'a>>;

/// What became of a new password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PasswordChange {
    /// It is kept, and counts within a second.
    Changed,
    /// It is not, for a reason that its user can mend.
    Refused(String),
    /// Others are changing theirs.
    Busy,
    /// The account had a try a short while ago; none is made for this long.
    Wait(Span),
    /// The accounts cannot be changed at this moment.
    Away,
    /// There was no answer in time: it may be kept all the same.
    Late,
}

/// A password that is being changed.
pub type PendingChange<'a> = Pin<Box<dyn Future<Output = PasswordChange> + Send + 'a>>;

/// The accounts. All but log-ins are answered from memory.
/// [`Quotas::usage`] reports their usage by name.
pub trait Directory: fmt::Debug + Send + Sync {
    /// The relay's limits, to which it tells those of its accounts. Called at the start, before anybody can come in.
    fn begin(&self, quotas: &Arc<Quotas>) {
        let _unused = quotas;
    }

    /// The account at an address; `Err`: it may not connect now, and why. Addresses of WireGuard devices are none of these.
    fn at(&self, address: IpAddr) -> Option<Result<Arc<KnownAccount>, String>>;

    /// The account of the WireGuard device that has an address in the tunnel; `Err`: it may not connect now, and why. Asked
    /// only about addresses that this relay's door gives out and nobody else has: elsewhere they may be anybody's.
    fn at_device(&self, address: IpAddr) -> Option<Result<Arc<KnownAccount>, String>> {
        let _unknown = address;
        None
    }

    /// The account behind a peer, by the peer's local name.
    fn behind(&self, relay: &str) -> Option<Result<Arc<KnownAccount>, String>>;

    /// The devices that come by WireGuard, in an order that does not change, and why not now. Called every second.
    fn tunnel_devices(&self) -> Vec<TunnelDevice> {
        Vec::new()
    }

    /// Checks a user name and a password from an address.
    fn log_in<'a>(&'a self, user: &'a str, password: &'a str, from: IpAddr) -> PendingLogin<'a>;

    /// Gives a user of an account a new password. The caller has had the old one checked.
    fn change_password<'a>(
        &'a self,
        user: &'a str,
        account: &'a KnownAccount,
        new: &'a str,
    ) -> PendingChange<'a> {
        let _unused = (user, account, new);
        let why = "the operator of this relay changes its accounts".to_owned();
        Box::pin(std::future::ready(PasswordChange::Refused(why)))
    }

    /// Whether the account may be served, or in words why not. Called several times a second for
    /// each live connection.
    fn may_stay(&self, id: i64) -> Result<(), String>;

    /// Whether the account of this name is served now, or in words why not; `None`: there is no such account.
    fn standing(&self, _account: &str) -> Option<Result<(), String>> {
        None
    }

    /// What an account's own page says of it besides its use; `None`: it was removed, or nothing is known.
    fn details(&self, id: i64) -> Option<AccountDetails> {
        let _unknown = id;
        None
    }

    /// When an account's quota begins anew, in words: day, hour and minute, and its time zone; `None`: it does not, or
    /// nothing is known.
    fn renews(&self, id: i64) -> Option<String> {
        let _unknown = id;
        None
    }

    /// The accounts' state, for the status.
    fn status(&self) -> crate::observe::status::AccountsStatus;
}

/// A device of an account that comes by WireGuard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TunnelDevice {
    /// The account's name.
    pub account: String,
    /// The device's.
    pub name: String,
    /// Its addresses in the tunnel.
    pub v4: Ipv4Addr,
    /// The other one.
    pub v6: Ipv6Addr,
    /// Its public key, in base64.
    pub key: String,
    /// Why it is not served now.
    pub barred: Option<String>,
}

/// An account as its owner sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccountDetails {
    /// Its devices: name, and the user, the prefix or the peer by which it is recognised.
    pub devices: Vec<(String, String)>,
    /// Of those, the users that have a password.
    pub users: Vec<String>,
    /// When the quota begins anew: day, hour and minute, and the time zone; absent where it does not.
    pub renews: Option<String>,
    /// The last day of use; absent where there is none.
    pub expires: Option<String>,
}

impl KnownAccount {
    /// Whether the account's own lists allow `to`, at `address` once it is resolved.
    pub(crate) fn may_go(
        &self,
        to: &crate::destination::Destination,
        address: Option<IpAddr>,
    ) -> Result<(), Denied> {
        let matches = |pattern: &Pattern| pattern.matches(to, address);
        let denied = || Err(Denied::Account(to.to_string()));
        if self.deny.iter().any(matches) {
            return denied();
        }
        if self.allow.is_empty() || self.allow.iter().any(matches) {
            return Ok(());
        }
        denied()
    }

    /// Whether the account's own list denies a name that its client claims.
    pub(crate) fn may_claim(
        &self,
        claimed: &crate::destination::Destination,
    ) -> Result<(), Denied> {
        match self.deny.iter().any(|pattern| pattern.matches(claimed, None)) {
            true => Err(Denied::Account(claimed.to_string())),
            false => Ok(()),
        }
    }

    /// Whether some address could make `to` allowed.
    pub(crate) fn might_go(&self, to: &crate::destination::Destination) -> Result<(), Denied> {
        let by_address =
            |pattern: &Pattern| matches!(pattern.host, crate::settings::HostPattern::Net(_));
        match self.may_go(to, None) {
            // lists of addresses decide after the name is resolved
            Err(denied) if !self.deny.iter().any(|pattern| pattern.matches(to, None)) => {
                if self.allow.iter().any(by_address) { Ok(()) } else { Err(denied) }
            }
            answer => answer,
        }
    }
}

/// Bytes of a log-in in base64. User and password have 255 at most each (RFC 1929 §2), which are 684 of these. A longer
/// one would be copied while it waits to be checked.
const LONGEST_BASIC: usize = 2048;

/// User name and password from the value of `Authorization` or `Proxy-Authorization` (RFC 7617); `None` if it is not
/// Basic, or longer than any log-in, 2 KiB in base64.
pub fn read_basic(value: &[u8]) -> Option<(String, String)> {
    let text = std::str::from_utf8(value).ok()?.trim();
    let (scheme, rest) = text.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let coded = rest.trim();
    if coded.len() > LONGEST_BASIC {
        return None;
    }
    let plain = String::from_utf8(STANDARD.decode(coded).ok()?).ok()?;
    let (user, password) = plain.split_once(':')?;
    Some((user.to_owned(), password.to_owned()))
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use crate::observe::status::AccountsStatus;

    /// An account whose lists are empty.
    pub(crate) fn account(id: i64, name: &str) -> Arc<KnownAccount> {
        Arc::new(KnownAccount { id, name: name.into(), allow: vec![], deny: vec![] })
    }

    /// A directory that knows one account, number 7, at one address, and number 8 of the WireGuard device at 10.77.0.2. It is
    /// busy for an empty password, has everybody wait for "late", knows "again" for wrong, and takes none.
    #[derive(Debug)]
    pub(crate) struct OneAccount {
        pub(crate) name: &'static str,
        pub(crate) at: IpAddr,
    }

    impl Directory for OneAccount {
        fn at(&self, address: IpAddr) -> Option<Result<Arc<KnownAccount>, String>> {
            (address == self.at).then(|| Ok(account(7, self.name)))
        }

        fn at_device(&self, address: IpAddr) -> Option<Result<Arc<KnownAccount>, String>> {
            (address == IpAddr::from([10, 77, 0, 2])).then(|| Ok(account(8, "phone")))
        }

        fn behind(&self, _: &str) -> Option<Result<Arc<KnownAccount>, String>> {
            None
        }

        fn log_in<'a>(&'a self, _: &'a str, given: &'a str, _: IpAddr) -> PendingLogin<'a> {
            Box::pin(async move {
                match given {
                    "" => LoginOutcome::Busy,
                    "late" => LoginOutcome::Wait(Span::from_millis(29_999)),
                    "again" => LoginOutcome::WrongAgain,
                    _ => LoginOutcome::Wrong,
                }
            })
        }

        fn may_stay(&self, _: i64) -> Result<(), String> {
            Ok(())
        }

        fn status(&self) -> AccountsStatus {
            AccountsStatus::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::destination::Destination;
    use crate::settings::HostPattern;

    fn to(text: &str) -> Destination {
        Destination::parse(text, Some(80)).unwrap()
    }

    fn account(allow: &[HostPattern], deny: &[HostPattern]) -> KnownAccount {
        let patterns = |hosts: &[HostPattern]| {
            hosts.iter().map(|host| Pattern { host: host.clone(), ports: None }).collect()
        };
        KnownAccount { id: 1, name: "h".into(), allow: patterns(allow), deny: patterns(deny) }
    }

    #[test]
    fn basic_credentials() {
        let read = |text: &str| read_basic(text.as_bytes());
        let pair = |user: &str, password: &str| Some((user.to_owned(), password.to_owned()));
        // RFC 7617 §2
        assert_eq!(read("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="), pair("Aladdin", "open sesame"));
        assert_eq!(read("basic YTpiOmM="), pair("a", "b:c"));
        for bad in ["", "Basic", "Bearer QQ==", "Basic !!", "Basic QQ==", "Basic /w=="] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    #[test]
    fn basic_credentials_longer_than_any_are_none() {
        let of = |user: usize, password: usize| {
            let plain = format!("{}:{}", "u".repeat(user), "p".repeat(password));
            read_basic(format!("Basic {}", STANDARD.encode(plain)).as_bytes())
        };
        let longest = of(255, 255).unwrap();
        assert_eq!((longest.0.len(), longest.1.len()), (255, 255));
        assert!(of(255, 1280).is_some());
        for (user, password) in [(255, 1281), (255, 48 << 10), (48 << 10, 8)] {
            assert_eq!(of(user, password), None, "{user} and {password} bytes");
        }
    }

    #[test]
    fn deny_counts_before_allow_and_an_empty_allow_is_everything() {
        let below = |name: &str| HostPattern::Below(name.into());
        let name = |name: &str| HostPattern::Name(name.into());
        let school = account(&[below("school.example")], &[name("games.school.example")]);
        assert!(school.may_go(&to("www.school.example"), None).is_ok());
        assert!(school.may_go(&to("games.school.example"), None).is_err());
        assert!(school.may_go(&to("example.org"), None).is_err());
        assert!(account(&[], &[name("a.example")]).may_go(&to("b.example"), None).is_ok());
    }

    #[test]
    fn lists_of_addresses_decide_after_resolution() {
        let net = HostPattern::Net("192.0.2.0/24".parse().unwrap());
        let inside = account(std::slice::from_ref(&net), &[]);
        let (name, ip) = (to("a.example"), |text: &str| Some(text.parse().unwrap()));
        assert!(inside.might_go(&name).is_ok());
        assert!(inside.may_go(&name, ip("192.0.2.7")).is_ok());
        assert!(inside.may_go(&name, ip("198.51.100.7")).is_err());
        let outside = account(&[], &[net]);
        assert!(outside.might_go(&name).is_ok());
        assert!(outside.may_go(&name, ip("192.0.2.7")).is_err());
    }
}
