//! Traces in OpenTelemetry's JSON (OTLP specification, "JSON Protobuf Encoding"): identifiers in hexadecimal, 64-bit
//! numbers as digits in a string, enumerations as numbers. Attributes follow OpenTelemetry's semantic conventions where
//! they have one; the relay's own begin with `ekiden.`.

use ekiden_proxy::observe::traces::{FinishedTrace, Phase, PhaseKind};
use serde_json::{Value, json};

/// Spans that one trace has at most: its own, and its phases.
pub(crate) const MOST_SPANS: u64 = 5;
/// Letters of a text at most; clients choose some of them.
const LONGEST: usize = 256;
/// `SpanKind` of `trace.proto`.
const INTERNAL: u8 = 1;
const SERVER: u8 = 2;
const CLIENT: u8 = 3;
/// `STATUS_CODE_ERROR` of `trace.proto`.
const ERROR: u8 = 2;
/// Methods that have a name (semantic conventions, `http.request.method`).
const METHODS: [&str; 10] =
    ["CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY", "TRACE"];

/// What is said of this relay.
#[derive(Debug)]
pub(crate) struct Resource(Value);

impl Resource {
    pub(crate) fn new(service: &str, relay: &str) -> Self {
        Self(json!([
            text("service.name", service),
            text("service.version", env!("CARGO_PKG_VERSION")),
            text("service.instance.id", relay),
        ]))
    }
}

/// An `ExportTraceServiceRequest`.
pub(crate) fn document(resource: &Resource, traces: &[FinishedTrace]) -> Value {
    let spans: Vec<Value> = traces.iter().flat_map(spans).collect();
    let scope = json!({ "name": "ekiden", "version": env!("CARGO_PKG_VERSION") });
    json!({ "resourceSpans": [{
        "resource": { "attributes": resource.0 },
        "scopeSpans": [{ "scope": scope, "spans": spans }],
    }] })
}

fn spans(trace: &FinishedTrace) -> Vec<Value> {
    let mut root = json!({
        "traceId": format!("{:032x}", trace.trace_id),
        "spanId": format!("{:016x}", trace.span_id),
        "name": name(trace),
        "kind": SERVER,
        "startTimeUnixNano": trace.begun.to_string(),
        "endTimeUnixNano": trace.ended.to_string(),
        "attributes": attributes(trace),
    });
    if let Some(parent) = trace.parent {
        root["parentSpanId"] = format!("{parent:016x}").into();
        // of `SpanFlags`: whether the parent is remote is known, and it is
        root["flags"] = 0x300.into();
    }
    if let Some(error) = error(trace) {
        root["status"] = json!({ "code": ERROR, "message": short(&trace.result) });
        push(&mut root, text("error.type", &error));
    }
    let phases = (1..).zip(&trace.phases).map(|(nth, phase)| child(trace, nth, phase));
    std::iter::once(root).chain(phases).collect()
}

fn child(trace: &FinishedTrace, nth: u64, phase: &Phase) -> Value {
    let (name, kind) = match phase.kind {
        PhaseKind::Lookup => ("lookup", INTERNAL),
        PhaseKind::Connect => ("connect", CLIENT),
        PhaseKind::FirstByte => ("first byte", INTERNAL),
        PhaseKind::Transfer => ("transfer", INTERNAL),
    };
    let attributes = match phase.kind {
        PhaseKind::Lookup => vec![text("dns.question.name", &trace.server.0)],
        PhaseKind::Connect => peer(trace),
        PhaseKind::FirstByte => Vec::new(),
        PhaseKind::Transfer => bytes(trace),
    };
    json!({
        "traceId": format!("{:032x}", trace.trace_id),
        "spanId": format!("{:016x}", trace.span_id.wrapping_add(nth)),
        "parentSpanId": format!("{:016x}", trace.span_id),
        "name": name,
        "kind": kind,
        "startTimeUnixNano": phase.begun.to_string(),
        "endTimeUnixNano": phase.ended.to_string(),
        "attributes": attributes,
    })
}

/// A name of which there are few: the method, or the protocol.
fn name(trace: &FinishedTrace) -> &str {
    match (trace.method.as_deref(), trace.protocol) {
        (Some(method), _) if METHODS.contains(&method) => method,
        (Some(_), _) => "HTTP",
        (None, protocol) => protocol,
    }
}

/// One word for a failure (semantic conventions, `error.type`); an HTTP server's own errors are its statuses.
fn error(trace: &FinishedTrace) -> Option<String> {
    let is_http = trace.method.is_some();
    let status = trace.status.filter(|status| is_http && *status >= 500);
    trace.error.map(str::to_owned).or_else(|| status.map(|status| status.to_string()))
}

fn attributes(trace: &FinishedTrace) -> Vec<Value> {
    let family = if trace.client.ip().to_canonical().is_ipv4() { "ipv4" } else { "ipv6" };
    let mut all = vec![
        text("client.address", &trace.client.ip().to_canonical().to_string()),
        number("client.port", trace.client.port().into()),
        text("server.address", &trace.server.0),
        number("server.port", trace.server.1.into()),
        text("network.transport", "tcp"),
        text("network.type", family),
        text("ekiden.protocol", trace.protocol),
        number("ekiden.connection", trace.connection),
        text("ekiden.result", &trace.result),
        json!({ "key": "ekiden.reused", "value": { "boolValue": trace.reused } }),
    ];
    if let Some(method) = trace.method.as_deref() {
        let known = if METHODS.contains(&method) { method } else { "_OTHER" };
        all.extend([text("network.protocol.name", "http"), text("http.request.method", known)]);
        let status = trace.status.map(u64::from);
        all.extend(status.map(|status| number("http.response.status_code", status)));
    }
    let optional = [
        ("ekiden.account", trace.account.as_deref()),
        ("ekiden.leg", trace.leg.as_deref()),
        ("ekiden.route", trace.route.as_deref()),
    ];
    all.extend(optional.into_iter().filter_map(|(key, value)| Some(text(key, value?))));
    if !trace.through.is_empty() {
        let names: Vec<Value> =
            trace.through.iter().map(|name| json!({ "stringValue": name })).collect();
        all.push(
            json!({ "key": "ekiden.through", "value": { "arrayValue": { "values": names } } }),
        );
    }
    all.extend(bytes(trace));
    all
}

