//! `ekiden link` as people use it: behind real tools, nested, ended by every signal, as root and as an
//! ordinary user. What needs namespaces is skipped loudly where they are denied, and fails in CI.

use serde_json::Value;
use std::fs;
use std::io::Write as _;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

/// The command, where every user may run it: one copy a user, since it is large and a test's process cannot
/// remove it at its end.
fn ekiden() -> &'static Path {
    static COPY: OnceLock<PathBuf> = OnceLock::new();
    COPY.get_or_init(|| {
        let built = Path::new(env!("CARGO_BIN_EXE_ekiden"));
        let user = rustix::process::geteuid().as_raw();
        let folder = std::env::temp_dir().join(format!("ekiden-link-{user}"));
        fs::create_dir_all(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        let copy = folder.join("ekiden");
        let modified = |path: &Path| fs::metadata(path).and_then(|file| file.modified()).ok();
        if modified(&copy) != modified(built) {
            let new = tempfile::Builder::new().tempfile_in(&folder).unwrap();
            fs::copy(built, new.path()).unwrap();
            new.as_file().set_modified(modified(built).unwrap()).unwrap();
            // as a whole: another process may run the old one
            new.persist(&copy).unwrap();
        }
        copy
    })
}

/// Whether namespaces can be had; if not, says so.
fn permitted() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        let output = link(&["-q", "--far", "true", "--", "true"]);
        let fine = output.status.success();
        if !fine {
            let why = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(std::env::var_os("CI").is_none(), "{why}");
            eprintln!("SKIPPED: tests of ekiden link: {why}");
        }
        fine
    })
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn link(arguments: &[&str]) -> Output {
    Command::new(ekiden()).arg("link").args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// The same as an ordinary user.
fn link_as_user(arguments: &[&str]) -> Output {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    let command = if is_root() { command.arg(ekiden()) } else { &mut Command::new(ekiden()) };
    command.arg("link").args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn text(output: &Output) -> String {
    let (stdout, stderr) = (&output.stdout, &output.stderr);
    format!("{}\n{}", String::from_utf8_lossy(stdout), String::from_utf8_lossy(stderr))
}

/// The least round trip that ping saw, milliseconds.
fn least(output: &Output) -> f64 {
    let text = text(output);
    let line =
        text.lines().find(|line| line.starts_with("rtt min/")).unwrap_or_else(|| panic!("{text}"));
    line.split(" = ").nth(1).unwrap().split('/').next().unwrap().parse().unwrap()
}

const PING: &[&str] = &["ping", "-4", "-q", "-c", "3", "-i", "0.2", "far"];

#[test]
fn pings_floor_is_the_delay() {
    if !permitted() {
        return;
    }
    let arguments = ["-q", "--delay", "12ms", "--far", "true", "--"];
    for output in [link(&[&arguments, PING].concat()), link_as_user(&[&arguments, PING].concat())] {
        assert!(least(&output) >= 24.0, "{}", text(&output));
    }
}

#[test]
fn nested_links_add_their_delays() {
    if !permitted() {
        return;
    }
    let ekiden = ekiden().to_str().unwrap();
    // the inner one's far end is the outer one's near end; 100.64.128.2 is the outer one's far end
    let inner = ["-q", "--delay", "10ms", "--far", "sleep 60", "--", ekiden, "link", "-q"];
    let rest = ["--delay", "5ms", "--", "ping", "-q", "-c", "2", "100.64.128.2"];
    for output in [link(&[&inner[..], &rest].concat()), link_as_user(&[&inner[..], &rest].concat())]
    {
        assert!(least(&output) >= 30.0, "{}", text(&output));
    }
}

#[test]
fn iperf3_and_curl_go_through() {
    if !permitted() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(folder.path().join("file"), vec![b'e'; 300_000]).unwrap();
    let serve = format!("exec python3 -m http.server --directory {} 8000", folder.path().display());
    let fetch =
        "curl -s --retry 20 --retry-connrefused --retry-delay 1 http://far:8000/file | wc -c";
    let output = link_as_user(&[
        "-q", "--delay", "10ms", "--rate", "20Mbit/s", "--far", &serve, "--", "sh", "-c", fetch,
    ]);
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "300000", "{}", text(&output));
    let output = link(&[
        "-q",
        "--rate",
        "5Mbit/s",
        "--delay",
        "5ms",
        "--far",
        "iperf3 -s",
        "--",
        "iperf3",
        "-J",
        "-c",
        "far",
        "-t",
        "2",
    ]);
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output)));
    let rate = report["end"]["sum_received"]["bits_per_second"].as_f64().unwrap();
    // never more than the link; how much less is congestion control's and the machine's matter
    assert!(rate > 0.0 && rate < 5.0e6, "{rate}");
}

