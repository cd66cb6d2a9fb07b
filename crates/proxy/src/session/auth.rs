//! The account of a connection: who the client is, its log-in, and its slot among the account's connections.

use super::{AccountSlot, Session};
use crate::error::{Failure, FailureKind};
use crate::observe::log_throttle::{LogThrottle, left_out_in_words};
use crate::policy::accounts::{KnownAccount, LoginOutcome};
use crate::policy::quota::{AccountConnection, NotAdmitted};
use crate::resources::ShareUsed;
use crate::settings::Accounts;
use ekiden_linux::host::sync::locked;
use ekiden_model::resources::quota::Direction;
use ekiden_model::units::Span;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// How late those are answered whose password was not hashed. Otherwise they would ask some thousand times a
/// second, and take the processor from the hashes of others.
const HELD_BACK: Duration = Duration::from_secs(1);

fn accepts_passwords(accounts: &Accounts, client: IpAddr) -> bool {
    accounts.cleartext || client.to_canonical().is_loopback()
}

impl Session {
    /// The account that the client's address or tunnel belongs to, if any; fails if it may not be
    /// served now.
    pub(crate) fn identify(&self) -> Result<Option<Arc<KnownAccount>>, Failure> {
        let Some(directory) = &self.config.directory else { return Ok(None) };
        let found = match &self.arrival {
            Some(arrival) => directory.behind(arrival.peer()),
            None => self.config.account_at(self.address.ip()),
        };
        found.transpose().map_err(|why| Failure::new(FailureKind::Denied, why))
    }

    /// Whether a client of no known account must log in; invited peers need not. One at an address whose account is
    /// barred must, to another account.
    pub(crate) fn must_log_in(&self) -> bool {
        self.config.directory.is_some()
            && self.arrival.is_none()
            && (self.config.settings.accounts.required
                || self.decider(None).client().is_err()
                || self.barred().is_some())
    }

    /// Whether the client speaks with this relay by a protocol in which it may log in, now or within TLS.
    pub(super) fn can_log_in_later(&self) -> bool {
        let own_client = self.arrival.is_none() && self.directed.is_none();
        let begins_tls = self.tls.is_none() && self.config.certificate.is_some();
        self.config.directory.is_some() && own_client && (begins_tls || self.may_log_in())
    }

    /// Why the account of the client's address is not served now: it is disabled, or its quota is used up.
    pub(crate) fn barred(&self) -> Option<Failure> {
        match self.identify() {
            Ok(Some(account)) => {
                let renews = || self.config.directory.as_ref()?.renews(account.id);
                let cut = self.config.shared.quotas.cut(&account.name)?;
                Some(cut.dated(renews).into())
            }
            Ok(None) => None,
            Err(barred) => Some(barred),
        }
    }

    /// Whether this connection may carry passwords: within TLS or this machine, or where cleartext
    /// is permitted.
    pub(crate) fn may_log_in(&self) -> bool {
        self.tls.is_some() || accepts_passwords(&self.config.settings.accounts, self.address.ip())
    }

    /// Whether the client is served within TLS alone: it must log in, and others could read its password.
    pub(crate) fn needs_tls(&self) -> bool {
        !self.may_log_in() && self.must_log_in() && !matches!(self.identify(), Ok(Some(_)))
    }

    /// Fails where this connection may not carry passwords. The failure is for the client; where one came all the same
    /// (`brought`), the log says what to do.
    pub(crate) fn check_password_path(&self, brought: bool) -> Result<(), Failure> {
        if self.may_log_in() {
            return Ok(());
        }
        let by_tls = self.reached_by_tls();
        if brought && self.config.shared.refusals.in_the_clear.is_due() {
            let remedy = by_tls.as_ref().map_or_else(
                || "configure [tls], or set `cleartext = true` in [accounts]".to_owned(),
                |at| format!("clients have to speak TLS to this relay, at {at}"),
            );
            tracing::warn!(
                client = %self.address,
                "log-in refused: its password would cross the network in cleartext; {remedy}"
            );
        }
        let (no, why) = match brought {
            true => ("passwords are not accepted", "where others could read them"),
            false => {
                ("this relay requires an account, and takes no log-in", "which others could read")
            }
        };
        let remedy = by_tls.map_or_else(
            || "ask this relay's operator".to_owned(),
            |at| format!("speak TLS to this proxy, at {at}"),
        );
        let text = format!("{no} over this connection, {why}; {remedy}");
        Err(Failure::new(FailureKind::Denied, text))
    }

