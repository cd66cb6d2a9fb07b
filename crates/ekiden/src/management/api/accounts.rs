//! `/api/v1/accounts`: what `ekiden user add|list|show|set|remove` does.

use super::body::Document;
use super::change::{Change, NewAccount};
use super::{Always, Problem, WithDocument};
use crate::management::Shared;
use crate::management::guard::What;
use crate::status::clean;
use crate::user_document::{Household, Households};
use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use ekiden_accounts::{Account, AccountId, Attributes};
use std::sync::Arc;

/// The name in the path.
type Named = Result<Path<String>, PathRejection>;

fn name(named: Named) -> Result<String, Problem> {
    let bad =
        |error: PathRejection| Problem::new(StatusCode::BAD_REQUEST, "path", error.body_text());
    named.map(|Path(name)| name).map_err(bad)
}

/// With what the audit log says of it, also where it was refused.
fn noted<T: IntoResponse>(what: String, done: Result<T, Problem>) -> Response {
    let (what, mut response) = match done {
        Ok(done) => (what, done.into_response()),
        Err(problem) => (format!("{what}: {}", problem.detail), problem.into_response()),
    };
    response.extensions_mut().insert(What(what));
    response
}

/// All accounts, by number
#[utoipa::path(get, path = "/api/v1/accounts", tag = "accounts", operation_id = "list_accounts", responses(
    (status = 200, description = "All of them", body = ref("#/components/schemas/Households")), Always
))]
pub(super) async fn list(State(shared): State<Arc<Shared>>) -> Result<Json<Households>, Problem> {
    let (_, accounts) = shared.look.store().await?.accounts().await?;
    Ok(Json(Households { households: accounts.iter().map(Household::of).collect() }))
}

/// One account
#[utoipa::path(get, path = "/api/v1/accounts/{name}", tag = "accounts", operation_id = "get_account",
    params(("name" = String, Path, description = "Its name", min_length = 1, max_length = 63, example = "tanaka")),
    responses(
        (status = 200, description = "The account", body = ref("#/components/schemas/Household")),
        (status = 404, description = "There is none of this name", body = ref("#/components/schemas/Problem"), content_type = "application/problem+json"),
        Always
))]
pub(super) async fn show(
    State(shared): State<Arc<Shared>>,
    named: Named,
) -> Result<Json<Household>, Problem> {
    let account = shared.look.store().await?.account(&name(named)?).await?;
    Ok(Json(Household::of(&account)))
}

/// Add an account
///
/// It may come in within a second, on every relay that uses the same accounts.
#[utoipa::path(post, path = "/api/v1/accounts", tag = "accounts", operation_id = "add_account",
    request_body(content = ref("#/components/schemas/NewAccount"), content_type = "application/json", example = json!({
        "name": "tanaka", "down": 5_000_000, "quota": 20_000_000_000_u64, "period": "month", "zone": "Asia/Tokyo",
        "devices": [{ "kind": "password", "user": "anna", "password": "a long password" }]
    })),
    responses(
        (status = 201, description = "It is added", body = ref("#/components/schemas/Household"),
            headers(("Location" = String, description = "Where it is"))),
        Always, WithDocument
))]
pub(super) async fn add(
    State(shared): State<Arc<Shared>>,
    document: Result<Document<NewAccount>, Problem>,
) -> Response {
    let mut what = "add".to_owned();
    let done = async {
        let Document { value: NewAccount(new), keys } = document?;
        let given = new.name.clone().unwrap_or_default();
        what = format!("add «{}»: {keys}", clean(&given));
        let attributes = Attributes::default();
        let mut account =
            Account { id: AccountId(0), name: given, devices: Vec::new(), attributes };
        let store = shared.look.store().await?;
        let devices = ready(&new).await?;
        new.apply(devices, &mut account)?;
        account.id = store.add(&account).await?;
        let location = format!("/api/v1/accounts/{}", encoded(&account.name));
        let head = [(header::LOCATION, location)];
        Ok((StatusCode::CREATED, head, Json(Household::of(&account))))
    };
    let done = done.await;
    noted(what, done)
}

/// Change an account
///
/// What is absent stays, null puts back the default. Connections follow within a second; those of an account that may
/// not come in any more end then.
#[utoipa::path(patch, path = "/api/v1/accounts/{name}", tag = "accounts", operation_id = "change_account",
    params(("name" = String, Path, description = "Its name", min_length = 1, max_length = 63, example = "tanaka")),
    request_body(content = ref("#/components/schemas/Change"), content_type = "application/json", example = json!({
        "down": null, "deny": [":25"], "devices": [{ "kind": "prefix", "prefix": "100.64.7.0/24", "name": "house" }]
    })),
    responses(
        (status = 200, description = "As it is now", body = ref("#/components/schemas/Household")),
        (status = 404, description = "There is none of this name", body = ref("#/components/schemas/Problem"), content_type = "application/problem+json"),
        Always, WithDocument
))]
pub(super) async fn change(
    State(shared): State<Arc<Shared>>,
    named: Named,
    document: Result<Document<Change>, Problem>,
) -> Response {
    let mut what = "change".to_owned();
    let done = async {
        let name = name(named)?;
        let Document { value: change, keys } = document?;
        what = format!("change «{}»: {keys}", clean(&name));
        let store = shared.look.store().await?;
        // not while the database is held
        store.account(&name).await?;
        let devices = ready(&change).await?;
        let account = store.change(&name, move |account| change.apply(devices, account)).await?;
        Ok(Json(Household::of(&account)))
    };
    let done = done.await;
    noted(what, done)
}

/// Remove an account
///
/// Its connections end within a second or two; what it used stays written down.
#[utoipa::path(delete, path = "/api/v1/accounts/{name}", tag = "accounts", operation_id = "remove_account",
    params(("name" = String, Path, description = "Its name", min_length = 1, max_length = 63, example = "tanaka")),
    responses(
        (status = 204, description = "It is removed"),
        (status = 404, description = "There is none of this name", body = ref("#/components/schemas/Problem"), content_type = "application/problem+json"),
        Always
))]
pub(super) async fn remove(State(shared): State<Arc<Shared>>, named: Named) -> Response {
    let mut what = "remove".to_owned();
    let done = async {
        let name = name(named)?;
        what = format!("remove «{}»", clean(&name));
        shared.look.store().await?.remove(&name).await?;
        Ok(StatusCode::NO_CONTENT)
    };
    let done = done.await;
    noted(what, done)
}

/// Devices with their passwords hashed.
async fn ready(
    change: &Change,
) -> Result<Vec<(crate::user_args::Devices, Option<String>)>, Problem> {
    let mut devices = Vec::new();
    for device in &change.devices {
        devices.push(device.clone().ready().await?);
    }
    Ok(devices)
}

/// A name as it stands in a path (RFC 3986 §2.1).
fn encoded(name: &str) -> String {
    let mut text = String::new();
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'@' => {
                text.push(char::from(byte));
            }
            other => text.push_str(&format!("%{other:02X}")),
        }
    }
    text
}