#[test]
fn the_report_counts_every_packet() {
    if !permitted() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let json = format!("--json={}", file("report.json"));
    let (rows, film) = (file("packets.csv"), file("packets.pcapng"));
    let output = link(&[
        "-q",
        "--delay",
        "1ms",
        "--loss",
        "packets(1)",
        "--packets",
        &rows,
        "--pcap",
        &film,
        &json,
        "--congestion",
        "reno",
        "--far",
        "true",
        "--",
        "ping",
        "-4",
        "-q",
        "-c",
        "4",
        "-i",
        "0.2",
        "far",
    ]);
    let report: Value = serde_json::from_str(&fs::read_to_string(file("report.json")).unwrap())
        .unwrap_or_else(|_| panic!("{}", text(&output)));
    // the second ping, and the second of the three answers
    let of = |direction: usize| &report["links"][0]["directions"][direction]["packets"];
    let counts = |direction| {
        ["offered", "lost", "delivered"].map(|key| of(direction)[key].as_u64().unwrap())
    };
    assert_eq!((counts(0), counts(1)), ([4, 1, 3], [3, 1, 2]));
    assert_eq!(report["congestion"]["near"], "reno");
    assert_eq!(report["mode"], "packets, batched at the ends");
    assert_eq!(report["exit"], 0);
    let table = fs::read_to_string(&rows).unwrap();
    assert_eq!(table.lines().count(), 1 + 4 + 3, "{table}");
    assert_eq!(table.matches(",lost,").count(), 2, "{table}");
    let tshark = Command::new("tshark").args(["-n", "-r", &film]).output();
    let Ok(film) = tshark else {
        assert!(std::env::var_os("CI").is_none(), "tshark is not installed");
        eprintln!("SKIPPED: reading the capture: tshark is not installed");
        return;
    };
    let film = String::from_utf8_lossy(&film.stdout).into_owned();
    assert_eq!(film.matches("Echo (ping)").count(), 4 + 3 + 3 + 2, "{film}");
}

#[test]
fn the_exit_code_is_the_commands() {
    if !permitted() {
        return;
    }
    let code =
        |command: &[&str]| link(&[&["-q", "--far", "true", "--"], command].concat()).status.code();
    assert_eq!(code(&["sh", "-c", "exit 7"]), Some(7));
    assert_eq!(code(&["sh", "-c", "kill -9 $$"]), Some(137));
    assert_eq!(code(&["there-is-no-such-program"]), Some(127));
    assert_eq!(link(&["--rate", "5"]).status.code(), Some(2));
}

/// Ids of processes whose arguments contain `mark`.
fn running(mark: &str) -> Vec<u32> {
    let ids = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    let with_mark = |id: &u32| {
        fs::read(format!("/proc/{id}/cmdline"))
            .is_ok_and(|line| String::from_utf8_lossy(&line).contains(mark))
    };
    ids.filter(with_mark).collect()
}

#[test]
fn nothing_is_left_however_it_ends() {
    if !permitted() {
        return;
    }
    for (at, signal) in ["INT", "TERM", "HUP", "QUIT", "KILL"].into_iter().enumerate() {
        let mark = format!("{}.{at}", 100_000 + std::process::id());
        let command = format!("setsid sleep {mark} & exec sleep {mark}");
        // a runner in the background may ignore some of these signals, and its children inherit that
        let mut running_link = Command::new("env")
            .arg("--default-signal")
            .arg(ekiden())
            .args(["link", "-q", "--far", "true", "--", "sh", "-c", &command])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        // both sleeps, and three of ekiden's, whose arguments show the same
        while running(&mark).len() < 5 {
            assert!(begun.elapsed() < Duration::from_secs(20), "it did not start");
            thread::sleep(Duration::from_millis(20));
        }
        let id = running_link.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &id]).status().unwrap().success());
        assert!(!running_link.wait().unwrap().success(), "{signal}");
        let begun = Instant::now();
        while !running(&mark).is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(20), "{signal}: {:?}", running(&mark));
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A machine of its own to be at the far end, with `script` run on it; a place where this test may
/// change what it likes.
fn on_a_machine_of_its_own(script: &str) -> Output {
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script]);
    command.env("EKIDEN", ekiden()).env("SELF", std::env::current_exe().unwrap());
    command.stdin(Stdio::null()).output().unwrap()
}

