//! Checked-in copies of what is generated, and schemas of documents.

use schemars::JsonSchema;
use serde_json::{Value, json};
use std::path::Path;

/// Compares a page of the book's reference with its checked-in copy; `UPDATE=1` renews the copy.
pub(crate) fn generated(name: &str, text: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/book/src/reference");
    let path = folder.join(name);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == text, "{name} is not current: run UPDATE=1 cargo test -p ekiden");
}

/// Checks that the schema of a document is current, accepts the document, and rejects it with `wrong` in `field`.
pub(crate) fn schema_holds<T: JsonSchema>(
    name: &str,
    mut document: Value,
    field: &str,
    wrong: Value,
) {
    let schema = serde_json::to_value(schemars::schema_for!(T)).unwrap();
    generated(&format!("schema/{name}"), &format!("{schema:#}\n"));
    let validator = jsonschema::validator_for(&schema).unwrap();
    assert!(validator.is_valid(&document));
    document[field] = wrong;
    assert!(!validator.is_valid(&document), "the schema constrains nothing");
}

#[test]
fn documents_hold_to_their_schemas() {
    use ekiden_proxy::observe::status::{AccountExplanation, Explanation, Status};
    let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    let status = serde_json::from_value::<Status>(read(include_str!("../tests/status.json")));
    let status = serde_json::to_value(status.unwrap()).unwrap();
    schema_holds::<Status>("status.json", status, "pid", json!("one"));
    let explanation: Explanation =
        serde_json::from_value(read(include_str!("../tests/explain.json"))).unwrap();
    let explanation = serde_json::to_value(explanation).unwrap();
    schema_holds::<Explanation>("explain.json", explanation, "legs", json!("none"));
    let account = serde_json::to_value(crate::commands::explain::sample_account()).unwrap();
    let wrong = json!("none");
    schema_holds::<AccountExplanation>("explain-account.json", account, "explained", wrong);
}

#[cfg(feature = "lab")]
#[test]
fn the_classifier_s_document_holds_to_its_schema() {
    use ekiden_lab::classify::{Document, Found, Options};
    let document = Document::new("a.pcap", &Options::default(), &Found::default());
    let document = serde_json::to_value(document).unwrap();
    schema_holds::<Document>("classify.json", document, "packets", json!("many"));
}
