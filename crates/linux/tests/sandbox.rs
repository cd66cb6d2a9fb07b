//! Sandboxes, as root and as an ordinary user: this program starts itself anew for each trial, as a
//! process can enter one only once.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use ekiden_linux::host::sysctl;
use ekiden_linux::links::netlink::{self, End, Netlink, Route, RouteMetrics};
use ekiden_linux::namespaces::mounts::Mounts;
use ekiden_linux::namespaces::netns::{self, Netns};
use ekiden_linux::namespaces::sandbox;
use ekiden_linux::sockets::socket;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

const A: [u8; 6] = [2, 0, 0, 0, 0, 1];
const B: [u8; 6] = [2, 0, 0, 0, 0, 2];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("--trial") => return inside(&arguments[2..]),
        Some(flag) if flag.starts_with("--list") => return ExitCode::SUCCESS,
        _ => {}
    }
    let folder = tempfile::tempdir().unwrap();
    // where anybody can run it
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.path().join("sandbox-trial");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let root =
        fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    let mut users = vec![User { program, other: false }];
    if root {
        users.push(User { program: users[0].program.clone(), other: true });
    }
    for user in &users {
        let who = if user.other { "nobody" } else { "this user" };
        let tried = user.trial(&["exit", "0"]).output().unwrap();
        if !tried.status.success() {
            let why = String::from_utf8_lossy(&tried.stderr).into_owned();
            assert!(std::env::var_os("CI").is_none(), "as {who}: {why}");
            println!("SKIPPED: sandboxes as {who}: {why}");
            continue;
        }
        for (name, test) in TESTS {
            test(user);
            println!("{name} as {who} ... ok");
        }
    }
    ExitCode::SUCCESS
}

type Test = fn(&User);

const TESTS: &[(&str, Test)] = &[
    ("the_status_comes_through", the_status_comes_through),
    ("two_namespaces_talk", two_namespaces_talk),
    ("sandboxes_nest", sandboxes_nest),
    ("programs_keep_their_user_and_capabilities", programs_keep_their_user_and_capabilities),
    ("a_command_sees_its_own_files", a_command_sees_its_own_files),
    ("a_file_system_in_memory_fills_and_is_not_seen_outside", |user| drop(user.succeed(&["disk"]))),
    ("an_address_that_can_be_bound_is_not_therefore_local", |user| drop(user.succeed(&["local"]))),
    ("one_routing_table_is_told_from_thousands_of_others_routes", |user| {
        drop(user.succeed(&["tables"]))
    }),
    ("a_signal_is_passed_on", a_signal_is_passed_on),
    ("killing_the_outer_process_leaves_nothing", |user| killing_leaves_nothing(user, true)),
    ("killing_the_inner_process_leaves_nothing", |user| killing_leaves_nothing(user, false)),
];

struct User {
    program: PathBuf,
    other: bool,
}

impl User {
    fn trial(&self, arguments: &[&str]) -> Command {
        let mut command = if self.other {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&self.program);
            command
        } else {
            Command::new(&self.program)
        };
        command.arg("--trial").args(arguments);
        command
    }

    fn succeed(&self, arguments: &[&str]) -> String {
        let output: Output = self.trial(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {}: {said}{errors}", output.status);
        said
    }
}

fn the_status_comes_through(user: &User) {
    assert_eq!(user.trial(&["exit", "7"]).status().unwrap().code(), Some(7));
    assert_eq!(user.trial(&["die"]).status().unwrap().code(), Some(128 + libc::SIGKILL));
}

fn two_namespaces_talk(user: &User) {
    user.succeed(&["talk"]);
}

fn sandboxes_nest(user: &User) {
    assert_eq!(user.succeed(&["nest", "3"]).lines().count(), 4);
}

fn programs_keep_their_user_and_capabilities(user: &User) {
    let expected = if user.other { 65534 } else { own_uid() };
    let said =
        user.succeed(&["run", "id -u; ls /sys/class/net >/dev/null; ip -o link; ps ax | wc -l"]);
    assert!(said.starts_with(&format!("{expected}\n")), "{said}");
    assert!(said.contains("lo: <LOOPBACK,UP"), "{said}");
    user.succeed(&["run", "ip link add here type veth peer name there && ip link del here"]);
}

fn ip(arguments: &str) {
    let mut command = Command::new("ip");
    netns::place(command.args(arguments.split(' ')), &Netns::current().unwrap()).unwrap();
    assert!(command.status().unwrap().success(), "ip {arguments}");
}

