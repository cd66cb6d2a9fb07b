//! Names for clients: which answers are kept, when a server is asked, which reply is believed, how many questions a
//! client may have and how many long replies go out, how askers share places, and which name a client has for an address.

mod answers;
#[cfg(test)]
mod answers_cases;
#[cfg(test)]
mod answers_laws;
mod asker;
mod capabilities;
#[cfg(test)]
mod capabilities_laws;
mod cookie;
mod heard;
mod long_replies;
mod places;
mod question_rate;
mod questions;
#[cfg(test)]
mod questions_laws;
mod shares;

pub use answers::{
    Answers, Config, Decision, Displaced, Found, Outcome, Released, STALE_TTL, Snapshot,
};
pub use asker::Asker;
pub use capabilities::{Capabilities, ReplyCookie, ReplyProof, Sending, Spelling, Verdict};
pub use cookie::{
    ClientCookie, Cookie, CookieSecret, ServerCookie, client_cookie, is_valid, server_cookie,
};
pub use heard::Heard;
pub use long_replies::LongReplies;
pub use places::{Places, Standing};
pub use question_rate::QuestionRate;
