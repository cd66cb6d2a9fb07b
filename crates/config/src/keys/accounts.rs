//! Keys of accounts: `[accounts]`.

use super::key::{Key, keys};
use crate::draft::Draft;
use crate::value::kind::{Kind, absolute_path};

/// An address of PostgreSQL.
fn database(text: &str) -> Result<(), String> {
    if text.starts_with("postgres://") || text.starts_with("postgresql://") {
        Ok(())
    } else {
        Err("a database's address begins with postgres://".to_owned())
    }
}

/// The address with its password masked, and whether there was one.
pub(crate) fn masked(address: &str) -> (String, bool) {
    let Some((scheme, rest)) = address.split_once("://") else {
        return (address.to_owned(), false);
    };
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let Some((user, host)) = authority.rsplit_once('@') else { return (address.to_owned(), false) };
    let Some((user, _)) = user.split_once(':') else { return (address.to_owned(), false) };
    let path = rest.get(authority.len()..).unwrap_or_default();
    (format!("{scheme}://{user}:***@{host}{path}"), true)
}

pub(super) static ACCOUNTS: &[Key<Draft>] = keys! { Draft, |draft| draft.accounts;
    enabled = enabled: Kind::Switch, None,
        "Whether clients are matched to the accounts of `ekiden account`: by address, by peer, or by user and password (HTTP Basic, SOCKS5).",
        "A first login takes 20 ms of a core; known clients cost nothing.", "To serve several accounts. Needs a restart.";
    required = required: Kind::Switch, None,
        "Whether every client needs an account. false: clients that a [[rule]] admits and clients on loopback need none. Invited peers never need one.",
        "false: usage of such clients is not counted.", "Sites where some addresses need no account.";
    cleartext = cleartext: Kind::Switch, None,
        "Whether ekiden accepts passwords without encryption from other machines.",
        "Anybody on the network between can read them.", "Networks that are your own, or encrypted below.";
    database = database: Kind::Text("an address such as \"postgres://ekiden@db.example/ekiden\"", database), Some("embedded"),
        "A PostgreSQL database that several relays share. \"embedded\": a file in `state`. While the database is unreachable, known accounts keep working.",
        "A password here is as safe as this file; PGPASSWORD and ~/.pgpass work too.", "Several relays with the same accounts. Needs a restart.";
    state = state: Kind::Text("an absolute path", absolute_path), Some("auto"),
        "The directory of the embedded database and the usage journal. \"auto\": $STATE_DIRECTORY, /var/lib/ekiden as root, else $XDG_STATE_HOME/ekiden or ~/.local/state/ekiden.",
        "It holds usage and password hashes.", "Several daemons of one user on one machine. Needs a restart.";
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_the_password() {
        let shown = |text: &str| masked(text);
        assert_eq!(shown("postgres://u:s@ec@h/db?x=1"), ("postgres://u:***@h/db?x=1".into(), true));
        for text in ["postgres://u@h/db", "postgres://h", "postgres:///db?host=/run/a:b@c"] {
            assert_eq!(shown(text), (text.to_owned(), false));
        }
    }
}
