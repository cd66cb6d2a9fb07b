//! Keys of what may be taken: `[buffers]`, `[pressure]`, `[pool]`, `[cache]`.

use super::key::{Key, keys};
use crate::draft::Draft;
use crate::keys::{HOUR, MS};
use crate::value::Word as _;
use crate::value::kind::{Kind, absolute_path};
use ekiden_model::resources::buffers::{Excess, Scheme};
use ekiden_model::units::{Bytes, Share, Span};

const GIB: u64 = 1 << 10;

pub(super) static BUFFERS: &[Key<Draft>] = keys! { Draft, |draft| draft.buffers;
    budget = budget: Kind::Size(Bytes::mib(1), Bytes::mib(64 * GIB)), Some("none"),
        "Memory for the socket buffers of all connections, as the kernel counts it (rb and tb of `ss -tm`). \"none\": the kernel tunes each buffer. With a budget that tuning could exceed, each buffer gets what an equation of loss and round-trip time allows.",
        "With a budget, long paths without loss reach less than CUBIC or BBR could.",
        "Machines with thousands of transfers and little memory.";
    scheme = scheme: Kind::Choice(Scheme::WORDS), None,
        "The management scheme; each adds to the one before (schemes 1 to 4 of the study). \"fixed\": every buffer is `initial`. \"equation\": buffers by need, out of the budget. \"evict\": the longest idle connection is evicted for a new one. \"shrink\": buffers of idle connections are halved each second.",
        "With \"fixed\" and \"equation\", new connections wait while idle ones are held.", "To compare the schemes.";
    excess = excess: Kind::Choice(Excess::WORDS), None,
        "Division of the rest among large needs after small needs are met: in proportion to need, or equally.",
        "\"proportional\": a need slightly above the fair share may get less than one slightly below.", "Rarely needed.";
    initial = initial: Kind::Size(Bytes::kib(8), Bytes::mib(64)), None,
        "Size of a buffer before its need is known, and of every buffer with scheme \"fixed\".",
        "A larger size may waste memory; a smaller one slows the first round trips.", "Rarely needed.";
    floor = floor: Kind::Number(1, 1_000), None,
        "Minimum size of a buffer in segments, except idle ones.",
        "A larger minimum leaves less to share.", "Rarely needed.";
    ceiling = ceiling: Kind::Size(Bytes::kib(64), Bytes::mib(2 * GIB - 2)), None,
        "Maximum size of a buffer. If the limit of the kernel's tuning (tcp_wmem, tcp_rmem) slows a transfer, its buffer is doubled up to this. Beyond wmem_max and rmem_max that needs CAP_NET_ADMIN.",
        "Kernel memory on paths that fill it.", "Links above 200 Mbit/s × 600 ms: twice rate × round-trip time.";
    tick = tick: Kind::Span(Span::from_millis(100), Span::from_secs(60)), None,
        "Interval between divisions of the budget.", "A shorter interval follows the paths closer, with more system calls.", "Rarely needed.";
};

pub(super) static PRESSURE: &[Key<Draft>] = keys! { Draft, |draft| draft.pressure;
    high = high: Kind::Share(Share::NONE, Share::ALL), None,
        "Share of descriptors, TCP memory (tcp_mem), control-group memory or local ports above which idle connections are evicted, longest idle first. Connections (budgets.connections) are counted exactly and need no slack.",
        "A lower share evicts connections that could have stayed.", "Rarely needed.";
    low = low: Kind::Share(Share::NONE, Share::ALL), None,
        "Eviction continues down to this share.", "As high.", "Rarely needed.";
    waiting = waiting: Kind::Number(0, 1_000_000), None,
        "Maximum number of new connections that wait while all others are busy. More are rejected (503 with Retry-After, or a SOCKS error).",
        "A descriptor each.", "Large sites.";
    patience = patience: Kind::Span(Span::from_millis(10), HOUR), None,
        "Maximum waiting time before a new connection is rejected with Retry-After.",
        "If longer than the clients' own time-out, they are gone when their turn comes.", "Clients with other time-outs.";
    silent_tunnel = silent_tunnel: Kind::Span(MS, HOUR.saturating_mul(24 * 30)), Some("never"),
        "Idle time after which a CONNECT or SOCKS tunnel may be evicted for a new connection. \"never\": tunnels are not evicted.",
        "Idle terminal sessions are cut when the relay is busy.", "Busy sites with mostly browser tunnels: \"2 min\".";
    accounts = accounts: Kind::Share(Share::NONE, Share::ALL), None,
        "Share of budgets.connections, and of udp.associations, that is kept for accounts, where there are accounts. It serves connections that have logged in. It also serves new ones from an address (IPv4) or /64 (IPv6) from which an account logged in within a day. Of associations, it serves those of accounts and of peers.",
        "Clients without an account have fewer connections. All of them: nobody can log in from a new address.", "Few accounts: less. Relays under attack: more.";
};

pub(super) static POOL: &[Key<Draft>] = keys! { Draft, |draft| draft.pool;
    connections = connections: Kind::Number(0, 1_000_000), None,
        "Maximum number of idle connections to origins and HTTP proxies kept for reuse by any permitted client. Each counts against budgets.connections. 0 keeps none.",
        "A descriptor each, here and at the server.", "Large sites.";
    per_destination = per_destination: Kind::Number(1, 1_000_000), None,
        "The same per destination and route.", "As connections.", "Sites in front of few servers: more.";
    idle = idle: Kind::Span(MS, HOUR), None,
        "Maximum idle time of a pooled connection.", "If longer than the server's own time-out, requests meet closed connections.", "Servers with longer time-outs.";
};

pub(super) static CACHE: &[Key<Draft>] = keys! { Draft, |draft| draft.cache;
    memory = memory: Kind::Size(Bytes::mib(1), Bytes::mib(64 * GIB)), Some("off"),
        "Memory of the HTTP cache (RFC 9111, shared by all clients). It caches only plain http:// responses, none with Set-Cookie, and none to requests with Authorization, Cookie or Range. Answers carry `Cache-Status`. With `disk`, its buffers are a part of it: three, each of a sixteenth, or of `largest` + 1 MiB where that is more. Reserved at start.",
        "The memory itself. Unencrypted content of clients stays on this machine for a while.",
        "Sites that fetch the same plain HTTP repeatedly: package mirrors, updates.";
    disk = disk: Kind::Size(Bytes::mib(64), Bytes::mib(1024 * GIB)), Some("none"),
        "Disk space of the cache, which survives restarts. Reserved at start.",
        "That much disk space in `directory`.", "Slow links, large packages.";
    directory = directory: Kind::Text("an absolute path", absolute_path), Some("none"),
        "The cache's own directory; ekiden creates it.",
        "Its readers see the cached content.", "Together with `disk`.";
    largest = largest: Kind::Size(Bytes::kib(1), Bytes::mib(GIB)), None,
        "Maximum size of a cached body. While it is received, a body counts in budgets.memory, of which one address has half at most, and is not cached if that is exhausted. A read of the disk takes twice this of budgets.memory.",
        "Few large bodies evict many small ones.", "Package mirrors: \"64 MiB\", with a larger budgets.memory.";
};
