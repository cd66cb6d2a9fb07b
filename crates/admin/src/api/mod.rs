//! The API below `/api/v1`: routes and their description. Handlers describe their paths (`utoipa`),
//! types their schemas (`schemars`), and documents are validated against these.

mod accounts;
mod body;
mod change;
mod check;
mod daemon;
mod device;
mod usage;

use super::Shared;
use super::problem::{MEDIA_TYPE, Problem};
use crate::documents::{AccountDocument, AccountList, Periods};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use ekiden_proxy::observe::status::Status;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, ResponseBuilder};
use utoipa::{IntoResponses, OpenApi};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Where schemas stand in the description.
const SCHEMAS: &str = "/components/schemas";

#[derive(OpenApi)]
#[openapi(info(
    title = "Ekiden's management API",
    description = "Manages accounts, their usage and the relay itself. It is for programs on the relay's own machine, at 127.0.0.1:9128 unless [management] sets another address. Every call needs the token of `ekiden token show` as a bearer token, or an operator's name and password (Basic). There is no CORS. Errors follow RFC 9457. The audit log records every change, and rejected calls: of very many a part and their number.",
    license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0")
))]
struct ApiDescription;

fn routes() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::with_openapi(ApiDescription::openapi())
        .routes(routes!(accounts::list, accounts::add))
        .routes(routes!(accounts::show, accounts::change, accounts::remove))
        .routes(routes!(usage::periods))
        .routes(routes!(usage::csv))
        .routes(routes!(daemon::status))
        .routes(routes!(daemon::reload))
        .routes(routes!(daemon::relays))
}

pub(super) fn router() -> axum::Router<Arc<Shared>> {
    let (router, _) = routes().split_for_parts();
    router.route("/api/v1/openapi.json", get(description))
}

async fn description() -> Response {
    static TEXT: OnceLock<String> = OnceLock::new();
    let text = TEXT.get_or_init(|| document().to_string());
    ([(header::CONTENT_TYPE, "application/json")], text.as_str()).into_response()
}

fn document() -> Value {
    let (_, about) = routes().split_for_parts();
    let mut document = serde_json::to_value(about).unwrap_or_default();
    document["components"]["schemas"] = Value::Object(schemas());
    document["components"]["securitySchemes"] = json!({
        "token": { "type": "http", "scheme": "bearer", "description": "The token that `ekiden token show` prints." }
    });
    let paths = document["paths"].as_object_mut().into_iter().flat_map(Map::values_mut);
    for call in paths.filter_map(Value::as_object_mut).flat_map(Map::values_mut) {
        if let Some(sent) = call.get_mut("requestBody") {
            sent["required"] = Value::Bool(true);
        }
    }
    document["security"] = json!([{ "token": [] }]);
    document["servers"] = json!([{ "url": "http://127.0.0.1:9128" }]);
    document
}

/// The schemas of all that is sent and answered, by name.
fn schemas() -> Map<String, Value> {
    let settings = || {
        SchemaSettings::draft2020_12().with(|settings| {
            settings.definitions_path = SCHEMAS.into();
            settings.meta_schema = None;
        })
    };
    let mut answers = settings().for_serialize().into_generator();
    answers.subschema_for::<Problem>();
    answers.subschema_for::<AccountList>();
    answers.subschema_for::<AccountDocument>();
    answers.subschema_for::<device::ChangedAccount>();
    answers.subschema_for::<Periods>();
    answers.subschema_for::<Status>();
    answers.subschema_for::<daemon::Fleet>();
    answers.subschema_for::<daemon::Reloaded>();
    let mut sent = settings().for_deserialize().into_generator();
    sent.subschema_for::<change::Change>();
    let mut all = answers.take_definitions(true);
    all.extend(sent.take_definitions(true));
    if let Some(change) = all.get_mut("Change") {
        // absent is not null there
        let fields = change["properties"].as_object_mut().into_iter().flat_map(Map::values_mut);
        fields.filter_map(Value::as_object_mut).for_each(|field| drop(field.remove("default")));
        let new = change::of_new(change.clone());
        all.insert("NewAccount".to_owned(), new);
    }
    all
}

/// What may come of any call.
struct CommonResponses;

/// What may come of a call about accounts without a document, besides.
struct WithAccounts;

/// What may come of a call with a document about an account, besides.
struct WithDocument;

fn problems(list: &[(u16, &str)]) -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
    let problem = |(status, what): &(u16, &str)| {
        let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
        let response = ResponseBuilder::new().description(*what).content(MEDIA_TYPE, content);
        (status.to_string(), RefOr::T(response.build()))
    };
    list.iter().map(problem).collect()
}

impl IntoResponses for CommonResponses {
    fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        problems(&[
            (400, "A parameter or the document is malformed"),
            (401, "The token is missing or wrong"),
            (403, "Sent by a page of another site, or to an unknown host name"),
            (503, "Not available now: starting, or the database is unreachable"),
        ])
    }
}

impl IntoResponses for WithAccounts {
    fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        problems(&[(409, "This relay has no accounts")])
    }
}

impl IntoResponses for WithDocument {
    fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        problems(&[
            (
                409,
                "A name, a user, a prefix or a peer is in use already, or this relay has no accounts",
            ),
            (413, "The document is longer than 64 KiB"),
            (415, "The document is not application/json"),
            (422, "Well-formed but inconsistent: an unknown time zone, an invalid day"),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The calls as a page of the book.
    fn page() -> String {
        let document = document();
        let mut page = format!(
            "# Management API\n\nGenerated from `openapi.json` by `UPDATE=1 cargo test -p ekiden-admin`; do not edit.\n\n\
             {}\n",
            document["info"]["description"].as_str().unwrap()
        );
        for (path, calls) in document["paths"].as_object().unwrap() {
            for (method, call) in calls.as_object().unwrap() {
                let text = |field: &str| call[field].as_str().unwrap_or_default().to_owned();
                page +=
                    &format!("\n## `{} {path}`\n\n{}.\n", method.to_uppercase(), text("summary"));
                if !text("description").is_empty() {
                    page += &format!("\n{}\n", text("description"));
                }
                page += "\n| answer | meaning |\n|---|---|\n";
                for (status, answer) in call["responses"].as_object().unwrap() {
                    page +=
                        &format!("| {status} | {} |\n", answer["description"].as_str().unwrap());
                }
            }
        }
        page
    }

    /// Checked-in copies: `UPDATE=1` renews them.
    #[test]
    fn the_committed_description_and_page_are_current() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/book/src/reference");
        for (name, text) in [("openapi.json", format!("{:#}\n", document())), ("api.md", page())] {
            let path = format!("{folder}/{name}");
            if std::env::var_os("UPDATE").is_some() {
                std::fs::write(&path, &text).unwrap();
            }
            let kept = std::fs::read_to_string(&path).unwrap();
            assert!(kept == text, "{name}: run UPDATE=1 cargo test -p ekiden-admin");
        }
    }

    #[test]
    fn every_reference_leads_somewhere() {
        fn references(of: &Value, found: &mut Vec<String>) {
            match of {
                Value::Object(map) => {
                    for (key, value) in map {
                        match (key.as_str(), value.as_str()) {
                            ("$ref", Some(to)) => found.push(to.to_owned()),
                            _ => references(value, found),
                        }
                    }
                }
                Value::Array(list) => list.iter().for_each(|value| references(value, found)),
                _ => {}
            }
        }
        let document = document();
        assert_eq!(document["openapi"], "3.1.0");
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.len() > 50, "{found:?}");
        for to in found {
            assert!(document.pointer(to.trim_start_matches('#')).is_some(), "{to}");
        }
    }
}
