//! A telephone on the Internet that comes home by WireGuard: what reaches it, what it reaches, and its limits.

use crate::Test;
use crate::network::{Network, PATIENCE_OF_SILENCE, SERVER, SERVER_V6, config};
use crate::phone::{DOOR, OFF, Phone, program};
use ekiden_testkit::names::{answer, code, question};
use ekiden_testkit::{Daemon, PATIENCE, wait_for};
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

pub(crate) const TESTS: &[Test] = &[
    ("a_telephone_comes_home_by_wireguard", a_telephone_comes_home_by_wireguard),
    ("limits_hold_for_all_that_a_telephone_sends", limits_hold_for_all_that_a_telephone_sends),
    ("the_relay_s_machine_calls_no_device", the_relay_s_machine_calls_no_device),
    ("a_telephone_s_door_leaves_nothing", a_telephone_s_door_leaves_nothing),
    ("a_device_that_goes_away_is_made_anew", a_device_that_goes_away_is_made_anew),
    ("a_door_without_its_own_rules_stays_closed", a_door_without_its_own_rules_stays_closed),
    ("a_stop_that_loses_its_rules_shuts_the_door", a_stop_that_loses_its_rules_shuts_the_door),
    ("the_service_s_user_opens_the_door", the_service_s_user_opens_the_door),
];

/// Servers on the Internet that answer datagrams: with the sender's address, and for names.
fn answer_datagrams(network: &Network) -> [SocketAddr; 2] {
    let answers = [SERVER, SERVER_V6].map(|at| {
        let at: IpAddr = at.parse().unwrap();
        let socket = network.up.run(|| UdpSocket::bind((at, 5_000))).unwrap().unwrap();
        let address = socket.local_addr().unwrap();
        std::thread::spawn(move || {
            let mut buffer = [0; 2_000];
            while let Ok((n, from)) = socket.recv_from(&mut buffer) {
                let mut reply = from.ip().to_string().into_bytes();
                reply.resize(n.max(reply.len()), b' ');
                let _ = socket.send_to(&reply, from);
            }
        });
        address
    });
    let names = network.up.run(|| UdpSocket::bind((SERVER, 53))).unwrap().unwrap();
    std::thread::spawn(move || {
        let mut buffer = [0; 1500];
        while let Ok((n, from)) = names.recv_from(&mut buffer) {
            let reply = answer(&buffer[..n], Ipv4Addr::new(9, 9, 9, 2), 60);
            let _ = names.send_to(&reply, from);
        }
    });
    answers
}

fn serve(network: &Network) -> Daemon {
    let home = Network::home(OFF, DOOR);
    network.serve_in(&home)
}

/// The telephone of the account anna, which is added with these further words.
fn phone_of_anna(network: &Network, program: &PathBuf, daemon: &Daemon, more: &[&str]) -> Phone {
    let add = [&["account", "add", "anna", "--wireguard"], more].concat();
    let text = daemon.printed(&add);
    wait_for("the peer", || door(daemon)["peers"][0]["account"] == "anna");
    Phone::new(network, program, &text)
}

/// Servers of datagrams, a relay, and a telephone of it; none without wireguard-go.
fn phone_and_servers(network: &Network, more: &[&str]) -> Option<([SocketAddr; 2], Daemon, Phone)> {
    let program = program()?;
    let servers = answer_datagrams(network);
    let daemon = serve(network);
    let phone = phone_of_anna(network, &program, &daemon, more);
    Some((servers, daemon, phone))
}

pub(crate) fn door(daemon: &Daemon) -> serde_json::Value {
    daemon.status()["wireguard"].clone()
}

fn account(daemon: &Daemon, name: &str) -> serde_json::Value {
    let status = daemon.status();
    let accounts = status["sharing"]["accounts"].as_array().cloned().unwrap_or_default();
    accounts.into_iter().find(|account| account["name"] == name).unwrap_or_default()
}

/// Bytes of an account: up and down.
fn used(daemon: &Daemon, name: &str) -> [u64; 2] {
    let found = account(daemon, name);
    ["bytes_up", "bytes_down"].map(|key| found[key].as_u64().unwrap_or(0))
}

