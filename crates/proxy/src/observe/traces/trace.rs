//! One trace: a span for the request or tunnel, and one for each of its phases.

use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use ekiden_model::units::Time;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

/// A request or tunnel that is being traced.
#[derive(Debug)]
pub(crate) struct Trace {
    trace_id: u128,
    span_id: u64,
    parent: Option<u64>,
    server: (String, u16),
    begun: Time,
    /// When it began, nanoseconds since 1970.
    wall: u64,
    marks: Mutex<Marks>,
}

/// When its phases began and ended, as far as they did.
#[derive(Debug, Default)]
struct Marks {
    lookup: Option<Time>,
    addresses: Option<Time>,
    opening: Option<Time>,
    opened: Option<Time>,
    first_byte: Option<Time>,
    peer: Option<SocketAddr>,
    reused: bool,
    error: Option<&'static str>,
}

/// What is known at the end of a traced request or tunnel.
#[derive(Debug, Default)]
pub(crate) struct TraceEnd {
    pub(crate) connection: u64,
    pub(crate) protocol: &'static str,
    pub(crate) method: Option<String>,
    pub(crate) status: Option<u16>,
    pub(crate) account: Option<String>,
    pub(crate) leg: Option<String>,
    pub(crate) route: Option<Arc<str>>,
    pub(crate) through: Arc<[String]>,
    pub(crate) bytes: (u64, u64),
    pub(crate) result: String,
}

/// A phase of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PhaseKind {
    /// The name's addresses are looked up.
    Lookup,
    /// The connection is opened, through proxies and tunnels too.
    Connect,
    /// From the open connection to the first byte for the client.
    FirstByte,
    /// From there to the end.
    Transfer,
}

/// A phase, as it was. Times are nanoseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Phase {
    /// Which.
    pub kind: PhaseKind,
    /// Its begin.
    pub begun: u64,
    /// Its end.
    pub ended: u64,
}

/// A request or tunnel that was traced. Times are nanoseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinishedTrace {
    /// The trace's number.
    pub trace_id: u128,
    /// Its span's; those of its phases follow upwards.
    pub span_id: u64,
    /// The client's span.
    pub parent: Option<u64>,
    /// Its begin.
    pub begun: u64,
    /// Its end.
    pub ended: u64,
    /// Its phases, in order.
    pub phases: Vec<Phase>,
    /// The connection's number, as in the access log.
    pub connection: u64,
    /// `http`, `connect`, `socks5` and so on, as in the access log.
    pub protocol: &'static str,
    /// The method of a request.
    pub method: Option<String>,
    /// The answer's status, or the reply code of SOCKS.
    pub status: Option<u16>,
    /// The client.
    pub client: SocketAddr,
    /// The destination's host and port, as the client named it.
    pub server: (String, u16),
    /// The address that was connected to: the destination's, or the first proxy's.
    pub peer: Option<SocketAddr>,
    /// The account's name.
    pub account: Option<String>,
    /// The leg's name.
    pub leg: Option<String>,
    /// Why its route.
    pub route: Option<Arc<str>>,
    /// Names of the upstream proxies.
    pub through: Arc<[String]>,
    /// Whether an open connection served it.
    pub reused: bool,
    /// Bytes from the client and to it.
    pub bytes: (u64, u64),
    /// What kind of failure ended it, as one word.
    pub error: Option<&'static str>,
    /// How it ended, in words.
    pub result: String,
}

impl Trace {
    /// `ids`: of the trace, of its span, of the client's span.
    pub(super) fn new(ids: (u128, u64, Option<u64>), server: (String, u16), begun: Time) -> Self {
        let (trace_id, span_id, parent) = ids;
        let wall = clock::wall();
        Self { trace_id, span_id, parent, server, begun, wall, marks: Mutex::default() }
    }

    fn mark(&self, set: impl FnOnce(&mut Marks, Time)) {
        set(&mut locked(&self.marks), clock::now());
    }

    pub(crate) fn on_lookup(&self) {
        self.mark(|marks, now| {
            marks.lookup.get_or_insert(now);
        });
    }

    /// The first addresses of its name are there.
    pub(crate) fn on_addresses(&self) {
        self.mark(|marks, now| {
            marks.addresses.get_or_insert(now);
        });
    }

    pub(crate) fn on_opening(&self) {
        self.mark(|marks, now| {
            marks.opening.get_or_insert(now);
        });
    }

