//! An upstream proxy and its health.

use crate::destination::{Destination, Host};
use crate::error::{Failure, FailureKind};
use crate::observe::flap_lines::FlapLines;
use crate::observe::named_leg::NamedLeg;
use crate::observe::status::{TunnelStatus, UpstreamStatus};
use crate::policy::trust;
use crate::settings::{Upstream, UpstreamProtocol};
use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use ekiden_model::connect::failover::{Config, Health};
use ekiden_model::units::{Span, Time};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

#[derive(Debug)]
pub(crate) struct Hop {
    pub(crate) name: String,
    pub(crate) upstream: Upstream,
    pub(crate) leg: Arc<NamedLeg>,
    /// Where it speaks TLS.
    pub(crate) tls: Option<ClientTls>,
    /// Kept over reloads.
    health: Arc<Mutex<HopHealth>>,
    /// Requests of clients at its own address that it has not answered, by destination.
    returned: Mutex<HashMap<Destination, usize>>,
}

#[derive(Debug)]
struct HopHealth {
    health: Health,
    /// In words.
    last_error: Option<String>,
    lines: FlapLines,
    /// When it last answered.
    answered: Time,
    /// When it last began to rest.
    failed: Time,
}

impl HopHealth {
    fn new() -> Self {
        let health = Health::new(Config::default());
        Self {
            health,
            last_error: None,
            lines: FlapLines::default(),
            answered: Time::ZERO,
            failed: Time::ZERO,
        }
    }
}

/// Requests to one destination that come from the upstream's own address and wait for its answer: that many are a ring.
const MOST_RETURNED: usize = 64;

/// A request that may have come around; its drop ends it.
#[derive(Debug)]
pub(crate) struct Returned<'a> {
    hop: &'a Hop,
    to: &'a Destination,
}

impl Drop for Returned<'_> {
    fn drop(&mut self) {
        let mut returned = locked(&self.hop.returned);
        if let Some(count) = returned.get_mut(self.to) {
            *count -= 1;
            if *count == 0 {
                returned.remove(self.to);
            }
        }
    }
}

/// A wait for an upstream's answer. Its drop, where the client leaves, is a failure after some patience: clients that
/// have less than this relay must not hide that the upstream is away.
pub(crate) struct Waiting<'a> {
    hop: &'a Hop,
    since: Time,
    patience: Span,
}

impl Waiting<'_> {
    /// The wait is over, and its outcome known; returns when it began.
    pub(crate) fn end(self) -> Time {
        let since = self.since;
        std::mem::forget(self);
        since
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let waited = clock::now().since(self.since);
        if waited >= self.patience {
            let text = format!("it had not answered after {waited}, when the client left");
            self.hop.on_no_answer(self.since, &Failure::new(FailureKind::TimedOut, text));
        }
    }
}

/// TLS to an upstream proxy.
#[derive(Debug)]
pub(crate) struct ClientTls {
    pub(crate) config: Arc<ClientConfig>,
    /// Its name or address, which its certificate must hold.
    pub(crate) name: ServerName<'static>,
}

impl ClientTls {
    fn new(name: &str, upstream: &Upstream) -> Result<Option<Self>, String> {
        if upstream.protocol != UpstreamProtocol::Https {
            return Ok(None);
        }
        let wrong = |why: String| format!("upstream \"{name}\": {why}");
        let config = trust::client(&upstream.tls).map_err(wrong)?;
        let name = ServerName::try_from(upstream.host.clone()).map_err(|_| {
            wrong(format!("\"{}\" cannot be a name in a certificate", upstream.host))
        })?;
        Ok(Some(Self { config, name }))
    }
}

impl Hop {
    /// An upstream proxy; one that is unchanged since `before` keeps its health. Fails in words where
    /// TLS to it cannot be set up.
    pub(crate) fn new(
        name: &str,
        upstream: &Upstream,
        leg: Arc<NamedLeg>,
        before: Option<&Self>,
    ) -> Result<Self, String> {
        // the file of authorities is read anew
        let tls = ClientTls::new(name, upstream)?;
        let same = before.filter(|hop| hop.upstream == *upstream);
        let health = same.map(|hop| Arc::clone(&hop.health));
        let new = || Arc::new(Mutex::new(HopHealth::new()));
        let (name, upstream) = (name.to_owned(), upstream.clone());
        let (health, returned) = (health.unwrap_or_else(new), Mutex::default());
        Ok(Self { name, upstream, leg, tls, health, returned })
    }

    /// A client at this upstream's own address asks for `to`. Without private methods, and through another program's
    /// SOCKS proxy, nothing tells which relays a request has passed: a ring is known by the number of requests, where
    /// its relays follow each other. Errors: it is too large.
    pub(crate) fn on_returned<'a>(&'a self, to: &'a Destination) -> Result<Returned<'a>, Failure> {
        let mut returned = locked(&self.returned);
        let count = returned.entry(to.clone()).or_default();
        if *count == MOST_RETURNED {
            let text = format!(
                "{MOST_RETURNED} requests for {to} came from upstream \"{}\" and wait for it: the relays are a ring",
                self.name
            );
            return Err(Failure::new(FailureKind::Loop, text));
        }
        *count += 1;
        Ok(Returned { hop: self, to })
    }

    pub(crate) fn destination(&self) -> Result<Destination, Failure> {
        let Upstream { host, port, .. } = &self.upstream;
        let host = Host::from_name(host.trim_matches(['[', ']']));
        let host = host.map_err(|bad| {
            Failure::new(FailureKind::NoName, format!("upstream \"{}\": {bad}", self.name))
        })?;
        Ok(Destination { host, port: *port })
    }

    pub(crate) fn is_available(&self, now: Time) -> bool {
        locked(&self.health).health.is_available(now)
    }