fn a_telephone_comes_home_by_wireguard(network: &Network) {
    let more = ["--device", "phone"];
    let Some((servers, daemon, phone)) = phone_and_servers(network, &more) else { return };
    let show = daemon.printed(&["account", "show", "anna"]);
    assert!(show.contains("phone: WireGuard, 10.77.0.2"), "{show}");
    // the first page, and others
    assert_eq!(phone.page(network, &["http://9.9.9.2/"]), format!("9.9.9.1 http {SERVER}"));
    let v6 = ["-g", "http://[2620:fe::2]/"];
    assert_eq!(phone.page(network, &v6), format!("2620:fe::1 http [{SERVER_V6}]"));
    let tls = ["--resolve", "example.org:443:9.9.9.2", "https://example.org/"];
    assert_eq!(phone.page(network, &tls), "9.9.9.1 https example.org");
    assert_eq!(daemon.status()["gateway"]["diverted"], 3);
    // datagrams, which the kernel forwards
    let own = phone.own();
    for (own, server, outside) in
        [(&own[0], servers[0], "9.9.9.1"), (&own[1], servers[1], "2620:fe::1")]
    {
        let came = phone.ask(own, server, b"whence?", PATIENCE).unwrap();
        assert_eq!(String::from_utf8(came).unwrap().trim_end(), outside);
    }
    // names, at the relay's address in the tunnel, which no port of all addresses serves
    let names: IpAddr = phone.given["DNS"].split(", ").next().unwrap().parse().unwrap();
    let asked =
        phone.ask(&own[0], (names, 53).into(), &question(7, "a.example"), PATIENCE).unwrap();
    assert!(code(&asked) == 0 && asked.ends_with(&[9, 9, 9, 2]), "{asked:?}");
    // over reloads, too
    for nth in 8..13 {
        daemon.reload(&config(OFF, DOOR));
        let asked = question(nth, "a.example");
        assert!(phone.ask(&own[0], (names, 53).into(), &asked, PATIENCE).is_some());
    }
    assert!(!daemon.log().contains("cannot listen"), "{}", daemon.log());
    // large transfers, cut and merged on their way
    let big = network
        .curl(&phone.netns, &["http://9.9.9.2/big", "--limit-rate", "100M", "-r", "0-2000000"]);
    assert_eq!((big.status.success(), big.stdout.len()), (true, 2_000_001));
    assert!(big.stdout.iter().all(|byte| *byte == b'e'));
    // this machine's own services stay closed, and so does whoever is on the same door
    let service = network.gateway.run(|| TcpListener::bind(("0.0.0.0", 7_777))).unwrap().unwrap();
    for at in ["9.9.9.1", "10.77.0.1", "10.77.0.3"] {
        let to: SocketAddr = format!("{at}:7777").parse().unwrap();
        let dial = || TcpStream::connect_timeout(&to, Duration::from_secs(3));
        if at == "9.9.9.1" {
            // that one has a way beside the tunnel
            continue;
        }
        let dialled = phone.netns.run(dial).unwrap();
        assert!(dialled.is_err() || is_reset(dialled.unwrap()), "{at}");
    }
    drop(service);
    // an address that is not its own
    network.shell(&phone.netns, &format!("ip addr add 10.77.0.9/32 dev {}", phone.device)).unwrap();
    assert!(phone.ask("10.77.0.9", servers[0], b"forged", PATIENCE_OF_SILENCE).is_none());
    wait_for("the forged packet", || door(&daemon)["forged"].as_u64() >= Some(1));
    // the telephone gets another address
    let moved = "ip addr del 8.8.8.2/24 dev p0; ip addr add 8.8.8.3/24 dev p0; ip route add 9.9.9.1 via 8.8.8.1";
    network.shell(&phone.netns, moved).unwrap();
    assert_eq!(phone.page(network, &["http://9.9.9.2/"]), format!("9.9.9.1 http {SERVER}"));
    let peer = &door(&daemon)["peers"][0];
    assert!(peer["endpoint"].as_str().unwrap().starts_with("8.8.8.3:"), "{peer}");
    let text = network.ask(&daemon, &["status"]);
    assert!(text.contains("anna (phone)") && text.contains("8.8.8.3:"), "{text}");
}

fn is_reset(mut stream: TcpStream) -> bool {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    matches!(stream.read(&mut [0; 1]), Ok(0) | Err(_))
}

