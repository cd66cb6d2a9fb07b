//! Lookups of the names that datagrams go to, one a name, and the datagrams that wait for them.

use crate::destination::Destination;
use crate::error::{Failure, FailureKind};
use crate::outbound::dns::own::lookup;
use crate::outbound::resolve::TOO_MANY;
use crate::policy::route::Route;
use crate::runtime::RuntimeConfig;
use crate::settings::Family;
use crate::transfer::budget::ReservedMemory;
use ekiden_model::dns::Asker;
use ekiden_model::units::Span;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::timeout;

/// Names looked up at a time; datagrams to further names are dropped meanwhile.
const MOST_NAMES: usize = 16;

/// The most addresses of a name that are tried.
const MOST_ADDRESSES: usize = 8;

/// A name's addresses, at least one.
type Found = Result<Vec<IpAddr>, Failure>;

#[derive(Debug, Default)]
pub(super) struct NameLookups {
    tasks: JoinSet<(String, Found)>,
    waiting: BTreeMap<String, Waiting>,
    ended: VecDeque<Result<(String, Found), JoinError>>,
}

#[derive(Debug)]
struct Waiting {
    task: Id,
    datagrams: VecDeque<WaitingDatagram>,
}

/// A datagram that waits for the address of its destination.
#[derive(Debug)]
pub(super) struct WaitingDatagram {
    pub(super) route: Arc<Route>,
    pub(super) to: Destination,
    pub(super) payload: Vec<u8>,
    pub(super) _memory: ReservedMemory,
}

/// A lookup that has ended, and the datagrams that waited for it, in their order.
#[derive(Debug)]
pub(super) struct EndedLookup {
    pub(super) name: String,
    pub(super) found: Found,
    pub(super) datagrams: VecDeque<WaitingDatagram>,
}

impl NameLookups {
    /// The datagrams that wait for a name, whose lookup begins if it is not under way. `None`: too many names are being
    /// looked up.
    pub(super) fn begin(
        &mut self,
        config: &Arc<RuntimeConfig>,
        name: &str,
        asker: Asker,
    ) -> Option<&mut VecDeque<WaitingDatagram>> {
        if !self.waiting.contains_key(name) {
            if self.waiting.len() >= MOST_NAMES {
                return None;
            }
            let (config, asked) = (Arc::clone(config), name.to_owned());
            let task = self.tasks.spawn(async move {
                let found = resolve(&config, &asked, &asker).await;
                (asked, found)
            });
            let waiting = Waiting { task: task.id(), datagrams: VecDeque::new() };
            self.waiting.insert(name.to_owned(), waiting);
        }
        self.waiting.get_mut(name).map(|waiting| &mut waiting.datagrams)
    }

    /// Whether some have ended, which [`Self::take_ended`] takes; if not, the task wakes when one ends.
    pub(super) fn poll_ended(&mut self, cx: &mut Context<'_>) -> bool {
        while let Poll::Ready(Some(ended)) = self.tasks.poll_join_next(cx) {
            self.ended.push_back(ended);
        }
        !self.ended.is_empty()
    }

    pub(super) fn take_ended(&mut self) -> Option<EndedLookup> {
        let (name, found) = match self.ended.pop_front()? {
            Ok(ended) => ended,
            // a resolver's panic counts as no answer
            Err(error) => {
                let mut waiting = self.waiting.iter();
                let (name, _) = waiting.find(|(_, waiting)| waiting.task == error.id())?;
                (name.clone(), Err(unresolved(name, "no answer")))
            }
        };
        let datagrams = self.waiting.remove(&name).map(|waiting| waiting.datagrams);
        Some(EndedLookup { name, found, datagrams: datagrams.unwrap_or_default() })
    }
}

fn unresolved(name: &str, why: &str) -> Failure {
    // no fault of the name's
    let kind = if why == TOO_MANY { FailureKind::Exhausted } else { FailureKind::NoName };
    Failure::new(kind, format!("{name} cannot be resolved: {why}"))
}

