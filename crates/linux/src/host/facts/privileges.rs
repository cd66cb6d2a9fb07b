//! This process's privileges, and how many descriptors it may open.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fs;

/// The capabilities in effect that something here asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Capabilities {
    /// CAP_NET_ADMIN: any congestion control, buffers beyond the limits, marks.
    pub net_admin: bool,
    /// CAP_NET_BIND_SERVICE: ports below 1024.
    pub net_bind_service: bool,
    /// CAP_NET_RAW: marks, changing the device.
    pub net_raw: bool,
    /// CAP_BPF: congestion controls as BPF programs.
    pub bpf: bool,
    /// CAP_PERFMON: those of them that read the kernel's structures, as all do.
    #[serde(default)]
    pub perfmon: bool,
    /// CAP_SYS_ADMIN: namespaces, and before Linux 5.8 BPF.
    pub sys_admin: bool,
    /// CAP_SYS_RESOURCE: more descriptors than the hard limit, larger pipes.
    pub sys_resource: bool,
}

impl Capabilities {
    /// From `/proc/self/status`; none when that cannot be read.
    pub fn of_this_process() -> Self {
        fs::read_to_string("/proc/self/status")
            .map_or_else(|_| Self::default(), |s| Self::parse(&s))
    }

    fn parse(status: &str) -> Self {
        let bits = status
            .lines()
            .find_map(|line| line.strip_prefix("CapEff:"))
            .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
            .unwrap_or(0);
        // numbers of include/uapi/linux/capability.h
        let has = |number: u32| bits >> number & 1 == 1;
        Self {
            net_bind_service: has(10),
            net_admin: has(12),
            net_raw: has(13),
            sys_admin: has(21),
            sys_resource: has(24),
            perfmon: has(38),
            bpf: has(39),
        }
    }

    /// Whether congestion controls may be loaded: CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN, or CAP_SYS_ADMIN.
    pub const fn load_programs(self) -> bool {
        self.sys_admin || (self.bpf && self.perfmon && self.net_admin)
    }
}

/// RLIMIT_NOFILE: how many descriptors this process may have open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Descriptors {
    /// The current limit.
    pub soft: u64,
    /// The highest limit it may set.
    pub hard: u64,
}

impl Descriptors {
    /// The limits in force; zeros when they cannot be read.
    pub fn of_this_process() -> Self {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the kernel fills in the structure, which is valid for the call.
        match unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } {
            0 => Self { soft: limit.rlim_cur, hard: limit.rlim_max },
            _ => Self::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read_by_number() {
        let all = Capabilities::parse("Name:\tx\nCapEff:\t000001ffffffffff\n");
        assert!(all.net_admin && all.bpf && all.sys_resource && all.net_bind_service);
        let one = Capabilities::parse("CapEff:\t0000000000001000\n");
        assert_eq!(one, Capabilities { net_admin: true, ..Capabilities::default() });
        assert_eq!(Capabilities::parse("nothing"), Capabilities::default());
        // beside CAP_BPF (39) and CAP_NET_ADMIN (12) it takes CAP_PERFMON (38)
        let loads =
            |bits: u64| Capabilities::parse(&format!("CapEff:\t{bits:016x}")).load_programs();
        let two = 1 << 39 | 1 << 12;
        assert_eq!((loads(two), loads(two | 1 << 38), loads(1 << 21)), (false, true, true));
    }
}
