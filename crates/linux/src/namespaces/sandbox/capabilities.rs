//! Whether this process has the capabilities that namespaces need, and keeping them across `exec`.

use crate::sockets::sockopt::done;
use std::fs;
use std::io;

// include/uapi/linux/capability.h
const NET_BIND_SERVICE: u32 = 10;
const NET_ADMIN: u32 = 12;
const NET_RAW: u32 = 13;
const SYS_CHROOT: u32 = 18;
const SYS_ADMIN: u32 = 21;
/// `_LINUX_CAPABILITY_VERSION_3`: two words of 32 each.
const VERSION: u32 = 0x2008_0522;

/// Capabilities that programs inside need: ping, tcpdump, ip, a web server, and this program again.
const NEEDED: [u32; 5] = [NET_BIND_SERVICE, NET_ADMIN, NET_RAW, SYS_CHROOT, SYS_ADMIN];

#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Set {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Whether namespaces can be made without a user namespace.
pub(super) fn suffice() -> bool {
    effective().is_some_and(|set| [NET_ADMIN, SYS_ADMIN].iter().all(|cap| set & (1 << cap) != 0))
}

fn effective() -> Option<u64> {
    let status = fs::read_to_string("/proc/thread-self/status").ok()?;
    let text = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(text.trim(), 16).ok()
}

/// Keeps the needed and permitted capabilities across `exec` for users other than root
/// (capabilities(7), "ambient").
pub(super) fn keep_over_exec() -> io::Result<()> {
    let mut header = Header { version: VERSION, pid: 0 };
    let mut sets = [Set::default(); 2];
    // SAFETY: both structures are as the kernel lays them out for this version, and outlive the call.
    if unsafe { libc::syscall(libc::SYS_capget, &raw mut header, sets.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let permitted = sets[0].permitted; // all we ask for are in the first word
    let kept = || NEEDED.into_iter().filter(|cap| permitted & (1 << cap) != 0);
    for cap in kept() {
        sets[0].inheritable |= 1 << cap;
    }
    // SAFETY: as above; the kernel only reads.
    if unsafe { libc::syscall(libc::SYS_capset, &raw mut header, sets.as_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    for cap in kept() {
        // SAFETY: plain integers.
        done(unsafe {
            libc::prctl(
                libc::PR_CAP_AMBIENT,
                libc::PR_CAP_AMBIENT_RAISE as libc::c_ulong,
                libc::c_ulong::from(cap),
                0_usize,
                0_usize,
            )
        })?;
    }
    Ok(())
}
