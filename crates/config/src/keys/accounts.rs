//! Keys of accounts: `[accounts]`.

use super::key::{Key, keys};
use crate::draft::Draft;
use crate::value::database::DatabaseAddress;
use crate::value::kind::{Kind, absolute_path};

/// An address of PostgreSQL.
fn database(text: &str) -> Result<(), String> {
    DatabaseAddress::read(text).map(drop)
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
        "A PostgreSQL database that several relays share. \"embedded\": a file in `state`. While the database is unreachable, known accounts keep working. On another machine it has to show a certificate for its name, unless `?sslmode=` or PGSSLMODE asks for less.",
        "A password here is as safe as this file; PGPASSWORD and ~/.pgpass work too.", "Several relays with the same accounts. Needs a restart.";
    state = state: Kind::Text("an absolute path", absolute_path), Some("auto"),
        "The directory of the embedded database and the usage journal. \"auto\": $STATE_DIRECTORY, /var/lib/ekiden as root, else $XDG_STATE_HOME/ekiden or ~/.local/state/ekiden.",
        "It holds usage and password hashes.", "Several daemons of one user on one machine. Needs a restart.";
};
