//! Ways through the relays: what clients speak, and where it goes.

use crate::faults::Link;
use serde::Serialize;
use std::time::Duration;

/// Bytes a second that slow readers take: 64 kbit/s.
pub(crate) const SLOW: u64 = 8_000;
/// Of a stream that is read slowly, the most that waits in relays and kernels.
const WAITS: u64 = 1_200_000;

/// What a client speaks to the near relay. Each has an account of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Door {
    /// Requests in absolute form, with bodies both ways.
    Forward,
    /// HTTP/1.1 CONNECT.
    Connect,
    /// SOCKS5.
    Socks,
    /// CONNECT within TLS.
    Tls,
    /// Streams of CONNECT within HTTP/2 over TLS.
    Http2,
    /// UDP ASSOCIATE.
    Datagrams,
    /// Requests for objects that may be cached.
    Cache,
    /// A forwarded port, from a proxy that names its client by a PROXY header.
    PortForward,
    /// Questions for names.
    Names,
    /// UDP over HTTP, in the clear and within TLS.
    UdpOverHttp,
    /// Requests for objects that change while the cache keeps copies.
    Changing,
    /// Downloads that are read slowly, through each of the doors for streams.
    Slow,
    /// Requests behind each other, with trailers and interim answers.
    Messages,
    /// Log-ins with wrong passwords, of which nothing may count.
    Guesses,
    /// CONNECT of an account whose quota is used up in the run.
    Quota,
}

/// New ones come last, so that a seed draws for the others what it did.
pub(crate) const DOORS: [Door; 15] = [
    Door::Forward,
    Door::Connect,
    Door::Socks,
    Door::Tls,
    Door::Http2,
    Door::Datagrams,
    Door::Cache,
    Door::PortForward,
    Door::Names,
    Door::UdpOverHttp,
    Door::Changing,
    Door::Slow,
    Door::Messages,
    Door::Guesses,
    Door::Quota,
];

impl Door {
    /// Its account's name, and its user's.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Connect => "connect",
            Self::Socks => "socks",
            Self::Tls => "tls",
            Self::Http2 => "http2",
            Self::Datagrams => "datagrams",
            Self::Cache => "cache",
            Self::PortForward => "port-forward",
            Self::Names => "names",
            Self::UdpOverHttp => "udp-over-http",
            Self::Changing => "changing",
            Self::Slow => "slow",
            Self::Messages => "messages",
            Self::Guesses => "guesses",
            Self::Quota => "quota",
        }
    }

    /// Whether some of its clients may come over IPv6. The others have an address of version 4 in what they say.
    pub(crate) const fn speaks_v6(self) -> bool {
        matches!(
            self,
            Self::Forward
                | Self::Cache
                | Self::Changing
                | Self::Messages
                | Self::Connect
                | Self::Tls
                | Self::Http2
                | Self::Slow
        )
    }

    /// How long its clients read what waits for them after all else has ended.
    pub(crate) const fn drains(self) -> Duration {
        match self {
            Self::Slow => Duration::from_secs(WAITS / SLOW),
            _ => Duration::ZERO,
        }
    }

    /// Whether its clients take this leg. The relay asks its name server directly, sends no datagrams to upstream
    /// proxies, and lets wrong log-ins go nowhere.
    pub(crate) const fn takes(self, leg: Leg) -> bool {
        match self {
            Self::Names | Self::Guesses => matches!(leg, Leg::Direct),
            Self::Datagrams | Self::UdpOverHttp => !matches!(leg, Leg::Upstream),
            _ => true,
        }
    }
}

/// The way from the near relay to the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Leg {
    /// Without another relay.
    Direct,
    /// Through the tunnel and the far relay.
    Tunnel,
    /// Through the far relay as an upstream proxy: HTTP, SOCKS5, or HTTP within TLS.
    Upstream,
}

pub(crate) const LEGS: [Leg; 3] = [Leg::Direct, Leg::Tunnel, Leg::Upstream];

impl Leg {
    /// In names and in the summary.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Tunnel => "tunnel",
            Self::Upstream => "upstream",
        }
    }

    /// The domains whose names lead over it.
    pub(crate) const fn domains(self) -> &'static [&'static str] {
        match self {
            Self::Direct => &["direct.test"],
            Self::Tunnel => &["tunnel.test"],
            Self::Upstream => &["http.upstream.test", "socks.upstream.test", "tls.upstream.test"],
        }
    }

    /// One of them.
    pub(crate) const fn domain(self, n: u64) -> &'static str {
        let domains = self.domains();
        domains[(n % domains.len() as u64) as usize]
    }

    /// Whether its bytes pass this link.
    pub(super) const fn crosses(self, link: Link) -> bool {
        match link {
            Link::Clients => true,
            Link::Direct => matches!(self, Self::Direct),
            Link::Tunnel | Link::Far => !matches!(self, Self::Direct),
        }
    }
}
