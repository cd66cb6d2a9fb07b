//! What the management API hands out for a telephone, and that nothing keeps it.

use crate::Test;
use crate::network::Network;
use crate::phone::{DOOR, OFF};
use crate::wireguard::door;
use ekiden_testkit::{Daemon, wait_for};
use serde_json::{Value, json};

pub(crate) const TESTS: &[Test] =
    &[("the_api_hands_out_a_configuration_once", the_api_hands_out_a_configuration_once)];

/// Calls the API on the gateway: the status, and the document.
fn call(network: &Network, daemon: &Daemon, call: [&str; 2], sent: &Value) -> (u16, Value) {
    let [method, path] = call;
    let token = format!("Authorization: Bearer {}", daemon.state("management.token").trim());
    let sent = sent.to_string();
    let url = format!("http://127.0.0.1:9128{path}");
    let args = ["-H", &token, "--json", &sent, "-X", method, "-w", "\n%{http_code}", &url];
    let output = network.curl(&network.gateway, &args);
    let answer = String::from_utf8(output.stdout).unwrap();
    let (document, status) = answer.rsplit_once('\n').unwrap();
    (status.parse().unwrap(), serde_json::from_str(document).unwrap_or_default())
}

fn the_api_hands_out_a_configuration_once(network: &Network) {
    let home = Network::home(OFF, DOOR);
    let text = std::fs::read_to_string(home.config()).unwrap();
    let text =
        text.replace("[management]\nlisten = \"off\"", "[management]\nlisten = \"127.0.0.1:9128\"");
    std::fs::write(home.config(), text).unwrap();
    let daemon = network.serve_in(&home);
    wait_for("the management port", || daemon.path().join("state/management.token").is_file());
    let phone = |more: Value| {
        let mut device = json!({ "kind": "wireguard", "name": "phone" });
        device.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "devices": [device] })
    };
    let mut new = phone(json!({}));
    new["name"] = json!("anna");
    let (status, made) = call(network, &daemon, ["POST", "/api/v1/accounts"], &new);
    assert_eq!(status, 201, "{made}");
    assert_eq!(made["devices"][0]["identity"], "10.77.0.2");
    let given = &made["configurations"][0];
    let text = given["text"].as_str().unwrap().to_owned();
    assert!(text.contains("Address = 10.77.0.2/32") && text.contains("Endpoint = 9.9.9.1:51820"));
    assert!(given["code"]["path"].as_str().unwrap().starts_with("M0 0h7v1"), "{given}");
    assert_eq!((&given["device"], &given["names_servers"]), (&json!("phone"), &json!(true)));
    wait_for("the peer", || door(&daemon)["peers"][0]["account"] == "anna");
    let first = door(&daemon)["peers"][0]["public_key"].clone();
    // the private key is in the answer, and nowhere in what is kept
    let line = text.lines().find(|line| line.starts_with("PrivateKey = ")).unwrap();
    let secret = line.trim_start_matches("PrivateKey = ").as_bytes();
    let mut folders = vec![daemon.path().to_owned()];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.is_file() {
                files += 1;
                let kept = std::fs::read(&path).unwrap();
                let has = kept.windows(secret.len()).any(|part| part == secret);
                assert!(!has, "{}", path.display());
            }
        }
    }
    assert!(files > 5 && daemon.state("audit-changes.jsonl").contains("add: devices, name anna"));
    let at = "/api/v1/accounts/anna";
    let shown = call(network, &daemon, ["GET", at], &json!({})).1;
    assert!(shown["configurations"].is_null() && shown["devices"][0]["name"] == "phone", "{shown}");
    // by the same name: the addresses stay, and the old key ends
    let (status, again) = call(network, &daemon, ["PATCH", at], &phone(json!({})));
    assert_eq!((status, again["devices"].as_array().unwrap().len()), (200, 1), "{again}");
    assert_ne!(again["configurations"][0]["text"], text.as_str());
    wait_for("another key", || door(&daemon)["peers"][0]["public_key"] != first);
    // a key of its own needs no secret, and has no code
    let own = json!({ "key": "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=" });
    let (status, own) = call(network, &daemon, ["PATCH", at], &phone(own));
    assert_eq!((status, &own["configurations"][0]["code"]), (200, &Value::Null), "{own}");
    assert!(!own["configurations"][0]["text"].as_str().unwrap().contains("\nPrivateKey"), "{own}");
    for (more, status) in [(json!({ "key": "short" }), 400), (json!({ "name": "a b" }), 400)] {
        let refused = call(network, &daemon, ["PATCH", at], &phone(more));
        assert_eq!(refused.0, status, "{}", refused.1);
    }
    // where the door is off it says what to do
    daemon.reload(&crate::network::config("devices = [\"eth1\"]", "[accounts]\nenabled = true\n"));
    let (status, refused) = call(network, &daemon, ["PATCH", at], &phone(json!({})));
    assert_eq!(status, 422, "{refused}");
    assert!(
        refused["detail"].as_str().unwrap().contains("ekiden init gateway --wireguard"),
        "{refused}"
    );
}