fn peer(trace: &FinishedTrace) -> Vec<Value> {
    let Some(peer) = trace.peer else { return Vec::new() };
    vec![
        text("network.peer.address", &peer.ip().to_string()),
        number("network.peer.port", peer.port().into()),
    ]
}

fn bytes(trace: &FinishedTrace) -> Vec<Value> {
    vec![number("ekiden.bytes.up", trace.bytes.0), number("ekiden.bytes.down", trace.bytes.1)]
}

fn push(span: &mut Value, attribute: Value) {
    if let Some(attributes) = span["attributes"].as_array_mut() {
        attributes.push(attribute);
    }
}

fn short(text: &str) -> String {
    text.chars().take(LONGEST).collect()
}

fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": short(value) } })
}

fn number(key: &str, value: u64) -> Value {
    json!({ "key": key, "value": { "intValue": value.to_string() } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn trace() -> FinishedTrace {
        FinishedTrace {
            trace_id: 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c,
            span_id: 0xb7,
            parent: None,
            begun: 1_700_000_000_000_000_000,
            ended: 1_700_000_000_300_000_000,
            phases: vec![Phase { kind: PhaseKind::Connect, begun: 5, ended: 9 }],
            connection: 12,
            protocol: "http",
            method: Some("GET".to_owned()),
            status: Some(200),
            client: ([192, 0, 2, 9], 40_000).into(),
            server: ("example.org".to_owned(), 80),
            peer: Some(([192, 0, 2, 1], 80).into()),
            account: Some("home".to_owned()),
            leg: Some("direct".to_owned()),
            route: None,
            through: Arc::new(["ship".to_owned()]),
            reused: false,
            bytes: (10, 1 << 60),
            error: None,
            result: "done".to_owned(),
        }
    }

    /// The attributes of a span as `key=value`.
    fn said(span: &Value) -> Vec<String> {
        let all = span["attributes"].as_array().unwrap().iter();
        let value = |of: &Value| match of["value"].as_object().unwrap().iter().next().unwrap() {
            (_, Value::String(text)) => text.clone(),
            (_, other) => other.to_string(),
        };
        all.map(|of| format!("{}={}", of["key"].as_str().unwrap(), value(of))).collect()
    }

    #[test]
    fn numbers_and_identifiers_are_written_as_the_specification_says() {
        let document = document(&Resource::new("ekiden", "harbour"), &[trace()]);
        let resource = &document["resourceSpans"][0];
        let named = said(&resource["resource"]);
        assert!(named.contains(&"service.instance.id=harbour".to_owned()), "{named:?}");
        let spans = resource["scopeSpans"][0]["spans"].as_array().unwrap();
        let root = &spans[0];
        assert_eq!(root["traceId"], "0af7651916cd43dd8448eb211c80319c");
        assert_eq!((&root["spanId"], &root["kind"]), (&"00000000000000b7".into(), &2.into()));
        assert_eq!(root["startTimeUnixNano"], "1700000000000000000");
        assert!(root.get("status").is_none() && root.get("parentSpanId").is_none());
        let down = format!("ekiden.bytes.down={}", 1_u64 << 60);
        let mut expected = vec!["client.address=192.0.2.9", "server.address=example.org", &down];
        expected.extend([
            "http.response.status_code=200",
            "ekiden.account=home",
            "ekiden.reused=false",
        ]);
        let found = said(root);
        for one in expected {
            assert!(found.contains(&one.to_owned()), "{one} in {found:?}");
        }
        let connect = &spans[1];
        assert_eq!(connect["parentSpanId"], root["spanId"]);
        assert_eq!((&connect["name"], &connect["kind"]), (&"connect".into(), &3.into()));
        assert_eq!(said(connect), ["network.peer.address=192.0.2.1", "network.peer.port=80"]);
    }

    #[test]
    fn failures_have_one_word() {
        let root = |trace: &FinishedTrace| spans(trace).remove(0);
        let failed = FinishedTrace { error: Some("no_name"), status: Some(502), ..trace() };
        let span = root(&failed);
        assert_eq!(span["status"], json!({ "code": 2, "message": "done" }));
        assert!(said(&span).contains(&"error.type=no_name".to_owned()));
        let span = root(&FinishedTrace { status: Some(503), ..trace() });
        assert!(said(&span).contains(&"error.type=503".to_owned()));
        let socks = FinishedTrace { method: None, protocol: "socks5", status: Some(5), ..trace() };
        let span = root(&socks);
        assert_eq!(span["name"], "socks5");
        assert!(!said(&span).iter().any(|one| one.starts_with("error") || one.starts_with("http")));
    }

    #[test]
    fn texts_of_clients_are_short() {
        let method = Some("X".repeat(4000));
        let server = ("x".repeat(4000), 80);
        let span = spans(&FinishedTrace { method, server, parent: Some(7), ..trace() }).remove(0);
        assert_eq!(
            (&span["name"], &span["parentSpanId"]),
            (&"HTTP".into(), &"0000000000000007".into())
        );
        assert!(said(&span).contains(&"http.request.method=_OTHER".to_owned()));
        assert!(span.to_string().len() < 3000);
    }
}
