//! An invitation as one line of text.

use super::{Fingerprint, Peer, PeerKind, bytes, encode};
use crate::core::Terms;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ekiden_model::units::Rate;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;
use std::str::FromStr;

/// The prefix of a token; another version has another one.
const PREFIX: &str = "ekiden1-";
/// What stands before a token in a link.
const LINK: &str = "ekiden://join/";
/// Bytes of the hash that shows a token that was mistyped.
const CHECK: usize = 6;

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
    /// When it was made, in seconds since 1970 by the inviting relay's clock; absent in tokens of early versions.
    pub made: Option<i64>,
}

/// Why a token is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum BadToken {
    #[error("that is no invitation: one begins with `ekiden1-`")]
    NotOne,
    #[error("this invitation is for another version of ekiden; update the older of the two relays")]
    Version,
    #[error(
        "the invitation is incomplete: its end is missing; copy the whole line that `ekiden init shore` or `ekiden peer invite` printed, in quotes if it has several lines"
    )]
    Incomplete,
    #[error(
        "the invitation is damaged; copy the whole line that `ekiden init shore` or `ekiden peer invite` printed"
    )]
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

    /// The invitation as a link, for a QR code or a mail.
    pub fn link(&self) -> String {
        format!("{LINK}{self}")
    }

    fn check(&self) -> String {
        let Self { address, fingerprint, secret, send, receive, made } = self;
        let secret = encode(secret);
        let text = format!("{address}\n{fingerprint}\n{secret}\n{send}\n{receive}\n{made:?}");
        URL_SAFE_NO_PAD.encode(&Sha256::digest(text)[..CHECK])
    }
}

#[derive(Serialize, Deserialize)]
struct Text {
    a: String,
    f: Fingerprint,
    s: String,
    u: Rate,
    d: Rate,
    /// Both are absent in tokens of early versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    t: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    c: Option<String>,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = Text {
            a: self.address.clone(),
            f: self.fingerprint,
            s: encode(&self.secret),
            u: self.send,
            d: self.receive,
            t: self.made,
            c: Some(self.check()),
        };
        let text = serde_json::to_string(&text).map_err(|_| fmt::Error)?;
        write!(f, "{PREFIX}{}", URL_SAFE_NO_PAD.encode(text))
    }
}

/// Without what mails, chats and shells put around a line or within it.
fn bare(text: &str) -> String {
    let stays = |c: &char| {
        let quote = matches!(c, '\'' | '"' | '`' | '\u{2018}'..='\u{201f}' | '<' | '>');
        !c.is_whitespace()
            && !c.is_control()
            && !quote
            && !matches!(c, '\u{200b}' | '\u{feff}' | '\\')
    };
    text.chars().filter(stays).collect()
}

/// The JSON text, or what there is of it.
fn decoded(encoded: &str) -> Result<Vec<u8>, BadToken> {
    let whole = encoded.trim_end_matches(['=', '.', ',']);
    // a single character behind the last four is the beginning of something
    let cut = whole.len() % 4 == 1;
    let known = if cut { &whole[..whole.len() - 1] } else { whole };
    let text = match URL_SAFE_NO_PAD.decode(known) {
        Ok(text) => text,
        // the last bits of a text that was cut within four characters
        Err(base64::DecodeError::InvalidLastSymbol(..)) => {
            let known = &known[..known.len() / 4 * 4];
            URL_SAFE_NO_PAD.decode(known).map_err(|_| BadToken::Damaged)?
        }
        Err(_) => return Err(BadToken::Damaged),
    };
    Ok(text)
}

impl FromStr for Token {
    type Err = BadToken;

