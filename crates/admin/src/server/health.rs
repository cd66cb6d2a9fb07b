//! `/healthz` and `/readyz`: whether the process serves, and whether to send it clients. They need
//! no token: systemd, balancers and containers can keep none, and connecting to the proxy's port
//! tells as much.

use crate::Shared;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use ekiden_proxy::observe::status::Status;
use std::sync::Arc;

pub(crate) async fn alive() -> &'static str {
    "ok\n"
}

/// 200 when clients may come; 503 with the reason otherwise.
pub(crate) async fn ready(State(shared): State<Arc<Shared>>) -> Response {
    let look = shared.status.status().await.map_err(|problem| problem.detail);
    match look.and_then(|status| is_ready(&status)) {
        Ok(line) => format!("{line}\n").into_response(),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
    }
}

fn is_ready(status: &Status) -> Result<String, String> {
    if status.stopping {
        return Err("stopping: live connections end, new ones are rejected".to_owned());
    }
    if status.listen.is_empty() {
        return Err("no address listens".to_owned());
    }
    match &status.accounts {
        // known accounts are served without it: sending clients elsewhere would help nobody
        Some(accounts) if accounts.away.is_some() => Ok(format!(
            "ready; the accounts' database is unreachable, serving {} known accounts",
            accounts.known
        )),
        _ => Ok("ready".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ekiden_proxy::observe::status::AccountsStatus;

    #[test]
    fn ready_while_doors_listen_and_not_while_draining() {
        let mut status = crate::sample();
        status.accounts = None;
        assert_eq!(is_ready(&status), Ok("ready".to_owned()));
        let away = Some("no answer".to_owned());
        status.accounts = Some(AccountsStatus { known: 3, away, ..AccountsStatus::default() });
        assert!(is_ready(&status).unwrap().contains("serving 3 known accounts"));
        status.listen.clear();
        assert_eq!(is_ready(&status), Err("no address listens".to_owned()));
        status.stopping = true;
        assert!(is_ready(&status).unwrap_err().starts_with("stopping"));
    }
}
