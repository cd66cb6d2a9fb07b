//! What clients get, and which addresses both ends see.

use crate::Test;
use crate::network::{
    CLIENT, CLIENT_V6, ECHO, GREETER, Network, SERVER, SERVER_V6, config, exchange,
};
use ekiden_linux::namespaces::netns::place;
use ekiden_testkit::{Daemon, Home, wait_for};
use std::fs;
use std::io::{Read as _, Write as _};

pub(crate) const TESTS: &[Test] = &[
    ("relays_clients_with_nothing_configured", relays_clients_with_nothing_configured),
    ("keeps_the_clients_address_for_the_server", keeps_the_clients_address_for_the_server),
    ("relays_the_machines_own_connections", relays_the_machines_own_connections),
    ("relays_any_first_bytes_unchanged", relays_any_first_bytes_unchanged),
    ("init_finds_the_clients_device", init_finds_the_clients_device),
    ("goes_to_the_name_where_that_is_configured", goes_to_the_name_where_that_is_configured),
];

const INIT: &str = "control = \"DIR/ekiden.sock\"\n[management]\nlisten = \"off\"\n";

const DEVICES: &str = "devices = [\"eth1\"]";

pub(crate) fn access_log(daemon: &Daemon) -> String {
    fs::read_to_string(daemon.path().join("access")).unwrap_or_default()
}

fn relays_clients_with_nothing_configured(network: &Network) {
    // without the gateway the server sees the client
    assert_eq!(network.page(&["http://9.9.9.2/"]), format!("{CLIENT} http {SERVER}"));
    let daemon = network.serve(DEVICES, "");
    let v4 = ["http://9.9.9.2/"];
    assert_eq!(network.page(&v4), format!("9.9.9.1 http {SERVER}"));
    let v6 = ["-g", "http://[2620:fe::2]/"];
    assert_eq!(network.page(&v6), format!("2620:fe::1 http [{SERVER_V6}]"));
    let tls = ["--resolve", "example.org:443:9.9.9.2", "https://example.org/"];
    assert_eq!(network.page(&tls), "9.9.9.1 https example.org");
    let tls_v6 = ["--resolve", "example.org:443:[2620:fe::2]", "https://example.org/"];
    assert_eq!(network.page(&tls_v6), "2620:fe::1 https example.org");
    let named = ["--resolve", "example.org:80:9.9.9.2", "http://example.org/"];
    assert_eq!(network.page(&named), "9.9.9.1 http example.org");
    // the server speaks first, and the client never
    let mut greeted = network.dial(GREETER);
    let mut greeting = [0; 11];
    greeted.read_exact(&mut greeting).unwrap();
    assert_eq!(&greeting, b"220 hello\r\n");
    // the live connection is in the status with its client
    let status = daemon.status();
    let live = &status["connections"][0];
    assert!(live["client"].as_str().unwrap().starts_with(CLIENT), "{live}");
    assert_eq!(
        (&live["protocol"], &live["destination"]),
        (&"gateway".into(), &"9.9.9.2:2222".into())
    );
    drop(greeted);
    wait_for("its end", || daemon.status()["gateway"]["live"] == 0);
    let seen = &daemon.status()["gateway"];
    assert_eq!((&seen["in_effect"], &seen["error"]), (&true.into(), &serde_json::Value::Null));
    assert_eq!(seen["devices"], serde_json::json!([{ "name": "eth1", "present": true }]));
    let counted = ["diverted", "named_tls", "named_http", "unnamed", "stray", "own"];
    assert_eq!(counted.map(|name| seen[name].as_u64().unwrap()), [6, 2, 1, 3, 0, 0], "{seen}");
    let text = network.ask(&daemon, &["status"]);
    assert!(text.contains("gateway: diverts TCP of eth1\n"), "{text}");
    wait_for("the access log", || access_log(&daemon).lines().count() == 6);
    let lines: Vec<serde_json::Value> =
        access_log(&daemon).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let line = |target: &str| {
        let found = lines.iter().find(|line| line["target"] == target);
        found.unwrap_or_else(|| panic!("{target} is not in {lines:?}"))
    };
    for (target, client) in [
        ("9.9.9.2:80", format!("{CLIENT}:")),
        ("example.org:443 (9.9.9.2)", format!("{CLIENT}:")),
        ("example.org:443 (2620:fe::2)", format!("[{CLIENT_V6}]:")),
    ] {
        let line = line(target);
        assert!(line["client"].as_str().unwrap().starts_with(&client), "{line}");
        assert_eq!((&line["protocol"], &line["status"]), (&"gateway".into(), &0.into()));
        assert_eq!(line["result"], "closed");
    }
    let log = daemon.log();
    assert!(log.contains("gateway: diverts TCP over IPv4 and IPv6 of eth1"), "{log}");
}

