//! Names for clients: which answers are kept, when a server is asked, how many questions a client may have, and
//! which name a client has for an address.

mod answers;
#[cfg(test)]
mod answers_cases;
#[cfg(test)]
mod answers_laws;
mod heard;
mod question_rate;

pub use answers::{Answers, Config, Decision, Found, Outcome, Released, STALE_TTL, Snapshot};
pub use heard::Heard;
pub use question_rate::QuestionRate;
