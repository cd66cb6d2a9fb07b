//! Static routes by the fewest hops: from every machine to every other, and to both ends of every link.

use super::addresses::ends;
use super::host::Host;
use super::{BuildError, TopologyPlan};
use ekiden_linux::links::netlink::{Route, RouteMetrics};
use std::collections::VecDeque;
use std::net::IpAddr;

/// For each machine, its device (by place) that leads to `to`; by a search from the destination.
fn next_hops(hosts: &[Host], to: usize) -> Vec<Option<usize>> {
    let mut through = vec![None; hosts.len()];
    let mut found = vec![false; hosts.len()];
    found[to] = true;
    let mut queue = VecDeque::from([to]);
    while let Some(near) = queue.pop_front() {
        for device in hosts[near].devices() {
            let other = |(at, host): (usize, &Host)| {
                let back = host
                    .devices()
                    .iter()
                    .position(|d| d.link == device.link && d.end != device.end);
                back.map(|back| (at, back))
            };
            for (far, back) in hosts.iter().enumerate().filter_map(other) {
                if !found[far] {
                    found[far] = true;
                    through[far] = Some(back);
                    queue.push_back(far);
                }
            }
        }
    }
    through
}

/// Sets all routes, with each machine's congestion control and way to acknowledge.
pub(super) fn set(plan: &TopologyPlan, hosts: &[Host]) -> Result<(), BuildError> {
    let netlinks = hosts.iter().map(Host::netlink).collect::<Result<Vec<_>, _>>()?;
    let add = |at: usize, device: usize, to: IpAddr, on_link: bool| {
        let host = &hosts[at];
        let device = &host.devices()[device];
        if to.is_ipv6() && !device.v6 {
            return Ok(());
        }
        let [(_, v4), (_, v6)] = ends(device.link, device.end);
        let across = if to.is_ipv4() { v4 } else { v6 };
        let own = plan.hosts.get(at);
        let congestion = own.and_then(|plan| plan.congestion.clone());
        let quickack = own.and_then(|plan| plan.quickack);
        netlinks[at].route(&Route {
            destination: (to, if to.is_ipv4() { 32 } else { 128 }),
            via: (!on_link).then_some(across),
            dev: device.name.clone(),
            metrics: RouteMetrics { congestion, quickack, ..RouteMetrics::default() },
        })
    };
    // the far end of each link first: the other routes lead over it
    for (at, host) in hosts.iter().enumerate() {
        for (number, device) in host.devices().iter().enumerate() {
            for (_, other) in ends(device.link, device.end) {
                add(at, number, other, true)?;
            }
        }
    }
    for (to, destination) in hosts.iter().enumerate() {
        for (at, through) in next_hops(hosts, to).into_iter().enumerate() {
            let Some(device) = through else { continue };
            add(at, device, destination.address().into(), false)?;
            add(at, device, destination.address_v6().into(), false)?;
            for end in destination.devices() {
                // the machine at the other end of that link has its route
                if hosts[at].devices().iter().any(|device| device.link == end.link) {
                    continue;
                }
                for (own, _) in ends(end.link, end.end) {
                    add(at, device, own, false)?;
                }
            }
        }
    }
    Ok(())
}

impl Host {
    /// The congestion control of the kernel's route towards `to`.
    pub fn congestion_towards(&self, to: &Self) -> Result<Option<String>, BuildError> {
        let metrics = self.netlink()?.route_metrics(to.address().into(), 32)?;
        Ok(metrics.and_then(|metrics| metrics.congestion))
    }
}
