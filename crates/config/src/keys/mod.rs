//! The keys of the file. This module has those outside the larger tables; the order is that of the example file.

pub(crate) mod accounts;
pub(crate) mod forward;
pub(crate) mod gateway;
pub(crate) mod key;
pub(crate) mod leg;
pub(crate) mod management;
pub(crate) mod pac;
pub(crate) mod renamed;
pub(crate) mod resources;
pub(crate) mod sharing;
pub(crate) mod tls;
pub(crate) mod tunnel;
pub(crate) mod udp;
pub(crate) mod wireguard;
use super::draft::{Draft, RuleDraft, UpstreamDraft};
use super::value::{Word as _, access_log, movement};
use crate::keys::key::{Key, keys};
use crate::value::kind::{Kind, absolute_path};
use crate::value::pattern::shorten;
use crate::value::url;
use Entries::{Accounts, Forwards, Legs, Once, Routes, Rules, Upstreams};
use ekiden_model::units::{Bytes, Span};
use ekiden_proxy::settings::{DnsServer, Family, Route};
use ekiden_proxy::wire::dns::Nat64;

pub(super) const MS: Span = Span::from_millis(1);
pub(super) const SECOND: Span = Span::from_secs(1);
pub(super) const HOUR: Span = Span::from_secs(3600);
const PHASE: Kind = Kind::Span(Span::from_millis(10), HOUR.saturating_mul(24));

/// The name of a leg, or an empty text.
pub(super) fn some_name(text: &str) -> Result<(), String> {
    if text.is_empty() { Ok(()) } else { name(text) }
}

/// Checks the name of a leg, an upstream or a peer: 1 to 63 letters, digits, `-` and `_`.
/// Errors: A message for the operator.
pub fn name(text: &str) -> Result<(), String> {
    let fine = !text.is_empty()
        && text.len() <= 63
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    if fine {
        Ok(())
    } else {
        Err(format!("invalid name \"{}\": use 1 to 63 letters, digits, `-` and `_`", shorten(text)))
    }
}

