//! What is left in the kernel: while it runs, after reloads, after a stop and after SIGKILL.

use crate::Test;
use crate::network::{CLIENT, ECHO, LAN_ADDRESSES, Network, SERVER, config, exchange};
use ekiden_linux::namespaces::netns::place;
use ekiden_testkit::wait_for;
use std::io::{Read as _, Write as _};
use std::process::Command;

pub(crate) const TESTS: &[Test] = &[
    ("a_stop_leaves_nothing", a_stop_leaves_nothing),
    ("after_sigkill_connections_pass_by", after_sigkill_connections_pass_by),
    ("reloads_leave_one_of_each", reloads_leave_one_of_each),
    ("a_device_may_go_and_come_back", a_device_may_go_and_come_back),
    ("rules_that_were_lost_are_set_again", rules_that_were_lost_are_set_again),
    ("routes_that_were_removed_are_added_again", routes_that_were_removed_are_added_again),
    ("rules_that_could_not_be_set_are_tried_again", rules_that_could_not_be_set_are_tried_again),
    ("a_second_daemon_leaves_the_first_one_s_rules", a_second_daemon_leaves_the_first_one_s_rules),
    ("says_what_is_missing", says_what_is_missing),
];

const DEVICES: &str = "devices = [\"eth1\"]";

fn a_stop_leaves_nothing(network: &Network) {
    // a connection from before the gateway passes by to its end
    let mut old = network.dial(ECHO);
    let daemon = network.serve(DEVICES, "");
    old.write_all(b"old").unwrap();
    old.read_exact(&mut [0; 3]).unwrap();
    assert_eq!(network.left(), (2, 2, true));
    assert_eq!(network.page(&["http://9.9.9.2/"]), format!("9.9.9.1 http {SERVER}"));
    // a live connection may end in peace while new ones pass by
    let mut live = network.dial(ECHO);
    live.write_all(b"live").unwrap();
    live.read_exact(&mut [0; 4]).unwrap();
    daemon.signal(rustix::process::Signal::TERM);
    wait_for("the stop", || {
        network.page(&["http://9.9.9.2/"]) == format!("{CLIENT} http {SERVER}")
    });
    assert_eq!(exchange(live, &[b"peace"]).unwrap(), b"peace");
    let mut daemon = daemon;
    assert_eq!(daemon.code(), Some(0), "{}", daemon.log());
    assert_eq!(network.left(), (0, 0, false));
    assert_eq!(exchange(old, &[b"older"]).unwrap(), b"older");
}

fn after_sigkill_connections_pass_by(network: &Network) {
    let home = Network::home(DEVICES, "");
    let mut daemon = network.serve_in(&home);
    assert_eq!(network.page(&["http://9.9.9.2/"]), format!("9.9.9.1 http {SERVER}"));
    daemon.kill();
    wait_for("the end of the table", || !network.left().2);
    assert_eq!(network.page(&["http://9.9.9.2/"]), format!("{CLIENT} http {SERVER}"));
    // what is left does nothing, and the next start takes it over
    assert_eq!(network.left(), (2, 2, false));
    let daemon = network.serve_in(&home);
    assert_eq!(network.left(), (2, 2, true));
    assert_eq!(network.page(&["http://9.9.9.2/"]), format!("9.9.9.1 http {SERVER}"));
    daemon.stop();
    assert_eq!(network.left(), (0, 0, false));
}

