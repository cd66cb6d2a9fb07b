//! Keys of TLS at the doors: `[tls]`.

use super::key::{Key, keys};
use super::kind::{Kind, absolute_path};
use ekiden_proxy::settings::Tls;

/// `[tls]`.
pub(super) static TLS: &[Key<Tls>] = keys! { Tls;
    certificate = certificate: Kind::Text("an absolute path", absolute_path), Some(""),
        "A PEM file with the certificate for clients that speak TLS to this proxy (https://), and those between it and whom they trust. Read again when it changes.",
        "A connection with TLS takes the places of two (budgets.connections), and its bytes are copied and encrypted: some 40 KiB and a share of a core.",
        "Whoever lets households log in over a network that is not their own.";
    key = key: Kind::Text("an absolute path", absolute_path), Some(""),
        "A PEM file with the certificate's key.", "Whoever reads it can be this proxy.", "As above.";
};