#[test]
fn root_reaches_this_machine_and_what_it_reaches() {
    if !permitted() || !is_root() {
        eprintln!("SKIPPED: the far end as this machine: it takes root");
        return;
    }
    let output = on_a_machine_of_its_own(
        "set -e
        ip link set lo up
        # a new namespace begins as the machine is
        echo 0 > /proc/sys/net/ipv4/ip_forward
        ip netns add beyond-$$ && trap \"ip netns del beyond-$$\" EXIT
        ip link add here type veth peer name there netns beyond-$$
        ip addr add 192.0.2.1/24 dev here; ip link set here up
        ip -n beyond-$$ addr add 192.0.2.2/24 dev there; ip -n beyond-$$ link set there up
        before=$(cat /proc/sys/net/ipv4/ip_forward)
        $EKIDEN link -q --delay 5ms -- ping -q -c 2 far
        $EKIDEN link --delay 5ms -- ping -q -c 2 192.0.2.2
        $EKIDEN link -q --delay 5ms -- $EKIDEN link -q --delay 5ms -- ping -q -c 2 192.0.2.2
        sleep 0.5
        echo forwarding $before $(cat /proc/sys/net/ipv4/ip_forward)
        echo tables $(nft list tables | grep -c ekiden)
        echo devices $(ip link | grep -c ekiden)",
    );
    let text = text(&output);
    let floors: Vec<f64> = text
        .lines()
        .filter(|line| line.starts_with("rtt min/"))
        .map(|line| line.split(" = ").nth(1).unwrap().split('/').next().unwrap().parse().unwrap())
        .collect();
    assert!(matches!(floors[..], [a, b, c] if a >= 10.0 && b >= 10.0 && c >= 20.0), "{text}");
    for left in ["forwarding 0 0", "tables 0", "devices 0"] {
        assert!(text.contains(left), "{text}");
    }
}

#[test]
fn names_are_resolved_at_both_ends() {
    if !permitted() {
        return;
    }
    let output =
        link_as_user(&["-q", "--far", "getent hosts near", "--", "getent", "hosts", "far"]);
    // the far command speaks on standard error
    assert!(String::from_utf8_lossy(&output.stdout).contains("far"), "{}", text(&output));
    assert!(String::from_utf8_lossy(&output.stderr).contains("near"), "{}", text(&output));
    if !is_root() {
        eprintln!("SKIPPED: names by the machine's resolver: it takes root");
        return;
    }
    let output = on_a_machine_of_its_own(
        "set -e
        ip link set lo up
        echo nameserver 127.0.0.53 > /run/resolver-$$
        echo '192.0.2.7 listed.example' >> /run/hosts-$$
        trap \"rm -f /run/resolver-$$ /run/hosts-$$\" EXIT
        mount --bind /run/resolver-$$ /etc/resolv.conf
        mount --bind /run/hosts-$$ /etc/hosts
        EKIDEN_TEST_RESOLVER=1 $SELF --exact link::resolver_of_a_test --nocapture > /dev/null &
        sleep 0.5
        $EKIDEN link -q --delay 5ms -- getent ahostsv4 asked.example
        $EKIDEN link -q --delay 5ms -- getent ahostsv4 listed.example
        kill %1",
    );
    let text = text(&output);
    assert!(text.contains("192.0.2.99") && text.contains("192.0.2.7"), "{text}");
}

/// Not a test of its own: a resolver on 127.0.0.53 that answers every question for an address with
/// 192.0.2.99, for the test above.
#[test]
fn resolver_of_a_test() {
    if std::env::var_os("EKIDEN_TEST_RESOLVER").is_none() {
        return;
    }
    let socket = UdpSocket::bind("127.0.0.53:53").unwrap();
    let mut buffer = [0; 512];
    loop {
        let (length, from) = socket.recv_from(&mut buffer).unwrap();
        let mut answer = buffer[..length].to_vec();
        answer[2] |= 0x80; // a response
        answer[7] = 1; // one answer
        answer[11] = 0; // no additional records: EDNS is cut off below
        // the question ends with its type and class after the name's empty label
        let name = answer[12..].iter().position(|byte| *byte == 0).unwrap();
        let is_a = answer[12 + name + 2] == 1;
        answer.truncate(12 + name + 5);
        answer[7] = u8::from(is_a);
        if is_a {
            answer.write_all(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 99]).unwrap();
        }
        socket.send_to(&answer, from).unwrap();
    }
}

#[test]
fn a_topology_from_a_file() {
    if !permitted() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("office.toml");
    let hosts = ["desk", "router", "server"]
        .map(|name| format!("[[host]]\nname = \"{name}\"\nrouter = {}\n", name == "router"));
    let links = [["desk", "router"], ["router", "server"]]
        .map(|[a, b]| format!("[[link]]\nbetween = [\"{a}\", \"{b}\"]\ndelay = \"4 ms\"\n"));
    fs::write(&file, hosts.concat() + &links.concat()).unwrap();
    let file = file.to_str().unwrap();
    let ping = ["--", "ping", "-q", "-c", "3", "-i", "0.2", "desk"];
    let output = link(&[&["-q", "--topology", file, "--at", "server"], &ping[..]].concat());
    assert!(least(&output) >= 16.0, "{}", text(&output));
    let output = link(&["--topology", file, "--at", "attic", "--", "true"]);
    assert!(text(&output).contains("no host \"attic\""), "{}", text(&output));
}
