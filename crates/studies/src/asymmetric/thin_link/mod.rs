//! A thin uplink under a wide downlink, for both engines: the cell's values, the model of ACKs, and the search
//! for the uplink that a downlink needs.

mod search;

use crate::download::tcp::HEADER;
use ekiden_lab::cell::{Cell, CellError};
use ekiden_lab::engine::{EngineError, Fidelity, Outcome};
use ekiden_lab::path;
use ekiden_model::control::formula::AckStream;
use ekiden_model::network::link::{Bound, Config, QueueKind, Serialiser};
use ekiden_model::network::workload::stream::{Shape, StreamConfig};
use ekiden_model::units::{Bytes, Rate, Share, Span};
pub(crate) use search::Search;

/// An uplink that limits nothing: as fast as the study's fastest downlink.
const FREE: Rate = Rate::from_bits_per_second(1_000_000_000);
/// A needed uplink gives this share of the goodput that a free one gives (algorithms/asymmetric D.3).
const ENOUGH: f64 = 0.95;
/// Bursts come in every other of these.
const BURST: Span = Span::from_millis(10);

#[derive(Debug, Clone)]
pub(crate) struct Thin {
    pub(crate) downlink: Rate,
    pub(crate) mtu: u32,
    /// One way.
    delay: Span,
    /// Of the whole path, each way: what is beside the thin link loses nothing.
    loss: Share,
    slots: u64,
    framing: u32,
    up_queue: QueueKind,
    /// Segments that an ACK answers, as asked of the simulator's receiver and expected of any.
    pub(crate) every: u32,
}

impl Thin {
    pub(crate) fn of(cell: &Cell) -> Result<Self, CellError> {
        let mtu: u32 = cell.value("mtu")?;
        let every = match cell.text("acks")? {
            // what the study's table implies (algorithms/asymmetric D.3)
            "study" if mtu > 1500 => 1,
            "study" => 2,
            _ => cell.value::<u32>("acks")?.max(1),
        };
        if cell.value::<u32>("relays")? > 0 && cell.text("layout")? != "ends" {
            return Err(cell.error("layout", "relays of a thin link stand at its ends"));
        }
        let legs = path::legs(cell)?;
        let longest = legs.iter().map(|leg| leg.rtt).max().unwrap_or(Span::ZERO);
        let loss: Share = cell.value("loss")?;
        if loss != Share::NONE && cell.values.contains_key("handshake-loss") {
            let what = "where handshakes are lost by a plan of their own, nothing else is";
            return Err(cell.error("loss", what));
        }
        Ok(Self {
            downlink: cell.value("downlink")?,
            delay: Span::from_nanos(longest.as_nanos() / 2),
            loss,
            slots: cell.value("slots")?,
            framing: cell.value("framing")?,
            up_queue: cell.value("up-queue")?,
            mtu,
            every,
        })
    }

    /// The link's way from the client, which counts framing as the study's shaper did.
    pub(crate) fn up(&self, uplink: Rate) -> Config {
        let bound = Bound::Packets(self.slots);
        Config {
            discipline: self.up_queue.with(bound),
            serialiser: Serialiser::Rate(uplink),
            framing: self.framing,
            delay: self.delay,
            loss: self.loss.into(),
            ..Config::default()
        }
    }

    /// The way to the client, which counts IP packets.
    pub(crate) fn down(&self) -> Config {
        Config {
            discipline: QueueKind::DropTail.with(Bound::Packets(self.slots)),
            serialiser: Serialiser::Rate(self.downlink),
            delay: self.delay,
            loss: self.loss.into(),
            ..Config::default()
        }
    }

    /// The ACKs of a full downlink.
    pub(crate) fn acks(&self) -> AckStream {
        AckStream {
            mtu: Bytes::new(self.mtu.into()),
            ack: Bytes::new((HEADER + self.framing).into()),
            packets_per_ack: self.every.into(),
        }
    }
}

/// Packets that jam an uplink of this rate, and the bytes of each as an IP packet; `None` where the cell has
/// none.
pub(crate) fn jam(
    cell: &Cell,
    uplink: Rate,
    seed: u64,
) -> Result<Option<(StreamConfig, u32)>, CellError> {
    if !cell.values.contains_key("jam") {
        return Ok(None);
    }
    let share: Share = cell.value("jam")?;
    let bytes: u32 = cell.value("jam-packet")?;
    let framing: u32 = cell.value("framing")?;
    let shape = match cell.text("jam-shape")? {
        "bursts" => Shape::Bursts { on: BURST, off: BURST },
        _ => Shape::Steady,
    };
    let rate = Rate::from_bits_per_second(share.of(uplink.as_bits_per_second()));
    let stream = StreamConfig { rate, wire: bytes + framing, shape, seed };
    Ok((share != Share::NONE).then_some((stream, bytes)))
}

