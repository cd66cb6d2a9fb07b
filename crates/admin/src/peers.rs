//! Peers as their operator sees them: their document, and invitations.

use ekiden_model::units::Rate;
use ekiden_tunnel::core::Terms;
use ekiden_tunnel::trust::{Peer, PeerKind, Store, StoreError, Token, hash, random};
use std::error::Error;

/// Below it a tunnel's own packets take too much of the line.
const LEAST: u64 = 64_000;

/// Whom to invite, and to where.
#[derive(Debug, Clone)]
pub struct Invitation {
    /// What the peer is called here.
    pub name: String,
    /// `host:port` of this relay, over UDP.
    pub address: String,
    /// As this relay sees them.
    pub terms: Terms,
    /// Whether a peer of that name is replaced.
    pub renew: bool,
}

/// Invites a peer. Returns the token, and the peer of that name that is replaced. Errors: there is one that is not to
/// be replaced; the store cannot be written.
pub fn invite(
    store: &Store,
    invitation: Invitation,
) -> Result<(Token, Option<Peer>), Box<dyn Error>> {
    let Invitation { name, address, terms, renew } = invitation;
    let fingerprint = store.credentials()?.fingerprint();
    let secret = random()?;
    // the peer receives what this relay sends
    let (send, receive) = (terms.receive, terms.send);
    let made = Some(jiff::Timestamp::now().as_second());
    let token = Token { address, fingerprint, secret, send, receive, made };
    let kind = PeerKind::Invited { invitation: hash(&secret).into() };
    let put = store.put(Peer { name, kind, terms }, |_| renew);
    let old = put.map_err(|error| match error {
        StoreError::Taken(name) => format!(
            "a peer `{name}` is known already, and its line was shown once; choose another name with --name, or invite it again with --renew"
        ),
        other => other.to_string(),
    })?;
    Ok((token, old))
}

/// Refuses rates that are too low for a tunnel.
pub fn check_terms(terms: &Terms) -> Result<(), String> {
    let least = Rate::from_bits_per_second(LEAST);
    for (rate, option) in [(terms.send, "--send"), (terms.receive, "--receive")] {
        if rate < least {
            return Err(format!("{option} {rate} is too low for a tunnel; use at least {least}"));
        }
    }
    Ok(())
}

/// A peer without its secrets; `up` is known where a daemon runs.
pub fn document(peer: &Peer, up: Option<bool>) -> serde_json::Value {
    let (kind, fingerprint, address) = match &peer.kind {
        PeerKind::Invited { .. } => ("invited", None, None),
        PeerKind::Peer { fingerprint } => ("peer", Some(fingerprint), None),
        PeerKind::Joined { fingerprint, address, .. } => {
            ("joined", Some(fingerprint), Some(address))
        }
    };
    serde_json::json!({
        "name": peer.name, "kind": kind, "fingerprint": fingerprint, "address": address,
        "send": peer.terms.send.as_bits_per_second(),
        "receive": peer.terms.receive.as_bits_per_second(),
        "dedicated": peer.terms.dedicated.map(Rate::as_bits_per_second), "up": up,
    })
}
