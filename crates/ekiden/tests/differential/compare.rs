//! Two programs' readings of the same bytes.

use super::programs::{Ended, Reading};
use super::recorder::Received;
use std::cmp::Ordering;

/// How two readings relate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Relation {
    /// The same requests.
    Same,
    /// The other program refused or closed where Ekiden passed a request on.
    OtherStricter,
    /// Ekiden refused or closed where the other program passed a request on.
    EkidenStricter,
    /// Both passed requests on, and differ.
    Differs(Difference),
}

/// What differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Difference {
    /// Ekiden wrote a message that a strict reader refuses.
    Malformed,
    /// A body's bytes, or their number.
    Body,
    /// Ekiden takes bytes for a request that the other takes for a body, or waits with.
    MoreRequests,
    /// The other takes bytes for a request that Ekiden takes for a body, or waits with.
    FewerRequests,
    Method,
    Target,
    Host,
}

impl Difference {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Body => "body",
            Self::MoreRequests => "more requests",
            Self::FewerRequests => "fewer requests",
            Self::Method => "method",
            Self::Target => "target",
            Self::Host => "host",
        }
    }
}

/// Compares Ekiden's reading with another program's.
pub(super) fn compare(ekiden: &Reading, other: &Reading) -> Relation {
    use Difference::{Body, FewerRequests, Host, Malformed, Method, MoreRequests, Target};
    if ekiden.requests.iter().any(|request| request.malformed.is_some()) {
        return Relation::Differs(Malformed);
    }
    // where both wait for the rest of a message, nginx keeps its beginning to itself
    let both = ekiden.ended == Ended::Waits && other.ended == Ended::Waits;
    let (ours, theirs) = (passed_on(ekiden, both), passed_on(other, both));
    for (ours, theirs) in ours.iter().zip(&theirs) {
        let difference = match () {
            () if ours.method != theirs.method => Some(Method),
            () if ours.path != theirs.path => Some(Target),
            () if ours.host != theirs.host => Some(Host),
            () if ours.whole && theirs.whole => (ours.body != theirs.body).then_some(Body),
            () if ours.whole => Some(MoreRequests),
            () => Some(FewerRequests),
        };
        if let Some(difference) = difference {
            return Relation::Differs(difference);
        }
    }
    match ours.len().cmp(&theirs.len()) {
        Ordering::Equal => Relation::Same,
        Ordering::Greater if other.ended == Ended::Waits => Relation::Differs(MoreRequests),
        Ordering::Greater => Relation::OtherStricter,
        Ordering::Less if ekiden.ended == Ended::Waits => Relation::Differs(FewerRequests),
        Ordering::Less => Relation::EkidenStricter,
    }
}

/// A message that was cut is none: its receiver sees no end.
fn passed_on(reading: &Reading, whole: bool) -> Vec<&Received> {
    let begun = reading.ended == Ended::Waits && !whole;
    reading.requests.iter().filter(|request| request.whole || begun).collect()
}
