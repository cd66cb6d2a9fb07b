//! From a question to its answer: out of memory, or from a server, whom one question asks for all that wait.

use super::ask::ask;
use super::server::NameServers;
use super::state::{Answered, Waiter};
use crate::policy::access::special as special_address;
use crate::runtime::shared::Shared;
use crate::wire::dns::{Answer, Nat64, Question, special};
use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use ekiden_model::dns::{Asker, Decision, Found, Outcome, Released};
use ekiden_model::units::{Span, Time};
use hickory_resolver::proto::rr::RecordType;
use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tokio::sync::oneshot;

/// Between two looks for a question's clients that have waited long enough: some come after it has begun.
const LOOKS: Span = Span::from_millis(250);

/// The answer, or what it comes from.
pub(crate) enum Resolved {
    Now(Answered),
    Later(Pin<Box<dyn Future<Output = Answered> + Send>>),
}

/// Where questions are answered from.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    pub(crate) shared: Arc<Shared>,
    pub(crate) servers: Arc<NameServers>,
    /// Whose the question is.
    pub(crate) asker: Asker,
    /// No server through a tunnel is asked: a peer asks.
    pub(crate) around_tunnels: bool,
    /// Names without IPv6 get a translator's addresses, if there is one.
    pub(crate) translated: bool,
}

/// What a question for a destination's addresses takes.
pub(super) enum Beginning {
    /// Nothing: the answer is there, or somebody has asked.
    Known,
    /// Servers are to be asked.
    New,
    /// They were, but for the rate.
    AboveRate,
}

enum Begun {
    Now(Answered),
    Waiting(oneshot::Receiver<Answered>),
}

impl Names {
    /// Where it is translated, names without IPv6 are answered with a translator's addresses, and the names of such
    /// addresses with aliases.
    pub(crate) fn resolve(&self, question: &Question) -> Resolved {
        let nat64 = self.nat64();
        if let Some(reverse) = nat64.and_then(|nat64| nat64.reverse(question)) {
            let (names, question) = (self.clone(), question.clone());
            return Resolved::Later(Box::pin(names.name_of_v4(question, reverse)));
        }
        let begun = self.begin(question);
        let nat64 = nat64.filter(|_| Nat64::applies(question));
        match (begun, nat64) {
            (Begun::Now(outcome), None) => Resolved::Now(outcome),
            (Begun::Now(outcome), Some(_)) if !lacks(&outcome) => Resolved::Now(outcome),
            (Begun::Waiting(waiting), None) => Resolved::Later(Box::pin(finish(waiting))),
            (begun, Some(nat64)) => {
                let (names, question) = (self.clone(), question.clone());
                Resolved::Later(Box::pin(async move {
                    let outcome = wait(begun).await;
                    if !lacks(&outcome) {
                        return outcome;
                    }
                    let of_v4 = wait(names.begin(&question.of_kind(RecordType::A))).await;
                    let synthesized = synthesize(nat64, &question, &outcome, &of_v4);
                    if synthesized.is_some() {
                        names.shared.dns.counts.synthesized.fetch_add(1, Relaxed);
                    }
                    synthesized.unwrap_or(outcome)
                }))
            }
        }
    }

    /// An alias to the name of the address of IPv4, or what servers answer where it has none.
    async fn name_of_v4(self, question: Question, reverse: Question) -> Answered {
        let of_v4 = wait(self.begin(&reverse)).await;
        let alias = |answer: &Answer| Nat64::alias(&question, &reverse, answer).map(Arc::new);
        let found = match &of_v4 {
            Outcome::Fresh(answer, ttl) => alias(answer).map(|made| Outcome::Fresh(made, *ttl)),
            Outcome::Stale(answer) => alias(answer).map(Outcome::Stale),
            Outcome::Failed | Outcome::GaveWay => return of_v4,
        };
        match found {
            Some(found) => {
                self.shared.dns.counts.synthesized.fetch_add(1, Relaxed);
                found
            }
            None => wait(self.begin(&question)).await,
        }
    }

    fn nat64(&self) -> Option<Nat64> {
        self.servers.nat64.filter(|_| self.translated)
    }

    /// A question for a destination's addresses is to begin. It counts for the asker's rate where servers are to be asked,
    /// and with it that for IPv4 which a translator needs where there is no IPv6. One is worth nothing without the other.
    pub(super) fn begin_of_destination(&self, question: &Question) -> Beginning {
        if special(question).is_some() {
            return Beginning::Known;
        }
        let other = question.of_kind(match question.kind {
            RecordType::A => RecordType::AAAA,
            _ => RecordType::A,
        });
        let translated = self.nat64().is_some() && Nat64::applies(question);
        let (key, other) = (self.key(question), self.key(&other));
        let (dns, now) = (&self.shared.dns, clock::now());
        let (is_known, new) = {
            let answers = locked(&dns.answers);
            let of_other = answers.kept(now, &other);
            let is_known = of_other.is_some_and(|answer| !answer.addresses.is_empty());
            let begins = answers.begins(now, &key);
            // who waits for another's question shares what follows, too
            let lacking = || answers.kept(now, &key).is_some_and(|answer| Nat64::lacks(answer));
            let follows = translated && (begins || lacking()) && answers.begins(now, &other);
            (is_known, u32::from(begins) + u32::from(follows))
        };
        match new {
            0 => Beginning::Known,
            _ if dns.name_rate.on_questions(&self.asker, new, is_known) => Beginning::New,
            _ => Beginning::AboveRate,
        }
    }

