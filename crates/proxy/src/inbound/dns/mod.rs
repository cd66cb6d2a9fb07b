//! Clients' questions for names: who may ask, how often, and the reply.

pub(crate) mod stream;
#[cfg(test)]
mod tests;
pub(crate) mod udp;

use crate::inbound::udp::forward::admit;
use crate::outbound::dns::resolve::{Names, Resolved};
use crate::outbound::dns::state::Answered;
use crate::policy::access::{Special, special};
use crate::policy::quota::QuestionVerdict;
use crate::runtime::RuntimeConfig;
use crate::settings::Rule;
use crate::wire::dns::{ClientQuestion, Reading, read_question};
use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use ekiden_model::dns::{Asker, Cookie, Outcome, STALE_TTL, is_valid, server_cookie};
use ekiden_model::units::Span;
use ipnet::IpNet;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    Udp(IpAddr),
    Tcp(IpAddr),
    /// A relay, through its tunnel.
    Peer,
}

/// A client that may ask, or a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Client {
    origin: Origin,
    asker: Asker,
    /// The account that its questions and their replies count for; `None`: they count elsewhere, or not.
    payer: Option<Arc<str>>,
}

/// A message that came. It counts once, also where a rate has it wait.
pub(crate) struct Incoming {
    reading: Reading,
    /// As in [`Asked`].
    proven: bool,
    bytes: usize,
    /// Its asker's rate has let it pass; its account may still hold it up.
    within_rate: bool,
}

/// A question that a reply belongs to.
pub(crate) struct Asked {
    question: Box<ClientQuestion>,
    /// Whether it has shown that its address is its own.
    proven: bool,
    /// Its account has nothing left.
    spent: bool,
}

/// What becomes of a message.
pub(crate) enum Handled {
    /// The reply is written.
    Reply,
    /// There is none.
    Silence,
    /// The reply to this question comes later.
    Later(Asked, Pin<Box<dyn Future<Output = Answered> + Send>>),
    /// Of a client's stream: a rate does not let it pass yet. It may come again.
    Wait(Incoming),
}

/// The largest reply to an account that has nothing left, or that forged questions may use up: of a datagram without EDNS
/// (RFC 1035 §2.3.4).
const LEAST_MOST: usize = 512;

impl Origin {
    /// The client's address; `None`: it is a peer.
    const fn client(self) -> Option<IpAddr> {
        match self {
            Self::Udp(client) | Self::Tcp(client) => Some(client),
            Self::Peer => None,
        }
    }

    /// Bytes before each message: its length, on a stream (RFC 1035 §4.2.2).
    const fn around(self) -> usize {
        match self {
            Self::Udp(_) => 0,
            Self::Tcp(_) | Self::Peer => 2,
        }
    }
}

impl Client {
    /// A client, if it may ask.
    pub(crate) fn admit(config: &RuntimeConfig, origin: Origin) -> Option<Self> {
        let (Origin::Udp(client) | Origin::Tcp(client)) = origin else { return None };
        let account = admit(config, SocketAddr::new(client, 0)).ok()?;
        let asker = match &account {
            Some(account) => Asker::Account(account.id),
            None => may_ask(config, client).then(|| Asker::at(client))?,
        };
        let payer = match account {
            // its packets count where they leave its tunnel
            _ if config.is_device(client) => None,
            Some(account) => Some(account.name.as_str().into()),
            None => config.shared.quotas.payer_at(client).ok()?,
        };
        Some(Self { origin, asker, payer })
    }

    /// As whom it has the rate of an account that has nothing left: all addresses of the account are one.
    fn spender(&self) -> Asker {
        // no peer asks at that rate
        self.payer.clone().map_or_else(|| self.asker.clone(), Asker::Peer)
    }

    /// A joined relay, which counts the questions of its clients itself.
    pub(crate) fn peer(name: &str) -> Self {
        Self { origin: Origin::Peer, asker: Asker::Peer(name.into()), payer: None }
    }
}

