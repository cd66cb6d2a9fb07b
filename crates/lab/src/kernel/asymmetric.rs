//! A download over a thin uplink: seed 3's cells on the real kernel. Every download has a network of its
//! own, since a link's rate stays what it was when it was made.

use super::jam::Jam;
use super::network::Network;
use super::set_up::{Files, SetUp};
use super::verdict;
use crate::asymmetry::{self, Care, Passage, Thin};
use crate::cell::Cell;
use crate::engine::{EngineError, Outcome};
use ekiden_emulator::report::LinkReport;
use ekiden_emulator::topology::{HostPlan, LinkPlan, TopologyPlan};
use ekiden_model::link::{Config, Serialiser};
use ekiden_model::units::{Rate, Span};
use std::collections::BTreeMap;
use std::path::Path;

/// To ±3 %.
const CARE: Care = Care { precision: 1.06, tries: 2 };
/// More than any download moves: 1,000 Mbit/s for a second are 119 MiB.
const WHOLE: u64 = 160 << 20;

/// What every download of a cell needs.
pub(super) struct Ground<'a> {
    pub(super) files: &'a mut Files,
    pub(super) ekiden: &'a Path,
    /// The receive buffer that makes the cell's window, if it has one.
    pub(super) buffer: Option<u64>,
}

/// A cell's run.
///
/// # Errors
/// The cell lacks a value, a download failed, or no uplink is enough.
pub(super) fn run(cell: &Cell, seed: u64, mut ground: Ground<'_>) -> Result<Outcome, EngineError> {
    let (mut jammed, mut mode) = (None, "");
    let mut outcome = asymmetry::run(cell, CARE, |uplink| {
        let told = download(cell, uplink, seed, &mut ground)?;
        (jammed, mode) = (told.jammed, told.mode);
        Ok(told.passage)
    })?;
    if let Some(rate) = jammed {
        outcome.figures.insert("jam_mbit".to_owned(), rate);
    }
    outcome.facts.insert("thin link".to_owned(), mode.to_owned());
    Ok(outcome)
}

struct Told {
    passage: Passage,
    /// Mbit/s of the jam as the uplink counts it.
    jammed: Option<f64>,
    mode: &'static str,
}

fn download(
    cell: &Cell,
    uplink: Rate,
    seed: u64,
    ground: &mut Ground<'_>,
) -> Result<Told, EngineError> {
    let thin = Thin::of(cell)?;
    let cut: Span = cell.value("cut")?;
    let network = network(cell, &thin, uplink, seed, ground.buffer)?;
    // a relay on each side: the link in the middle
    let thin_at = network.plan.links.len() / 2;
    let file = ground.files.of(WHOLE)?;
    let names = network.hosts.clone();
    let mut set_up = SetUp::build(cell, network, ground.files.folder(), ground.ekiden)?;
    let missing = || EngineError("a host of the thin link is not there".to_owned());
    let host = |n: usize| names.get(n).and_then(|name| set_up.topology.host(name));
    let jam = match asymmetry::jam(cell, uplink, seed)? {
        None => None,
        Some((stream, bytes)) => {
            let from = host(thin_at).ok_or_else(missing)?;
            let to = host(thin_at + 1).ok_or_else(missing)?;
            Some((Jam::start(from, to, stream, bytes)?, stream.wire))
        }
    };
    let _before = set_up.topology.look();
    let transfer = set_up.download(&file, WHOLE, cut)?;
    let jammed = jam.map(|(jam, wire)| jam.rate() * f64::from(wire) * 8.0 / 1e6);
    let (fidelity, reasons) = verdict(set_up.topology.look());
    let reports = set_up.finish()?;
    let report = reports.get(thin_at).ok_or_else(missing)?;
    let mut passage =
        Passage { goodput: transfer.goodput(), seconds: transfer.seconds, ..count(report) };
    (passage.fidelity, passage.reasons) = (fidelity, reasons);
    Ok(Told { passage, jammed, mode: report.mode })
}

/// What crossed the thin link, by the emulator's own count of packets.
fn count(report: &LinkReport) -> Passage {
    let mut passage = Passage::default();
    if let [up, down] = report.directions.as_slice() {
        passage.acks = up.acknowledgements;
        passage.ack_bytes = up.acknowledgement_bytes;
        passage.segments = down.packets.offered.saturating_sub(down.acknowledgements);
    }
    passage
}

