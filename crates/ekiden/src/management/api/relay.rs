//! The relay itself: its status, its configuration read again, the others that share its accounts.

use super::{Always, Problem};
use crate::management::Shared;
use crate::management::guard::What;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use ekiden_proxy::status::{AccountsStatus, FleetStatus};
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;

/// A relay says every five seconds that it is there; two of them may be lost.
const LATE: f64 = 15.0;
/// What it was granted of quotas and did not use is then granted to others.
const GONE: f64 = 600.0;

/// The relays that use the same accounts.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Fleet {
    /// Why the database is not there; what is said of relays is then as old. Null while it answers.
    away: Option<String>,
    /// This one too.
    relays: Vec<Member>,
}

/// A relay.
#[derive(Debug, Serialize, JsonSchema)]
struct Member {
    /// Its name.
    name: String,
    /// Which ekiden it is.
    version: String,
    /// Seconds since it was heard of last.
    seen_seconds_ago: f64,
    /// How it is.
    health: Health,
}

/// How a relay is.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Health {
    /// Heard of within 15 s.
    Well,
    /// Heard of within ten minutes.
    Late,
    /// Not heard of for longer.
    Gone,
}

/// What became of reading the configuration again.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Reloaded {
    /// What is not as it was meant, such as a change that needs a restart.
    pub(crate) warnings: Vec<String>,
}

/// One look at the relay, as `ekiden status --json`
#[utoipa::path(get, path = "/api/v1/status", tag = "relay", operation_id = "get_status", responses(
    (status = 200, description = "As of a moment ago", body = ref("#/components/schemas/Status")), Always
))]
pub(super) async fn status(State(shared): State<Arc<Shared>>) -> Result<Response, Problem> {
    let status = shared.look.status().await?;
    Ok(Json(&*status).into_response())
}

/// Read the configuration again, as SIGHUP does
///
/// Live connections keep the configuration they began with, but for households' limits. Certificates are looked at each
/// second without this. Where there is a mistake nothing changes.
#[utoipa::path(post, path = "/api/v1/reload", tag = "relay", operation_id = "reload", responses(
    (status = 200, description = "It holds", body = ref("#/components/schemas/Reloaded")),
    (status = 409, description = "There is a mistake in it, and the old one holds", body = ref("#/components/schemas/Problem"), content_type = "application/problem+json"),
    Always
))]
pub(super) async fn reload(State(shared): State<Arc<Shared>>) -> Response {
    let done = shared.reloads.ask().await;
    shared.look.forget().await;
    let mut response = match done {
        Ok(warnings) => Json(Reloaded { warnings }).into_response(),
        Err(wrong) => {
            let why = "the configuration has mistakes, and the old one holds";
            let problem = Problem::new(StatusCode::CONFLICT, "configuration", why)
                .hint("`ekiden check` on the relay's machine shows them with their lines");
            Problem { errors: wrong.into_iter().map(Into::into).collect(), ..problem }
                .into_response()
        }
    };
    response.extensions_mut().insert(What("reload".to_owned()));
    response
}

/// The relays that use the same accounts, with their health
#[utoipa::path(get, path = "/api/v1/relays", tag = "relay", operation_id = "list_relays", responses(
    (status = 200, description = "This one too; none without accounts", body = ref("#/components/schemas/Fleet")), Always
))]
pub(super) async fn relays(State(shared): State<Arc<Shared>>) -> Result<Json<Fleet>, Problem> {
    let status = shared.look.status().await?;
    Ok(Json(fleet(status.accounts.as_ref())))
}

fn fleet(accounts: Option<&AccountsStatus>) -> Fleet {
    let relay = |relay: &FleetStatus| Member {
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
    fn who_says_nothing_is_late_and_then_gone() {
        let relay = |seen_seconds_ago| FleetStatus { seen_seconds_ago, ..FleetStatus::default() };
        let relays = vec![relay(3.0), relay(16.0), relay(3_600.0)];
        let fleet = fleet(Some(&AccountsStatus { relays, ..AccountsStatus::default() }));
        let health: Vec<_> =
            fleet.relays.iter().map(|relay| format!("{:?}", relay.health)).collect();
        assert_eq!(health, ["Well", "Late", "Gone"]);
    }
}
