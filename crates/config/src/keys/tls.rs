//! Keys of TLS towards clients: `[tls]`.

use super::key::{Key, keys};
use crate::draft::Draft;
use crate::value::kind::{Kind, absolute_path};

pub(super) static TLS: &[Key<Draft>] = keys! { Draft, |draft| draft.tls;
    certificate = certificate: Kind::Text("an absolute path", absolute_path), Some(""),
        "A PEM file with the certificate chain for clients that use TLS to this proxy (https://). Ekiden reads it again when it changes.",
        "A TLS connection counts as two (budgets.connections). It copies and encrypts its bytes, which costs about 40 KiB and processor time.",
        "To let accounts log in over a foreign network.";
    key = key: Kind::Text("an absolute path", absolute_path), Some(""),
        "A PEM file with the certificate's key.", "Its readers can impersonate this proxy.", "As above.";
};
