//! How a link's parts are written, on a command line and in a plan. What is printed reads back.
//!
//! | what | forms |
//! |---|---|
//! | [`QueueLength`] | `100ms`, `50packets`, `64KiB`, `unlimited` |
//! | [`QueueKind`] | `droptail`, `priority`, `ack-first`, `fq-codel` |
//! | [`Serialiser`] | `2 Mbit/s`, `unlimited`, `trace(5, 10, 12)` (milliseconds) |
//! | [`Loss`] | `none`, `0.1%`, `gilbert(1%, 10%)`, `gilbert(1%, 10%, good 0%, bad 80%)`, `packets(3, 17)`; all but the last with ` per super-packet` |
//! | [`LossUnit`] | `packet`, `super-packet`, `train(65535 B, 1 ms)` |
//! | [`Change`] | `rate 2 Mbit/s`, `delay 300ms`, `loss 5%` |
//! | [`Scheduled`] | `10s: rate 2 Mbit/s` |

use super::Trace;
use super::{Bound, Change, Discipline, FqCodelConfig, GilbertElliott, Loss, LossUnit, Serialiser};
use crate::units::{Bytes, Rate, Share, Span};
use alloc::collections::BTreeSet;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::{self, Display, Formatter};
use core::str::FromStr;

/// Why a text cannot be parsed: the expected form, the fault, and an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextError(String);

impl Display for TextError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for TextError {}

fn wrong(text: &str, what: &str, why: impl Display, example: &str) -> TextError {
    TextError(alloc::format!("`{}` is not {what}: {why}; write it like {example}", text.trim()))
}

/// How long a queue may be, before the rate is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueLength {
    /// What the link's (mean) rate sends in that time.
    Time(Span),
    /// So many packets.
    Packets(u64),
    /// So many bytes of IP packets.
    Bytes(Bytes),
    /// Any amount.
    Unlimited,
}

impl QueueLength {
    /// The bound at the serialiser's (mean) rate; a length in time needs a rate above 0.
    pub fn bound(self, serialiser: &Serialiser) -> Result<Bound, TextError> {
        let rate = match serialiser {
            Serialiser::Infinite => None,
            Serialiser::Rate(rate) => Some(*rate),
            Serialiser::Trace(trace) => Some(trace.mean_rate()),
        };
        Ok(match self {
            Self::Packets(most) => Bound::Packets(most),
            Self::Bytes(most) => Bound::Bytes(most),
            Self::Unlimited => Bound::Unlimited,
            Self::Time(span) => match rate.map(Rate::as_bits_per_second) {
                None | Some(0) => {
                    return Err(TextError(alloc::format!(
                        "a queue of {span} is as long as the link's rate makes it, and the link has \
                         none; give a rate, or a queue like `64 KiB`"
                    )));
                }
                Some(rate) => {
                    let work = u128::from(rate) * u128::from(span.as_nanos());
                    let bytes = u64::try_from(work.div_ceil(8_000_000_000)).unwrap_or(u64::MAX);
                    Bound::Bytes(Bytes::new(bytes))
                }
            },
        })
    }
}

const QUEUE_LENGTHS: &str = "`100 ms`, `50 packets`, `64 KiB` or `unlimited`";

impl FromStr for QueueLength {
    type Err = TextError;
    fn from_str(text: &str) -> Result<Self, TextError> {
        let given = text.trim();
        if given == "unlimited" {
            return Ok(Self::Unlimited);
        }
        let number = given.strip_suffix("packets").or_else(|| given.strip_suffix("packet"));
        if let Some(number) = number {
            return whole(number.trim())
                .map(Self::Packets)
                .map_err(|why| wrong(text, "a queue's length", why, QUEUE_LENGTHS));
        }
        let bytes = given.parse().map(Self::Bytes);
        bytes.or_else(|_| given.parse().map(Self::Time)).map_err(|_| {
            let why = "it is no time, number of packets or size";
            wrong(text, "a queue's length", why, QUEUE_LENGTHS)
        })
    }
}

impl Display for QueueLength {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Time(span) => write!(f, "{span}"),
            Self::Packets(most) => write!(f, "{most} packets"),
            Self::Bytes(most) => write!(f, "{most}"),
            Self::Unlimited => f.write_str("unlimited"),
        }
    }
}

/// A discipline by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum QueueKind {
    /// [`Discipline::DropTail`].
    #[default]
    DropTail,
    /// [`Discipline::Priority`].
    Priority,
    /// [`Discipline::AckFirst`].
    AckFirst,
    /// [`Discipline::FqCodel`].
    FqCodel,
}

