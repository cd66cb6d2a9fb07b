//! Which socket options and congestion controls this kernel has, tried on a socket that goes nowhere.

use super::Capabilities;
use crate::bpf;
use crate::host::sysctl;
use crate::sockets::sockopt::{self, Errno, TCP_RTO_MAX_MS, TCP_RTO_MIN_US};
use libc::{IPPROTO_TCP, SOL_SOCKET};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

/// Whether the kernel has something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "support", rename_all = "snake_case")]
pub enum Support {
    /// It was tried, and works.
    Yes,
    /// It was tried, and is refused.
    No {
        /// The kernel's answer.
        because: String,
    },
    /// It could not be tried.
    Unknown {
        /// Why not.
        because: String,
    },
}

impl Support {
    /// Whether it works.
    pub const fn is_yes(&self) -> bool {
        matches!(self, Self::Yes)
    }

    fn from_result(result: Result<(), Errno>) -> Self {
        match result {
            Ok(()) => Self::Yes,
            Err(errno) => Self::No { because: words(errno) },
        }
    }
}

pub(super) fn words(errno: Errno) -> String {
    io::Error::from_raw_os_error(errno).to_string()
}

/// Options that a socket may request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SocketSupport {
    /// Options by their kernel names, as `TCP_RTO_MAX_MS`; `MPTCP` and `kTLS` among them.
    pub options: BTreeMap<String, Support>,
    /// Each available congestion control, and whether this process may use it.
    pub congestion: BTreeMap<String, Support>,
    /// The largest `TCP_RTO_MIN_US` granted, microseconds; absent when the option is.
    pub rto_min_largest_us: Option<u32>,
    /// Bytes of `TCP_INFO` that this kernel fills in.
    pub tcp_info_length: usize,
}

impl SocketSupport {
    pub(super) fn probe() -> Self {
        let mut support = Self {
            options: BTreeMap::new(),
            congestion: BTreeMap::new(),
            rto_min_largest_us: None,
            tcp_info_length: 0,
        };
        let socket = match Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)) {
            Ok(socket) => socket,
            Err(error) => {
                let because = format!("no socket could be made: {error}");
                support.options.insert("socket".into(), Support::Unknown { because });
                return support;
            }
        };
        let fd = socket.as_fd();
        let mut option = |name: &str, result: Result<(), Errno>| {
            support.options.insert(name.into(), Support::from_result(result));
        };
        let set = |level, name, value| sockopt::set_int(fd, level, name, value);
        option("TCP_RTO_MAX_MS", set(IPPROTO_TCP, TCP_RTO_MAX_MS, 60_000));
        option("TCP_RTO_MIN_US", set(IPPROTO_TCP, TCP_RTO_MIN_US, 100_000));
        option("SO_BUF_LOCK", set(SOL_SOCKET, libc::SO_BUF_LOCK, 0));
        option("TCP_NOTSENT_LOWAT", set(IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, 16_384));
        option("TCP_FASTOPEN_CONNECT", set(IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT, 1));
        option("SO_MAX_PACING_RATE", sockopt::set_pace(fd, 1_000_000));
        option("SO_MARK", set(SOL_SOCKET, libc::SO_MARK, 1));
        let multipath =
            Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::from(libc::IPPROTO_MPTCP)));
        option(
            "MPTCP",
            multipath.map(drop).map_err(|error| error.raw_os_error().unwrap_or(libc::EIO)),
        );
        // a kernel that supports it answers that the socket is not connected
        let tls = sockopt::set_bytes(fd, IPPROTO_TCP, libc::TCP_ULP, b"tls");
        option("kTLS", if tls == Err(libc::ENOTCONN) { Ok(()) } else { tls });

        support.rto_min_largest_us = [1_000_000, 500_000, 200_000, 100_000]
            .into_iter()
            .find(|us| set(IPPROTO_TCP, TCP_RTO_MIN_US, *us).is_ok())
            .and_then(|us| u32::try_from(us).ok());
        let mut info = [0; 1024];
        support.tcp_info_length =
            sockopt::get_bytes(fd, IPPROTO_TCP, libc::TCP_INFO, &mut info).unwrap_or(0);
        let available = sysctl::read("net.ipv4.tcp_available_congestion_control");
        for name in available.as_deref().unwrap_or_default().split_whitespace() {
            let result = sockopt::set_bytes(fd, IPPROTO_TCP, libc::TCP_CONGESTION, name.as_bytes());
            support.congestion.insert(name.into(), Support::from_result(result));
        }
        support
    }
}

/// Whether congestion controls can be brought as BPF programs (`struct_ops`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Bpf {
    /// The kernel describes its types (`/sys/kernel/btf/vmlinux`).
    pub types: bool,
    /// Among them those of a congestion control as BPF (CONFIG_BPF_JIT with struct_ops, Linux 5.6).
    pub congestion_controls: bool,
    /// This process has CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN (or CAP_SYS_ADMIN).
    pub permitted: bool,
    /// Programs are compiled (`net.core.bpf_jit_enable` is not 0, or cannot be read).
    #[serde(default)]
    pub compiled: bool,
    /// Congestion controls that `ekiden bpf load` has pinned and that this process may use, as the kernel calls them.
    #[serde(default)]
    pub pinned: Vec<String>,
    /// Why it may not use others.
    #[serde(default)]
    pub closed: Vec<String>,
}

impl Bpf {
    pub(super) fn probe(capabilities: Capabilities) -> Self {
        let types = fs::read("/sys/kernel/btf/vmlinux").unwrap_or_default();
        let wanted = b"bpf_struct_ops_tcp_congestion_ops\0";
        let (mut pinned, mut closed) = (Vec::new(), Vec::new());
        for (control, judged) in bpf::pinned(Path::new(bpf::PINS)) {
            match judged {
                Ok(name) => pinned.push(name),
                Err(missing) => closed.push(format!("{control}: {missing}")),
            }
        }
        Self {
            congestion_controls: types.windows(wanted.len()).any(|name| name == wanted),
            types: !types.is_empty(),
            permitted: capabilities.load_programs(),
            compiled: sysctl::number("net.core.bpf_jit_enable") != Some(0),
            pinned,
            closed,
        }
    }
}