    /// Where clients reach this relay by TLS: at the same port, where a certificate is configured or ordered.
    fn reached_by_tls(&self) -> Option<String> {
        let certificate = self.config.certificate.as_ref()?;
        let at = self.client.local_addr().ok()?;
        let (ip, port) = (at.ip().to_canonical(), at.port());
        let own = SocketAddr::new(ip, port).to_string();
        let at = match certificate.name_for(&ip.to_string()) {
            Some(name) if name != ip.to_string() => format!("{name}:{port}"),
            _ => own,
        };
        Some(format!("https://{at}"))
    }

    pub(crate) async fn log_in(
        &self,
        user: &str,
        password: &str,
    ) -> Result<Arc<KnownAccount>, Failure> {
        let Some(directory) = &self.config.directory else {
            return Err(Failure::new(FailureKind::LogIn, "this relay has no accounts"));
        };
        self.check_password_path(true)?;
        let outcome = directory.log_in(user, password, self.address.ip()).await;
        if matches!(outcome, LoginOutcome::WrongAgain | LoginOutcome::Wait(_) | LoginOutcome::Busy)
        {
            let _waits = self.config.shared.log_ins_held_back.enter();
            let _ = self.unless_stopping(tokio::time::sleep(HELD_BACK)).await;
        }
        match outcome {
            LoginOutcome::Known(account) => Ok(account),
            LoginOutcome::Barred(why) => Err(Failure::new(FailureKind::Denied, why)),
            LoginOutcome::Wrong | LoginOutcome::WrongAgain => {
                if let Some(left_out) = self.config.shared.refusals.wrong_log_ins.due() {
                    let left_out = left_out_in_words(left_out);
                    // without the user: people type passwords there
                    tracing::info!(client = %self.address, "a log-in with a wrong user or password{left_out}; the status counts all");
                }
                Err(Failure::new(FailureKind::LogIn, "user or password is wrong"))
            }
            LoginOutcome::Wait(span) => {
                if let Some(left_out) = self.config.shared.refusals.late_log_ins.due() {
                    let left_out = left_out_in_words(left_out);
                    let span = Span::from_secs(span.as_nanos().div_ceil(1_000_000_000));
                    // what came by that protocol is no proxy's address
                    let may_be_proxy = self.config.settings.access.proxy_protocol_from.is_empty();
                    let hint = if may_be_proxy && self.registration.shares_address() {
                        "; accounts come from there, too: if it is a proxy, have it send the PROXY protocol, and list it in access.proxy_protocol_from"
                    } else {
                        ""
                    };
                    tracing::info!(client = %self.address, "no password is checked for {span}, because too many wrong ones came before{left_out}; the status counts all{hint}");
                }
                let wait = Failure::new(FailureKind::LogInLater, "too many wrong passwords");
                Err(wait.retry_after(span))
            }
            LoginOutcome::Busy => {
                let busy = Failure::new(FailureKind::Exhausted, "too many log in at once");
                Err(busy.retry_after(Span::from_secs(1)))
            }
        }
    }

    pub(crate) fn set_account(&self, account: Option<Arc<KnownAccount>>) {
        self.registration.set_account(account);
    }

    /// Takes a slot in the client's account, or in the one that claims its address, until the
    /// account changes; it then counts as a new connection of the other.
    pub(crate) fn join_account(&self) -> Result<(), NotAdmitted> {
        let (entry, quotas) = (&self.registration.entry, &self.config.shared.quotas);
        let account = entry.account();
        let id = account.as_ref().map(|account| account.id);
        let mut slot = locked(&self.slot);
        if matches!(&*slot, AccountSlot::Granted { account, .. } if *account == id) {
            return Ok(());
        }
        *slot = AccountSlot::Unrequested;
        let share = match account {
            Some(account) => {
                let admitted = quotas.admit_known(&account.name, Some(entry));
                let renews = || self.config.directory.as_ref()?.renews(account.id);
                Some(admitted.map_err(|not| not.dated(renews))?)
            }
            None => {
                let peer = self.arrival.as_ref().map(|arrival| arrival.peer());
                quotas.admit_by_origin(self.address.ip(), peer, Some(entry))?
            }
        };
        // one whose account is cut stays among the strangers; a peer shares beside its account's limits
        if id.is_some() && self.arrival.is_none() {
            self.permit.set_logged_in();
        }
        entry.set_share(share.as_ref());
        if let Some(framing) = &self.framing {
            framing.set_payer(share.as_deref());
        }
        *slot = AccountSlot::Granted { account: id, share };
        Ok(())
    }

