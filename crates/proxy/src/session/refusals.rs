//! Lines of the log about refusals: one in ten seconds of each kind, the rest counted.

use super::{LogEntry, Session};
use crate::destination::Destination;
use crate::error::{Failure, FailureKind};
use crate::observe::log_throttle::{LogThrottle, left_out_in_words};

/// Which line a refused request has. Malformed ones and those that lack a log-in have none: any scanner makes them, and
/// every browser begins without a log-in.
const fn kind(of: FailureKind) -> Option<usize> {
    match of {
        FailureKind::Denied => Some(0),
        FailureKind::Prohibited => Some(1),
        FailureKind::Malformed(429) => Some(2),
        FailureKind::Loop => Some(3),
        _ => None,
    }
}

impl Session {
    /// A client is refused before it asks for anything.
    pub(crate) fn count_and_log_refusal(&self, why: &str) {
        self.registration.count_refused();
        let lines = &self.config.shared.refusals.door[self.has_account()];
        if !self.warn_of_refusal(lines, why, || None) {
            tracing::debug!(client = %self.address, "refused: {why}");
        }
    }

    /// A request is refused. Level debug has each by its end.
    pub(super) fn log_refusal(&self, entry: &LogEntry, failure: &Failure) {
        let Some(kind) = kind(failure.kind) else { return };
        let lines = &self.config.shared.refusals.requests[self.has_account()][kind];
        self.warn_of_refusal(lines, &failure.text, || entry.destination().map(str::to_owned));
    }

    /// A datagram is refused; `to` where that is known besides its failure's text.
    pub(crate) fn log_refused_datagram(&self, to: Option<&Destination>, failure: &Failure) {
        let Some(kind) = kind(failure.kind) else { return };
        let lines = &self.config.shared.refusals.requests[self.has_account()][kind];
        if !self.warn_of_refusal(lines, &failure.text, || to.map(ToString::to_string)) {
            tracing::debug!(client = %self.address, "a datagram is refused: {}", failure.text);
        }
    }

    /// 1 for clients of an account, and those that a peer speaks for.
    fn has_account(&self) -> usize {
        let is_known = self.arrival.is_some() || self.registration.entry.account().is_some();
        usize::from(is_known)
    }

    /// Returns whether there is a line now.
    fn warn_of_refusal(
        &self,
        lines: &LogThrottle,
        why: &str,
        destination: impl FnOnce() -> Option<String>,
    ) -> bool {
        let Some(left_out) = lines.due() else { return false };
        let (account, destination) = (self.registration.entry.account(), destination());
        let account = account.as_ref().map(|account| account.name.as_str());
        let peer = self.arrival.as_ref().map(|arrival| arrival.peer());
        let destination = destination.as_deref();
        let left_out = left_out_in_words(left_out);
        tracing::warn!(
            client = %self.address,
            peer,
            account,
            destination,
            "refused: {why}{left_out}; the status counts all, and level debug logs all"
        );
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::log_throttle::counting::said;
    use crate::observe::registry::Protocol;
    use crate::policy::accounts::testing::account;
    use crate::session::tests::fixture;
    use crate::settings::Settings;
    use tracing::Level;

    #[test]
    fn refused_requests_of_an_account_are_in_the_log_with_their_destinations() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _within = runtime.enter();
        let session = runtime.block_on(fixture("192.0.2.1", None, Settings::default())).session;
        let refuse = |kind, target: &str| {
            let mut entry = session.new_entry(Protocol::Http);
            entry.target = Some(target.to_owned());
            session.on_failure(&mut entry, &Failure::new(kind, "not there"));
        };
        let lines = said(Level::WARN, || {
            // strangers' do not hide those of an account
            refuse(FailureKind::Prohibited, "192.168.1.1:22");
            session.set_account(Some(account(7, "home")));
            for path in ["secret", "other", "more"] {
                refuse(FailureKind::Prohibited, &format!("http://10.0.0.1/{path}"));
            }
            refuse(FailureKind::Malformed(429), "example.org:443");
            refuse(FailureKind::Denied, "example.org:443");
            // these have no line
            refuse(FailureKind::LogIn, "example.org:443");
            refuse(FailureKind::Malformed(400), "example.org:443");
            refuse(FailureKind::TimedOut, "example.org:443");
        });
        assert_eq!(lines.len(), 4, "{lines:#?}");
        assert!(lines[0].contains("destination=\"192.168.1.1:22\""), "{lines:#?}");
        assert!(!lines[0].contains("account="), "{lines:#?}");
        for part in [
            "client=192.0.2.1:5000 ",
            "account=\"home\" ",
            "destination=\"10.0.0.1\" ",
            "refused: ",
        ] {
            assert!(lines[1].contains(part), "{part}: {lines:#?}");
        }
    }

    #[test]
    fn refused_datagrams_of_an_account_are_in_the_log() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _within = runtime.enter();
        let session = runtime.block_on(fixture("192.0.2.1", None, Settings::default())).session;
        session.set_account(Some(account(7, "home")));
        let to = Destination::parse("10.0.0.1:53", None).unwrap();
        let refused = Failure::new(FailureKind::Prohibited, "not there");
        let refuse = || (0..3).for_each(|_| session.log_refused_datagram(Some(&to), &refused));
        let lines = said(Level::WARN, refuse);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains("account=\"home\" destination=\"10.0.0.1:53\" "), "{lines:?}");
    }

    #[test]
    fn at_level_debug_a_refusal_s_end_names_client_and_account() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _within = runtime.enter();
        let session = runtime.block_on(fixture("192.0.2.1", None, Settings::default())).session;
        session.set_account(Some(account(7, "home")));
        let failure = Failure::new(FailureKind::Prohibited, "not there");
        let lines = said(Level::DEBUG, || {
            session.on_failure(&mut session.new_entry(Protocol::Connect), &failure);
        });
        let ended = lines.iter().find(|line| line.contains("ended: not there")).unwrap();
        assert!(ended.contains("client=192.0.2.1:5000 account=\"home\" "), "{ended}");
    }
}
