//! Traces of connections, at a web server that stands for a collector.

use crate::alerts::receivers::{Arrived, web};
use crate::daemons::{daemon, free_port};
use ekiden_testkit::{Daemon, PATIENCE, eventually_or, wait_for};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const OTHER: &str = "1af7651916cd43dd8448eb211c80319c";

/// A server that answers the first bytes of each connection and closes it.
fn origin() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _asked = stream.read(&mut [0; 4096]);
            let _left = stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
        }
    });
    port
}

/// The whole answer to a request head, then to `more` within the same connection.
fn ask(daemon: &Daemon, head: &str, more: &str) -> String {
    let mut stream = TcpStream::connect(daemon.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(format!("{head}\r\n\r\n{more}").as_bytes()).unwrap();
    let mut answer = String::new();
    let _cut = stream.read_to_string(&mut answer);
    answer
}

/// All spans that arrived.
fn spans(collector: &Arrived) -> Vec<Value> {
    let mut all = Vec::new();
    for text in collector.all() {
        let (_, body) = text.split_once("\r\n\r\n").unwrap();
        let document: Value = serde_json::from_str(body).unwrap();
        let spans = &document["resourceSpans"][0]["scopeSpans"][0]["spans"];
        all.extend(spans.as_array().unwrap().iter().cloned());
    }
    all
}

fn attribute(span: &Value, key: &str) -> Option<String> {
    let all = span["attributes"].as_array().unwrap();
    let value = &all.iter().find(|one| one["key"] == key)?["value"];
    let value = value["stringValue"].as_str().or_else(|| value["intValue"].as_str());
    value.map(str::to_owned)
}

/// The span with this attribute, once it is there, and the names of its phases.
#[track_caller]
fn traced(collector: &Arrived, key: &str, value: &str) -> (Value, Vec<String>) {
    let why = || format!("no span has {key} = {value}: {:#?}", spans(collector));
    let root = eventually_or(why, || {
        spans(collector).into_iter().find(|span| attribute(span, key).as_deref() == Some(value))
    });
    let name = |span: &Value| span["name"].as_str().unwrap().to_owned();
    let is_child = |span: &&Value| {
        span["traceId"] == root["traceId"] && span["parentSpanId"] == root["spanId"]
    };
    let phases = spans(collector).iter().filter(is_child).map(name).collect();
    (root, phases)
}

fn status(daemon: &Daemon, field: &str) -> u64 {
    daemon.status()["traces"][field].as_u64().unwrap()
}

#[test]
fn connections_are_traced_to_a_collector() {
    // it is busy at first
    let collector = web(None, &["503 Service Unavailable"]);
    let (port, closed) = (origin(), free_port());
    let daemon = daemon(&format!(
        "[access]\nallow_destinations = [\"127.0.0.0/8\"]\n[traces]\n\
         endpoint = \"http://127.0.0.1:{}/otlp\"\nsample = \"100 %\"\n",
        collector.port
    ));
    let to = format!("localhost:{port}");
    let tunnel = ask(&daemon, &format!("CONNECT {to} HTTP/1.1\r\nHost: {to}"), "hello");
    assert!(tunnel.ends_with("ok"), "{tunnel}");
    let get = |parent: &str| {
        let head = format!(
            "GET http://{to}/hidden-path?secret HTTP/1.1\r\nHost: {to}\r\nConnection: close"
        );
        let log_in = "Proxy-Authorization: Basic YW5uYTpnZWhlaW0=\r\nAuthorization: Bearer geheim";
        ask(&daemon, &format!("{head}\r\n{log_in}\r\ntraceparent: {parent}"), "")
    };
    assert!(get(&format!("00-{TRACE}-b7ad6b7169203331-01")).ends_with("ok"));
    assert!(get(&format!("00-{OTHER}-b7ad6b7169203331-00")).ends_with("ok"));
    let to = format!("127.0.0.1:{closed}");
    ask(&daemon, &format!("CONNECT {to} HTTP/1.1\r\nHost: {to}"), "");

    let (tunnel, phases) = traced(&collector, "http.request.method", "CONNECT");
    assert_eq!(phases, ["lookup", "connect", "first byte", "transfer"]);
    assert_eq!(attribute(&tunnel, "server.address").as_deref(), Some("localhost"));
    assert_eq!(attribute(&tunnel, "client.address").as_deref(), Some("127.0.0.1"));
    let (request, phases) = traced(&collector, "http.request.method", "GET");
    assert_eq!(
        (&request["traceId"], &request["parentSpanId"]),
        (&TRACE.into(), &"b7ad6b7169203331".into())
    );
    assert_eq!(attribute(&request, "http.response.status_code").as_deref(), Some("200"));
    assert_eq!(phases.len(), 4, "{phases:?}");
    let (refused, phases) = traced(&collector, "error.type", "refused");
    assert_eq!((&refused["status"]["code"], phases), (&2.into(), vec!["connect".to_owned()]));

    wait_for("the count of what was sent", || status(&daemon, "sent") == 3);
    assert_eq!((status(&daemon, "begun"), status(&daemon, "dropped")), (3, 0));
    let all = collector.all().concat();
    assert!(all.to_lowercase().starts_with("post /otlp/v1/traces http/1.1\r\n"), "{all}");
    for hidden in ["hidden-path", "secret", "geheim", "YW5uYTpnZWhlaW0", OTHER] {
        assert!(!all.contains(hidden), "{hidden}: {all}");
    }
}

#[test]
fn a_collector_that_is_away_holds_nothing_back() {
    let port = origin();
    let config =
        |traces: &str| format!("[access]\nallow_destinations = [\"127.0.0.0/8\"]\n{traces}");
    let endpoint = format!("http://127.0.0.1:{}/", free_port());
    let daemon =
        daemon(&config(&format!("[traces]\nendpoint = \"{endpoint}\"\nsample = \"100 %\"\n")));
    let to = format!("127.0.0.1:{port}");
    let get = || ask(&daemon, &format!("GET http://{to}/ HTTP/1.0\r\nHost: {to}"), "");
    assert!(get().ends_with("ok"));
    wait_for("the error", || daemon.status()["traces"]["last_error"].is_string());
    assert!(get().ends_with("ok"));
    assert_eq!(status(&daemon, "begun"), 2);
    let printed = daemon.printed(&["status"]);
    assert!(printed.contains("traces: ") && printed.contains("cannot connect to"), "{printed}");
    // and off again
    daemon.reload(&config(""));
    assert!(daemon.status()["traces"].is_null());
    assert!(get().ends_with("ok"));
}
