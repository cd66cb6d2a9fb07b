//! Keys of tunnels to peers: `[tunnel]`.

use super::key::{Key, keys};
use crate::draft::Draft;
use crate::value::Word as _;
use crate::value::kind::{Kind, absolute_path};
use ekiden_model::units::Bytes;
use ekiden_proxy::settings::{TransportMode, TunnelAnswer};

pub(super) static TUNNEL: &[Key<Draft>] = keys! { Draft, |draft| draft.tunnel;
    listen = listen: Kind::Sockets(Some(4433)), None,
        "UDP addresses for peers that were invited (`ekiden peer invite`). Empty: no peer can connect.",
        "Unknown peers are rejected after the handshake.", "On the relay that the other one can reach.";
    carrier = carrier: Kind::Choice(TransportMode::WORDS), None,
        "The transport of tunnels. \"auto\": UDP, then TLS on TCP if UDP gets no answer within 3 s; `listen` applies to both. \"udp\": only UDP. \"tcp\": only TLS on TCP.",
        "TCP holds no rate across losses, and a lost packet delays everything behind it.",
        "\"udp\" if the TCP port is used otherwise; \"tcp\" if a network drops UDP.";
    answer = answer: Kind::Choice(TunnelAnswer::WORDS), None,
        "When CONNECT and SOCKS through a tunnel are answered. \"at-once\": when the tunnel is up, so that a client's first bytes travel with its request. \"connected\": when the destination is connected, a round trip later.",
        "\"at-once\": a destination that refuses breaks the connection instead of giving an answer, and other chains of a route are tried only while the tunnel is down.",
        "\"connected\" for clients that act on the answer.";
    state = state: Kind::Text("an absolute path", absolute_path), Some("auto"),
        "The directory with this relay's certificate and its peers. \"auto\": $STATE_DIRECTORY, /var/lib/ekiden as root, else $XDG_STATE_HOME/ekiden or ~/.local/state/ekiden.",
        "Its readers can impersonate this relay.", "Several daemons of one user on one machine.";
    memory = memory: Kind::Size(Bytes::mib(1), Bytes::mib(64 << 10)), None,
        "Memory of each tunnel for received data that clients have not read, and as much again for data in flight. A flow whose client reads fast may use half. Data that waits to be sent has half as much, for all tunnels to a relay.",
        "Less than six times rate x round-trip time slows single transfers across losses.",
        "Above 200 Mbit/s x 600 ms; machines with little memory.";
    interactive_dscp = interactive_dscp: Kind::Number(0, 63), None,
        "DSCP of datagrams with interactive data and its repairs.", "Networks may treat unknown values as they like.",
        "If the network has a class for it.";
    bulk_dscp = bulk_dscp: Kind::Number(0, 63), None,
        "DSCP of all other datagrams.", "As above.", "If the network has a class for it: 1 is lower effort (RFC 8622), 8 its predecessor.";
};
