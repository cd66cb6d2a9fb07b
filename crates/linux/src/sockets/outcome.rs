//! Outcomes of a socket's options: a few bytes per connection ([`Outcomes`]), put into words
//! ([`OptionOutcome`]) on demand.

use crate::sockets::key::Key;
use crate::sockets::options::SocketOptions;
use crate::sockets::refusal::Refusal;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Where in its life a socket is when options are applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Before `listen`: accepted connections inherit most of it.
    Listening,
    /// Before `connect`.
    Connecting,
    /// Given by `accept`: the handshake is over.
    Accepted,
}

/// One option, in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OptionOutcome {
    /// The configuration's key, as `send_buffer`.
    pub option: &'static str,
    /// As asked.
    pub asked: String,
    /// As read back from the socket; absent when the socket has nothing of the kind.
    pub granted: Option<String>,
    /// Why it was refused, or granted in part, and the remedy.
    pub refused: Option<String>,
}

/// The socket's actual value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Granted {
    Nothing,
    /// In the unit of the kernel's option.
    Number(u64),
    /// A congestion control or a device.
    Name(Box<str>),
    Address(IpAddr),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) key: Key,
    /// Which of the congestion controls asked for; 0 for everything else.
    pub(crate) nth: u8,
    pub(crate) granted: Granted,
    pub(crate) refused: Option<Refusal>,
}

/// Every option asked of one socket, and its outcome. Options granted exactly as asked take no memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcomes {
    stage: Stage,
    /// A bit for each option read back as asked.
    as_asked: u32,
    /// Which of the congestion controls asked for was granted.
    nth: u8,
    others: Vec<Outcome>,
}

impl Outcomes {
    pub(crate) const fn new(stage: Stage) -> Self {
        Self { stage, as_asked: 0, nth: 0, others: Vec::new() }
    }

    pub(crate) fn granted_as_asked(&mut self, key: Key) {
        self.as_asked |= key.bit();
    }

    pub(crate) fn granted_nth(&mut self, key: Key, nth: u8) {
        self.nth = nth;
        self.granted_as_asked(key);
    }

    pub(crate) fn push(&mut self, key: Key, granted: Granted, refused: Option<Refusal>) {
        self.push_nth(key, 0, granted, refused);
    }

    pub(crate) fn push_nth(
        &mut self,
        key: Key,
        nth: u8,
        granted: Granted,
        refused: Option<Refusal>,
    ) {
        self.others.push(Outcome { key, nth, granted, refused });
    }

    /// Adds outcomes of options that were applied to the same socket at another time.
    pub fn add(&mut self, later: Self) {
        self.as_asked |= later.as_asked;
        self.others.extend(later.others);
    }

    /// The stage the options were applied at.
    pub const fn stage(&self) -> Stage {
        self.stage
    }

    /// Whether anything was refused, wholly or in part, a congestion control before the granted one
    /// too.
    pub fn any_refused(&self) -> bool {
        self.others.iter().any(|outcome| outcome.refused.is_some())
    }

    /// Whether `key` was refused, wholly or in part.
    pub fn refused(&self, key: Key) -> bool {
        self.others.iter().any(|outcome| outcome.key == key && outcome.refused.is_some())
    }

    /// In words, in the order of [`Key::ALL`]: one for each option asked for, and for each
    /// congestion control tried. `options` are those that were applied. Reads the sysctls that a
    /// reason names, so it is for people and not for every connection.
    pub fn in_words(&self, options: &SocketOptions) -> Vec<OptionOutcome> {
        let mut all = Vec::new();
        for key in Key::ALL {
            for outcome in self.others.iter().filter(|outcome| outcome.key == key) {
                let asked = key.asked(options, outcome.nth).unwrap_or_default();
                all.push(OptionOutcome {
                    option: key.name(),
                    granted: match &outcome.granted {
                        Granted::Nothing => None,
                        Granted::Number(number) => Some(key.text(*number)),
                        Granted::Name(name) => Some(name.to_string()),
                        Granted::Address(address) => Some(address.to_string()),
                    },
                    refused: outcome.refused.map(|why| why.text(key, options, &asked, self.stage)),
                    asked,
                });
            }
            if self.as_asked & key.bit() != 0 {
                let nth = if key == Key::Congestion { self.nth } else { 0 };
                let asked = key.asked(options, nth).unwrap_or_default();
                let granted = Some(asked.clone());
                all.push(OptionOutcome { option: key.name(), asked, granted, refused: None });
            }
        }
        all
    }
}
