//! Keys of the page and the script for browsers: `[pac]`.

use super::key::{Key, keys};
use crate::draft::Draft;
use crate::value::kind::Kind;
use crate::value::pattern::shorten;
use ekiden_proxy::destination::Host;

/// A host's name, or `*.` and the name of a domain.
fn name(text: &str) -> Result<(), String> {
    let bare = text.strip_prefix("*.").unwrap_or(text);
    match Host::from_name(bare) {
        Ok(Host::Name(name)) if name == bare => Ok(()),
        _ => Err(format!(
            "\"{}\" is not a name such as example.org or *.example.org, in lower case",
            shorten(text)
        )),
    }
}

pub(super) static PAC: &[Key<Draft>] = keys! { Draft, |draft| draft.pac;
    serve = serve: Kind::Switch, None,
        "Whether /proxy.pac and /wpad.dat are answered on `listen`, without a log-in.",
        "Whoever may connect learns the names in `direct`.", "Rarely needed.";
    direct = direct: Kind::Words("names such as \"example.org\" or \"*.example.org\"", name), Some("none"),
        "Names that browsers reach without this relay, besides names without dots and below .local.",
        "None.", "Servers on the browsers' own network.";
    fallback = fallback: Kind::Switch, None,
        "Whether browsers go direct while this relay does not answer.",
        "true: connections pass by rules and accounts then.", "Where everything must pass the rules: false.";
    page = page: Kind::Switch, None,
        "Whether / is answered on `listen` with a page for this relay's users: how to set up a device, and what an account has used and has left.",
        "Whoever may connect learns that this is a relay, and its address. An account's figures are shown to its own devices and after a log-in.",
        "Relays that are to answer proxy requests alone: false.";
};
