//! What this machine, its kernel and its settings allow, as data. Gathering changes nothing, but
//! may load modules of a queueing discipline or a congestion control.

mod machine;
mod privileges;
mod qdisc;
mod support;

pub use machine::Machine;
pub use privileges::{Capabilities, Descriptors};
pub use support::{Bpf, SocketSupport, Support};

use crate::host::sysctl;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Settings worth knowing, by their dotted names. Those this kernel lacks are left out of [`Facts`].
pub const SYSCTLS: &[&str] = &[
    "net.core.rmem_max",
    "net.core.wmem_max",
    "net.core.rmem_default",
    "net.core.wmem_default",
    "net.core.somaxconn",
    "net.core.default_qdisc",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.ipv4.tcp_mem",
    "net.ipv4.tcp_available_congestion_control",
    "net.ipv4.tcp_allowed_congestion_control",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_mtu_probing",
    "net.ipv4.tcp_base_mss",
    "net.ipv4.tcp_fastopen",
    "net.ipv4.tcp_syn_retries",
    "net.ipv4.tcp_max_syn_backlog",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_notsent_lowat",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_window_scaling",
    "net.ipv4.tcp_sack",
    "net.ipv4.tcp_ecn",
    "net.mptcp.enabled",
    "net.netfilter.nf_conntrack_max",
    "net.netfilter.nf_conntrack_count",
    "fs.pipe-max-size",
    "fs.pipe-user-pages-soft",
    "fs.nr_open",
    "fs.file-max",
];

/// One look at this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Facts {
    /// The kernel's release, as `6.18.0`.
    pub kernel: String,
    /// This process's privileges.
    pub capabilities: Capabilities,
    /// How many descriptors this process may open.
    pub descriptors: Descriptors,
    /// [`SYSCTLS`] as the kernel shows them.
    pub sysctls: BTreeMap<String, String>,
    /// Queueing disciplines by name, tried in a network namespace of their own.
    pub qdiscs: BTreeMap<String, Support>,
    /// Socket options by name, tried on a socket.
    pub sockets: SocketSupport,
    /// Congestion controls written as BPF programs.
    pub bpf: Bpf,
    /// Memory and processors.
    pub machine: Machine,
}

impl Facts {
    /// Inspects the machine; takes some milliseconds. A fact that cannot be found out says so.
    pub fn gather() -> Self {
        let sysctls = SYSCTLS
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), sysctl::read(name)?)))
            .collect();
        let capabilities = Capabilities::of_this_process();
        Self {
            kernel: sysctl::read("kernel.osrelease").unwrap_or_default(),
            capabilities,
            descriptors: Descriptors::of_this_process(),
            sysctls,
            qdiscs: qdisc::probe(),
            sockets: SocketSupport::probe(),
            bpf: Bpf::probe(capabilities),
            machine: Machine::look(),
        }
    }

    /// A setting as text.
    pub fn sysctl(&self, name: &str) -> Option<&str> {
        self.sysctls.get(name).map(String::as_str)
    }

    /// A setting that is one number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.sysctl(name)?.parse().ok()
    }

    /// The `nth` number of a setting that is several, as `net.ipv4.tcp_rmem`.
    pub fn nth(&self, name: &str, nth: usize) -> Option<u64> {
        self.sysctl(name)?.split_whitespace().nth(nth)?.parse().ok()
    }

    /// Major and minor number of the kernel's release; zeros when it cannot be read.
    pub fn kernel_version(&self) -> (u32, u32) {
        version(&self.kernel)
    }
}

/// Major and minor number of a release such as `6.18.0`.
pub(crate) fn version(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    let mut next = || numbers.next().and_then(Result::ok).unwrap_or(0);
    (next(), next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_looked_at() {
        let facts = Facts::gather();
        assert!(facts.kernel_version() >= (3, 2), "{}", facts.kernel);
        assert!(facts.descriptors.soft >= 16);
        assert!(facts.number("net.core.somaxconn").is_some());
        assert!(facts.nth("net.ipv4.tcp_rmem", 2) >= facts.nth("net.ipv4.tcp_rmem", 0));
        assert!(facts.machine.cpus >= 1 && facts.machine.memory.is_some());
        // every Linux has reno, and permits it to every process
        assert_eq!(facts.sockets.congestion.get("reno"), Some(&Support::Yes));
        assert_eq!(facts.qdiscs.len(), qdisc::KINDS.len());
        if facts.capabilities.net_admin && facts.capabilities.sys_admin {
            let unknown = |support: &Support| matches!(support, Support::Unknown { .. });
            assert!(!facts.qdiscs.values().any(unknown), "{:?}", facts.qdiscs);
        }
    }
}
