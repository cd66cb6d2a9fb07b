//! Bad input: what is wrong is said with what to do, and nothing is written.

use super::{free_port, invitation, relay, shore};
use crate::daemons::{as_nobody, home, stderr};
use ekiden_testkit::Home;
use ekiden_tunnel::trust::Token;
use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::process::{Command, Stdio};

fn refused(home: &Home, args: &[&str], parts: &[&str]) {
    let before = fs::read_to_string(home.config()).unwrap();
    let output = home.run(args);
    let said = stderr(&output);
    assert!(!output.status.success(), "{args:?}: {said}");
    for part in parts {
        assert!(said.contains(part), "{args:?}: {part}: {said}");
    }
    assert_eq!(fs::read_to_string(home.config()).unwrap(), before);
    assert!(!home.path().join("state").exists(), "{args:?}");
}

#[test]
fn wrong_answers_are_refused_with_what_to_do() {
    let shore_home = relay();
    let line = shore(&shore_home, free_port());
    let token = invitation(&line);
    let home = relay();
    let listen = format!("127.0.0.1:{}", free_port());
    let address = "127.0.0.1:1";
    for (args, parts) in [
        (&["init", "--yes", "sea"][..], &["unrecognized subcommand 'sea'", "--help"][..]),
        (&["init"], &["which arrangement?", "half-way, shore, far, modem, gateway"]),
        (
            &["init", "shore", "--yes"],
            &["these options are missing:", "--address: ", "--send: ", "--receive: "],
        ),
        (
            &["init", "--yes", "shore", "--address", address, "--send", "1 Mbit/s"],
            &["--receive is missing: What the link carries from it"],
        ),
        (
            &["init", "--yes", "shore", "--address", "shore.example"],
            &["the port is missing; write it like shore.example:4433"],
        ),
        (
            &["init", "--yes", "shore", "--address", address, "--send", "20"],
            &["the unit is missing, one of Gbit/s, ", "write it like `25 Mbit/s`"],
        ),
        (
            &[
                "init",
                "--yes",
                "shore",
                "--address",
                address,
                "--send",
                "1 bit/s",
                "--receive",
                "1 Mbit/s",
            ],
            &["--send 1 bit/s is too low for a tunnel"],
        ),
        (&["init", "--yes", "far", "hello"], &["one begins with `ekiden1-`"]),
        (&["init", "--yes", "far", &token[..90]], &["incomplete: its end is missing", "in quotes"]),
        (&["peer", "join", &token[..90], "--name", "x"], &["incomplete: its end is missing"]),
        (&["init", "--yes", "far", "ekiden9-abc"], &["another version"]),
        (&["init", "--yes", "modem", "--listen", &listen], &["--rate is missing"]),
        (&["init", "--yes", "half-way", "--name", "a:80"], &["without a port"]),
        (
            &[
                "init",
                "--yes",
                "half-way",
                "--name",
                "a",
                "--certificate",
                "/none",
                "--key",
                "/none",
            ],
            &["/none cannot be read"],
        ),
    ] {
        refused(&home, args, parts);
    }
}

