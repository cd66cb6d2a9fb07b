//! The metrics' names and their places in the status. Counters count since the start. Labels have
//! few values: the configuration's, and accounts up to a limit.

use ekiden_proxy::observe::status::{
    AccountStatus, ProfileStatus, Status, TunnelStatus, WireguardPeerStatus,
};
use std::collections::BTreeMap;

/// Relays of a fleet that are named at most.
const RELAYS: usize = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MetricKind {
    /// It only grows.
    Counter,
    /// It comes and goes.
    Gauge,
    /// Its labels are what it says.
    Info,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum MetricValue {
    Whole(u64),
    Real(f64),
}

impl From<u64> for MetricValue {
    fn from(n: u64) -> Self {
        Self::Whole(n)
    }
}

impl From<f64> for MetricValue {
    fn from(x: f64) -> Self {
        Self::Real(x)
    }
}

/// The values of a family, each with its labels.
#[derive(Debug)]
pub(super) struct Values {
    pub(super) list: Vec<(Vec<String>, MetricValue)>,
    accounts: usize,
}

impl Values {
    /// With so many accounts at most.
    pub(super) const fn new(accounts: usize) -> Self {
        Self { list: Vec::new(), accounts }
    }

    fn one(&mut self, value: impl Into<MetricValue>) {
        self.of(&[], value);
    }

    fn of(&mut self, labels: &[&str], value: impl Into<MetricValue>) {
        self.list.push((labels.iter().map(|label| (*label).to_owned()).collect(), value.into()));
    }

    fn maybe(&mut self, labels: &[&str], value: Option<impl Into<MetricValue>>) {
        if let Some(value) = value {
            self.of(labels, value);
        }
    }
}

/// A name and what stands behind it.
pub(super) struct Family {
    /// Without prefix, unit and what its kind adds.
    pub(super) name: &'static str,
    pub(super) unit: Option<&'static str>,
    pub(super) kind: MetricKind,
    pub(super) labels: &'static [&'static str],
    pub(super) what: &'static str,
    pub(super) values: fn(&Status, &mut Values),
}

type Collect = fn(&Status, &mut Values);
type Labels = &'static [&'static str];

const fn counter(
    name: &'static str,
    labels: Labels,
    what: &'static str,
    values: Collect,
) -> Family {
    Family { name, unit: None, kind: MetricKind::Counter, labels, what, values }
}

const fn gauge(name: &'static str, labels: Labels, what: &'static str, values: Collect) -> Family {
    Family { name, unit: None, kind: MetricKind::Gauge, labels, what, values }
}

const fn info(name: &'static str, labels: Labels, what: &'static str, values: Collect) -> Family {
    Family { name, unit: None, kind: MetricKind::Info, labels, what, values }
}

impl Family {
    const fn bytes(self) -> Self {
        Self { unit: Some("bytes"), ..self }
    }

    const fn seconds(self) -> Self {
        Self { unit: Some("seconds"), ..self }
    }

    const fn ratio(self) -> Self {
        Self { unit: Some("ratio"), ..self }
    }

    const fn bit_rate(self) -> Self {
        Self { unit: Some("bits_per_second"), ..self }
    }
}

const UP: &str = "up";
const DOWN: &str = "down";

fn micros(us: f64) -> f64 {
    us / 1e6
}

/// How many there are of each.
fn tally<'a>(words: impl Iterator<Item = &'a str>, to: &mut Values) {
    let mut counts = BTreeMap::<&str, u64>::new();
    for word in words {
        *counts.entry(word).or_default() += 1;
    }
    for (word, count) in counts {
        to.of(&[word], count);
    }
}

fn legs(status: &Status, mut each: impl FnMut(&str, &ProfileStatus)) {
    for leg in &status.legs {
        each(&leg.name, leg);
    }
}

fn tunnels(status: &Status, mut each: impl FnMut(&str, &TunnelStatus)) {
    for tunnel in &status.tunnels {
        each(&tunnel.peer, tunnel);
    }
}

/// The first by name, so that the same ones stay.
fn accounts(status: &Status, to: &mut Values, each: impl Fn(&str, &AccountStatus, &mut Values)) {
    let list = status.sharing.iter().flat_map(|shared| &shared.accounts);
    for account in list.take(to.accounts) {
        each(&account.name, account, to);
    }
}

