//! `/api/v1/usage`: what `ekiden account usage` prints.

use super::{CommonResponses, Problem, WithAccounts};
use crate::Shared;
use crate::documents::{self, Period, Periods};
use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use ekiden_accounts::{StoreError, Usage};
use jiff::civil::Date;
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;

/// PostgreSQL ends a statement after 30 s. One that is gone says nothing, and would keep the turn.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct UsageQuery {
    account: Option<String>,
    since: Option<Date>,
}

type UsageParameters = Result<Query<UsageQuery>, QueryRejection>;

async fn used(shared: &Shared, asked: UsageParameters) -> Result<Vec<Usage>, Problem> {
    let bad = |why: String| {
        Problem::new(StatusCode::BAD_REQUEST, "query", why).hint("?account=NAME&since=2026-10-01")
    };
    let Query(which) = asked.map_err(|error| bad(error.body_text()))?;
    let store = shared.status.store().await?;
    let adding_up = async move {
        let adding = ekiden_accounts::usage_since(&store, which.account.as_deref(), which.since);
        let late = Err(StoreError::Late(PATIENCE.as_secs()));
        tokio::time::timeout(PATIENCE, adding).await.unwrap_or(late)
    };
    let used = shared.usage.spawn(adding_up).await;
    Ok(used.map_err(|error| Problem::unavailable("usage", error.to_string()))??)
}

/// Get the usage of accounts, by period
///
/// Payload bytes that all relays have settled, at most 5 s old.
#[utoipa::path(get, path = "/api/v1/usage", tag = "usage", operation_id = "get_usage",
    params(
        ("account" = Option<String>, Query, description = "Only this account", min_length = 1, max_length = 63),
        ("since" = Option<String>, Query, description = "Only periods that began on this day or later, in each account's time zone", pattern = "^(19[7-9]|2[0-9]{2})[0-9]-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])$", example = "2026-10-01"),
    ),
    responses(
        (status = 200, description = "Usage by account, then by time", body = ref("#/components/schemas/Periods")),
        (status = 404, description = "No such account", body = ref("#/components/schemas/Problem"), content_type = "application/problem+json"),
        CommonResponses, WithAccounts
))]
pub(super) async fn periods(
    State(shared): State<Arc<Shared>>,
    asked: UsageParameters,
) -> Result<Json<Periods>, Problem> {
    let used = used(&shared, asked).await?;
    Ok(Json(Periods { usage: used.iter().map(Period::of).collect() }))
}

/// Get the usage as comma-separated values: account, name, begun, down, up
#[utoipa::path(get, path = "/api/v1/usage.csv", tag = "usage", operation_id = "get_usage_csv",
    params(
        ("account" = Option<String>, Query, description = "Only this account", min_length = 1, max_length = 63),
        ("since" = Option<String>, Query, description = "Only periods that began on this day or later, in each account's time zone", pattern = "^(19[7-9]|2[0-9]{2})[0-9]-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])$", example = "2026-10-01"),
    ),
    responses(
        (status = 200, description = "RFC 4180, with a head", body = String, content_type = "text/csv"),
        (status = 404, description = "No such account", body = ref("#/components/schemas/Problem"), content_type = "application/problem+json"),
        CommonResponses, WithAccounts
))]
pub(super) async fn csv(
    State(shared): State<Arc<Shared>>,
    asked: UsageParameters,
) -> Result<Response, Problem> {
    let used = used(&shared, asked).await?;
    let kind = [(header::CONTENT_TYPE, "text/csv; charset=utf-8; header=present")];
    Ok((kind, documents::csv(&used)).into_response())
}