fn limits_hold_for_all_that_a_telephone_sends(network: &Network) {
    let more = ["--quota", "1 GB/day"];
    let Some((servers, daemon, phone)) = phone_and_servers(network, &more) else { return };
    let own = phone.own();
    let exchange = |n: usize| phone.ask(&own[0], servers[0], &vec![b'x'; n], PATIENCE_OF_SILENCE);
    wait_for("the session", || exchange(100).is_some());
    // what the kernel forwards counts by its payload, once
    let before = used(&daemon, "anna");
    for _ in 0..10 {
        assert_eq!(exchange(1_000).unwrap().len(), 1_000);
    }
    assert_eq!(used(&daemon, "anna"), before.map(|bytes| bytes + 10_000));
    // what the relay carries counts there, and not again
    let before = used(&daemon, "anna");
    let stream =
        phone.netns.run(|| TcpStream::connect((SERVER, crate::network::ECHO))).unwrap().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let back = crate::network::exchange(stream, &[&[b'y'; 50_000]]).unwrap();
    assert_eq!(back.len(), 50_000);
    wait_for("the end", || daemon.status()["gateway"]["live"] == 0);
    assert_eq!(used(&daemon, "anna"), before.map(|bytes| bytes + 50_000));
    // a rule of the account: datagrams obey it as connections do
    let to = servers[0].port();
    daemon.printed(&["account", "set", "anna", "--deny", &format!(":{to}")]);
    wait_for("the rule", || exchange(10).is_none());
    assert!(door(&daemon)["refused"].as_u64() > Some(0));
    daemon.printed(&["account", "set", "anna", "--deny", "none"]);
    wait_for("the rule's end", || exchange(10).is_some());
    // a quota that is used up by datagrams stops all
    let spent: u64 = used(&daemon, "anna").iter().sum();
    let quota = format!("{} B/day", spent + 20_000);
    daemon.printed(&["account", "set", "anna", "--quota", &quota, "--on-quota-exceeded", "cut"]);
    // until then more passes
    wait_for("the news of it", || account(&daemon, "anna")["quota"] == spent + 20_000);
    wait_for("the quota", || exchange(1_000).is_none());
    assert!(used(&daemon, "anna").iter().sum::<u64>() <= spent + 20_000);
    assert!(!network.curl(&phone.netns, &["http://9.9.9.2/"]).status.success());
    daemon.printed(&["account", "set", "anna", "--quota", "none"]);
    wait_for("another quota", || exchange(1_000).is_some());
    // a disabled account gets no service, and no answer
    daemon.printed(&["account", "set", "anna", "--disable"]);
    wait_for("its end", || door(&daemon)["peers"][0]["barred"].is_string());
    assert!(exchange(100).is_none());
    daemon.printed(&["account", "set", "anna", "--enable"]);
    wait_for("its return", || door(&daemon)["peers"][0]["barred"].is_null());
    // the old key is gone with the new one, and so is what went on under its address
    let dial = || TcpStream::connect((SERVER, crate::network::ECHO));
    let live = phone.netns.run(dial).unwrap().unwrap();
    wait_for("the connection", || daemon.status()["gateway"]["live"] == 1);
    daemon.printed(&["account", "set", "anna", "--wireguard", "--device", "wireguard"]);
    let key = door(&daemon)["peers"][0]["public_key"].clone();
    wait_for("another key", || {
        door(&daemon)["peers"][0]["public_key"] != key || {
            let show = daemon.printed(&["account", "show", "anna"]);
            show.contains(door(&daemon)["peers"][0]["public_key"].as_str().unwrap())
        }
    });
    assert!(exchange(100).is_none());
    wait_for("the connection's end", || daemon.status()["gateway"]["live"] == 0);
    drop(live);
}

fn the_relay_s_machine_calls_no_device(network: &Network) {
    let Some((servers, daemon, phone)) = phone_and_servers(network, &[]) else { return };
    let own = phone.own();
    let asks = || phone.ask(&own[0], servers[0], b"whence?", PATIENCE_OF_SILENCE);
    wait_for("the session", || asks().is_some());
    let sent = || {
        let door = door(&daemon);
        (used(&daemon, "anna"), door["peers"][0]["sent"].clone(), door["refused"].clone())
    };
    // earlier questions may be answered late
    let mut before = sent();
    wait_for("the last answer", || {
        std::thread::sleep(PATIENCE_OF_SILENCE);
        let earlier = std::mem::replace(&mut before, sent());
        earlier == before
    });
    for (here, own) in [("0.0.0.0", &own[0]), ("::", &own[1])] {
        let to = SocketAddr::new(own.parse().unwrap(), 4_000);
        let send = || UdpSocket::bind((here, 0))?.send_to(b"junk", to);
        let error = network.gateway.run(send).unwrap().unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied, "{own}: {error}");
        let dial = || TcpStream::connect_timeout(&to, PATIENCE_OF_SILENCE);
        assert!(network.gateway.run(dial).unwrap().is_err(), "{own}");
    }
    assert_eq!(sent(), before, "nothing came to the door");
    // what this machine answers does
    assert_eq!(phone.page(network, &["http://9.9.9.2/"]), format!("9.9.9.1 http {SERVER}"));
    let names = SocketAddr::new([10, 77, 0, 1].into(), 53);
    assert!(phone.ask(&own[0], names, &question(7, "a.example"), PATIENCE).is_some());
    network.shell(&phone.netns, "ping -q -c 3 -i 0.2 10.77.0.1").unwrap();
    // its public address is the kernel's to judge, which answers pings
    network.shell(&phone.netns, "ping -6 -q -c 3 -i 0.2 2620:fe::1").unwrap();
}

