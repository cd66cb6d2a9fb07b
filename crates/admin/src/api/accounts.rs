//! `/api/v1/accounts`: what `ekiden account add|list|show|set|remove` does.

use super::body::Document;
use super::change::{Change, NewAccount};
use super::device::{ChangedAccount, Ready};
use super::{CommonResponses, Problem, WithAccounts, WithDocument};
use crate::Shared;
use crate::documents::{AccountDocument, AccountList};
use crate::guard::{Intent, noted};
use crate::wireguard;
use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Extension, Path, State};
use axum::http::{StatusCode, header};
use axum::response::Response;
use ekiden_accounts::{Account, AccountId, Attributes};
use ekiden_config::printable;
use std::sync::Arc;

type AccountPath = Result<Path<String>, PathRejection>;

/// List all accounts, by number
#[utoipa::path(get, path = "/api/v1/accounts", tag = "accounts", operation_id = "list_accounts", responses(
    (status = 200, description = "The accounts", body = ref("#/components/schemas/Accounts")), CommonResponses, WithAccounts
))]
pub(super) async fn list(State(shared): State<Arc<Shared>>) -> Result<Json<AccountList>, Problem> {
    let accounts = shared.status.store().await?.accounts().await?.accounts;
    Ok(Json(AccountList { accounts: accounts.iter().map(AccountDocument::of).collect() }))
}

/// Get one account
#[utoipa::path(get, path = "/api/v1/accounts/{name}", tag = "accounts", operation_id = "get_account",
    params(("name" = String, Path, description = "The account's name", min_length = 1, max_length = 63, example = "tanaka")),
    responses(
        (status = 200, description = "The account", body = ref("#/components/schemas/Account")),
        (status = 404, description = "No such account", body = ref("#/components/schemas/Problem"), content_type = "application/problem+json"),
        CommonResponses, WithAccounts
))]
pub(super) async fn show(
    State(shared): State<Arc<Shared>>,
    named: AccountPath,
) -> Result<Json<AccountDocument>, Problem> {
    let Path(name) = named?;
    let account = shared.status.store().await?.account(&name).await?;
    Ok(Json(AccountDocument::of(&account)))
}

/// Add an account
///
/// Every relay that uses the same accounts admits it within a second.
#[utoipa::path(post, path = "/api/v1/accounts", tag = "accounts", operation_id = "add_account",
    request_body(content = ref("#/components/schemas/NewAccount"), content_type = "application/json", example = json!({
        "name": "tanaka", "down": 5_000_000, "quota": 20_000_000_000_u64, "period": "month", "zone": "Asia/Tokyo",
        "devices": [{ "kind": "password", "user": "anna", "password": "a long password" }]
    })),
    responses(
        (status = 201, description = "The account was added", body = ref("#/components/schemas/ChangedAccount"),
            headers(("Location" = String, description = "The account's URL"))),
        CommonResponses, WithDocument
))]
pub(super) async fn add(
    State(shared): State<Arc<Shared>>,
    Extension(intent): Extension<Intent>,
    document: Result<Document<NewAccount>, Problem>,
) -> Response {
    let mut what = "add".to_owned();
    let done = async {
        let Document { value: NewAccount(new), noted } = document?;
        let given = new.name.clone().unwrap_or_default();
        what = format!("add: {noted}");
        intent.say(&what);
        let attributes = Attributes::default();
        let mut account =
            Account { id: AccountId(0), name: given, devices: Vec::new(), attributes };
        let store = shared.status.store().await?;
        let Ready { devices, tunnels } = Ready::of(&new.devices, &shared).await?;
        new.apply(&devices, &mut account)?;
        let (account, given) = wireguard::add(&store, &account, &tunnels).await?;
        let location = format!("/api/v1/accounts/{}", encoded(&account.name));
        let head = [(header::LOCATION, location)];
        Ok((StatusCode::CREATED, head, Json(ChangedAccount::of(&account, &tunnels, &given))))
    };
    let done = done.await;
    noted(what, done)
}

/// Change an account
///
/// Absent fields keep their values; null restores the default. Live connections follow within a second, and end if the
/// account may no longer connect.
#[utoipa::path(patch, path = "/api/v1/accounts/{name}", tag = "accounts", operation_id = "change_account",
    params(("name" = String, Path, description = "The account's name", min_length = 1, max_length = 63, example = "tanaka")),
    request_body(content = ref("#/components/schemas/Change"), content_type = "application/json", example = json!({
        "down": null, "deny": [":25"], "devices": [{ "kind": "prefix", "prefix": "100.64.7.0/24", "name": "house" }]
    })),
    responses(
        (status = 200, description = "The changed account", body = ref("#/components/schemas/ChangedAccount")),
        (status = 404, description = "No such account", body = ref("#/components/schemas/Problem"), content_type = "application/problem+json"),
        CommonResponses, WithDocument
))]
pub(super) async fn change(
    State(shared): State<Arc<Shared>>,
    Extension(intent): Extension<Intent>,
    named: AccountPath,
    document: Result<Document<Change>, Problem>,
) -> Response {
    let mut what = "change".to_owned();
    let done = async {
        let Path(name) = named?;
        let Document { value: change, noted } = document?;
        what = format!("change \"{}\": {noted}", printable(&name));
        intent.say(&what);
        let store = shared.status.store().await?;
        // not while the database is held
        store.account(&name).await?;
        let Ready { devices, tunnels } = Ready::of(&change.devices, &shared).await?;
        let apply = |account: &mut Account| change.apply(&devices, account);
        let (account, given) = wireguard::change(&store, &name, &tunnels, apply).await?;
        Ok(Json(ChangedAccount::of(&account, &tunnels, &given)))
    };
    let done = done.await;
    noted(what, done)
}

/// Remove an account
///
/// Its connections end within a second; its recorded usage stays.
#[utoipa::path(delete, path = "/api/v1/accounts/{name}", tag = "accounts", operation_id = "remove_account",
    params(("name" = String, Path, description = "The account's name", min_length = 1, max_length = 63, example = "tanaka")),
    responses(
        (status = 204, description = "The account was removed"),
        (status = 404, description = "No such account", body = ref("#/components/schemas/Problem"), content_type = "application/problem+json"),
        CommonResponses, WithAccounts
))]
pub(super) async fn remove(
    State(shared): State<Arc<Shared>>,
    Extension(intent): Extension<Intent>,
    named: AccountPath,
) -> Response {
    let mut what = "remove".to_owned();
    let done = async {
        let Path(name) = named?;
        what = format!("remove \"{}\"", printable(&name));
        intent.say(&what);
        shared.status.store().await?.remove(&name).await?;
        Ok(StatusCode::NO_CONTENT)
    };
    let done = done.await;
    noted(what, done)
}

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
