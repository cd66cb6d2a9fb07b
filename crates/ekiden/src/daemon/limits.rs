//! System limits: descriptors, and the kernel's socket settings.

use ekiden_linux::host::sysctl;
use ekiden_model::units::{Bytes, Share};
use ekiden_proxy::settings::{Cache, Dns, DnsServer, Settings, Upstream, UpstreamProtocol};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{info, warn};

/// For listeners, logs and the runtime.
const ASIDE: u64 = 64;
/// Connections to the management port.
const MANAGEMENT: u64 = 64;
/// For an address where peers connect: carriers of nobody yet, and two for each of its tunnels.
const TUNNELS: u64 = 128 + 2 * 64;
/// For a relay that this one has joined.
const JOINED: u64 = 20;
/// Questions over UDP of those who ask this relay for names, and as many of its own where no lookup does them.
const QUESTIONS: u64 = 256;
/// Streams of those who ask this relay for names.
const STREAMS: u64 = 256;
/// Sockets of a lookup for each server that it asks. The library sends again up to twice, beside what it has sent.
const SENT: u64 = 3;
/// Servers that a lookup asks at once.
const SERVERS: usize = 2;
/// Lookups that there are places for, whatever the limit is: a page has some tens of names, in two families each.
const LEAST_LOOKUPS: u32 = 64;
/// Refusals that there is room for, whatever the limit is.
const LEAST_REFUSALS: u32 = 16;
/// The part of the limit that pipes may number: an eighth of all descriptors with both ends. What has none is copied.
const PIPES: u64 = 16;
/// Of fewer connections than these the log warns, whatever the configuration asks for.
const FEW: u32 = 1_000;

