#![allow(clippy::unwrap_used)]

use super::*;
use ekiden_linux::host::facts::Support;
use std::io::Read as _;
use std::net::TcpListener;

/// As seen by root on Linux 6.18 with few modules.
fn recorded() -> Facts {
    serde_json::from_str(include_str!("recorded_6_18.json")).unwrap()
}

fn report(facts: Facts) -> DoctorReport {
    DoctorReport {
        version: "0".into(),
        fine: false,
        findings: findings(&facts, None),
        changes: Vec::new(),
        relay: None,
        tunnel: None,
        facts,
    }
}

fn print(report: &DoctorReport, columns: Option<usize>) -> String {
    let mut out = Vec::new();
    let style = print::Style { colour: false, columns, sudo: false };
    print::text(report, style, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn find<'a>(found: &'a [Finding], id: &str) -> &'a Finding {
    found.iter().find(|finding| finding.id == id).unwrap()
}

#[test]
fn a_recorded_machine_is_judged() {
    insta::assert_snapshot!(print(&report(recorded()), Some(110)));
}

#[test]
fn the_limits_of_the_recorded_machine_are_named_with_what_mends_them() {
    let found = findings(&recorded(), None);
    for (id, what, mend) in [
        ("fq", "no fq qdisc", "modprobe sch_fq"),
        ("send-buffer-limit", "net.core.wmem_max is 4 MiB", "sysctl -w net.core.wmem_max=16777216"),
        (
            "receive-buffer-limit",
            "net.core.rmem_max is 4 MiB",
            "sysctl -w net.core.rmem_max=16777216",
        ),
        (
            "congestion-control-allowed",
            "\"reno bbr\"",
            "sysctl -w net.ipv4.tcp_allowed_congestion_control=\"reno bbr cubic\"",
        ),
        ("slow-start-after-idle", "is 1", "sysctl -w net.ipv4.tcp_slow_start_after_idle=0"),
        ("ktls", "no kTLS", "modprobe tls"),
    ] {
        let finding = find(&found, id);
        assert!(finding.severity > Severity::Ok, "{finding:?}");
        assert!(finding.what.contains(what), "{finding:?}");
        assert!(finding.mend.as_ref().unwrap().contains(mend), "{finding:?}");
    }
    assert!(find(&found, "send-buffer-limit").why.contains("about 55 Mbit/s over 600 ms"));
}

