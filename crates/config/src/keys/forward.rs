//! Keys of forwarded ports: `[[forward]]`.

use super::key::{Key, keys};
use crate::draft::ForwardDraft;
use crate::value::Word as _;
use crate::value::kind::Kind;
use crate::value::pattern::shorten;
use ekiden_proxy::destination::Destination;
use ekiden_proxy::settings::{ForwardProtocol, SendProxy};

/// `host:port`, or an empty text, which a check refuses.
fn destination(text: &str) -> Result<(), String> {
    match Destination::parse(text, None) {
        Ok(_) => Ok(()),
        Err(_) if text.is_empty() => Ok(()),
        Err(why) => Err(format!("\"{}\" is not host:port: {why}", shorten(text))),
    }
}

pub(crate) static FORWARD: &[Key<ForwardDraft>] = keys! { ForwardDraft, |forward| forward;
    listen = listen: Kind::Sockets(None), None,
        "Addresses and ports that lead to `to`. Needed. Rules say which clients may use them and whether they may reach `to`; other clients are reset.",
        "None.", "-";
    to = to: Kind::Text("host:port", destination), Some(""),
        "The destination of everything that arrives there, by its route. Needed.",
        "A client is connected before its destination is.", "-";
    protocol = protocol: Kind::Choice(ForwardProtocol::WORDS), None,
        "What is forwarded. A client of UDP counts as an association (udp.associations, udp.idle). Give UDP one address and not 0.0.0.0, so that answers come from it.",
        "None.", "\"udp\" or \"both\" for remote desktops, games and telephones.";
    send_proxy = send_proxy: Kind::Choice(SendProxy::WORDS), None,
        "The header of the PROXY protocol that tells the destination the client's address: version 1 or 2, before a connection's first byte.",
        "A destination that does not expect it takes it for data.", "Servers that are configured for it: nginx, HAProxy, another ekiden (access.proxy_protocol_from).";
};
