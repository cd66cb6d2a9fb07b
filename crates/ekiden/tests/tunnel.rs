//! Two daemons with a tunnel between them, as their operators set it up; and curl.
#![allow(clippy::unwrap_used)] // a test may fail loudly

mod daemons;

use daemons::{Daemon, ask, directory, eventually, pair, said};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Output};
use std::time::Duration;

/// A server of one answer; each connection is one request.
fn server(body: Vec<u8>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, body): (TcpStream, _) = (stream.unwrap(), body.clone());
            std::thread::spawn(move || {
                let mut head = Vec::new();
                let mut byte = [0];
                while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() > 0 {
                    head.push(byte[0]);
                }
                let length = body.len();
                let head = format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
                );
                stream.write_all(head.as_bytes()).unwrap();
                stream.write_all(&body).unwrap();
            });
        }
    });
    port
}

fn curl(proxy: &str, args: &[&str]) -> Output {
    let output =
        Command::new("curl").args(["-s", "-S", "-m", "20", "-x", proxy]).args(args).output();
    output.unwrap()
}

#[test]
fn curl_goes_through_a_tunnel() {
    if Command::new("curl").arg("--version").output().is_err() {
        assert!(std::env::var_os("CI").is_none(), "curl is missing");
        println!("SKIPPED: there is no curl");
        return;
    }
    let [far, near] = pair(["200 Mbit/s", "100 Mbit/s"]);
    let (far, near) = (Daemon::start(far), Daemon::start(near));
    let body: Vec<u8> = (0..2_000_000_u32).map(|n| (n * 31 + n / 517) as u8).collect();
    let port = server(body.clone());
    let url = format!("http://127.0.0.1:{port}/");
    for (scheme, tunnels) in [("http", false), ("http", true), ("socks5h", false)] {
        let output = curl(&near.proxy(scheme), &[&url, if tunnels { "-p" } else { "-L" }]);
        assert!(
            output.stdout == body,
            "{scheme} {tunnels}: {:?}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    // what goes wrong there is told here, with the far relay's words
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let nowhere = format!("http://127.0.0.1:{closed}/");
    let refused = said(&curl(&near.proxy("http"), &[&nowhere, "-w", " %{http_code}"]));
    assert!(
        refused.contains("relay «far»") && refused.contains("refused") && refused.ends_with(" 502"),
        "{refused}"
    );
    let tunnelled = said(&curl(&near.proxy("http"), &["-p", &nowhere, "-w", "%{http_connect}"]));
    assert_eq!(tunnelled, "502");
    let socks = curl(&near.proxy("socks5h"), &[&nowhere]);
    assert!(
        String::from_utf8_lossy(&socks.stderr).contains("(5)"),
        "connection refused: {socks:?}"
    );
    // both see it
    assert!(far.tunnel_is_up() && near.tunnel_is_up());
    let seen = near.status().unwrap();
    assert_eq!(
        (&seen["tunnels"][0]["relay"], &seen["tunnels"][0]["flows"]),
        (&"far".into(), &0.into())
    );
    assert!(said(&ask(near.dir.path(), &["status"])).contains("TUNNEL"));
    assert!(said(&ask(far.dir.path(), &["relay", "list"])).contains("near  sends 200 Mbit/s"));
    // and no longer
    let revoked = ask(far.dir.path(), &["relay", "revoke", "near"]);
    assert!(revoked.status.success());
    eventually(|| (!near.tunnel_is_up()).then_some(()));
    let again = ask(far.dir.path(), &["relay", "revoke", "near"]);
    assert!(String::from_utf8_lossy(&again.stderr).contains("no relay «near» is known"));
}

/// A tunnel each way round: a request that would go in circles ends.
#[test]
fn a_circle_of_tunnels_is_noticed() {
    let [far, near] = pair(["100 Mbit/s", "100 Mbit/s"]);
    let config = fs::read_to_string(far.path().join("c.toml")).unwrap();
    let back = "[upstream.near]\nurl = \"tunnel://near\"\n[[route]]\nthrough = [\"near\"]\n";
    fs::write(far.path().join("c.toml"), config + back).unwrap();
    let (_far, near) = (Daemon::start(far), Daemon::start(near));
    let address = near.status().unwrap()["listen"][0].as_str().unwrap().to_owned();
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    client.write_all(b"CONNECT example.org:80 HTTP/1.1\r\nHost: example.org:80\r\n\r\n").unwrap();
    let mut answer = [0; 2000];
    let length = client.read(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer[..length]).into_owned();
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
    assert!(answer.contains("through 8 tunnels"), "{answer}");
}

#[test]
fn what_is_wrong_is_said() {
    let dir = directory("[tunnel]\nstate = \"DIR/state\"\n");
    let joined = ask(dir.path(), &["relay", "join", "hello", "--name", "x"]);
    let text = String::from_utf8_lossy(&joined.stderr).into_owned();
    assert!(joined.status.code() == Some(2) && text.contains("ekiden1-"), "{text}");
    let invite = ["relay", "invite", "--name", "x", "--address", "nowhere", "--send", "1 Mbit/s"];
    assert_eq!(ask(dir.path(), &invite).status.code(), Some(2));
    let wrong = directory(
        "[upstream.a]\nurl = \"http://a:1\"\n[upstream.b]\nurl = \"tunnel://b\"\n[[route]]\nthrough = [\"a > b\"]\n",
    );
    let checked = ask(wrong.path(), &["check", &wrong.path().join("c.toml").display().to_string()]);
    assert!(said(&checked).contains("can only be the first of a chain"), "{checked:?}");
}

/// UDP ASSOCIATE at the near relay, and a server of datagrams that the far one reaches.
#[test]
fn datagrams_go_through_a_tunnel() {
    let [far, near] = pair(["100 Mbit/s", "100 Mbit/s"]);
    let (_far, near) = (Daemon::start(far), Daemon::start(near));
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = server.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut buffer = [0; 70_000];
        while let Ok((length, from)) = server.recv_from(&mut buffer) {
            let answer: Vec<u8> = buffer[..length].iter().rev().copied().collect();
            server.send_to(&answer, from).unwrap();
        }
    });
    eventually(|| near.tunnel_is_up().then_some(()));
    let address = near.status().unwrap()["listen"][0].as_str().unwrap().to_owned();
    let mut control = TcpStream::connect(address).unwrap();
    control.write_all(&[5, 1, 0, 5, 3, 0, 1, 0, 0, 0, 0, 0, 0]).unwrap();
    let mut answer = [0; 12];
    control.read_exact(&mut answer).unwrap();
    assert_eq!(answer[..6], [5, 0, 5, 0, 0, 1], "{answer:?}");
    let port = u16::from_be_bytes([answer[10], answer[11]]);
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.connect(("127.0.0.1", port)).unwrap();
    client.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    // by address, and by a name that the far relay resolves; what is too large for a datagram of the tunnel, too
    let address = [&[1, 127, 0, 0, 1][..], &to.to_be_bytes()].concat();
    let name = [&[3, 9][..], b"localhost", &to.to_be_bytes()].concat();
    let unknown = [&[1, 0, 0, 0, 0][..], &to.to_be_bytes()].concat();
    for (target, from) in [(&address, &address), (&name, &unknown)] {
        for length in [0_usize, 1, 1_200, 5_000] {
            let body: Vec<u8> = (0..length).map(|n| n as u8).collect();
            let sent = [&[0, 0, 0][..], target, &body].concat();
            let mut buffer = [0; 70_000];
            let came = eventually(|| {
                client.send(&sent).unwrap();
                client.recv(&mut buffer).ok()
            });
            let reversed: Vec<u8> = body.iter().rev().copied().collect();
            assert_eq!(buffer[..came], [&[0, 0, 0][..], from, &reversed].concat());
            // what was sent again meanwhile
            while client.recv(&mut buffer).is_ok() {}
        }
    }
    // there the far relay's rules hold, and not those for clients on its loopback
    let private = [&[0, 0, 0, 1, 100, 127, 255, 254][..], &to.to_be_bytes(), b"x"].concat();
    client.send(&private).unwrap();
    eventually(|| {
        let status = near.status().unwrap();
        (status["udp"]["refused"].as_u64() > Some(0)).then_some(())
    });
    let flows = || near.status().unwrap()["tunnels"][0]["flows"].as_u64();
    assert_eq!(flows(), Some(2));
    drop(control);
    eventually(|| (flows() == Some(0)).then_some(()));
}