/// A name's addresses, the preferred family first; never none.
pub(super) async fn resolve(config: &RuntimeConfig, name: &str, asker: &Asker) -> Found {
    let (want_v6, want_v4) = config.resolver.families();
    let limit = config.settings.timeouts.resolve;
    let look = |ipv6: bool, wanted: bool| async move {
        if !wanted {
            return Ok(Vec::new());
        }
        match timeout(limit.into(), lookup(config, name, ipv6, asker)).await {
            Ok(found) => found.map_err(|error| unresolved(name, &error)),
            Err(_) => {
                let text = format!("{name} cannot be resolved: no answer within {limit}");
                Err(Failure::new(FailureKind::NameTimedOut, text))
            }
        }
    };
    let dns = &config.settings.dns;
    let ipv6_first = matches!(dns.prefer, Family::Ipv6 | Family::Ipv6Only);
    // a preferred family that is never answered is not waited for each time
    let delay = |ipv6: bool| match ipv6 == ipv6_first {
        true => config.resolver.answers(|answers| answers.delay(dns.resolution_delay)),
        false => dns.resolution_delay,
    };
    let (v6, v4) = both(look(true, want_v6), look(false, want_v4), delay).await;
    let failed = v6.as_ref().err().or(v4.as_ref().err()).cloned();
    let (v6, v4) = (v6.unwrap_or_default(), v4.unwrap_or_default());
    let mut found = if ipv6_first { [v6, v4].concat() } else { [v4, v6].concat() };
    found.truncate(MOST_ADDRESSES);
    if found.is_empty() {
        let none = || Failure::new(FailureKind::NoName, format!("{name} has no address"));
        return Err(failed.unwrap_or_else(none));
    }
    Ok(found)
}

/// The answers for IPv6 and for IPv4. Once one has addresses, the other is waited for no longer than its resolution delay
/// (RFC 8305 §3), `delay(ipv6)`: some servers never answer AAAA.
async fn both(
    v6: impl Future<Output = Found>,
    v4: impl Future<Output = Found>,
    delay: impl Fn(bool) -> Span,
) -> (Found, Found) {
    let (mut v6, mut v4) = (pin!(v6), pin!(v4));
    tokio::select! {
        v6 = &mut v6 => {
            let v4 = second(&v6, v4, || delay(false)).await;
            (v6, v4)
        }
        v4 = &mut v4 => {
            let v6 = second(&v4, v6, || delay(true)).await;
            (v6, v4)
        }
    }
}

async fn second(
    first: &Found,
    second: impl Future<Output = Found>,
    delay: impl FnOnce() -> Span,
) -> Found {
    match first {
        Ok(addresses) if !addresses.is_empty() => {
            timeout(delay().into(), second).await.unwrap_or_else(|_| Ok(Vec::new()))
        }
        _ => second.await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::{Instant, sleep};

    const LIMIT: Duration = Duration::from_secs(5);

    fn addresses(n: u8) -> Found {
        Ok(vec![[192, 0, 2, n].into()])
    }

    /// An answer after so many milliseconds.
    async fn after(wait: u64, found: Found) -> Found {
        sleep(Duration::from_millis(wait)).await;
        found
    }

    /// What both answer with a delay of 50 ms, and after how many milliseconds.
    async fn found(v6: (u64, Found), v4: (u64, Found)) -> (usize, usize, u128) {
        let begun = Instant::now();
        let (v6, v4) = both(after(v6.0, v6.1), after(v4.0, v4.1), |_| Span::from_millis(50)).await;
        let count = |found: Found| found.map_or(9, |list| list.len());
        (count(v6), count(v4), begun.elapsed().as_millis())
    }

    #[tokio::test(start_paused = true)]
    async fn a_family_that_is_never_answered_takes_no_address_of_the_other() {
        let late = || (LIMIT.as_millis() as u64, Err(unresolved("a.example", "no answer")));
        assert_eq!(found(late(), (20, addresses(1))).await, (0, 1, 70));
        assert_eq!(found((20, addresses(1)), late()).await, (1, 0, 70));
        // there is nothing else to use
        assert_eq!(found(late(), (20, Ok(vec![]))).await, (9, 0, 5_000));
        assert_eq!(found((4_000, addresses(1)), late()).await, (1, 0, 4_050));
    }

    #[tokio::test(start_paused = true)]
    async fn both_families_are_used_where_both_answer_soon() {
        assert_eq!(found((20, addresses(1)), (60, addresses(2))).await, (1, 1, 60));
        assert_eq!(found((20, Ok(vec![])), (3_000, addresses(2))).await, (0, 1, 3_000));
    }
}
