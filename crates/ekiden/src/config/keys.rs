//! Every other key. The order here is the order of the example file.

use super::draft::{Log, RelayDraft, RuleDraft, Top, UpstreamDraft};
use super::key::{Key, keys};
use super::kind::{Kind, absolute_path};
use super::pattern::shorten;
use super::value::{FAMILIES, access_log, movement};
use ekiden_model::units::{Bytes, Span};
use ekiden_proxy::settings::{Access, Budgets, Dns, Route, Timeouts};

pub(super) const MS: Span = Span::from_millis(1);
pub(super) const SECOND: Span = Span::from_secs(1);
pub(super) const HOUR: Span = Span::from_secs(3600);
const PHASE: Kind = Kind::Span(Span::from_millis(10), HOUR.saturating_mul(24));

/// A name of a leg, or nothing.
pub(super) fn some_name(text: &str) -> Result<(), String> {
    if text.is_empty() { Ok(()) } else { name(text) }
}

/// Checks the name of a leg, an upstream or a relay: 1 to 63 letters, digits, `-` and `_`.
///
/// # Errors
/// In words.
pub fn name(text: &str) -> Result<(), String> {
    let fine = !text.is_empty()
        && text.len() <= 63
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    if fine {
        Ok(())
    } else {
        Err(format!("«{}» is no name: 1 to 63 letters, digits, `-` and `_`", shorten(text)))
    }
}

/// A relay's name, or all.
fn relay(text: &str) -> Result<(), String> {
    if text == "*" { Ok(()) } else { name(text) }
}

/// A token of RFC 9110 §5.6.2.
fn via_name(text: &str) -> Result<(), String> {
    let fine = !text.is_empty()
        && text.len() <= 63
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b));
    if fine {
        Ok(())
    } else {
        Err("a name in `Via` is 1 to 63 letters, digits and `-._~`".to_owned())
    }
}

fn control(text: &str) -> Result<(), String> {
    if text == "off" {
        return Ok(());
    }
    absolute_path(text).map_err(|why| format!("{why}, nor `off`"))?;
    // sun_path holds 108 bytes with the closing zero
    if text.len() > 107 { Err("a socket's path has at most 107 bytes".to_owned()) } else { Ok(()) }
}

/// Keys outside any table.
pub(super) static TOP: &[Key<Top>] = keys! { Top;
    listen = listen: Kind::Sockets(None), None,
        "Where the one port for HTTP, CONNECT, SOCKS5 and SOCKS4a listens.",
        "Beyond loopback it is refused without a [[rule]] that names the clients: open proxies are abused within hours.",
        "Whoever serves other machines.";
    name = name: Kind::Text("a name", via_name), Some("auto"),
        "This relay's name in `Via`; loops are found by it. \"auto\": `ekiden-` and 8 random digits, drawn at start.",
        "Two relays of one name refuse each other's requests.",
        "Whoever wants to know it again in other people's logs.";
    control = control: Kind::Text("an absolute path or \"off\"", control), Some("auto"),
        "The local socket that answers `ekiden status` and `top`. \"auto\": $XDG_RUNTIME_DIR/ekiden.sock, /run/ekiden/ekiden.sock as root, else a private directory under /tmp.",
        "\"off\": nobody can look inside.", "Several daemons of one user on one machine.";
};

/// `[upstream.NAME]`.
pub(super) static UPSTREAM: &[Key<UpstreamDraft>] = keys! { UpstreamDraft;
    url = url: Kind::Text("a URL such as \"http://user@host:3128\", \"socks5://host:1080\" or \"tunnel://name\"", |_| Ok(())), Some(""),
        "The upstream proxy: `http://` or `socks5://`, user and password if it asks, host, port; or `tunnel://` and the name of a relay of `ekiden relay list`, which can only be the first of a chain. Needed.",
        "A password here is read by whoever reads the file; see password_file.", "-";
    leg = leg: Kind::Text("the name of a leg", name), None,
        "The leg profile of connections to it.", "None.", "Whoever tunes the way to it.";
    password_file = password_file: Kind::Text("an absolute path", absolute_path), Some(""),
        "The file whose first line is the password, so that it need not stand in `url`.",
        "None.", "Whoever shares or versions the configuration.";
};

/// `[[route]]`.
pub(super) static ROUTE: &[Key<Route>] = keys! { Route;
    to = to: Kind::Patterns, None,
        "Destinations: names, `*.` names, prefixes, each with `:port` or `:from-to`, or a port alone; empty is all. Names are not resolved for this.",
        "None.", "-";
    through = through: Kind::Chains, None,
        "Chains of upstreams, nearest first, tried in order until one answers; \"direct\" is without any.",
        "Each hop takes its round trips when connecting.", "-";
    leg = leg: Kind::Text("the name of a leg", name), None,
        "The leg profile of direct connections on this route.", "None.", "-";
    client_leg = client_leg: Kind::Text("the name of a leg", name), None,
        "The leg profile laid over the client's connection once the route is known.", "None.", "-";
};

