//! A long link with loss and little room (seed 4): the same load over TCP, a pair of relays with a tunnel
//! between them, and hysteria2.
//!
//! ```text
//! near: clients, relay ── up, down; half the round trip each way; loss ── far: relay, server
//! ```
//! - [`bulk`]: downloads and uploads, echoes beside them, a competing flow.
//! - [`pace`]: how evenly packets of such a download leave.
//! - [`brief`]: a file, first bytes, pages.
//! - [`played`]: a stream that is played, and where it stalls.
//! - [`screens`]: a hundred thin clients (seed 0).
//!
//! What is thin costs little, so several runs may be made beside each other, each with machines and a link of
//! its own: [`weight`].

pub(crate) mod bottleneck;
mod brief;
pub(crate) mod bulk;
pub(crate) mod changes;
mod pace;
mod played;
mod scene;
pub(crate) mod screens;
mod way;

use super::pressure::BUFFERS_OF_LINUX;
use super::window::Packets;
use crate::cell::Cell;
use crate::engine::{EngineError, Outcome, WHOLE};
use crate::peers::sing_box;
use ekiden_emulator::settings::Settings;
use ekiden_emulator::topology::{HostPlan, LinkPlan, MTU, TopologyPlan};
use ekiden_linux::bpf::Needs;
use ekiden_model::link::{GilbertElliott, Loss, LossUnit, QueueLength};
use ekiden_model::units::{Rate, Share, Span};
use std::collections::BTreeMap;
use std::path::Path;

/// Where people are.
const NEAR: &str = "near";
/// Where the servers are.
const FAR: &str = "far";
/// What a window of TCP's is filled with on such links: single packets.
pub(super) const PACKETS: Packets = Packets { mtu: MTU, together: false };
/// Links that are as fast as this together are as much as one machine bears; found by trying on two
/// processors, with a margin.
const BORNE: u64 = 88_000_000;
/// Whether a cell is of this study.
pub(super) fn is_meant(cell: &Cell) -> bool {
    cell.values.contains_key("way")
}

/// Why a cell cannot be run here.
pub(super) fn lacks(cell: &Cell) -> Option<&'static str> {
    if cell.text("way") == Ok("hold") && Needs::look().met().is_err() {
        return Some(
            "the program that holds a rate in the kernel cannot be loaded here; «ekiden doctor» says why",
        );
    }
    let absent = cell.text("way") == Ok("hysteria2") && sing_box::find().is_err();
    absent.then_some(
        "sing-box, which has hysteria2, is not here; «scripts/peers.sh --sing-box» builds it where Go is",
    )
}

/// How much of the machine a cell's run takes, in parts of a hundred.
pub(super) fn weight(cell: &Cell) -> u32 {
    if screens::scenario(cell).is_some() || cell.text("load") == Ok("pace") {
        // a processor's whole work; and what others do would be in the gaps
        return WHOLE;
    }
    let rate = |axis: &str| cell.value::<Rate>(axis).map_or(BORNE, Rate::as_bits_per_second);
    // beside a tunnel that is told less, only a small window is sent
    let most = |told: &str, link: &str| rate(told).min(rate(link));
    let sum = most("told-down", "downlink") + most("told-up", "uplink");
    let share = sum.saturating_mul(u64::from(WHOLE)) / BORNE;
    // programs take something even where next to nothing is sent, and so does each connection
    let connections = cell.value::<u32>("streams").unwrap_or(1) / 8;
    u32::try_from(share).unwrap_or(WHOLE).max(6).saturating_add(connections).min(WHOLE)
}

/// A cell's run, with the ekiden at this path. `buffer` makes the cell's window, if it has one.
///
/// # Errors
/// The cell lacks a value, something did not start or broke, or a byte was wrong.
pub(super) fn run(
    cell: &Cell,
    seed: u64,
    ekiden: &Path,
    buffer: Option<u64>,
) -> Result<Outcome, EngineError> {
    if let Some(scenario) = screens::scenario(cell) {
        return screens::simulate(cell, scenario, seed);
    }
    let plan = network(cell, seed, buffer)?;
    let links = changes::links(cell, seed)?;
    match cell.text("load")? {
        "download" | "upload" | "echo" | "pace" => bulk::run(cell, &plan, links, ekiden),
        "file" | "first byte" | "page" => brief::run(cell, &plan, links, ekiden),
        "screens" => screens::run(cell, seed, &plan, links, ekiden),
        "stream" => played::run(cell, &plan, links, ekiden),
        other => Err(cell.error("load", &format!("«{other}» is not known")).into()),
    }
}

