//! How an exchange goes, and how it ends.

use crate::error::{Failure, FailureKind};
use crate::observe::access_log::CutBy;
use crate::resources::HeldMemory;
use crate::wire::http::BadMessage;
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

pub(super) enum ExchangeError {
    /// Nothing was sent to the client yet, so the failure can be reported.
    Failed(Failure),
    /// The same, on a reused connection that the server closed without an answer: worth a second try.
    Stale,
    /// A proxy closed a new connection without an answer: another way may reach the destination.
    NoAnswer(Failure),
    Broken(Broken),
}

/// Why a message broke off, in words, and which end broke it off.
#[derive(Debug)]
pub(super) struct Broken {
    pub(super) by: CutBy,
    pub(super) why: String,
}

impl Broken {
    pub(super) fn by_client(error: impl Display) -> Self {
        Self { by: CutBy::Client, why: format!("the client's connection broke: {error}") }
    }

    pub(super) fn by_destination(why: impl Into<String>) -> Self {
        Self { by: CutBy::Destination, why: why.into() }
    }

    /// By a limit of this relay or of the account.
    pub(super) fn by_relay(why: impl Display) -> Self {
        Self { by: CutBy::Relay, why: why.to_string() }
    }
}

impl From<Broken> for ExchangeError {
    fn from(broken: Broken) -> Self {
        Self::Broken(broken)
    }
}

pub(super) enum ExchangeOutcome {
    Response {
        keep_client: bool,
        keep_origin: bool,
    },
    /// With what counts the bytes that came behind the answer.
    Upgraded(HeldMemory),
}

#[derive(Default)]
pub(super) struct Progress {
    pub(super) uploaded: AtomicBool,
    /// It was, or the server takes no more of it.
    pub(super) all_sent: AtomicBool,
    /// The final response's head has arrived.
    pub(super) arrived: AtomicBool,
    /// It may go to the client: nothing else can be answered.
    pub(super) answered: AtomicBool,
}

impl Progress {
    pub(super) fn is_uploaded(&self) -> bool {
        self.uploaded.load(Relaxed)
    }

    pub(super) fn has_sent_all(&self) -> bool {
        self.all_sent.load(Relaxed)
    }

    pub(super) fn has_arrived(&self) -> bool {
        self.arrived.load(Relaxed)
    }

    pub(super) fn is_answered(&self) -> bool {
        self.answered.load(Relaxed)
    }
}

impl From<Failure> for ExchangeError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<BadMessage> for ExchangeError {
    fn from(bad: BadMessage) -> Self {
        Self::Failed(Failure::new(
            FailureKind::BadAnswer,
            format!("the answer cannot be passed on: {bad}"),
        ))
    }
}
