//! A document that was sent: bounded, JSON, of its schema, and only then a value.

use super::check::Checker;
use super::{Problem, schemas};
use crate::audit::quoted;
use crate::problem::FieldError;
use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::{StatusCode, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::OnceLock;

/// The longest document, bytes: an account with hundreds of destinations has 20 KiB.
const LONGEST: usize = 64 << 10;

/// A value of which there is a schema: its name in the description.
pub(super) trait RequestBody: DeserializeOwned {
    const SCHEMA: &'static str;
}

pub(super) struct Document<T> {
    pub(super) value: T,
    /// What the audit log has of it: its keys, and their values where these hold no secrets.
    pub(super) noted: String,
}

impl<S: Sync, T: RequestBody> FromRequest<S> for Document<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let said = request.headers().get(header::CONTENT_TYPE);
        let said = said.and_then(|said| said.to_str().ok()).unwrap_or_default();
        let media = said.split(';').next().unwrap_or_default().trim();
        if !media.eq_ignore_ascii_case("application/json") {
            let why = "the document is to be application/json";
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "media-type", why)
                .hint("Content-Type: application/json"));
        }
        let body = Limited::new(request.into_body(), LONGEST).collect().await;
        let body: Bytes = body.map_err(|error| broken(&*error))?.to_bytes();
        let bad = |why: String| Problem::new(StatusCode::BAD_REQUEST, "document", why);
        let mut value: Value = serde_json::from_slice(&body)
            .map_err(|error| bad(format!("the document is not JSON: {error}")))?;
        whole(&mut value);
        let wrong = wrong::<T>(&value)?;
        if !wrong.is_empty() {
            let problem = bad("the document is not as the API's description says".to_owned());
            let problem = problem.hint("the schemas are in /api/v1/openapi.json");
            return Err(Problem { errors: wrong, ..problem });
        }
        let members = value.as_object().into_iter().flatten();
        let noted: BTreeSet<String> = members.map(|(key, value)| note(key, value)).collect();
        let noted = noted.into_iter().collect::<Vec<_>>().join(", ");
        let value = serde_json::from_value(value).map_err(|error| bad(error.to_string()))?;
        Ok(Self { value, noted })
    }
}

/// A key as the audit log has it. Devices have passwords, and lists may be long.
fn note(key: &str, value: &Value) -> String {
    match value {
        Value::Array(_) | Value::Object(_) => key.to_owned(),
        Value::Null => format!("{key} none"),
        Value::String(text) => format!("{key} {}", quoted(text)),
        Value::Bool(_) | Value::Number(_) => format!("{key} {value}"),
    }
}

/// A number without a fraction is an integer, however it is written (JSON Schema, Validation §6.1.1).
fn whole(value: &mut Value) {
    match value {
        Value::Number(number) => {
            let real = number.as_f64().filter(|x| number.is_f64() && x.fract() == 0.0);
            // beyond, a double is no exact number
            if let Some(x) = real.filter(|x| (0.0..9_007_199_254_740_992.0).contains(x)) {
                *value = Value::from(x as u64);
            }
        }
        Value::Array(list) => list.iter_mut().for_each(whole),
        Value::Object(map) => map.values_mut().for_each(whole),
        _ => {}
    }
}

fn broken(error: &(dyn std::error::Error + 'static)) -> Problem {
    if error.is::<LengthLimitError>() {
        let why = format!("the document is longer than {} KiB", LONGEST >> 10);
        return Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too-long", why)
            .hint("several calls may add to one account");
    }
    Problem::new(StatusCode::BAD_REQUEST, "document", format!("the document broke off: {error}"))
}

/// What does not fit the schema.
fn wrong<T: RequestBody>(value: &Value) -> Result<Vec<FieldError>, Problem> {
    static CHECKER: OnceLock<Result<Checker, String>> = OnceLock::new();
    let checker = CHECKER.get_or_init(|| Checker::new(schemas()));
    let checker = checker.as_ref().map_err(|why| Problem::unavailable("schema", why.clone()))?;
    Ok(checker.errors(T::SCHEMA, value))
}