/// Local is what a device has, and what is routed as such or as anycast; `ip_nonlocal_bind` lets any address be bound.
fn local() {
    sysctl::write("net.ipv4.ip_nonlocal_bind", "1").unwrap();
    ip("route add local 198.51.100.0/24 dev lo");
    ip("-6 route add local 2001:db8:1::/48 dev lo");
    ip("-6 route add anycast 2001:db8:3:: dev lo");
    ip("route add blackhole 203.0.113.0/24");
    for (address, expected) in [
        ("127.0.0.1", true),
        ("::1", true),
        ("198.51.100.7", true),
        ("2001:db8:1::7", true),
        ("2001:db8:3::", true),
        ("192.0.2.1", false),
        ("203.0.113.1", false),
        ("2001:db8:2::1", false),
    ] {
        let address: IpAddr = address.parse().unwrap();
        assert!(address.is_ipv6() || UdpSocket::bind((address, 0)).is_ok(), "{address}");
        assert_eq!(netlink::is_local(address).unwrap(), expected, "{address}");
    }
}

/// A table is looked at alone, there or not, while the main one has thousands of routes.
fn tables() {
    const TABLE: u32 = 7_700;
    let here = Netlink::here().unwrap();
    let look = |ipv6| {
        (here.has_local_route(ipv6, TABLE).unwrap(), here.other_routes(ipv6, TABLE).unwrap())
    };
    for (ipv6, other) in [
        (false, "route add blackhole 203.0.113.0/24"),
        (true, "-6 route add blackhole 2001:db8:2::/48"),
    ] {
        for n in 0..3_000_u16 {
            let [high, low] = n.to_be_bytes();
            let destination: (IpAddr, u8) = match ipv6 {
                false => ([10, 7, high, low].into(), 32),
                true => ([0x2001, 0xdb8, 1, n, 0, 0, 0, 0].into(), 64),
            };
            let (dev, metrics) = ("lo".to_owned(), RouteMetrics::default());
            here.route(&Route { destination, via: None, dev, metrics }).unwrap();
        }
        assert_eq!(look(ipv6), (false, 0), "there is none");
        here.add_local_route(ipv6, TABLE).unwrap();
        assert_eq!(look(ipv6), (true, 0));
        ip(&format!("{other} table {TABLE}"));
        assert_eq!(look(ipv6), (true, 1));
        here.remove_local_route(ipv6, TABLE).unwrap();
        assert_eq!(look(ipv6), (false, 1));
    }
}

fn own_uid() -> u32 {
    std::os::unix::fs::MetadataExt::uid(&fs::metadata("/proc/self").unwrap())
}

fn a_command_sees_its_own_files(user: &User) {
    user.succeed(&["files"]);
}

fn a_signal_is_passed_on(user: &User) {
    let (mut outer, _) = waiting(user);
    kill(outer.id(), libc::SIGTERM);
    assert_eq!(outer.wait().unwrap().code(), Some(128 + libc::SIGTERM));
}

fn killing_leaves_nothing(user: &User, the_outer: bool) {
    let (mut outer, namespace) = waiting(user);
    let inside = holders(&namespace);
    assert!(inside.len() >= 3, "init, the program and its child: {inside:?}");
    let victim = if the_outer { outer.id() } else { inside[1] };
    kill(victim, libc::SIGKILL);
    outer.wait().unwrap();
    let start = Instant::now();
    while !holders(&namespace).is_empty() {
        assert!(start.elapsed() < Duration::from_secs(10), "{:?} stay", holders(&namespace));
        sleep(Duration::from_millis(10));
    }
}

