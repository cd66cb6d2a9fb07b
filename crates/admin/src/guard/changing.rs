//! Calls that change something: what each means to do is known before it is done. So the audit log has it also where no
//! answer comes in time.

use super::{LONGEST, broken, late};
use crate::problem::Problem;
use axum::response::{IntoResponse, Response};
use ekiden_linux::host::panics::caught;
use ekiden_linux::host::sync::locked;
use std::sync::{Arc, Mutex};

/// What a call changed, or tried to, in words for the audit log; put into the answer by whoever did it.
#[derive(Debug, Clone)]
pub(crate) struct AuditedAction(pub(crate) String);

/// With what the audit log says of it, also where it was refused.
#[cfg(feature = "api")]
pub(crate) fn noted<T: IntoResponse>(what: String, done: Result<T, Problem>) -> Response {
    let (what, mut response) = match done {
        Ok(done) => (what, done.into_response()),
        Err(problem) => (format!("{what}: {}", problem.detail), problem.into_response()),
    };
    response.extensions_mut().insert(AuditedAction(what));
    response
}

/// What a call is about to change, in the same words. It is said before a database or a disk is asked, either of which
/// may do it and not answer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Intent(Arc<Mutex<String>>);

impl Intent {
    pub(crate) fn say(&self, what: &str) {
        *locked(&self.0) = what.to_owned();
    }
}

/// What came of a call.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) response: Response,
    /// For the audit log.
    pub(super) what: String,
    /// It was begun and gave no answer: it may have taken effect.
    pub(super) is_unknown: bool,
}

impl Outcome {
    /// Waits for the answer, 30 s at most.
    pub(super) async fn of(intent: &Intent, answer: impl Future<Output = Response>) -> Self {
        let mut problem: Problem = match tokio::time::timeout(LONGEST, caught(answer)).await {
            Ok(Ok(response)) => {
                let what = response.extensions().get::<AuditedAction>();
                let what = what.map_or_else(String::new, |what| what.0.clone());
                return Self { response, what, is_unknown: false };
            }
            Ok(Err(why)) => broken(why),
            Err(_) => late(),
        };
        let intent = locked(&intent.0).clone();
        if intent.is_empty() {
            let what = problem.detail.clone();
            return Self { response: problem.into_response(), what, is_unknown: false };
        }
        let what = format!("{intent}: {}", problem.detail);
        problem.detail.push_str("; it may have taken effect");
        let problem = problem.hint("look at what there is before you send it again");
        Self { response: problem.into_response(), what, is_unknown: true }
    }
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::*;
    use crate::Admin;
    use crate::reload::Reloads;
    use crate::server::serve;
    use crate::tests::config;
    use axum::extract::Extension;
    use axum::http::StatusCode;
    use axum::middleware::from_fn_with_state;
    use ekiden_config::At;
    use std::fs;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    const REMOVE: &str = "remove \"tanaka\"";

    async fn never(intent: &Intent) -> Outcome {
        Outcome::of(intent, std::future::pending()).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_without_an_answer_is_on_record_as_unknown_once_it_was_begun() {
        let intent = Intent::default();
        let before = never(&intent).await;
        assert_eq!((before.what.as_str(), before.is_unknown), ("not done within 30 s", false));
        intent.say(REMOVE);
        let late = never(&intent).await;
        assert_eq!(late.what, format!("{REMOVE}: not done within 30 s"));
        assert!(late.is_unknown && late.response.status() == 503);
    }

    #[tokio::test]
    async fn a_change_that_is_answered_is_on_record_with_the_answer_s_words() {
        let intent = Intent::default();
        intent.say(REMOVE);
        let mut response = StatusCode::NO_CONTENT.into_response();
        response.extensions_mut().insert(AuditedAction(REMOVE.to_owned()));
        let done = Outcome::of(&intent, std::future::ready(response)).await;
        assert!(!done.is_unknown && done.response.status() == 204 && done.what == REMOVE);
    }

    async fn breaks(Extension(intent): Extension<Intent>) -> StatusCode {
        intent.say(REMOVE);
        panic!("a test asked for it")
    }

    #[tokio::test]
    async fn a_call_that_panics_is_on_record_and_its_answer_says_that_it_may_have_taken_effect() {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path(), At::Address(([127, 0, 0, 1], 0).into()));
        let admin = Admin::start(&config, Reloads::new().0).await.unwrap().unwrap();
        let token = fs::read_to_string(folder.path().join("management.token")).unwrap();
        let guarded = from_fn_with_state(Arc::clone(&admin.shared), check);
        let router = axum::Router::new().route("/api/broken", axum::routing::post(breaks));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let serving = tokio::spawn(serve(Arc::new(listener), router.layer(guarded)));
        let request = format!(
            "POST /api/broken HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\nConnection: close\r\n\r\n",
            token.trim()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        assert!(answer.contains("a test asked for it; it may have taken effect"), "{answer}");
        let audit = fs::read_to_string(folder.path().join("audit-changes.jsonl")).unwrap();
        let said = "\"outcome\":\"unknown\",\"what\":\"remove \\\"tanaka\\\": a panic";
        assert!(audit.contains(said) && audit.lines().count() == 1, "{audit}");
        serving.abort();
        admin.stop().await;
    }
}
