//! A link as people write it: on the command line of `ekiden link` and in topologies.

use ekiden_model::network::link::{
    Change, Config, Loss, LossUnit, QueueKind, QueueLength, Scheduled, Serialiser, Trace,
};
use ekiden_model::units::{Bytes, Rate, Span};
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};

/// The default queue: the bytes sent in this time, and at least [`LEAST_PACKETS`] full packets.
pub const QUEUE: Span = Span::from_millis(100);
/// The longest one-way delay.
pub const LONGEST: Span = Span::from_secs(3600);
/// The smallest default queue, so that a slow link takes a small window's burst.
pub const LEAST_PACKETS: u64 = 10;

/// One direction of a link; a missing value is that of both directions, or the default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Settings {
    /// One-way propagation delay.
    pub delay: Option<Span>,
    /// Up to this is added to each packet's delay.
    pub jitter: Option<Span>,
    /// Whether jitter may change the order of packets.
    pub reorder: Option<bool>,
    /// Rate of the link.
    pub rate: Option<Rate>,
    /// A trace in Mahimahi's format instead of a rate.
    pub trace: Option<PathBuf>,
    /// Which packets are lost.
    pub loss: Option<Loss>,
    /// What is lost at once.
    pub loss_unit: Option<LossUnit>,
    /// How much may wait.
    pub queue: Option<QueueLength>,
    /// Who of those goes first.
    pub discipline: Option<QueueKind>,
    /// Bytes added to each packet on the wire.
    pub framing: Option<u32>,
    /// Changes at times.
    pub change: Vec<Scheduled>,
    /// After which the changes begin again.
    pub every: Option<Span>,
}

/// Why settings do not make a link.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The trace cannot be read.
    #[error("the trace {}: {why}", file.display())]
    Trace {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Two settings do not go together.
    #[error("{0}")]
    Clash(String),
}

impl Settings {
    /// These settings, and for what they do not say, `others`.
    #[must_use]
    pub fn or(self, others: &Self) -> Self {
        let others = others.clone();
        // a rate on one side and a trace on the other are both about how fast packets leave
        let fast = self.rate.is_some() || self.trace.is_some();
        Self {
            delay: self.delay.or(others.delay),
            jitter: self.jitter.or(others.jitter),
            reorder: self.reorder.or(others.reorder),
            rate: self.rate.or(others.rate.filter(|_| !fast)),
            trace: self.trace.or(others.trace.filter(|_| !fast)),
            loss: self.loss.or(others.loss),
            loss_unit: self.loss_unit.or(others.loss_unit),
            queue: self.queue.or(others.queue),
            discipline: self.discipline.or(others.discipline),
            framing: self.framing.or(others.framing),
            change: if self.change.is_empty() { others.change } else { self.change },
            every: self.every.or(others.every),
        }
    }

    /// The model's parameters. `folder` is where a relative trace is looked for. Errors: a trace that cannot be
    /// read, or settings that do not go together.
    pub fn config(
        &self,
        mtu: u32,
        super_packets: bool,
        seed: u64,
        folder: &Path,
    ) -> Result<Config, SettingsError> {
        let serialiser = self.serialiser(folder)?;
        let mut loss = self.loss.clone().unwrap_or(Loss::None);
        let mut schedule: Vec<_> = self.change.iter().cloned().map(Into::into).collect();
        // a super-packet is lost as a whole
        let unit = self.loss_unit.or(super_packets.then_some(LossUnit::SuperPacket));
        if let Some(unit) = unit {
            loss = loss.per(unit);
            for (_, change) in &mut schedule {
                if let Change::Loss(loss) = change {
                    *loss = loss.clone().per(unit);
                }
            }
        }
        let per_packet = |loss: &Loss| *loss != Loss::None && loss.unit() == LossUnit::Packet;
        let later =
            |(_, change): &(Span, Change)| matches!(change, Change::Loss(loss) if per_packet(loss));
        if super_packets && (per_packet(&loss) || schedule.iter().any(later)) {
            return Err(clash(
                "a super-packet is lost as a whole, so loss by packet would lose too much: leave out \
                 either `loss-unit packet` (or the listed packets), or super-packets",
            ));
        }
        if self.rate == Some(Rate::default()) && schedule.is_empty() {
            let what =
                "a rate of 0 lets nothing through, ever; with a change at a time it may begin so";
            return Err(clash(what));
        }
        if self.delay.is_some_and(|delay| delay > LONGEST) {
            return Err(clash(format!("a delay of at most {LONGEST} is possible")));
        }
        let length = self.queue.unwrap_or_else(|| default_queue(&serialiser, mtu));
        let bound = length.bound(&serialiser).map_err(clash)?;
        let config = Config {
            discipline: self.discipline.unwrap_or_default().with(bound),
            serialiser,
            framing: self.framing.unwrap_or(0),
            loss,
            delay: self.delay.unwrap_or(Span::ZERO),
            jitter: self.jitter.unwrap_or(Span::ZERO),
            reorder: self.reorder.unwrap_or(false),
            seed,
            schedule,
            schedule_period: self.every,
        };
        config.check().map_err(clash)?;
        Ok(config)
    }