fn a_telephone_s_door_leaves_nothing(network: &Network) {
    let home = Network::home(OFF, DOOR);
    let mut daemon = network.serve_in(&home);
    let devices = || network.on_gateway("ip -o link").contains("ekiden-wg");
    assert!(devices() && network.left().2);
    let key = home.state("wireguard.key");
    let mode = std::os::unix::fs::MetadataExt::mode(
        &home.path().join("state/wireguard.key").metadata().unwrap(),
    );
    assert_eq!(mode & 0o777, 0o600);
    daemon.kill();
    wait_for("the end of both", || !devices() && !network.left().2);
    let daemon = network.serve_in(&home);
    assert!(devices() && home.state("wireguard.key") == key);
    // a reload takes it away and brings it back
    daemon.reload(&config("devices = [\"eth1\"]", "[accounts]\nenabled = true\n"));
    wait_for("no device", || !devices());
    daemon.reload(&config(OFF, DOOR));
    wait_for("the device", devices);
    // another folder needs a restart: until then the key stays, which telephones have
    let public = door(&daemon)["public_key"].clone();
    let state = "enabled = true\nstate = \"DIR/other\"";
    daemon.reload(&config(OFF, &DOOR.replace("enabled = true", state)));
    assert_eq!(door(&daemon)["public_key"], public);
    assert!(daemon.log().contains("`state` of [accounts] needs a restart"), "{}", daemon.log());
    // somebody else's device is left alone, and everything else is served
    daemon
        .reload(&config("devices = [\"eth1\"]", "[accounts]\nenabled = true\nrequired = false\n"));
    wait_for("no device", || !devices());
    network.on_gateway("ip tuntap add mode tun name ekiden-wg");
    daemon.reload(&config(
        "devices = [\"eth1\"]",
        &DOOR.replace("enabled = true", "enabled = true\nrequired = false"),
    ));
    assert!(door(&daemon)["error"].as_str().unwrap().contains("set another `device`"));
    assert_eq!(network.page(&["http://9.9.9.2/"]), format!("9.9.9.1 http {SERVER}"));
    let text = network.ask(&daemon, &["status"]);
    assert!(text.contains("wireguard: nobody comes in"), "{text}");
    network.on_gateway("ip tuntap del mode tun name ekiden-wg");
    wait_for("another attempt", || door(&daemon)["error"].is_null());
    daemon.stop();
    assert!(!devices());
    assert_eq!(network.left(), (0, 0, false));
}

fn a_device_that_goes_away_is_made_anew(network: &Network) {
    let daemon = serve(network);
    let is_up = || network.on_gateway("ip -o link show up").contains("ekiden-wg");
    for (how, why) in
        [("ip link del ekiden-wg", "is gone"), ("ip link set ekiden-wg down", "was set down")]
    {
        assert!(is_up() && door(&daemon)["error"].is_null());
        network.on_gateway(how);
        wait_for("the news", || door(&daemon)["error"].as_str().is_some_and(|e| e.contains(why)));
        assert!(door(&daemon)["listen"].as_array().is_none_or(Vec::is_empty));
        wait_for("another device", || is_up() && door(&daemon)["error"].is_null());
    }
    assert_eq!(daemon.log().matches("is opened anew").count(), 2, "{}", daemon.log());
}

