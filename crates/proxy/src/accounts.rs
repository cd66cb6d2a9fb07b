//! Who a client is: the household it belongs to, by its address, by the relay it comes through, or by user
//! and password. Whoever keeps households implements [`Directory`]; the doors ask it and nothing else.

use crate::access::Denied;
use crate::failure::{Failure, Kind};
use crate::seldom::Seldom;
use crate::session::Session;
use crate::settings::{Accounts, Pattern};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ekiden_model::units::Span;
use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

/// A household, as far as doors and rules need it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its number: never another household's.
    pub id: i64,
    /// Its name, for logs.
    pub name: String,
    /// Where it may go; empty: wherever the rules let it.
    pub allow: Vec<Pattern>,
    /// Where it may not go; counts before `allow`.
    pub deny: Vec<Pattern>,
}

/// What became of an attempt to log in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogIn {
    /// It is this household.
    Known(Arc<Member>),
    /// It is one that may not come in now; why, for its user.
    Barred(String),
    /// User or password is wrong.
    Wrong,
    /// Too many wrong ones came before; so long none is looked at.
    Wait(Span),
    /// Too many are being looked at.
    Busy,
}

/// An attempt that is being looked at.
pub type Looking<'a> = Pin<Box<dyn Future<Output = LogIn> + Send + 'a>>;

/// What is known of households. Everything but a log-in is answered at once, from memory. What they use is asked of
/// [`Households::usage`](crate::households::Households::usage), by name.
pub trait Directory: fmt::Debug + Send + Sync {
    /// The household at an address; `Err`: it may not come in now, and why.
    fn at(&self, address: IpAddr) -> Option<Result<Arc<Member>, String>>;

    /// The household behind a relay, by what that is called here.
    fn behind(&self, relay: &str) -> Option<Result<Arc<Member>, String>>;

    /// Whose user and password these are, from an address.
    fn log_in<'a>(&'a self, user: &'a str, password: &'a str, from: IpAddr) -> Looking<'a>;

    /// Whether the household of this number is still there and may still be served. Asked for each live
    /// connection several times a second.
    ///
    /// # Errors
    /// Why not, in words.
    fn may_stay(&self, id: i64) -> Result<(), String>;

    /// How it stands, for the status.
    fn status(&self) -> crate::status::AccountsStatus;
}

impl Member {
    /// Whether the household's own lists let it go to `to`, which is at `address` where that is known.
    pub(crate) fn may_go(
        &self,
        to: &crate::destination::Destination,
        address: Option<IpAddr>,
    ) -> Result<(), Denied> {
        let matches = |pattern: &Pattern| pattern.matches(to, address);
        let denied = || Err(Denied::Household(to.to_string()));
        if self.deny.iter().any(matches) {
            return denied();
        }
        if self.allow.is_empty() || self.allow.iter().any(matches) {
            return Ok(());
        }
        denied()
    }

    /// Whether some address could make `to` one where it may go.
    pub(crate) fn might_go(&self, to: &crate::destination::Destination) -> Result<(), Denied> {
        let by_address =
            |pattern: &Pattern| matches!(pattern.host, crate::settings::HostPattern::Net(_));
        match self.may_go(to, None) {
            // a list of addresses decides when the name is resolved
            Err(denied) if !self.deny.iter().any(|pattern| pattern.matches(to, None)) => {
                if self.allow.iter().any(by_address) { Ok(()) } else { Err(denied) }
            }
            answer => answer,
        }
    }
}

/// User and password out of the value of `Proxy-Authorization` (RFC 7617); `None` for what is no Basic.
pub(crate) fn read_basic(value: &[u8]) -> Option<(String, String)> {
    let text = std::str::from_utf8(value).ok()?.trim();
    let (scheme, rest) = text.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let plain = String::from_utf8(STANDARD.decode(rest.trim()).ok()?).ok()?;
    let (user, password) = plain.split_once(':')?;
    Some((user.to_owned(), password.to_owned()))
}

fn may_take_passwords(accounts: &Accounts, client: IpAddr) -> bool {
    accounts.cleartext || client.to_canonical().is_loopback()
}

impl Session {
    /// The household known by where the client is; `Err` when that may not come in now. Nobody where there
    /// are no accounts.
    pub(crate) fn placed(&self) -> Result<Option<Arc<Member>>, Failure> {
        let Some(directory) = &self.world.directory else { return Ok(None) };
        let found = match &self.arrival {
            Some(arrival) => directory.behind(arrival.relay()),
            None => directory.at(self.address.ip()),
        };
        found.transpose().map_err(|why| Failure::new(Kind::Denied, why))
    }

