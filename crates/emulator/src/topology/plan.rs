//! What a network is made of, and the file it is read from.
//!
//! ```toml
//! [[host]]
//! name = "office"
//! congestion = "cubic"
//! sysctls = { "net.ipv4.tcp_rmem" = "4096 131072 393216" }
//!
//! [[host]]
//! name = "server"
//!
//! [[link]]
//! between = ["office", "server"]
//! delay = "20 ms"
//! rate = "10 Mbit/s"
//! forward = { rate = "1 Mbit/s" }      # from the office to the server
//!
//! [[process]]
//! host = "server"
//! command = "iperf3 -s"
//! ready = 5201                         # begun in this order, each once the one before is ready
//! ```

use crate::settings::{Settings, SettingsError};
use ekiden_model::network::link::{Config, Serialiser};
use ekiden_model::units::Rate;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A network.
#[derive(Debug, Clone, Default)]
pub struct TopologyPlan {
    /// Its machines.
    pub hosts: Vec<HostPlan>,
    /// The links between them.
    pub links: Vec<LinkPlan>,
    /// What runs on the machines, begun in this order.
    pub processes: Vec<ProcessPlan>,
}

/// A machine: a network namespace.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostPlan {
    /// Its name, which all machines know it by.
    pub name: String,
    /// Whether it forwards packets of others.
    #[serde(default)]
    pub router: bool,
    /// Congestion control of what it sends, set on its routes; `None`: the machine's default.
    #[serde(default)]
    pub congestion: Option<String>,
    /// Whether it acknowledges every segment at once, set on its routes; `None`: as the kernel sees fit.
    #[serde(default)]
    pub quickack: Option<bool>,
    /// Settings of its own, by their dotted names.
    #[serde(default)]
    pub sysctls: BTreeMap<String, String>,
}

/// A link between two machines.
#[derive(Debug, Clone)]
pub struct LinkPlan {
    /// For reports.
    pub name: String,
    /// The machines it joins.
    pub between: [String; 2],
    /// Largest IP packet, 576–65535; IPv6 needs 1280.
    pub mtu: u32,
    /// Whether TCP may hand over super-packets, which save processor time above some 500 Mbit/s; each is lost
    /// or queued as a whole of up to 64 KiB.
    pub super_packets: bool,
    /// Whether machines send and receive packet by packet on a fast link too; see [`LinkPlan::mode`].
    pub one_by_one: bool,
    /// From the first machine to the second.
    pub forward: Config,
    /// Back.
    pub backward: Config,
}

/// A program on a machine.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessPlan {
    /// Where.
    pub host: String,
    /// Given to `sh -c`.
    pub command: String,
    /// The TCP port it listens on once it is ready.
    #[serde(default)]
    pub ready: Option<u16>,
}

/// Why a plan is not a network.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// Not TOML, or not of this form.
    #[error("{0}")]
    Form(String),
    /// What it says does not fit together.
    #[error("{0}")]
    Clash(String),
    /// A link's settings.
    #[error("link {link}: {source}")]
    Link {
        /// Its name.
        link: String,
        /// What is wrong with it.
        source: SettingsError,
    },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    host: Vec<HostPlan>,
    #[serde(default)]
    link: Vec<LinkFile>,
    #[serde(default)]
    process: Vec<ProcessPlan>,
    #[serde(default)]
    seed: u64,
}

#[derive(Debug, Deserialize)]
struct LinkFile {
    name: Option<String>,
    between: [String; 2],
    mtu: Option<u32>,
    #[serde(default, rename = "super-packets")]
    super_packets: bool,
    #[serde(default, rename = "one-by-one")]
    one_by_one: bool,
    #[serde(default)]
    forward: Settings,
    #[serde(default)]
    backward: Settings,
    #[serde(flatten)]
    both: toml::Table,
}

/// The default MTU: Ethernet's.
pub const MTU: u32 = 1500;

/// What passes a link, and how machines deal with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The link sees single packets; machines send and receive them one by one.
    Packets,
    /// The link sees single packets; machines batch them as with segmentation offload. Without a rate or from
    /// 500 Mbit/s.
    Batches,
    /// The link sees super-packets.
    SuperPackets,
}

impl Mode {
    /// In reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Packets => "packets",
            Self::Batches => "packets, batched at the ends",
            Self::SuperPackets => "super-packets",
        }
    }
}

impl LinkPlan {
    /// What passes this link.
    pub fn mode(&self) -> Mode {
        let fast = [&self.forward, &self.backward].map(|config| is_fast(&config.serialiser));
        match (self.super_packets, self.one_by_one || fast == [false; 2]) {
            (true, _) => Mode::SuperPackets,
            (false, true) => Mode::Packets,
            (false, false) => Mode::Batches,
        }
    }
}

/// On a slower link packets come one by one, 24 µs apart and more, and are to be seen so.
const FAST: Rate = Rate::from_bits_per_second(500_000_000);

fn is_fast(serialiser: &Serialiser) -> bool {
    match serialiser {
        Serialiser::Infinite => true,
        Serialiser::Rate(rate) => *rate >= FAST,
        Serialiser::Trace(trace) => trace.mean_rate() >= FAST,
    }
}