#[test]
fn a_user_other_than_root_sees_commands_with_sudo() {
    let style = print::Style { colour: false, columns: None, sudo: true };
    let mut out = Vec::new();
    print::text(&report(recorded()), style, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    for line in [
        "$ sudo sysctl -w net.core.rmem_max=16777216\n",
        "$ sudo prlimit --pid $$ --nofile=65536:65536 # this shell; ",
        "$ sudo sh -c 'modprobe sch_fq && sysctl -w net.core.default_qdisc=fq'\n",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[test]
fn the_last_line_says_what_is_missing_for_full_speed() {
    let last = |report: &DoctorReport| print(report, None).lines().last().unwrap().to_owned();
    let slow = report(recorded());
    let text = print(&slow, None);
    assert!(text.contains("\nEverything works, not at full speed: 0 problems, "), "{text}");
    assert!(!text.contains("Failed"), "{text}");
    assert_eq!(
        last(&slow),
        "5 settings are missing for full speed: `sudo ekiden doctor --apply` mends 4; 1 is mended by what is said above (descriptors)."
    );
    // asked about a relay, it says nothing above of what only costs speed
    let measured = Measured {
        peer: "shore".into(),
        received: None,
        sent: None,
        tunnel: None,
        error: Some("down".into()),
    };
    let asked = DoctorReport { tunnel: Some(measured), ..report(recorded()) };
    assert!(!print(&asked, None).contains("said above"), "{}", print(&asked, None));
    assert!(
        last(&asked).ends_with("; `ekiden doctor` alone says how to mend 1."),
        "{}",
        last(&asked)
    );
    let mut facts = recorded();
    for setting in findings(&recorded(), None).into_iter().flat_map(|finding| finding.settings) {
        facts.sysctls.insert(setting.name, setting.value);
    }
    facts.descriptors.hard = 1 << 20;
    let quick = DoctorReport { fine: true, ..report(facts) };
    assert_eq!(last(&quick), "Nothing is missing for full speed.");
}

#[test]
fn a_daemon_that_says_nothing_is_found_and_costs_no_setting() {
    let socket = || "/run/ekiden/ekiden.sock".into();
    let look = |error| {
        let options = DoctorOptions { unasked: Some(error), ..DoctorOptions::default() };
        let findings = look(&options, &recorded());
        let found = findings.iter().find(|finding| finding.id == DAEMON).cloned();
        (found, print(&DoctorReport { findings, ..report(recorded()) }, None))
    };
    let (dead, text) = look(AskError::NoService(vec![socket()]));
    let dead = dead.unwrap();
    assert_eq!((dead.severity, &dead.what[..]), (Severity::Problem, "the service does not answer"));
    assert_eq!(dead.mend.as_deref(), Some("systemctl status ekiden; journalctl -u ekiden -n 20"));
    assert!(text.contains("\nSomething does not work: 1 problem, "), "{text}");
    let (closed, text) = look(AskError::Denied(socket()));
    let closed = closed.unwrap();
    assert!(closed.severity == Severity::Warning && closed.what.starts_with("the daemon was not"));
    assert_eq!(closed.mend.as_deref(), Some("sudo ekiden doctor"));
    assert!(text.contains("\nThe daemon was not asked: 0 problems, "), "{text}");
    assert!(text.contains("\n5 settings are missing for full speed: "), "{text}");
    let (late, _) = look(AskError::Slow(socket(), 5));
    assert_eq!(late.unwrap().severity, Severity::Problem);
    let (none, text) = look(AskError::NoDaemon(vec![socket()], None));
    assert!(none.is_none() && text.contains("\nEverything works, not at full speed: "), "{text}");
}

#[test]
fn a_machine_as_it_should_be_has_no_warnings() {
    let mut facts = recorded();
    for (name, value) in [
        ("net.core.wmem_max", "33554432"),
        ("net.core.rmem_max", "33554432"),
        ("net.ipv4.tcp_wmem", "4096 16384 33554432"),
        ("net.ipv4.tcp_allowed_congestion_control", "reno bbr cubic"),
        ("net.ipv4.tcp_slow_start_after_idle", "0"),
    ] {
        facts.sysctls.insert(name.into(), value.into());
    }
    facts.descriptors.hard = 1 << 20;
    facts.qdiscs.insert("fq".into(), Support::Yes);
    let found = findings(&facts, None);
    assert!(found.iter().all(|finding| finding.severity <= Severity::Note), "{found:?}");
}

#[test]
fn proposed_settings_resolve_their_finding() {
    let mut facts = recorded();
    for setting in findings(&recorded(), None).into_iter().flat_map(|finding| finding.settings) {
        facts.sysctls.insert(setting.name, setting.value);
    }
    let left: Vec<_> =
        findings(&facts, None).into_iter().filter(|finding| !finding.settings.is_empty()).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn reports_missing_bpf_requirements_with_their_remedy() {
    let bpf = |change: &dyn Fn(&mut Facts)| {
        let mut facts = recorded();
        change(&mut facts);
        find(&findings(&facts, None), "bpf").clone()
    };
    assert_eq!(bpf(&|_| {}).severity, Severity::Ok);
    let no_privilege = bpf(&|facts| facts.bpf.permitted = false);
    assert!(no_privilege.mend.unwrap().contains("sudo ekiden bpf load --user"));
    let pinned = bpf(&|facts| {
        facts.bpf.permitted = false;
        facts.bpf.pinned = vec!["ekiden_hold2".into(), "ekiden_westwood".into()];
    });
    assert_eq!((pinned.severity, pinned.mend), (Severity::Ok, None));
    // the one says nothing of the other, and a name nothing of whether it may be used
    let one = bpf(&|facts| {
        facts.bpf.permitted = false;
        facts.bpf.pinned = vec!["ekiden_hold".into()];
    });
    assert!(one.severity == Severity::Note && one.what.contains("; westwood cannot be loaded"));
    let closed = bpf(&|facts| {
        facts.bpf.permitted = false;
        facts.bpf.pinned = vec!["ekiden_westwood".into()];
        facts.bpf.closed = vec!["hold: not this user's".into()];
    });
    assert_eq!((closed.severity, &closed.what[..]), (Severity::Note, "hold: not this user's"));
    assert!(closed.mend.unwrap().contains("sudo ekiden bpf load --user"));
    let not_compiled = bpf(&|facts| facts.bpf.compiled = false);
    assert_eq!(not_compiled.settings[0].name, "net.core.bpf_jit_enable");
    for (change, part) in [
        ((&|facts: &mut Facts| facts.bpf.types = false) as &dyn Fn(&mut Facts), "BTF"),
        (&|facts| facts.kernel = "6.1.0-18-amd64".into(), "Linux 6.1, and it takes 6.4"),
    ] {
        let found = bpf(change);
        assert!(found.severity == Severity::Note && found.what.contains(part), "{found:?}");
    }
}

/// A daemon whose leg "sea" meets a black hole.
fn running() -> Status {
    crate::commands::sample()
}

#[test]
fn reports_a_black_hole_with_a_fix() {
    let mut facts = recorded();
    facts.sysctls.insert("net.ipv4.tcp_base_mss".into(), "1024".into());
    for (probing, mend) in [("0", Some("sysctl -w net.ipv4.tcp_mtu_probing=1")), ("1", None)] {
        facts.sysctls.insert("net.ipv4.tcp_mtu_probing".into(), probing.into());
        let found = findings(&facts, Some(&running()));
        let hole = find(&found, "black-hole-sea");
        assert_eq!((hole.severity, hole.mend.as_deref()), (Severity::Warning, mend));
        assert!(hole.what.contains("leg \"sea\": large packets to 203.0.113.80"), "{hole:?}");
        assert!(hole.why.contains("`mss = 1200` in [leg.sea]"), "{hole:?}");
        assert!(hole.why.contains("segments of 1024 bytes"), "{hole:?}");
        let smaller = find(&found, "smaller-path-sea");
        assert!(smaller.what.contains("packets above 1400 bytes do not reach 198.51.100.9"));
    }
    assert!(findings(&facts, None).iter().all(|finding| !finding.id.contains("black")));
}

#[test]
fn syn_cookies_that_are_off_are_a_warning() {
    let mut facts = recorded();
    let name = "net.ipv4.tcp_syncookies";
    for (value, severity) in [("0", Severity::Warning), ("1", Severity::Ok), ("2", Severity::Ok)] {
        facts.sysctls.insert(name.into(), value.into());
        let found = findings(&facts, None);
        let cookies = find(&found, "syn-cookies");
        assert_eq!(cookies.severity, severity, "{cookies:?}");
        assert!(severity == Severity::Ok || cookies.mend.as_ref().unwrap().contains(name));
    }
}

#[test]
fn missing_facts_are_no_error() {
    let mut facts = recorded();
    facts.sysctls.clear();
    facts.qdiscs.clear();
    facts.sockets.options.clear();
    facts.sockets.rto_min_largest_us = None;
    facts.machine.memory = None;
    assert!(!print(&report(facts), None).is_empty());
}

#[test]
fn the_document_fits_its_schema() {
    let schema = serde_json::to_value(schemars::schema_for!(DoctorReport)).unwrap();
    let mut out = Vec::new();
    run(DoctorOptions { json: true, ..DoctorOptions::default() }, &mut out).unwrap();
    let document: serde_json::Value = serde_json::from_slice(&out).unwrap();
    let errors: Vec<_> = jsonschema::validator_for(&schema)
        .unwrap()
        .iter_errors(&document)
        .map(|error| error.to_string())
        .collect();
    assert!(errors.is_empty(), "{errors:?}");
    serde_json::from_value::<DoctorReport>(document).unwrap();
}

#[test]
fn a_relay_is_looked_at() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut first = [0; 64];
            let answer: &[u8] = match stream.read(&mut first) {
                Ok(n) if n > 0 && first[0] == 5 => &[5, 0],
                Ok(n) if n > 0 => b"HTTP/1.1 200 OK\r\n\r\n",
                _ => &[],
            };
            let _ = stream.write_all(answer);
        }
    });
    let seen = proxy::look(&address);
    assert!(seen.fine(), "{seen:?}");
    assert_eq!((seen.handshakes, seen.succeeded), (10, 10));
    assert_eq!((seen.http.as_deref(), seen.socks5), (Some("HTTP/1.1 200 OK"), Some(true)));
    assert!(seen.min_rtt_us <= seen.median_rtt_us && seen.min_rtt_us > Some(0));
    assert_eq!(seen.handshake_loss, Some(0.0));
    let text = print(&DoctorReport { relay: Some(seen), ..report(recorded()) }, None);
    assert!(text.contains("not measured"), "{text}");
}

#[test]
fn a_relay_that_is_not_there_is_said_so() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let seen = proxy::look(&closed.to_string());
    assert!(!seen.fine() && seen.error.unwrap().contains("nothing listens"));
    assert!(proxy::look("no port").error.unwrap().contains("relay.example:3128"));
}

#[test]
fn changes_are_told_with_what_makes_them_last() {
    let change = |refused: Option<&str>| Change {
        name: "net.core.wmem_max".into(),
        before: Some("4194304".into()),
        asked: "16777216".into(),
        after: None,
        refused: refused.map(str::to_owned),
    };
    let changes = vec![change(None), change(Some("not permitted"))];
    let text = print(&DoctorReport { changes, ..report(recorded()) }, None);
    assert!(text.contains("changed  net.core.wmem_max from 4194304 to 16777216"), "{text}");
    assert!(text.contains("refused  net.core.wmem_max stays 4194304: not permitted"));
    assert!(text.contains("/etc/sysctl.d/90-ekiden.conf"));
    assert!(text.contains("    net.core.wmem_max = 16777216"));
}
