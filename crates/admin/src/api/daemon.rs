//! The relay itself: its status, reloads, and the relays that share its accounts.

use super::{CommonResponses, Problem};
use crate::Shared;
use crate::guard::{AuditedAction, Intent};
use axum::Json;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use ekiden_proxy::observe::status::{AccountsStatus, FleetStatus};
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;

/// Relays report every 5 s; two reports may be lost.
const LATE: f64 = 15.0;
/// After this time, its unused quota is granted to other relays.
const GONE: f64 = 600.0;

/// The relays that use the same accounts.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Fleet {
    /// Why the database is unreachable; the list is then outdated. Null while it is reachable.
    away: Option<String>,
    /// All relays, this one included.
    relays: Vec<FleetMember>,
}

/// A relay.
#[derive(Debug, Serialize, JsonSchema)]
struct FleetMember {
    /// Its name.
    name: String,
    /// Its version of ekiden.
    version: String,
    /// Seconds since its last report.
    seen_seconds_ago: f64,
    /// Its health.
    health: Health,
}

/// How a relay is.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Health {
    /// It reported within 15 s.
    Well,
    /// It reported within 10 min.
    Late,
    /// No report for longer.
    Gone,
}

/// The result of a reload.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Reloaded {
    /// Warnings, such as a change that needs a restart.
    pub(crate) warnings: Vec<String>,
}

/// Get the status, as `ekiden status --json`
#[utoipa::path(get, path = "/api/v1/status", tag = "relay", operation_id = "get_status", responses(
    (status = 200, description = "The status, at most 250 ms old", body = ref("#/components/schemas/Status")), CommonResponses
))]
pub(super) async fn status(State(shared): State<Arc<Shared>>) -> Result<Response, Problem> {
    let status = shared.status.status().await?;
    Ok(Json(&*status).into_response())
}

/// Reload the configuration, as SIGHUP does
///
/// Live connections keep their configuration, except for accounts' limits. Certificates are reloaded each second without
/// this. An error in the configuration changes nothing.
#[utoipa::path(post, path = "/api/v1/reload", tag = "relay", operation_id = "reload", responses(
    (status = 200, description = "The new configuration is in effect", body = ref("#/components/schemas/Reloaded")),
    (status = 409, description = "The configuration has errors; the old one stays in effect", body = ref("#/components/schemas/Problem"), content_type = "application/problem+json"),
    CommonResponses
))]
pub(super) async fn reload(
    State(shared): State<Arc<Shared>>,
    Extension(intent): Extension<Intent>,
) -> Response {
    let what = "reload";
    intent.say(what);
    let done = shared.reloads.ask().await;
    shared.status.forget().await;
    let mut response = match done {
        Ok(warnings) => Json(Reloaded { warnings }).into_response(),
        Err(wrong) => {
            let why = "the configuration has errors; the old one stays in effect";
            let problem = Problem::new(StatusCode::CONFLICT, "configuration", why)
                .hint("run `ekiden check` on the relay's machine for details");
            Problem { errors: wrong.into_iter().map(Into::into).collect(), ..problem }
                .into_response()
        }
    };
    response.extensions_mut().insert(AuditedAction(what.to_owned()));
    response
}

/// List the relays that use the same accounts, with their health
#[utoipa::path(get, path = "/api/v1/relays", tag = "relay", operation_id = "list_relays", responses(
    (status = 200, description = "All relays, this one included; none without accounts", body = ref("#/components/schemas/Fleet")), CommonResponses
))]
pub(super) async fn relays(State(shared): State<Arc<Shared>>) -> Result<Json<Fleet>, Problem> {
    let status = shared.status.status().await?;
    Ok(Json(fleet(status.accounts.as_ref())))
}

fn fleet(accounts: Option<&AccountsStatus>) -> Fleet {
    let relay = |relay: &FleetStatus| FleetMember {
        name: relay.name.clone(),
        version: relay.version.clone(),
        seen_seconds_ago: relay.seen_seconds_ago,
        health: match relay.seen_seconds_ago {
            ago if ago <= LATE => Health::Well,
            ago if ago <= GONE => Health::Late,
            _ => Health::Gone,
        },
    };
    Fleet {
        away: accounts.and_then(|accounts| accounts.away.clone()),
        relays: accounts.map_or_else(Vec::new, |a| a.relays.iter().map(relay).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silent_relays_are_late_and_then_gone() {
        let relay = |seen_seconds_ago| FleetStatus { seen_seconds_ago, ..FleetStatus::default() };
        let relays = vec![relay(3.0), relay(16.0), relay(3_600.0)];
        let fleet = fleet(Some(&AccountsStatus { relays, ..AccountsStatus::default() }));
        let health: Vec<_> =
            fleet.relays.iter().map(|relay| format!("{:?}", relay.health)).collect();
        assert_eq!(health, ["Well", "Late", "Gone"]);
    }
}
