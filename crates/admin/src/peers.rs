//! Peers as their operator sees them: their document, and invitations.

use ekiden_model::units::Rate;
use ekiden_tunnel::core::Terms;
use ekiden_tunnel::trust::{NoRandomness, Peer, PeerKind, Store, StoreError, Token, hash, random};

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

/// Why there is no invitation.
#[derive(Debug, thiserror::Error)]
pub enum InviteError {
    /// There is a peer of that name, which is not to be replaced.
    #[error(
        "a peer `{0}` is known already, and its line was shown once; choose another name with --name, or invite it again with --renew"
    )]
    Taken(String),
    /// The store cannot be used.
    #[error(transparent)]
    Store(StoreError),
    /// The system has no random numbers.
    #[error(transparent)]
    Random(#[from] NoRandomness),
}

impl From<StoreError> for InviteError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Taken(name) => Self::Taken(name),
            other => Self::Store(other),
        }
    }
}

/// Invites a peer. Returns the token, and the peer of that name that is replaced. Errors: there is one that is not to
/// be replaced; the store cannot be written.
pub fn invite(store: &Store, invitation: Invitation) -> Result<(Token, Option<Peer>), InviteError> {
    let Invitation { name, address, terms, renew } = invitation;
    let fingerprint = store.credentials()?.fingerprint();
    let secret = random()?;
    // the peer receives what this relay sends
    let (send, receive) = (terms.receive, terms.send);
    let made = Some(jiff::Timestamp::now().as_second());
    let token = Token { address, fingerprint, secret, send, receive, made };
    let kind = PeerKind::Invited { invitation: hash(&secret).into() };
    let put = store.put(Peer { name, kind, terms }, |_| renew);
    Ok((token, put?))
}

/// Refuses rates that are too low for a tunnel, by the options of the command.
pub fn check_terms(terms: &Terms) -> Result<(), String> {
    check_rates(terms, ["--send", "--receive"])
}

/// The same by other names of the rates to send and to receive.
pub(crate) fn check_rates(terms: &Terms, names: [&str; 2]) -> Result<(), String> {
    let least = Rate::from_bits_per_second(LEAST);
    for (rate, name) in [terms.send, terms.receive].into_iter().zip(names) {
        if rate < least {
            return Err(format!("{name} {rate} is too low for a tunnel; use at least {least}"));
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
