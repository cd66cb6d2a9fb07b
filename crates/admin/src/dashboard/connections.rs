//! Live connections, a page at a time, and one in full.

use crate::Shared;
use crate::problem::Problem;
use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use ekiden_proxy::observe::status::{ConnectionPage, ConnectionQuery, Explanation};
use std::sync::Arc;

/// Why a query is none.
pub(super) fn bad_query(error: &QueryRejection) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, "query", error.body_text())
}

pub(super) async fn page(
    State(shared): State<Arc<Shared>>,
    query: Result<Query<ConnectionQuery>, QueryRejection>,
) -> Result<Json<ConnectionPage>, Problem> {
    let Query(query) = query.map_err(|error| bad_query(&error))?;
    let page = shared.status.ask(move |handle| handle.connections(&query)).await?;
    Ok(Json(page))
}

pub(super) async fn explain(
    State(shared): State<Arc<Shared>>,
    id: Result<Path<u64>, PathRejection>,
) -> Result<Json<Explanation>, Problem> {
    let gone = |id: &str| {
        Problem::new(StatusCode::NOT_FOUND, "no-such-connection", format!("no connection {id} now"))
    };
    let Path(id) = id.map_err(|_| gone("of that number"))?;
    let found = shared.status.ask(move |handle| handle.explain(id)).await?;
    found.map(Json).ok_or_else(|| gone(&id.to_string()))
}
