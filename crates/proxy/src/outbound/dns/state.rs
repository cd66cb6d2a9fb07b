//! What reloads keep: answers, names that clients know, rates, counts.

use crate::observe::dns_counts::DnsCounts;
use crate::observe::status::DnsStatus;
use crate::outbound::dns::name_rate::NameRate;
use crate::outbound::dns::random::random;
use crate::outbound::dns::server::NameServers;
use crate::settings::Dns;
use crate::wire::dns::Answer;
use ekiden_linux::host::sync::locked;
use ekiden_model::dns::{
    Answers, Asker, Config, CookieSecret, Heard, LongReplies, Outcome, QuestionRate,
};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use tokio::sync::oneshot;

/// Questions a second of a peer, in those of a client: it asks for all of its own.
pub(super) const CLIENTS_OF_PEER: u32 = 16;
/// Questions a second of an account that has nothing left: its devices look for a page that says so.
const OF_SPENT: u32 = 5;
/// Streams of one client.
const STREAMS_OF_ONE: u32 = 16;
/// Of all clients.
const STREAMS: u32 = 256;

/// What somebody is answered.
pub(crate) type Answered = Outcome<Arc<Answer>>;

/// Who waits for an answer.
pub(crate) type Waiter = oneshot::Sender<Answered>;

/// Its drop ends a question on its way.
pub(crate) type Stop = oneshot::Sender<Infallible>;

#[derive(Debug)]
pub(crate) struct DnsState {
    pub(crate) answers: Mutex<Answers<Arc<Answer>, Waiter, Stop>>,
    pub(crate) heard: Mutex<Heard>,
    pub(crate) rate: Mutex<QuestionRate>,
    /// Of peers, apart from the many addresses that clients may have.
    pub(crate) peer_rate: Mutex<QuestionRate>,
    /// Of accounts that have nothing left.
    pub(crate) spent_rate: Mutex<QuestionRate>,
    /// To all addresses that nothing proves.
    pub(crate) long_replies: Mutex<LongReplies>,
    /// Of names of destinations.
    pub(crate) name_rate: Arc<NameRate>,
    pub(crate) counts: DnsCounts,
    pub(crate) cookie_secrets: CookieSecrets,
    streams: Mutex<BTreeMap<Asker, u32>>,
}

/// Keys of cookies (RFC 7873), which live as long as the process; `None` where the system has no random numbers: there
/// are no cookies then.
#[derive(Clone, Copy)]
pub(crate) struct CookieSecrets {
    /// Towards servers.
    pub(crate) client: Option<CookieSecret>,
    /// Towards clients.
    pub(crate) server: Option<CookieSecret>,
}

impl fmt::Debug for CookieSecrets {
    // a log must not show them
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CookieSecrets").finish_non_exhaustive()
    }
}

fn config(dns: &Dns) -> Config {
    Config {
        memory: dns.memory,
        min_ttl: dns.min_ttl,
        max_ttl: dns.max_ttl,
        negative_ttl: dns.negative_ttl,
        stale: dns.stale,
        ..Config::default()
    }
}

const fn rate_of_peer(dns: &Dns) -> u32 {
    dns.rate.saturating_mul(CLIENTS_OF_PEER)
}

impl DnsState {
    pub(crate) fn new(dns: &Dns) -> Self {
        Self {
            answers: Mutex::new(Answers::new(config(dns))),
            heard: Mutex::default(),
            rate: Mutex::new(QuestionRate::new(dns.rate)),
            peer_rate: Mutex::new(QuestionRate::new(rate_of_peer(dns))),
            spent_rate: Mutex::new(QuestionRate::new(OF_SPENT)),
            long_replies: Mutex::default(),
            name_rate: Arc::new(NameRate::new(dns)),
            counts: DnsCounts::default(),
            cookie_secrets: CookieSecrets { client: random(), server: random() },
            streams: Mutex::default(),
        }
    }

    /// Other settings from now on.
    pub(crate) fn configure(&self, dns: &Dns) {
        locked(&self.answers).configure(config(dns));
        locked(&self.rate).configure(dns.rate);
        locked(&self.peer_rate).configure(rate_of_peer(dns));
        self.name_rate.configure(dns);
    }

    /// Room for a client's stream; `None`: it has too many, or all have. A network of IPv6 is one client.
    pub(crate) fn stream(self: &Arc<Self>, client: IpAddr) -> Option<StreamPlace> {
        let client = Asker::at(client);
        let mut streams = locked(&self.streams);
        let all: u32 = streams.values().sum();
        let own = streams.entry(client.clone()).or_default();
        if all >= STREAMS || *own >= STREAMS_OF_ONE {
            // an entry that was just made has no streams
            if *own == 0 {
                streams.remove(&client);
            }
            return None;
        }
        *own += 1;
        Some(StreamPlace { state: Arc::clone(self), client })
    }

    pub(crate) fn status(&self, dns: &Dns, servers: &NameServers) -> Option<DnsStatus> {
        let seen = locked(&self.answers).snapshot();
        let count = |counter: &AtomicU64| counter.load(Relaxed);
        let counts = &self.counts;
        let asked = [&counts.udp, &counts.tcp, &counts.peers].map(count);
        let names_limited = self.name_rate.limited();
        if dns.listen.is_empty() && seen.asked == 0 && asked == [0; 3] && names_limited == 0 {
            return None;
        }
        Some(DnsStatus {
            listen: dns.listen.clone(),
            unavailable: Vec::new(),
            questions_udp: asked[0],
            questions_tcp: asked[1],
            questions_peers: asked[2],
            cached: seen.fresh,
            stale: seen.stale,
            failed: seen.failed,
            joined: seen.joined,
            asked: seen.asked,
            prefetched: seen.prefetched,
            entries: seen.entries,
            bytes: seen.bytes,
            memory: dns.memory.as_u64(),
            evicted: seen.evicted,
            malformed: count(&counts.malformed),
            refused: count(&counts.refused),
            limited: count(&counts.limited),
            names_limited,
            proven: count(&counts.proven),
            truncated: count(&counts.truncated),
            lies: count(&counts.lies),
            left_out: count(&counts.left_out),
            synthesized: count(&counts.synthesized),
            named: count(&counts.named),
            servers: servers.status(),
        })
    }
}

/// A stream's room until it is dropped.
#[derive(Debug)]
pub(crate) struct StreamPlace {
    state: Arc<DnsState>,
    client: Asker,
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        let mut streams = locked(&self.state.streams);
        if let Some(own) = streams.get_mut(&self.client) {
            *own -= 1;
            if *own == 0 {
                streams.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_ipv6_has_the_streams_of_one_client() {
        let state = Arc::new(DnsState::new(&Dns::default()));
        let take = |text: &str| state.stream(text.parse().unwrap());
        let all: Vec<_> = (0..300).filter_map(|n| take(&format!("2001:db8::{n:x}"))).collect();
        assert_eq!(all.len() as u32, STREAMS_OF_ONE);
        assert!(take("2001:db8:0:1::1").is_some() && take("192.0.2.1").is_some());
        drop(all);
        assert!(take("2001:db8::1").is_some());
        assert!(locked(&state.streams).is_empty());
    }
}