    /// The answer, after a wait if need be.
    pub(super) async fn answer(&self, question: &Question) -> Answered {
        match self.resolve(question) {
            Resolved::Now(outcome) => outcome,
            Resolved::Later(later) => later.await,
        }
    }

    /// An answer with addresses that has ended, where servers are not to be asked (RFC 8767).
    pub(super) fn past_end(&self, question: &Question) -> Option<Arc<Answer>> {
        let has_addresses = |answer: &Arc<Answer>| !answer.addresses.is_empty();
        let key = self.key(question);
        locked(&self.shared.dns.answers).past_end(clock::now(), &key, has_addresses)
    }

    fn key(&self, question: &Question) -> Vec<u8> {
        let mut key = question.key();
        // two relays that ask each other must not wait for each other
        if self.around_tunnels && self.servers.uses_tunnels() {
            key.push(1);
        }
        key
    }

    fn begin(&self, question: &Question) -> Begun {
        if let Some(Found { answer, ttl, .. }) = special(question) {
            return Begun::Now(Outcome::Fresh(answer, ttl));
        }
        let key = self.key(question);
        let (mut waiting, mut stopped) = (None, None);
        let waiter = || {
            let (sender, receiver) = oneshot::channel();
            waiting = Some(receiver);
            sender
        };
        let stop = || {
            let (sender, receiver) = oneshot::channel();
            stopped = Some(receiver);
            sender
        };
        let asked = (&*key, self.asker.whole());
        let (decision, displaced) =
            locked(&self.shared.dns.answers).on_question(clock::now(), asked, waiter, stop);
        for gone in displaced {
            drop(gone.question);
            release(gone.released);
        }
        if let Some(stopped) = stopped {
            let asking = Asking { names: self.clone(), key, reported: false };
            tokio::spawn(asking.run(question.clone(), stopped));
        }
        match (decision, waiting) {
            (Decision::Answer { outcome, .. }, _) => Begun::Now(outcome),
            (Decision::Wait { .. }, Some(waiting)) => Begun::Waiting(waiting),
            (Decision::Wait { .. }, None) => Begun::Now(Outcome::Failed),
        }
    }
}

async fn finish(waiting: oneshot::Receiver<Answered>) -> Answered {
    waiting.await.unwrap_or(Outcome::Failed)
}

async fn wait(begun: Begun) -> Answered {
    match begun {
        Begun::Now(outcome) => outcome,
        Begun::Waiting(waiting) => finish(waiting).await,
    }
}

/// Whether a translator's addresses take this answer's place.
fn lacks(outcome: &Answered) -> bool {
    match outcome {
        Outcome::Fresh(answer, _) | Outcome::Stale(answer) => Nat64::lacks(answer),
        Outcome::Failed | Outcome::GaveWay => false,
    }
}

fn synthesize(
    nat64: Nat64,
    question: &Question,
    none: &Answered,
    of_v4: &Answered,
) -> Option<Answered> {
    // no client is shown a way to private networks behind the translator
    let allowed = |v4: Ipv4Addr| special_address(v4.into()).is_none();
    let make = |answer: &Answer, ttl| nat64.synthesize(question, answer, ttl, allowed);
    match (of_v4, none) {
        // no longer than it is known that there are no others (RFC 6147 §5.1.7)
        (Outcome::Fresh(answer, ttl), Outcome::Fresh(_, other)) => {
            let found = make(answer, *ttl)?;
            let ttl = if *other == Span::ZERO { *ttl } else { (*ttl).min(*other) };
            Some(Outcome::Fresh(found.answer, ttl))
        }
        (Outcome::Fresh(answer, _) | Outcome::Stale(answer), _) => {
            make(answer, Span::ZERO).map(|found| Outcome::Stale(found.answer))
        }
        (Outcome::Failed | Outcome::GaveWay, _) => None,
    }
}

/// A question on its way; whatever becomes of it is reported, unless it gives way to others.
struct Asking {
    names: Names,
    key: Vec<u8>,
    reported: bool,
}

impl Asking {
    async fn run(mut self, question: Question, mut stopped: oneshot::Receiver<Infallible>) {
        let Names { shared, servers, around_tunnels, .. } = self.names.clone();
        let mut asking = Box::pin(ask(&shared, &servers, &question, around_tunnels));
        let answered = loop {
            let now = clock::now();
            let look = locked(&shared.dns.answers).deadline(&self.key).min(now + LOOKS);
            tokio::select! {
                answered = &mut asking => break answered,
                // it gave way, or an answer came all the same
                _ = &mut stopped => {
                    self.reported = true;
                    return;
                }
                () = tokio::time::sleep(look.since(now).into()) => {
                    let now = clock::now();
                    let released = locked(&shared.dns.answers).on_deadline(now, &self.key);
                    released.into_iter().for_each(release);
                }
            }
        };
        let found = answered.inspect_err(|why| tracing::debug!("{}: {why}", question.name)).ok();
        self.report(clock::now(), found);
    }

    fn report(&mut self, now: Time, found: Option<Found<Arc<Answer>>>) {
        self.reported = true;
        let mut answers = locked(&self.names.shared.dns.answers);
        let released = match found {
            Some(found) => answers.on_answer(now, &self.key, found),
            None => answers.on_failure(now, &self.key),
        };
        drop(answers);
        release(released);
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if !self.reported {
            self.report(clock::now(), None);
        }
    }
}

fn release((outcome, waiters): Released<Arc<Answer>, Waiter>) {
    for waiter in waiters {
        // a client that has gone needs no answer
        let _ = waiter.send(outcome.clone());
    }
}
