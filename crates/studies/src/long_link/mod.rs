//! A long link with loss and a small queue: the network, its two ends on the kernel ([`testbed`], [`ends`]) or
//! on virtual time ([`tunnel_pair`]), changes of the link, and the record of its packets ([`bottleneck`],
//! [`pace`]).
//!
//! ```text
//! near: clients, relay ── up, down; half the round trip each way; loss ── far: relay, server
//! or behind: clients ── near: a gateway ── the same
//! ```

pub(crate) mod bottleneck;
pub(crate) mod changes;
pub(crate) mod ends;
mod limits;
pub(crate) mod pace;
pub(crate) mod testbed;
pub(crate) mod tunnel_pair;

use crate::kernel::BUFFERS_OF_LINUX;
use ekiden_emulator::settings::Settings;
use ekiden_emulator::topology::{HostPlan, LinkPlan, MTU, TopologyPlan};
use ekiden_lab::cell::{Cell, CellError};
use ekiden_lab::engine::{During, EngineError};
use ekiden_model::network::link::{Config, GilbertElliott, Loss, LossUnit, QueueLength};
use ekiden_model::units::{Share, Span};
pub(crate) use limits::{kernel_lacks, sim_lacks, weight};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

pub(crate) const NEAR: &str = "near";
pub(crate) const FAR: &str = "far";
/// Behind a gateway: a machine of its own, with nothing configured.
pub(crate) const BEHIND: &str = "behind";

/// Payload of what is sent, by the acceptance of the tunnel: headers and acknowledgements take the rest.
pub(crate) const PAYLOAD: f64 = 0.965;

/// The methods of [`ekiden_lab::study::Study`] that all studies over a long link share.
macro_rules! over_long_link {
    () => {
        fn lacks(&self, engine: &str, cell: &Cell) -> Option<&'static str> {
            match engine {
                crate::kernel::NAME => crate::long_link::kernel_lacks(cell),
                _ => crate::long_link::sim_lacks(cell),
            }
        }

        fn kernel(&self, run: &KernelRun<'_>) -> Result<Outcome, EngineError> {
            kernel::run(run)
        }

        fn packets(&self, _cell: &Cell) -> Option<Packets> {
            Some(crate::kernel::SINGLE)
        }

        fn weight(&self, cell: &Cell) -> u32 {
            crate::long_link::weight(cell)
        }

        fn facts(&self, engine: &str) -> Vec<(&'static str, &'static str)> {
            crate::long_link::facts(engine)
        }
    };
}
pub(crate) use over_long_link;

pub(crate) fn facts(engine: &str) -> Vec<(&'static str, &'static str)> {
    if engine == crate::kernel::NAME {
        let text = "clients and one relay on the near machine, servers and the other relay on the far one. Relays \
                    are used by SOCKS5, for documents by HTTP. hysteria2 is sing-box's and takes rates in whole \
                    Mbit/s. Several runs at once where links are slow, each with machines of its own";
        return vec![("long links with loss", text)];
    }
    let text = "the tunnel's own core at both ends, whose work takes no time; keys are drawn anew, and no \
                figure depends on them";
    vec![("tunnels", text)]
}

pub(crate) fn duration(cell: &Cell, axis: &str) -> Result<Duration, CellError> {
    Ok(cell.value::<Span>(axis)?.into())
}

pub(crate) fn not_recorded() -> EngineError {
    EngineError("packets of a tunnel cannot be recorded in the simulator".to_owned())
}

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
    // but for clients that ask a far resolver
    let asks_afar = cell.text("load")? == "names";
    let has_gateway = cell.text("way")?.starts_with("gateway");
    let host = |name: &str| HostPlan {
        name: name.to_owned(),
        // nobody forwards: what the relay does not divert goes nowhere, and cannot be taken for relayed
        router: asks_afar && name == NEAR,
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
        settings.config(MTU, false, seed, Path::new(".")).during("the long link")
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
    let (mut hosts, mut links) = (vec![host(NEAR), host(FAR)], vec![link]);
    if has_gateway {
        hosts.push(host(BEHIND));
        // at once and without loss; the long link stays the first, which is written down
        links.push(LinkPlan {
            name: "home".to_owned(),
            between: [BEHIND.to_owned(), NEAR.to_owned()],
            mtu: MTU,
            super_packets: false,
            one_by_one: false,
            forward: Config::default(),
            backward: Config::default(),
        });
    }
    Ok(TopologyPlan { hosts, links, processes: Vec::new() })
}

/// Independent, or in bursts of a mean length that lose all (algorithms/satellite E.2). Bursts count packets of
/// data, 3 ms apart at 4 Mbit/s; acknowledgements lie further apart than a burst lasts, so each is lost by
/// itself.
fn loss(cell: &Cell, has_data: bool) -> Result<Loss, EngineError> {
    let share: Share = cell.value("loss")?;
    let burst: u64 = cell.value("burst")?;
    if share == Share::NONE || burst == 1 || !has_data {
        return Ok(share.into());
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
pub(crate) mod tests {
    use super::*;
    use ekiden_model::units::Rate;

    pub(crate) fn cell(part: &str, wanted: &[(&str, &str)]) -> Cell {
        crate::tests::planned("satellite", "kernel", part, wanted)
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
    fn gives_the_downlink_its_own_rate_and_seed() {
        let cell = cell("links", &[("loss", "5 %"), ("way", "ekiden"), ("load", "download")]);
        let plan = network(&cell, 1, None).unwrap();
        let link = &plan.links[0];
        assert_eq!(link.between, ["near", "far"]);
        let rate =
            |bits| ekiden_model::network::link::Serialiser::Rate(Rate::from_bits_per_second(bits));
        assert_eq!(link.backward.serialiser, rate(10_000_000));
        assert_eq!(link.forward.serialiser, rate(2_000_000));
        assert_ne!(link.forward.seed, link.backward.seed);
    }
}
