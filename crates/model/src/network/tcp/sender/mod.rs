//! The sending side of one direction.

mod config;
mod persist;
mod piped;
mod repair;
mod selective;

pub use config::{Counters, Decrease, Offload, Pacing, Sampling, SenderConfig, SenderSnapshot};

use super::{Acknowledgement, Reason, Segment};
use crate::control::congestion::{Ack, Congestion, Control};
use crate::network::rto::Rto;
use crate::units::{Span, Time};
use persist::Persist;
use repair::Engine;

/// The sending side of a stream: what to send, and when.
///
/// ```text
/// on_open(now, …)          the handshake is done
/// on_write(now, bytes)     the application has more
/// on_ack(now, ack)         an acknowledgement arrived
/// poll(now)                the next segment to send now; until None
/// deadline(), on_deadline  timers: retransmission, tail probe, reordering, pacing
/// ```
///
/// What each packet needs stands first, close together.
#[derive(Debug, Clone)]
#[repr(C)]
pub struct Sender {
    /// The first byte that is not acknowledged.
    una: u64,
    /// The next one to be sent; goes back after a timeout.
    next: u64,
    /// One past the last one that was ever sent.
    max: u64,
    /// One past the last one that was written.
    end: u64,
    mss: u64,
    peer_window: u64,
    timer: Time,
    /// Nothing leaves before this; `held` records that a poll was refused.
    paced: Time,
    /// While the peer's window is too small for anything; `None` before the handshake is done.
    persist: Option<Persist>,
    last_sent: Time,
    held: bool,
    /// The window held data back.
    limited: bool,
    /// There was a reduction by a mark, and the peer is to hear of it.
    tell: bool,
    spurious: Spurious,
    engine: Engine,
    /// The segment whose round trip is measured: its end, and when it left.
    timed: Option<(u64, Time)>,
    count: Counters,
    rto: Rto,
    control: Congestion,
    /// No further reduction by marks until this is acknowledged.
    reduced_until: u64,
    /// The first outstanding byte when the timer fired last.
    timed_out: Option<u64>,
    config: SenderConfig,
}

/// F-RTO: state of the last timeout (RFC 5682).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spurious {
    No,
    /// The first segment was sent again; its acknowledgement is waited for.
    First,
    /// Acknowledged: so many new segments may go instead of old ones; the next acknowledgement
    /// decides.
    Second(u8),
}

impl Sender {
    /// A sender with nothing to send. `on_open` permits it to begin.
    pub fn new(config: &SenderConfig, now: Time) -> Self {
        let mss = u64::from(config.mss.max(1));
        Self {
            mss,
            control: Congestion::new(&config.congestion, now),
            rto: Rto::new(&config.rto, now),
            engine: Engine::new(config),
            una: 0,
            next: 0,
            max: 0,
            end: 0,
            peer_window: 0,
            timer: Time::NEVER,
            timed: None,
            last_sent: now,
            paced: now,
            held: false,
            limited: false,
            reduced_until: 0,
            tell: false,
            spurious: Spurious::No,
            timed_out: None,
            persist: None,
            count: Counters::default(),
            config: config.clone(),
        }
    }

    /// The handshake is done: the peer offers `window` bytes. `sent`: when the answered SYN left,
    /// if a sample; `repeated`: a SYN or its answer was lost (one segment, RFC 5681 §3.1; 3 s
    /// without a sample, RFC 6298 (5.7)).
    pub fn on_open(&mut self, now: Time, window: u64, sent: Option<Time>, repeated: bool) {
        self.peer_window = window;
        self.persist = Some(Persist::default());
        if let Some(sent) = sent {
            self.rto.on_sample(sent, now);
        }
        if repeated {
            self.control.cap(1.0);
            self.rto.on_lost_syn();
        }
    }

    /// The application has written so many bytes more.
    pub fn on_write(&mut self, now: Time, bytes: u64) {
        let quiet = self.una == self.max && self.max > 0;
        if quiet && now.since(self.last_sent) > self.rto.timeout() {
            if self.config.reset_rto_after_idle {
                self.rto.reset();
                self.timed = None;
            }
            if self.config.restart_after_idle {
                self.control.on_restart(now);
            }
        }
        self.end += bytes;
        self.engine.unlimited();
    }

    /// An acknowledgement came.
    pub fn on_ack(&mut self, now: Time, ack: &Acknowledgement) {
        if ack.ack > self.max || ack.ack < self.una {
            return;
        }
        let same_window = self.peer_window == ack.window;
        self.peer_window = ack.window;
        self.count.acks += 1;
        if ack.marked {
            self.on_mark(now);
        }
        if matches!(self.engine, Engine::Board(_)) {
            self.on_selective(now, ack);
        } else if matches!(self.engine, Engine::Piping(_)) {
            self.on_piped(now, ack);
        } else if ack.ack > self.una {
            self.on_new(now, ack);
        } else if self.una < self.max && same_window {
            // RFC 5681 §2: nothing new acknowledged, the same window, and something outstanding
            self.on_duplicate(now);
        }
    }