impl TopologyPlan {
    /// Reads a plan; `folder` is where it lies, for the traces it names. Errors: with the line, or the name of
    /// the host or link, and what to write instead.
    pub fn read(text: &str, folder: &Path) -> Result<Self, PlanError> {
        let file: File =
            toml::from_str(text).map_err(|error| PlanError::Form(error.to_string()))?;
        let mut links = Vec::new();
        for (at, link) in file.link.into_iter().enumerate() {
            let name = link.name.unwrap_or_else(|| link.between.join("-"));
            let both: Settings = toml::Value::Table(link.both)
                .try_into()
                .map_err(|error| PlanError::Form(format!("link {name}: {error}")))?;
            let mtu = link.mtu.unwrap_or(MTU);
            let seed = file.seed.wrapping_add(2 * at as u64);
            let config = |settings: Settings, seed| {
                settings
                    .or(&both)
                    .config(mtu, link.super_packets, seed, folder)
                    .map_err(|source| PlanError::Link { link: name.clone(), source })
            };
            links.push(LinkPlan {
                forward: config(link.forward, seed)?,
                backward: config(link.backward, seed.wrapping_add(1))?,
                name,
                between: link.between,
                mtu,
                super_packets: link.super_packets,
                one_by_one: link.one_by_one,
            });
        }
        let plan = Self { hosts: file.host, links, processes: file.process };
        plan.check()?;
        Ok(plan)
    }

    /// Whether the plan fits together. Errors: a name that is missing, unknown or there twice, a link from a
    /// machine to itself, an MTU out of range, too many of anything.
    pub fn check(&self) -> Result<(), PlanError> {
        let refuse = |why: String| Err(PlanError::Clash(why));
        let mut names = BTreeSet::new();
        for host in &self.hosts {
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
            if host.name.is_empty() || !host.name.chars().all(plain) {
                return refuse(format!(
                    "`{}` cannot be a host's name: letters, digits, - and _ make one",
                    host.name
                ));
            }
            if !names.insert(host.name.as_str()) {
                return refuse(format!("there are two hosts named {}", host.name));
            }
        }
        let known = |name: &String, whose: &str| match names.contains(name.as_str()) {
            true => Ok(()),
            false => Err(PlanError::Clash(format!(
                "{whose} names the host `{name}`, and there is none; there are: {}",
                names.iter().copied().collect::<Vec<_>>().join(", ")
            ))),
        };
        for link in &self.links {
            let whose = format!("the link {}", link.name);
            link.between.iter().try_for_each(|name| known(name, &whose))?;
            if link.between[0] == link.between[1] {
                return refuse(format!("{whose} joins {} with itself", link.between[0]));
            }
            if !(576..=65_535).contains(&link.mtu) {
                return refuse(format!(
                    "{whose} has an MTU of {}: 576 to 65535 is possible",
                    link.mtu
                ));
            }
        }
        for process in &self.processes {
            known(&process.host, &format!("the process `{}`", process.command))?;
        }
        if self.hosts.len() > 200 || self.links.len() > 1000 {
            return refuse("at most 200 hosts and 1000 links are possible".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<TopologyPlan, String> {
        TopologyPlan::read(text, Path::new(".")).map_err(|error| error.to_string())
    }

    const TWO: &str = "[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n";

    #[test]
    fn direction_overrides_both() {
        let text = format!(
            "{TWO}[[link]]\nbetween = [\"a\", \"b\"]\ndelay = \"25ms\"\nrate = \"8 Mbit/s\"\n\
             forward = {{ rate = \"1 Mbit/s\" }}\n"
        );
        let link = &read(&text).unwrap().links[0];
        assert_eq!(link.name, "a-b");
        assert_eq!(link.forward.delay, link.backward.delay);
        let rate = |bits| Serialiser::Rate(Rate::from_bits_per_second(bits));
        assert_eq!(link.forward.serialiser, rate(1_000_000));
        assert_eq!(link.backward.serialiser, rate(8_000_000));
        assert_ne!(link.forward.seed, link.backward.seed, "each direction loses its own packets");
    }

    #[test]
    fn refuses_mistakes_with_their_place() {
        for (more, part) in [
            ("[[link]]\nbetween = [\"a\", \"c\"]\n", "there are: a, b"),
            ("[[link]]\nbetween = [\"a\", \"a\"]\n", "itself"),
            ("[[link]]\nbetween = [\"a\", \"b\"]\ndelay = \"25\"\n", "40 ms"),
            ("[[link]]\nbetween = [\"a\", \"b\"]\ndealy = \"25 ms\"\n", "dealy"),
            ("[[link]]\nbetween = [\"a\", \"b\"]\nmtu = 100\n", "576"),
            ("[[host]]\nname = \"a\"\n", "two hosts"),
            ("[[host]]\nname = \"a b\"\n", "letters"),
            ("[[process]]\nhost = \"x\"\ncommand = \"true\"\n", "`x`"),
            ("[[hots]]\n", "hots"),
        ] {
            let refused = read(&format!("{TWO}{more}")).unwrap_err();
            assert!(refused.contains(part), "{more}: {refused}");
        }
    }
}
