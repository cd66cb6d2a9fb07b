//! A machine: a network namespace with its devices, its addresses and the names of the others.

use super::addresses::{ends, host_v4, host_v6, mac};
use super::{BuildError, HostPlan, kernel};
use ekiden_linux::host::sysctl;
use ekiden_linux::links::netlink::Netlink;
use ekiden_linux::namespaces::mounts::Mounts;
use ekiden_linux::namespaces::netns::{self, Netns};
use std::fs;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use tempfile::NamedTempFile;

/// IPv6 needs packets of this size (RFC 8200 §5).
pub(super) const LEAST_V6: u32 = 1280;

/// What every machine has before its plan's settings: no metrics kept from connection to connection.
const SYSCTLS: &[(&str, &str)] = &[("net.ipv4.tcp_no_metrics_save", "1")];
/// Whoever is in these groups may ping without a capability.
const PING_GROUPS: &str = "net.ipv4.ping_group_range";

/// A machine that is there.
#[derive(Debug)]
pub struct Host {
    name: String,
    v4: Ipv4Addr,
    v6: Ipv6Addr,
    netns: Netns,
    devices: Vec<Device>,
    mounts: Mounts,
    hosts_file: Option<NamedTempFile>,
    /// Lines of `/etc/hosts` besides those of the network.
    known: String,
    resolver: Option<NamedTempFile>,
}

#[derive(Debug)]
pub(super) struct Device {
    pub(super) name: String,
    pub(super) link: usize,
    pub(super) end: usize,
    pub(super) v6: bool,
}

impl Host {
    pub(crate) fn new(number: usize, plan: &HostPlan) -> Result<Self, BuildError> {
        let doing = || format!("the host {}", plan.name);
        let netns = Netns::new().map_err(kernel(doing()))?;
        let this = Self::of(&plan.name, netns, host_v4(number), host_v6(number));
        this.prepare()?;
        let forwarding = [("net.ipv4.ip_forward", "1"), ("net.ipv6.conf.all.forwarding", "1")];
        let own = plan.sysctls.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in forwarding.into_iter().filter(|_| plan.router).chain(own) {
            this.set(name, value)?;
        }
        let netlink = this.netlink()?;
        netlink.address("lo", host_v4(number).into(), 32)?;
        if this.carries_v6(LEAST_V6) {
            netlink.address("lo", host_v6(number).into(), 128)?;
        }
        Ok(this)
    }

    pub(crate) fn prepare(&self) -> Result<(), BuildError> {
        SYSCTLS.iter().try_for_each(|(name, value)| self.set(name, value))?;
        // in a user namespace there are but the groups that were mapped into it
        let group = rustix::process::getgid().as_raw();
        self.set(PING_GROUPS, "0 2147483647")
            .or_else(|_| self.set(PING_GROUPS, &format!("{group} {group}")))?;
        Ok(self.netlink()?.up("lo")?)
    }

    fn set(&self, name: &str, value: &str) -> Result<(), BuildError> {
        let doing = format!("{}: setting {name} to {value}", self.name);
        self.run(|| sysctl::write(name, value))?.map_err(kernel(doing))
    }

    /// A machine whose namespace is there already, with all that is in it.
    pub(crate) fn of(name: &str, netns: Netns, v4: Ipv4Addr, v6: Ipv6Addr) -> Self {
        Self {
            name: name.to_owned(),
            v4,
            v6,
            netns,
            devices: Vec::new(),
            mounts: Mounts::none(),
            hosts_file: None,
            known: "127.0.0.1 localhost\n::1 localhost ip6-localhost\n".to_owned(),
            resolver: None,
        }
    }

