//! System limits: descriptors, and the kernel's socket settings.

use ekiden_linux::host::sysctl;
use ekiden_model::units::{Bytes, Share};
use ekiden_proxy::settings::{Cache, Settings};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{info, warn};

/// For listeners, the resolver, logs and the runtime.
const ASIDE: u64 = 64;

/// Raises the descriptor limit as far as it goes, and lowers `budgets.connections` to what it allows;
/// `asked`: the configuration sets that number.
pub(crate) fn descriptors(settings: &mut Settings, asked: bool) {
    let before = getrlimit(Resource::Nofile);
    let most = before.maximum;
    // an unlimited hard limit is still bounded by fs.nr_open
    let wanted = most.or_else(|| sysctl::number("fs.nr_open"));
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: wanted, maximum: most }) {
        warn!(%error, "cannot raise the descriptor limit");
    }
    let Some(limit) = getrlimit(Resource::Nofile).current else { return };
    let (pipes, blocks) = (u64::from(settings.budgets.pipes) * 2, blocks(&settings.cache));
    let waiting = u64::from(waiting(settings));
    let (high, wanted) = (settings.pressure.high, settings.budgets.connections);
    let (connections, lowered) = fit(limit.saturating_sub(waiting), pipes + blocks, high, wanted);
    if lowered {
        let text = format!(
            "limited to {connections} connections instead of {wanted}: the descriptor limit is {limit}, {waiting} of them \
             for clients that wait, {pipes} for pipes and {blocks} for the cache's disk, and `high` of [pressure] is {high}; \
             raise the limit with LimitNOFILE= or `ulimit -Hn`"
        );
        // below the default is a decision, below the configured value a degradation
        if asked {
            warn!("{text}");
        } else {
            info!("{text}");
        }
        settings.budgets.connections = connections;
    } else {
        info!(
            "descriptor limit {limit} suffices for {connections} connections and {pipes} pipe ends"
        );
    }
}

/// Lowers `pressure.waiting` to what the descriptor limit allows: waiting connections
/// hold descriptors too, and must not take those of active ones.
pub(crate) fn waiting(settings: &mut Settings) -> u32 {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let most = u32::try_from(limit / 8).unwrap_or(u32::MAX);
    settings.pressure.waiting = settings.pressure.waiting.min(most);
    settings.pressure.waiting
}

/// The cache's disk has a file open for each block, and one for what was removed.
fn blocks(cache: &Cache) -> u64 {
    let disk = cache.directory.as_ref().and(cache.disk);
    disk.map_or(0, |size| size.as_u64() / cache.block().as_u64() + 1)
}

/// Connections that fit, two descriptors each, and whether that is fewer than wanted. With all of them no more is in use
/// of `most` than the mark `high` allows.
fn fit(most: u64, taken: u64, high: Share, wanted: u32) -> (u32, bool) {
    // all of it is too much whatever the mark is
    let mark = high.of(most).min(most.saturating_sub(1));
    let room = mark.saturating_sub(taken + ASIDE) / 2;
    let fitting = u32::try_from(room).unwrap_or(u32::MAX).max(1);
    if fitting < wanted { (fitting, true) } else { (wanted, false) }
}

/// Logs what the kernel offers.
pub(crate) fn say_kernel() {
    let text = |name: &str| sysctl::read(name).unwrap_or_default();
    info!(
        "Linux {}: default congestion control {}; available: {}",
        text("kernel.osrelease"),
        text("net.ipv4.tcp_congestion_control"),
        text("net.ipv4.tcp_available_congestion_control")
    );
    // a leg's buffer is what the kernel makes of it: twice what it is asked for (socket(7), SO_SNDBUF)
    let (tuned, set) = (|name: &str| largest(&text(name), 1), |name: &str| largest(&text(name), 2));
    info!(
        "socket buffers: auto-tuning up to {} (send) and {} (receive); a leg may set up to {} and {}",
        tuned("net.ipv4.tcp_wmem"),
        tuned("net.ipv4.tcp_rmem"),
        set("net.core.wmem_max"),
        set("net.core.rmem_max"),
    );
}

/// The last number of a sysctl, so many times.
fn largest(text: &str, times: u64) -> String {
    let most = text.split_whitespace().last().and_then(|number| number.parse::<u64>().ok());
    most.map_or_else(|| "?".to_owned(), |n| Bytes::new(n.saturating_mul(times)).to_string())
}

#[cfg(test)]
mod tests {
    use super::{ASIDE, blocks, fit, largest};
    use ekiden_model::resources::overload::{Pressure, Resource, Watermarks};
    use ekiden_model::units::{Bytes, Share};
    use ekiden_proxy::settings::Cache;

    #[test]
    fn a_leg_may_set_twice_what_the_kernel_takes() {
        assert_eq!(largest("4096\t16384\t4194304", 1), "4 MiB");
        assert_eq!(largest("4194304\n", 2), "8 MiB");
        assert_eq!(largest("", 2), "?");
    }

    #[test]
    fn connections_fit_the_descriptors() {
        let high = Share::from_percent(95).unwrap();
        assert_eq!(fit(1024, 512, high, 20_000), (198, true));
        assert_eq!(fit(1_048_576, 512, high, 20_000), (20_000, false));
        assert_eq!(fit(10, 512, high, 20_000), (1, true));
        assert_eq!(fit(0, 0, high, 20_000), (1, true));
    }

    #[test]
    fn no_descriptor_is_short_with_all_connections_in_use() {
        for (most, percent) in [(1_000, 95), (1_024, 90), (4_096, 100), (65_536, 50)] {
            let high = Share::from_percent(percent).unwrap();
            let (connections, lowered) = fit(most, 300, high, 100_000);
            let in_use = |connections: u32| ASIDE + 300 + 2 * u64::from(connections);
            let is_low = |used| {
                let mut pressure = Pressure::new(Watermarks { high, ..Watermarks::default() });
                pressure.on_level(Resource::Descriptors, used, Some(most));
                pressure.low()
            };
            assert!(lowered && !is_low(in_use(connections)), "{most}, {percent} %");
            assert!(is_low(in_use(connections + 1)), "{most}, {percent} %");
        }
    }

    #[test]
    fn a_disk_of_the_cache_has_a_file_for_each_block() {
        let disk = |directory: Option<&str>| Cache {
            memory: Some(Bytes::mib(64)),
            disk: Some(Bytes::mib(500)),
            directory: directory.map(Into::into),
            largest: Bytes::mib(4),
        };
        assert_eq!(blocks(&disk(Some("/var/cache/ekiden"))), 101);
        assert_eq!(blocks(&disk(None)), 0);
    }
}