/// A peer's name, or `*`.
fn peer(text: &str) -> Result<(), String> {
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
pub(super) static TOP: &[Key<Draft>] = keys! { Draft, |draft| draft.top;
    listen = listen: Kind::Sockets(None), None,
        "Addresses of the port that serves HTTP, CONNECT, SOCKS5 and SOCKS4a.",
        "An address beyond loopback needs a [[rule]] that names the clients, or accounts: open proxies are abused within hours.",
        "To serve other machines.";
    name = name: Kind::Text("a name", via_name), Some("auto"),
        "This relay's name in `Via`, which detects loops; a SOCKS5 upstream gets its hash among the methods of the greeting (`private_methods`). \"auto\": `ekiden-` and 8 random digits at each start.",
        "Two relays with the same name reject each other's requests.",
        "To recognize this relay in other logs.";
    control = control: Kind::Text("an absolute path or \"off\"", control), Some("auto"),
        "The local socket for `ekiden status` and `top`. \"auto\": ekiden.sock in $RUNTIME_DIRECTORY (set by systemd) or $XDG_RUNTIME_DIR, /run/ekiden/ekiden.sock as root, else a private directory under /tmp.",
        "\"off\": no status, no `top`.", "Several daemons of one user on one machine.";
};

pub(super) static UPSTREAM: &[Key<UpstreamDraft>] = keys! { UpstreamDraft, |upstream| upstream;
    url = url: Kind::Text("a URL such as \"http://user@host:3128\", \"https://host:443\", \"socks5://host:1080\" or \"tunnel://name\"", |_| Ok(())), Some(""),
        "The upstream proxy: `http://`, `https://` or `socks5://`, user and password if it asks, host, port. `https://` is an HTTP proxy within TLS. Or `tunnel://` and the name of a peer of `ekiden peer list`, which can only be the first of a chain. Needed.",
        "Anyone who can read the file can read a password here; see password_file. TLS copies and encrypts its bytes, and a connection within it counts as two (budgets.connections).", "-";
    leg = leg: Kind::Text("the name of a leg", name), None,
        "The leg profile of connections to it.", "None.", "Operators who tune the path to it.";
    password_file = password_file: Kind::Text("an absolute path", absolute_path), Some(""),
        "A file whose first line is the password, as an alternative to a password in `url`.",
        "None.", "To share the configuration, or keep it under version control.";
    ca = ca: Kind::Text("an absolute path", absolute_path), Some(""),
        "For `https://`: a PEM file with the certificates of the authorities to trust for this upstream. They replace the system's (Debian: ca-certificates).",
        "Whoever has an authority's key can impersonate the upstream.", "An upstream whose certificate comes from an authority of your own.";
    fingerprint = fingerprint: Kind::Text("\"sha256:\" and 64 hexadecimal digits", |text| url::fingerprint(text).map(|_| ())), Some(""),
        "For `https://`: the SHA-256 of the upstream's certificate. That certificate is taken, whatever its name, age and issuer, and no other. `openssl x509 -noout -fingerprint -sha256 -in FILE` prints it.",
        "A renewed certificate is refused until the fingerprint here is changed.", "An upstream with a self-signed certificate.";
    private_methods = private_methods: Kind::Switch, None,
        "For `socks5://`: whether the greeting names the relays that a request has passed, in nine methods each of the range for private use (RFC 1928 §3). A relay in a ring knows itself by them.",
        "false: a ring through this upstream is noticed late. One of two relays ends at the 65th request for one destination that waits, a longer one when time-outs or budgets end it.", "An upstream that takes a few methods only, and closes the connection where there are more.";
};

pub(super) static ROUTE: &[Key<Route>] = keys! { Route, |route| route;
    to = to: Kind::Patterns, None,
        "Destinations: names, `*.` names, prefixes, each with `:port` or `:from-to`, or a port alone; empty: all. Names are not resolved.",
        "None.", "-";
    through = through: Kind::Chains, None,
        "Chains of upstreams, nearest first, tried in order until one answers. \"direct\" uses no upstream.",
        "Each hop adds its round trips to connecting.", "-";
    leg = leg: Kind::Text("the name of a leg", name), None,
        "The leg profile of direct connections on this route.", "None.", "-";
    client_leg = client_leg: Kind::Text("the name of a leg", name), None,
        "The leg profile applied to the client's connection once the route is known.", "None.", "-";
};

pub(super) static RULE: &[Key<RuleDraft>] = keys! { RuleDraft, |rule| rule;
    from = from: Kind::Nets, None,
        "Clients of this rule. With `peers` empty too: all clients.", "None.", "-";
    peers = peers: Kind::Words("names of `ekiden peer list`, or \"*\" for all peers", peer), None,
        "Peers of this rule: connections that arrive through their tunnels. Without a rule, peers may reach everything except loopback, private and other special addresses, and this machine's own.",
        "None.", "To open your own network to a peer, or to restrict one.";
    to = to: Kind::Patterns, None,
        "Destinations of this rule, as for routes, but names are resolved. Empty: all.",
        "None.", "-";
    action = action: Kind::Choice(&["allow", "deny"]), None,
        "The action for matching connections. Required.", "None.", "-";
    allow_destinations = allow_destinations: Kind::Nets, None,
        "Loopback, private and link-local prefixes, and this machine's own addresses, that these clients may reach nevertheless.",
        "Clients reach services that trust this machine.", "-";
};

static ACCESS: &[Key<Draft>] = keys! { Draft, |draft| draft.access;
    allow_destinations = allow_destinations: Kind::Nets, None,
        "Loopback, private, link-local and other special prefixes, and this machine's own addresses, that every admitted client may reach.",
        "Services that trust this machine's address become open to every client.",
        "To proxy into your own network; list as few prefixes as possible.";
    proxy_protocol_from = proxy_protocol_from: Kind::Nets, None,
        "Proxies and balancers before this relay. Their connections must begin with a header of the PROXY protocol, version 1 or 2; the client in it counts for rules, accounts and logs. It applies to `listen` and [[forward]].",
        "Whoever connects from there may claim to be any client, this machine included.",
        "Behind HAProxy, nginx or another ekiden (`send_proxy`).";
};

static TIMEOUTS: &[Key<Draft>] = keys! { Draft, |draft| draft.timeouts;
    first_byte = first_byte: PHASE, None,
        "From accepting a connection to its first byte.",
        "A longer time holds descriptors for silent clients.", "Clients that connect in advance: longer.";
    request_head = request_head: PHASE, None,
        "From the first byte of a request to the end of its head.",
        "A longer time helps slow-loris attacks.", "Links of a few kbit/s: longer.";
    keep_alive = keep_alive: PHASE, None,
        "Between two requests on a client's connection.",
        "A longer time holds descriptors; a shorter one costs clients a new connection.", "A busy proxy short of descriptors: shorter.";
    resolve = resolve: PHASE, None,
        "Resolving a name.", "Clients wait this long for names that do not resolve.", "Behind a satellite: longer.";
    handshake = handshake: PHASE, None,
        "Waiting for each upstream proxy's answer, hop by hop.",
        "A longer time delays failover.", "Chains over slow links: longer.";
    response = response: PHASE, None,
        "From the end of a request to the head of its response.",
        "A longer time holds connections to dead servers.", "Servers that compute for minutes before they answer: longer.";
    stop = stop: Kind::Span(Span::ZERO, HOUR.saturating_mul(24)), None,
        "How long a graceful stop waits for live connections.",
        "A restart takes up to this long.", "With systemd keep it below TimeoutStopSec (90 s).";
};

static BUDGETS: &[Key<Draft>] = keys! { Draft, |draft| draft.budgets;
    connections = connections: Kind::Number(1, 10_000_000), None,
        "Simultaneous connections: a client's connection with its outbound one counts once, each pooled connection once. At the limit, the longest idle connection is evicted for a new one. The descriptor limit bounds this too.",
        "Two descriptors and kernel socket memory each.", "Large sites, together with the descriptor limit.";
    head = head: Kind::Size(Bytes::kib(1), Bytes::mib(16)), None,
        "Maximum size of a request or response head.", "Memory that an unknown client can use.",
        "Sites with huge cookies.";
    fields = fields: Kind::Number(1, 10_000), None,
        "Maximum number of header fields in one head.", "Parsing time.", "Rarely needed.";
    pipes = pipes: Kind::Number(1, 1_000_000), None,
        "Maximum number of open splice pipes; further connections copy bytes. A 16th of the descriptor limit at most.",
        "Two descriptors each, and up to pipe_size of kernel memory.", "Many bulk transfers at once.";
    pipe_size = pipe_size: Kind::Size(Bytes::kib(4), Bytes::mib(64)), None,
        "Size of each pipe; beyond /proc/sys/fs/pipe-max-size only when privileged.",
        "Kernel memory; counts against /proc/sys/fs/pipe-user-pages-soft.", "Very fast links.";
    memory = memory: Kind::Size(Bytes::mib(1), Bytes::mib(1 << 20)), None,
        "User-space memory for buffered bytes, all connections together. Those of one address have half of what is free, those of a peer eight ninths.",
        "At the limit, bytes wait in the kernel's buffers at the cost of an extra system call.", "Machines with very little or very much memory.";
    sessions = sessions: Kind::Size(Bytes::mib(1), Bytes::mib(1 << 20)), None,
        "User-space memory for unfinished and served heads, TLS sessions and HTTP/2, all connections together. TLS and HTTP/2 count with the most that they can hold: 64 KiB a TLS session, 80 KiB a stream.",
        "At the limit, the largest unfinished connections of the address that holds the most are closed. Where none is left, new ones get 503 or are closed.",
        "Machines with very little memory, or with thousands of TLS clients.";
};

/// A DNS server, and how it is asked.
fn dns_server(text: &str) -> Result<(), String> {
    text.parse::<DnsServer>().map(|_| ())
}

/// A prefix of a length that RFC 6052 allows.
fn translator(text: &str) -> Result<(), String> {
    let wrong = || {
        let shown = shorten(text);
        format!(
            "\"{shown}\" is not the prefix of a translator: 32, 40, 48, 56, 64 or 96 bits of IPv6, such as 64:ff9b::/96"
        )
    };
    let prefix = text.parse().map_err(|_| wrong())?;
    Nat64::new(prefix).map(|_| ()).ok_or_else(wrong)
}

static DNS: &[Key<Draft>] = keys! { Draft, |draft| draft.dns;
    listen = listen: Kind::Sockets(Some(53)), None,
        "Addresses at which clients may ask this relay for names, over UDP and TCP. It answers clients that a [[rule]] admits by `from`, those of accounts by their address, and this machine; no others.",
        "`memory`, and one question's work for each. Ports below 1024 need CAP_NET_BIND_SERVICE, which the service has.", "On the clients' router: its address there.";
    servers = servers: Kind::Words("addresses of DNS servers, each with :port if not 53; \"tls://192.0.2.1#name\" within TLS, the name in the certificate after `#`; \"https://192.0.2.1/dns-query#name\" over HTTPS; \"tunnel://PEER\" for the peer's own, \"tunnel://PEER/192.0.2.1\" for one beyond it", dns_server), None,
        "DNS servers, in order; empty: those of /etc/resolv.conf. A peer is asked through the tunnel to it, and never asks back.", "They see every name.", "To use a nearer server, to hide names from the network, or to lose none of them on it.";
    ca = authorities: Kind::Text("an absolute path", absolute_path), Some(""),
        "For `tls://` and `https://`: a PEM file with the certificates of the authorities to trust. They replace the system's (Debian: ca-certificates).",
        "Whoever has an authority's key can impersonate the servers.", "Servers whose certificate comes from an authority of your own.";
    cache = cache: Kind::Number(1, 10_000_000), None,
        "Maximum number of cached answers for this relay's own connections.", "About 1 KiB each.", "Large sites.";
    memory = memory: Kind::Size(Bytes::kib(64), Bytes::mib(4096)), None,
        "Memory for the answers to clients of `listen`. The least recently used make room.", "Such memory.", "Thousands of clients: more.";
    min_ttl = min_ttl: Kind::Span(Span::ZERO, HOUR.saturating_mul(24)), None,
        "Minimum time an answer is cached.", "A longer time keeps using withdrawn addresses.",
        "Far from every name server: \"1 min\".";
    max_ttl = max_ttl: Kind::Span(SECOND, HOUR.saturating_mul(24 * 7)), None,
        "Maximum time an answer is cached.", "As min_ttl.", "Rarely needed.";
    negative_ttl = negative_ttl: Kind::Span(Span::ZERO, HOUR.saturating_mul(24)), None,
        "Maximum time a \"no such name\" answer is cached.", "A new name is not found until then.", "Rarely needed.";
    stale = stale: Kind::Span(Span::ZERO, HOUR.saturating_mul(24 * 7)), None,
        "How long past its end a client's answer is served while no server answers (RFC 8767). \"0 s\": not at all.",
        "Addresses that may have been withdrawn meanwhile.", "Links that fail for days: longer.";
    rate = rate: Kind::Number(1, 1_000_000), None,
        "Questions a second of one client, or of one /64 of IPv6. Two seconds' worth may come at once; more are dropped. Names of its destinations that are not kept have a rate of their own, five times that, with ten seconds' worth at once.",
        "A higher rate lets one client keep the others waiting.", "Clients behind a router of their own: more.";
    nat64 = nat64: Kind::Text("a prefix of IPv6", translator), Some("off"),
        "The prefix of a NAT64 translator such as \"64:ff9b::/96\". Names without IPv6 are then answered to clients with addresses in it (RFC 6147).",
        "Connections to them fail without the translator, which is another program (Debian: jool, tayga).", "Networks whose clients have IPv6 alone.";
    hosts_file = hosts_file: Kind::Switch, None,
        "Whether /etc/hosts is read.", "None.", "Rarely needed.";
    prefer = prefer: Kind::Choice(Family::WORDS), None,
        "The address family to try first (RFC 8305 section 4), or the only one.",
        "If the first family is broken, each connection loses attempt_delay; where no other may be opened, a quarter of connect_timeout.", "If one of the two families is slow or broken.";
    attempt_delay = attempt_delay: Kind::Span(Span::from_millis(100), Span::from_secs(2)), None,
        "Between two connection attempts (RFC 8305 section 8).",
        "A shorter delay opens connections that are then discarded.", "Satellites, where a round trip takes that long: longer.";
    resolution_delay = resolution_delay: Kind::Span(Span::ZERO, Span::from_secs(2)), None,
        "How long an IPv4 answer waits for the IPv6 one (RFC 8305 section 3). After three names without one, one name of sixteen waits.",
        "Delays the first connection to names without IPv6 behind slow servers.", "Rarely needed.";
};

static RELAY: &[Key<Draft>] = keys! { Draft, |draft| draft.relay;
    movement = movement: Kind::Text("one of auto, splice, copy", |text| movement(text).map(|_| ())), None,
        "How bytes are relayed. \"auto\" copies at first and splices a direction that moves much at a time. \"splice\" and \"copy\" force one. \"random:SEED\" switches at random, for tests.",
        "splice takes two descriptors per busy direction; copy more CPU.", "Rarely needed.";
};

static LOG: &[Key<Draft>] = keys! { Draft, |draft| draft.log;
    level = level: Kind::Choice(&["error", "warn", "info", "debug", "trace"]), None,
        "error: action needed. warn: degraded, or rejected by configuration. info: decisions at start, reload and stop. debug: one or two lines per connection. trace: more. EKIDEN_LOG overrides it.",
        "debug and trace cost noticeable time on a busy relay.", "To diagnose a problem.";
    format = format: Kind::Choice(&["text", "json"]), None,
        "Text lines, or one JSON object per line; to standard error.", "None.", "To collect logs by machine.";
    access = access: Kind::Text("\"off\", \"stderr\" or an absolute path", |text| access_log(text).map(|_| ())), None,
        "The access log: one JSON object per request or tunnel. Ekiden appends to the file and reopens it on SIGHUP.",
        "It records which client visited what.", "Sites that must account for use.";
};

/// How often a table may stand, and its keys where they are those of the [`Draft`].
pub(super) enum Entries {
    Once(&'static [Key<Draft>]),
    Legs,
    Upstreams,
    Routes,
    Rules,
    Forwards,
    Accounts,
}

/// A table of the file.
pub(super) struct Table {
    pub name: &'static str,
    pub entries: Entries,
    /// Title and introduction in the example file; without them it continues the table before it.
    pub about: Option<(&'static str, &'static str)>,
}

/// Every table, in the order of the example file.
#[rustfmt::skip] // a line each
pub(super) static TABLES: &[Table] = &[
    Table { name: "leg", entries: Legs, about: Some(("Legs", "A leg is one TCP connection of a path, tuned by a profile. `client` applies to connections from clients, `direct` to connections to destinations. Add profiles under other names for upstreams and routes. \"kernel\" leaves an option to the kernel. `ekiden status --json` shows which options the kernel granted.")) },
    Table { name: "upstream", entries: Upstreams, about: Some(("Upstream proxies", "Other ekidens, squid, dante: any proxy with HTTP CONNECT or SOCKS5, and peers at the other end of a tunnel. Routes refer to them by name.")) },
    Table { name: "route", entries: Routes, about: Some(("Routes", "The path to each destination. The first matching route decides. Without routes: direct.")) },
    Table { name: "rule", entries: Rules, about: Some(("Access", "Which clients may reach which destinations. The first matching rule decides. Without a match, clients on loopback are allowed and all others rejected. To listen beyond loopback, at least one rule must name its clients.")) },
    Table { name: "access", entries: Once(ACCESS), about: None },
    Table { name: "accounts", entries: Once(accounts::ACCOUNTS), about: Some(("Accounts", "Accounts in a database: `ekiden account add` adds one, `ekiden account list` lists them, and a running daemon notices. With accounts, ekiden may listen on a public address without a [[rule]].")) },
    Table { name: "timeouts", entries: Once(TIMEOUTS), about: Some(("Time-outs", "Time limits of each phase; those of a leg are in its profile.")) },
    Table { name: "budgets", entries: Once(BUDGETS), about: Some(("Budgets", "Limits of connections and memory.")) },
    Table { name: "dns", entries: Once(DNS), about: Some(("Names", "Name resolution, for this relay and for clients that ask it, and the choice among addresses. docs/book/src/operate/dns.md tells of answers to clients.")) },
    Table { name: "relay", entries: Once(RELAY), about: Some(("Relaying", "How bytes move between two legs.")) },
    Table { name: "buffers", entries: Once(resources::BUFFERS), about: Some(("Buffers", "Socket buffers of all connections. `ekiden status` shows the memory granted, `ekiden explain CONNECTION` the reasons. A leg's own send_buffer and receive_buffer take precedence.")) },
    Table { name: "pressure", entries: Once(resources::PRESSURE), about: Some(("Pressure", "Overload of connections, descriptors, memory or ports. First idle connections are evicted, longest idle first. Then new connections wait in turn. Then they are rejected with Retry-After.")) },
    Table { name: "pool", entries: Once(resources::POOL), about: Some(("Pool", "Idle connections to origins and HTTP proxies, kept for reuse.")) },
    Table { name: "cache", entries: Once(resources::CACHE), about: Some(("Cache", "Responses to plain http:// requests, cached for all clients. Off unless it has memory: most of the web is encrypted and cannot be cached.")) },
    Table { name: "tls", entries: Once(tls::TLS), about: Some(("TLS", "With a certificate, clients may use TLS on the same port; browsers and curl call that an HTTPS proxy. Passwords are then encrypted.")) },
    Table { name: "acme", entries: Once(tls::ACME), about: Some(("Certificates", "In place of [tls]: a certificate from an authority such as Let's Encrypt, ordered and renewed by this relay (RFC 8555). Port 443 of its names must lead here. `ekiden status` shows when it ends and is renewed, and the last failure. SIGHUP repeats a failed order.")) },
    Table { name: "tunnel", entries: Once(tunnel::TUNNEL), about: Some(("Tunnels", "Tunnels to another ekiden over UDP. They hold their rate despite loss, and send interactive data first. One relay invites (`ekiden peer invite`), the other joins (`ekiden peer join TOKEN`). An upstream with url = \"tunnel://NAME\" then uses the tunnel. Changes here need a restart, except for `answer` and invitations.")) },
    Table { name: "udp", entries: Once(udp::UDP), about: Some(("Datagrams", "UDP ASSOCIATE of SOCKS5, and UDP over HTTP (CONNECT-UDP, RFC 9298): datagrams of one client to destinations that its rules allow, directly or through tunnels. Upstream proxies do not carry them.")) },
    Table { name: "forward", entries: Forwards, about: Some(("Forwarded ports", "For programs that speak no proxy, such as remote desktops: a port here leads to one destination, by its route and through tunnels.")) },
    Table { name: "gateway", entries: Once(gateway::GATEWAY), about: Some(("Gateway", "Connections of every device behind this machine, with nothing configured there: TCP that arrives on `devices` and is to be forwarded is relayed instead. Rules, routes and accounts apply to it by the client's address. When this relay ends, connections pass by. docs/book/src/guides/gateway.md shows it step by step; `ekiden gateway show` prints the rules of nftables.")) },
    Table { name: "wireguard", entries: Once(wireguard::WIREGUARD), about: Some(("WireGuard", "For telephones far from home: WireGuard's own app scans what `ekiden account add NAME --wireguard` prints. Its TCP is relayed as that of a device of [gateway], and the kernel forwards the rest. Rules and the limits of accounts hold for all of it. Needs /dev/net/tun, nft and CAP_NET_ADMIN. docs/book/src/operate/wireguard.md shows it step by step.")) },
    Table { name: "pac", entries: Once(pac::PAC), about: Some(("Browsers", "A page for users at http://RELAY:3128/, and a script that tells browsers to use this relay, at http://RELAY:3128/proxy.pac and /wpad.dat, wherever clients reach `listen`. A network that hands out the first by DHCP (option 252), or has a relay named `wpad` on port 80, configures its browsers by itself.")) },
    Table { name: "management", entries: Once(management::MANAGEMENT), about: Some(("Management", "Metrics, health and an API, for programs on this machine. docs/book/src/reference/ describes the API (openapi.json) and the metrics (metrics.md).")) },
    Table { name: "alerts", entries: Once(management::ALERTS), about: Some(("Alerts", "Messages when something needs attention. A tunnel is down, a quota is nearly or all used, or a certificate is near its end. Or the accounts' database is away, the disk is full, or something cannot be saved. `ekiden alerts test` sends one for trial. `ekiden status` and the dashboard show alerts without any of this.")) },
    Table { name: "traces", entries: Once(management::TRACES), about: Some(("Traces", "Where the time of single requests and tunnels went: name, connect, first byte, transfer. They go to an OpenTelemetry collector, and are off unless it is named. A collector that is away holds nothing back.")) },
    Table { name: "sharing", entries: Once(sharing::SHARING), about: Some(("Sharing", "Accounts in this file, and how they share the relay. Rates and quotas count HTTP messages with their heads, what CONNECT, SOCKS, tunnels and datagrams carry, and TLS and HTTP/2 around them, spliced and cached bytes included. A reload changes the limits of live connections. `ekiden status` shows each account's use, `ekiden explain CONNECTION` what one waits for.")) },
    Table { name: "account", entries: Accounts, about: None },
    Table { name: "log", entries: Once(LOG), about: Some(("Logs", "To standard error. Logs never contain passwords.")) },
];

/// The default route.
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
    use crate::keys::leg::LEG;
    use ekiden_linux::sockets::options::SocketOptions;

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
            notsent_lowat,
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