    /// What the machine's `/etc/hosts` says besides the network's own names, and its `/etc/resolv.conf`.
    pub(crate) fn knows(&mut self, hosts: &str, resolver: Option<NamedTempFile>) {
        hosts.clone_into(&mut self.known);
        self.resolver = resolver;
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The IPv4 address that all machines reach it by.
    pub const fn address(&self) -> Ipv4Addr {
        self.v4
    }

    /// The same, IPv6; links with an MTU below 1280 do not carry it.
    pub const fn address_v6(&self) -> Ipv6Addr {
        self.v6
    }

    /// Its namespace.
    pub const fn netns(&self) -> &Netns {
        &self.netns
    }

    /// Has `command` run on this machine, where it finds the others by name.
    pub fn place(&self, command: &mut Command) -> io::Result<()> {
        netns::place_with(command, &self.netns, &self.mounts)
    }

    /// Runs `f` on a thread of its own on this machine, for sockets and settings.
    pub fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> Result<T, BuildError> {
        self.netns.run(f).map_err(kernel(format!("a thread on the host {}", self.name)))
    }

    pub(crate) fn netlink(&self) -> Result<Netlink, BuildError> {
        Netlink::open(&self.netns).map_err(kernel(format!("a netlink socket on {}", self.name)))
    }

    pub(super) fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// Whether IPv6 can be had on a link of this machine.
    pub(crate) fn carries_v6(&self, mtu: u32) -> bool {
        let off = "net.ipv6.conf.default.disable_ipv6";
        mtu >= LEAST_V6 && self.run(|| sysctl::number(off) == Some(0)).unwrap_or(false)
    }

    pub(super) fn next_device(&self) -> String {
        format!("link{}", self.devices.len())
    }

    /// Sets up a device: addresses of one end of a link, and the other end's hardware address, so that nobody
    /// asks for it.
    pub(crate) fn attach(
        &mut self,
        link: usize,
        end: usize,
        name: &str,
        mtu: u32,
    ) -> Result<(), BuildError> {
        let netlink = self.netlink()?;
        let v6 = self.carries_v6(mtu);
        netlink.set_noarp(name)?;
        netlink.up(name)?;
        for (own, other) in ends(link, end).into_iter().take(1 + usize::from(v6)) {
            netlink.address(name, own, if own.is_ipv4() { 32 } else { 128 })?;
            netlink.neighbour(name, other, mac(link, 1 - end))?;
        }
        self.devices.push(Device { name: name.to_owned(), link, end, v6 });
        Ok(())
    }

    /// Packets that its devices threw away, by the number of their link.
    pub(crate) fn device_drops(&self) -> Vec<(usize, u64)> {
        let Ok(netlink) = self.netlink() else { return Vec::new() };
        let drops = self.devices.iter().filter_map(|device| {
            let statistics = netlink.link_statistics(&device.name).ok()?;
            Some((device.link, statistics.rx_dropped + statistics.tx_dropped))
        });
        drops.filter(|(_, dropped)| *dropped > 0).collect()
    }
}

/// A temporary file that the user of any command may read.
pub(crate) fn readable(prefix: &str, text: &str) -> io::Result<NamedTempFile> {
    let file = tempfile::Builder::new().prefix(prefix).tempfile()?;
    fs::write(file.path(), text)?;
    fs::set_permissions(file.path(), PermissionsExt::from_mode(0o644))?;
    Ok(file)
}

/// Tells all machines of each other by name.
pub(crate) fn introduce(hosts: &mut [Host]) -> Result<(), BuildError> {
    let mut names = String::new();
    for host in &*hosts {
        names += &format!("{} {}\n", host.address(), host.name);
        names += &format!("{} {}\n", host.address_v6(), host.name);
    }
    for host in hosts {
        let write = || {
            // the first line with a name holds: within another link, ours are the near names
            let file = readable("ekiden-hosts", &format!("{names}{}", host.known))?;
            let mut pairs = vec![(file.path().to_owned(), "/etc/hosts")];
            if let Some(resolver) = &host.resolver {
                pairs.push((resolver.path().to_owned(), "/etc/resolv.conf"));
            }
            Ok((Mounts::new(&pairs)?, file))
        };
        let (mounts, file) = write().map_err(kernel(format!("the names on {}", host.name)))?;
        host.mounts = mounts;
        host.hosts_file = Some(file);
    }
    Ok(())
}