fn reloads_leave_one_of_each(network: &Network) {
    let daemon = network.serve(DEVICES, "");
    let mut live = network.dial(ECHO);
    for nth in 0..100 {
        let quic = if nth % 2 == 0 { "block" } else { "direct" };
        daemon.reload(&config(&format!("{DEVICES}\nquic = \"{quic}\""), ""));
        if nth % 10 == 0 {
            assert_eq!(network.page(&["http://9.9.9.2/"]), format!("9.9.9.1 http {SERVER}"));
        }
    }
    assert_eq!(network.left(), (2, 2, true));
    let table = network.on_gateway("nft list table inet ekiden_gateway");
    assert_eq!(table.matches("chain arriving").count(), 1, "{table}");
    assert_eq!(table.matches("tproxy ip to").count(), 1, "{table}");
    // another mark: the old one's rules go
    daemon.reload(&config(&format!("{DEVICES}\nmark = 4711"), ""));
    assert_eq!(network.left(), (0, 0, true));
    assert_eq!(network.on_gateway("ip -4 rule; ip -6 rule").matches("lookup 4711").count(), 2);
    daemon.reload(&config(DEVICES, ""));
    // switched off, with a live connection: its packets still arrive
    daemon.reload(&config("", ""));
    assert_eq!(network.page(&["http://9.9.9.2/"]), format!("{CLIENT} http {SERVER}"));
    live.write_all(b"still").unwrap();
    live.read_exact(&mut [0; 5]).unwrap();
    assert_eq!(network.left(), (2, 2, true));
    drop(live);
    wait_for("nothing left", || network.left() == (0, 0, false));
    // and on again
    daemon.reload(&config(DEVICES, ""));
    assert_eq!(network.page(&["http://9.9.9.2/"]), format!("9.9.9.1 http {SERVER}"));
}

fn a_device_may_go_and_come_back(network: &Network) {
    let daemon = network.serve("devices = [\"eth1\", \"eth9\"]", "");
    let seen = &daemon.status()["gateway"]["devices"];
    assert_eq!((&seen[0]["present"], &seen[1]["present"]), (&true.into(), &false.into()));
    network.on_gateway("ip link del eth1");
    assert_eq!(daemon.status()["gateway"]["devices"][0]["present"], false);
    network.connect(("c0", &network.lan), ("eth1", &network.gateway)).unwrap();
    network
        .on_gateway("ip addr add 192.168.77.1/24 dev eth1; ip addr add fd77::1/64 dev eth1 nodad");
    network.shell(&network.lan, LAN_ADDRESSES).unwrap();
    assert_eq!(network.page(&["http://9.9.9.2/"]), format!("9.9.9.1 http {SERVER}"));
    assert!(network.page(&["-g", "http://[2620:fe::2]/"]).starts_with("2620:fe::1 "));
}

fn rules_that_were_lost_are_set_again(network: &Network) {
    let daemon = network.serve(DEVICES, "");
    // nobody but its owner can take the table away
    let flushed = network.shell(&network.gateway, "nft flush ruleset; nft list tables");
    assert!(flushed.is_err() || flushed.unwrap().contains("ekiden_gateway"));
    let child = std::fs::read_to_string(daemon.proc(&format!("task/{}/children", daemon.pid())));
    for child in child.unwrap().split_whitespace() {
        Command::new("kill").args(["-9", child]).status().unwrap();
    }
    wait_for("the rules", || daemon.log().contains("nft had ended; its rules are set again"));
    assert_eq!(network.page(&["http://9.9.9.2/"]), format!("9.9.9.1 http {SERVER}"));
    assert_eq!(network.left(), (2, 2, true));
}

fn routes_that_were_removed_are_added_again(network: &Network) {
    let daemon = network.serve(DEVICES, "");
    // as a program does that takes all policy rules for its own
    network.on_gateway("ip -4 rule del fwmark 25963; ip -6 route flush table 25963");
    wait_for("the rules and routes", || network.left() == (2, 2, true));
    assert_eq!(network.page(&["http://9.9.9.2/"]), format!("9.9.9.1 http {SERVER}"));
    wait_for("the count", || daemon.status()["gateway"]["restored"].as_u64() >= Some(1));
    assert!(daemon.log().contains("another program had removed its rules"));
}

fn rules_that_could_not_be_set_are_tried_again(network: &Network) {
    network.on_gateway("ip -4 rule add fwmark 25963 lookup 77");
    let daemon = network.serve(DEVICES, "");
    let seen = &daemon.status()["gateway"];
    assert_eq!(seen["in_effect"], false, "{seen}");
    assert!(seen["error"].as_str().unwrap().contains("others use the mark"), "{seen}");
    assert!(seen["retry_in_seconds"].as_u64().is_some(), "{seen}");
    assert_eq!(network.page(&["http://9.9.9.2/"]), format!("{CLIENT} http {SERVER}"));
    network.on_gateway("ip -4 rule del fwmark 25963 lookup 77");
    wait_for("the rules", || daemon.status()["gateway"]["in_effect"] == true);
    assert_eq!(network.page(&["http://9.9.9.2/"]), format!("9.9.9.1 http {SERVER}"));
    assert_eq!(daemon.log().matches("others use the mark").count(), 1, "{}", daemon.log());
}