fn keeps_the_clients_address_for_the_server(network: &Network) {
    let daemon = network.serve(&format!("{DEVICES}\nkeep_source = true"), "");
    assert_eq!(network.page(&["http://9.9.9.2/"]), format!("{CLIENT} http {SERVER}"));
    let v6 = ["-g", "http://[2620:fe::2]/"];
    assert_eq!(network.page(&v6), format!("{CLIENT_V6} http [{SERVER_V6}]"));
    assert_eq!(daemon.status()["gateway"]["diverted"], 2);
    // masqueraded behind the gateway, as in most houses
    network.on_gateway(
        "nft 'table ip house { chain out { type nat hook postrouting priority srcnat; \
         oifname \"eth0\" masquerade; }; }'",
    );
    assert_eq!(network.page(&["http://9.9.9.2/"]), format!("9.9.9.1 http {SERVER}"));
    assert_eq!(daemon.status()["gateway"]["diverted"], 3);
    // the Internet sends its connections back: the answers go to the client, which knows nothing of them
    network.on_gateway("ip route add 9.9.9.77 via 9.9.9.2; nft delete table ip house");
    let back = "echo 1 >/proc/sys/net/ipv4/ip_forward; ip route add 9.9.9.77 via 9.9.9.1";
    network.shell(&network.up, back).unwrap();
    let quick = "[leg.direct]\nconnect_timeout = \"1 s\"\n";
    daemon.reload(&config("devices = [\"eth1\", \"eth0\"]\nkeep_source = true", quick));
    let lost = network.curl(&network.lan, &["http://9.9.9.77/"]);
    assert!(!lost.status.success());
    wait_for("the end of it", || daemon.status()["gateway"]["live"] == 0);
    let seen = &daemon.status()["gateway"];
    assert!(seen["diverted"].as_u64() <= Some(6), "no circle: {seen}");
}

