//! System limits: descriptors, and the kernel's socket settings.

use ekiden_linux::host::sysctl;
use ekiden_model::units::Bytes;
use ekiden_proxy::settings::Settings;
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
    let pipes = u64::from(settings.budgets.pipes) * 2;
    let waiting = u64::from(waiting(settings));
    let (connections, lowered) = fit(limit, pipes + waiting, settings.budgets.connections);
    if lowered {
        let text = format!(
            "limited to {connections} connections instead of {}: the descriptor limit is {limit}, \
             {pipes} of them for pipes; raise it with LimitNOFILE= or `ulimit -Hn`",
            settings.budgets.connections
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

/// Connections that fit, two descriptors each, and whether that is fewer than wanted.
fn fit(limit: u64, pipes: u64, wanted: u32) -> (u32, bool) {
    let room = limit.saturating_sub(pipes + ASIDE) / 2;
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
    use super::{fit, largest};

    #[test]
    fn a_leg_may_set_twice_what_the_kernel_takes() {
        assert_eq!(largest("4096\t16384\t4194304", 1), "4 MiB");
        assert_eq!(largest("4194304\n", 2), "8 MiB");
        assert_eq!(largest("", 2), "?");
    }

    #[test]
    fn connections_fit_the_descriptors() {
        assert_eq!(fit(1024, 512, 20_000), (224, true));
        assert_eq!(fit(1_048_576, 512, 20_000), (20_000, false));
        assert_eq!(fit(10, 512, 20_000), (1, true));
    }
}
