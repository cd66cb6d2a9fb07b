//! The access-log line of a request in progress.

use super::Session;
use crate::destination::Destination;
use crate::error::{Failure, FailureKind};
use crate::observe::access_log::{AccessLog, CutBy, Record, timestamp};
use crate::observe::registry::{Protocol, Registration};
use crate::observe::traces::{TraceEnd, TraceParent};
use ekiden_linux::host::clock;
use ekiden_model::units::Time;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

/// What the access log will record of a request in progress.
pub(crate) struct LogEntry {
    pub(crate) protocol: Protocol,
    pub(crate) method: Option<String>,
    pub(crate) target: Option<String>,
    pub(crate) through: Arc<[String]>,
    pub(crate) status: Option<u16>,
    pub(crate) cut_by: Option<CutBy>,
    begun: Time,
    /// The connection's byte counters at the beginning.
    before: (u64, u64),
    /// It has its line, or another entry will have it.
    logged: bool,
}

impl LogEntry {
    pub(crate) fn new(protocol: Protocol, registration: &Registration) -> Self {
        Self {
            protocol,
            method: None,
            target: None,
            through: Arc::new([]),
            status: None,
            cut_by: None,
            begun: clock::now(),
            before: registration.bytes(),
            logged: false,
        }
    }

    /// What goes on with the request, in place of this entry.
    pub(crate) fn hand_over(&mut self) -> Self {
        self.logged = true;
        let (method, target) = (self.method.take(), self.target.take());
        Self { method, target, through: Arc::clone(&self.through), logged: false, ..*self }
    }

    /// Where the request goes, without a path.
    pub(super) fn destination(&self) -> Option<&str> {
        let target = self.target.as_deref()?;
        let rest = target.split_once("://").map_or(target, |(_, rest)| rest);
        rest.split('/').next()
    }

    pub(super) fn bytes(&self, registration: &Registration) -> (u64, u64) {
        let (up, down) = registration.bytes();
        (up - self.before.0, down - self.before.1)
    }

    pub(crate) fn write(&self, log: &AccessLog, registration: &Registration, result: &str) {
        let (bytes_up, bytes_down) = self.bytes(registration);
        let seconds = clock::now().since(self.begun).as_micros() as f64 / 1e6;
        let account = registration.entry.account();
        let account = account.as_ref().map(|account| account.name.as_str());
        tracing::debug!(
            connection = registration.entry.id,
            client = %registration.entry.client,
            account,
            protocol = self.protocol.name(),
            target = self.target.as_deref().unwrap_or("-"),
            status = self.status,
            up = bytes_up,
            down = bytes_down,
            seconds,
            "ended: {result}"
        );
        if log.is_off() {
            return;
        }
        log.write(&Record {
            time: timestamp(),
            connection: registration.entry.id,
            client: registration.entry.client,
            account,
            protocol: self.protocol.name(),
            method: self.method.as_deref(),
            target: self.target.as_deref(),
            through: &self.through,
            status: self.status,
            bytes_up,
            bytes_down,
            seconds,
            cut_by: self.cut_by,
            result,
        });
    }
}

/// The entry of a session's request. Dropped without a line, it was cut off with its connection, and gets one.
pub(crate) struct OpenEntry<'a> {
    pub(super) session: &'a Session,
    pub(super) entry: LogEntry,
}

impl Deref for OpenEntry<'_> {
    type Target = LogEntry;

    fn deref(&self) -> &LogEntry {
        &self.entry
    }
}

impl DerefMut for OpenEntry<'_> {
    fn deref_mut(&mut self) -> &mut LogEntry {
        &mut self.entry
    }
}

impl Drop for OpenEntry<'_> {
    fn drop(&mut self) {
        self.session.log_cut(&mut self.entry, str::to_owned);
    }
}

