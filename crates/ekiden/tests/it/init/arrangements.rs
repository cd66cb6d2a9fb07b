//! Each arrangement on loopback.

use super::{free_port, invitation, page, relay, server, shore};
use crate::daemons::{NOBODY, as_nobody, home, stderr, stdout, tunnel_is_up};
use ekiden_testkit::{Daemon, Home, eventually, wait_for};
use std::fs;
use std::os::unix::fs::chown;
use std::sync::Arc;

fn serve(home: &Arc<Home>) -> Daemon {
    home.serve_by(home.command(&["serve"]))
}

fn config(home: &Home) -> String {
    fs::read_to_string(home.config()).unwrap()
}

#[test]
fn one_pasted_line_joins_two_relays() {
    let (one, other, port) = (relay(), relay(), free_port());
    let line = shore(&one, port);
    let one_daemon = serve(&one);
    let clients = format!("127.0.0.1:{}", free_port());
    let far = ["init", "--yes", "far", invitation(&line), "--listen", &clients];
    let joined = other.run(&far);
    assert!(joined.status.success(), "{}", stderr(&joined));
    assert!(stderr(&joined).contains("over UDP, round trip "), "{}", stderr(&joined));
    let about =
        "the line below is this relay's address: clients use it as their HTTP or SOCKS proxy";
    assert!(stderr(&joined).contains(about), "{}", stderr(&joined));
    // that this relay was tried is no trouble
    wait_for("the end of the trial", || one_daemon.log().contains("tried whether this relay"));
    assert!(!one_daemon.log().contains("the tunnel is lost"), "{}", one_daemon.log());
    let proxy = stdout(&joined);
    assert_eq!(proxy.trim(), format!("http://{clients}"));
    let other_daemon = serve(&other);
    let got = page(proxy.trim(), server(), &[]);
    assert!(got.stdout == b"page", "{}", stderr(&got));
    assert!(tunnel_is_up(&other_daemon));
    // what was there stays, and a second time nothing changes
    let written = config(&other);
    assert!(written.contains("# mine\n") && written.contains("[access]"), "{written}");
    let again = other.run(&far);
    assert!(again.status.success() && stderr(&again).contains("nothing to do"), "{again:?}");
    let again = one.run(&[
        "init",
        "--yes",
        "shore",
        "--address",
        &format!("127.0.0.1:{port}"),
        "--name",
        "ship",
        "--send",
        "20 Mbit/s",
        "--receive",
        "2 Mbit/s",
    ]);
    let said = stderr(&again);
    assert!(again.status.success() && again.stdout.is_empty(), "{said}");
    assert!(said.contains("nothing to do") && said.contains("\"ship\" has joined"), "{said}");
    assert_eq!(config(&other), written);
    for (home, command) in [(&one, "ekiden init shore"), (&other, "ekiden init far")] {
        let audit = fs::read_to_string(home.path().join("state/audit-changes.jsonl")).unwrap();
        assert_eq!(audit.matches(command).count(), 1, "{audit}");
        assert!(!audit.contains(invitation(&line)), "{audit}");
    }
    // the line is used up, also for another relay
    let third = relay();
    let refused =
        third.run(&["init", "--yes", "far", invitation(&line), "--listen", "127.0.0.1:0"]);
    assert!(!refused.status.success() && stderr(&refused).contains("--renew"), "{refused:?}");
    assert!(!third.path().join("state/relays.json").exists());
}

#[test]
fn a_running_daemon_takes_the_tunnel_over() {
    let (one, other, port) = (relay(), relay(), free_port());
    let [_one_daemon, daemon] = [&one, &other].map(serve);
    let said = {
        let address = format!("127.0.0.1:{port}");
        let args = [
            "init",
            "--yes",
            "shore",
            "--address",
            &address,
            "--listen",
            &address,
            "--name",
            "ship",
        ];
        let rates = ["--send", "20 Mbit/s", "--receive", "2 Mbit/s"];
        one.run(&[&args[..], &rates].concat())
    };
    assert!(stderr(&said).contains("the running daemon took it over"), "{}", stderr(&said));
    let line = stdout(&said);
    // as a mail breaks it, and as a link
    let (start, end) = invitation(&line).split_at(76);
    let broken = format!("ekiden://join/{start}\n  {end}");
    let joined = other.run(&["peer", "join", &broken, "--name", "shore"]);
    assert!(joined.status.success(), "{}", stderr(&joined));
    let text = stdout(&joined);
    assert!(text.contains("+ url = \"tunnel://shore\"") && text.contains("took it over"), "{text}");
    wait_for("the tunnel", || tunnel_is_up(&daemon));
    let got = page(&daemon.proxy("http"), server(), &[]);
    assert!(got.stdout == b"page", "{}", stderr(&got));
}

