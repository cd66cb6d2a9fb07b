//! What `ekiden doctor` finds on this machine, looked for when somebody asks: a look serves all for some seconds.

use crate::problem::Problem;
use crate::{Shared, status_cache};
use axum::Json;
use axum::extract::State;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// How old a look may be.
const FRESH: Duration = Duration::from_secs(5);

/// The last look.
#[derive(Debug)]
pub(super) struct LastLook(status_cache::LastLook<Value>);

impl Default for LastLook {
    fn default() -> Self {
        Self(status_cache::LastLook::new(FRESH))
    }
}

pub(super) async fn look(State(shared): State<Arc<Shared>>) -> Result<Json<Value>, Problem> {
    let running = shared.status.running()?;
    let (handle, doctor) = (running.handle.clone(), running.doctor.clone());
    // it reads files and tries sockets
    let found = shared.dashboard.doctor.0.get(move || doctor.look(&handle.overview())).await;
    let found = found.map_err(|error| Problem::unavailable("doctor", error.to_string()))?;
    Ok(Json(Value::clone(&found)))
}
