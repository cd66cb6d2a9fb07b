//! How an exchange goes, and how it ends.

use crate::error::{Failure, FailureKind};
use crate::wire::http::BadMessage;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

pub(super) enum ExchangeError {
    /// Nothing was sent to the client yet, so the failure can be reported.
    Failed(Failure),
    /// The same, on a reused connection that the server closed without an answer: worth a second try.
    Stale,
    Broken(String),
}

pub(super) enum ExchangeOutcome {
    Response { keep_client: bool, keep_origin: bool },
    Upgraded,
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
