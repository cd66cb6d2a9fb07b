//! Keys of the management port: `[management]`.

use super::draft::Management;
use super::key::{Key, keys};
use super::kind::{Kind, absolute_path};
use super::pattern;

fn listen(text: &str) -> Result<(), String> {
    if text == "off" {
        return Ok(());
    }
    pattern::socket(text, None).map(|_| ()).map_err(|why| format!("{why}, nor `off`"))
}

/// A name as it stands in `Host`, without a port.
fn host(text: &str) -> Result<(), String> {
    let fine = (1..=253).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.');
    if fine {
        Ok(())
    } else {
        Err("a host's name without a port, such as \"relay.example\"".to_owned())
    }
}

/// `[management]`.
pub(super) static MANAGEMENT: &[Key<Management>] = keys! { Management;
    listen = listen: Kind::Text("an address and a port, or \"off\"", listen), None,
        "Where /metrics, /healthz, /readyz and the API below /api/v1 are served over HTTP. \"off\": nowhere. Where the default is taken by another daemon, that is said and this one runs without; one that is named here must be free.",
        "Programs of this machine may read /metrics, households' names among it; the API takes a token.",
        "Several daemons on one machine; those who want none. Needs a restart.";
    cleartext = cleartext: Kind::Switch, None,
        "Whether `listen` may be an address beyond loopback. There is no TLS on this port: token and answers cross the network as they are.",
        "Whoever can listen on the network between has the token, and with it every account.",
        "Networks that are your own, or encrypted below. Otherwise: ssh -L 9128:127.0.0.1:9128 HOST, or a web server with TLS before it.";
    hosts = hosts: Kind::Words("names of this machine, such as \"relay.example\"", host), Some("localhost"),
        "Names by which the port may be asked for in `Host`, besides localhost and plain addresses. Others are refused: a web page could give itself a name that leads here (DNS rebinding).",
        "None.", "Whoever has a web server before it, or reaches it by name. Needs a restart.";
    token_file = token_file: Kind::Text("an absolute path", absolute_path), Some("auto"),
        "The file with the API's token, made at the first start and readable by its owner alone. \"auto\": management.token beside the accounts. `ekiden token show` prints it, `ekiden token rotate` replaces it at once.",
        "Whoever reads it may do all that `ekiden user` can.", "Several daemons of one user on one machine. Needs a restart.";
    metrics_households = metrics_households: Kind::Number(0, 10_000), None,
        "The most households that /metrics names, the first by name; of the others it says how many there are.",
        "Some 15 time series each in Prometheus. 0: it names none.", "Large sites; those who keep names out of metrics. Needs a restart.";
};
