//! `ekiden link`: one link with a command at its near end; the far end is this machine, where permitted, or an
//! empty one.

use crate::dns::Relay;
use crate::engine::{Engine, Record, Wire};
use crate::report::LinkReport;
use crate::topology::{
    BuildError, Host, LOOK, LinkPlan, Process, ProcessPlan, end_v4, end_v6, introduce, join,
    kernel, listening, middle, readable,
};
use ekiden_linux::links::netlink::{Netlink, Route, RouteMetrics};
use ekiden_linux::namespaces::netns::Netns;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

/// Numbers of links from here on are pairs': topologies use those below.
const FIRST: usize = 8192;
/// How many pairs may have this machine at their far end at once.
const MOST: usize = 1000;
/// How long a command at the far end may take until something listens there.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is at the far end.
#[derive(Debug)]
pub enum Far {
    /// This machine, whose network namespace it is.
    Machine(Netns),
    /// A machine of its own, with a command on it if there is one.
    Command(Option<String>),
}

/// A running link with its two ends.
#[derive(Debug)]
pub struct Pair {
    // ended before the link
    process: Option<Process>,
    _relay: Option<Relay>,
    engine: Engine,
    hosts: [Host; 2],
}

const NEAR: usize = 0;
const FAR: usize = 1;

impl Pair {
    /// Makes the link of `plan`; its `between` are not looked at. `congestion` holds for what both ends send
    /// over it. Errors: [`BuildError`]; what was made by then is gone.
    pub fn build(
        plan: &LinkPlan,
        far: Far,
        congestion: Option<&str>,
        record: Record,
    ) -> Result<Self, BuildError> {
        let middle = middle()?;
        let netlink = Netlink::open(&middle).map_err(kernel("a netlink socket"))?;
        let (far_netns, command, machine) = match far {
            Far::Machine(netns) => (netns, None, true),
            Far::Command(command) => (Netns::new().map_err(kernel("the far end"))?, command, false),
        };
        let (number, device) = lay_far(plan, &netlink, &far_netns, &middle)?;
        let name = |end, name: &str, netns| {
            Host::of(name, netns, end_v4(number, end), end_v6(number, end))
        };
        let near_netns = Netns::new().map_err(kernel("the near end"))?;
        join(&netlink, &near_netns, "link0", &middle, "near", (number, NEAR), plan)?;
        let mut near = name(NEAR, "near", near_netns);
        let mut far = name(FAR, "far", far_netns);
        near.prepare()?;
        if !machine {
            far.prepare()?;
        }
        near.attach(number, NEAR, "link0", plan.mtu)?;
        far.attach(number, FAR, &device, plan.mtu)?;
        let metrics = RouteMetrics {
            congestion: congestion.map(ToOwned::to_owned),
            ..RouteMetrics::default()
        };
        set_routes(&near, "link0", &far, &device, &metrics, plan)?;
        let relay = if machine { names(&mut near, &far)? } else { None };
        let mut hosts = [near, far];
        introduce(&mut hosts)?;
        let wire = Wire {
            name: "link".to_owned(),
            devices: ["near".to_owned(), "far".to_owned()],
            directions: ["up".to_owned(), "down".to_owned()],
            configs: [plan.forward.clone(), plan.backward.clone()],
            mtu: plan.mtu,
            mode: plan.mode(),
        };
        let engine =
            Engine::start(vec![wire], &middle, record, None).map_err(kernel("the link"))?;
        let mut this = Self { process: None, _relay: relay, engine, hosts };
        if let Some(command) = command {
            let plan = ProcessPlan { host: "far".to_owned(), command, ready: None };
            let process = Process::start(this.far(), &plan, PATIENCE)?;
            this.process = Some(process);
        }
        Ok(this)
    }

    /// The end at which the command runs.
    pub const fn near(&self) -> &Host {
        &self.hosts[NEAR]
    }

    /// The other end.
    pub const fn far(&self) -> &Host {
        &self.hosts[FAR]
    }

