//! Peers and invitations, as `ekiden peer` has them.

use crate::Shared;
use crate::guard::{Intent, noted};
use crate::peers::{self, Invitation, InviteError};
use crate::problem::Problem;
use axum::Json;
use axum::body::{Body, to_bytes};
use axum::extract::rejection::PathRejection;
use axum::extract::{Extension, Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use ekiden_config::printable;
use ekiden_model::units::Rate;
use ekiden_proxy::wire::qr::QrPath;
use ekiden_tunnel::core::Terms;
use ekiden_tunnel::trust::{Store, StoreError};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// Bytes of an invitation's document.
const LONGEST: usize = 4096;

/// Whom to invite; rates in bits per second.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Invite {
    name: String,
    address: String,
    send: u64,
    receive: u64,
    #[serde(default)]
    renew: bool,
}

fn store(shared: &Shared) -> Result<Store, Problem> {
    let none = || {
        Problem::unavailable("no-home", "no home directory for peers")
            .hint("set `state` in [tunnel], and restart the daemon")
    };
    shared.dashboard.peers.clone().map(Store::new).ok_or_else(none)
}

fn kept(error: &StoreError) -> Problem {
    match error {
        StoreError::NotKnown(_) => {
            Problem::new(StatusCode::NOT_FOUND, "no-such-peer", error.to_string())
        }
        _ => Problem::unavailable("peers", error.to_string()),
    }
}

/// Reads and writes files, so not on a thread that relays.
async fn blocking<T: Send + 'static>(
    shared: &Shared,
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let done = shared.dashboard.kept.with(work).await;
    done.map_err(|error| Problem::unavailable("peers", error.to_string()))?
}

pub(super) async fn list(State(shared): State<Arc<Shared>>) -> Result<Json<Value>, Problem> {
    let status = shared.status.summary(0).await?.status;
    let store = store(&shared)?;
    let peers = blocking(&shared, move || store.peers().map_err(|error| kept(&error))).await?;
    let up = |name: &str| status.tunnels.iter().find(|line| line.peer == name).map(|line| line.up);
    let peers: Vec<_> = peers.iter().map(|peer| peers::document(peer, up(&peer.name))).collect();
    Ok(Json(json!({ "peers": peers, "listens": shared.dashboard.listens })))
}

/// Makes an invitation; its secret is in this answer and nowhere else.
pub(super) async fn invite(
    State(shared): State<Arc<Shared>>,
    Extension(intent): Extension<Intent>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let mut what = "invite".to_owned();
    let done = async {
        let json = headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
        let bad = |why: String| Problem::new(StatusCode::BAD_REQUEST, "document", why);
        let body = to_bytes(body, LONGEST).await.map_err(|error| bad(error.to_string()))?;
        if !json {
            return Err(bad("the document is to be application/json".to_owned()));
        }
        let asked: Invite =
            serde_json::from_slice(&body).map_err(|error| bad(error.to_string()))?;
        let Invite { name, address, send, receive, renew } = asked;
        what = format!("invite \"{}\" to {}", printable(&name), printable(&address));
        intent.say(&what);
        ekiden_config::name(&name).map_err(Problem::inconsistent)?;
        ekiden_proxy::destination::Destination::parse(&address, None)
            .map_err(|_| Problem::inconsistent("the address is not host:port"))?;
        let rate = Rate::from_bits_per_second;
        let terms = Terms { send: rate(send), receive: rate(receive), dedicated: None };
        let fields = ["The link carries towards it:", "The link carries from it:"];
        peers::check_rates(&terms, fields).map_err(Problem::inconsistent)?;
        let store = store(&shared)?;
        let token = blocking(&shared, move || {
            let invitation = Invitation { name, address, terms, renew };
            let made = peers::invite(&store, invitation);
            let taken = |error: InviteError| match error {
                InviteError::Taken(name) => format!(
                    "a peer `{name}` is known already, and its line was shown once; choose another name, or replace the peer of this name"
                ),
                other => other.to_string(),
            };
            let taken = |error| Problem::new(StatusCode::CONFLICT, "taken", taken(error));
            made.map(|(token, _)| token).map_err(taken)
        });
        let token = token.await?;
        let link = token.link();
        let code = QrPath::new(&link).map(|code| json!({ "side": code.side, "path": code.path }));
        Ok((
            StatusCode::CREATED,
            Json(json!({ "invitation": token.to_string(), "link": link, "code": code })),
        ))
    };
    let done = done.await;
    noted(what, done)
}

pub(super) async fn revoke(
    State(shared): State<Arc<Shared>>,
    Extension(intent): Extension<Intent>,
    named: Result<Path<String>, PathRejection>,
) -> Response {
    let mut what = "revoke".to_owned();
    let done = async {
        let Path(name) = named?;
        what = format!("revoke \"{}\"", printable(&name));
        intent.say(&what);
        let store = store(&shared)?;
        blocking(&shared, move || store.remove(&name).map_err(|error| kept(&error))).await?;
        Ok(StatusCode::NO_CONTENT)
    };
    let done = done.await;
    noted(what, done)
}
