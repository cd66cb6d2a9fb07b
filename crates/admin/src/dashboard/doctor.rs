//! What `ekiden doctor` finds on this machine, looked for when somebody asks: a look serves all for some seconds.

use crate::Shared;
use crate::problem::Problem;
use axum::Json;
use axum::extract::State;
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// How old a look may be.
const FRESH: Duration = Duration::from_secs(5);

/// The last look.
#[derive(Debug, Default)]
pub(super) struct LastLook(Mutex<Option<(Instant, Value)>>);

pub(super) async fn look(State(shared): State<Arc<Shared>>) -> Result<Json<Value>, Problem> {
    let running = shared.status.running()?;
    let doctor = running.doctor.clone();
    let mut last = shared.dashboard.doctor.0.lock().await;
    if let Some((at, found)) = &*last
        && at.elapsed() < FRESH
    {
        return Ok(Json(found.clone()));
    }
    let status = running.handle.overview();
    // it reads files and tries sockets
    let found = tokio::task::spawn_blocking(move || doctor.look(&status)).await;
    let found = found.map_err(|error| Problem::unavailable("doctor", error.to_string()))?;
    *last = Some((Instant::now(), found.clone()));
    Ok(Json(found))
}
