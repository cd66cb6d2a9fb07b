//! Downloads over a thin uplink on the real kernel, each with a network of its own, because a link's rate is
//! fixed.

pub(crate) mod cross_traffic;
pub(crate) mod handshakes;
use crate::asymmetric::kernel::cross_traffic::CrossTraffic;
use crate::asymmetric::thin_link::{self, Care, Passage, Thin};
use crate::download::network::{Network, row};
use crate::download::testbed::SetUp;
use crate::kernel::{files, verdict};
use ekiden_emulator::report::LinkReport;
use ekiden_emulator::topology::{HostPlan, LinkPlan, TopologyPlan};
use ekiden_lab::cell::Cell;
use ekiden_lab::engine::{EngineError, Outcome};
use ekiden_lab::study::KernelRun;
use ekiden_model::network::link::{Config, Serialiser};
use ekiden_model::units::{Rate, Span};
use std::collections::BTreeMap;

/// To ±3 %.
const CARE: Care = Care { precision: 1.06, tries: 2 };
/// More than any download moves: 1,000 Mbit/s for a second are 119 MiB.
const WHOLE: u64 = 160 << 20;

pub(crate) fn run(run: &KernelRun<'_>) -> Result<Outcome, EngineError> {
    let (mut jammed, mut mode) = (None, "");
    let mut outcome = thin_link::run(run.cell, CARE, |uplink| {
        let report = download(run, uplink)?;
        (jammed, mode) = (report.jammed, report.mode);
        Ok(report.passage)
    })?;
    outcome.add_figures(jammed.map(|rate| ("jam_mbit", rate)));
    outcome.add_fact("thin link", mode);
    Ok(outcome)
}

struct Download {
    passage: Passage,
    /// Mbit/s of the jam as the uplink counts it.
    jammed: Option<f64>,
    mode: &'static str,
}

fn download(run: &KernelRun<'_>, uplink: Rate) -> Result<Download, EngineError> {
    let (cell, seed) = (run.cell, run.seed);
    let thin = Thin::of(cell)?;
    let cut: Span = cell.value("cut")?;
    let network = network(cell, &thin, uplink, seed, run.window.map(|made| made.buffer))?;
    // a relay on each side: the link in the middle
    let thin_at = network.plan.links.len() / 2;
    let file = files::file(run.files, WHOLE)?;
    let names = network.hosts.clone();
    let mut set_up = SetUp::build(run, network)?;
    let missing = || EngineError("a host of the thin link is not there".to_owned());
    let host =
        |n: usize| names.get(n).and_then(|name| set_up.topology.host(name)).ok_or_else(missing);
    let jam = match thin_link::jam(cell, uplink, seed)? {
        None => None,
        Some((stream, bytes)) => {
            let (from, to) = (host(thin_at)?, host(thin_at + 1)?);
            Some((CrossTraffic::start(from, to, stream, bytes)?, stream.wire))
        }
    };
    let _before = set_up.topology.look();
    let transfer = set_up.download(&file, WHOLE, cut)?;
    let jammed = jam.map(|(jam, wire)| jam.rate() * f64::from(wire) * 8.0 / 1e6);
    let (fidelity, reasons) = verdict::of_links(set_up.topology.look());
    let reports = set_up.finish()?;
    let report = reports.get(thin_at).ok_or_else(missing)?;
    let mut passage =
        Passage { goodput: transfer.goodput(), seconds: transfer.seconds, ..count(report) };
    (passage.fidelity, passage.reasons) = (fidelity, reasons);
    Ok(Download { passage, jammed, mode: report.mode })
}

/// What crossed the thin link, by the emulator's own count of packets.
fn count(report: &LinkReport) -> Passage {
    let mut passage = Passage::default();
    if let [up, down] = report.directions.as_slice() {
        passage.acks = up.counts.acknowledgements;
        passage.ack_bytes = up.counts.acknowledgement_bytes;
        passage.segments = down.packets.offered.saturating_sub(down.counts.acknowledgements);
    }
    passage
}

pub(crate) fn network(
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
            let what = format!("`{other}` cannot be asked of the kernel; `study` and 1 can");
            return Err(cell.error("acks", &what).into());
        }
    };
    let like = HostPlan { congestion: Some(congestion), quickack, sysctls, ..HostPlan::default() };
    let (names, hosts) = row(relays, &like);
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
    use ekiden_emulator::topology::Mode;
    use ekiden_model::network::link::{Bound, Discipline};

    fn cell(part: &str, wanted: &[(&str, &str)]) -> Cell {
        crate::tests::planned("asymmetric", "kernel", part, wanted)
    }

    fn made(cell: &Cell) -> Network {
        let uplink = Rate::from_bits_per_second(3_000_000);
        network(cell, &Thin::of(cell).unwrap(), uplink, 1, Some(100_000)).unwrap()
    }

    #[test]
    fn uplink_is_the_client_s_and_counts_framing() {
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
    fn places_a_relay_on_each_side_of_the_thin_link() {
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
    fn batches_packets_with_offload() {
        let network = made(&cell("needed", &[("offload", "on"), ("downlink", "1 Gbit/s")]));
        assert_eq!(network.plan.links[0].mode(), Mode::Batches);
    }

    #[test]
    fn refuses_ack_ratios_that_the_kernel_does_not_have() {
        let mut cell = cell("needed", &[]);
        cell.values.insert("acks".to_owned(), "8".to_owned());
        let thin = Thin::of(&cell).unwrap();
        let message = network(&cell, &thin, thin.downlink, 1, None).unwrap_err().to_string();
        assert!(message.contains("`8`") && message.contains("study"), "{message}");
    }
}
