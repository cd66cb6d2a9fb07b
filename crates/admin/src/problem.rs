//! What is answered when something is not done: RFC 9457, with what went wrong, where, and what to try.

use axum::Json;
#[cfg(feature = "api")]
use axum::extract::rejection::PathRejection;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use ekiden_accounts::{StoreError, UnreadableAccount};
use schemars::JsonSchema;
use serde::Serialize;

/// The media type of [`Problem`].
pub(super) const MEDIA_TYPE: &str = "application/problem+json";

/// A problem, as RFC 9457 has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Problem {
    /// Which kind: `urn:ekiden:` and a word that stays the same.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// The HTTP status in words.
    pub(crate) title: &'static str,
    /// The HTTP status.
    pub(crate) status: u16,
    /// What happened, for people.
    pub(crate) detail: String,
    /// What to try.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hint: Option<&'static str>,
    /// Where in the document that was sent, as JSON pointers, or which lines of the configuration.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) errors: Vec<FieldError>,
}

/// One of several things that are wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct FieldError {
    /// A JSON pointer (RFC 6901) into the document; empty where that makes no sense.
    pub(crate) pointer: String,
    /// What is wrong there.
    pub(crate) detail: String,
}

impl From<String> for FieldError {
    fn from(detail: String) -> Self {
        Self { pointer: String::new(), detail }
    }
}

impl Problem {
    pub(crate) fn new(status: StatusCode, word: &str, detail: impl Into<String>) -> Self {
        Self {
            kind: format!("urn:ekiden:{word}"),
            title: status.canonical_reason().unwrap_or_default(),
            status: status.as_u16(),
            detail: detail.into(),
            hint: None,
            errors: Vec::new(),
        }
    }

    /// What to try.
    pub(crate) fn hint(mut self, hint: &'static str) -> Self {
        self.hint = Some(hint);
        self
    }

    /// What makes no sense although it is of the right form.
    pub(crate) fn inconsistent(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "no-sense", detail)
    }

    /// What cannot be done now.
    pub(crate) fn unavailable(word: &str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, word, detail)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(self)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        match status {
            StatusCode::UNAUTHORIZED => {
                let challenge = HeaderValue::from_static("Bearer realm=\"ekiden\"");
                headers.insert(header::WWW_AUTHENTICATE, challenge);
            }
            StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
            }
            _ => {}
        }
        response
    }
}

#[cfg(feature = "api")]
impl From<PathRejection> for Problem {
    fn from(error: PathRejection) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "path", error.body_text())
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let (status, word) = match &error {
            StoreError::NoSuchAccount(_) => (StatusCode::NOT_FOUND, "no-such-account"),
            StoreError::NameTaken(_)
            | StoreError::NameSimilar { .. }
            | StoreError::CredentialTaken { .. } => (StatusCode::CONFLICT, "taken"),
            StoreError::DuplicateDevice(_) | StoreError::Name(_) | StoreError::Refused(_) => {
                return Self::inconsistent(error.to_string());
            }
            StoreError::Folder { .. }
            | StoreError::Address(_)
            | StoreError::Database(_)
            | StoreError::Unreached { .. }
            | StoreError::Late(_)
            | StoreError::Schema(_)
            | StoreError::Locked
            | StoreError::OtherDatabase { .. } => {
                return Self::unavailable("database", error.to_string())
                    .hint("known accounts keep working; try again when the database is reachable");
            }
            StoreError::Unreadable(account) => {
                return Self::unavailable("unreadable", account.to_string())
                    .hint(UnreadableAccount::REMEDY);
            }
        };
        Self::new(status, word, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_are_of_their_media_type_and_say_what_to_try() {
        let problem = Problem::unavailable("starting", "not yet").hint("wait");
        let text = serde_json::to_string(&problem).unwrap();
        insta::assert_snapshot!(text, @r#"{"type":"urn:ekiden:starting","title":"Service Unavailable","status":503,"detail":"not yet","hint":"wait"}"#);
        let response = problem.into_response();
        assert_eq!(response.headers()[header::CONTENT_TYPE], MEDIA_TYPE);
        assert_eq!(response.headers()[header::RETRY_AFTER], "5");
        let nobody = Problem::from(StoreError::NoSuchAccount("x".into()));
        assert_eq!((nobody.status, nobody.kind.as_str()), (404, "urn:ekiden:no-such-account"));
        let similar = StoreError::NameSimilar { there: "Ann".into(), asked: "ann".into() };
        let similar = Problem::from(similar);
        assert_eq!((similar.status, similar.kind.as_str()), (409, "urn:ekiden:taken"));
    }
}
