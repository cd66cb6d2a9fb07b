//! What is written, in which order, and what becomes of calls while the disk hangs.

use super::*;
use ekiden_model::units::Span;
use std::fmt::Debug;
use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;
use tracing::field::Field;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

const CALL: Call<'static> = Call {
    address: IpAddr::V4(Ipv4Addr::LOCALHOST),
    method: "DELETE",
    path: "/api/v1/accounts/tanaka",
    token: None,
    user: None,
    status: 204,
    what: "",
};

/// Waits until a line is written, and all that were handed over before.
fn wait(line: Written) {
    line.done.blocking_recv().unwrap();
}

/// An audit log whose disk hangs until nobody holds the other end, and what that took. After a minute it takes nothing:
/// whoever waits for it then may be who lets it go on.
fn hanging() -> (Audit, Sender<()>, Arc<Mutex<Vec<String>>>) {
    let (go, goes_on) = channel();
    let taken = Arc::new(Mutex::new(Vec::new()));
    let disk = Arc::clone(&taken);
    let write = move |line: &Line| {
        if goes_on.recv_timeout(Duration::from_secs(60)) == Err(RecvTimeoutError::Timeout) {
            return Err(io::Error::from(io::ErrorKind::TimedOut));
        }
        locked(&disk).push(line.text.to_string());
        Ok(())
    };
    (Audit::start(Path::new("/"), write).unwrap(), go, taken)
}

/// The relay's log.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<String>>);

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        event.record(&mut |_: &Field, value: &dyn Debug| {
            locked(&self.0).push_str(&format!("{value:?}\n"));
        });
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[tokio::test(start_paused = true)]
async fn a_change_that_is_answered_before_its_line_is_written_is_in_the_relay_s_log() {
    let (audit, _go, taken) = hanging();
    let log = Log::default();
    // with one alone, a neighbour's thread without a log may decide that nobody wants such lines
    let _second = tracing::Dispatch::new(Log::default());
    let logging = tracing::subscriber::set_default(log.clone());
    let what = "removed \"tanaka\"";
    audit.changed(&Call { user: Some("mika"), what, ..CALL }).wait().await;
    audit.session(&Call { user: Some("aiko"), ..CALL }).wait().await;
    audit.refused(&CALL).wait().await;
    drop(logging);
    let log = locked(&log.0);
    assert_eq!(log.matches("on record here: ").count(), 2, "{log}");
    for part in [
        r#""address":"127.0.0.1","user":"mika","method":"DELETE","path":"/api/v1/accounts/tanaka""#,
        r#""outcome":"changed","what":"removed \"tanaka\"""#,
        r#""user":"aiko""#,
    ] {
        assert!(log.contains(part), "{part}\n{log}");
    }
    assert!(locked(&taken).is_empty());
}

#[tokio::test]
async fn a_call_waits_for_the_disk_and_the_thread_of_the_runtime_does_not() {
    let (audit, go, taken) = hanging();
    let lines = [audit.changed(&CALL), audit.session(&CALL), audit.refused(&CALL)];
    let waiting = tokio::spawn(async move {
        for line in lines {
            line.done.await.unwrap();
        }
    });
    tokio::task::yield_now().await;
    // a runtime that waits for the disk says so too late
    drop(go);
    waiting.await.unwrap();
    assert_eq!(locked(&taken).len(), 3);
}

#[test]
fn a_panic_at_one_line_keeps_no_later_one_from_the_disk() {
    let taken = Arc::new(Mutex::new(Vec::new()));
    let (disk, mut panics) = (Arc::clone(&taken), true);
    let write = move |line: &Line| {
        assert!(!std::mem::take(&mut panics), "a test asked for it");
        locked(&disk).push(line.text.to_string());
        Ok(())
    };
    let audit = Audit::start(Path::new("/"), write).unwrap();
    wait(audit.changed(&CALL));
    wait(audit.changed(&CALL));
    assert_eq!(locked(&taken).len(), 1);
}

#[test]
fn long_methods_and_paths_are_cut() {
    let (audit, go, taken) = hanging();
    let long = "é".repeat(8 << 10);
    let line = audit.refused(&Call { method: &long, path: &long, ..CALL });
    drop(go);
    wait(line);
    let (taken, cut) = (locked(&taken), "é".repeat(LONGEST));
    assert!(taken[0].contains(&format!("\"method\":\"{cut}\",\"path\":\"{cut}\"")), "{taken:?}");
}

#[test]
fn a_call_that_a_file_is_not_read_for_does_not_wait_for_its_line() {
    let (audit, go, taken) = hanging();
    audit.refused(&Call { status: 503, ..CALL }).done.blocking_recv().unwrap_err();
    drop(go);
    wait(audit.refused(&Call { status: 401, ..CALL }));
    let taken = locked(&taken);
    assert!(taken[0].contains("\"status\":503") && taken.len() == 2, "{taken:?}");
}

#[test]
fn refused_calls_that_a_hanging_disk_has_no_room_for_are_counted() {
    let (audit, go, taken) = hanging();
    let now = clock::now();
    let lines: Vec<_> = (0..queue::WAITING).map(|_| audit.changed(&CALL)).collect();
    // such a call waits for nothing, and neither does a change beyond
    (0..3).for_each(|_| assert!(audit.refused_at(now, &CALL).done.blocking_recv().is_err()));
    audit.count_refused_at(now + Span::from_secs(60));
    drop(go);
    lines.into_iter().for_each(wait);
    audit.count_refused_at(now + Span::from_secs(60));
    wait(audit.session(&CALL));
    let taken = locked(&taken);
    let counted = &taken[taken.len() - 2];
    assert!(counted.contains("and 3 more"), "{counted}");
    assert_eq!(taken.len(), queue::WAITING + 2);
}