/// A sandbox that does nothing for long; the outer process, and the network namespace inside.
fn waiting(user: &User) -> (std::process::Child, PathBuf) {
    let mut outer = user.trial(&["wait"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(outer.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (outer, PathBuf::from(line.trim()))
}

/// The processes in a network namespace, oldest first.
fn holders(namespace: &Path) -> Vec<u32> {
    let processes = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let pid = entry.ok()?.file_name().to_str()?.parse::<u32>().ok()?;
        (fs::read_link(format!("/proc/{pid}/ns/net")).ok()? == namespace).then_some(pid)
    });
    let mut processes: Vec<u32> = processes.collect();
    processes.sort_unstable();
    processes
}

fn kill(pid: u32, signal: i32) {
    // SAFETY: plain integers; a process this test has started and not yet waited for.
    #[allow(unsafe_code)]
    unsafe {
        libc::kill(pid as i32, signal)
    };
}

/// One trial's life, from its start as an ordinary process.
fn inside(arguments: &[String]) -> ExitCode {
    let before = fs::read_link("/proc/self/ns/net").unwrap();
    let sandbox = match sandbox::enter() {
        Ok(sandbox) => sandbox,
        Err(denied) => {
            eprintln!("{denied}");
            return ExitCode::FAILURE;
        }
    };
    assert_ne!(fs::read_link("/proc/thread-self/ns/net").unwrap(), before);
    let argument = arguments.get(1).cloned().unwrap_or_default();
    match arguments[0].as_str() {
        "exit" => return ExitCode::from(argument.parse::<u8>().unwrap()),
        "die" => kill(std::process::id(), libc::SIGKILL),
        "talk" => talk(),
        "nest" => {
            println!("user namespace: {}", sandbox.user_namespace);
            let left: u32 = argument.parse().unwrap();
            // the first has made one if need be, in which there are privileges
            assert!(left == 3 || !sandbox.user_namespace);
            if left > 0 {
                let own = std::env::current_exe().unwrap();
                let left = (left - 1).to_string();
                let status = Command::new(own).args(["--trial", "nest", &left]).status().unwrap();
                assert!(status.success());
            }
        }
        "run" => {
            let mut command = Command::new("sh");
            command.args(["-ec", &argument]);
            netns::place(&mut command, &Netns::current().unwrap()).unwrap();
            assert!(command.status().unwrap().success());
        }
        "files" => files(),
        "disk" => {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join("below"), "").unwrap();
            sandbox.small_memory(folder.path(), 1 << 20).unwrap();
            assert!(fs::read_dir(folder.path()).unwrap().next().is_none());
            fs::write(folder.path().join("half"), vec![7; 1 << 19]).unwrap();
            let full = fs::write(folder.path().join("all"), vec![7; 1 << 20]).unwrap_err();
            assert_eq!(full.raw_os_error(), Some(libc::ENOSPC));
        }
        "local" => local(),
        "tables" => tables(),
        "wait" => {
            let here = Netns::current().unwrap();
            let far = Netns::new().unwrap();
            pair(&here, &far, 1500);
            let mut command = Command::new("sleep");
            command.arg("60");
            netns::place(&mut command, &here).unwrap();
            let mut child = command.spawn().unwrap();
            println!("{}", fs::read_link("/proc/self/ns/net").unwrap().display());
            child.wait().unwrap();
        }
        other => panic!("no trial {other}"),
    }
    ExitCode::SUCCESS
}

