//! A rate that a relay's leg holds in the kernel, over a link that loses packets by chance; and what becomes of a relay that
//! may not load the program. No timing is asserted tightly.

use crate::daemons::{as_nobody, daemon, home};
use ekiden_linux::bpf::{Control, Loaded, Missing, Needs};
use ekiden_testkit::{Daemon, wait_for};
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Whether programs can be loaded; if not, says so.
fn permitted() -> bool {
    let met = Needs::look().met();
    if let Err(missing) = &met {
        assert!(std::env::var_os("CI").is_none(), "{missing}");
        println!("SKIPPED: {missing}");
    }
    met.is_ok()
}

const CONFIG: &str = "control = \"DIR/ekiden.sock\"\n\
     [management]\nlisten = \"off\"\n\
     [leg.client]\ncongestion = [\"hold\", \"reno\"]\nrate = \"4 Mbit/s\"\n\
     [leg.direct]\ncongestion = [\"westwood\", \"reno\"]\n";

/// The first line of the daemon's log with `part` in it.
fn line(daemon: &Daemon, part: &str) -> String {
    let log = daemon.log();
    let line = log.lines().find(|line| line.contains(part));
    line.unwrap_or_else(|| panic!("`{part}` is not in {log}")).to_owned()
}

fn is_available(name: &str) -> bool {
    let all = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
    all.split_whitespace().any(|other| other == name)
}

/// The kernel's name in a line of the log.
fn kernel_name(line: &str) -> String {
    let name = line.split_whitespace().find(|word| word.starts_with("ekiden_"));
    name.unwrap_or_else(|| panic!("{line}")).to_owned()
}

#[test]
fn a_relay_loads_what_its_legs_ask_for_and_leaves_nothing() {
    if !permitted() {
        return;
    }
    let mut daemon = daemon(CONFIG);
    let hold = kernel_name(&line(&daemon, "congestion control hold:"));
    let westwood = kernel_name(&line(&daemon, "congestion control westwood:"));
    assert!(is_available(&hold) && is_available(&westwood));
    let status = daemon.status();
    let leg =
        |name| status["legs"].as_array().unwrap().iter().find(|leg| leg["name"] == name).unwrap();
    assert_eq!(leg("client")["held"]["allotted"], 4_000_000);
    assert_eq!(leg("client")["held"]["control"], hold.as_str());
    assert!(leg("direct")["held"].is_null());
    // as a machine's end would, without a word
    daemon.kill();
    wait_for("their end", || !is_available(&hold) && !is_available(&westwood));
}

#[test]
fn a_relay_without_privilege_says_so_once_and_serves() {
    let pins = ekiden_linux::bpf::PINS;
    if Path::new(pins).exists() {
        assert!(std::env::var_os("CI").is_none(), "something is pinned at {pins}");
        println!("SKIPPED: something is pinned at {pins}");
        return;
    }
    let home = home(CONFIG);
    let serve = ["serve", "--listen", "127.0.0.1:0"];
    let Some(command) = as_nobody(&home, &serve) else { return };
    let daemon = home.serve_by(command);
    let said = line(&daemon, "no congestion control hold");
    let missing = Needs { permitted: false, ..Needs::look() }.met().unwrap_err();
    assert!(
        said.contains(&missing.to_string()) && said.contains("the next of their list"),
        "{said}"
    );
    assert_eq!(daemon.log().matches("control hold").count(), 1);
    assert!(daemon.status()["legs"][0]["held"].is_null());
    assert!(matches!(missing, Missing::Privilege | Missing::Types | Missing::Kernel(..)));
}

/// Megabits a second that iperf3 sends through a link of 200 ms that loses every twentieth packet.
fn sent(congestion: &str) -> Result<f64, String> {
    let near = format!(
        "for i in 1 2 3 4 5 6 7 8 9; do sleep 0.2; \
         iperf3 -c far -C {congestion} --fq-rate 4M -O 2 -t 10 -J && exit; done; exit 3"
    );
    let output: Output = Command::new(env!("CARGO_BIN_EXE_ekiden"))
        .args(["link", "-q", "--delay", "100ms", "--rate", "10Mbit/s", "--queue", "200ms"])
        .args(["--up", "loss=5%", "--far", "exec iperf3 -s -1 >&2", "--", "sh", "-c", &near])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let said = || format!("{text}{}", String::from_utf8_lossy(&output.stderr));
    // tries before the server listened wrote a document of their own
    let last = text.rfind("\n{").map_or(0, |at| at + 1);
    let document: serde_json::Value = serde_json::from_str(&text[last..]).map_err(|_| said())?;
    let bits = document["end"]["sum_received"]["bits_per_second"].as_f64();
    bits.map(|bits| bits / 1e6).ok_or_else(said)
}

#[test]
fn a_rate_is_held_where_every_twentieth_packet_is_lost() {
    if !permitted() {
        return;
    }
    let loaded = Loaded::load(Control::Hold).unwrap();
    let held = match sent(loaded.name()) {
        Ok(held) => held,
        Err(why) => {
            let excuse = ["namespace", "iperf3: not found"].iter().any(|word| why.contains(word));
            assert!(excuse && std::env::var_os("CI").is_none(), "{why}");
            return println!("SKIPPED: a link with iperf3 at its ends: {why}");
        }
    };
    let reno = sent("reno").unwrap();
    // beside each other, because a busy machine slows both; `satellite --only held` keeps the rate itself
    println!("hold sent {held} Mbit/s, reno {reno} Mbit/s");
    assert!(held >= 3.0 * reno && held <= 4.0, "{held} Mbit/s, and reno {reno} Mbit/s");
}
