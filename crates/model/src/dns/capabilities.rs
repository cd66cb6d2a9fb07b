//! What is known of a server that is asked over UDP, and whether its replies are believed: the case of the question
//! (draft-vixie-dnsext-dns0x20), cookies (RFC 7873), EDNS (RFC 6891).
//!
//! For each question the driver takes [`Capabilities::sending`], sends, and hands each reply whose identifier and
//! question fit to [`Capabilities::on_reply`] until the verdict is other than [`Verdict::Drop`].

use super::cookie::{ClientCookie, Cookie, ServerCookie};
use crate::units::{Span, Time};

/// After so many replies in a row that a property is missing from, the server is taken to lack it.
const IN_A_ROW: u8 = 4;
/// For so long; then it is tried again.
const REMEMBERED: Span = Span::from_secs(3_600);

const NO_ERROR: u16 = 0;
const FORMAT_ERROR: u16 = 1;
const BAD_COOKIE: u16 = 23;

/// How a question is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sending {
    /// Over TCP, because the server changes the case of names.
    pub tcp: bool,
    /// With EDNS.
    pub edns: bool,
    /// The cookie, within EDNS; `None`: without one.
    pub cookie: Option<Cookie>,
    /// It repeats a question whose cookie the server refused.
    cookie_refused: bool,
    /// It repeats a question that the server could not read with EDNS.
    edns_refused: bool,
}

/// How a reply spells the question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spelling {
    /// As it was sent.
    Same,
    /// The same name in another case.
    Other,
    /// There is no question in it.
    Absent,
}

/// The cookie in a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyCookie {
    /// There is none.
    Absent,
    /// Its length is not allowed.
    Malformed,
    /// This one.
    Present(Cookie),
}

/// A reply to the question, as far as it can be forged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyProof {
    /// How it spells the question.
    pub spelling: Spelling,
    /// The cookie in it.
    pub cookie: ReplyCookie,
    /// Its code, with the bits that EDNS adds.
    pub code: u16,
}

/// What becomes of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is believed.
    Believe,
    /// It is forged; the true one may still come.
    Drop,
    /// It may be forged, or the server lacks what would prove it: the question goes over TCP.
    Doubt,
    /// The server wants the question over TCP.
    Tcp,
    /// The question is sent again, in this way.
    Repeat(Sending),
}

/// What is known of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// The server's cookie, and the client's that it belongs to.
    cookie: Option<(ClientCookie, ServerCookie)>,
    /// Replies in a row without the cookie that was expected.
    without_cookie: u8,
    /// Replies in a row in another case.
    in_other_case: u8,
    other_case_until: Time,
    no_edns_until: Time,
}

impl Capabilities {
    /// How the next question is sent. `client`: the cookie of this client; `None`: it has none.
    pub fn sending(&self, now: Time, client: Option<ClientCookie>) -> Sending {
        let edns = now >= self.no_edns_until;
        let of = |client| {
            // a server's cookie holds for the client's that it was given for
            let known = self.cookie.filter(|(known, _)| *known == client);
            Cookie { client, server: known.map(|(_, server)| server) }
        };
        Sending {
            tcp: self.changes_case(now),
            edns,
            cookie: client.filter(|_| edns).map(of),
            cookie_refused: false,
            edns_refused: false,
        }
    }

    /// Judges a reply to a question that was sent so.
    pub fn on_reply(&mut self, now: Time, sent: &Sending, reply: &ReplyProof) -> Verdict {
        // RFC 7873 §5.3
        let cookie = match (reply.cookie, &sent.cookie) {
            (ReplyCookie::Present(cookie), Some(own)) if cookie.client == own.client => {
                Some(cookie)
            }
            (ReplyCookie::Absent, _) => None,
            _ => return Verdict::Drop,
        };
        if reply.spelling == Spelling::Other {
            self.in_other_case = self.in_other_case.saturating_add(1);
            if self.in_other_case >= IN_A_ROW {
                // the next one after this time decides at once
                self.in_other_case = IN_A_ROW - 1;
                self.other_case_until = now + REMEMBERED;
            }
            return Verdict::Doubt;
        }
        let expected = sent.cookie.is_some_and(|cookie| cookie.server.is_some());
        if expected && cookie.is_none() {
            self.without_cookie = self.without_cookie.saturating_add(1);
            if self.without_cookie >= IN_A_ROW {
                (self.cookie, self.without_cookie) = (None, 0);
            }
            return Verdict::Doubt;
        }
        if reply.spelling == Spelling::Same {
            self.in_other_case = 0;
        }
        if let Some(Cookie { client, server: Some(server) }) = cookie {
            (self.cookie, self.without_cookie) = (Some((client, server)), 0);
        }
        match reply.code {
            BAD_COOKIE if sent.cookie_refused => Verdict::Tcp,
            BAD_COOKIE => match cookie {
                Some(cookie) if cookie.server.is_some() => {
                    let cookie = Some(cookie);
                    Verdict::Repeat(Sending { cookie, cookie_refused: true, ..*sent })
                }
                _ => Verdict::Tcp,
            },
            FORMAT_ERROR if sent.edns => {
                Verdict::Repeat(Sending { edns: false, cookie: None, edns_refused: true, ..*sent })
            }
            // nothing in it proves where it comes from
            _ if reply.spelling == Spelling::Absent && cookie.is_none() => Verdict::Doubt,
            code => {
                if sent.edns_refused && code == NO_ERROR {
                    self.no_edns_until = now + REMEMBERED;
                }
                Verdict::Believe
            }
        }
    }

    /// Whether the server changes the case of names, and is asked over TCP for that.
    pub fn changes_case(&self, now: Time) -> bool {
        now < self.other_case_until
    }

    /// Whether the server has given a cookie.
    pub const fn has_cookie(&self) -> bool {
        self.cookie.is_some()
    }

    /// Whether the server is asked without EDNS.
    pub fn lacks_edns(&self, now: Time) -> bool {
        now < self.no_edns_until
    }
}
