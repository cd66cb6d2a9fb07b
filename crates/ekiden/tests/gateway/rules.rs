//! What rules, accounts and the configuration keep from passing.

use crate::Test;
use crate::network::{CLIENT, ECHO, Network, SERVER, config, exchange};
use crate::relayed::access_log;
use ekiden_testkit::{Daemon, wait_for};
use std::io::ErrorKind;
use std::net::TcpStream;

pub(crate) const TESTS: &[Test] = &[
    ("resets_what_rules_forbid", resets_what_rules_forbid),
    ("accounts_apply_by_address", accounts_apply_by_address),
    ("blocks_quic_or_lets_it_pass", blocks_quic_or_lets_it_pass),
    ("bypassed_destinations_are_not_seen", bypassed_destinations_are_not_seen),
];

const DEVICES: &str = "devices = [\"eth1\"]";

/// A request of the client that must end with a reset.
fn reset(network: &Network, args: &[&str]) {
    let output = network.curl(&network.lan, args);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{args:?} got {:?}", String::from_utf8_lossy(&output.stdout));
    // at connecting, in TLS, before the answer or within it
    let code = output.status.code();
    assert!([7, 35, 52, 56].map(Some).contains(&code), "{args:?}: {error}");
}

fn refused(daemon: &Daemon) -> u64 {
    daemon.status()["totals"]["refused"].as_u64().unwrap()
}

fn resets_what_rules_forbid(network: &Network) {
    let rules = "[[rule]]\nto = [\"*.ads.example\", \"9.9.9.2:2222\"]\naction = \"deny\"\n";
    let daemon = network.serve(DEVICES, rules);
    assert_eq!(network.page(&["http://9.9.9.2/"]), format!("9.9.9.1 http {SERVER}"));
    // by name, in HTTP and in TLS; by address and port
    for (nth, args) in [
        &["--resolve", "x.ads.example:80:9.9.9.2", "http://x.ads.example/"][..],
        &["--resolve", "x.ads.example:443:9.9.9.2", "https://x.ads.example/"],
        &["http://9.9.9.2:2222/"],
        // another client, that no rule admits
        &["--interface", "172.16.5.2", "http://9.9.9.2/"],
    ]
    .iter()
    .enumerate()
    {
        reset(network, args);
        assert_eq!(refused(&daemon), nth as u64 + 1, "{args:?}");
    }
    // special addresses, as at every other port: link-local, documentation, benchmarking, reserved, and those
    // in which IPv4 addresses hide
    let special = [
        "http://169.254.169.254/",
        "http://192.0.2.1/",
        "http://198.18.0.1/",
        "http://[64:ff9b::7f00:1]/",
        "http://[64:ff9b::a9fe:a9fe]/",
        "http://[2002:7f00:1::1]/",
        "http://[2001:db8::1]/",
    ];
    for url in special {
        reset(network, &["-g", url]);
    }
    assert_eq!(refused(&daemon), 4 + special.len() as u64);
    for why in [
        "a rule refuses x.ads.example:80",
        "a rule refuses x.ads.example:443",
        "a rule refuses 9.9.9.2:2222",
        "169.254.169.254 is",
        "which is not reached through this relay",
    ] {
        wait_for(why, || access_log(&daemon).contains(why));
    }
    // the gateway's own address is reached as ever, and its port for diverted connections by nobody
    let listen = daemon.status()["gateway"]["listen"].clone();
    for at in listen.as_array().unwrap() {
        let at: std::net::SocketAddr = at.as_str().unwrap().parse().unwrap();
        let direct = network.gateway.run(|| TcpStream::connect(at)).unwrap().unwrap();
        let error = exchange(direct, &[b"GET / HTTP/1.1\r\n\r\n"]).unwrap_err();
        let kinds = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe, ErrorKind::NotConnected];
        assert!(kinds.contains(&error.kind()), "{error}");
    }
    assert_eq!(daemon.status()["gateway"]["stray"], 2);
    // a name that a client claims opens no address
    let only = "[[rule]]\nto = [\"example.org\"]\naction = \"allow\"\n\
        [[rule]]\nto = [\"9.9.9.0/24\"]\naction = \"deny\"\n";
    daemon.reload(&config(DEVICES, only));
    reset(network, &["--resolve", "example.org:80:9.9.9.2", "http://example.org/"]);
}

fn accounts_apply_by_address(network: &Network) {
    let account =
        "[[account]]\nname = \"house\"\naddresses = [\"192.168.77.0/24\"]\nconnections = 1\n";
    let daemon = network.serve(DEVICES, account);
    let held = network.dial(ECHO);
    wait_for("the connection", || daemon.status()["gateway"]["live"] == 1);
    // the account's only place is taken
    reset(network, &["http://9.9.9.2/"]);
    let sharing = &daemon.status()["sharing"]["accounts"][0];
    assert_eq!(sharing["name"], "house");
    assert_eq!(exchange(held, &[b"counted"]).unwrap(), b"counted");
    wait_for("its end", || daemon.status()["gateway"]["live"] == 0);
    assert_eq!(network.page(&["http://9.9.9.2/"]), format!("9.9.9.1 http {SERVER}"));
    // who must log in cannot here
    let accounts = "[accounts]\nenabled = true\nstate = \"DIR/state\"\n";
    drop(daemon);
    let daemon = network.serve(DEVICES, accounts);
    reset(network, &["http://9.9.9.2/"]);
    wait_for("its line", || access_log(&daemon).contains("such a client cannot log in"));
    let added = daemon.printed(&["account", "add", "house", "--address", "192.168.77.2"]);
    assert!(added.contains("house"), "{added}");
    wait_for("the account", || network.curl(&network.lan, &["http://9.9.9.2/"]).status.success());
    wait_for("its log", || access_log(&daemon).contains("\"account\":\"house\""));
}

fn blocks_quic_or_lets_it_pass(network: &Network) {
    let daemon = network.serve(&format!("{DEVICES}\nquic = \"block\""), "");
    // also where nothing is forwarded, which clients of the relay alone do not need
    for forwards in ["0", "1"] {
        network.on_gateway(&format!("echo {forwards} >/proc/sys/net/ipv4/ip_forward"));
        let error = network.datagram().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{forwards}: {error}");
    }
    daemon.reload(&config(DEVICES, ""));
    network.datagram().unwrap();
}

fn bypassed_destinations_are_not_seen(network: &Network) {
    let daemon = network.serve(&format!("{DEVICES}\nbypass = [\"9.9.9.0/24\"]"), "");
    assert_eq!(network.page(&["http://9.9.9.2/"]), format!("{CLIENT} http {SERVER}"));
    assert_eq!(daemon.status()["gateway"]["diverted"], 0);
    let v6 = ["-g", "http://[2620:fe::2]/"];
    assert!(network.page(&v6).starts_with("2620:fe::1 "));
    assert_eq!(daemon.status()["gateway"]["diverted"], 1);
}
