//! Whole networks: machines as network namespaces, links, routes, and what runs. Enter
//! [`ekiden_linux::namespaces::sandbox`] before: then nothing is left when the program ends.

mod addresses;
mod host;
mod plan;
mod process;
mod routes;

pub(crate) use addresses::{end_v4, end_v6};
pub use host::Host;
pub(crate) use host::{introduce, readable};
pub use plan::{HostPlan, LinkPlan, MTU, Mode, PlanError, ProcessPlan, TopologyPlan};
pub use process::Process;
pub(crate) use process::{LOOK, listening};

use crate::engine::{Engine, Record, Wire};
use crate::fidelity::Verdict;
use crate::report::LinkReport;
use ekiden_linux::host::sysctl;
use ekiden_linux::links::netlink::{self, End, Netlink};
use ekiden_linux::links::offload::segment_in_software;
use ekiden_linux::namespaces::netns::Netns;
use ekiden_model::units::Span;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

/// How long a process may take until it listens.
const PATIENCE: Duration = Duration::from_secs(20);

/// Packets that a device may hold before it throws them away: more than bursts are.
const QUEUE: u32 = 10_000;
/// Packets that TCP takes through the stack at once, where it may: 64 KiB of them, as ever.
const BATCH: u32 = 64;

/// A network that runs until [`Topology::finish`], or until dropped.
#[derive(Debug)]
pub struct Topology {
    // ended before the links are
    processes: Vec<Process>,
    engine: Engine,
    hosts: Vec<Host>,
    /// Packets that devices had thrown away when it was looked at last.
    dropped: u64,
}

/// Why a network could not be made.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The plan is no network.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The kernel refused a part of it.
    #[error("{doing}: {error}")]
    Kernel {
        /// What was being made.
        doing: String,
        /// The kernel's error.
        error: io::Error,
    },
    /// The kernel refused a device, an address or a route.
    #[error(transparent)]
    Netlink(#[from] netlink::Failure),
    /// A process did not start, or did not listen.
    #[error("{0}")]
    Process(String),
}

pub(crate) fn kernel(doing: impl Into<String>) -> impl FnOnce(io::Error) -> BuildError {
    let doing = doing.into();
    move |error| BuildError::Kernel { doing, error }
}

impl Topology {
    /// Makes the network and starts its processes, in order. Errors: [`BuildError`]; what was made by then is
    /// gone.
    pub fn build(plan: &TopologyPlan) -> Result<Self, BuildError> {
        Self::build_recorded(plan, Record::default())
    }

    /// The same, writing down every packet. Errors: as [`Topology::build`].
    pub fn build_recorded(plan: &TopologyPlan, record: Record) -> Result<Self, BuildError> {
        Self::begin(plan, record, None)
    }

    /// The same, where packets come up to `step` late, all together that are due by then: for much traffic whose single
    /// packets do not matter. It saves processor time, and verdicts call all packets late. Errors: as [`Topology::build`].
    pub fn build_in_steps(plan: &TopologyPlan, step: Span) -> Result<Self, BuildError> {
        Self::begin(plan, Record::default(), Some(step))
    }

    fn begin(plan: &TopologyPlan, record: Record, step: Option<Span>) -> Result<Self, BuildError> {
        plan.check()?;
        let make = |(number, host): (usize, &HostPlan)| Host::new(number, host);
        let mut hosts = plan.hosts.iter().enumerate().map(make).collect::<Result<Vec<_>, _>>()?;
        let middle = middle()?;
        let wires = plan
            .links
            .iter()
            .enumerate()
            .map(|(number, link)| lay(number, link, plan, &mut hosts, &middle))
            .collect::<Result<Vec<_>, _>>()?;
        routes::set(plan, &hosts)?;
        introduce(&mut hosts)?;
        let engine = Engine::start(wires, &middle, record, step).map_err(kernel("the links"))?;
        let mut this = Self { processes: Vec::new(), engine, hosts, dropped: 0 };
        for process in &plan.processes {
            let host = this.host(&process.host).ok_or_else(|| {
                BuildError::Process(format!("there is no host {} to run on", process.host))
            })?;
            let started = Process::start(host, process, PATIENCE)?;
            this.processes.push(started);
        }
        Ok(this)
    }

    /// A machine by its name.
    pub fn host(&self, name: &str) -> Option<&Host> {
        self.hosts.iter().find(|host| host.name() == name)
    }

