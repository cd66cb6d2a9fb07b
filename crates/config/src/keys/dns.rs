//! Keys of name resolution: `[dns]`.

use super::key::{Key, keys};
use super::{HOUR, SECOND};
use crate::draft::Draft;
use crate::value::Word as _;
use crate::value::kind::{Kind, absolute_path};
use ekiden_model::units::{Bytes, Span};
use ekiden_proxy::settings::{DnsServer, Family};

fn server(text: &str) -> Result<(), String> {
    text.parse::<DnsServer>().map(|_| ())
}

/// A prefix of a length that RFC 6052 allows.
fn translator(text: &str) -> Result<(), String> {
    let wrong = || {
        let shown = crate::value::pattern::shorten(text);
        format!("\"{shown}\" is not the prefix of a translator: 32, 40, 48, 56, 64 or 96 bits of IPv6, such as 64:ff9b::/96")
    };
    let prefix = text.parse().map_err(|_| wrong())?;
    ekiden_proxy::wire::dns::Nat64::new(prefix).map(|_| ()).ok_or_else(wrong)
}

pub(super) static DNS: &[Key<Draft>] = keys! { Draft, |draft| draft.dns;
    listen = listen: Kind::Sockets(Some(53)), None,
        "Addresses at which clients may ask this relay for names, over UDP and TCP. It answers clients that a [[rule]] admits by `from`, those of accounts by their address, and this machine; no others.",
        "`memory`, and one question's work for each. Ports below 1024 need CAP_NET_BIND_SERVICE, which the service has.", "On the clients' router: its address there.";
    servers = servers: Kind::Words("addresses of DNS servers, each with :port if not 53; \"tls://192.0.2.1#name\" within TLS, the name in the certificate after `#`; \"tunnel://PEER\" for the peer's own, \"tunnel://PEER/192.0.2.1\" for one beyond it", server), None,
        "DNS servers, in order; empty: those of /etc/resolv.conf. A peer is asked through the tunnel to it, and never asks back.", "They see every name.", "To use a nearer server, to hide names from the network, or to lose none of them on it.";
    ca = authorities: Kind::Text("an absolute path", absolute_path), Some(""),
        "For `tls://`: a PEM file with the certificates of the authorities to trust. They replace the system's (Debian: ca-certificates).",
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
        "Questions a second of one client, or of one /64 of IPv6. Two seconds' worth may come at once; more are dropped.",
        "A higher rate lets one client keep the others waiting.", "Clients behind a router of their own: more.";
    nat64 = nat64: Kind::Text("a prefix of IPv6", translator), Some("off"),
        "The prefix of a NAT64 translator such as \"64:ff9b::/96\". Names without IPv6 are then answered to clients with addresses in it (RFC 6147).",
        "Connections to them fail without the translator, which is another program (Debian: jool, tayga).", "Networks whose clients have IPv6 alone.";
    hosts_file = hosts_file: Kind::Switch, None,
        "Whether /etc/hosts is read.", "None.", "Rarely needed.";
    prefer = prefer: Kind::Choice(Family::WORDS), None,
        "The address family to try first (RFC 8305 section 4), or the only one.",
        "If the first family is broken, each connection loses attempt_delay.", "If one of the two families is slow or broken.";
    attempt_delay = attempt_delay: Kind::Span(Span::from_millis(100), Span::from_secs(2)), None,
        "Between two connection attempts (RFC 8305 section 8).",
        "A shorter delay opens connections that are then discarded.", "Satellites, where a round trip takes that long: longer.";
    resolution_delay = resolution_delay: Kind::Span(Span::ZERO, Span::from_secs(2)), None,
        "How long an IPv4 answer waits for the IPv6 one (RFC 8305 section 3). After three names without one, one name of sixteen waits.",
        "Delays the first connection to names without IPv6 behind slow servers.", "Rarely needed.";
};