/// A relay that was let in is no client on the other's loopback: what is private there stays closed.
#[test]
fn private_destinations_are_closed_to_relays_unless_a_rule_opens_them() {
    let [far, near] = pair(["100 Mbit/s", "100 Mbit/s"]);
    let config = fs::read_to_string(far.path().join("c.toml")).unwrap();
    let config = config.replace("allow_destinations = [\"127.0.0.0/8\"]", "");
    fs::write(far.path().join("c.toml"), &config).unwrap();
    let dir = far.path().to_owned();
    let (mut far, near) = (Daemon::start(far), Daemon::start(near));
    let port = server(b"inside".to_vec());
    let ask = |near: &Daemon| {
        let mut stream = TcpStream::connect(&near.proxy("http")[7..]).unwrap();
        write!(stream, "GET http://127.0.0.1:{port}/ HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    eventually(|| near.tunnel_is_up().then_some(()));
    let refused = ask(&near);
    assert!(refused.contains(" 502 ") && refused.contains("relay «far»"), "{refused}");
    let rule = "[[rule]]\nrelays = [\"near\"]\naction = \"allow\"\nallow_destinations = [\"127.0.0.0/8\"]\n";
    fs::write(dir.join("c.toml"), config + rule).unwrap();
    let pid = far.child.id().to_string();
    assert!(Command::new("kill").args(["-HUP", &pid]).status().unwrap().success());
    eventually(|| ask(&near).ends_with("inside").then_some(()));
    assert!(far.child.try_wait().unwrap().is_none());
}
