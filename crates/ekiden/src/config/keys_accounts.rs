//! Keys of households: `[accounts]`.

use super::key::{Key, keys};
use super::kind::{Kind, absolute_path};
use ekiden_proxy::settings::Accounts;

/// An address of PostgreSQL.
fn database(text: &str) -> Result<(), String> {
    if text.starts_with("postgres://") || text.starts_with("postgresql://") {
        Ok(())
    } else {
        Err("a database's address begins with postgres://".to_owned())
    }
}

/// The address without the password in it, for whoever looks at the configuration; and whether there was one.
pub(super) fn masked(address: &str) -> (String, bool) {
    let Some((scheme, rest)) = address.split_once("://") else {
        return (address.to_owned(), false);
    };
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let Some((user, host)) = authority.rsplit_once('@') else { return (address.to_owned(), false) };
    let Some((user, _)) = user.split_once(':') else { return (address.to_owned(), false) };
    let path = rest.get(authority.len()..).unwrap_or_default();
    (format!("{scheme}://{user}:***@{host}{path}"), true)
}

/// `[accounts]`.
pub(super) static ACCOUNTS: &[Key<Accounts>] = keys! { Accounts;
    enabled = enabled: Kind::Switch, None,
        "Whether clients are looked up among the households of `ekiden user`: by their address, the relay they come through, or user and password (HTTP Basic, SOCKS5).",
        "None for those who are known already; a first log-in takes 20 ms of a core.", "Whoever serves more than one household. Needs a restart.";
    required = required: Kind::Switch, None,
        "Whether everybody has to be a known household. false: those whom a [[rule]] admits, and clients on loopback, may come in without. Relays that were invited may always.",
        "false: what they use is counted for nobody.", "Sites where some addresses need no account.";
    cleartext = cleartext: Kind::Switch, None,
        "Whether passwords are taken from beyond this machine. They are not encrypted on their way to ekiden.",
        "Whoever can listen on the network between has them.", "Networks that are your own, or encrypted below.";
    database = database: Kind::Text("an address such as \"postgres://ekiden@db.example/ekiden\"", database), Some("embedded"),
        "The PostgreSQL that several relays share. \"embedded\": a file in `state`. While it is away, households stay as they were known.",
        "A password here is read by whoever reads the file; PGPASSWORD and ~/.pgpass work too.", "Several relays for one town. Needs a restart.";
    state = state: Kind::Text("an absolute path", absolute_path), Some("auto"),
        "The directory with the embedded database and what was used. \"auto\": $STATE_DIRECTORY, /var/lib/ekiden as root, else $XDG_STATE_HOME/ekiden or ~/.local/state/ekiden.",
        "Whoever reads it knows who used how much, and hashes of passwords.", "Several daemons of one user on one machine. Needs a restart.";
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_not_shown() {
        let shown = |text: &str| masked(text);
        assert_eq!(shown("postgres://u:s@ec@h/db?x=1"), ("postgres://u:***@h/db?x=1".into(), true));
        for text in ["postgres://u@h/db", "postgres://h", "postgres:///db?host=/run/a:b@c"] {
            assert_eq!(shown(text), (text.to_owned(), false));
        }
    }
}