impl Session {
    /// The log entry of a request that begins now.
    pub(crate) fn begin(
        &self,
        protocol: Protocol,
        destination: &Destination,
        method: Option<String>,
        target: String,
    ) -> OpenEntry<'_> {
        self.begin_within(None, protocol, destination, (method, target))
    }

    /// The same within a client's own trace, for a method and a target.
    pub(crate) fn begin_within(
        &self,
        parent: Option<TraceParent>,
        protocol: Protocol,
        destination: &Destination,
        (method, target): (Option<String>, String),
    ) -> OpenEntry<'_> {
        let mut entry = self.new_entry(protocol);
        entry.method = method;
        self.set_out(&mut entry, parent, destination, target);
        entry
    }

    /// The destination of a request is known, and it begins.
    pub(crate) fn set_out(
        &self,
        entry: &mut LogEntry,
        parent: Option<TraceParent>,
        destination: &Destination,
        target: String,
    ) {
        self.registration.begin(entry.protocol, destination.to_string());
        let server = (destination.host.to_string(), destination.port);
        self.registration.set_trace(self.config.shared.traces.begin(parent, server));
        entry.target = Some(target);
    }

    pub(crate) fn new_entry(&self, protocol: Protocol) -> OpenEntry<'_> {
        self.registration.set_protocol(protocol);
        OpenEntry { session: self, entry: LogEntry::new(protocol, &self.registration) }
    }

    /// Whether it is cut off from elsewhere. What breaks then is this relay's cut, and a request's entry says so as it is
    /// dropped.
    pub(crate) fn is_cut_off(&self) -> bool {
        self.registration.entry.has_ended()
    }

    /// A client that leaves is no failure.
    pub(crate) fn on_failure(&self, entry: &mut LogEntry, failure: &Failure) {
        if self.is_cut_off() {
            entry.status = None;
            return;
        }
        if failure.kind == FailureKind::ClientGone {
            (entry.status, entry.cut_by) = (None, Some(CutBy::Client));
        } else {
            self.registration.count(failure);
            self.log_refusal(entry, failure);
        }
        self.trace_error(failure.kind.word());
        self.log(entry, &failure.text);
    }

    /// A transfer that had begun broke off: at which end, and why. A client that leaves is no failure.
    pub(crate) fn on_broken(&self, entry: &mut LogEntry, by: CutBy, why: &str) {
        if self.is_cut_off() {
            return;
        }
        if by != CutBy::Client {
            self.registration.count_failed();
        }
        self.trace_error("broken");
        entry.cut_by = Some(by);
        self.log(entry, why);
    }

    /// Marks the present trace, if there is one, as failed.
    pub(crate) fn trace_error(&self, word: &'static str) {
        self.registration.trace().inspect(|trace| trace.on_error(word));
    }

    /// Logs that the connection was cut off from elsewhere, where the request has no line yet. `words`: the result, from
    /// the reason.
    pub(crate) fn log_cut(&self, entry: &mut LogEntry, words: impl FnOnce(&str) -> String) {
        if entry.logged {
            return;
        }
        entry.cut_by = Some(CutBy::Relay);
        self.trace_error("cut");
        self.log(entry, &words(&self.why_cut()));
    }

    fn why_cut(&self) -> String {
        if thread::panicking() {
            return "a fault of this relay, of which its log tells".to_owned();
        }
        let entry = &self.registration.entry;
        let ended = self.config.why_ended(entry.account().as_deref(), self.share().as_deref());
        ended.unwrap_or_else(|| {
            // the place is the outer connection's
            let within = entry.outer().is_some_and(|outer| outer.has_ended_for_room());
            let why = if within || entry.evicted.load(Relaxed) {
                "closed to make room"
            } else if self.is_stopping() {
                "the relay is stopping"
            } else {
                "cut off"
            };
            why.to_owned()
        })
    }

    pub(crate) fn log(&self, entry: &mut LogEntry, result: &str) {
        entry.logged = true;
        entry.write(&self.log, &self.registration, result);
        let mut end = TraceEnd::default();
        let Some(trace) = self.registration.take_trace(&mut end) else { return };
        let end = TraceEnd {
            protocol: entry.protocol.name(),
            method: entry.method.clone(),
            status: entry.status,
            through: Arc::clone(&entry.through),
            bytes: entry.bytes(&self.registration),
            result: result.to_owned(),
            ..end
        };
        self.config.shared.traces.finish(&trace, self.registration.entry.client, end);
    }
}