fn relays_the_machines_own_connections(network: &Network) {
    let home = Network::home("own_traffic = true", "");
    // root's other programs could not be told from it
    let daemon = network.serve_in(&home);
    let error = daemon.status()["gateway"]["error"].clone();
    assert!(error.as_str().unwrap().contains("a user that runs this relay alone"), "{error}");
    daemon.stop();
    let Some(daemon) = network.serve_as_nobody(&home) else { return };
    let page = |args: &[&str]| {
        let output = network.curl(&network.gateway, args);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(page(&["http://9.9.9.2/"]), format!("9.9.9.1 http {SERVER}"));
    assert_eq!(page(&["-g", "http://[2620:fe::2]/"]), format!("2620:fe::1 http [{SERVER_V6}]"));
    // the clients' connections pass by
    assert_eq!(network.page(&["http://9.9.9.2/"]), format!("{CLIENT} http {SERVER}"));
    let seen = &daemon.status()["gateway"];
    let counted = ["own", "diverted", "stray"].map(|name| seen[name].as_u64().unwrap());
    assert_eq!(counted, [2, 0, 0], "{seen}");
    wait_for("the access log", || access_log(&daemon).lines().count() == 2);
    let log = access_log(&daemon);
    assert!(
        log.contains("\"client\":\"127.0.0.1:") && log.contains("\"client\":\"[::1]:"),
        "{log}"
    );
    // through the relay's own port it is no loop either
    assert_eq!(
        page(&["--noproxy", "", "-x", &daemon.proxy("http"), "http://9.9.9.2/"]),
        format!("9.9.9.1 http {SERVER}")
    );
    assert_eq!(daemon.status()["gateway"]["own"], 2);
    daemon.stop();
    assert_eq!(network.left(), (0, 0, false));
}

fn relays_any_first_bytes_unchanged(network: &Network) {
    let daemon = network.serve(DEVICES, "");
    let long = [&b"\x16\x03\x01"[..], &vec![b'x'; 40_000]].concat();
    let endless = [&b"GET / HTTP/1.1\r\nX: "[..], &vec![b'y'; 40_000]].concat();
    for pieces in [
        &[&b"\x16"[..]][..],
        &[b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"],
        &[b"\x16\x03\x01\x00\x00"],
        &[b"\x16\x03\x01\xff\xff\xff\xff\xff\xff\xff\xff"],
        &[&long],
        &[b"G", b"E", b"T", b" ", b"/"],
        &[b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"],
        &[b"GET / HTTP/1.1\r\n\0\r\n\r\n"],
        &[b"GET / HTTP/1.1\r\nHost: \xff\xfe\r\n\r\n"],
        &[&endless],
        &[b"\0\0\0\0", b"\xff"],
        &[b""],
    ] {
        let back = exchange(network.dial(ECHO), pieces).unwrap();
        assert!(back == pieces.concat(), "{} bytes of {pieces:.60?}", back.len());
    }
    // a beginning of a name that never ends must not hold its connection for ever
    let mut stuck = network.dial(ECHO);
    stuck.write_all(b"\x16\x03\x01\x02\x00\x01").unwrap();
    let mut back = [0; 6];
    stuck.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"\x16\x03\x01\x02\x00\x01");
    assert_eq!(daemon.status()["totals"]["refused"], 0);
}

/// The name leads elsewhere than the address that the client chose.
fn goes_to_the_name_where_that_is_configured(network: &Network) {
    let dns = "[dns]\nservers = [\"9.9.9.2:5353\"]\n";
    let daemon = network.serve(&format!("{DEVICES}\ngo_to = \"name\""), dns);
    // no name server answers, so a name leads nowhere
    let lost =
        network.curl(&network.lan, &["--resolve", "example.org:80:9.9.9.2", "http://example.org/"]);
    assert!(!lost.status.success());
    wait_for("the access log", || access_log(&daemon).contains("example.org cannot be resolved"));
    // without a name the address counts
    assert_eq!(network.page(&["http://9.9.9.2/"]), format!("9.9.9.1 http {SERVER}"));
    // and where nobody looks for names, too
    daemon.reload(&config(&format!("{DEVICES}\ngo_to = \"name\"\nfirst_bytes = \"0 s\""), dns));
    let named = ["--resolve", "example.org:80:9.9.9.2", "http://example.org/"];
    assert_eq!(network.page(&named), "9.9.9.1 http example.org");
}

fn init_finds_the_clients_device(network: &Network) {
    let home = Home::new(env!("CARGO_BIN_EXE_ekiden"), INIT);
    let config = home.config();
    let args = ["init", "gateway", "--yes", "--block-quic", "--config", config.to_str().unwrap()];
    let written = |done: &str| {
        let mut command = home.command(&args);
        place(&mut command, &network.gateway).unwrap();
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && said.contains(done), "{said}");
        fs::read_to_string(&config).unwrap()
    };
    let text = written("clients use this machine as their router");
    assert!(text.contains("devices = [\"eth1\"]") && text.contains("quic = \"block\""), "{text}");
    assert!(text.contains("192.168.77.0/24") && text.contains("fd77::/64"), "{text}");
    assert!(!text.contains("9.9.9."), "{text}");
    assert!(text.contains("listen = [\"192.168.77.1:53\", \"[fd77::1]:53\"]"), "{text}");
    assert_eq!(written("nothing to do"), text);
    let _daemon = network.serve_in(&home);
    assert_eq!(network.page(&["http://9.9.9.2/"]), format!("9.9.9.1 http {SERVER}"));
    assert!(network.page(&["-g", "http://[2620:fe::2]/"]).starts_with("2620:fe::1 "));
}