    /// The next segment to be sent now.
    pub fn poll(&mut self, now: Time) -> Option<Segment> {
        self.held = self.paced > now;
        if self.held {
            return None;
        }
        let segment = match self.engine {
            Engine::Duplicates(_) => self.next_by_counting(),
            Engine::Board(_) => self.next_by_board(),
            Engine::Piping(_) => self.next_by_piping(),
        };
        let segment = self.or_probe(now, segment)?;
        self.on_sent(now, &segment);
        Some(segment)
    }

    /// When `on_deadline` is due; [`Time::NEVER`] if not at all.
    pub fn deadline(&self) -> Time {
        let paced = if self.held && self.una < self.end { self.paced } else { Time::NEVER };
        let persist = self.persist.map_or(Time::NEVER, |persist| persist.deadline());
        self.timer.min(self.engine.deadline()).min(paced).min(persist)
    }

    /// A time that was asked for has come (an earlier call does nothing).
    pub fn on_deadline(&mut self, now: Time) {
        self.held &= self.paced > now;
        // a probe that is due with the timer goes in its place (RFC 8985 §7.2)
        let engine = self.engine.deadline();
        if engine <= now && engine <= self.timer {
            self.on_selective_deadline(now);
        } else if self.timer <= now {
            self.on_timeout(now);
        }
    }

    /// All below this offset is acknowledged.
    pub const fn acknowledged(&self) -> u64 {
        self.una
    }

    /// One past the last byte that was ever sent.
    pub const fn sent(&self) -> u64 {
        self.max
    }

    /// How often loss recovery was entered, and how often the retransmission timer has fired.
    pub const fn troubles(&self) -> [u64; 2] {
        [self.count.recoveries, self.count.timeouts]
    }

    /// How many bytes the application may write without the send buffer overflowing.
    pub const fn writable(&self) -> u64 {
        self.config.buffer.saturating_sub(self.end - self.una)
    }

    /// Bytes in the send buffer: written and not acknowledged.
    pub const fn queued(&self) -> u64 {
        self.end - self.una
    }

    /// Sets the send buffer's size. Written data stays, however small the buffer.
    pub const fn set_buffer(&mut self, bytes: u64) {
        self.config.buffer = bytes;
    }

    /// A snapshot.
    pub fn snapshot(&self) -> SenderSnapshot {
        SenderSnapshot {
            window: self.control.window(),
            threshold: self.control.threshold(),
            rto: self.rto.timeout(),
            smoothed: self.rto.smoothed().unwrap_or_default(),
            variance: self.rto.variance().unwrap_or_default(),
            outstanding: self.outstanding(),
            unsent: self.end - self.max,
            count: self.count,
        }
    }

    fn outstanding(&self) -> u64 {
        match &self.engine {
            Engine::Board(board) => board.board.pipe,
            Engine::Duplicates(_) | Engine::Piping(_) => self.max - self.una,
        }
    }

    fn segments(&self, bytes: u64) -> f64 {
        bytes as f64 / self.mss as f64
    }

    /// Where a decrease starts from, in segments.
    fn basis(&self) -> f64 {
        match self.config.decrease {
            // what limited transmit and recovery sent beyond the window does not count (RFC 5681 §3.2)
            Decrease::FromFlight => self.segments(self.max - self.una).min(self.control.window()),
            Decrease::FromWindow => {
                let window = self.control.window() + self.engine.extra() as f64;
                window.min(self.segments(self.peer_window))
            }
        }
    }

    /// An RTT sample, unless the segment was retransmitted (Karn).
    fn on_sample(&mut self, sent: Time, now: Time) -> Span {
        self.rto.on_sample(sent, now);
        self.rto.on_progress();
        now.since(sent)
    }

    /// The measured segment is acknowledged, or the echoed timestamp tells.
    fn sample(&mut self, now: Time, ack: &Acknowledgement) -> Option<Span> {
        match self.config.sampling {
            Sampling::Timestamps => ack.echo.map(|sent| self.on_sample(sent, now)),
            Sampling::OnePerWindow => {
                let (_, sent) = self.timed.take_if(|(end, _)| *end <= ack.ack)?;
                Some(self.on_sample(sent, now))
            }
        }
    }

    fn grow(&mut self, now: Time, acked: u64, rtt: Option<Span>, recovering: bool) {
        let in_flight = self.segments(self.max - self.una);
        self.control.on_ack(&Ack {
            now,
            acked: self.segments(acked),
            in_flight,
            rtt,
            smoothed: self.rto.smoothed().unwrap_or_default(),
            limited: self.limited,
            una: self.una + acked,
            next: self.max,
            recovering,
        });
    }

    fn arm(&mut self, now: Time) {
        self.timer = now + self.rto.timeout();
    }