    /// The next request is served from now on; fails where the client's address has its share in service.
    pub(crate) fn begin_service(&self) -> Result<(), Failure> {
        let share_used = |used: ShareUsed| {
            static LOGGED: LogThrottle = LogThrottle::new();
            if LOGGED.is_due() {
                let budget = match used {
                    ShareUsed::Places => "budgets.connections",
                    ShareUsed::Memory => "budgets.sessions",
                };
                tracing::warn!(client = %self.address, "a request is refused, because its address has its share of {budget}: {used}");
            }
            let retry_after = Some(Span::from_secs(1));
            Failure { retry_after, ..Failure::new(FailureKind::Exhausted, used.to_string()) }
        };
        self.permit.serve().map_err(share_used)
    }

    /// The connection's membership in its account; `None` where nothing limits it.
    pub(crate) fn share(&self) -> Option<Arc<AccountConnection>> {
        match &*locked(&self.slot) {
            AccountSlot::Granted { share, .. } => share.clone(),
            AccountSlot::Unrequested => None,
        }
    }

    /// Waits until the account's limits allow `bytes`, and counts them. Fails with
    /// [`io::ErrorKind::QuotaExceeded`].
    pub(crate) async fn pass(&self, direction: Direction, bytes: usize) -> io::Result<()> {
        match self.share() {
            Some(share) => share.pass(direction, bytes).await,
            None => Ok(()),
        }
    }

    /// Like [`Self::pass`], for a head: its client can still get an answer.
    pub(crate) async fn pass_head(
        &self,
        direction: Direction,
        bytes: usize,
    ) -> Result<(), Failure> {
        let limit = self.config.settings.timeouts.request_head;
        let passed = tokio::select! {
            biased;
            passed = self.pass(direction, bytes) => passed,
            // the head takes memory; of an answer's head the exchange watches both
            () = self.client.broken(), if direction == Direction::Up => {
                return Err(Failure::client_gone(&self.client.error()));
            }
            () = tokio::time::sleep(limit.into()), if direction == Direction::Up => {
                let text = format!("the account's rate had no room for this request within {limit}");
                return Err(Failure::new(FailureKind::Exhausted, text).retry_after(limit));
            }
        };
        passed.map_err(|over| Failure::new(FailureKind::Denied, over.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::log_throttle::counting::said;
    use crate::policy::accounts::Directory;
    use crate::policy::accounts::testing::OneAccount;
    use crate::session::tests::fixture;
    use crate::settings::Settings;
    use ekiden_testkit::Certificate;
    use tracing::Level;

    #[test]
    fn only_a_password_in_the_clear_is_advised_on_and_by_what_is_configured() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _within = runtime.enter();
        let folder = tempfile::tempdir().unwrap();
        let made = Certificate::self_signed(folder.path(), "own", &["relay.example"]);
        let mut with_tls = Settings::default();
        with_tls.tls.certificate = Some(made.certificate);
        with_tls.tls.key = Some(made.key);
        for (settings, in_log, in_answer) in [
            (Settings::default(), "; configure [tls]", "; ask this relay's operator"),
            (
                with_tls,
                "speak TLS to this relay, at https://relay.example:",
                "; speak TLS to this proxy, at https://relay.example:",
            ),
        ] {
            let known = OneAccount { name: "home", at: [192, 0, 2, 7].into() };
            let directory = Arc::new(known) as Arc<dyn Directory>;
            let made = fixture("192.0.2.1", Some(directory), settings);
            let session = runtime.block_on(made).session;
            let refused = |brought| session.check_password_path(brought).unwrap_err().text;
            let lines = said(Level::WARN, || {
                let text = refused(false);
                assert!(!text.contains("password") && text.contains(in_answer), "{text}");
            });
            assert!(lines.is_empty(), "{lines:?}");
            let lines = said(Level::WARN, || {
                let text = refused(true);
                assert!(text.starts_with("passwords are not accepted"), "{text}");
                assert!(text.contains(in_answer), "{text}");
            });
            assert!(lines.len() == 1 && lines[0].contains(in_log), "{lines:?}");
        }
    }

    #[test]
    fn accepts_cleartext_passwords_within_the_machine_unless_configured() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let usual = Accounts::default();
        for inside in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
            assert!(accepts_passwords(&usual, ip(inside)), "{inside}");
        }
        let cleartext = Accounts { cleartext: true, ..usual.clone() };
        for outside in ["192.168.0.9", "100.64.0.1", "2001:db8::1", "fe80::1"] {
            assert!(!accepts_passwords(&usual, ip(outside)), "{outside}");
            assert!(accepts_passwords(&cleartext, ip(outside)));
        }
    }
}