    /// Whether a client that is no known household has to log in before anything is done for it. Relays were
    /// invited, and their key says who they are.
    pub(crate) fn must_log_in(&self) -> bool {
        self.world.directory.is_some()
            && self.arrival.is_none()
            && (self.world.settings.accounts.required || self.decider(None).client().is_err())
    }

    /// Whether passwords may be taken on this connection: they can be read on their way unless it stays
    /// within this machine.
    ///
    /// # Errors
    /// That they may not, for the client.
    pub(crate) fn may_take_passwords(&self) -> Result<(), Failure> {
        if self.sealed || may_take_passwords(&self.world.settings.accounts, self.address.ip()) {
            return Ok(());
        }
        static SAID: Seldom = Seldom::new();
        if SAID.is_due() {
            tracing::warn!(
                client = %self.address,
                "a log-in was refused: its password would cross the network in the clear; [tls] encrypts it, [accounts] cleartext = true permits it"
            );
        }
        let text = "passwords are not taken over this connection, where others could read them; \
                    speak TLS to this proxy (https://), or ask its operator";
        Err(Failure::new(Kind::Denied, text))
    }

    /// Looks at a user and a password.
    pub(crate) async fn log_in(&self, user: &str, password: &str) -> Result<Arc<Member>, Failure> {
        let Some(directory) = &self.world.directory else {
            return Err(Failure::new(Kind::LogIn, "there are no accounts here"));
        };
        self.may_take_passwords()?;
        match directory.log_in(user, password, self.address.ip()).await {
            LogIn::Known(member) => Ok(member),
            LogIn::Barred(why) => Err(Failure::new(Kind::Denied, why)),
            LogIn::Wrong => Err(Failure::new(Kind::LogIn, "user or password is wrong")),
            LogIn::Wait(span) => {
                let seconds = span.as_nanos().div_ceil(1_000_000_000).max(1);
                let text = format!("too many wrong passwords; try again in {seconds} s");
                Err(Failure::new(Kind::Malformed(429), text))
            }
            LogIn::Busy => {
                let text = "too many log in at once; try again in a second";
                Err(Failure::new(Kind::Exhausted, text))
            }
        }
    }

    /// Who the client of this connection is from now on.
    pub(crate) fn belongs_to(&self, member: Option<Arc<Member>>) {
        self.registered.set_member(member);
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

    fn member(allow: &[HostPattern], deny: &[HostPattern]) -> Member {
        let patterns = |hosts: &[HostPattern]| {
            hosts.iter().map(|host| Pattern { host: host.clone(), ports: None }).collect()
        };
        Member { id: 1, name: "h".into(), allow: patterns(allow), deny: patterns(deny) }
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
    fn passwords_stay_within_the_machine_unless_it_is_said() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let usual = Accounts::default();
        for inside in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
            assert!(may_take_passwords(&usual, ip(inside)), "{inside}");
        }
        for outside in ["192.168.0.9", "100.64.0.1", "2001:db8::1", "fe80::1"] {
            assert!(!may_take_passwords(&usual, ip(outside)), "{outside}");
            assert!(may_take_passwords(
                &Accounts { cleartext: true, ..usual.clone() },
                ip(outside)
            ));
        }
    }

    #[test]
    fn deny_counts_before_allow_and_an_empty_allow_is_everything() {
        let below = |name: &str| HostPattern::Below(name.into());
        let name = |name: &str| HostPattern::Name(name.into());
        let school = member(&[below("school.example")], &[name("games.school.example")]);
        assert!(school.may_go(&to("www.school.example"), None).is_ok());
        assert!(school.may_go(&to("games.school.example"), None).is_err());
        assert!(school.may_go(&to("example.org"), None).is_err());
        assert!(member(&[], &[name("a.example")]).may_go(&to("b.example"), None).is_ok());
    }

    #[test]
    fn a_list_of_addresses_decides_once_the_name_is_resolved() {
        let net = HostPattern::Net("192.0.2.0/24".parse().unwrap());
        let inside = member(std::slice::from_ref(&net), &[]);
        let (name, ip) = (to("a.example"), |text: &str| Some(text.parse().unwrap()));
        assert!(inside.might_go(&name).is_ok());
        assert!(inside.may_go(&name, ip("192.0.2.7")).is_ok());
        assert!(inside.may_go(&name, ip("198.51.100.7")).is_err());
        let outside = member(&[], &[net]);
        assert!(outside.might_go(&name).is_ok());
        assert!(outside.may_go(&name, ip("192.0.2.7")).is_err());
    }
}
