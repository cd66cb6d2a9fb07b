//! The certificate of a relay half-way: given, ordered, configured, or self-signed.

use super::{free_port, relay};
use crate::daemons::{as_nobody, home, stderr, stdout};
use ekiden_testkit::Home;
use std::fs;
use std::process::Output;

fn config(home: &Home) -> String {
    fs::read_to_string(home.config()).unwrap()
}

fn half_way(home: &Home, name: &str, listen: &str, more: &[&str]) -> Output {
    let args = ["init", "--yes", "half-way", "--name", name, "--listen", listen];
    home.run(&[&args[..], more].concat())
}

fn refused(home: &Home, listen: &str, more: &[&str], part: &str) {
    let before = config(home);
    let output = half_way(home, "relay.example", listen, more);
    let said = stderr(&output);
    assert!(!output.status.success() && said.contains(part), "{more:?}: {part}: {said}");
    assert_eq!(config(home), before);
}

#[test]
fn another_name_gets_another_certificate_and_the_audit_log_an_account() {
    let home = relay();
    let listen = format!("127.0.0.1:{}", free_port());
    let files = ["certificate.pem", "key.pem"].map(|name| home.path().join("state/tls").join(name));
    let read = || files.each_ref().map(|file| fs::read(file).unwrap());
    assert!(half_way(&home, "relay.example", &listen, &[]).status.success());
    let [first, logged] =
        [read()[0].clone(), fs::read(home.path().join("state/audit-changes.jsonl")).unwrap()];
    let logged = String::from_utf8(logged).unwrap();
    assert!(logged.contains("ekiden init half-way") && logged.contains("home"), "{logged}");
    let again = half_way(&home, "relay.example", &listen, &[]);
    assert!(stderr(&again).contains("nothing to do"), "{}", stderr(&again));
    let other = half_way(&home, "other.example", &listen, &[]);
    let said = stderr(&other);
    assert!(other.status.success(), "{said}");
    assert!(said.contains("self-signed certificate for other.example"), "{said}");
    assert!(said.contains("the one there is for another name"), "{said}");
    assert!(said.contains("--acme --agree-to-terms"), "{said}");
    assert_ne!(read()[0], first);
    // as files that are given they are no reason to make another
    let [certificate, key] = files.each_ref().map(|file| file.to_str().unwrap());
    let other = relay();
    let given = ["--certificate", certificate, "--key", key];
    assert!(half_way(&other, "other.example", &listen, &given).status.success());
    assert!(!other.path().join("state/tls").exists());
    // a key of another certificate, and a file of which only the beginning is there
    fs::write(home.path().join("cut.pem"), &read()[0][..200]).unwrap();
    let foreign = home.path().join("foreign.pem");
    fs::write(&foreign, rcgen::KeyPair::generate().unwrap().serialize_pem()).unwrap();
    let third = relay();
    let cut = home.path().join("cut.pem");
    for (certificate, key, part) in [
        (certificate, foreign.to_str().unwrap(), "does not match the certificate"),
        (cut.to_str().unwrap(), key, "cut.pem"),
        (key, key, "contains no certificate"),
        (certificate, key, "is not for relay.example"),
    ] {
        refused(&third, &listen, &["--certificate", certificate, "--key", key], part);
        assert!(!third.path().join("state").exists());
    }
}

#[test]
fn an_ordered_certificate_is_written_and_left_as_it_is() {
    let home = relay();
    let listen = format!("127.0.0.1:{}", free_port());
    assert!(half_way(&home, "relay.example", &listen, &[]).status.success());
    assert!(config(&home).contains("[tls]"));
    let asked = half_way(&home, "relay.example", &listen, &["--acme"]);
    assert!(asked.status.code() == Some(2) && stderr(&asked).contains("--agree-to-terms"));
    let order = ["--listen", "127.77.0.1:443", "--acme", "--agree-to-terms"];
    let done = half_way(&home, "relay.example", &listen, &order);
    let said = stderr(&done);
    assert!(done.status.success(), "{said}");
    assert!(said.contains("order a certificate for relay.example"), "{said}");
    let written = config(&home);
    assert!(!written.contains("[tls]") && written.contains("agree_to_terms = true"), "{written}");
    assert!(written.contains("names = [\"relay.example\"]"), "{written}");
    // an order is a certificate, and needs neither another nor files
    for more in [&order[..], &order[..2]] {
        let again = half_way(&home, "relay.example", &listen, more);
        assert!(stderr(&again).contains("nothing to do"), "{}", stderr(&again));
    }
    let files = ["--certificate", "/none", "--key", "/none"];
    refused(&home, &listen, &files, "[acme] orders the certificate");
    // another name is ordered beside the first
    let more = half_way(&home, "www.relay.example", &listen, &["--account", "other"]);
    assert!(stderr(&more).contains("no certificate for www.relay.example"), "{}", stderr(&more));
    assert!(half_way(&home, "www.relay.example", &listen, &order).status.success());
    let names = "names = [\"relay.example\", \"www.relay.example\"]";
    assert!(config(&home).contains(names), "{}", config(&home));
    // no authority proves that somebody has an address
    let other = relay();
    let bad = half_way(&other, "192.0.2.1", &listen, &order);
    assert!(!bad.status.success() && stderr(&bad).contains("nothing was written"), "{bad:?}");
}

#[test]
fn a_check_says_what_a_start_would() {
    let home = home(
        "listen = [\"127.0.0.1:443\"]\n[acme]\nnames = [\"relay.example\"]\nagree_to_terms = true\n",
    );
    // root's state has a place in any case
    let Some(mut command) = as_nobody(&home, &["check"]) else { return };
    let checked = command.env_remove("STATE_DIRECTORY").env_remove("HOME").output().unwrap();
    let said = stdout(&checked);
    assert!(!checked.status.success() && said.contains("no home directory"), "{said}");
}
