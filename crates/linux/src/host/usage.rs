//! Usage of limited resources: descriptors, socket memory, this process's memory, ports. Each is
//! one or two small files, cheap enough for once a second.

use crate::host::sysctl;
use std::fs;
use std::os::unix::fs::MetadataExt as _;

/// In use, and the most that can be, in the same unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// In use.
    pub used: u64,
    /// The most; `None` without a limit.
    pub most: Option<u64>,
}

/// Descriptors of this process, against `RLIMIT_NOFILE`; `None` where `/proc` cannot be read. Since
/// Linux 6.2 the directory's size is their number; before, they are counted.
pub fn descriptors() -> Option<Usage> {
    let folder = "/proc/self/fd";
    let used = match fs::metadata(folder).ok()?.size() {
        // less the one that counts
        0 => (fs::read_dir(folder).ok()?.count() as u64).saturating_sub(1),
        size => size,
    };
    let limit = crate::host::facts::Descriptors::of_this_process().soft;
    Some(Usage { used, most: (limit != 0 && limit != u64::MAX).then_some(limit) })
}

/// Memory of all TCP sockets, pages, against the second number of `net.ipv4.tcp_mem`, from which on
/// the kernel cuts buffers.
pub fn socket_memory() -> Option<Usage> {
    let used = tcp_pages(&fs::read_to_string("/proc/net/sockstat").ok()?)?;
    let limits = sysctl::read("net.ipv4.tcp_mem")?;
    Some(Usage { used, most: limits.split_whitespace().nth(1)?.parse().ok() })
}

/// Bytes of a page, the unit of [`socket_memory`].
pub fn page_size() -> u64 {
    // SAFETY: a plain integer.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).unwrap_or(4_096)
}

/// Memory that this process's control group (version 2) uses, without its page cache, bytes,
/// against the group's `memory.max`; `None` without such a limit.
pub fn own_memory() -> Option<Usage> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    group_memory(&groups, |path| fs::read_to_string(path).ok())
}

/// Local ports for connections to one destination: `net.ipv4.ip_local_port_range`, less those
/// reserved.
pub fn local_ports() -> Option<u64> {
    let range = sysctl::read("net.ipv4.ip_local_port_range")?;
    let reserved = sysctl::read("net.ipv4.ip_local_reserved_ports").unwrap_or_default();
    ports(&range, &reserved)
}

fn tcp_pages(sockstat: &str) -> Option<u64> {
    let line = sockstat.lines().find_map(|line| line.strip_prefix("TCP:"))?;
    let mut words = line.split_whitespace().skip_while(|word| *word != "mem");
    words.nth(1)?.parse().ok()
}

/// The tightest limit counts, with the usage below it.
fn group_memory(groups: &str, read: impl Fn(&str) -> Option<String>) -> Option<Usage> {
    let mut group = groups.lines().find_map(|line| line.strip_prefix("0::"))?.trim_end_matches('/');
    let mut tightest: Option<(u64, u64)> = None;
    loop {
        let file = |name: &str| read(&format!("/sys/fs/cgroup{group}/{name}"));
        let number = |name: &str| file(name)?.trim().parse::<u64>().ok();
        if let (Some(most), Some(current)) = (number("memory.max"), number("memory.current")) {
            let stat = file("memory.stat").unwrap_or_default();
            let cached = |name: &str| {
                let mut lines = stat.lines().filter_map(|line| line.split_once(' '));
                lines.find(|(key, _)| *key == name).and_then(|(_, n)| n.trim().parse::<u64>().ok())
            };
            let cache: u64 = ["active_file", "inactive_file"].into_iter().filter_map(cached).sum();
            let used = current.saturating_sub(cache);
            // as shares, without dividing
            let tighter = tightest.is_none_or(|(other_used, other_most)| {
                u128::from(used) * u128::from(other_most)
                    > u128::from(other_used) * u128::from(most)
            });
            if tighter {
                tightest = Some((used, most));
            }
        }
        match group.rsplit_once('/') {
            Some((parent, _)) => group = parent,
            None => return tightest.map(|(used, most)| Usage { used, most: Some(most) }),
        }
    }
}

fn ports(range: &str, reserved: &str) -> Option<u64> {
    let (first, last) = range.split_once(' ')?;
    let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
    let within = |part: &str| -> Option<u64> {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to): (u64, u64) = (from.parse().ok()?, to.parse().ok()?);
        Some((to.min(last) + 1).saturating_sub(from.max(first)))
    };
    let taken: u64 = reserved.split(',').filter_map(within).sum();
    Some((last + 1).saturating_sub(first).saturating_sub(taken))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn this_process_s_descriptors_are_counted() {
        let before = descriptors().unwrap();
        let held: Vec<_> = (0..400).map(|_| fs::File::open("/dev/null").unwrap()).collect();
        let now = descriptors().unwrap();
        // other tests of this process close some meanwhile
        assert!(now.used >= before.used + 200, "{before:?} {now:?}");
        assert!(now.most.is_none_or(|most| most >= now.used));
        drop(held);
    }

    #[test]
    fn this_machine_is_read() {
        assert!(socket_memory().unwrap().most.unwrap() > 0);
        assert!(page_size().is_power_of_two() && page_size() >= 4_096);
        assert!((1..=65_535).contains(&local_ports().unwrap()));
    }

    #[test]
    fn pages_of_tcp_stand_behind_their_word() {
        let text =
            "sockets: used 15\nTCP: inuse 1 orphan 2 tw 0 alloc 3 mem 86\nUDP: inuse 0 mem 7\n";
        assert_eq!(tcp_pages(text), Some(86));
        assert_eq!(tcp_pages("UDP: inuse 0 mem 7\n"), None);
    }

    #[test]
    fn the_group_that_is_fullest_counts_without_its_cache() {
        let read = |path: &str| {
            Some(match path {
                "/sys/fs/cgroup/a/b/memory.max" => "1000\n".to_owned(),
                "/sys/fs/cgroup/a/b/memory.current" => "700\n".to_owned(),
                "/sys/fs/cgroup/a/b/memory.stat" => {
                    "anon 100\nfile 600\nactive_file 200\ninactive_file 400\n".to_owned()
                }
                "/sys/fs/cgroup/a/memory.max" => "2000\n".to_owned(),
                "/sys/fs/cgroup/a/memory.current" => "1900\n".to_owned(),
                _ => return None,
            })
        };
        let usage = group_memory("1:x:/y\n0::/a/b\n", read);
        assert_eq!(usage, Some(Usage { used: 1_900, most: Some(2_000) }));
        assert_eq!(group_memory("0::/a/b\n", |_| Some("max\n".into())), None);
        assert_eq!(group_memory("1:memory:/a\n", read), None);
    }

    #[test]
    fn reserved_ports_are_left_out() {
        assert_eq!(ports("32768 60999", ""), Some(28_232));
        assert_eq!(ports("1000 1099", "900-1009,1050,2000"), Some(89));
        assert_eq!(ports("x", ""), None);
    }
}
