//! Keys of what may be taken: `[buffers]`, `[pressure]`, `[pool]`, `[cache]`.

use super::key::{Key, keys};
use super::keys::{HOUR, MS};
use super::kind::{Kind, absolute_path};
use super::value::{EXCESSES, SCHEMES};
use ekiden_model::units::{Bytes, Share, Span};
use ekiden_proxy::settings::{Buffers, Cache, Pool, Pressure};

const GIB: u64 = 1 << 10;

/// `[buffers]`.
pub(super) static BUFFERS: &[Key<Buffers>] = keys! { Buffers;
    budget = budget: Kind::Size(Bytes::mib(1), Bytes::mib(64 * GIB)), Some("none"),
        "What the send and receive buffers of all connections together may have, as the kernel counts (rb and tb of `ss -tm`). \"none\": the kernel tunes each buffer. With a budget that its tuning could exceed, every buffer has what an equation of loss and round-trip time says it can use, out of the budget.",
        "With a budget long paths without loss reach what the equation allows, which is less than CUBIC or BBR could.",
        "Machines with thousands of transfers and little memory.";
    scheme = scheme: Kind::Choice(SCHEMES), None,
        "What is managed, each word adding to the one before (the study's schemes 1 to 4): \"fixed\", every buffer of `initial`; \"equation\", buffers by need out of the budget; \"evict\", the longest idle connection closed for a newcomer; \"shrink\", idle connections' buffers halved each second.",
        "\"fixed\" and \"equation\" let newcomers wait while idle connections are held.", "Whoever compares them.";
    excess = excess: Kind::Choice(EXCESSES), None,
        "How what is left after small needs are met is divided among large ones: in proportion to need, or equally.",
        "\"proportional\": one that asks a little more than the fair share may get less than one that asks a little less.", "Rarely anybody.";
    initial = initial: Kind::Size(Bytes::kib(8), Bytes::mib(64)), None,
        "What a buffer has before its need is known, and every buffer of scheme \"fixed\".",
        "Larger takes from others what may not be used; smaller slows the first round trips.", "Rarely anybody.";
    floor = floor: Kind::Number(1, 1_000), None,
        "No buffer is smaller than so many segments, except idle ones.",
        "Larger leaves less to share.", "Rarely anybody.";
    ceiling = ceiling: Kind::Size(Bytes::kib(64), Bytes::mib(2 * GIB - 2)), None,
        "No buffer is made larger. Where the kernel's own tuning ends (tcp_wmem, tcp_rmem) and stands in a transfer's way, a buffer is doubled up to this; beyond wmem_max and rmem_max that needs CAP_NET_ADMIN.",
        "Kernel memory on paths that fill it.", "Links above 200 Mbit/s × 600 ms: twice rate × round-trip time.";
    tick = tick: Kind::Span(Span::from_millis(100), Span::from_secs(60)), None,
        "Between two divisions of the budget.", "Shorter follows the paths closer, at more system calls.", "Rarely anybody.";
};

/// `[pressure]`.
pub(super) static PRESSURE: &[Key<Pressure>] = keys! { Pressure;
    high = high: Kind::Share(Share::NONE, Share::ALL), None,
        "Above this share of descriptors, TCP memory (tcp_mem), the control group's memory or local ports, idle connections are closed, the longest idle first. Connections (budgets.connections) are counted one by one and need no slack.",
        "Lower closes connections that could have stayed.", "Rarely anybody.";
    low = low: Kind::Share(Share::NONE, Share::ALL), None,
        "Until no more than this share is in use.", "As high.", "Rarely anybody.";
    waiting = waiting: Kind::Number(0, 1_000_000), None,
        "The most newcomers that wait when every connection is at work; more are told at once to come again (503 with Retry-After, or SOCKS's error).",
        "A descriptor each.", "Large sites.";
    patience = patience: Kind::Span(Span::from_millis(10), HOUR), None,
        "How long a newcomer waits before it is told to come again.",
        "Longer than clients' own patience, and they are gone when their turn comes.", "Clients with less, or more, patience.";
    silent_tunnel = silent_tunnel: Kind::Span(MS, HOUR.saturating_mul(24 * 30)), Some("never"),
        "A CONNECT or SOCKS tunnel on which nothing moved for so long may be closed for a newcomer. \"never\": tunnels are not closed for others.",
        "A terminal that was left alone is cut off when it is busy.", "Busy sites whose tunnels are browsers': \"2 min\".";
};

/// `[pool]`.
pub(super) static POOL: &[Key<Pool>] = keys! { Pool;
    connections = connections: Kind::Number(0, 1_000_000), None,
        "The most connections to origins and HTTP proxies that are kept for the next request, of any client that may go there; each counts against budgets.connections. 0 keeps none.",
        "A descriptor each, here and at the server.", "Large sites.";
    per_destination = per_destination: Kind::Number(1, 1_000_000), None,
        "Of those, to one destination by one way.", "As connections.", "Sites in front of few servers: more.";
    idle = idle: Kind::Span(MS, HOUR), None,
        "How long one is kept.", "Longer than the server's own patience, and requests meet closed connections.", "Servers known to keep theirs longer.";
};

/// `[cache]`.
pub(super) static CACHE: &[Key<Cache>] = keys! { Cache;
    memory = memory: Kind::Size(Bytes::mib(1), Bytes::mib(64 * GIB)), Some("off"),
        "What the HTTP cache (RFC 9111, shared by all clients) keeps in memory. It sees plain http:// requests alone; those with Authorization, Cookie or Range pass it by, and responses with Set-Cookie are not kept. Answers say `Cache-Status`. Taken at the start.",
        "That memory, and what clients read without encryption stays here for a while.",
        "Sites that fetch the same plain HTTP again and again: package mirrors, updates.";
    disk = disk: Kind::Size(Bytes::mib(64), Bytes::mib(1024 * GIB)), Some("none"),
        "What it keeps on disk beside, over restarts too. Taken at the start.",
        "That much of the disk, in `directory`.", "Slow links, large packages.";
    directory = directory: Kind::Text("an absolute path", absolute_path), Some("none"),
        "Where on disk: a folder of its own, which is made.",
        "Whoever can read it reads what was fetched.", "Whoever sets `disk`.";
    largest = largest: Kind::Size(Bytes::kib(1), Bytes::mib(GIB)), None,
        "The largest body that is kept. A body on its way into the cache also counts against budgets.memory, and is not kept where that is used up.",
        "Few large bodies push out many small ones.", "Package mirrors: \"64 MiB\", with a larger budgets.memory.";
};