/// Whether a client without account may ask. A rule for everybody, or from everywhere, admits only private addresses here:
/// whoever sends a question from a forged address would else have this relay send answers there.
fn may_ask(config: &RuntimeConfig, client: IpAddr) -> bool {
    let client = client.to_canonical();
    let rules = &config.settings.access.rules;
    // the first rule about all destinations that is meant for this client
    let applies = |rule: &&Rule| {
        let everybody = rule.from.is_empty() && rule.peers.is_empty();
        let meant = everybody || rule.from.iter().any(|net| net.contains(&client));
        rule.to.is_empty() && meant
    };
    let denied = rules.iter().find(applies).is_some_and(|rule| !rule.allow);
    let names = |net: &IpNet| net.prefix_len() > 0 && net.contains(&client);
    let named = || rules.iter().any(|rule| rule.allow && rule.from.iter().any(names));
    let near =
        matches!(special(client), Some(Special::Loopback | Special::LinkLocal | Special::Private));
    !denied && (near || named())
}

/// Takes in a message of a client that may ask, or of a peer.
pub(crate) fn receive(config: &RuntimeConfig, from: &Client, bytes: &[u8]) -> Incoming {
    let counts = &config.shared.dns.counts;
    let counter = match from.origin {
        Origin::Udp(_) => &counts.udp,
        Origin::Tcp(_) => &counts.tcp,
        Origin::Peer => &counts.peers,
    };
    counter.fetch_add(1, Relaxed);
    let mut reading = read_question(bytes);
    let mut proven = matches!(from.origin, Origin::Tcp(_));
    if let (Reading::Question(question), Some(client)) = (&mut reading, from.origin.client()) {
        proven |= exchange_cookies(config, question, client);
    }
    Incoming { reading, proven, bytes: from.origin.around() + bytes.len(), within_rate: false }
}

/// Takes in a message and handles it.
pub(crate) fn handle(
    config: &Arc<RuntimeConfig>,
    from: &Client,
    bytes: &[u8],
    out: &mut Vec<u8>,
) -> Handled {
    answer(config, from, receive(config, from, bytes), out)
}

/// Handles a message, which may have waited; a reply at once is written into `out`.
pub(crate) fn answer(
    config: &Arc<RuntimeConfig>,
    from: &Client,
    mut incoming: Incoming,
    out: &mut Vec<u8>,
) -> Handled {
    let dns = &config.shared.dns;
    let now = clock::now();
    if !incoming.within_rate {
        incoming.within_rate = match from.origin.client() {
            // the devices of an account have a rate each
            Some(client) => locked(&dns.rate).on_question(now, Asker::at(client), incoming.proven),
            None => locked(&dns.peer_rate).on_question(now, from.asker.clone(), true),
        };
    }
    let verdict = match &from.payer {
        Some(payer) if incoming.within_rate => {
            config.shared.quotas.on_question(payer, incoming.bytes)
        }
        _ => QuestionVerdict::Counts,
    };
    let spent = verdict == QuestionVerdict::Spent;
    let allowed = incoming.within_rate
        && verdict != QuestionVerdict::Later
        && (!spent || locked(&dns.spent_rate).on_question(now, from.spender(), true));
    if !allowed && matches!(from.origin, Origin::Tcp(_)) {
        return Handled::Wait(incoming);
    }
    let Incoming { reading, proven, .. } = incoming;
    if !allowed {
        dns.counts.limited.fetch_add(1, Relaxed);
        return match reading {
            // all clients of a peer share its stream, which thus goes on
            Reading::Question(question) if from.origin == Origin::Peer => {
                reply(config, from, &Asked { question, proven, spent }, &Outcome::Failed, out);
                Handled::Reply
            }
            _ => Handled::Silence,
        };
    }
    let question = match reading {
        Reading::Question(question) => question,
        Reading::Refuse(reply) => {
            dns.counts.malformed.fetch_add(1, Relaxed);
            *out = reply;
            count_reply(config, from, spent, out.len());
            return Handled::Reply;
        }
        Reading::Drop => {
            dns.counts.malformed.fetch_add(1, Relaxed);
            return Handled::Silence;
        }
    };
    let names = Names {
        shared: Arc::clone(&config.shared),
        servers: Arc::clone(&config.name_servers),
        asker: from.asker.clone(),
        around_tunnels: matches!(from.asker, Asker::Peer(_)),
        translated: true,
    };
    let asked = Asked { question, proven, spent };
    match names.resolve(&asked.question.question) {
        Resolved::Now(outcome) => {
            reply(config, from, &asked, &outcome, out);
            Handled::Reply
        }
        Resolved::Later(later) => Handled::Later(asked, later),
    }
}