/// The ACK model's Mbit/s: the uplink that a cell needs, or the goodput that its uplink allows; `None` of a
/// jammed or lossy one and of handshakes.
pub(crate) fn expected(cell: &Cell) -> Option<f64> {
    let thin = Thin::of(cell).ok()?;
    let mbit = |rate: Rate| rate.as_bits_per_second() as f64 / 1e6;
    if crate::asymmetric::handshakes::is_about(cell)
        || thin.loss != Share::NONE
        || cell.value("jam").ok().is_some_and(|jam: Share| jam != Share::NONE)
    {
        return None;
    }
    let Ok(uplink) = cell.value::<Rate>("uplink") else {
        return Some(mbit(thin.acks().uplink(thin.downlink)));
    };
    let payload = Bytes::new(thin.mtu.saturating_sub(HEADER).into());
    let whole = mbit(thin.downlink) * payload.as_u64() as f64 / f64::from(thin.mtu);
    Some(mbit(thin.acks().goodput(payload, uplink)).min(whole))
}

/// What one download over the thin link showed.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Passage {
    /// Mbit/s of the file.
    pub(crate) goodput: f64,
    /// How long it was looked at.
    pub(crate) seconds: f64,
    /// Packets with payload that were sent down the thin link.
    pub(crate) segments: u64,
    /// ACKs that were sent up, dropped ones too.
    pub(crate) acks: u64,
    /// Bytes of those, as IP packets.
    pub(crate) ack_bytes: u64,
    /// Whether the links kept their time, and why not.
    pub(crate) fidelity: Fidelity,
    pub(crate) reasons: Vec<String>,
}

impl Passage {
    /// Mbit/s of ACKs as the uplink counts them.
    fn ack_rate(&self, framing: u32) -> f64 {
        let bytes = self.ack_bytes + self.acks * u64::from(framing);
        bytes as f64 * 8.0 / self.seconds / 1e6
    }

    /// Its figures, put into an outcome, each name with this ending.
    fn tell(&self, framing: u32, ending: &str, outcome: &mut Outcome) {
        let figures = [
            ("goodput_mbit", self.goodput),
            ("segments_per_ack", self.segments as f64 / self.acks as f64),
            ("ack_mbit", self.ack_rate(framing)),
            ("ack_ip_mbit", self.ack_rate(0)),
            ("ack_ip_bytes", self.ack_bytes as f64),
        ];
        let finite = figures.into_iter().filter(|(_, value)| value.is_finite());
        finite
            .for_each(|(name, value)| outcome.add_figures([(&*format!("{name}{ending}"), value)]));
    }
}

/// How carefully an uplink is looked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Care {
    /// The needed uplink is then known to this factor.
    pub(crate) precision: f64,
    /// Downloads over an uplink before it counts as too thin, because something else may have disturbed one.
    pub(crate) tries: u32,
}

/// Runs a cell by `download` over an uplink of the given rate: once where the cell has a rate, otherwise until
/// the needed one is found. Errors: the cell lacks a value, a download failed, or no uplink is enough.
pub(crate) fn run(
    cell: &Cell,
    care: Care,
    mut download: impl FnMut(Rate) -> Result<Passage, EngineError>,
) -> Result<Outcome, EngineError> {
    let thin = Thin::of(cell)?;
    let mut outcome = Outcome::default();
    if cell.values.contains_key("uplink") {
        let passage = download(cell.value("uplink")?)?;
        outcome.value = passage.goodput;
        passage.tell(thin.framing, "", &mut outcome);
        (outcome.fidelity, outcome.reasons) = (passage.fidelity, passage.reasons);
        return Ok(outcome);
    }
    let mut full = download(FREE)?;
    for _ in 1..care.tries {
        let again = download(FREE)?;
        if again.goodput > full.goodput {
            full = again;
        }
    }
    let model = thin.acks().uplink(thin.downlink).as_bits_per_second() as f64;
    let mut search = Search::new(model / 4.0, model * 2.0, care.precision);
    let (mut probes, mut at_point) = (care.tries, full.clone());
    let (mut fidelity, mut reasons) = (full.fidelity, full.reasons.clone());
    while let Some(uplink) = search.next() {
        let mut enough = false;
        // of several tries the one whose links kept their time best stands for all
        let mut best: Option<(Fidelity, Vec<String>)> = None;
        for _ in 0..care.tries {
            let passage = download(Rate::from_bits_per_second(uplink.round() as u64))?;
            probes += 1;
            if best.as_ref().is_none_or(|(so_far, _)| passage.fidelity < *so_far) {
                best = Some((passage.fidelity, passage.reasons.clone()));
            }
            if passage.goodput >= ENOUGH * full.goodput {
                (enough, at_point) = (true, passage);
                break;
            }
        }
        search.tell(enough);
        if let Some((of_uplink, why)) = best {
            fidelity = fidelity.max(of_uplink);
            reasons.extend(why);
        }
    }
    let found = search.found().ok_or_else(|| {
        let most = search.most() / 1e6;
        EngineError(format!("no uplink up to {most:.1} Mbit/s lets 95 % of the goodput through"))
    })?;
    reasons.sort();
    reasons.dedup();
    outcome.value = found / 1e6;
    full.tell(thin.framing, "_free", &mut outcome);
    at_point.tell(thin.framing, "", &mut outcome);
    let per_100 = outcome.value / full.goodput * 100.0;
    outcome.add_figures([("model_mbit", model / 1e6), ("per_100_mbit", per_100)]);
    outcome.add_figures([("probes", f64::from(probes))]);
    (outcome.fidelity, outcome.reasons) = (fidelity, reasons);
    Ok(outcome)
}

#[cfg(test)]
pub(crate) mod tests;
