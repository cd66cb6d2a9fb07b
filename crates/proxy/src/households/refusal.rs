//! Why a client is not served.

use crate::failure::{Failure, Kind};
use ekiden_linux::clock;
use ekiden_model::quota::Refused;
use ekiden_model::units::{Span, Time};
use std::fmt;
use std::sync::Arc;

/// Why a client is not served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NotAdmitted {
    /// No household claims it, and strangers are refused.
    Stranger,
    /// Its household may not now.
    Household(Arc<str>, Refused),
}

impl NotAdmitted {
    /// The HTTP status, and when to come again.
    pub(crate) fn status(&self) -> (u16, Option<Span>) {
        match self {
            Self::Stranger | Self::Household(_, Refused::Gone) => (403, None),
            Self::Household(_, Refused::Connections(_)) => (429, Some(Span::from_secs(1))),
            Self::Household(_, Refused::Connects(after)) => (429, Some(*after)),
            Self::Household(_, Refused::Spent(Time::NEVER)) => (403, None),
            Self::Household(_, Refused::Spent(ends)) => (403, Some(ends.since(clock::now()))),
        }
    }
}

impl From<NotAdmitted> for Failure {
    fn from(not: NotAdmitted) -> Self {
        let kind = match not.status() {
            (403, _) => Kind::Denied,
            (status, _) => Kind::Malformed(status),
        };
        Self::new(kind, not.to_string())
    }
}

impl fmt::Display for NotAdmitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stranger => f.write_str(
                "no household of this relay claims this client; its operator can add its address to one",
            ),
            Self::Household(name, why) => write!(f, "«{name}»: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_come_again_is_told_when() {
        let household = |why| NotAdmitted::Household("home".into(), why);
        let second = Span::from_secs(1);
        assert_eq!(NotAdmitted::Stranger.status(), (403, None));
        assert_eq!(household(Refused::Connections(7)).status(), (429, Some(second)));
        assert_eq!(household(Refused::Connects(second)).status(), (429, Some(second)));
        assert_eq!(household(Refused::Spent(Time::NEVER)).status(), (403, None));
        assert_eq!(household(Refused::Gone).status(), (403, None));
        let said = household(Refused::Connections(7)).to_string();
        assert_eq!(said, "«home»: the household has 7 connections already");
    }
}
