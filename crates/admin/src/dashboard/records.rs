//! What is on record: the history, the audit log, and the configuration.

use super::connections::bad_query;
use crate::Shared;
use crate::audit::Kind;
use crate::history::{Chart, History};
use crate::problem::Problem;
use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use ekiden_linux::host::sync::locked;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::task::JoinError;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HistoryQuery {
    /// The series; without one the answer has the names of all.
    series: Option<String>,
    #[serde(default)]
    span: TimeSpan,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum TimeSpan {
    #[default]
    Hour,
    Day,
    Week,
    Month,
}

impl TimeSpan {
    const fn seconds(self) -> u64 {
        match self {
            Self::Hour => 3_600,
            Self::Day => 86_400,
            Self::Week => 7 * 86_400,
            Self::Month => 30 * 86_400,
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum HistoryAnswer {
    Names { series: Vec<String> },
    Chart(Chart),
}

pub(super) async fn history(
    State(shared): State<Arc<Shared>>,
    query: Result<Query<HistoryQuery>, QueryRejection>,
) -> Result<Json<HistoryAnswer>, Problem> {
    let Query(HistoryQuery { series, span }) = query.map_err(|error| bad_query(&error))?;
    let none = || {
        Problem::unavailable("no-history", "no history is kept: its folder cannot be used")
            .hint("the daemon's log says why")
    };
    let failed = |error: JoinError| Problem::unavailable("history", error.to_string());
    let history = shared.dashboard.history.get().ok_or_else(none)?;
    let Some(series) = series else {
        let series = history.ask(History::names).await.map_err(failed)?;
        return Ok(Json(HistoryAnswer::Names { series }));
    };
    let now = u64::try_from(jiff::Timestamp::now().as_second()).unwrap_or(0);
    let unknown = || {
        let why = "no samples of that name yet";
        Problem::new(StatusCode::NOT_FOUND, "no-such-series", why)
    };
    let chart = history.ask(move |history| history.chart(&series, now, span.seconds())).await;
    let chart = chart.map_err(failed)?.ok_or_else(unknown)?;
    Ok(Json(HistoryAnswer::Chart(chart)))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AuditQuery {
    kind: Kind,
}

/// The newest lines of the audit log, the newest first.
pub(super) async fn audit(
    State(shared): State<Arc<Shared>>,
    query: Result<Query<AuditQuery>, QueryRejection>,
) -> Result<Json<Value>, Problem> {
    let Query(AuditQuery { kind }) = query.map_err(|error| bad_query(&error))?;
    let path = shared.kept()?.audit.path(kind);
    let read = shared.dashboard.kept.with(move || crate::audit::newest(&path)).await;
    let failed = |error: String| Problem::unavailable("audit", error);
    let lines = read
        .map_err(|error| failed(error.to_string()))?
        .map_err(|error| failed(error.to_string()))?;
    Ok(Json(json!({ "lines": lines })))
}

pub(super) async fn configuration(State(shared): State<Arc<Shared>>) -> Json<Value> {
    Json(locked(&shared.dashboard.configuration).clone())
}
