//! A trial alert, as `ekiden alerts test` sends it. A receiver may take a minute to fail, so the page asks again for what
//! came back.

use crate::guard::noted;
use crate::problem::Problem;
use crate::{Shared, TrialOutcome};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use ekiden_linux::host::sync::locked;
use serde::Serialize;
use std::sync::{Arc, Mutex};

/// The trial that was sent last.
#[derive(Debug, Default)]
pub(super) struct LastTrial(Mutex<Option<Trial>>);

/// A trial.
#[derive(Debug, Clone, Serialize)]
struct Trial {
    /// Milliseconds since 1970.
    begun: i64,
    /// One for each receiver; null while it is under way.
    outcomes: Option<Vec<TrialOutcome>>,
}

/// The last trial.
#[derive(Debug, Serialize)]
pub(super) struct TrialDocument {
    trial: Option<Trial>,
}

pub(super) async fn last(State(shared): State<Arc<Shared>>) -> Json<TrialDocument> {
    Json(TrialDocument { trial: locked(&shared.dashboard.trial.0).clone() })
}

/// Begins a trial, unless one is under way.
pub(super) async fn begin(State(shared): State<Arc<Shared>>) -> Response {
    noted("send a trial alert".to_owned(), begun(&shared).map(|()| StatusCode::ACCEPTED))
}

fn begun(shared: &Arc<Shared>) -> Result<(), Problem> {
    let trials = shared.status.running()?.trials.clone();
    {
        let mut last = locked(&shared.dashboard.trial.0);
        if last.as_ref().is_some_and(|trial| trial.outcomes.is_none()) {
            let why = "a trial alert is under way already";
            return Err(Problem::new(StatusCode::CONFLICT, "under-way", why)
                .hint("its outcome comes within a minute"));
        }
        let begun = jiff::Timestamp::now().as_millisecond();
        *last = Some(Trial { begun, outcomes: None });
    }
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        let outcomes = trials.send().await;
        if let Some(trial) = &mut *locked(&shared.dashboard.trial.0) {
            trial.outcomes = Some(outcomes);
        }
    });
    Ok(())
}