/// The network of a cell.
///
/// # Errors
/// The cell lacks a value or has one that makes no network.
pub(crate) fn network(
    cell: &Cell,
    seed: u64,
    buffer: Option<u64>,
) -> Result<TopologyPlan, EngineError> {
    let congestion = match cell.text("way")? {
        name @ ("cubic" | "bbr") => Some(name.to_owned()),
        _ => None,
    };
    let mut sysctls: BTreeMap<String, String> =
        BUFFERS_OF_LINUX.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    if let Some(bytes) = buffer {
        sysctls.insert("net.ipv4.tcp_rmem".to_owned(), format!("4096 {bytes} {bytes}"));
    }
    let host = |name: &str| HostPlan {
        name: name.to_owned(),
        congestion: congestion.clone(),
        sysctls: sysctls.clone(),
        ..HostPlan::default()
    };
    let [_, down] = changes::links(cell, seed)?;
    let up = cell.text("load")? == "upload";
    let direction = |rate: &str, has_data: bool, seed: u64| {
        let settings = Settings {
            delay: Some(Span::from_nanos(cell.value::<Span>("rtt")?.as_nanos() / 2)),
            rate: Some(cell.value(rate)?),
            loss: Some(loss(cell, has_data)?),
            queue: Some(QueueLength::Time(cell.value("queue")?)),
            ..Settings::default()
        };
        let made = settings.config(MTU, false, seed, Path::new("."));
        made.map_err(|error| EngineError(format!("the long link: {error}")))
    };
    let mut backward = direction("downlink", !up, seed.wrapping_add(1))?;
    backward.schedule = changes::schedule(&down);
    let link = LinkPlan {
        name: "long".to_owned(),
        between: [NEAR.to_owned(), FAR.to_owned()],
        mtu: MTU,
        super_packets: false,
        // a fast link would have packets sent in batches
        one_by_one: cell.text("load")? == "pace",
        forward: direction("uplink", up, seed)?,
        backward,
    };
    Ok(TopologyPlan {
        hosts: vec![host(NEAR), host(FAR)],
        links: vec![link],
        processes: Vec::new(),
    })
}

/// Independent, or in bursts of a mean length: a bad spell loses all, a good one nothing (ALGORITHMS §E.2). Bursts are
/// counted in packets of data, 3 ms apart at 4 Mbit/s; acknowledgements on their way back lie further apart than a
/// burst lasts, so each of them is lost by itself.
fn loss(cell: &Cell, has_data: bool) -> Result<Loss, EngineError> {
    let share: Share = cell.value("loss")?;
    let burst: u64 = cell.value("burst")?;
    if share == Share::NONE {
        return Ok(Loss::None);
    }
    if burst == 1 || !has_data {
        return Ok(Loss::Independent(share, LossUnit::Packet));
    }
    let p = share.as_parts_per_billion() as f64 / 1e9;
    let to_good = 1.0 / burst as f64;
    let part = |value: f64| {
        let parts = Share::from_parts_per_billion((value * 1e9).round() as u64);
        parts.ok_or_else(|| cell.error("loss", "it is more than bursts of this length can be"))
    };
    let chain = GilbertElliott {
        to_good: part(to_good)?,
        to_bad: part(to_good * p / (1.0 - p))?,
        good_loss: Share::NONE,
        bad_loss: part(1.0)?,
    };
    Ok(Loss::GilbertElliott(chain, LossUnit::Packet))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{self, Choice};

    pub(super) fn cell(part: &str, wanted: &[(&str, &str)]) -> Cell {
        let plan = plan::find("satellite").unwrap();
        let cells = plan.cells(&Choice { only: vec![part.to_owned()], ..Choice::default() });
        let fits = |cell: &Cell| wanted.iter().all(|(axis, value)| cell.text(axis) == Ok(*value));
        cells.into_iter().map(|(cell, _)| cell).find(fits).unwrap()
    }

    #[test]
    fn bursts_have_the_mean_loss_and_length_that_are_asked() {
        let cell = cell("links", &[("loss", "5 %"), ("way", "ekiden")]);
        let Loss::GilbertElliott(chain, _) = loss(&cell, true).unwrap() else {
            panic!("no bursts")
        };
        let of = |share: Share| share.as_parts_per_billion() as f64 / 1e9;
        let (bad, good) = (of(chain.to_bad), of(chain.to_good));
        // the share of time in the bad state, in which all is lost
        assert!((bad / (bad + good) - 0.05).abs() < 1e-6, "{bad} {good}");
        assert!((1.0 / good - 19.0).abs() < 1e-6, "{good}");
    }

    #[test]
    fn the_way_down_is_the_far_one_s() {
        let cell = cell("links", &[("loss", "5 %"), ("way", "ekiden"), ("load", "download")]);
        let plan = network(&cell, 1, None).unwrap();
        let link = &plan.links[0];
        assert_eq!(link.between, ["near", "far"]);
        let rate = |bits| ekiden_model::link::Serialiser::Rate(Rate::from_bits_per_second(bits));
        assert_eq!(link.backward.serialiser, rate(10_000_000));
        assert_eq!(link.forward.serialiser, rate(2_000_000));
        assert_ne!(link.forward.seed, link.backward.seed);
    }

    #[test]
    fn thin_links_are_run_beside_each_other_and_fat_ones_alone() {
        assert_eq!(weight(&cell("fat", &[("downlink", "200 Mbit/s")])), 100);
        assert_eq!(100 / weight(&cell("echo", &[])), 4);
        assert!(weight(&cell("links", &[("uplink", "500 kbit/s")])) < 10);
    }
}