/// Its own key aside, which it may have shown.
#[test]
fn nothing_is_written_where_the_other_relay_is_not_reached() {
    let shore_home = relay();
    let line = shore(&shore_home, free_port());
    let home = relay();
    let before = fs::read_to_string(home.config()).unwrap();
    let listen = format!("127.0.0.1:{}", free_port());
    let output = home.run(&["init", "--yes", "far", invitation(&line), "--listen", &listen]);
    let said = stderr(&output);
    assert!(!output.status.success(), "{said}");
    for part in ["was not reached", "UDP 127.0.0.1:", "TCP 127.0.0.1:", "no peer was kept"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(fs::read_to_string(home.config()).unwrap(), before);
    assert!(!home.path().join("state/relays.json").exists());
}

#[test]
fn a_relay_does_not_join_itself() {
    let home = relay();
    let port = free_port();
    let line = shore(&home, port);
    let token = invitation(&line);
    let before = fs::read_to_string(home.config()).unwrap();
    for args in [&["init", "--yes", "far", token][..], &["peer", "join", token, "--name", "shore"]]
    {
        let output = home.run(args);
        let said = stderr(&output);
        assert!(!output.status.success(), "{args:?}: {said}");
        let words = "this invitation is this relay's own: paste the line on the other machine";
        assert!(said.contains(words), "{args:?}: {said}");
        assert_eq!(fs::read_to_string(home.config()).unwrap(), before);
    }
    // and it still holds
    let list = home.printed(&["peer", "list"]);
    assert!(list.contains("ship") && !list.contains("shore"), "{list}");
}

#[test]
fn a_taken_port_is_named_with_its_process() {
    let home = relay();
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = holder.local_addr().unwrap().to_string();
    let process = format!("process {}", std::process::id());
    refused(
        &home,
        &["init", "--yes", "modem", "--rate", "4 Mbit/s", "--listen", &at],
        &[&format!("TCP {at} is taken by "), &process, "choose another address"],
    );
    // by its own option, or where it is written
    let clients = self::home(&format!("listen = [\"{at}\"]\n"));
    let address = format!("127.0.0.1:{}", free_port());
    let shore =
        ["init", "--yes", "shore", "--address", &address, "--send", "1 Mbit/s", "--receive"];
    let shore = |listen: &str, more: &[&str]| -> Vec<String> {
        let args = [&shore[..], &["1 Mbit/s", "--listen", listen], more].concat();
        args.into_iter().map(str::to_owned).collect()
    };
    for (home, listen, says) in [
        (&clients, &address, "choose another address by `listen` in "),
        (&home, &at, "choose another address with --listen, or by `listen of [tunnel]` in "),
    ] {
        let args = shore(listen, &[]);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        refused(home, &args, &[&format!("{at} is taken by "), says]);
    }
    refused(
        &home,
        &[
            "init",
            "--yes",
            "shore",
            "--address",
            &address,
            "--send",
            "1 Mbit/s",
            "--receive",
            "1 Mbit/s",
        ]
        .into_iter()
        .chain(["--listen", &address, "--clients", &at])
        .collect::<Vec<_>>(),
        &["choose another address with --clients, or by `listen` in "],
    );
    let serve = home.run(&["serve", "--listen", &at]);
    let said = stderr(&serve);
    assert!(serve.status.code() == Some(69) && said.contains(&process), "{said}");
}

#[test]
fn clocks_that_differ_are_noticed_by_the_invitation() {
    let shore_home = relay();
    let line = shore(&shore_home, free_port());
    let mut token: Token = invitation(&line).parse().unwrap();
    token.made = token.made.map(|made| made + 86_400);
    let home = relay();
    let joined = home.run(&["peer", "join", &token.to_string(), "--name", "shore", "--offline"]);
    let said = stderr(&joined);
    assert!(joined.status.success(), "{said}");
    assert!(said.contains("one of the two clocks is wrong; set it"), "{said}");
}

#[test]
fn state_of_another_user_is_left_alone() {
    let home = home("listen = [\"127.0.0.1:0\"]\n");
    fs::create_dir(home.path().join("state")).unwrap();
    let args = ["init", "--yes", "shore", "--address", "127.0.0.1:1", "--listen", "127.0.0.1:0"];
    let rates = ["--send", "1 Mbit/s", "--receive", "1 Mbit/s"];
    let Some(mut command) = as_nobody(&home, &[&args[..], &rates].concat()) else { return };
    let output = command.output().unwrap();
    let said = stderr(&output);
    assert!(!output.status.success() && said.contains("belongs to user root"), "{said}");
    assert!(said.contains("sudo"), "{said}");
    assert_eq!(fs::read_dir(home.path().join("state")).unwrap().count(), 0);
}

#[test]
fn questions_are_asked_on_a_terminal() {
    let home = relay();
    let address = format!("127.0.0.1:{}", free_port());
    let config = home.config().display().to_string();
    let ekiden = env!("CARGO_BIN_EXE_ekiden");
    let asked = |answers: &str| {
        let mut script = Command::new("script");
        script.args(["-qec", &format!("{ekiden} init --config {config}"), "/dev/null"]);
        let mut child = home.command_of(script, &[]).stderr(Stdio::null()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(answers.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    // an answer that is none is asked again, and nothing is written without a yes
    let answers = format!("9\n2\nshore\n{address}\nship\n20\n20 Mbit/s\n2 Mbit/s\n");
    let (_, said) = asked(&format!("{answers}n\n"));
    for part in [
        "1, 2, 3, 4 or 5",
        "the port is missing",
        "the unit is missing",
        "Do it?",
        "nothing was written",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!home.path().join("state").exists());
    let (fine, said) = asked(&format!("{answers}y\n"));
    assert!(fine && said.contains("ekiden init far ekiden1-"), "{said}");
    assert!(fs::read_to_string(home.config()).unwrap().contains("[tunnel]"));
}