fn pair(a: &Netns, b: &Netns, mtu: u32) -> [Netlink; 2] {
    let both = [Netlink::open(a).unwrap(), Netlink::open(b).unwrap()];
    let ends = [End { name: "near", mac: A, netns: a }, End { name: "far", mac: B, netns: b }];
    both[0].veth(&ends[0], &ends[1], mtu, Some(1), 10_000).unwrap();
    let addresses: [[IpAddr; 2]; 2] = [
        ["198.18.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
        ["198.18.0.2".parse().unwrap(), "fd00::2".parse().unwrap()],
    ];
    for (i, (link, name)) in both.iter().zip(["near", "far"]).enumerate() {
        let statistics = link.link_statistics(name).unwrap();
        assert_eq!((statistics.gso_max_segs, statistics.mtu), (1, mtu), "{name}");
        link.set_noarp(name).unwrap();
        link.up(name).unwrap();
        let families = if mtu < 1280 { 1 } else { 2 };
        for (own, other) in addresses[i].into_iter().zip(addresses[1 - i]).take(families) {
            link.address(name, own, if own.is_ipv4() { 30 } else { 64 }).unwrap();
            link.neighbour(name, other, [B, A][i]).unwrap();
        }
    }
    both[0].await_sending("near").unwrap();
    both
}

fn talk() {
    for mtu in [576, 1500, 65_535] {
        let (a, b) = (Netns::new().unwrap(), Netns::new().unwrap());
        let [near, far] = pair(&a, &b, mtu);
        assert_eq!(near.link_statistics("near").unwrap().rx_packets, 0, "it speaks for itself");
        echo(&a, &b, "198.18.0.1:0", "198.18.0.2:0");
        if mtu >= 1280 {
            echo(&a, &b, "[fd00::1]:0", "[fd00::2]:0");
        } else {
            assert!(near.address("near", "fd00::1".parse().unwrap(), 64).is_err());
        }
        let congestion = "reno";
        let metrics = RouteMetrics {
            congestion: Some(congestion.into()),
            initcwnd: Some(4),
            rto_min: Some(300),
            ..RouteMetrics::default()
        };
        let to: (IpAddr, u8) = ("198.18.0.0".parse().unwrap(), 15);
        let via = Some("198.18.0.2".parse().unwrap());
        let route = Route { destination: to, via, dev: "near".into(), metrics: metrics.clone() };
        near.route(&route).unwrap();
        assert_eq!(near.route_metrics(to.0, to.1).unwrap(), Some(metrics));
        let narrow = Route { destination: ("198.18.0.2".parse().unwrap(), 32), via: None, ..route };
        near.route(&narrow).unwrap();
        let unknown = RouteMetrics { congestion: Some("nosuch".into()), ..RouteMetrics::default() };
        let failure = near.route(&Route { metrics: unknown, ..narrow }).unwrap_err();
        assert!(failure.to_string().contains("198.18.0.2/32 over near"), "{failure}");
        bulk(&a, &b, congestion, mtu, &far);
        settings(&a, &b);
        near.delete("near").unwrap();
        assert!(far.link_statistics("far").is_err());
    }
}

fn echo(a: &Netns, b: &Netns, near: &str, far: &str) {
    let bind = |netns: &Netns, at: &str| {
        let socket = netns.run(|| UdpSocket::bind(at)).unwrap().unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        socket
    };
    let (near, far) = (bind(a, near), bind(b, far));
    near.send_to(b"ping", far.local_addr().unwrap()).unwrap();
    let mut bytes = [0; 16];
    let (length, from) = far.recv_from(&mut bytes).unwrap();
    assert_eq!((&bytes[..length], from), (&b"ping"[..], near.local_addr().unwrap()));
    far.send_to(b"pong", from).unwrap();
    assert_eq!(near.recv(&mut bytes).unwrap(), 4);
}

/// A TCP transfer uses the route's congestion control, and no super-packet.
fn bulk(a: &Netns, b: &Netns, congestion: &str, mtu: u32, far: &Netlink) {
    const BYTES: usize = 1_000_000;
    let listener = b.run(|| TcpListener::bind("198.18.0.2:0")).unwrap().unwrap();
    let to: SocketAddr = listener.local_addr().unwrap();
    let mut client = a.run(|| TcpStream::connect(to)).unwrap().unwrap();
    assert_eq!(socket::congestion(client.as_fd()).unwrap(), congestion);
    let (mut server, _) = listener.accept().unwrap();
    let before = far.link_statistics("far").unwrap().rx_packets;
    let reader = std::thread::spawn(move || server.read_to_end(&mut Vec::new()).unwrap());
    client.write_all(&vec![0; BYTES]).unwrap();
    drop(client);
    assert_eq!(reader.join().unwrap(), BYTES);
    let packets = far.link_statistics("far").unwrap().rx_packets - before;
    let least = BYTES as u64 / u64::from(mtu - 40);
    assert!(packets >= least, "{packets} packets, at least {least} expected at MTU {mtu}");
}

fn settings(a: &Netns, b: &Netns) {
    let name = "net.ipv4.tcp_slow_start_after_idle";
    a.run(|| sysctl::write(name, "0")).unwrap().unwrap();
    assert_eq!(sysctl::read_in(a, name).as_deref(), Some("0"));
    assert_eq!(sysctl::read_in(b, name).as_deref(), Some("1"));
    let _ = b.run(|| sysctl::write("net.ipv4.ping_group_range", "0 65534")); // as the mapping permits
    assert!(a.as_fd().as_raw_fd() != b.try_clone().unwrap().as_fd().as_raw_fd());
}

fn files() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hosts").display().to_string();
    fs::write(&file, "198.18.0.2 server\n").unwrap();
    let mounts =
        Mounts::new(&[(file.as_str(), "/etc/hosts"), (file.as_str(), "/no/such")]).unwrap();
    assert_eq!(mounts.skipped().len(), 1);
    let mut command = Command::new("cat");
    command.arg("/etc/hosts");
    netns::place_with(&mut command, &Netns::new().unwrap(), &mounts).unwrap();
    let output = command.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "198.18.0.2 server\n", "{output:?}");
    assert_ne!(fs::read_to_string("/etc/hosts").unwrap(), "198.18.0.2 server\n");
}
