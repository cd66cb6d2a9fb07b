//! The API below `/api/v1`: its routes, and their description, which comes from the same places. Paths are described
//! where they are answered (`utoipa`); schemas are those of the types (`schemars`), and what is sent here is held against
//! them, so that what is described is what is taken.

mod accounts;
mod body;
mod change;
mod relay;
mod usage;

use super::Shared;
use super::problem::{MEDIA_TYPE, Problem};
use crate::user_document::{Household, Households, Periods};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use ekiden_proxy::status::Status;
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

/// What describes the whole.
#[derive(OpenApi)]
#[openapi(info(
    title = "Ekiden's management API",
    description = "Accounts, what they used, and the relay itself. For programs of the relay's own machine, at 127.0.0.1:9128 unless [management] says otherwise. Every call takes the token of `ekiden token show` as a bearer; there is no CORS. Problems are RFC 9457. Every change, and every call that was refused, is in the audit log.",
    license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0")
))]
struct About;

fn routes() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::with_openapi(About::openapi())
        .routes(routes!(accounts::list, accounts::add))
        .routes(routes!(accounts::show, accounts::change, accounts::remove))
        .routes(routes!(usage::periods))
        .routes(routes!(usage::csv))
        .routes(routes!(relay::status))
        .routes(routes!(relay::reload))
        .routes(routes!(relay::relays))
}

/// Everything that is answered below `/api`.
pub(super) fn router() -> axum::Router<Arc<Shared>> {
    let (router, _) = routes().split_for_parts();
    router.route("/api/v1/openapi.json", get(description))
}

async fn description() -> Response {
    static TEXT: OnceLock<String> = OnceLock::new();
    let text = TEXT.get_or_init(|| document().to_string());
    ([(header::CONTENT_TYPE, "application/json")], text.as_str()).into_response()
}

/// The description, OpenAPI 3.1.
fn document() -> Value {
    let (_, about) = routes().split_for_parts();
    let mut document = serde_json::to_value(about).unwrap_or_default();
    document["components"]["schemas"] = Value::Object(schemas());
    document["components"]["securitySchemes"] = json!({
        "token": { "type": "http", "scheme": "bearer", "description": "What `ekiden token show` prints." }
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
    answers.subschema_for::<Households>();
    answers.subschema_for::<Household>();
    answers.subschema_for::<Periods>();
    answers.subschema_for::<Status>();
    answers.subschema_for::<relay::Fleet>();
    answers.subschema_for::<relay::Reloaded>();
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
struct Always;

/// What may come of a call with a document, besides.
struct WithDocument;

fn problems(list: &[(u16, &str)]) -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
    let problem = |(status, what): &(u16, &str)| {
        let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
        let response = ResponseBuilder::new().description(*what).content(MEDIA_TYPE, content);
        (status.to_string(), RefOr::T(response.build()))
    };
    list.iter().map(problem).collect()
}

impl IntoResponses for Always {
    fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        problems(&[
            (400, "A parameter, or the document, is not of its form"),
            (401, "Without the token, or with another"),
            (403, "Asked by a page of another site, or by a name that is not this port's"),
            (503, "It cannot be done now: starting, no accounts, the database is away"),
        ])
    }
}

impl IntoResponses for WithDocument {
    fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        problems(&[
            (409, "A name, a user, a prefix or a relay is taken"),
            (413, "The document is longer than 64 KiB"),
            (415, "The document is not application/json"),
            (422, "Of the right form, and senseless: an unknown time zone, a day that is none"),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A checked-in copy: `UPDATE=1` renews it.
    #[test]
    fn the_description_is_the_one_that_is_kept() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
        let text = format!("{:#}\n", document());
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(path, &text).unwrap();
        }
        assert_eq!(std::fs::read_to_string(path).unwrap(), text, "UPDATE=1 cargo test -p ekiden");
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