/// The network of a cell.
///
/// # Errors
/// The cell lacks a value.
pub(super) fn network(
    cell: &Cell,
    thin: &Thin,
    uplink: Rate,
    seed: u64,
    buffer: Option<u64>,
) -> Result<Network, EngineError> {
    let relays: usize = cell.value("relays")?;
    if relays != 0 && relays != 2 {
        return Err(cell.error("relays", "a thin link has none, or one on each side").into());
    }
    let mut names = vec!["client".to_owned()];
    names.extend((1..=relays).map(|n| format!("relay{n}")));
    names.push("server".to_owned());
    let mut sysctls = BTreeMap::new();
    if let Some(bytes) = buffer {
        sysctls.insert("net.ipv4.tcp_rmem".to_owned(), format!("4096 {bytes} {bytes}"));
    }
    let congestion = cell.text("congestion")?.to_owned();
    // nothing else can be asked of this kernel
    let quickack = match cell.text("acks")? {
        "study" => None,
        "1" => Some(true),
        other => {
            let what = format!("«{other}» cannot be asked of the kernel; «study» and 1 can");
            return Err(cell.error("acks", &what).into());
        }
    };
    let hosts = names.iter().map(|name| HostPlan {
        name: name.clone(),
        router: false,
        congestion: Some(congestion.clone()),
        quickack,
        sysctls: sysctls.clone(),
    });
    let hosts = hosts.collect();
    let lan = Config { serialiser: Serialiser::Rate(cell.value("rate")?), ..Config::default() };
    let lan_mtu: u32 = cell.value("lan-mtu")?;
    let one_by_one = cell.text("offload")? == "off";
    let thin_at = relays / 2;
    let link = |(number, pair): (usize, &[String])| {
        let [a, b] = pair else { return None };
        let is_thin = number == thin_at;
        let (mut forward, mut backward) =
            if is_thin { (thin.up(uplink), thin.down()) } else { (lan.clone(), lan.clone()) };
        forward.seed = seed.wrapping_add(2 * number as u64);
        backward.seed = forward.seed.wrapping_add(1);
        Some(LinkPlan {
            name: pair.join("-"),
            between: [a.clone(), b.clone()],
            mtu: if is_thin { thin.mtu } else { lan_mtu },
            // what is beside the thin link is not looked at, and is to cost little
            super_packets: !is_thin,
            one_by_one: is_thin && one_by_one,
            forward,
            backward,
        })
    };
    let links = names.windows(2).enumerate().filter_map(link).collect();
    let plan = TopologyPlan { hosts, links, processes: Vec::new() };
    Ok(Network { plan, hosts: names, super_packets: false })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{self, Choice};
    use ekiden_emulator::topology::Mode;
    use ekiden_model::link::{Bound, Discipline};

    fn cell(part: &str, wanted: &[(&str, &str)]) -> Cell {
        let plan = plan::find("asymmetric").unwrap();
        let engine = Some("kernel".to_owned());
        let cells =
            plan.cells(&Choice { engine, only: vec![part.to_owned()], ..Choice::default() });
        let fits = |cell: &Cell| wanted.iter().all(|(axis, value)| cell.text(axis) == Ok(*value));
        cells.into_iter().map(|(cell, _)| cell).find(fits).unwrap()
    }

    fn made(cell: &Cell) -> Network {
        let uplink = Rate::from_bits_per_second(3_000_000);
        network(cell, &Thin::of(cell).unwrap(), uplink, 1, Some(100_000)).unwrap()
    }

    #[test]
    fn the_uplink_is_the_client_s_and_counts_framing() {
        let cell = cell("jam", &[("up-queue", "ack-first"), ("mtu", "9000")]);
        let network = made(&cell);
        let link = &network.plan.links[0];
        assert_eq!(link.between, ["client", "server"]);
        let mbit = |n: u64| Serialiser::Rate(Rate::from_bits_per_second(n * 1_000_000));
        assert_eq!((&link.forward.serialiser, link.forward.framing), (&mbit(3), 14));
        assert_eq!((&link.backward.serialiser, link.backward.framing), (&mbit(1000), 0));
        assert_eq!(link.forward.discipline, Discipline::AckFirst(Bound::Packets(50)));
        assert_eq!(link.backward.discipline, Discipline::DropTail(Bound::Packets(50)));
        assert_eq!((link.mtu, link.mode()), (9000, Mode::Packets));
        assert_eq!(network.plan.hosts[0].sysctls["net.ipv4.tcp_rmem"], "4096 100000 100000");
        assert_eq!(network.plan.hosts[0].quickack, None);
    }

    #[test]
    fn a_relay_stands_on_each_side_of_the_thin_link() {
        let cell = cell("relays", &[("relays", "2"), ("mtu", "9000"), ("acks", "1")]);
        let network = made(&cell);
        assert_eq!(network.hosts, ["client", "relay1", "relay2", "server"]);
        let mtus: Vec<u32> = network.plan.links.iter().map(|link| link.mtu).collect();
        assert_eq!(mtus, [1500, 9000, 1500]);
        let modes: Vec<Mode> = network.plan.links.iter().map(LinkPlan::mode).collect();
        assert_eq!(modes, [Mode::SuperPackets, Mode::Packets, Mode::SuperPackets]);
        assert!(network.plan.hosts.iter().all(|host| host.quickack == Some(true)));
    }

    #[test]
    fn with_offload_the_ends_work_in_batches() {
        let network = made(&cell("needed", &[("offload", "on"), ("downlink", "1 Gbit/s")]));
        assert_eq!(network.plan.links[0].mode(), Mode::Batches);
    }

    #[test]
    fn what_the_kernel_cannot_be_asked_is_told() {
        let mut cell = cell("needed", &[]);
        cell.values.insert("acks".to_owned(), "8".to_owned());
        let thin = Thin::of(&cell).unwrap();
        let said = network(&cell, &thin, thin.downlink, 1, None).unwrap_err().to_string();
        assert!(said.contains("«8»") && said.contains("study"), "{said}");
    }
}
