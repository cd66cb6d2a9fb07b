//! `/healthz` and `/readyz`: whether the process serves, and whether to send it clients. They need
//! no token: systemd, balancers and containers can keep none, and connecting to the proxy's port
//! tells as much.
//!
//! A task looks at the relay each second. An answer waits for neither the relay nor its database: it
//! is what the last look found, and that the relay is stuck where a look does not end.

use crate::Shared;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use ekiden_linux::host::sync::locked;
use ekiden_proxy::observe::status::Status;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::time::MissedTickBehavior;

/// Between two looks.
const LOOK: Duration = Duration::from_secs(1);
/// Between two times that the file of operators is read, so that its trouble is known before
/// somebody logs in.
const OPERATORS: Duration = Duration::from_secs(5);
/// A look that takes longer means that the relay is stuck. A slow disk may hold one up for seconds.
const STUCK: Duration = Duration::from_secs(30);

pub(crate) async fn alive() -> &'static str {
    "ok\n"
}

/// 200 when clients may come; 503 with the reason otherwise.
pub(crate) async fn ready(State(shared): State<Arc<Shared>>) -> Response {
    let known = match shared.status.running() {
        // known at once, and not with the next look
        Ok(running) if running.handle.is_stopping() => Err(STOPPING.to_owned()),
        Ok(_) => shared.readiness.at(Instant::now()),
        Err(problem) => Err(problem.detail),
    };
    match known {
        Ok(line) => format!("{line}\n").into_response(),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
    }
}

const STOPPING: &str = "stopping: live connections end, new ones are rejected";

/// What the last look at the relay found.
#[derive(Debug, Default)]
pub(crate) struct Readiness {
    last: Mutex<Option<(Instant, Result<String, String>)>>,
    /// The relay runs: it is looked at at once.
    runs: Notify,
}

impl Readiness {
    pub(crate) fn on_running(&self) {
        self.runs.notify_one();
    }

    fn on_look(&self, status: &Status, now: Instant) {
        *locked(&self.last) = Some((now, is_ready(status)));
    }

    fn at(&self, now: Instant) -> Result<String, String> {
        let Some((looked, found)) = locked(&self.last).clone() else {
            return Err("the relay is starting".to_owned());
        };
        let age = now.saturating_duration_since(looked);
        if age > STUCK {
            return Err(format!("the relay has reported no status for {} s", age.as_secs()));
        }
        found
    }
}

/// Looks at the relay each second, until the task is ended.
pub(crate) async fn watch(shared: Arc<Shared>) {
    let mut tick = tokio::time::interval(LOOK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            () = shared.readiness.runs.notified() => {}
        }
        let Ok(running) = shared.status.running() else { continue };
        let handle = running.handle.clone();
        // on no thread that relays, and a look that does not end is the only one
        let of = Arc::clone(&shared);
        let looked = tokio::task::spawn_blocking(move || {
            if let Ok(kept) = &of.kept {
                kept.audit.count_refused();
            }
            handle.summary(0).status
        });
        if let Ok(status) = looked.await {
            shared.readiness.on_look(&status, Instant::now());
        }
    }
}

/// Reads the file of operators every five seconds, until the task is ended. No look waits for its disk.
pub(crate) async fn watch_operators(shared: Arc<Shared>) {
    let mut tick = tokio::time::interval(OPERATORS);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let Ok(running) = shared.status.running() else { continue };
        let (alerts, of) = (running.handle.alerts(), Arc::clone(&shared));
        let read = move || alerts.on_operators_read(of.operators.check());
        // where it panicked, it is read again
        let _read = shared.reading_operators.spawn_blocking(read).await;
    }
}

fn is_ready(status: &Status) -> Result<String, String> {
    if status.stopping {
        return Err(STOPPING.to_owned());
    }
    if status.listen.is_empty() {
        return Err("no address listens".to_owned());
    }
    let Some(accounts) = &status.accounts else { return Ok("ready".to_owned()) };
    match &accounts.away {
        Some(why) if accounts.known == 0 => Err(format!(
            "the accounts' database is unreachable and no account is known from before: {why}"
        )),
        // known accounts are served without it: sending clients elsewhere would help nobody
        Some(_) => Ok(format!(
            "ready; the accounts' database is unreachable, serving {} known accounts",
            accounts.known
        )),
        None => Ok("ready".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::operators::hang;
    use crate::reload::Reloads;
    use crate::tests::config;
    use crate::{Admin, Doctor, Running, TrialAlerts};
    use ekiden_config::At;
    use ekiden_proxy::Server;
    use ekiden_proxy::observe::status::AccountsStatus;
    use ekiden_proxy::settings::Settings;
    use std::net::SocketAddr;

    #[test]
    fn ready_while_doors_listen_and_not_while_draining() {
        let mut status = crate::sample();
        status.accounts = None;
        assert_eq!(is_ready(&status), Ok("ready".to_owned()));
        let away = Some("no answer".to_owned());
        status.accounts = Some(AccountsStatus { known: 3, away, ..AccountsStatus::default() });
        assert!(is_ready(&status).unwrap().contains("serving 3 known accounts"));
        status.accounts.as_mut().unwrap().known = 0;
        let why = is_ready(&status).unwrap_err();
        assert!(why.contains("no account is known") && why.contains("no answer"), "{why}");
        status.listen.clear();
        assert_eq!(is_ready(&status), Err("no address listens".to_owned()));
        status.stopping = true;
        assert!(is_ready(&status).unwrap_err().starts_with("stopping"));
    }

    #[test]
    fn a_relay_that_reports_no_status_is_not_ready() {
        let (readiness, start) = (Readiness::default(), Instant::now());
        assert_eq!(readiness.at(start), Err("the relay is starting".to_owned()));
        let mut status = crate::sample();
        status.accounts = None;
        readiness.on_look(&status, start);
        assert_eq!(readiness.at(start + STUCK), Ok("ready".to_owned()));
        let stuck = readiness.at(start + STUCK + Duration::from_secs(5)).unwrap_err();
        assert!(stuck.ends_with("for 35 s"), "{stuck}");
        readiness.on_look(&status, start + STUCK);
        assert!(readiness.at(start + STUCK + Duration::from_secs(5)).is_ok());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn looks_do_not_wait_for_the_file_of_operators() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path(), At::Address(any));
        let admin = Admin::start(&config, Reloads::new().0).await.unwrap().unwrap();
        let go = hang(&admin.shared);
        let settings = Settings { listen: vec![any], ..Settings::default() };
        let server = Server::start(Arc::new(settings)).unwrap();
        let doctor = Doctor(Arc::new(|_| serde_json::Value::Null));
        let trials = TrialAlerts(Arc::new(|| Box::pin(std::future::ready(Vec::new()))));
        admin.runs(Running { handle: server.handle(), sync: None, doctor, trials });
        let readiness = &admin.shared.readiness;
        let looked = || locked(&readiness.last).as_ref().map(|(at, _)| *at);
        for _ in 0..12 {
            let before = looked();
            readiness.on_running();
            let next = async {
                while looked() == before {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            tokio::time::timeout(STUCK, next).await.expect("another look");
        }
        drop(go);
        admin.stop().await;
    }
}