fn a_second_daemon_leaves_the_first_one_s_rules(network: &Network) {
    let first = network.serve(DEVICES, "");
    let second = network.serve(DEVICES, "");
    let seen = &second.status()["gateway"];
    assert_eq!(seen["in_effect"], false, "{seen}");
    assert!(seen["error"].as_str().unwrap().contains("no other Ekiden"), "{seen}");
    assert_eq!(network.left(), (2, 2, true));
    assert_eq!(network.page(&["http://9.9.9.2/"]), format!("9.9.9.1 http {SERVER}"));
    second.stop();
    assert_eq!(network.left(), (2, 2, true));
    let seen = &first.status()["gateway"];
    assert!(seen["in_effect"] == true && seen["restored"] == 0 && seen["diverted"] == 1, "{seen}");
    first.stop();
    assert_eq!(network.left(), (0, 0, false));
}

fn says_what_is_missing(network: &Network) {
    let home = Network::home(DEVICES, "");
    // without the capability
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-net_admin", "--inh-caps=-net_admin"]);
    command.arg(env!("CARGO_BIN_EXE_ekiden"));
    let mut command = home.command_of(command, &["serve", "--listen", "127.0.0.1:0"]);
    place(&mut command, &network.gateway).unwrap();
    let daemon = home.serve_by(command);
    let log = daemon.log();
    assert!(log.contains("CAP_NET_ADMIN") && log.contains("all connections pass by"), "{log}");
    let seen = &daemon.status()["gateway"];
    assert_eq!(seen["in_effect"], false, "{seen}");
    assert!(seen["error"].as_str().unwrap().contains("CAP_NET_ADMIN"), "{seen}");
    assert_eq!(network.page(&["http://9.9.9.2/"]), format!("{CLIENT} http {SERVER}"));
    let doctor = network.ask(&daemon, &["doctor"]);
    assert!(doctor.contains("the gateway is not in effect"), "{doctor}");
    daemon.stop();
    // somebody else's rules, a machine that does not forward, a mark that is taken
    network.on_gateway(
        "nft 'table inet filter { chain input { type filter hook input priority filter; policy drop; \
         iifname != \"eth1\" accept; }; }'; echo 0 >/proc/sys/net/ipv4/ip_forward; \
         ip rule add fwmark 25963 lookup 99",
    );
    let daemon = network.serve_in(&home);
    let doctor = network.ask(&daemon, &["doctor"]);
    for line in [
        "nft insert rule inet filter input meta mark 0x656b accept",
        "does not forward IPv4",
        "others use the mark 0x656b",
    ] {
        assert!(doctor.contains(line), "`{line}` is not in {doctor}");
    }
    let check = network.ask(&daemon, &["check"]);
    assert!(check.contains("inet filter input") && check.contains("warning"), "{check}");
    network.on_gateway("ip rule del fwmark 25963; echo 1 >/proc/sys/net/ipv4/ip_forward");
    daemon.reload(&config(DEVICES, ""));
    // what the doctor says mends it
    network.on_gateway("nft insert rule inet filter input meta mark 0x656b accept");
    assert_eq!(network.page(&["http://9.9.9.2/"]), format!("9.9.9.1 http {SERVER}"));
    let show = network.ask(&daemon, &["gateway", "show"]);
    let table = network.on_gateway("nft list table inet ekiden_gateway");
    let port = table.split("127.0.0.1:").nth(1).unwrap().split(' ').next().unwrap().to_owned();
    assert!(show.contains(&format!("tproxy ip to 127.0.0.1:{port} ")), "{show}{table}");
    assert!(show.contains("ip -4 rule add fwmark 0x656b lookup 25963 priority 10650"), "{show}");
}