impl QueueKind {
    /// The discipline with this bound. FQ-CoDel's other parameters are RFC 8290's; its limits
    /// (10,240 packets, 32 MiB) hold where the bound is of the other kind.
    pub fn with(self, bound: Bound) -> Discipline {
        let rfc = FqCodelConfig::default();
        match self {
            Self::DropTail => Discipline::DropTail(bound),
            Self::Priority => Discipline::Priority(bound),
            Self::AckFirst => Discipline::AckFirst(bound),
            Self::FqCodel => Discipline::FqCodel(match bound {
                Bound::Unlimited => {
                    FqCodelConfig { limit: u64::MAX, memory: Bytes::new(u64::MAX), ..rfc }
                }
                Bound::Packets(limit) => FqCodelConfig { limit, ..rfc },
                Bound::Bytes(memory) => FqCodelConfig { memory, ..rfc },
            }),
        }
    }
}

impl FromStr for QueueKind {
    type Err = TextError;
    fn from_str(text: &str) -> Result<Self, TextError> {
        match text.trim() {
            "droptail" => Ok(Self::DropTail),
            "priority" => Ok(Self::Priority),
            "ack-first" => Ok(Self::AckFirst),
            "fq-codel" => Ok(Self::FqCodel),
            _ => {
                let examples = "`droptail`, `priority`, `ack-first` or `fq-codel`";
                Err(wrong(text, "a queue's discipline", "the name is not known", examples))
            }
        }
    }
}

crate::units::named!(QueueKind {
    DropTail = "droptail",
    Priority = "priority",
    AckFirst = "ack-first",
    FqCodel = "fq-codel",
});

const SERIALISERS: &str = "`2 Mbit/s`, `unlimited` or `trace(5, 10, 12)`";

impl FromStr for Serialiser {
    type Err = TextError;
    fn from_str(text: &str) -> Result<Self, TextError> {
        if text.trim() == "unlimited" {
            return Ok(Self::Infinite);
        }
        if let Some(times) = call(text, "trace") {
            let lines: Vec<&str> = times.split(',').collect();
            return Trace::parse(&lines.join("\n"))
                .map(Self::Trace)
                .map_err(|why| wrong(text, "a trace", why, "`trace(5, 10, 12)`, in milliseconds"));
        }
        let rate = text.parse().map(Self::Rate);
        rate.map_err(|_| wrong(text, "a rate", "it is no number with a unit", SERIALISERS))
    }
}

impl Display for Serialiser {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Infinite => f.write_str("unlimited"),
            Self::Rate(rate) => write!(f, "{rate}"),
            Self::Trace(trace) => list(f, "trace", trace.times()),
        }
    }
}

const UNITS: &str = "`packet`, `super-packet` or `train(65535 B, 1 ms)`";

impl FromStr for LossUnit {
    type Err = TextError;
    fn from_str(text: &str) -> Result<Self, TextError> {
        let refuse = |why: &dyn Display| wrong(text, "what loss falls on", why, UNITS);
        match text.trim() {
            "packet" => return Ok(Self::Packet),
            "super-packet" => return Ok(Self::SuperPacket),
            _ => {}
        }
        let inside = call(text, "train").ok_or_else(|| refuse(&"the name is not known"))?;
        let (most, gap) = inside
            .split_once(',')
            .ok_or_else(|| refuse(&"a train has a size and a gap in time"))?;
        Ok(Self::Train {
            most: most.parse().map_err(|why| refuse(&why))?,
            gap: gap.parse().map_err(|why| refuse(&why))?,
        })
    }
}

impl Display for LossUnit {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Packet => f.write_str("packet"),
            Self::SuperPacket => f.write_str("super-packet"),
            Self::Train { most, gap } => write!(f, "train({most}, {gap})"),
        }
    }
}

const LOSSES: &str = "`0.1 %`, `gilbert(1 %, 10 %)`, `packets(3, 17)` or `none`";

impl FromStr for Loss {
    type Err = TextError;
    fn from_str(text: &str) -> Result<Self, TextError> {
        let refuse = |why: &dyn Display| wrong(text, "a loss", why, LOSSES);
        let (process, unit) = match text.split_once(" per ") {
            Some((process, unit)) => (process.trim(), Some(unit.parse::<LossUnit>()?)),
            None => (text.trim(), None),
        };
        let loss = if process == "none" {
            Self::None
        } else if let Some(inside) = call(process, "packets") {
            let numbers = inside.split(',').map(str::trim).filter(|part| !part.is_empty());
            let numbers: Result<BTreeSet<u64>, _> = numbers.map(whole).collect();
            Self::Listed(numbers.map_err(|why| refuse(&why))?.into())
        } else if let Some(inside) = call(process, "gilbert") {
            let chain = gilbert(inside).map_err(|why| refuse(&why))?;
            Self::GilbertElliott(chain, LossUnit::Packet)
        } else {
            let share = process.parse().map_err(|why| refuse(&why))?;
            Self::Independent(share, LossUnit::Packet)
        };
        match (unit, &loss) {
            (Some(_), Self::None | Self::Listed(_)) => {
                Err(refuse(&"only a share or `gilbert` is per something"))
            }
            (Some(unit), _) => Ok(loss.per(unit)),
            (None, _) => Ok(loss),
        }
    }
}

