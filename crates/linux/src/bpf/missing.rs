//! Requirements for loading, and which are missing.

use crate::host::facts::{Capabilities, version};
use crate::host::sysctl;
use std::path::Path;

/// The requirements as this machine has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    /// The kernel describes its types, at `/sys/kernel/btf/vmlinux`.
    pub types: bool,
    /// Major and minor number of the kernel's release.
    pub kernel: (u32, u32),
    /// [`Capabilities::load_programs`].
    pub permitted: bool,
    /// `net.core.bpf_jit_enable` is not 0, or cannot be read.
    pub compiled: bool,
}

/// The first release whose struct_ops registrations end with their process (BPF_F_LINK).
const SINCE: (u32, u32) = (6, 4);

impl Needs {
    /// Looks at this machine.
    pub fn look() -> Self {
        Self::at(Path::new("/sys/kernel/btf/vmlinux"))
    }

    pub(super) fn at(types: &Path) -> Self {
        let release = sysctl::read("kernel.osrelease").unwrap_or_default();
        let may = Capabilities::of_this_process();
        Self {
            types: types.exists(),
            kernel: version(&release),
            permitted: may.load_programs(),
            compiled: sysctl::number("net.core.bpf_jit_enable") != Some(0),
        }
    }

    /// Whether all is there, or the first that is missing, in the order in which to mend it.
    pub const fn met(&self) -> Result<(), Missing> {
        match self {
            _ if cfg!(not(feature = "bpf")) => Err(Missing::Feature),
            Self { types: false, .. } => Err(Missing::Types),
            Self { kernel: (major, minor), .. }
                if *major < SINCE.0 || (*major == SINCE.0 && *minor < SINCE.1) =>
            {
                Err(Missing::Kernel(*major, *minor))
            }
            Self { compiled: false, .. } => Err(Missing::Compiler),
            Self { permitted: false, .. } => Err(Missing::Privilege),
            _ => Ok(()),
        }
    }
}

/// Why a congestion control of ours is not there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Missing {
    #[error("this build of ekiden has no BPF programs; one with the cargo feature `bpf` does")]
    Feature,
    #[error(
        "this kernel does not describe its types (/sys/kernel/btf/vmlinux); one built with CONFIG_DEBUG_INFO_BTF does"
    )]
    Types,
    #[error("this is Linux {0}.{1}, and it takes 6.4 or later")]
    Kernel(u32, u32),
    #[error("net.core.bpf_jit_enable is 0; `sysctl -w net.core.bpf_jit_enable=1` as root")]
    Compiler,
    #[error(
        "this process may not load it: CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN are needed, or `ekiden bpf load` once as root"
    )]
    Privilege,
    #[error(
        "{0} and every number after it are registered already; `ekiden bpf unload` as root removes what was pinned, other relays' go when they end"
    )]
    Names(String),
    #[error(
        "what `ekiden bpf load` pinned may not be opened: {0}; run it again with `--user` and the name of the user ekiden runs as"
    )]
    Pins(String),
    #[error(
        "whether `ekiden bpf load` has pinned it cannot be seen by this user: {0}; every folder above has to let it pass"
    )]
    Hidden(String),
    #[error("they cannot be pinned: {0}")]
    Place(String),
    #[error("the kernel refuses the programs: {0}")]
    Refused(String),
}

#[cfg(all(test, feature = "bpf"))]
mod tests {
    use super::*;

    #[test]
    fn lists_missing_requirements_in_order_of_repair() {
        let all = Needs { types: true, kernel: (6, 18), permitted: true, compiled: true };
        assert_eq!(all.met(), Ok(()));
        let kernel = |major, minor| Needs { kernel: (major, minor), ..all }.met();
        assert_eq!(kernel(6, 3), Err(Missing::Kernel(6, 3)));
        assert_eq!(kernel(5, 15), Err(Missing::Kernel(5, 15)));
        assert_eq!((kernel(6, 4), kernel(7, 0)), (Ok(()), Ok(())));
        assert_eq!(Needs { permitted: false, ..all }.met(), Err(Missing::Privilege));
        let none = Needs { types: false, kernel: (4, 0), permitted: false, compiled: false };
        assert_eq!(none.met(), Err(Missing::Types));
        assert_eq!(Needs { types: true, kernel: (6, 4), ..none }.met(), Err(Missing::Compiler));
    }

    #[test]
    fn a_kernel_without_types_is_seen() {
        let needs = Needs::at(Path::new("/nowhere/btf/vmlinux"));
        assert!(!needs.types && needs.kernel.0 >= 3);
        assert!(needs.met().is_err_and(|missing| missing.to_string().contains("BTF")));
    }
}