    /// Waits until the command at the far end, if there is one, listens somewhere or has ended; 5 s at most,
    /// and only while nobody asks to `stop`. Errors: the far end cannot be looked at.
    pub fn wait_for_far(&mut self, stop: impl Fn() -> bool) -> Result<(), BuildError> {
        let begun = Instant::now();
        while self.process.is_some() && begun.elapsed() < PATIENCE && !stop() {
            let ended = self.process.as_mut().is_some_and(|process| process.ended().is_some());
            if ended || self.far().run(listening)? {
                break;
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Ends the far end's command and the link, and says what the link did.
    pub fn finish(self) -> io::Result<Option<LinkReport>> {
        let Self { process, _relay, engine, hosts } = self;
        drop(process);
        // of this machine at the far end, all of the pair's device alone is counted
        let drops: Vec<_> = hosts
            .iter()
            .flat_map(|host| {
                host.device_drops().into_iter().map(|(_, n)| (host.name().to_owned(), n))
            })
            .collect();
        let mut report = engine.finish()?.into_iter().next();
        if let Some(report) = &mut report {
            drops.iter().for_each(|(host, dropped)| report.add_device_drops(host, *dropped));
        }
        Ok(report)
    }
}

/// Joins the far end, which may have other pairs' devices already: the first free number is taken.
fn lay_far(
    plan: &LinkPlan,
    netlink: &Netlink,
    far: &Netns,
    middle: &Netns,
) -> Result<(usize, String), BuildError> {
    for n in 0..MOST {
        let number = FIRST + n;
        let free = far.run(|| is_free(number)).map_err(kernel("a look at the far end"))?;
        if !free {
            continue;
        }
        let device = format!("ekiden{n}");
        match join(netlink, far, &device, middle, "far", (number, FAR), plan) {
            Ok(()) => return Ok((number, device)),
            // somebody else's
            Err(BuildError::Netlink(failure))
                if failure.errno() == rustix::io::Errno::EXIST.raw_os_error() => {}
            Err(error) => return Err(error),
        }
    }
    Err(BuildError::Process(format!("{MOST} links end at this machine already")))
}

/// Whether the calling thread's machine knows nothing of the addresses of a pair.
fn is_free(number: usize) -> bool {
    let known = fs::read_to_string("/proc/thread-self/net/fib_trie").unwrap_or_default();
    let is_known = |address: Ipv4Addr| {
        let address = address.to_string();
        known.split_whitespace().any(|word| word.split('/').next() == Some(&address))
    };
    !is_known(end_v4(number, NEAR)) && !is_known(end_v4(number, FAR))
}

/// Everything beyond the link lies at its far end, and the near end at its near one.
fn set_routes(
    near: &Host,
    near_device: &str,
    far: &Host,
    far_device: &str,
    metrics: &RouteMetrics,
    plan: &LinkPlan,
) -> Result<(), BuildError> {
    let route = |destination, via, dev: &str| Route {
        destination,
        via,
        dev: dev.to_owned(),
        metrics: metrics.clone(),
    };
    let at_near = near.netlink()?;
    let at_far = far.netlink()?;
    let v4 = (near.address().into(), far.address().into(), Ipv4Addr::UNSPECIFIED.into(), 32);
    let v6 = (near.address_v6().into(), far.address_v6().into(), Ipv6Addr::UNSPECIFIED.into(), 128);
    let has_v6 = near.carries_v6(plan.mtu) && far.carries_v6(plan.mtu);
    for (near, far, everything, bits) in [Some(v4), has_v6.then_some(v6)].into_iter().flatten() {
        let everything: (IpAddr, u8) = (everything, 0);
        at_near.route(&route((far, bits), None, near_device))?;
        at_near.route(&route(everything, Some(far), near_device))?;
        at_far.route(&route((near, bits), None, far_device))?;
    }
    Ok(())
}

/// Makes this machine's names known at the near end; questions for a resolver on loopback cross the link to a
/// relay.
fn names(near: &mut Host, far: &Host) -> Result<Option<Relay>, BuildError> {
    let hosts = fs::read_to_string("/etc/hosts").unwrap_or_default();
    // within another link: its names would stand for two machines
    let ours = |line: &&str| !matches!(line.split_whitespace().nth(1), Some("near" | "far"));
    let hosts: String = hosts.lines().filter(ours).flat_map(|line| [line, "\n"]).collect();
    let text = fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let servers: Vec<IpAddr> = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("nameserver"))
        .filter_map(|server| server.trim().parse().ok())
        .collect();
    let Some(local) = servers.into_iter().find(IpAddr::is_loopback) else {
        near.knows(&hosts, None);
        return Ok(None);
    };
    let resolver = || {
        let others = text.lines().filter(|line| !line.trim().starts_with("nameserver"));
        let mut text = format!("nameserver {}\n", far.address());
        others.for_each(|line| text.extend([line, "\n"]));
        readable("ekiden-resolv", &text)
    };
    let resolver = resolver().map_err(kernel("the near end's resolv.conf"))?;
    near.knows(&hosts, Some(resolver));
    let (near, listen) = (near.address().into(), far.address().into());
    let relay = Relay::start(far.netns(), listen, near, local);
    Ok(Some(relay.map_err(kernel("the relay for names"))?))
}
