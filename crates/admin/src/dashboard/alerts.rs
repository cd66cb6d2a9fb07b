//! A trial alert, as `ekiden alerts test` sends it. A receiver may take a minute to fail, so the page asks again for what
//! came back.

use crate::guard::noted;
use crate::problem::Problem;
use crate::{Shared, TrialAlerts, TrialOutcome};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use ekiden_linux::host::sync::locked;
use serde::Serialize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// For a trial: each receiver has a minute at most, and all are tried at once.
const LONGEST: Duration = Duration::from_secs(150);

/// The trial that was sent last.
#[derive(Debug, Default)]
pub(super) struct LastTrial(Arc<Mutex<Option<Trial>>>);

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

fn begun(shared: &Shared) -> Result<(), Problem> {
    let trials = shared.status.running()?.trials.clone();
    shared.dashboard.trial.begin(trials)
}

impl LastTrial {
    /// Begins a trial. Errors: one is under way.
    fn begin(&self, trials: TrialAlerts) -> Result<(), Problem> {
        {
            let mut last = locked(&self.0);
            if last.as_ref().is_some_and(|trial| trial.outcomes.is_none()) {
                let why = "a trial alert is under way already";
                return Err(Problem::new(StatusCode::CONFLICT, "under-way", why)
                    .hint("its outcome comes within a minute"));
            }
            let begun = jiff::Timestamp::now().as_millisecond();
            *last = Some(Trial { begun, outcomes: None });
        }
        let last = Arc::clone(&self.0);
        tokio::spawn(async move {
            // in a task of its own: a panic ends it, and not the trial
            let sending =
                tokio::spawn(async move { tokio::time::timeout(LONGEST, trials.send()).await });
            let outcomes = match sending.await {
                Ok(Ok(outcomes)) => outcomes,
                Ok(Err(_)) => broken(format!("no outcome within {} s", LONGEST.as_secs())),
                Err(error) => broken(format!("the trial broke off: {error}")),
            };
            if let Some(trial) = &mut *locked(&last) {
                trial.outcomes = Some(outcomes);
            }
        });
        Ok(())
    }
}

/// A trial that has no outcomes of its receivers.
fn broken(why: String) -> Vec<TrialOutcome> {
    vec![TrialOutcome { to: "all receivers".to_owned(), answer: None, error: Some(why) }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status_cache::TrialOutcomes;

    /// The outcome of a trial that is sent so.
    async fn outcome(send: fn() -> TrialOutcomes) -> String {
        let last = LastTrial::default();
        last.begin(TrialAlerts(Arc::new(send))).unwrap();
        assert_eq!(last.begin(TrialAlerts(Arc::new(send))).unwrap_err().status, 409);
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let trial = locked(&last.0).clone();
            if let Some(outcomes) = trial.and_then(|trial| trial.outcomes) {
                last.begin(TrialAlerts(Arc::new(send))).unwrap();
                return outcomes[0].error.clone().unwrap();
            }
        }
    }

    fn breaks() -> Vec<TrialOutcome> {
        panic!("no way")
    }

    #[tokio::test(start_paused = true)]
    async fn a_trial_that_breaks_off_or_never_returns_has_an_outcome() {
        let never = outcome(|| Box::pin(std::future::pending())).await;
        assert_eq!(never, "no outcome within 150 s");
        let broken = outcome(|| Box::pin(async { breaks() })).await;
        assert!(broken.contains("broke off"), "{broken}");
    }
}