/// `to bad, to good[, good share][, bad share]`; by default good loses nothing, bad everything
/// (Gilbert).
fn gilbert(inside: &str) -> Result<GilbertElliott, String> {
    let mut parts = inside.split(',').map(str::trim);
    let mut turn = |what: &str| {
        let part = parts.next().filter(|part| !part.is_empty());
        let part = part.ok_or_else(|| alloc::format!("the chance of turning {what} is missing"))?;
        part.parse::<Share>().map_err(|why| why.to_string())
    };
    let (to_bad, to_good) = (turn("bad")?, turn("good")?);
    let mut chain =
        GilbertElliott { to_bad, to_good, good_loss: Share::NONE, bad_loss: Share::ALL };
    for part in parts {
        let (state, share) = part.split_once(' ').unwrap_or((part, ""));
        let state = match state {
            "good" => &mut chain.good_loss,
            "bad" => &mut chain.bad_loss,
            _ => return Err(alloc::format!("`{part}` should be like `good 0 %` or `bad 80 %`")),
        };
        *state = share.parse().map_err(|why: crate::units::UnitError| why.to_string())?;
    }
    Ok(chain)
}

impl Display for Loss {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => return f.write_str("none"),
            Self::Listed(numbers) => return list(f, "packets", numbers.iter()),
            Self::Independent(share, _) => write!(f, "{share}")?,
            Self::GilbertElliott(chain, _) => {
                write!(f, "gilbert({}, {}", chain.to_bad, chain.to_good)?;
                if chain.good_loss != Share::NONE {
                    write!(f, ", good {}", chain.good_loss)?;
                }
                if chain.bad_loss != Share::ALL {
                    write!(f, ", bad {}", chain.bad_loss)?;
                }
                f.write_str(")")?;
            }
        }
        match self.unit() {
            LossUnit::Packet => Ok(()),
            unit => write!(f, " per {unit}"),
        }
    }
}

const CHANGES: &str = "`rate 2 Mbit/s`, `delay 300 ms` or `loss 5 %`";

impl FromStr for Change {
    type Err = TextError;
    fn from_str(text: &str) -> Result<Self, TextError> {
        let refuse = |why: &dyn Display| wrong(text, "a change", why, CHANGES);
        let (what, value) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
        match what {
            "rate" => value.parse().map(Self::Serialiser),
            "delay" => value.parse().map(Self::Delay).map_err(|why| refuse(&why)),
            "loss" => value.parse().map(Self::Loss),
            _ => Err(refuse(&"it begins with none of rate, delay and loss")),
        }
    }
}

impl Display for Change {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Serialiser(serialiser) => write!(f, "rate {serialiser}"),
            Self::Delay(delay) => write!(f, "delay {delay}"),
            Self::Loss(loss) => write!(f, "loss {loss}"),
        }
    }
}

/// One entry of a schedule ([`super::Config::schedule`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scheduled {
    /// Since the link began.
    pub at: Span,
    /// What happens then.
    pub change: Change,
}

impl FromStr for Scheduled {
    type Err = TextError;
    fn from_str(text: &str) -> Result<Self, TextError> {
        let refuse =
            |why: &dyn Display| wrong(text, "a change at a time", why, "`10 s: rate 2 Mbit/s`");
        let (at, change) =
            text.split_once(':').ok_or_else(|| refuse(&"there is no `:` after the time"))?;
        let at = at.parse().map_err(|why| refuse(&why))?;
        Ok(Self { at, change: change.parse()? })
    }
}

impl Display for Scheduled {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.change)
    }
}

impl From<Scheduled> for (Span, Change) {
    fn from(entry: Scheduled) -> Self {
        (entry.at, entry.change)
    }
}

/// What stands inside `name( … )`.
fn call<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.trim().strip_prefix(name)?.trim_start().strip_prefix('(')?.strip_suffix(')')
}

fn whole(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| alloc::format!("`{text}` is not a whole number"))
}

fn list<T: Display>(
    f: &mut Formatter<'_>,
    name: &str,
    items: impl IntoIterator<Item = T>,
) -> fmt::Result {
    write!(f, "{name}(")?;
    for (at, item) in items.into_iter().enumerate() {
        write!(f, "{}{item}", if at == 0 { "" } else { ", " })?;
    }
    f.write_str(")")
}

crate::units::serde_as_text!(QueueLength, QueueKind, Serialiser, LossUnit, Loss, Change, Scheduled);

#[cfg(test)]
mod tests;