#[rustfmt::skip] // a table: a line each, where that is enough
pub(super) static FAMILIES: &[Family] = &[
    info("build", &["version", "name"], "Which ekiden it is, and its name in Via", |s, to| to.of(&[&s.version, &s.name], 1)),
    gauge("uptime", &[], "Since it started", |s, to| to.one(s.uptime_seconds)).seconds(),
    gauge("stopping", &[], "1 while live connections end and no new ones are taken", |s, to| to.one(u64::from(s.stopping))),
    counter("reloads", &[], "Configurations taken over", |s, to| to.one(s.reloads)),
    counter("reloads_refused", &[], "Configurations refused: the one before stayed in effect", |s, to| to.one(s.reloads_refused)),
    // connections
    counter("accepted", &[], "Client connections accepted", |s, to| to.one(s.totals.accepted)),
    counter("requests", &[], "Requests (HTTP) and tunnels (CONNECT, SOCKS) begun", |s, to| to.one(s.totals.requests)),
    counter("refused", &[], "Requests refused by a rule, a budget or as malformed", |s, to| to.one(s.totals.refused)),
    counter("failed", &[], "Requests whose destination could not be reached", |s, to| to.one(s.totals.failed)),
    counter("payload", &["direction"], "Payload; up is from clients", |s, to| {
        to.of(&[UP], s.totals.bytes_up);
        to.of(&[DOWN], s.totals.bytes_down);
    }).bytes(),
    gauge("connections", &["state"], "Live client connections by what they do", |s, to| tally(s.connections.iter().map(|c| c.state.as_str()), to)),
    gauge("connections_class", &["class"], "Live client connections, interactive or bulk", |s, to| tally(s.connections.iter().map(|c| c.class.as_str()), to)),
    gauge("legs", &["leg"], "Live sockets of connections by their leg's profile", |s, to| tally(s.connections.iter().flat_map(|c| &c.legs).map(|leg| leg.profile.as_str()), to)),
    // legs
    counter("leg_openings", &["leg"], "Addresses connected to, answered or not", |s, to| legs(s, |name, leg| to.of(&[name], leg.opening.openings))),
    counter("leg_established", &["leg"], "Of those, connections that came to stand", |s, to| legs(s, |name, leg| to.of(&[name], leg.opening.established))),
    counter("leg_lost_syns", &["leg"], "Of those, the ones whose first SYN or its answer was lost", |s, to| legs(s, |name, leg| to.of(&[name], leg.opening.lost_syns))),
    counter("leg_repeated_syns", &["leg"], "SYNs sent after the destination's own time-out (initial_rto)", |s, to| legs(s, |name, leg| to.of(&[name], leg.opening.repeated_syns))),
    counter("leg_second_syns", &["leg"], "Extra SYNs in case the first is lost (second_syn)", |s, to| legs(s, |name, leg| to.of(&[name], leg.opening.second_syns))),
    gauge("leg_recent_handshake_loss", &["leg"], "Share of the handshakes of the last minutes whose first SYN or its answer was lost", |s, to| legs(s, |name, leg| to.maybe(&[name], leg.opening.recent_loss))).ratio(),
    gauge("leg_usual_mtu", &["leg"], "Path MTU met most often", |s, to| legs(s, |name, leg| to.maybe(&[name], leg.path.usual_mtu.map(u64::from)))).bytes(),
    gauge("leg_troubled_destinations", &["leg"], "Destinations that full-sized packets did not reach of late", |s, to| legs(s, |name, leg| to.of(&[name], leg.path.troubled.len() as u64))),
    gauge("leg_held_allotted", &["leg"], "Rate agreed for a leg that holds one in the kernel", |s, to| legs(s, |name, leg| to.maybe(&[name], leg.held.as_ref().map(|held| held.allotted)))).bit_rate(),
    gauge("leg_held_rate", &["leg"], "Current rate of all its connections together", |s, to| legs(s, |name, leg| to.maybe(&[name], leg.held.as_ref().map(|held| held.rate)))).bit_rate(),
    counter("leg_held_delivered", &["leg"], "Delivered by them, including headers", |s, to| legs(s, |name, leg| to.maybe(&[name], leg.held.as_ref().map(|held| held.delivered)))).bytes(),
    counter("leg_held_reactions", &["leg"], "Reductions of the rate because of loss or queues", |s, to| legs(s, |name, leg| to.maybe(&[name], leg.held.as_ref().map(|held| u64::from(held.reactions))))),
    // what is spent
    gauge("budget_used", &["budget"], "Use of a budget: connections, pipes, memory (bytes), sessions (bytes)", |s, to| s.budgets.iter().for_each(|b| to.of(&[&b.name], b.used))),
    gauge("budget_peak", &["budget"], "Maximum use since the start", |s, to| s.budgets.iter().for_each(|b| to.of(&[&b.name], b.peak))),
    gauge("budget_limit", &["budget"], "Limit of a budget", |s, to| s.budgets.iter().for_each(|b| to.of(&[&b.name], b.limit))),
    gauge("memory", &["kind"], "Memory of the process: resident, without files; in_use, by the heap's pieces that are not free", |s, to| s.memory.iter().for_each(|m| [("resident", m.resident), ("in_use", m.in_use)].iter().for_each(|(kind, n)| to.of(&[kind], *n)))).bytes(),
    gauge("buffers_budget", &[], "What all socket buffers together may have; absent without a budget", |s, to| to.maybe(&[], s.buffers.budget)).bytes(),
    gauge("buffers_granted", &[], "Given out of it", |s, to| to.one(s.buffers.granted)).bytes(),
    gauge("buffers_shortage", &[], "What connections could make use of beyond it", |s, to| to.one(s.buffers.shortage)).bytes(),
    gauge("buffers_queued", &[], "What stands in the buffers", |s, to| to.one(s.buffers.queued)).bytes(),
    counter("buffers_refused", &[], "Sizes that the kernel did not give in full", |s, to| to.one(s.buffers.refused)),
    gauge("idle", &["kind"], "Idle connections: clients, tunnels (silent CONNECTs), pooled (to origins and proxies)", |s, to| {
        to.of(&["clients"], s.idle.clients);
        to.of(&["tunnels"], s.idle.tunnels);
        to.of(&["pooled"], s.idle.pooled);
    }),
    gauge("idle_oldest", &[], "How long the longest idle one is idle", |s, to| to.maybe(&[], s.idle.oldest_seconds)).seconds(),
    counter("pool_reused", &[], "Pooled connections that served another request", |s, to| to.one(s.idle.reused)),
    counter("pool_expired", &[], "Pooled connections whose time was over or that the other side closed", |s, to| to.one(s.idle.expired)),
    gauge("resource_used", &["resource"], "Use of a limited resource, in its own unit", |s, to| s.pressure.levels.iter().for_each(|l| to.of(&[&l.resource], l.used))),
    gauge("resource_limit", &["resource"], "Its limit, if known", |s, to| s.pressure.levels.iter().for_each(|l| to.maybe(&[&l.resource], l.limit))),
    gauge("resource_low", &["resource"], "1 when it is in short supply", |s, to| s.pressure.levels.iter().for_each(|l| to.of(&[&l.resource], u64::from(l.low)))),
    counter("evicted", &["resource"], "Idle connections evicted, by the resource in short supply", |s, to| s.pressure.evicted.iter().for_each(|e| to.of(&[&e.resource], e.count))),
    gauge("newcomers_waiting", &[], "Connections waiting for admission", |s, to| to.one(s.pressure.waiting)),
    counter("newcomers_waited", &[], "Connections that had to wait", |s, to| to.one(s.pressure.waited)),
    counter("newcomers_refused", &[], "Connections refused after waiting, or because too many waited", |s, to| to.one(s.pressure.refused)),
    gauge("connections_by_log_in", &["state"], "Connections by log-in: strangers (none, of an address without an account), logged_in", |s, to| {
        to.of(&["strangers"], s.pressure.strangers);
        to.of(&["logged_in"], s.pressure.logged_in);
    }),
    gauge("largest_source", &[], "Most connections without log-in of one address, or flows of one peer", |s, to| to.one(s.pressure.largest_source)),
    counter("closed_for_others", &["kind"], "Connections closed for others: silent (for a client of an address with fewer), unfinished (for memory), stalled (for socket memory)", |s, to| {
        to.of(&["silent"], s.pressure.silent_evicted);
        to.of(&["unfinished"], s.pressure.unfinished_evicted);
        to.of(&["stalled"], s.pressure.stalled_evicted);
    }),
    counter("sessions_refused", &[], "Heads, TLS sessions and HTTP/2 connections refused for want of memory", |s, to| to.one(s.pressure.memory_refused)),
    gauge("sessions_waiting", &[], "Heads, TLS sessions and HTTP/2 connections that wait until others have given memory back", |s, to| to.one(s.pressure.memory_waiting)),
    gauge("handshakes_waiting", &[], "TLS handshakes of clients that wait for a processor", |s, to| to.one(s.pressure.handshakes_waiting)),
    gauge("log_ins_held_back", &[], "Log-ins whose password was not hashed, and that are answered a second later", |s, to| to.one(s.pressure.log_ins_held_back)),
    gauge("names_waiting", &[], "Lookups of destinations' names that wait for a place", |s, to| to.one(s.pressure.names_waiting)),
    counter("share_refused", &[], "Requests, and flows of peers, refused because their address or peer has as many in service, or as much memory, as it may have beside others", |s, to| to.one(s.pressure.share_refused)),
    // the cache
    gauge("cache_memory", &[], "In use by the HTTP cache", |s, to| to.maybe(&[], s.cache.map(|c| c.memory))).bytes(),
    gauge("cache_entries", &[], "Entries in memory", |s, to| to.maybe(&[], s.cache.map(|c| c.entries))),
    counter("cache_requests", &["result"], "Requests by what the cache did: hit, miss, bypassed", |s, to| s.cache.iter().for_each(|c| {
        [("hit", c.hits), ("miss", c.misses), ("bypassed", c.bypassed)].into_iter().for_each(|(result, n)| to.of(&[result], n));
    })),
    counter("cache_sent", &[], "Bodies sent from it", |s, to| to.maybe(&[], s.cache.map(|c| c.bytes))).bytes(),
    counter("cache_disk_late", &[], "Lookups that its disk did not answer in time", |s, to| to.maybe(&[], s.cache.map(|c| c.disk_late))),
    gauge("cache_disk_paused", &[], "1 while lookups leave its disk alone, because several in a row had no answer", |s, to| to.maybe(&[], s.cache.map(|c| u64::from(c.disk_paused)))),
    // certificates
    gauge("acme_expires", &[], "Time until the ordered certificate ends, negative once it has ended; absent where there is none", |s, to| to.maybe(&[], s.acme.as_ref().and_then(|a| a.expires_in_seconds))).seconds(),
    gauge("acme_failures", &[], "Failed orders in a row; absent where no certificate is ordered", |s, to| to.maybe(&[], s.acme.as_ref().map(|a| u64::from(a.failures)))),
    counter("acme_certificates", &[], "Certificates obtained", |s, to| to.maybe(&[], s.acme.as_ref().map(|a| a.obtained))),
    gauge("certificate_expires", &["file"], "Time until the certificate that clients see ends, from files or ordered, negative once it has ended; absent where there is none", |s, to| {
        s.certificates.iter().for_each(|shown| to.of(&[&shown.file], shown.expires_in_seconds));
    }).seconds(),
    // alerts
    gauge("alerts_firing", &["alert"], "Alerts that stand, by kind", |s, to| tally(s.alerts.iter().flat_map(|of| &of.standing).map(|one| one.alert.as_str()), to)),
    counter("alert_messages", &["to", "result"], "Messages about alerts: delivered, and attempts that failed", |s, to| s.alerts.iter().flat_map(|of| &of.receivers).for_each(|one| {
        to.of(&[&one.to, "delivered"], one.delivered);
        to.of(&[&one.to, "failed"], one.failed);
    })),
    // traces
    counter("traces", &["result"], "Traces of requests and tunnels: sent to the collector, and dropped because they found no room, came too fast or were refused", |s, to| if let Some(t) = &s.traces {
        to.of(&["sent"], t.sent);
        to.of(&["dropped"], t.dropped);
    }),
    gauge("traces_waiting", &[], "Traces that wait for the collector; absent while traces are off", |s, to| to.maybe(&[], s.traces.as_ref().map(|t| t.waiting))),
    // datagrams
    gauge("gateway_in_effect", &[], "1 while connections are diverted to the relay; absent without a gateway", |s, to| to.maybe(&[], s.gateway.as_ref().map(|g| u64::from(g.in_effect)))),
    counter("gateway_restored", &[], "How often rules of the gateway were set again after they were lost", |s, to| to.maybe(&[], s.gateway.as_ref().map(|g| g.restored))),
    gauge("gateway_live", &[], "Live diverted connections", |s, to| to.maybe(&[], s.gateway.as_ref().map(|g| g.live))),
    counter("gateway_diverted", &["origin"], "Diverted connections: of devices, and of the machine itself", |s, to| if let Some(g) = &s.gateway {
        to.of(&["devices"], g.diverted);
        to.of(&["own"], g.own);
    }),
    counter("gateway_named", &["by"], "Diverted connections by where their first bytes named the destination", |s, to| if let Some(g) = &s.gateway {
        to.of(&["tls"], g.named_tls);
        to.of(&["http"], g.named_http);
        to.of(&["none"], g.unnamed);
    }),
    counter("gateway_quic", &["way"], "Flows of QUIC that were diverted: through tunnels, directly, or answered with port unreachable", |s, to| if let Some(g) = &s.gateway {
        to.of(&["tunnel"], g.quic_tunneled);
        to.of(&["direct"], g.quic_direct);
        to.of(&["blocked"], g.quic_blocked);
    }),
    counter("gateway_stray", &[], "Connections to the gateway's own port that nobody had diverted, which were reset", |s, to| to.maybe(&[], s.gateway.as_ref().map(|g| g.stray))),
    gauge("wireguard_open", &[], "1 while clients may come in by WireGuard; absent where none may", |s, to| to.maybe(&[], s.wireguard.as_ref().map(|w| u64::from(w.error.is_none())))),
    gauge("wireguard_peers", &["state"], "Devices that come by WireGuard: there, away, or not served now", |s, to| if let Some(w) = &s.wireguard {
        // a session lasts three minutes
        let there = |one: &WireguardPeerStatus| one.handshake_seconds_ago.is_some_and(|ago| ago < 180.0);
        let state = |one: &WireguardPeerStatus| if one.barred.is_some() { "barred" } else if there(one) { "there" } else { "away" };
        for word in ["there", "away", "barred"] {
            to.of(&[word], w.peers.iter().filter(|one| state(one) == word).count() as u64);
        }
    }),
    counter("wireguard_moved", &["direction"], "Packets of devices that come by WireGuard, with their heads", |s, to| if let Some(w) = &s.wireguard {
        to.of(&["up"], w.received);
        to.of(&["down"], w.sent);
    }).bytes(),
    counter("wireguard_handshakes", &["result"], "Handshakes: done, first asked to prove the address, over the limit of their source or of all, of unknown keys", |s, to| if let Some(w) = &s.wireguard {
        to.of(&["done"], w.handshakes);
        to.of(&["cookie"], w.cookies);
        to.of(&["limited"], w.limited);
        to.of(&["unknown"], w.unknown);
    }),
    counter("wireguard_keepalives", &[], "Empty packets, by which devices keep their way open", |s, to| to.maybe(&[], s.wireguard.as_ref().map(|w| w.keepalives))),
    counter("wireguard_dropped", &["reason"], "Datagrams and packets that came to nothing", |s, to| if let Some(w) = &s.wireguard {
        to.of(&["invalid"], w.invalid);
        to.of(&["forged"], w.forged);
        to.of(&["unreadable"], w.unreadable);
        to.of(&["refused"], w.refused);
        to.of(&["undelivered"], w.undelivered);
    }),
    counter("dns_questions", &["over"], "Clients' questions for names; absent where none are answered", |s, to| if let Some(d) = &s.dns {
        to.of(&["udp"], d.questions_udp);
        to.of(&["tcp"], d.questions_tcp);
        to.of(&["tunnel"], d.questions_peers);
    }),
    gauge("dns_unavailable", &[], "Addresses at which clients cannot ask, and which are tried again", |s, to| to.maybe(&[], s.dns.as_ref().map(|d| d.unavailable.len() as u64))),
    counter("dns_cached", &[], "Questions answered from memory", |s, to| to.maybe(&[], s.dns.as_ref().map(|d| d.cached))),
    counter("dns_stale", &[], "Questions answered past an answer's end, because no server answered", |s, to| to.maybe(&[], s.dns.as_ref().map(|d| d.stale))),
    counter("dns_failed", &[], "Questions that got no answer", |s, to| to.maybe(&[], s.dns.as_ref().map(|d| d.failed))),
    counter("dns_asked", &[], "Questions that servers were asked for clients", |s, to| to.maybe(&[], s.dns.as_ref().map(|d| d.asked))),
    counter("dns_prefetched", &[], "Of these, the ones before the end of a popular answer", |s, to| to.maybe(&[], s.dns.as_ref().map(|d| d.prefetched))),
    counter("dns_dropped", &["reason"], "Messages of clients that got no answer, or a refusal where malformed", |s, to| if let Some(d) = &s.dns {
        to.of(&["malformed"], d.malformed);
        to.of(&["refused"], d.refused);
        to.of(&["limited"], d.limited);
    }),
    counter("dns_names_limited", &[], "Questions for new names of destinations above a rate; no server was asked", |s, to| to.maybe(&[], s.dns.as_ref().map(|d| d.names_limited))),
    counter("dns_lies", &["of"], "What servers sent that nobody had asked for: whole messages, and records", |s, to| if let Some(d) = &s.dns {
        to.of(&["messages"], d.lies);
        to.of(&["records"], d.left_out);
    }),
    gauge("dns_memory", &[], "Memory for clients' answers", |s, to| to.maybe(&[], s.dns.as_ref().map(|d| d.bytes))).bytes(),
    gauge("dns_server_available", &["server"], "1 while a DNS server answers, 0 while others are asked first", |s, to| s.dns.iter().flat_map(|d| &d.servers).for_each(|one| to.of(&[&one.server], u64::from(one.available)))),
    gauge("udp_associations", &[], "UDP associations of clients, and flows of peers", |s, to| to.one(s.udp.associations)),
    counter("udp_gave_way", &[], "Associations that ended for another one, because all were in use", |s, to| to.one(s.udp.gave_way)),
    counter("udp_datagrams", &["direction"], "Datagrams passed on; up is from clients, or out of tunnels", |s, to| {
        to.of(&[UP], s.udp.datagrams_up);
        to.of(&[DOWN], s.udp.datagrams_down);
    }),
    counter("udp_dropped", &["reason"], "Datagrams dropped", |s, to| {
        to.of(&["malformed"], s.udp.malformed);
        to.of(&["foreign"], s.udp.foreign);
        to.of(&["refused"], s.udp.refused);
        to.of(&["undelivered"], s.udp.undelivered);
        to.of(&["limited"], s.udp.limited);
    }),
    // other proxies and relays
    gauge("upstream_available", &["upstream"], "1 while an upstream proxy is available, 0 while it backs off", |s, to| s.upstreams.iter().for_each(|u| to.of(&[&u.name], u64::from(u.available)))),
    gauge("upstream_failures", &["upstream"], "Its failures in a row", |s, to| s.upstreams.iter().for_each(|u| to.of(&[&u.name], u64::from(u.failures)))),
    gauge("tunnel_up", &["peer"], "1 while the tunnel to a peer is up", |s, to| tunnels(s, |name, t| to.of(&[name], u64::from(t.up)))),
    gauge("tunnel_over_tcp", &["peer"], "1 while it goes over TLS on TCP", |s, to| tunnels(s, |name, t| to.of(&[name], u64::from(t.over_tcp)))),
    gauge("tunnel_allotted", &["peer"], "Agreed sending rate, in IP packets", |s, to| tunnels(s, |name, t| to.of(&[name], t.allotted))).bit_rate(),
    gauge("tunnel_rate", &["peer"], "Current sending rate", |s, to| tunnels(s, |name, t| to.of(&[name], t.rate))).bit_rate(),
    gauge("tunnel_restrained", &["peer"], "1 while something holds its rate down: the circuit breaker, or anything for more than 10 s", |s, to| tunnels(s, |name, t| to.of(&[name], u64::from(t.restrained.is_some())))),
    gauge("tunnel_rtt", &["peer"], "Smoothed round-trip time", |s, to| tunnels(s, |name, t| to.of(&[name], micros(t.rtt_us)))).seconds(),
    gauge("tunnel_queue", &["peer"], "Queueing delay beyond the path's own delay", |s, to| tunnels(s, |name, t| to.of(&[name], micros(t.queue_us)))).seconds(),
    gauge("tunnel_path_loss", &["peer"], "Loss attributed to the path itself", |s, to| tunnels(s, |name, t| to.of(&[name], t.path_loss))).ratio(),
    counter("tunnel_packets", &["peer"], "Datagrams sent", |s, to| tunnels(s, |name, t| to.of(&[name], t.packets))),
    counter("tunnel_packets_lost", &["peer"], "Of those, considered lost", |s, to| tunnels(s, |name, t| to.of(&[name], t.packets_lost))),
    counter("tunnel_wire", &["peer"], "Sent, with all headers from IP on", |s, to| tunnels(s, |name, t| to.of(&[name], t.bytes_on_the_wire))).bytes(),
    counter("tunnel_payload", &["peer", "direction"], "Payload through it, each byte once; sent and received by this relay", |s, to| tunnels(s, |name, t| {
        to.of(&[name, "sent"], t.bytes_sent);
        to.of(&[name, "received"], t.bytes_received);
    })).bytes(),
    counter("tunnel_copies", &["peer"], "Copies of interactive bursts sent", |s, to| tunnels(s, |name, t| to.of(&[name], t.copies))),
    counter("tunnel_copied", &["peer"], "Of that size", |s, to| tunnels(s, |name, t| to.of(&[name], t.bytes_copied))).bytes(),
    counter("tunnel_repairs", &["peer"], "Repair packets sent", |s, to| tunnels(s, |name, t| to.of(&[name], t.repairs))),
    counter("tunnel_repair", &["peer"], "Of that size", |s, to| tunnels(s, |name, t| to.of(&[name], t.bytes_repairs))).bytes(),
    counter("tunnel_repaired", &["peer"], "Payload decoded from the peer's repair packets", |s, to| tunnels(s, |name, t| to.of(&[name], t.bytes_repaired))).bytes(),
    gauge("tunnel_flows", &["peer"], "Connections in it", |s, to| tunnels(s, |name, t| to.of(&[name], t.flows))),
    gauge("tunnel_orphans", &["peer"], "Of those, the ones whose connection on this relay has ended, with data that the peer has not taken", |s, to| tunnels(s, |name, t| to.of(&[name], t.orphans))),
    counter("tunnel_orphans_reset", &["peer"], "How many of these were reset because the peer took too little for too long", |s, to| tunnels(s, |name, t| to.of(&[name], t.orphans_reset))),
    gauge("tunnel_waiting", &["peer"], "Data queued on this relay", |s, to| tunnels(s, |name, t| to.of(&[name], t.waiting))).bytes(),
    // accounts
    gauge("sharing_accounts", &[], "Accounts that are limited or counted here", |s, to| to.maybe(&[], s.sharing.as_ref().map(|h| h.accounts.len() as u64))),
    gauge("sharing_accounts_unnamed", &[], "Of those, the ones that metrics do not name (metrics_accounts)", |s, to| {
        let most = to.accounts;
        to.maybe(&[], s.sharing.as_ref().map(|h| h.accounts.len().saturating_sub(most) as u64));
    }),
    counter("sharing_refused", &[], "Connections not admitted: unclaimed, too many, too fast, a quota used up", |s, to| to.maybe(&[], s.sharing.as_ref().map(|h| h.refused))),
    gauge("sharing_accounts_waiting", &["direction"], "Accounts waiting for the relay's own rate", |s, to| {
        to.maybe(&[UP], s.sharing.as_ref().map(|h| h.waiting_up));
        to.maybe(&[DOWN], s.sharing.as_ref().map(|h| h.waiting_down));
    }),
    gauge("sharing_lent", &["direction"], "Granted to connections, and not moved yet", |s, to| {
        to.maybe(&[UP], s.sharing.as_ref().map(|h| h.lent_up));
        to.maybe(&[DOWN], s.sharing.as_ref().map(|h| h.lent_down));
    }).bytes(),
    gauge("sharing_limit", &["direction"], "The relay's own rate, if set", |s, to| {
        to.maybe(&[UP], s.sharing.as_ref().and_then(|h| h.uplink));
        to.maybe(&[DOWN], s.sharing.as_ref().and_then(|h| h.downlink));
    }).bit_rate(),
    counter("account", &["account", "direction"], "An account's payload; up is from it", |s, to| accounts(s, to, |name, h, to| {
        to.of(&[name, UP], h.bytes_up);
        to.of(&[name, DOWN], h.bytes_down);
    })).bytes(),
    gauge("account_rate", &["account", "direction"], "In the last full second", |s, to| accounts(s, to, |name, h, to| {
        to.of(&[name, UP], h.rate_up);
        to.of(&[name, DOWN], h.rate_down);
    })).bit_rate(),
    gauge("account_limit", &["account", "direction"], "Current limit; absent without one", |s, to| accounts(s, to, |name, h, to| {
        to.maybe(&[name, UP], h.limit_up);
        to.maybe(&[name, DOWN], h.limit_down);
    })).bit_rate(),
    gauge("account_connections", &["account"], "Its connections and associations", |s, to| accounts(s, to, |name, h, to| to.of(&[name], h.connections))),
    gauge("account_connections_limit", &["account"], "The most at once; absent without a limit", |s, to| accounts(s, to, |name, h, to| to.maybe(&[name], h.connections_limit))),
    gauge("account_waiting", &["account", "direction"], "Its waiting connections", |s, to| accounts(s, to, |name, h, to| {
        to.of(&[name, UP], h.waiting_up);
        to.of(&[name, DOWN], h.waiting_down);
    })),
    gauge("account_throttled", &["account"], "1 when its quota is used up and it is throttled or cut", |s, to| accounts(s, to, |name, h, to| to.of(&[name], u64::from(h.state == "throttle" || h.state == "cut")))),
    gauge("account_quota", &["account"], "Its quota per period; absent without one", |s, to| accounts(s, to, |name, h, to| to.maybe(&[name], h.quota))).bytes(),
    gauge("account_quota_left", &["account"], "Rest of the quota", |s, to| accounts(s, to, |name, h, to| to.maybe(&[name], h.quota_left))).bytes(),
    gauge("account_period_ends", &["account"], "Time until the next period", |s, to| accounts(s, to, |name, h, to| to.maybe(&[name], h.period_ends_in_seconds))).seconds(),
    // accounts
    gauge("accounts", &[], "Accounts that are known; absent where there are none", |s, to| to.maybe(&[], s.accounts.as_ref().map(|a| a.known))),
    gauge("accounts_unreadable", &[], "Accounts in the database that cannot be read; they are not served", |s, to| to.maybe(&[], s.accounts.as_ref().map(|a| a.unreadable))),
    gauge("accounts_database_up", &["database"], "1 while the accounts' database answers", |s, to| {
        if let Some(accounts) = &s.accounts {
            to.of(&[&accounts.database], u64::from(accounts.away.is_none()));
        }
    }),
    gauge("accounts_database_heard", &[], "Time since the last contact with the database", |s, to| to.maybe(&[], s.accounts.as_ref().and_then(|a| a.heard_seconds_ago))).seconds(),
    gauge("accounts_unsettled", &[], "Usage totals not settled in the database yet", |s, to| to.maybe(&[], s.accounts.as_ref().map(|a| a.unsettled))),
    counter("log_ins", &["result"], "Attempts to log in by name and password: known, wrong, barred (disabled, ended, not at this hour), waited (too many wrong ones before), busy (too many at once)", |s, to| {
        if let Some(accounts) = &s.accounts {
            let tried = accounts.log_ins;
            to.of(&["known"], tried.known);
            to.of(&["wrong"], tried.wrong);
            to.of(&["barred"], tried.barred);
            to.of(&["waited"], tried.waited);
            to.of(&["busy"], tried.busy);
        }
    }),
    gauge("fleet_relay_seen", &["relay"], "Time since the last report of a relay that uses the same accounts", |s, to| {
        // nobody keeps two relays from having one name
        let mut seen = BTreeMap::<&str, f64>::new();
        for relay in s.accounts.iter().flat_map(|accounts| &accounts.relays) {
            let last = seen.entry(&relay.name).or_insert(f64::INFINITY);
            *last = last.min(relay.seen_seconds_ago);
        }
        seen.into_iter().take(RELAYS).for_each(|(name, ago)| to.of(&[name], ago));
    }).seconds(),
];