#[tokio::test]
async fn lines_that_wait_are_written_at_the_end() {
    let (audit, go, taken) = hanging();
    let lines = [0, 1, 2].map(|n: u16| audit.changed(&Call { status: 200 + n, ..CALL }));
    drop(go);
    audit.end().await;
    let order: Vec<bool> = (200..203)
        .zip(&*locked(&taken))
        .map(|(n, line)| line.contains(&format!("\"status\":{n}")))
        .collect();
    assert_eq!(order, [true; 3]);
    // who calls later is answered
    audit.changed(&CALL).done.await.unwrap_err();
    drop(lines);
}

#[tokio::test]
async fn a_disk_that_hangs_does_not_hold_up_the_end() {
    let (audit, _go, taken) = hanging();
    let line = audit.changed(&CALL);
    tokio::time::pause();
    audit.end().await;
    line.wait().await;
    assert!(locked(&taken).is_empty());
}

#[test]
fn lines_say_who_and_what_and_are_private() {
    let dir = tempfile::tempdir().unwrap();
    let audit = Audit::open(dir.path()).unwrap();
    let what = "removed \"tanaka\"";
    let call = Call { token: Some("0a1b2c3d"), what, ..CALL };
    wait(audit.changed(&call));
    wait(audit.session(&Call { status: 200, what: "logged in", ..call }));
    wait(audit.refused(&Call { token: None, status: 401, what: "no \"token\"\n", ..call }));
    let sessions = fs::read_to_string(audit.path(Kind::Sessions)).unwrap();
    assert!(sessions.ends_with("\"what\":\"logged in\"}\n"), "{sessions}");
    let path = dir.path().join("audit-changes.jsonl");
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    let line = fs::read_to_string(path).unwrap();
    let (time, rest) = line.split_once(",\"address\"").unwrap();
    assert!(time.starts_with("{\"time\":\"20"), "{time}");
    insta::assert_snapshot!(rest, @r##":"127.0.0.1","method":"DELETE","path":"/api/v1/accounts/tanaka","token":"0a1b2c3d","status":204,"outcome":"changed","what":"removed \"tanaka\""}"##);
    let refused = fs::read_to_string(dir.path().join("audit-refused.jsonl")).unwrap();
    assert_eq!(refused.lines().count(), 1);
    assert!(refused.contains("\"outcome\":\"refused\""), "{refused}");
}

#[test]
fn refused_calls_without_end_have_few_lines_and_a_count() {
    let dir = tempfile::tempdir().unwrap();
    let audit = Audit::open(dir.path()).unwrap();
    let address = IpAddr::from([192, 0, 2, 1]);
    let (method, path, what) = ("GET", "/api/v1/accounts", "wrong token");
    let call = Call { address, method, path, token: None, user: None, status: 401, what };
    let now = clock::now();
    (0..10_000).for_each(|_| drop(audit.refused_at(now, &call)));
    audit.count_refused_at(now);
    audit.count_refused_at(now + Span::from_secs(60));
    // calls that are let in are all on record
    (0..100).for_each(|_| wait(audit.changed(&call)));
    let lines = newest(&audit.path(Kind::Refused)).unwrap();
    assert_eq!(lines.len(), 21);
    assert_eq!(lines[0]["what"], "and 9980 more");
    assert_eq!(newest(&audit.path(Kind::Changes)).unwrap().len(), 100);
}

#[test]
fn the_newest_lines_are_read_first_and_are_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.jsonl");
    let line = |n: usize| format!("{{\"n\":{n},\"pad\":\"{}\"}}\n", "x".repeat(900));
    fs::write(&path, (0..2_000).map(line).collect::<String>()).unwrap();
    let lines = newest(&path).unwrap();
    assert!((280..NEWEST).contains(&lines.len()), "{}", lines.len());
    assert_eq!((&lines[0]["n"], &lines[1]["n"]), (&1_999.into(), &1_998.into()));
    fs::write(&path, (0..2_000).map(|n| format!("{{\"n\":{n}}}\n")).collect::<String>()).unwrap();
    assert_eq!(newest(&path).unwrap().len(), NEWEST);
}

#[test]
fn a_value_cannot_pass_for_two() {
    for (value, noted) in [
        ("tanaka@example", "tanaka@example"),
        ("2027-03-31", "2027-03-31"),
        (
            "mon-fri 06:00-22:00; sat,sun 08:00-24:00",
            "\"mon-fri 06:00-22:00; sat,sun 08:00-24:00\"",
        ),
        ("a, disabled true", "\"a, disabled true\""),
        ("a\", disabled true", r#""a\", disabled true""#),
        ("it's", "\"it's\""),
        (r"a\", r#""a\\""#),
        ("a\nb", r#""a\nb""#),
        ("a\u{85}b", "\"a·b\""),
        ("", "\"\""),
    ] {
        assert_eq!(quoted(value), noted);
    }
}

#[test]
fn commands_are_recorded_beside_calls() {
    let dir = tempfile::tempdir().unwrap();
    let (user, command, object) = ("uid 0", "ekiden account remove", "tanaka");
    let result = Ok("--config a.toml");
    record_command(dir.path(), &ChangeByCommand { user, command, object, result }).unwrap();
    let line = fs::read_to_string(dir.path().join(Kind::Changes.file())).unwrap();
    let (_, rest) = line.split_once(",\"address\"").unwrap();
    insta::assert_snapshot!(rest, @r##":null,"user":"uid 0","method":"ekiden account remove","path":"tanaka","token":null,"status":null,"outcome":"changed","what":"--config a.toml"}"##);
}