#[test]
fn an_account_logs_in_half_way() {
    let home = relay();
    let port = free_port();
    let listen = format!("127.0.0.1:{port}");
    let init = ["init", "--yes", "half-way", "--name", "localhost", "--listen", &listen];
    let done = home.run(&init);
    assert!(done.status.success(), "{}", stderr(&done));
    let proxy = stdout(&done).trim().to_owned();
    assert!(
        proxy.starts_with("https://home:") && proxy.ends_with(&format!("@localhost:{port}")),
        "{proxy}"
    );
    let _daemon = serve(&home);
    let certificate = home.path().join("state/tls/certificate.pem");
    let trust = ["--proxy-cacert", certificate.to_str().unwrap(), "--noproxy", ""];
    let to = server();
    let got = page(&proxy, to, &trust);
    assert!(got.stdout == b"page", "{}", stderr(&got));
    let wrong = page(&format!("https://home:wrong@localhost:{port}"), to, &trust);
    assert!(stderr(&wrong).contains("407"), "{wrong:?}");
    let [before, certified] =
        [home.config(), certificate.clone()].map(|path| fs::read(path).unwrap());
    let again = home.run(&init);
    assert!(again.status.success() && stderr(&again).contains("nothing to do"), "{again:?}");
    assert_eq!(
        [home.config(), certificate.clone()].map(|path| fs::read(path).unwrap()),
        [before, certified]
    );
    assert!(page(&proxy, to, &trust).stdout == b"page");
}

#[test]
fn a_relay_beside_the_modem_holds_a_rate() {
    let home = relay();
    let clients = format!("127.0.0.1:{}", free_port());
    let init = |rate: &str, more: &[&str]| {
        let args = ["init", "--yes", "modem", "--listen", &clients, "--rate", rate];
        home.run(&[&args[..], more].concat())
    };
    let before = config(&home);
    let shown = init("4 Mbit/s", &["--dry-run"]);
    assert!(stderr(&shown).contains("+ rate = \"4 Mbit/s\"") && config(&home) == before);
    let done = init("4 Mbit/s", &[]);
    assert_eq!(stdout(&done).trim(), format!("http://{clients}"), "{}", stderr(&done));
    let daemon = serve(&home);
    let got = page(&format!("http://{clients}"), server(), &[]);
    assert!(got.stdout == b"page", "{}", stderr(&got));
    assert!(config(&home).contains("congestion = [\"hold\", \"bbr\"]"), "{}", config(&home));
    // another answer is a change that the daemon takes over
    let changed = init("5 Mbit/s", &[]);
    let said = stderr(&changed);
    assert!(said.contains("- rate = \"4 Mbit/s\"") && said.contains("took it over"), "{said}");
    assert!(daemon.status()["reloads"].as_u64() == Some(1));
}

#[test]
fn a_running_daemon_widens_its_address_and_a_refusal_is_a_failure() {
    let port = free_port();
    let home = home(&format!(
        "listen = [\"127.0.0.1:{port}\"]\n[log]\naccess = \"DIR/logs/access.log\"\n[accounts]\nenabled = true\n"
    ));
    fs::create_dir(home.path().join("logs")).unwrap();
    let daemon = serve(&home);
    let every = format!("0.0.0.0:{port}");
    let init = |account| {
        let args = ["init", "--yes", "half-way", "--name", "localhost", "--account", account];
        home.run(&[&args[..], &["--listen", &every]].concat())
    };
    let done = init("home");
    assert!(done.status.success(), "{}", stderr(&done));
    assert!(stderr(&done).contains("the running daemon took it over"), "{}", stderr(&done));
    assert_eq!(daemon.status()["listen"], serde_json::json!([every]));
    // what was written is said with the failure
    fs::rename(home.path().join("logs"), home.path().join("other")).unwrap();
    let refused = home.run(&["init", "--yes", "modem", "--rate", "4 Mbit/s"]);
    let said = stderr(&refused);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("refuses") && said.contains("access.log cannot be written"), "{said}");
    drop(daemon);
}

