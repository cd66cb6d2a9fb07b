//! Path problems that a running daemon found: black holes, smaller MTUs.

use super::findings::finding;
use super::{Finding, Severity};
use ekiden_linux::host::facts::Facts;
use ekiden_proxy::observe::status::{ProfileStatus, Status, TroubleStatus};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Addresses named in one finding; the status has them all.
const NAMED: usize = 3;

/// A segment that passes wherever IPv6 does (RFC 8200 §5: 1280 bytes, less 60 of headers), rounded down.
const PASSES: u32 = 1200;

/// What the daemon's legs say of their paths.
pub(super) fn paths(status: &Status, facts: &Facts, found: &mut Vec<Finding>) {
    for leg in &status.legs {
        let troubled = |state: &str| -> Vec<&TroubleStatus> {
            leg.path.troubled.iter().filter(|trouble| trouble.state == state).collect()
        };
        let holes = troubled("black hole");
        if !holes.is_empty() {
            found.push(black_hole(leg, &holes, facts));
        }
        let smaller = troubled("smaller");
        if let Some(mtu) = smaller.iter().filter_map(|trouble| trouble.mtu).min() {
            let what = format!(
                "leg \"{}\": packets above {mtu} bytes do not reach {}",
                leg.name,
                names(&smaller)
            );
            let why = "a router or TCP's own probing reported this MTU; nothing is wrong, but if most \
                       destinations of a leg are like this, `mss` on the leg saves probing each time";
            found.push(finding(&format!("smaller-path-{}", leg.name), Severity::Note, what, why));
        }
    }
}

fn black_hole(leg: &ProfileStatus, holes: &[&TroubleStatus], facts: &Facts) -> Finding {
    let what =
        format!("leg \"{}\": large packets to {} are probably dropped", leg.name, names(holes));
    let clamp = format!(
        "`mss = {PASSES}` in [leg.{}] avoids large packets, if all paths of the leg are like this",
        leg.name
    );
    let begins = facts.number("net.ipv4.tcp_base_mss").map_or_else(String::new, |mss| {
        format!(", beginning with segments of {mss} bytes (net.ipv4.tcp_base_mss)")
    });
    let probing = format!(
        "with net.ipv4.tcp_mtu_probing each connection recovers after four time-outs, which take at least 3 s{begins}"
    );
    let why = format!(
        "connections stall after a few hundred bytes although the handshake succeeds: a router or \
         tunnel drops large packets silently; {clamp}; {probing}"
    );
    let finding =
        finding(&format!("black-hole-{}", leg.name), Severity::Warning, what, why.as_str());
    match facts.number("net.ipv4.tcp_mtu_probing") {
        Some(0) => finding.set(&[("net.ipv4.tcp_mtu_probing", "1".into())]),
        _ => finding,
    }
}

/// The newest first.
fn names(troubled: &[&TroubleStatus]) -> String {
    let all: BTreeSet<IpAddr> = troubled.iter().map(|trouble| trouble.address).collect();
    let named: Vec<_> =
        troubled.iter().rev().take(NAMED).map(|trouble| trouble.address.to_string()).collect();
    match all.len().saturating_sub(named.len()) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}
