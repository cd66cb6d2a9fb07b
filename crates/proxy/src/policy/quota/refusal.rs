//! Why an account's limits refuse a client.

use crate::error::{Failure, FailureKind};
use ekiden_linux::host::clock;
use ekiden_model::resources::quota::Refused;
use ekiden_model::units::{Span, Time};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NotAdmitted {
    /// No account claims the client, and the settings refuse such clients.
    Unclaimed,
    Account(Arc<str>, Refused),
    /// The same, with the moment at which the quota begins anew in the account's time zone.
    Dated(Arc<str>, Refused, String),
}

impl NotAdmitted {
    /// The account, where its volume is used up.
    pub(crate) fn spent_account(&self) -> Option<Arc<str>> {
        match self {
            Self::Account(name, why) | Self::Dated(name, why, _) => {
                matches!(why, Refused::Spent(_)).then(|| Arc::clone(name))
            }
            Self::Unclaimed => None,
        }
    }

    /// Says when the quota begins anew in the words of the account's page, where that is what refuses.
    pub(crate) fn dated(self, renews: impl FnOnce() -> Option<String>) -> Self {
        match self {
            Self::Account(name, why @ Refused::Spent(ends)) if ends != Time::NEVER => {
                match renews() {
                    Some(moment) => Self::Dated(name, why, moment),
                    None => Self::Account(name, why),
                }
            }
            other => other,
        }
    }

    /// The HTTP status, and when to try again.
    pub(crate) fn status(&self) -> (u16, Option<Span>) {
        let (Self::Account(_, why) | Self::Dated(_, why, _)) = self else { return (403, None) };
        match why {
            Refused::Gone | Refused::Spent(Time::NEVER) => (403, None),
            Refused::Connections(_) => (429, Some(Span::from_secs(1))),
            Refused::Connects(after) => (429, Some(*after)),
            Refused::Spent(ends) => (403, Some(ends.since(clock::now()))),
        }
    }
}

impl From<NotAdmitted> for Failure {
    fn from(not: NotAdmitted) -> Self {
        let (status, retry_after) = not.status();
        let kind = match status {
            403 => FailureKind::Denied,
            status => FailureKind::Malformed(status),
        };
        Self { retry_after, ..Self::new(kind, not.to_string()) }
    }
}

impl fmt::Display for NotAdmitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unclaimed => f.write_str(
                "no account of this relay claims this client; its operator can add its address to one",
            ),
            Self::Account(name, why) => {
                write!(f, "account \"{name}\": {why}")?;
                match why {
                    Refused::Spent(Time::NEVER) => f.write_str(" and does not begin anew"),
                    Refused::Spent(ends) => match moment(*ends) {
                        Some(moment) => write!(f, "; it begins anew at {moment}"),
                        None => Ok(()),
                    },
                    _ => Ok(()),
                }
            }
            Self::Dated(name, why, moment) => {
                write!(f, "account \"{name}\": {why}; it begins anew at {moment}")
            }
        }
    }
}

/// The moment, UTC, to the nearest second: two clocks are read.
fn moment(at: Time) -> Option<String> {
    let after =
        Duration::from_nanos(at.since(clock::now()).as_nanos()) + Duration::from_millis(500);
    let moment = SystemTime::now().checked_add(after)?;
    Some(humantime::format_rfc3339_seconds(moment).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_request_says_when_to_try_again() {
        let failure = Failure::from(NotAdmitted::Account("home".into(), Refused::Connections(7)));
        let text = String::from_utf8(failure.response("ekiden-1", false)).unwrap();
        assert!(text.starts_with("HTTP/1.1 429 ") && text.contains("\r\nRetry-After: 1\r\n"));
        assert!(text.contains("error=http_request_denied"), "{text}");
    }

    #[test]
    fn names_the_status_and_the_time_to_retry() {
        let account = |why| NotAdmitted::Account("home".into(), why);
        let second = Span::from_secs(1);
        assert_eq!(NotAdmitted::Unclaimed.status(), (403, None));
        assert_eq!(account(Refused::Connections(7)).status(), (429, Some(second)));
        assert_eq!(account(Refused::Connects(second)).status(), (429, Some(second)));
        assert_eq!(account(Refused::Spent(Time::NEVER)).status(), (403, None));
        assert_eq!(account(Refused::Gone).status(), (403, None));
        let text = account(Refused::Connections(7)).to_string();
        assert_eq!(text, "account \"home\": the account has 7 connections already");
        let one = Refused::Connections(1).to_string();
        assert_eq!(one, "the account has 1 connection already");
        let text = account(Refused::Spent(Time::NEVER)).to_string();
        assert_eq!(
            text,
            "account \"home\": the account's quota is used up and does not begin anew"
        );
        let spent = || account(Refused::Spent(clock::now() + Span::from_secs(86_400)));
        let dated = spent().dated(|| Some("2026-12-01 00:00 Asia/Tokyo".to_owned()));
        assert!(dated.to_string().ends_with("it begins anew at 2026-12-01 00:00 Asia/Tokyo"));
        assert!(dated.spent_account().is_some() && dated.status().0 == 403);
        assert!(dated.status().1.is_some());
        assert_eq!(account(Refused::Gone).dated(|| panic!("it does not")).status(), (403, None));
        let tomorrow = SystemTime::now() + Duration::from_secs(86_400);
        let text = account(Refused::Spent(clock::now() + Span::from_secs(86_400))).to_string();
        let (_, said) = text.split_once("used up; it begins anew at ").unwrap();
        let said = humantime::parse_rfc3339(said).unwrap();
        let apart = said.duration_since(tomorrow).unwrap_or_else(|error| error.duration());
        assert!(apart < Duration::from_secs(60), "{text}");
    }
}