    /// It is asked something now.
    pub(crate) fn wait(&self, patience: Span) -> Waiting<'_> {
        Waiting { hop: self, since: clock::now(), patience }
    }

    pub(crate) fn on_success(&self) {
        let now = clock::now();
        let HopHealth { health, lines, answered, .. } = &mut *locked(&self.health);
        let was_failed = health.failures() > 0;
        health.on_success();
        *answered = now;
        if let Some(left_out) = lines.next(now, false, was_failed) {
            tracing::info!(upstream = %self.name, left_out, "upstream reachable again");
        }
    }

    /// What it was asked at `since` had no answer in time. Where it has answered others since, the destination is at fault:
    /// clients that ask for silent ones must not take the upstream from others.
    pub(crate) fn on_no_answer(&self, since: Time, failure: &Failure) {
        let is_silent = {
            let HopHealth { health, answered, failed, .. } = &*locked(&self.health);
            // while it rests nobody else asks it
            let while_resting = *failed <= since && !health.is_available(since);
            *answered < since && !while_resting
        };
        if is_silent {
            self.on_failure(failure);
        }
    }

    pub(crate) fn on_failure(&self, failure: &Failure) {
        // exhaustion is this machine's own condition
        if failure.kind == FailureKind::Exhausted {
            return;
        }
        let now = clock::now();
        let HopHealth { health, last_error, lines, failed, .. } = &mut *locked(&self.health);
        let is_news = health.is_available(now);
        health.on_failure(now);
        if is_news {
            *failed = now;
        }
        if let Some(left_out) = lines.next(now, true, is_news) {
            let retry_in = health.deadline().since(now);
            tracing::warn!(upstream = %self.name, %failure, %retry_in, left_out, "upstream unreachable; backing off");
        }
        *last_error = Some(failure.to_string());
    }

    /// Records a failure on the way to this upstream, without prejudice to its health.
    pub(crate) fn set_last_error(&self, failure: &Failure) {
        locked(&self.health).last_error = Some(failure.to_string());
    }

    /// The health of a tunnel is the tunnel itself.
    pub(crate) fn status(&self, tunnels: &[TunnelStatus]) -> UpstreamStatus {
        let (name, protocol) = (self.name.clone(), self.upstream.protocol);
        let Upstream { host, port, .. } = &self.upstream;
        if protocol == UpstreamProtocol::Tunnel {
            let tunnel = tunnels.iter().find(|tunnel| tunnel.peer == *host);
            let unknown = || format!("unknown peer `{host}`; see `ekiden peer list`");
            let available = tunnel.is_some_and(|tunnel| tunnel.up);
            return UpstreamStatus {
                name,
                protocol,
                address: format!("tunnel to {host}"),
                available,
                failures: 0,
                retry_in_seconds: tunnel.and_then(|tunnel| tunnel.retry_in_seconds),
                fails_at_once: tunnel.is_none_or(|tunnel| {
                    let patience = self.leg.leg.connect_timeout.as_secs_f64();
                    tunnel.down_seconds.is_some_and(|down| down >= patience)
                }),
                last_error: match tunnel {
                    None => Some(unknown()),
                    Some(tunnel) => tunnel.last_error.clone().filter(|_| !available),
                },
            };
        }
        let now = clock::now();
        let HopHealth { health, last_error, .. } = &*locked(&self.health);
        let available = health.is_available(now);
        let retry = health.deadline().since(now).as_millis() as f64 / 1e3;
        UpstreamStatus {
            name,
            protocol,
            address: format!("{host}:{port}"),
            available,
            failures: health.failures(),
            retry_in_seconds: (!available).then_some(retry),
            fails_at_once: false,
            last_error: last_error.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::log_throttle::counting::lines_of;
    use crate::settings::Leg;

    fn near() -> Hop {
        let upstream = Upstream::new(UpstreamProtocol::Http, "192.0.2.1".to_owned(), 3128);
        let leg = Arc::new(NamedLeg::new("direct", &Leg::default(), None));
        Hop::new("near", &upstream, leg, None).unwrap()
    }

    #[test]
    fn a_client_that_leaves_shows_an_upstream_that_answers_nobody() {
        let hop = near();
        drop(hop.wait(Span::from_secs(3600)));
        hop.wait(Span::ZERO).end();
        assert!(hop.is_available(clock::now()));
        // it answers another meanwhile: the destination is at fault
        let waiting = hop.wait(Span::ZERO);
        hop.on_success();
        drop(waiting);
        assert!(hop.is_available(clock::now()));
        std::thread::sleep(std::time::Duration::from_millis(2));
        drop(hop.wait(Span::ZERO));
        assert!(!hop.is_available(clock::now()));
        // nor does what was asked while it rests make it rest for longer
        let waiting = hop.wait(Span::ZERO);
        std::thread::sleep(std::time::Duration::from_millis(1_100));
        assert!(hop.is_available(clock::now()));
        drop(waiting);
        assert!(hop.is_available(clock::now()));
        // what was asked before, and nobody answers, does
        let [first, second] = [(); 2].map(|()| hop.wait(Span::ZERO));
        drop(first);
        std::thread::sleep(std::time::Duration::from_millis(2_100));
        assert!(hop.is_available(clock::now()));
        drop(second);
        assert!(!hop.is_available(clock::now()));
    }

    #[test]
    fn an_upstream_that_flaps_gets_two_lines_in_ten_seconds() {
        let hop = near();
        let failure = Failure::new(FailureKind::Closed, "it closed the connection");
        let flaps = || {
            for _ in 0..100 {
                hop.on_failure(&failure);
                hop.on_success();
            }
        };
        assert!((2..=4).contains(&lines_of(flaps)));
    }
}
