//! Keys of the WireGuard door: `[wireguard]`.

use super::gateway::device;
use super::key::{Key, keys};
use crate::draft::Draft;
use crate::value::kind::Kind;
use crate::value::pattern::shorten;
use ipnet::{Ipv4Net, Ipv6Net};
use std::net::IpAddr;

/// A name or an address, and a port.
fn endpoint(text: &str) -> Result<(), String> {
    let wrong = || {
        let shown = shorten(text);
        format!(
            "\"{shown}\" is not a host and a port, such as relay.example.org:51820 or [2001:db8::1]:51820"
        )
    };
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let port: u16 = port.parse().map_err(|_| wrong())?;
    let inside = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let fine = match inside {
        Some(inside) => matches!(inside.parse(), Ok(IpAddr::V6(_))),
        None => {
            let name = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'.';
            (1..=253).contains(&host.len()) && host.bytes().all(name)
        }
    };
    if fine && port != 0 { Ok(()) } else { Err(wrong()) }
}

fn network(text: &str) -> Result<(), String> {
    let wrong = || format!("\"{}\" is not a network such as 10.77.0.0/24", shorten(text));
    let net: Ipv4Net = text.parse().map_err(|_| wrong())?;
    match (8..=30).contains(&net.prefix_len()) && net == net.trunc() {
        true => Ok(()),
        false => Err(format!("{}, with 8 to 30 bits and zeros behind them", wrong())),
    }
}

fn network_v6(text: &str) -> Result<(), String> {
    let wrong = || format!("\"{}\" is not a network such as fd12:3456:789a::/64", shorten(text));
    let net: Ipv6Net = text.parse().map_err(|_| wrong())?;
    match (16..=112).contains(&net.prefix_len()) && net == net.trunc() {
        true => Ok(()),
        false => Err(format!("{}, with 16 to 112 bits and zeros behind them", wrong())),
    }
}

fn address(text: &str) -> Result<(), String> {
    let wrong = |_| format!("\"{}\" is not an address", shorten(text));
    text.parse::<IpAddr>().map(drop).map_err(wrong)
}

pub(super) static WIREGUARD: &[Key<Draft>] = keys! { Draft, |draft| draft.wireguard;
    listen = listen: Kind::Sockets(Some(51_820)), None,
        "UDP addresses at which clients' datagrams arrive. Nobody but a client with a key gets an answer.",
        "Some microseconds for a datagram of anybody, at most 200 times a second a tenth of a millisecond.",
        "To serve telephones and laptops that are not behind this machine: `[\"0.0.0.0:51820\", \"[::]:51820\"]`.";
    endpoint = endpoint: Kind::Text("a host and a port such as \"relay.example.org:51820\"", endpoint), Some(""),
        "Where clients find `listen` from outside. It is written into the configurations that are handed out.",
        "Clients keep what they were given.", "Everybody who sets `listen`.";
    network = network: Kind::Text("a network such as \"10.77.0.0/24\"", network), None,
        "The clients' addresses in the tunnel. This relay has the first.",
        "It must not be a network that clients or this machine use otherwise. After a change, clients need new configurations.",
        "If it clashes, or for more than 253 devices.";
    network_v6 = network_v6: Kind::Text("a network such as \"fd12:3456:789a::/64\"", network_v6), None,
        "The same for IPv6.", "As for `network`.", "If it clashes.";
    dns = dns: Kind::Words("addresses of name servers", address), Some(""),
        "The name servers of clients. \"\": this relay, where `listen` of [dns] is set; it then answers at its address in the tunnel, too.",
        "Names are not known to rules and logs where another server answers.", "If this relay answers no questions for names.";
    mtu = mtu: Kind::Number(1_280, 9_000), None,
        "The longest packet in the tunnel, bytes. WireGuard adds 60 to 80; what is longer than the path takes is sent in fragments.",
        "Less costs more packets.", "Networks that lose fragments: 1280.";
    device = device: Kind::Text("the name of a network device", device), None,
        "The name of the TUN device.", "None.", "Several daemons on one machine.";
    masquerade = masquerade: Kind::Switch, None,
        "Whether UDP and all else that the kernel forwards goes out under this machine's address.",
        "Uses the kernel's connection tracking. Without it, others must know the way back to `network`.",
        "Off if this network's router knows the way.";
};