/// `[[rule]]`.
pub(super) static RULE: &[Key<RuleDraft>] = keys! { RuleDraft;
    from = from: Kind::Nets, None,
        "Clients this rule is for. Empty, and `relays` too: everybody.", "None.", "-";
    relays = relays: Kind::Words("names of `ekiden relay list`, or \"*\" for all relays", relay), None,
        "Relays this rule is for: what comes out of their tunnels. Without a rule they may go anywhere but to loopback, private and other special addresses.",
        "None.", "Whoever opens the own network to a relay, or keeps one from going everywhere.";
    to = to: Kind::Patterns, None,
        "Destinations this rule is for, as for routes, but names are resolved; empty is all.",
        "None.", "-";
    action = action: Kind::Choice(&["allow", "deny"]), None,
        "What happens to what it matches. Needed.", "None.", "-";
    allow_destinations = allow_destinations: Kind::Nets, None,
        "Loopback, private and link-local prefixes that these clients may reach all the same.",
        "They reach what trusts this machine.", "-";
};

/// `[access]`.
pub(super) static ACCESS: &[Key<Access>] = keys! { Access;
    allow_destinations = allow_destinations: Kind::Nets, None,
        "Loopback, private, link-local and other special prefixes that everybody who may come in may reach.",
        "Services that trust this machine's address are open to every client.",
        "Whoever proxies into the own network; name as little as possible.";
};

/// `[timeouts]`.
pub(super) static TIMEOUTS: &[Key<Timeouts>] = keys! { Timeouts;
    first_byte = first_byte: PHASE, None,
        "From accepting a connection to its first byte.",
        "Longer holds descriptors for clients that say nothing.", "Longer for clients that connect ahead of need.";
    request_head = request_head: PHASE, None,
        "From the first byte of a request to the end of its head.",
        "Longer lets slow-loris clients hold on.", "Longer on links of a few kbit/s.";
    keep_alive = keep_alive: PHASE, None,
        "Between two requests on a client's connection.",
        "Longer holds descriptors; shorter costs clients another connection.", "A busy proxy short of descriptors: shorter.";
    resolve = resolve: PHASE, None,
        "Resolving a name.", "Clients wait this long for names that do not resolve.", "Longer behind a satellite.";
    handshake = handshake: PHASE, None,
        "For each upstream proxy's answer, hop by hop.",
        "Longer delays fail-over.", "Longer for chains over slow links.";
    response = response: PHASE, None,
        "From the end of a request to the head of its response.",
        "Longer holds on to dead servers.", "Longer for servers that compute for minutes before answering.";
    stop = stop: Kind::Span(Span::ZERO, HOUR.saturating_mul(24)), None,
        "How long a graceful stop waits for live connections.",
        "A restart takes up to this long.", "With systemd keep it below TimeoutStopSec (90 s).";
};

/// `[budgets]`.
pub(super) static BUDGETS: &[Key<Budgets>] = keys! { Budgets;
    connections = connections: Kind::Number(1, 10_000_000), None,
        "Connections at once: a client's together with what it leads to, and each one that is pooled. At the limit the longest idle gives way to a newcomer. Never more than the descriptor limit allows.",
        "Two descriptors and the kernel's socket memory each.", "Large sites, together with the descriptor limit.";
    head = head: Kind::Size(Bytes::kib(1), Bytes::mib(16)), None,
        "Bytes of one request or response head.", "Memory a client may take before anything is known of it.",
        "Sites with huge cookies.";
    fields = fields: Kind::Number(1, 10_000), None,
        "Header fields in one head.", "Time spent parsing.", "Rarely anybody.";
    pipes = pipes: Kind::Number(1, 1_000_000), None,
        "Pipes for splice open at once; beyond them bytes are copied.",
        "Two descriptors each, and up to pipe_size of kernel memory.", "Many bulk transfers at once.";
    pipe_size = pipe_size: Kind::Size(Bytes::kib(4), Bytes::mib(64)), None,
        "Size of each pipe; beyond /proc/sys/fs/pipe-max-size only when privileged.",
        "Kernel memory; counts against /proc/sys/fs/pipe-user-pages-soft.", "Very fast links.";
    memory = memory: Kind::Size(Bytes::mib(1), Bytes::mib(1 << 20)), None,
        "User-space memory for bytes waiting to be written, all connections together.",
        "Memory; at the limit bytes wait in the kernel's buffers, at one system call more.", "Machines with very little or very much memory.";
};

