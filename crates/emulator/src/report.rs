//! What a link did, for people and for programs.

use crate::engine::Wire;
pub use crate::engine::direction::Counts;
use crate::engine::direction::Tally;
use crate::fidelity::{Evidence, Verdict, judge};
use ekiden_linux::host::clock::Urgency;
use ekiden_model::network::link::{Config, Serialiser, Snapshot};
use ekiden_model::units::{Bytes, Rate, Span};
use ekiden_record::histogram::Summary;
use serde::Serialize;

/// One direction.
#[derive(Debug, Clone, Serialize)]
pub struct DirectionReport {
    /// As `up`, `down`.
    pub name: String,
    /// The link's parameters, in words.
    pub link: String,
    /// Packets and bytes, by what became of them.
    pub packets: Snapshot,
    /// Nanoseconds from a packet's arrival until its last bit was sent.
    pub queueing_ns: Option<Summary>,
    /// Nanoseconds from a packet's arrival until it was due at the far end.
    pub delay_ns: Option<Summary>,
    /// Nanoseconds packets were handed over after they were due: the emulator's own error.
    pub lateness_ns: Option<Summary>,
    /// The same, as counts by size (each slot's smallest value and its count).
    pub lateness_slots: Vec<(u64, u64)>,
    /// Further counts.
    #[serde(flatten)]
    pub counts: Counts,
}

/// One link.
#[derive(Debug, Clone, Serialize)]
pub struct LinkReport {
    /// Its name.
    pub name: String,
    /// How long it ran.
    pub seconds: f64,
    /// Largest IP packet.
    pub mtu: u32,
    /// What passes the link: [`crate::topology::Mode::name`].
    pub mode: &'static str,
    /// How the emulator's threads ran beside the programs: `real-time` or `ordinary`.
    pub threads: &'static str,
    /// Its directions.
    pub directions: Vec<DirectionReport>,
    /// Processor time that the host took away, in parts per million.
    pub steal_ppm: u64,
    /// How far to trust the run.
    pub verdict: Verdict,
    /// Why the verdict is not better.
    pub reasons: Vec<String>,
}

impl DirectionReport {
    pub(crate) fn new(name: &str, config: &Config, tally: &Tally) -> Self {
        Self {
            name: name.to_owned(),
            link: describe(config),
            packets: tally.link,
            queueing_ns: tally.queueing.summary(),
            delay_ns: tally.delay.summary(),
            lateness_ns: tally.lateness.summary(),
            lateness_slots: tally.lateness.slots().collect(),
            counts: tally.counts,
        }
    }
}

impl LinkReport {
    pub(crate) fn new(
        wire: &Wire,
        directions: Vec<DirectionReport>,
        lasted: Span,
        steal_ppm: u64,
        urgency: Urgency,
    ) -> Self {
        let lateness = directions.iter().filter_map(|direction| direction.lateness_ns);
        let evidence = Evidence {
            packets: directions.iter().map(|direction| direction.packets.delivered).sum(),
            late: directions.iter().map(|direction| direction.counts.late).sum(),
            latest: Span::from_nanos(lateness.map(|summary| summary.most).max().unwrap_or(0)),
            missed: directions.iter().map(|d| d.counts.missed + d.counts.refused).sum(),
            steal_ppm,
        };
        let (verdict, reasons) = judge(&evidence);
        Self {
            name: wire.name.clone(),
            seconds: lasted.as_nanos() as f64 / 1e9,
            mtu: wire.mtu,
            mode: wire.mode.name(),
            threads: match urgency {
                Urgency::RealTime => "real-time",
                Urgency::Ordinary => "ordinary",
            },
            directions,
            steal_ppm,
            verdict,
            reasons,
        }
    }

    /// Reports that `events` are missing from the record, which does not make the run worse.
    pub(crate) fn with_left_out(mut self, events: u64) -> Self {
        if events > 0 {
            self.reasons.push(format!(
                "{events} events are missing from the packets written down, as writing did not keep \
                 up: write to memory, or of a slower link"
            ));
        }
        self
    }

    /// Adds packets that a device of `host` threw away, which no link of the model lost.
    pub(crate) fn add_device_drops(&mut self, host: &str, dropped: u64) {
        self.verdict = Verdict::Tainted;
        self.reasons.push(format!("{dropped} packets were thrown away by the device of {host}"));
    }

    /// A few lines for people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for direction in &self.directions {
            let Snapshot { delivered, delivered_bytes, dropped, lost, marked, .. } =
                direction.packets;
            let bytes = Bytes::new(delivered_bytes);
            let lasted = Span::from_nanos((self.seconds * 1e9) as u64);
            let rate = Rate::of(bytes, lasted).unwrap_or_default().as_bits_per_second();
            text += &format!(
                "{:>6}: {delivered} packets, {:.1} MB, {:.2} Mbit/s; {dropped} dropped from the queue, \
                 {lost} lost",
                direction.name,
                delivered_bytes as f64 / 1e6,
                rate as f64 / 1e6
            );
            if marked > 0 {
                text += &format!(", {marked} marked");
            }
            if let Some(delay) = direction.delay_ns {
                let ms = |nanos: u64| nanos as f64 / 1e6;
                text += &format!("; delay {:.1} … {:.1} ms", ms(delay.least), ms(delay.most));
            }
            if direction.counts.together > 0 {
                let share = direction.counts.together as f64 * 100.0 / delivered.max(1) as f64;
                text += &format!("; {share:.0} % handed over together with others");
            }
            text.push('\n');
        }
        let lateness = self.directions.iter().filter_map(|direction| direction.lateness_ns);
        let worst = lateness
            .fold((0, 0), |(p99, most), summary| (summary.p99.max(p99), summary.most.max(most)));
        let us = |nanos: u64| nanos as f64 / 1e3;
        text += &format!(
            "{}: packets came {:.0} µs late at the 99th percentile, {:.0} µs at most",
            self.verdict,
            us(worst.0),
            us(worst.1)
        );
        for reason in &self.reasons {
            text += &format!("; {reason}");
        }
        text.push('\n');
        text
    }
}

/// A link's parameters in one line.
pub fn describe(config: &Config) -> String {
    let mut parts = vec![format!("delay {}", config.delay)];
    if config.jitter != Span::ZERO {
        parts.push(format!("jitter {}", config.jitter));
    }
    parts.push(match &config.serialiser {
        // the text form lists every line of it
        Serialiser::Trace(trace) => format!("a trace of {} on average", trace.mean_rate()),
        other => format!("rate {other}"),
    });
    parts.push(format!("loss {}", config.loss));
    if !config.schedule.is_empty() {
        let changes = config.schedule.len();
        parts.push(format!("{changes} change{}", if changes == 1 { "" } else { "s" }));
    }
    parts.join(", ")
}
