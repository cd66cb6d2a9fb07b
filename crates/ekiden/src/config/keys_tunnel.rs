//! Keys of tunnels to other relays: `[tunnel]`.

use super::key::{Key, keys};
use super::kind::{Kind, absolute_path};
use super::value::CARRIERS;
use ekiden_model::units::Bytes;
use ekiden_proxy::settings::Tunnel;

/// `[tunnel]`.
pub(super) static TUNNEL: &[Key<Tunnel>] = keys! { Tunnel;
    listen = listen: Kind::Sockets(Some(4433)), None,
        "Where relays that were invited (`ekiden relay invite`) come, over UDP. Empty: none can come.",
        "Whoever is not known is sent away after the handshake.", "The relay that the other one can reach.";
    carrier = carrier: Kind::Choice(CARRIERS), None,
        "What tunnels go over. \"auto\": UDP, and TLS on TCP after 3 s in which nothing came back over UDP; the port of `listen` is listened on for both. \"udp\": UDP alone. \"tcp\": connects over TLS on TCP at once.",
        "Over TCP no rate is held across losses, and a lost packet holds up everything behind it.",
        "\"udp\" where the same port of TCP is for something else; \"tcp\" where UDP is known to be dropped.";
    state = state: Kind::Text("an absolute path", absolute_path), Some("auto"),
        "The directory with this relay's certificate and the relays it knows. \"auto\": $STATE_DIRECTORY, /var/lib/ekiden as root, else $XDG_STATE_HOME/ekiden or ~/.local/state/ekiden.",
        "Whoever reads it can be this relay.", "Several daemons of one user on one machine.";
    memory = memory: Kind::Size(Bytes::mib(1), Bytes::mib(64 << 10)), None,
        "For what a tunnel's flows brought and nobody has taken yet, and for what is under way; each, for every tunnel. One flow may have half of it.",
        "Memory, when somebody does not read; less than six times rate x round-trip time slows single transfers across losses.",
        "Above 200 Mbit/s x 600 ms; machines with little memory.";
    interactive_dscp = interactive_dscp: Kind::Number(0, 63), None,
        "DSCP of datagrams with keystrokes, requests and what repairs them.", "Networks may treat what they do not know as they like.",
        "Where the network has a class for it.";
    bulk_dscp = bulk_dscp: Kind::Number(0, 63), None,
        "DSCP of all other datagrams.", "As above.", "Where the network has a class for it: 8 is less than best effort (RFC 8622).";
};