/// `[dns]`.
pub(super) static DNS: &[Key<Dns>] = keys! { Dns;
    servers = servers: Kind::Sockets(Some(53)), None,
        "Servers to ask; empty: those of /etc/resolv.conf.", "They see every name.", "Whoever has a nearer one.";
    cache = cache: Kind::Number(1, 10_000_000), None,
        "Answers kept.", "About 1 KiB each.", "Large sites.";
    min_ttl = min_ttl: Kind::Span(Span::ZERO, HOUR.saturating_mul(24)), None,
        "Answers are kept at least this long.", "Longer goes on using addresses that were withdrawn.",
        "Far from every name server: \"1 min\".";
    max_ttl = max_ttl: Kind::Span(SECOND, HOUR.saturating_mul(24 * 7)), None,
        "Answers are kept at most this long.", "As min_ttl.", "Rarely anybody.";
    negative_ttl = negative_ttl: Kind::Span(Span::ZERO, HOUR.saturating_mul(24)), None,
        "«No such name» is kept at most this long.", "A new name is not found until then.", "Rarely anybody.";
    hosts_file = hosts_file: Kind::Switch, None,
        "Whether /etc/hosts is read.", "None.", "Rarely anybody.";
    prefer = prefer: Kind::Choice(FAMILIES), None,
        "The address family tried first (RFC 8305 section 4), or the only one.",
        "A broken first family costs attempt_delay per connection.", "Where one of the two is slow or broken.";
    attempt_delay = attempt_delay: Kind::Span(Span::from_millis(100), Span::from_secs(2)), None,
        "Between two connection attempts (RFC 8305 section 8).",
        "Shorter makes connections that are thrown away.", "Longer where every round trip takes that long: satellites.";
    resolution_delay = resolution_delay: Kind::Span(Span::ZERO, Span::from_secs(2)), None,
        "How long an IPv4 answer waits for the IPv6 one (RFC 8305 section 3).",
        "Added to the first connection to names without IPv6 behind slow servers.", "Rarely anybody.";
};

/// `[relay]`.
pub(super) static RELAY: &[Key<RelayDraft>] = keys! { RelayDraft;
    movement = movement: Kind::Text("one of auto, splice, copy", |text| movement(text).map(|_| ())), None,
        "How bytes are moved: \"auto\" copies at first and splices a direction that moves much at a time; \"splice\", \"copy\"; \"random:SEED\" switches at random, for tests.",
        "splice takes two descriptors per busy direction; copy more CPU.", "Rarely anybody.";
};

/// `[log]`.
pub(super) static LOG: &[Key<Log>] = keys! { Log;
    level = level: Kind::Choice(&["error", "warn", "info", "debug", "trace"]), None,
        "error: somebody must act. warn: degraded or refused by configuration, look today. info: decisions at start, reload, stop. debug: one or two lines a connection. trace: more. EKIDEN_LOG overrides it.",
        "debug and trace take noticeable time on a busy relay.", "When looking for something.";
    format = format: Kind::Choice(&["text", "json"]), None,
        "Lines for people, or one JSON object a line; to standard error.", "None.", "Whoever collects logs by machine.";
    access = access: Kind::Text("\"off\", \"stderr\" or an absolute path", |text| access_log(text).map(|_| ())), None,
        "The access log: one JSON object a request or tunnel. A file is appended to, and reopened on SIGHUP.",
        "Who went where is on record; a line a request.", "Whoever must account for use.";
};

/// The route that is there when nothing is said.
#[must_use]
pub(super) fn default_route() -> Route {
    Route {
        to: Vec::new(),
        through: vec![Vec::new()],
        leg: "direct".to_owned(),
        client_leg: "client".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::keys_leg::LEG;
    use ekiden_linux::options::SocketOptions;

    /// Says at compile time that a leg's options are all known to the registry: a new field has to be
    /// named here, and the test below then asks for its key.
    fn option_names(options: &SocketOptions) -> Vec<&'static str> {
        macro_rules! names {
        ($($name:ident),*) => {{
            let SocketOptions { $($name: _),* } = options;
            vec![$(stringify!($name)),*]
        }};
    }
        names!(
            congestion,
            pace,
            rate,
            unsent_low_water,
            send_buffer,
            dscp,
            receive_buffer,
            window_clamp,
            lock_buffers,
            mss,
            syn_count,
            user_timeout,
            rto_max,
            rto_min,
            keepalive_idle,
            keepalive_interval,
            keepalive_count,
            no_delay,
            mark,
            device,
            source,
            fast_open,
            mptcp
        )
    }

    #[test]
    fn every_socket_option_has_its_key() {
        let keys: Vec<&str> = LEG.iter().map(|key| key.name).collect();
        for option in option_names(&SocketOptions::default()) {
            assert!(keys.contains(&option), "{option} has no key in [leg.NAME]");
        }
    }
}