/// Answers a client's cookie with one of this relay's (RFC 7873 §5.2): whether the client has shown one that its address
/// was given.
fn exchange_cookies(config: &RuntimeConfig, question: &mut ClientQuestion, client: IpAddr) -> bool {
    let dns = &config.shared.dns;
    let (Some(cookie), Some(secret)) = (question.cookie, dns.cookie_secrets.server) else {
        return false;
    };
    // modulo 2^32, as in the cookie
    let now = (clock::wall() / 1_000_000_000) as u32;
    let proven = is_valid(&secret, &cookie, client, now);
    dns.counts.proven.fetch_add(u64::from(proven), Relaxed);
    let server = Some(server_cookie(&secret, cookie.client, client, now));
    question.reply_cookie = Some(Cookie { client: cookie.client, server });
    proven
}

/// Writes the reply into `out`, and remembers the name for the client's connections.
pub(crate) fn reply(
    config: &RuntimeConfig,
    to: &Client,
    Asked { question, proven, spent }: &Asked,
    outcome: &Answered,
    out: &mut Vec<u8>,
) {
    let dns = &config.shared.dns;
    let most = match to.origin {
        _ if *spent => LEAST_MOST,
        Origin::Udp(_) if to.payer.is_some() && !proven => LEAST_MOST,
        Origin::Udp(_) => question.udp_most(),
        Origin::Tcp(_) | Origin::Peer => usize::from(u16::MAX),
    };
    question.reply(outcome, most, out);
    // forged questions may bear the addresses of a whole network; a real client comes again over TCP, or with its cookie
    let is_long = !proven && matches!(to.origin, Origin::Udp(_)) && out.len() > LEAST_MOST;
    if is_long && !locked(&dns.long_replies).on_reply(clock::now(), out.len()) {
        question.reply(outcome, LEAST_MOST, out);
    }
    count_reply(config, to, *spent, out.len());
    // the bit of a truncated message
    if out.get(2).is_some_and(|flags| flags & 2 != 0) {
        dns.counts.truncated.fetch_add(1, Relaxed);
    }
    let (Origin::Udp(client) | Origin::Tcp(client)) = to.origin else { return };
    if config.settings.gateway.is_on() {
        let (answer, ttl) = match outcome {
            Outcome::Fresh(answer, ttl) => (answer, *ttl),
            Outcome::Stale(answer) => (answer, STALE_TTL),
            Outcome::Failed | Outcome::GaveWay => return,
        };
        remember(config, client, question, &answer.addresses, ttl);
    }
}

fn count_reply(config: &RuntimeConfig, to: &Client, spent: bool, bytes: usize) {
    if let Some(payer) = to.payer.as_ref().filter(|_| !spent) {
        config.shared.quotas.on_reply(payer, to.origin.around() + bytes);
    }
}

/// Counts what came on a client's stream and is no question, or was given up.
fn count_discarded(config: &RuntimeConfig, from: &Client, bytes: usize) {
    if let Some(payer) = from.payer.as_ref().filter(|_| bytes > 0) {
        config.shared.quotas.on_discarded(payer, bytes);
    }
}

fn remember(
    config: &RuntimeConfig,
    client: IpAddr,
    question: &ClientQuestion,
    addresses: &[IpAddr],
    ttl: Span,
) {
    if addresses.is_empty() {
        return;
    }
    let mut name = question.question.name.to_ascii();
    name.make_ascii_lowercase();
    let name: Arc<str> = name.trim_end_matches('.').into();
    let now = clock::now();
    let mut heard = locked(&config.shared.dns.heard);
    addresses.iter().for_each(|address| heard.on_answer(now, client, *address, &name, ttl));
}
