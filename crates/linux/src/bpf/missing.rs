//! What it takes to load, and what is missing.

use crate::facts::Capabilities;
use crate::sysctl;
use std::fmt;
use std::path::Path;

/// What loading needs, as it is here.
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

/// The release whose registrations go with the process that holds them (BPF_F_LINK for struct_ops).
const SINCE: (u32, u32) = (6, 4);

impl Needs {
    /// Looks at this machine.
    #[must_use]
    pub fn look() -> Self {
        Self::at(Path::new("/sys/kernel/btf/vmlinux"))
    }

    pub(super) fn at(types: &Path) -> Self {
        let release = sysctl::read("kernel.osrelease").unwrap_or_default();
        let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
        let mut next = || numbers.next().and_then(Result::ok).unwrap_or(0);
        let may = Capabilities::of_this_process();
        Self {
            types: types.exists(),
            kernel: (next(), next()),
            permitted: may.load_programs(),
            compiled: sysctl::number("net.core.bpf_jit_enable") != Some(0),
        }
    }

    /// Whether all is there.
    ///
    /// # Errors
    /// The first that is missing, in the order in which it would have to be mended.
    pub const fn met(&self) -> Result<(), Missing> {
        match self {
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missing {
    /// The kernel does not describe its types (BTF).
    Types,
    /// The kernel is older than 6.4.
    Kernel(u32, u32),
    /// BPF programs are not compiled.
    Compiler,
    /// This process may not load programs.
    Privilege,
    /// Every name is taken.
    Names(String),
    /// Pinned programs are there, and may not be used.
    Pins(String),
    /// Whether there are any pinned programs cannot be seen.
    Hidden(String),
    /// They cannot be pinned.
    Place(String),
    /// The kernel said no.
    Refused(String),
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Types => f.write_str(
                "this kernel does not describe its types (/sys/kernel/btf/vmlinux); one built with \
                 CONFIG_DEBUG_INFO_BTF does",
            ),
            Self::Kernel(major, minor) => {
                write!(f, "this is Linux {major}.{minor}, and it takes 6.4 or later")
            }
            Self::Compiler => f.write_str(
                "net.core.bpf_jit_enable is 0; `sysctl -w net.core.bpf_jit_enable=1` as root",
            ),
            Self::Privilege => f.write_str(
                "this process may not load it: CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN are needed, or `ekiden bpf \
                 load` once as root",
            ),
            Self::Names(name) => write!(
                f,
                "{name} and every number after it are registered already; `ekiden bpf unload` as root \
                 removes what was pinned, other relays' go when they end"
            ),
            Self::Pins(what) => write!(
                f,
                "what `ekiden bpf load` pinned may not be opened: {what}; run it again with \
                 `--user` and the name of the user ekiden runs as"
            ),
            Self::Hidden(what) => write!(
                f,
                "whether `ekiden bpf load` has pinned it cannot be seen by this user: {what}; every folder above has \
                 to let it pass"
            ),
            Self::Place(what) => write!(f, "they cannot be pinned: {what}"),
            Self::Refused(what) => write!(f, "the kernel refuses the programs: {what}"),
        }
    }
}

impl std::error::Error for Missing {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said_in_the_order_of_mending() {
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
