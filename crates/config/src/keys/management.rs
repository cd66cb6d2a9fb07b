//! Keys of the management port: `[management]`.

use super::key::{Key, keys};
use crate::draft::Draft;
use crate::value::kind::{Kind, absolute_path};
use crate::value::pattern;

fn listen(text: &str) -> Result<(), String> {
    if text == "off" {
        return Ok(());
    }
    pattern::socket(text, None).map(|_| ()).map_err(|why| format!("{why}, nor `off`"))
}

/// A name in `Host`, without a port.
fn host(text: &str) -> Result<(), String> {
    let fine = (1..=253).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.');
    if fine {
        Ok(())
    } else {
        Err("a host's name without a port, such as \"relay.example\"".to_owned())
    }
}

pub(super) static MANAGEMENT: &[Key<Draft>] = keys! { Draft, |draft| draft.management;
    listen = listen: Kind::Text("an address and a port, or \"off\"", listen), None,
        "Address of /metrics, /healthz, /readyz and the API below /api/v1, over HTTP. \"off\" disables them. If the default address is in use, the daemon warns and runs without. An address set here must be free.",
        "Programs on this machine can read /metrics, including accounts' names; the API needs a token.",
        "Several daemons on one machine. Needs a restart.";
    cleartext = cleartext: Kind::Switch, None,
        "Whether `listen` may be an address beyond loopback. This port has no TLS: the token and the answers cross the network unencrypted.",
        "Anybody on the network between can read the token, and with it change every account.",
        "Networks that are your own, or encrypted below. Otherwise: ssh -L 9128:127.0.0.1:9128 HOST, or a web server with TLS before it.";
    hosts = hosts: Kind::Words("names of this machine, such as \"relay.example\"", host), Some("localhost"),
        "Accepted names in `Host`, besides localhost and plain addresses. Others are rejected, because a web page could use a name that resolves to this machine (DNS rebinding).",
        "None.", "Behind a web server, or to reach the port by name. Needs a restart.";
    token_file = token_file: Kind::Text("an absolute path", absolute_path), Some("auto"),
        "The file with the API's token. The first start creates it, readable only by its owner. \"auto\": management.token beside the accounts. `ekiden token show` prints the token, `ekiden token rotate` replaces it.",
        "Its readers can do all that `ekiden account` can.", "Several daemons of one user on one machine. Needs a restart.";
    metrics_accounts = metrics_accounts: Kind::Number(0, 10_000), None,
        "Maximum number of accounts that /metrics names, in order of name. The rest are only counted.",
        "About 15 time series each in Prometheus. 0: no names.", "Large sites, or to keep names out of metrics. Needs a restart.";
};