    /// `peer`: the address that was connected to, if it is one of the network.
    pub(crate) fn on_opened(&self, peer: Option<SocketAddr>) {
        self.mark(|marks, now| (marks.opened, marks.peer) = (Some(now), peer));
    }

    pub(crate) fn on_reused(&self) {
        self.mark(|marks, now| (marks.opened, marks.reused) = (Some(now), true));
    }

    pub(crate) fn on_first_byte(&self) {
        self.mark(|marks, now| {
            marks.first_byte.get_or_insert(now);
        });
    }

    pub(crate) fn on_error(&self, word: &'static str) {
        self.mark(|marks, _| {
            marks.error.get_or_insert(word);
        });
    }

    pub(super) fn finish(&self, client: SocketAddr, end: TraceEnd, now: Time) -> FinishedTrace {
        let marks = locked(&self.marks);
        let wall = |at: Time| self.wall + at.since(self.begun).as_nanos();
        FinishedTrace {
            trace_id: self.trace_id,
            span_id: self.span_id,
            parent: self.parent,
            begun: self.wall,
            ended: wall(now),
            phases: marks
                .phases(now)
                .map(|(kind, from, to)| Phase { kind, begun: wall(from), ended: wall(to) })
                .collect(),
            connection: end.connection,
            protocol: end.protocol,
            method: end.method,
            status: end.status,
            client,
            server: self.server.clone(),
            peer: marks.peer,
            account: end.account,
            leg: end.leg,
            route: end.route,
            through: end.through,
            reused: marks.reused,
            bytes: end.bytes,
            error: marks.error,
            result: end.result,
        }
    }
}

impl Marks {
    /// The phases that were begun. One that did not end lasted to the end of all.
    fn phases(&self, end: Time) -> impl Iterator<Item = (PhaseKind, Time, Time)> {
        let lookup = self.lookup.map(|from| (from, self.addresses.or(self.opened).unwrap_or(end)));
        // a connection begins when there is an address
        let from = match self.lookup {
            Some(_) => self.addresses,
            None => self.opening,
        };
        let connect = from.map(|from| (from, self.opened.unwrap_or(end))).filter(|_| !self.reused);
        let first = self.opened.map(|from| (from, self.first_byte.unwrap_or(end)));
        let transfer = self.first_byte.map(|from| (from, end));
        let kinds =
            [PhaseKind::Lookup, PhaseKind::Connect, PhaseKind::FirstByte, PhaseKind::Transfer];
        kinds
            .into_iter()
            .zip([lookup, connect, first, transfer])
            .filter_map(|(kind, span)| span.map(|(from, to)| (kind, from, to)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use PhaseKind::{Connect, FirstByte, Lookup, Transfer};

    fn kinds(marks: &Marks) -> Vec<(PhaseKind, u64, u64)> {
        let phases = marks.phases(Time::from_nanos(100));
        phases.map(|(kind, from, to)| (kind, from.as_nanos(), to.as_nanos())).collect()
    }

    #[test]
    fn phases_follow_each_other() {
        let at = |ns| Some(Time::from_nanos(ns));
        let mut marks = Marks { opening: at(1), lookup: at(2), ..Marks::default() };
        assert_eq!(kinds(&marks), [(Lookup, 2, 100)]);
        (marks.addresses, marks.opened) = (at(10), at(30));
        assert_eq!(kinds(&marks), [(Lookup, 2, 10), (Connect, 10, 30), (FirstByte, 30, 100)]);
        marks.first_byte = at(50);
        let all = [(Lookup, 2, 10), (Connect, 10, 30), (FirstByte, 30, 50), (Transfer, 50, 100)];
        assert_eq!(kinds(&marks), all);
        (marks.lookup, marks.addresses) = (None, None);
        assert_eq!(kinds(&marks)[0], (Connect, 1, 30));
        marks.reused = true;
        assert_eq!(kinds(&marks)[0], (FirstByte, 30, 50));
    }

    #[test]
    fn a_refused_connection_lasts_to_its_end() {
        let trace = Trace::new((1, 3, Some(5)), ("h".to_owned(), 80), clock::now());
        trace.on_opening();
        trace.on_error("refused");
        trace.on_error("later");
        let end = TraceEnd { protocol: "connect", ..TraceEnd::default() };
        let finished = trace.finish(([127, 0, 0, 1], 1).into(), end, clock::now());
        assert_eq!(finished.error, Some("refused"));
        assert_eq!(finished.phases.len(), 1);
        assert!(finished.phases[0].begun >= finished.begun);
        assert_eq!(finished.phases[0].ended, finished.ended);
    }
}