    fn arm_or_stop(&mut self, now: Time) {
        if self.una < self.max {
            self.arm(now);
        } else {
            self.timer = Time::NEVER;
        }
    }

    fn on_mark(&mut self, now: Time) {
        if self.una >= self.reduced_until {
            self.reduced_until = self.max;
            self.tell = true;
            let basis = self.basis();
            self.control.on_loss(now, basis);
            self.count.marks += 1;
        }
    }

    fn on_sent(&mut self, now: Time, segment: &Segment) {
        let end = segment.end();
        let fresh = segment.start >= self.max;
        if fresh {
            if self.timed.is_none() && self.config.sampling == Sampling::OnePerWindow {
                self.timed = Some((end, now));
            }
        } else {
            self.count.retransmitted += 1;
            self.count.retransmitted_bytes += u64::from(segment.len);
        }
        self.count.sent += 1;
        if self.timer == Time::NEVER || self.una == self.max {
            self.arm(now);
        }
        self.max = self.max.max(end);
        self.next = self.next.max(end);
        self.last_sent = now;
        if let Some(pacing) = self.config.pacing {
            self.paced = self.paced.max(now) + self.gap(pacing, segment.len);
        }
        self.engine.on_sent(now, segment, fresh);
        if segment.reason == Reason::New {
            // the flight goes on: a probe counts from its last segment
            self.schedule_probe(now);
        }
    }

    /// How long a segment of this size keeps the next one back.
    fn gap(&self, pacing: Pacing, len: u32) -> Span {
        let Some(smoothed) = self.rto.smoothed() else { return Span::ZERO };
        let window = self.control.window();
        let starting = window < self.control.threshold() / 2.0;
        let gain = if starting { pacing.starting } else { pacing.steady };
        let share = self.segments(len.into()) / (gain * window).max(1.0);
        Span::from_nanos((smoothed.as_nanos() as f64 * share) as u64)
    }

    fn on_timeout(&mut self, now: Time) {
        if self.una == self.max {
            self.timer = Time::NEVER;
            return;
        }
        self.count.timeouts += 1;
        let again =
            self.timed_out == Some(self.una) && self.config.repeated_timeout_keeps_threshold;
        self.timed_out = Some(self.una);
        let f_rto = !self.engine.recovering() && self.engine.f_rto();
        self.spurious = if f_rto { Spurious::First } else { Spurious::No };
        self.engine.on_timeout(self.max);
        let basis = self.basis();
        self.control.on_timeout(now, basis, again);
        self.rto.on_timeout();
        self.arm(now);
        self.timed = None;
        if !matches!(self.engine, Engine::Board(_)) {
            self.next = self.una;
        }
        // nothing keeps the first one back
        self.paced = now;
    }

    /// Whether something new could be sent now but for the congestion window.
    fn has_new(&self) -> bool {
        let len = (self.end - self.max).min(self.mss);
        let whole = len == self.mss || !self.config.nagle;
        len > 0 && whole && self.max + len <= self.una + self.peer_window
    }

    /// The last timeout was spurious: outstanding data was only late.
    fn on_spurious(&mut self, now: Time) {
        self.count.spurious += 1;
        self.spurious = Spurious::No;
        self.control.undo(now);
        self.engine.found();
        self.next = self.max;
    }

    /// What is handed over at once, in bytes.
    fn chunk(&self) -> u64 {
        let (most, timed) = match self.config.offload {
            Offload::None => return self.mss,
            Offload::Third(most) => (most, false),
            Offload::Millisecond(most) => (most, true),
        };
        let window = self.control.window().min(self.segments(self.peer_window));
        let third = ((window / 3.0) as u64).clamp(1, most.max(1).into());
        let smoothed = self.rto.smoothed().filter(|_| timed);
        let in_time = smoothed.map_or(third, |smoothed| {
            // Linux's pace, whether or not anything is paced by it
            let gain = if window < self.control.threshold() / 2.0 { 2.0 } else { 1.2 };
            let rounds = 1e6 / smoothed.as_nanos().max(1) as f64;
            ((gain * window * rounds) as u64).max(2)
        });
        self.mss * third.min(in_time)
    }

    /// The next segment from `next` on that peer, application and `limit` (the window's end)
    /// permit.
    fn cut(&mut self, limit: u64) -> Option<Segment> {
        let left = self.end - self.next;
        let len = left.min(self.chunk());
        if len == 0 {
            self.limited = false;
            return None;
        }
        let edge = self.una + self.peer_window;
        if self.next + len > limit.min(edge) {
            self.limited = limit <= edge;
            return None;
        }
        let outstanding = self.una < self.max;
        if len < self.mss && self.config.nagle && outstanding && self.next >= self.max {
            self.limited = false;
            return None;
        }
        let reason = if self.next < self.max { Reason::Timeout } else { Reason::New };
        let reduced = reason == Reason::New && core::mem::take(&mut self.tell);
        Some(Segment { start: self.next, len: len as u32, reason, reduced })
    }
}