/// Raises the descriptor limit as far as it goes, and lowers `budgets.pipes` and `connections` to what it allows;
/// `sets_pipes`, `asked`: the configuration sets these numbers. `management`: there is a management port.
pub(crate) fn descriptors(
    settings: &mut Settings,
    (sets_pipes, asked): (bool, bool),
    management: bool,
) {
    let before = getrlimit(Resource::Nofile);
    let most = before.maximum;
    // an unlimited hard limit is still bounded by fs.nr_open
    let wanted = most.or_else(|| sysctl::number("fs.nr_open"));
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: wanted, maximum: most }) {
        warn!(%error, "cannot raise the descriptor limit");
    }
    let Some(limit) = getrlimit(Resource::Nofile).current else { return };
    let asked_pipes = settings.budgets.pipes;
    let (pipes, blocks) = (pipes(settings, limit), blocks(&settings.cache));
    if settings.budgets.pipes < asked_pipes {
        let text = format!(
            "limited to {} pipes instead of {asked_pipes}: the descriptor limit is {limit}",
            settings.budgets.pipes
        );
        // without a pipe a relay copies, which the default does not mind
        say(sets_pipes, &text);
    }
    let waiting = u64::from(waiting(settings));
    let aside = aside(settings, management, limit);
    let (high, wanted) = (settings.pressure.high, settings.budgets.connections);
    let taken = pipes + blocks + aside;
    let (connections, lowered) = fit(limit.saturating_sub(waiting), taken, high, wanted);
    if lowered {
        let disk =
            if blocks > 0 { format!(", {blocks} for the cache's disk") } else { String::new() };
        let text = format!(
            "limited to {connections} connections instead of {wanted}: the descriptor limit is {limit}. Set aside are {waiting} \
             for clients that wait, {pipes} for pipes{disk} and {aside} for all else, and `high` of [pressure] is {high}. \
             Raise the limit with LimitNOFILE= or `ulimit -Hn`"
        );
        // below the default is a decision, below the configured value or what anybody needs a degradation
        say(is_degraded(asked, connections), &text);
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

/// Writes that something was lowered.
fn say(is_degraded: bool, text: &str) {
    if is_degraded {
        warn!("{text}");
    } else {
        info!("{text}");
    }
}

/// Whether so few connections are worth a warning; `asked`: the configuration asks for more.
const fn is_degraded(asked: bool, connections: u32) -> bool {
    asked || connections < FEW
}

/// Both ends of all pipes, whose number is lowered to what the limit allows.
fn pipes(settings: &mut Settings, limit: u64) -> u64 {
    let most = u32::try_from(limit / PIPES).unwrap_or(u32::MAX);
    let pipes = &mut settings.budgets.pipes;
    *pipes = most.min(*pipes);
    u64::from(*pipes) * 2
}

/// The cache's disk has a file open for each block, and one for what was removed.
fn blocks(cache: &Cache) -> u64 {
    let disk = cache.directory.as_ref().and(cache.disk);
    disk.map_or(0, |size| size.as_u64() / cache.block().as_u64() + 1)
}

/// What is set aside beside connections, pipes and the cache: a quarter of the limit at most. Where there would be more,
/// the numbers of lookups and refusals are lowered.
fn aside(settings: &mut Settings, management: bool, limit: u64) -> u64 {
    let (fixed, of_lookup) = (fixed(settings, management), sockets_of_lookup(&settings.dns));
    let budgets = &mut settings.budgets;
    let lookups = u64::from(budgets.lookups) + u64::from(budgets.own_lookups());
    let variable = lookups * of_lookup + u64::from(budgets.rejections);
    let most = limit / 4;
    if fixed + variable > most {
        let room = most.saturating_sub(fixed);
        let part = |number: u32, least: u32| {
            let part = u64::from(number) * room / variable.max(1);
            u32::try_from(part).unwrap_or(u32::MAX).max(least).min(number)
        };
        budgets.lookups = part(budgets.lookups, LEAST_LOOKUPS);
        budgets.rejections = part(budgets.rejections, LEAST_REFUSALS);
    }
    most.min(fixed + variable)
}

fn fixed(settings: &Settings, management: bool) -> u64 {
    let tunnel = |upstream: &&Upstream| upstream.protocol == UpstreamProtocol::Tunnel;
    let joined = settings.upstreams.values().filter(tunnel).count() as u64;
    let listening = settings.tunnel.listen.len() as u64;
    let clients_ask = !settings.dns.listen.is_empty();
    let servers = &settings.dns.servers;
    let plain = servers.iter().filter(|server| is_plain(server)).count();
    let questions = match plain {
        // servers that share streams, or only lookups
        0 if !servers.is_empty() => 0,
        _ if plain < servers.len() => 2 * QUESTIONS,
        // peers ask, too
        _ if clients_ask || joined + listening > 0 => QUESTIONS,
        _ => 0,
    };
    let streams = if clients_ask { STREAMS } else { 0 };
    let management = if management { MANAGEMENT } else { 0 };
    ASIDE + management + listening * TUNNELS + joined * JOINED + questions + streams
}

/// None where other servers than plain ones are asked: these share streams.
fn sockets_of_lookup(dns: &Dns) -> u64 {
    let servers = match dns.servers.len() {
        // those of the system
        0 => SERVERS,
        number => number.min(SERVERS),
    };
    if dns.servers.iter().all(is_plain) { servers as u64 * SENT } else { 0 }
}

const fn is_plain(server: &DnsServer) -> bool {
    matches!(server, DnsServer::Plain(_))
}

/// Connections that fit, two descriptors each, and whether that is fewer than wanted. With all of them no more is in use
/// of `most` than the mark `high` allows.
fn fit(most: u64, taken: u64, high: Share, wanted: u32) -> (u32, bool) {
    // all of it is too much whatever the mark is
    let mark = high.of(most).min(most.saturating_sub(1));
    let room = mark.saturating_sub(taken) / 2;
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
    use super::{LEAST_LOOKUPS, LEAST_REFUSALS, aside, blocks, fit, is_degraded, largest, pipes};
    use ekiden_model::resources::overload::{Pressure, Resource, Watermarks};
    use ekiden_model::units::{Bytes, Share};
    use ekiden_proxy::settings::{Cache, DnsServer, Settings, Upstream, UpstreamProtocol};
    use std::net::SocketAddr;

    #[test]
    fn a_leg_may_set_twice_what_the_kernel_takes() {
        assert_eq!(largest("4096\t16384\t4194304", 1), "4 MiB");
        assert_eq!(largest("4194304\n", 2), "8 MiB");
        assert_eq!(largest("", 2), "?");
    }

    #[test]
    fn connections_fit_the_descriptors() {
        let high = Share::from_percent(95).unwrap();
        assert_eq!(fit(1024, 576, high, 20_000), (198, true));
        assert_eq!(fit(1_048_576, 576, high, 20_000), (20_000, false));
        assert_eq!(fit(10, 576, high, 20_000), (1, true));
        assert_eq!(fit(0, 0, high, 20_000), (1, true));
    }

    #[test]
    fn pipes_have_an_eighth_of_the_descriptors_at_most() {
        for (limit, waiting, number, most, degraded) in [
            (1_024, 128, 64_u32, 233, true),
            (4_096, 512, 256, 934, true),
            (65_536, 1_024, 256, 20_000, false),
        ] {
            let mut settings = Settings::default();
            let pipes = pipes(&mut settings, limit);
            assert_eq!((pipes, settings.budgets.pipes), (2 * u64::from(number), number));
            let taken = pipes + aside(&mut settings, false, limit);
            let (high, wanted) = (settings.pressure.high, settings.budgets.connections);
            let (connections, _) = fit(limit - waiting, taken, high, wanted);
            assert_eq!(connections, most, "{limit}");
            assert_eq!(is_degraded(false, connections), degraded, "{limit}");
        }
        assert!(is_degraded(true, 5_000));
    }

    #[test]
    fn no_descriptor_is_short_with_all_connections_in_use() {
        for (most, percent) in [(1_000, 95), (1_024, 90), (4_096, 100), (65_536, 50)] {
            let high = Share::from_percent(percent).unwrap();
            let (connections, lowered) = fit(most, 300, high, 100_000);
            let in_use = |connections: u32| 300 + 2 * u64::from(connections);
            let is_low = |used| {
                let mut pressure = Pressure::new(Watermarks { high, ..Watermarks::default() });
                pressure.on_level(Resource::Descriptors, used, Some(most));
                pressure.low()
            };
            assert!(lowered && !is_low(in_use(connections)), "{most}, {percent} %");
            assert!(is_low(in_use(connections + 1)), "{most}, {percent} %");
        }
    }

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn servers(all: &[&str]) -> Vec<DnsServer> {
        all.iter().map(|server| server.parse().unwrap()).collect()
    }

    /// The settings after a change of the default ones, and what is set aside of so many descriptors.
    fn aside_of(limit: u64, change: impl FnOnce(&mut Settings)) -> (Settings, u64) {
        let mut settings = Settings::default();
        change(&mut settings);
        let aside = aside(&mut settings, false, limit);
        (settings, aside)
    }

    #[test]
    fn beside_connections_so_much_is_set_aside_as_the_settings_allow() {
        const MANY: u64 = 1 << 20;
        const LEAST_OF_ALL: u64 = 64 + 256;
        const LOOKUPS: u64 = 256 + 64;
        let of = |change: fn(&mut Settings)| {
            let (settings, aside) = aside_of(MANY, change);
            assert_eq!((settings.budgets.lookups, settings.budgets.rejections), (256, 256));
            aside - LEAST_OF_ALL
        };
        // two of the system's servers, each asked three times beside each other
        assert_eq!(of(|_| {}), LOOKUPS * 6);
        let one = |settings: &mut Settings| settings.dns.servers = servers(&["192.0.2.1"]);
        assert_eq!(of(one), LOOKUPS * 3);
        // who asks this relay has streams, too
        let listens = |settings: &mut Settings| settings.dns.listen = vec![at("192.0.2.9:53")];
        assert_eq!(of(listens), LOOKUPS * 6 + 256 + 256);
        let tls = |settings: &mut Settings| settings.dns.servers = servers(&["tls://192.0.2.1"]);
        assert_eq!(of(tls), 0);
        let both = |settings: &mut Settings| {
            settings.dns.servers = servers(&["tls://192.0.2.1", "192.0.2.1"]);
        };
        assert_eq!(of(both), 512);
        let joins = |settings: &mut Settings| {
            let upstream = Upstream::new(UpstreamProtocol::Tunnel, "shore", 0);
            settings.upstreams.insert("shore".to_owned(), upstream);
            settings.tunnel.listen = vec![at("192.0.2.9:443"), at("[2001:db8::9]:443")];
        };
        assert_eq!(of(joins), LOOKUPS * 6 + 256 + 20 + 2 * 256);
        let of_management = aside(&mut Settings::default(), true, MANY) - LEAST_OF_ALL;
        assert_eq!(of_management, LOOKUPS * 6 + 64);
    }

    #[test]
    fn no_more_than_a_quarter_of_the_descriptors_is_set_aside() {
        for limit in [0, 64, 256, 1_024, 4_096, 8_192, 1 << 20] {
            let (settings, aside) = aside_of(limit, |_| {});
            let (lookups, refusals) = (settings.budgets.lookups, settings.budgets.rejections);
            assert!(aside <= limit / 4, "{limit}");
            assert!((LEAST_LOOKUPS..=256).contains(&lookups), "{limit}");
            assert!((LEAST_REFUSALS..=256).contains(&refusals), "{limit}");
            let most = 64 + u64::from(lookups + lookups / 4) * 6 + u64::from(refusals);
            assert!(lookups == LEAST_LOOKUPS || most <= aside, "{limit}: {most} of {aside}");
        }
        let (settings, aside) = aside_of(4_096, |_| {});
        assert_eq!(
            (settings.budgets.lookups, settings.budgets.rejections, aside),
            (112, 112, 1_024)
        );
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