    /// All machines.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// The IPv4 address that all machines reach this one by.
    pub fn address(&self, name: &str) -> Option<IpAddr> {
        self.host(name).map(|host| host.address().into())
    }

    /// The verdict on each link, in the plan's order, since the last look, for several measurements in turn.
    pub fn look(&mut self) -> Vec<(Verdict, Vec<String>)> {
        let mut verdicts = self.engine.look();
        let drops = self.hosts.iter().map(|host| (host.name(), host.device_drops()));
        let drops: Vec<_> =
            drops.flat_map(|(name, drops)| drops.into_iter().map(move |d| (name, d))).collect();
        let all: u64 = drops.iter().map(|(_, (_, dropped))| dropped).sum();
        if all > self.dropped
            && let Some((host, (link, _))) = drops.last()
            && let Some((verdict, reasons)) = verdicts.get_mut(*link)
        {
            *verdict = Verdict::Tainted;
            let new = all - self.dropped;
            reasons
                .push(format!("{new} packets were thrown away by devices, of {host} among others"));
        }
        self.dropped = all;
        verdicts
    }

    /// Ends processes and links, and says what the links did.
    pub fn finish(self) -> io::Result<Vec<LinkReport>> {
        let Self { processes, engine, hosts, .. } = self;
        drop(processes);
        let drops = hosts.iter().map(|host| (host.name().to_owned(), host.device_drops()));
        let drops: Vec<_> = drops.collect();
        let mut reports = engine.finish()?;
        for (host, (link, dropped)) in
            drops.iter().flat_map(|(host, all)| all.iter().map(move |one| (host, one)))
        {
            if let Some(report) = reports.get_mut(*link) {
                report.add_device_drops(host, *dropped);
            }
        }
        Ok(reports)
    }
}

/// The emulator's own namespace, whose devices speak for nobody: no IPv6 of their own on the links.
pub(crate) fn middle() -> Result<Netns, BuildError> {
    let quiet = || match sysctl::write("net.ipv6.conf.default.disable_ipv6", "1") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()), // a kernel without IPv6
        result => result,
    };
    let made = || {
        let middle = Netns::new()?;
        middle.run(quiet)??;
        Ok(middle)
    };
    made().map_err(kernel("the emulator's own namespace"))
}

/// Two pairs of devices: each end of the link joins its machine to the emulator.
fn lay(
    number: usize,
    link: &LinkPlan,
    plan: &TopologyPlan,
    hosts: &mut [Host],
    middle: &Netns,
) -> Result<Wire, BuildError> {
    let netlink = Netlink::open(middle).map_err(kernel("a netlink socket"))?;
    let devices = [0, 1].map(|end| format!("l{number}{}", ["a", "b"][end]));
    for (end, device) in devices.iter().enumerate() {
        let at = plan.hosts.iter().position(|host| host.name == link.between[end]);
        let Some(host) = at.and_then(|at| hosts.get_mut(at)) else { continue };
        let name = host.next_device();
        join(&netlink, host.netns(), &name, middle, device, (number, end), link)?;
        host.attach(number, end, &name, link.mtu)?;
    }
    let [first, second] = &link.between;
    Ok(Wire {
        name: link.name.clone(),
        devices,
        directions: [format!("{first} → {second}"), format!("{second} → {first}")],
        configs: [link.forward.clone(), link.backward.clone()],
        mtu: link.mtu,
        mode: link.mode(),
    })
}

/// Makes the pair of devices that joins a machine to the emulator.
pub(crate) fn join(
    netlink: &Netlink,
    host: &Netns,
    name: &str,
    middle: &Netns,
    device: &str,
    (number, end): (usize, usize),
    link: &LinkPlan,
) -> Result<(), BuildError> {
    let near = End { name, mac: addresses::mac(number, end), netns: host };
    let far = End { name: device, mac: addresses::mac_of_emulator(number, end), netns: middle };
    let mode = link.mode();
    let segments = match mode {
        Mode::Packets => Some(1),
        Mode::Batches => Some(BATCH),
        Mode::SuperPackets => None,
    };
    netlink.veth(&near, &far, link.mtu, segments, QUEUE)?;
    if mode == Mode::Batches {
        let cut = || host.run(|| segment_in_software(name))?;
        cut().map_err(kernel(format!("{name}: segmentation by the kernel")))?;
    }
    Ok(netlink.up(device)?)
}
