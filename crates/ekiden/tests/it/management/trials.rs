//! A trial alert by the operator's page.

use super::{CONFIG, Managed};
use crate::alerts::receivers::web;
use ekiden_testkit::eventually;
use serde_json::{Value, json};

const PATH: &str = "/page/alerts/trial";

/// What became of a trial that was just begun.
fn outcomes(daemon: &Managed) -> Value {
    assert_eq!(daemon.call("POST", PATH, None).0, 202);
    eventually("the outcome", || {
        let trial = daemon.call("GET", PATH, None).json()["trial"].take();
        trial["outcomes"].is_array().then(|| trial["outcomes"].clone())
    })
}

#[test]
fn a_trial_alert_is_sent_and_the_page_says_what_came_back() {
    let receiver = web(None, &["204 No Content", "500 Broken"]);
    let alerts = format!("[alerts]\nwebhook = \"http://127.0.0.1:{}/hook\"\n", receiver.port);
    let daemon = Managed::start(&format!("{CONFIG}{alerts}"));
    assert_eq!(daemon.call("GET", PATH, None).json(), json!({ "trial": null }));
    let first = outcomes(&daemon);
    assert_eq!((&first[0]["to"], &first[0]["error"]), (&json!("webhook"), &Value::Null));
    assert!(first[0]["answer"].as_str().unwrap().contains("204 No Content"), "{first}");
    receiver.wait_for(&["\"alert\":\"trial\""]);
    let second = outcomes(&daemon);
    assert!(second[0]["error"].as_str().unwrap().contains("500"), "{second}");
    assert!(daemon.state("audit-changes.jsonl").contains("send a trial alert"));
    // who may only look sends none
    let guest = ["operator", "add", "guest", "--viewer"];
    assert!(daemon.run_with(&guest, "another password\n").status.success());
    let basic = "Authorization: Basic Z3Vlc3Q6YW5vdGhlciBwYXNzd29yZA==\r\n";
    assert_eq!(daemon.ask("GET", PATH, basic).0, 200);
    let refused = daemon.ask("POST", PATH, basic);
    assert_eq!((refused.0, refused.json()["type"].as_str()), (403, Some("urn:ekiden:viewer")));
    // what it refuses it does not keep
    assert_eq!(receiver.all().len(), 1);
}

#[test]
fn a_trial_without_receivers_reaches_nobody() {
    let daemon = Managed::start(CONFIG);
    assert_eq!(outcomes(&daemon), json!([]));
    assert_eq!(daemon.get(PATH).0, 401);
}