    /// Reads a token, a link or the command that takes it, with white space and quotes around it or within it.
    fn from_str(text: &str) -> Result<Self, BadToken> {
        let bare = bare(text);
        let bare = bare.strip_prefix("sudo").unwrap_or(&bare);
        let mut commands = ["ekideninitfar", "ekidenpeerjoin"].iter();
        let bare = commands.find_map(|words| bare.strip_prefix(words)).unwrap_or(bare);
        let bare = bare.strip_prefix(LINK).unwrap_or(bare);
        if !bare.is_ascii() {
            let begins = bare.starts_with(PREFIX);
            return Err(if begins { BadToken::Damaged } else { BadToken::NotOne });
        }
        let Some(encoded) = bare.strip_prefix(PREFIX) else {
            let version = bare.strip_prefix("ekiden").and_then(|rest| rest.split_once('-'));
            let other = version.is_some_and(|(n, _)| n.parse::<u32>().is_ok());
            let begun = !bare.is_empty() && PREFIX.starts_with(bare);
            return Err(match (other, begun) {
                (true, _) => BadToken::Version,
                (_, true) => BadToken::Incomplete,
                _ => BadToken::NotOne,
            });
        };
        let text: Text = serde_json::from_slice(&decoded(encoded)?).map_err(|error| {
            if error.is_eof() { BadToken::Incomplete } else { BadToken::Damaged }
        })?;
        let port = text.a.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
        // it is printed, on terminals too, where control characters are commands
        let is_plain = text.a.len() <= 300 && text.a.bytes().all(|byte| byte.is_ascii_graphic());
        if port.is_none_or(|port| port == 0) || !is_plain {
            return Err(BadToken::Damaged);
        }
        let token = Self {
            address: text.a,
            fingerprint: text.f,
            secret: bytes(&text.s)?,
            send: text.u,
            receive: text.d,
            made: text.t,
        };
        match text.c {
            Some(check) if check != token.check() => Err(BadToken::Damaged),
            // both came with one version
            None if token.made.is_some() => Err(BadToken::Damaged),
            _ => Ok(token),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fingerprint;
    use super::*;

    fn token() -> Token {
        Token {
            address: "relay.example.org:4433".to_owned(),
            fingerprint: fingerprint(&vec![1, 2, 3].into()),
            secret: [7; 32],
            send: "800 kbit/s".parse().unwrap(),
            receive: "4 Mbit/s".parse().unwrap(),
            made: Some(1_795_000_000),
        }
    }

    #[test]
    fn an_invitation_survives_being_copied() {
        let (token, text) = (token(), token().to_string());
        let (one, other) = text.split_at(80);
        for copied in [
            format!(" {text}\n"),
            format!("'{text}'"),
            format!("\u{201c}{text}\u{201d}."),
            format!("{one}\n  {other}"),
            format!("{one}\\\r\n{other}"),
            token.link(),
            format!("<{}>", token.link()),
        ] {
            assert_eq!(copied.parse(), Ok(token.clone()), "{copied}");
        }
    }

    #[test]
    fn a_cut_invitation_is_incomplete_wherever_it_is_cut() {
        let text = token().to_string();
        for length in 1..text.len() {
            assert_eq!(text[..length].parse::<Token>(), Err(BadToken::Incomplete), "{length}");
        }
        assert_eq!("".parse::<Token>(), Err(BadToken::NotOne));
        assert_eq!("hello".parse::<Token>(), Err(BadToken::NotOne));
        assert_eq!("ekiden2-abc".parse::<Token>(), Err(BadToken::Version));
    }

    #[test]
    fn a_mistyped_character_is_noticed() {
        let text = token().to_string();
        for at in PREFIX.len()..text.len() {
            let other = if &text[at..=at] == "A" { "B" } else { "A" };
            let mut wrong = text.clone();
            wrong.replace_range(at..=at, other);
            assert!(wrong.parse::<Token>().is_err(), "{at}");
        }
    }

    #[test]
    fn an_address_with_control_characters_is_refused() {
        assert!(token().to_string().parse::<Token>().is_ok());
        for address in ["a\u{1b}[2Jb:4433", "a\nb:4433", "a b:4433", "\u{202e}a:4433"] {
            let token = Token { address: address.to_owned(), ..token() };
            let read = token.to_string().parse::<Token>();
            assert_eq!(read, Err(BadToken::Damaged), "{address:?}");
        }
    }

    #[test]
    fn an_invitation_of_an_early_version_is_read() {
        let Token { address, fingerprint, secret, send, receive, .. } = token();
        let s = encode(&secret);
        let text = Text { a: address, f: fingerprint, s, u: send, d: receive, t: None, c: None };
        let text = serde_json::to_string(&text).unwrap();
        let text = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(text));
        assert_eq!(text.parse(), Ok(Token { made: None, ..token() }));
    }
}