fn a_door_without_its_own_rules_stays_closed(network: &Network) {
    let Some((servers, daemon, phone)) = phone_and_servers(network, &[]) else { return };
    let own = phone.own();
    let passes = || phone.ask(&own[0], servers[0], b"whence?", PATIENCE_OF_SILENCE).is_some();
    wait_for("the session", passes);
    // rules that cannot be set: those before are for another device
    network.on_gateway("ip -4 rule add fwmark 4711 lookup 77");
    daemon.reload(&config("mark = 4711", &format!("{DOOR}device = \"ekiden-2\"\n")));
    let gateway = daemon.status()["gateway"].clone();
    assert!(gateway["error"].as_str().unwrap().contains("others use the mark"), "{gateway}");
    assert!(network.on_gateway("nft list table inet ekiden_gateway").contains("ekiden-wg"));
    let dropped = || door(&daemon)["undelivered"].as_u64();
    wait_for("another session", || !passes() && dropped() >= Some(3));
    network.on_gateway("ip -4 rule del fwmark 4711 lookup 77");
    wait_for("the rules", || daemon.status()["gateway"]["in_effect"] == true);
    wait_for("the open door", passes);
}

fn a_stop_that_loses_its_rules_shuts_the_door(network: &Network) {
    let Some(program) = program() else { return };
    let home = Network::home(OFF, &format!("{DOOR}[timeouts]\nstop = \"10 min\"\n"));
    let daemon = network.serve_in(&home);
    let phone = phone_of_anna(network, &program, &daemon, &[]);
    // the stop waits for this one
    let dial = || TcpStream::connect((SERVER, crate::network::ECHO));
    let mut live = phone.netns.run(dial).unwrap().unwrap();
    live.set_read_timeout(Some(PATIENCE)).unwrap();
    live.write_all(b"live").unwrap();
    live.read_exact(&mut [0; 4]).unwrap();
    let to: SocketAddr = "192.168.77.1:7777".parse().unwrap();
    let service = network.gateway.run(|| TcpListener::bind(to)).unwrap().unwrap();
    // a full queue would look like a shut door
    std::thread::spawn(move || service.incoming().for_each(drop));
    let children = std::fs::read_to_string(daemon.proc(&format!("task/{}/children", daemon.pid())));
    daemon.signal(rustix::process::Signal::TERM);
    let table = || network.on_gateway("nft list table inet ekiden_gateway");
    wait_for("the stop", || !table().contains("tproxy"));
    for child in children.unwrap().split_whitespace() {
        std::process::Command::new("kill").args(["-9", child]).status().unwrap();
    }
    wait_for("the end of the table", || !network.left().2);
    let dial = || TcpStream::connect_timeout(&to, PATIENCE_OF_SILENCE).is_ok();
    wait_for("the shut door", || !phone.netns.run(dial).unwrap());
    drop(live);
}

/// Opens the device to everybody, as udev does, for this program alone. Whether that could be done.
fn open_to_everybody(folder: &std::path::Path) -> bool {
    let script =
        "mknod -m 0666 \"$0\" c 10 200 && mount --bind \"$0\" /dev/net/tun && : 3<>/dev/net/tun";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", script]).arg(folder.join("tun")).status().unwrap().success()
}

/// With no more than the packaged unit gives.
fn the_service_s_user_opens_the_door(network: &Network) {
    use std::os::unix::fs::MetadataExt as _;
    let home = Network::home("devices = [\"eth1\"]", DOOR);
    let Some(mut daemon) = network.serve_as_nobody(&home) else { return };
    let status = daemon.status();
    assert_eq!(
        (&status["gateway"]["error"], &status["gateway"]["in_effect"]),
        (&serde_json::Value::Null, &true.into())
    );
    if std::fs::metadata("/dev/net/tun").unwrap().mode() & 0o006 != 0o006 {
        // where udev does not set the mode
        let error = door(&daemon)["error"].clone();
        assert!(error.as_str().unwrap().contains("chmod 0666 /dev/net/tun"), "{error}");
        daemon.stop();
        if !open_to_everybody(home.path()) {
            assert!(std::env::var_os("CI").is_none(), "no /dev/net/tun for everybody can be made");
            println!("SKIPPED: the service's user at /dev/net/tun, which is root's alone");
            return;
        }
        daemon = network.serve_as_nobody(&home).unwrap();
    }
    assert!(door(&daemon)["error"].is_null(), "{}", door(&daemon));
    assert!(network.on_gateway("ip -o link").contains("ekiden-wg"));
    let log = daemon.log();
    assert!(log.contains("answers questions for names at 10.77.0.1:53"), "{log}");
    daemon.stop();
    assert!(!network.on_gateway("ip -o link").contains("ekiden-wg"));
    assert_eq!(network.left(), (0, 0, false));
}