#[test]
fn a_rate_that_the_daemon_cannot_hold_is_said() {
    let home = relay();
    let Some(command) = as_nobody(&home, &["serve"]) else { return };
    chown(home.config().parent().unwrap(), Some(NOBODY), Some(NOBODY)).unwrap();
    let _daemon = home.serve_by(command);
    let clients = format!("127.0.0.1:{}", free_port());
    let args = ["init", "--yes", "modem", "--rate", "4 Mbit/s", "--listen", &clients];
    let done = as_nobody(&home, &args).unwrap().output().unwrap();
    let said = stderr(&done);
    assert!(done.status.success(), "{said}");
    assert!(said.contains("took it over, but no congestion control hold: "), "{said}");
}

/// A line that is no longer valid, or differs from the one that was used, is refused; the same one pasted twice is not.
#[test]
fn an_old_line_is_refused_with_what_to_do() {
    let (one, other, port) = (relay(), relay(), free_port());
    let old = shore(&one, port);
    let _one_daemon = serve(&one);
    let clients = format!("127.0.0.1:{}", free_port());
    let far =
        |line: &str| other.run(&["init", "--yes", "far", invitation(line), "--listen", &clients]);
    assert!(far(&old).status.success());
    let address = format!("127.0.0.1:{port}");
    let args = ["init", "--yes", "shore", "--address", &address, "--name", "ship", "--renew"];
    let new = one.printed(&[&args[..], &["--send", "20 Mbit/s", "--receive", "2 Mbit/s"]].concat());
    let kept = || fs::read_to_string(other.path().join("state/relays.json")).unwrap();
    let before = kept();
    let said = eventually("the end of the old line", || {
        let pasted = far(&old);
        (!pasted.status.success()).then(|| stderr(&pasted))
    });
    assert!(said.contains("this invitation is no longer valid"), "{said}");
    assert!(said.contains("--renew") && said.contains("nothing was written"), "{said}");
    assert_eq!(kept(), before);
    let joined = far(&new);
    assert!(joined.status.success(), "{}", stderr(&joined));
    let before = kept();
    for args in [&["init", "--yes", "far"][..], &["peer", "join", "--name", "shore"]] {
        let pasted = other.run(&[args, &[invitation(&old)]].concat());
        let said = stderr(&pasted);
        assert!(!pasted.status.success(), "{said}");
        assert!(said.contains("was joined by another invitation, which still holds"), "{said}");
        assert!(said.contains("ekiden peer revoke shore"), "{said}");
    }
    assert_eq!(kept(), before);
}

/// The other relay keeps whoever has shown an invitation: a key that cannot be kept here is not shown.
#[test]
fn a_relay_that_cannot_keep_its_key_uses_no_invitation_up() {
    let (one, other) = (relay(), relay());
    let line = shore(&one, free_port());
    let _one_daemon = serve(&one);
    // also for root, whom no permissions stop
    let obstacle = other.path().join("state/.identity.json.new");
    fs::create_dir_all(&obstacle).unwrap();
    let clients = format!("127.0.0.1:{}", free_port());
    let far = ["init", "--yes", "far", "--listen", &clients];
    let join = ["peer", "join", "--name", "shore"];
    let run = |args: &[&str]| other.run(&[args, &[invitation(&line)]].concat());
    for args in [&far[..], &join] {
        let refused = run(args);
        let said = stderr(&refused);
        assert!(!refused.status.success() && said.contains("identity.json"), "{said}");
        let list = one.printed(&["peer", "list"]);
        assert!(list.contains("invited, not connected yet"), "{list}");
    }
    fs::remove_dir(&obstacle).unwrap();
    let joined = run(&join);
    assert!(joined.status.success(), "{}", stderr(&joined));
}

#[test]
fn without_a_terminal_only_yes_writes() {
    let home = relay();
    let before = config(&home);
    let clients = format!("127.0.0.1:{}", free_port());
    let args = ["init", "modem", "--listen", &clients, "--rate", "4 Mbit/s"];
    let refused = home.run(&args);
    let said = stderr(&refused);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    for part in ["This will\n- change ", &clients, "nothing was written", "no terminal", "--yes"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(config(&home), before);
    assert!(home.run(&[&args[..], &["--yes"]].concat()).status.success());
    assert_ne!(config(&home), before);
    // nothing to do needs no consent
    assert!(home.run(&args).status.success());
}