    fn serialiser(&self, folder: &Path) -> Result<Serialiser, SettingsError> {
        match (self.rate, &self.trace) {
            (Some(_), Some(_)) => Err(clash("a link has a rate or a trace, not both")),
            (Some(rate), None) => Ok(Serialiser::Rate(rate)),
            (None, Some(file)) => {
                let file = folder.join(file);
                let wrong = |why| SettingsError::Trace { file: file.clone(), why };
                let text = fs::read_to_string(&file).map_err(|error| wrong(error.to_string()))?;
                Trace::parse(&text).map(Serialiser::Trace).map_err(wrong)
            }
            (None, None) => Ok(Serialiser::Infinite),
        }
    }
}

fn clash(what: impl std::fmt::Display) -> SettingsError {
    SettingsError::Clash(what.to_string())
}

fn default_queue(serialiser: &Serialiser, mtu: u32) -> QueueLength {
    let rate = match serialiser {
        Serialiser::Infinite => return QueueLength::Unlimited,
        Serialiser::Rate(rate) => *rate,
        Serialiser::Trace(trace) => trace.mean_rate(),
    };
    let by_time =
        u128::from(rate.as_bytes_per_second()) * u128::from(QUEUE.as_nanos()) / 1_000_000_000;
    let by_packets = LEAST_PACKETS * u64::from(mtu);
    QueueLength::Bytes(Bytes::new(u64::try_from(by_time).unwrap_or(u64::MAX).max(by_packets)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ekiden_model::network::link::{Bound, Discipline};

    fn config(settings: &Settings) -> Result<Config, SettingsError> {
        settings.config(1500, false, 1, Path::new("."))
    }

    #[test]
    fn default_queue_follows_the_rate_and_holds_a_burst() {
        for (rate, bytes) in [("10 Mbit/s", 125_000), ("128 kbit/s", 15_000)] {
            let settings = Settings { rate: Some(rate.parse().unwrap()), ..Settings::default() };
            let bound = Bound::Bytes(Bytes::new(bytes));
            assert_eq!(
                config(&settings).unwrap().discipline,
                Discipline::DropTail(bound),
                "{rate}"
            );
        }
        assert_eq!(config(&Settings::default()).unwrap().discipline, Config::default().discipline);
    }

    #[test]
    fn direction_overrides_both_settings() {
        let both = Settings {
            delay: Some(Span::from_millis(25)),
            trace: Some("cell.trace".into()),
            ..Settings::default()
        };
        let up = Settings { rate: Some(Rate::from_bits_per_second(1)), ..Settings::default() };
        let up = up.or(&both);
        assert_eq!((up.delay, up.rate.is_some(), up.trace), (both.delay, true, None));
    }

    #[test]
    fn refuses_options_that_exclude_each_other() {
        let alone = |unit, change: &[&str]| Settings {
            loss: Some("1%".parse().unwrap()),
            loss_unit: unit,
            change: change.iter().map(|change| change.parse().unwrap()).collect(),
            ..Settings::default()
        };
        let with_super = |settings: &Settings| settings.config(1500, true, 1, Path::new("."));
        // whole super-packets are lost unless packets are asked for, now and later
        let whole = with_super(&alone(None, &["10s: loss 2%"])).unwrap();
        assert_eq!(whole.loss.unit(), LossUnit::SuperPacket);
        assert!(
            matches!(&whole.schedule[0].1, Change::Loss(loss) if loss.unit() == LossUnit::SuperPacket)
        );
        let refused = with_super(&alone(Some(LossUnit::Packet), &[])).unwrap_err().to_string();
        assert!(refused.contains("loss-unit packet"), "{refused}");
        let never = Settings { rate: Some(Rate::default()), ..Settings::default() };
        assert!(config(&never).unwrap_err().to_string().contains("nothing through"));
        let later = Settings { change: vec!["1s: rate 1 Mbit/s".parse().unwrap()], ..never };
        assert!(config(&later).is_ok());
        let far = Settings { delay: Some(Span::from_secs(10_000)), ..Settings::default() };
        assert!(config(&far).is_err());
        let trace = Settings { trace: Some("/nowhere".into()), ..Settings::default() };
        assert!(config(&trace).unwrap_err().to_string().starts_with("the trace /nowhere"));
    }
}
