//! An invitation as one line of text.

use super::{Fingerprint, Peer, PeerKind, bytes, encode};
use crate::core::Terms;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ekiden_model::units::Rate;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The prefix of a token; another version has another one.
const PREFIX: &str = "ekiden1-";

/// An invitation: a relay's address and fingerprint, the secret that lets one peer in, and the
/// rates. Its holder may use it, once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// `host:port` of the relay that invites, over UDP.
    pub address: String,
    /// Of its certificate.
    pub fingerprint: Fingerprint,
    /// To be shown once.
    pub secret: [u8; 32],
    /// The joining relay's send limit.
    pub send: Rate,
    /// The joining relay's receive limit.
    pub receive: Rate,
}

/// Why a token is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum BadToken {
    #[error("that is no invitation: one begins with `ekiden1-`")]
    NotOne,
    #[error("the invitation is damaged; copy the whole line that `ekiden peer invite` printed")]
    Damaged,
}

impl Token {
    /// The relay that invited us, under a name of our own.
    pub fn peer(&self, name: String) -> Peer {
        let kind = PeerKind::Joined {
            fingerprint: self.fingerprint,
            address: self.address.clone(),
            secret: encode(&self.secret),
        };
        Peer { name, kind, terms: Terms::new(self.send, self.receive) }
    }
}

#[derive(Serialize, Deserialize)]
struct Text {
    a: String,
    f: Fingerprint,
    s: String,
    u: Rate,
    d: Rate,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = Text {
            a: self.address.clone(),
            f: self.fingerprint,
            s: encode(&self.secret),
            u: self.send,
            d: self.receive,
        };
        let text = serde_json::to_string(&text).map_err(|_| fmt::Error)?;
        write!(f, "{PREFIX}{}", URL_SAFE_NO_PAD.encode(text))
    }
}

impl FromStr for Token {
    type Err = BadToken;

    fn from_str(text: &str) -> Result<Self, BadToken> {
        let encoded = text.trim().strip_prefix(PREFIX).ok_or(BadToken::NotOne)?;
        let text = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| BadToken::Damaged)?;
        let text: Text = serde_json::from_slice(&text).map_err(|_| BadToken::Damaged)?;
        let port = text.a.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
        if port.is_none_or(|port| port == 0) || text.a.len() > 300 {
            return Err(BadToken::Damaged);
        }
        Ok(Self {
            address: text.a,
            fingerprint: text.f,
            secret: bytes(&text.s)?,
            send: text.u,
            receive: text.d,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::fingerprint;
    use super::*;

    #[test]
    fn an_invitation_survives_being_copied() {
        let token = Token {
            address: "relay.example.org:4433".to_owned(),
            fingerprint: fingerprint(&vec![1, 2, 3].into()),
            secret: [7; 32],
            send: "800 kbit/s".parse().unwrap(),
            receive: "4 Mbit/s".parse().unwrap(),
        };
        let text = token.to_string();
        assert_eq!(format!(" {text}\n").parse(), Ok(token));
        assert_eq!("hello".parse::<Token>(), Err(BadToken::NotOne));
        assert_eq!(text[..text.len() - 9].parse::<Token>(), Err(BadToken::Damaged));
    }
}
