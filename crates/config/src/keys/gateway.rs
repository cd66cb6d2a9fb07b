//! Keys of the gateway: `[gateway]`.

use super::key::{Key, keys};
use crate::draft::Draft;
use crate::value::Word as _;
use crate::value::kind::Kind;
use crate::value::pattern::shorten;
use ekiden_model::units::Span;
use ekiden_proxy::settings::{GoTo, Quic};

/// A device's name, as the kernel accepts it and nftables can quote it.
pub(super) fn device(text: &str) -> Result<(), String> {
    let fine = (1..=15).contains(&text.len())
        && text != "."
        && text != ".."
        && text.bytes().all(|b| b.is_ascii_graphic() && !b"/:\"*\\;{}".contains(&b));
    if fine {
        Ok(())
    } else {
        Err(format!("\"{}\" is not the name of a network device", shorten(text)))
    }
}

pub(super) static GATEWAY: &[Key<Draft>] = keys! { Draft, |draft| draft.gateway;
    devices = devices: Kind::Words("names of network devices such as \"eth1\"", device), Some("none"),
        "The devices behind which the clients are. Their TCP connections to anywhere beyond this machine are relayed. A device may come later, and go. Needs nft (Debian: nftables) and CAP_NET_ADMIN.",
        "The client is connected before its destination is: a destination that refuses breaks the connection.",
        "On the router of a network whose devices know no proxy.";
    own_traffic = own: Kind::Switch, None,
        "Whether connections of this machine's own programs are relayed too. They come from 127.0.0.1 or ::1 to rules and accounts. Connections of this relay's own user are left out, so it must not run as root.",
        "As for `devices`. Uses the kernel's connection tracking.",
        "To accelerate programs that know no proxy on the machine itself.";
    keep_source = keep_source: Kind::Switch, None,
        "Whether destinations of direct connections see the client's address in place of this machine's. Answers must come back through this machine.",
        "A client's address must be routed to this machine, or masqueraded behind it.",
        "If servers behind this machine tell clients apart by their address.";
    go_to = go_to: Kind::Choice(GoTo::WORDS), None,
        "Where a connection goes whose first bytes name its destination, in TLS or HTTP. \"address\": to the address that the client chose; a name can choose the route and can be denied by a rule, and it allows nothing. \"name\": to that name, which this relay or its peer resolves.",
        "\"name\": a client decides by any name where its connection goes, as at a proxy, and rules judge that name.",
        "\"name\" if the clients' DNS is wrong or distant.";
    first_bytes = first_bytes: Kind::Span(Span::ZERO, Span::from_secs(2)), None,
        "How long to wait for a client's first bytes, which may name its destination. \"0 s\": names are not looked for.",
        "Where the server speaks first, as in SSH and mail, a connection opens that much later.",
        "\"0 s\" if neither rules nor logs need names.";
    quic = quic: Kind::Choice(Quic::WORDS), None,
        "What becomes of UDP to port 443 from `devices`, which is QUIC. \"direct\": it passes by. \"block\": it is answered with \"port unreachable\", so that browsers use TCP at once. \"tunnel\": it goes through the tunnel of its route, which repairs lost packets. Without such a tunnel it is relayed directly if the route permits that, and blocked otherwise.",
        "\"block\": programs that speak only QUIC fail. \"tunnel\": servers see the far relay's address; each flow counts as an association of [udp].",
        "\"tunnel\" with a tunnel over a lossy link. \"block\" on other links where this relay is much faster than QUIC.";
    bypass = bypass: Kind::Nets, None,
        "Destinations that pass by: this relay sees nothing of them, and its rules do not apply.",
        "None.", "Your other networks behind this machine, and servers that must see TCP end to end.";
    mark = mark: Kind::Number(256, 2_147_483_646), None,
        "The mark of diverted packets, and the number of their routing table.",
        "Nothing else may use the number.", "If another program uses it.";
};
