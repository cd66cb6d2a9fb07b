//! Two daemons with a tunnel between them, as their operators set it up; and curl.

use crate::daemons::{home, pair, stderr, stdout, tunnel_is_up};
use ekiden_testkit::{Daemon, eventually, wait_for};
use socket2::{Domain, SockRef, Socket, Type};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
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
    let log = "[log]\naccess = \"DIR/access\"\n";
    let [far, near] = pair(["200 Mbit/s", "100 Mbit/s"], ["", log]).map(|home| home.serve());
    let body: Vec<u8> = (0..2_000_000_u32).map(|n| (n * 31 + n / 517) as u8).collect();
    let port = server(body.clone());
    let url = format!("http://127.0.0.1:{port}/");
    for (scheme, tunnels) in [("http", false), ("http", true), ("socks5h", false)] {
        let output = curl(&near.proxy(scheme), &[&url, if tunnels { "-p" } else { "-L" }]);
        assert!(output.stdout == body, "{scheme} {tunnels}: {:?}", stderr(&output));
    }
    // what goes wrong there is told here, with the far relay's words
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let nowhere = format!("http://127.0.0.1:{closed}/");
    let refused = stdout(&curl(&near.proxy("http"), &[&nowhere, "-w", " %{http_code}"]));
    assert!(
        refused.contains("peer \"far\"")
            && refused.contains("refused")
            && refused.ends_with(" 502"),
        "{refused}"
    );
    // who was answered before the destination finds its connection broken, and the log says why
    for scheme in ["http", "socks5h"] {
        let broken = curl(&near.proxy(scheme), &["-p", &nowhere, "-w", "%{http_connect}"]);
        assert!(!broken.status.success(), "{scheme}: {broken:?}");
    }
    wait_for("both in the counts", || near.status()["totals"]["failed"].as_u64() >= Some(3));
    let lines = || fs::read_to_string(near.path().join("access")).unwrap();
    let why = "the destination's connection broke: peer";
    wait_for("their lines", || lines().matches(why).count() == 2);
    // both see it
    assert!(tunnel_is_up(&far) && tunnel_is_up(&near));
    let seen = near.status();
    assert_eq!(
        (&seen["tunnels"][0]["peer"], &seen["tunnels"][0]["flows"]),
        (&"far".into(), &0.into())
    );
    assert!(stdout(&near.run(&["status"])).contains("PEER"));
    let listed = stdout(&far.run(&["peer", "list"]));
    assert!(
        listed.contains("near  this relay sends 200 Mbit/s") && listed.ends_with(", up\n"),
        "{listed}"
    );
    // and no longer
    let revoked = far.run(&["peer", "revoke", "near"]);
    assert!(revoked.status.success());
    wait_for("the end of the tunnel", || !tunnel_is_up(&near));
    assert!(far.log().contains("peer revoked; its tunnel ends"), "{}", far.log());
    // the upstream is its tunnel
    let upstream = &near.status()["upstreams"][0];
    assert_eq!((&upstream["available"], &upstream["failures"]), (&false.into(), &0.into()));
    assert!(upstream["last_error"].is_string(), "{upstream}");
    let again = far.run(&["peer", "revoke", "near"]);
    assert!(stderr(&again).contains("unknown peer `near`"));
}

/// The status and the explanation of a connection through a tunnel show the tunnel, not the loopback socket at its end.
#[test]
fn a_connection_through_a_tunnel_shows_the_tunnel() {
    let [far, near] = pair(["2 Mbit/s", "100 Mbit/s"], ["", ""]).map(|home| home.serve());
    let port = server(vec![7; 8_000_000]);
    let (head, mut client) = near.connect(SocketAddr::from(([127, 0, 0, 1], port)), "");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    client.write_all(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
    let mut reader = client.try_clone().unwrap();
    std::thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
    let mut id = 0;
    wait_for("a download through the tunnel", || {
        let seen = near.status();
        let Some(one) = seen["connections"].as_array().unwrap().first() else { return false };
        id = one["id"].as_u64().unwrap();
        one["rate_down"].as_u64() > Some(0)
            && one["legs"][1]["tunnel"] == "far"
            && one["legs"][1]["state"] == "up"
            && one["legs"][0]["tunnel"].is_null()
    });
    let explained = |daemon: &Daemon, id: u64| stdout(&daemon.run(&["explain", &id.to_string()]));
    let text = explained(&near, id);
    assert!(text.contains("through the tunnel to \"far\", up: RTT"), "{text}");
    wait_for("the reason at the receiving end", || {
        explained(&near, id).contains("held back by: the rate agreed with \"far\", 2 Mbit/s: ")
    });
    // at the sending end bytes wait for the tunnel
    let sending = far.status()["connections"][0]["id"].as_u64().unwrap();
    wait_for("bytes that wait", || {
        explained(&far, sending).contains("held back by: the tunnel to \"near\", where 1 flow")
    });
}

/// The line is free for others at once, and the destination does not get the rest.
#[test]
fn a_cancelled_upload_is_discarded() {
    // the rate takes four seconds for it, and what a relay keeps for the tunnel alone is more
    const MOST: u64 = 200_000;
    let [_far, near] = pair(["20 Mbit/s", "400 kbit/s"], ["", ""]).map(|home| home.serve());
    wait_for("the tunnel", || tunnel_is_up(&near));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (head, mut client) = near.connect(listener.local_addr().unwrap(), "");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    client.write_all(&[7; 2_000_000]).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let receiving = std::thread::spawn(move || {
        server.read_to_end(&mut Vec::new()).map_err(|error| error.kind())
    });
    let tunnel = |key: &str| near.status()["tunnels"][0][key].as_u64();
    let before = tunnel("bytes_sent").unwrap();
    SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
    drop(client);
    wait_for("the end of the flow", || (tunnel("flows"), tunnel("waiting")) == (Some(0), Some(0)));
    let more = tunnel("bytes_sent").unwrap() - before;
    assert!(more < MOST, "{more}");
    assert_eq!(receiving.join().unwrap(), Err(std::io::ErrorKind::ConnectionReset));
}

/// A listener whose queue is full, so that the kernel drops further SYNs; and what fills it.
fn unanswering() -> (Socket, Vec<TcpStream>) {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap().as_socket().unwrap();
    let filling = TcpStream::connect(address).unwrap();
    (listener, vec![filling])
}

/// A client is answered, and its bytes are on their way, while the far relay still asks the destination.
#[test]
fn answers_at_once_while_the_destination_is_asked() {
    let [_far, near] = pair(["100 Mbit/s", "100 Mbit/s"], ["", ""]).map(|home| home.serve());
    let (listener, filling) = unanswering();
    let address = listener.local_addr().unwrap().as_socket().unwrap();
    let (head, mut client) = near.connect(address, "");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    client.write_all(b"hello").unwrap();
    // room for the far relay's connection, whose SYN is sent again
    drop(filling);
    listener.accept().unwrap();
    let (mut accepted, _) = listener.accept().unwrap();
    let mut came = [0; 5];
    accepted.read_exact(&mut came).unwrap();
    assert_eq!(&came, b"hello");
}

#[test]
fn answers_when_connected_where_that_is_configured() {
    let config = "answer = \"connected\"\n";
    let [far, near] = pair(["100 Mbit/s", "100 Mbit/s"], ["", config]).map(|home| home.serve());
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (head, _) = near.connect(closed, "");
    assert!(head.starts_with("HTTP/1.1 502"), "{head}");
    let socks = curl(&near.proxy("socks5h"), &[&format!("http://{closed}/")]);
    assert!(stderr(&socks).contains("(5)"), "connection refused: {socks:?}");
    assert!(tunnel_is_up(&far));
}

/// A name that the far relay could not resolve fails at once the next time.
#[test]
fn a_name_that_does_not_exist_is_remembered() {
    let [_far, near] = pair(["100 Mbit/s", "100 Mbit/s"], ["", ""]).map(|home| home.serve());
    let ask = || {
        let mut client = TcpStream::connect(near.address).unwrap();
        let name = "nowhere.invalid:80";
        write!(client, "CONNECT {name} HTTP/1.1\r\nHost: {name}\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        let _broken = client.read_to_end(&mut answer);
        String::from_utf8(answer).unwrap()
    };
    assert!(ask().starts_with("HTTP/1.1 200"));
    let second = ask();
    assert!(second.starts_with("HTTP/1.1 502") && second.contains("peer \"far\""), "{second}");
}

/// A tunnel each way round: a request that would go in circles ends.
#[test]
fn a_circle_of_tunnels_is_noticed() {
    let answer = "answer = \"connected\"\n";
    let back = "[upstream.near]\nurl = \"tunnel://near\"\n[[route]]\nthrough = [\"near\"]\n";
    let [_far, near] = pair(["100 Mbit/s", "100 Mbit/s"], [&format!("{answer}{back}"), answer])
        .map(|home| home.serve());
    let mut client = TcpStream::connect(near.address).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    client.write_all(b"CONNECT example.org:80 HTTP/1.1\r\nHost: example.org:80\r\n\r\n").unwrap();
    let mut answer = [0; 2000];
    let length = client.read(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer[..length]).into_owned();
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
    assert!(answer.contains("through 8 tunnels"), "{answer}");
}

#[test]
fn reports_what_is_wrong() {
    let home = home("[tunnel]\nstate = \"DIR/state\"\n");
    let joined = home.run(&["peer", "join", "hello", "--name", "x"]);
    let text = stderr(&joined);
    assert!(joined.status.code() == Some(2) && text.contains("ekiden1-"), "{text}");
    let invite = ["peer", "invite", "--name", "x", "--address", "nowhere", "--send", "1 Mbit/s"];
    assert_eq!(home.run(&invite).status.code(), Some(2));
    let wrong = self::home(
        "[upstream.a]\nurl = \"http://a:1\"\n[upstream.b]\nurl = \"tunnel://b\"\n[[route]]\nthrough = [\"a > b\"]\n",
    );
    let checked = wrong.run(&["check", &wrong.config().display().to_string()]);
    assert!(stdout(&checked).contains("can only be the first of a chain"), "{checked:?}");
    // a peer that is none, beside one of nearly that name
    let [_, near] = pair(["1 Mbit/s", "1 Mbit/s"], ["", ""]);
    let check = || stdout(&near.run(&["check", &near.config().display().to_string()]));
    assert!(check().contains("no problems"), "{}", check());
    let config = fs::read_to_string(near.config()).unwrap();
    near.configure(&config.replace("tunnel://far", "tunnel://faar"));
    let text = check();
    assert!(
        text.contains("no peer `faar` is known") && text.contains("did you mean `far`?"),
        "{text}"
    );
    assert!(text.contains("0 errors, 1 warning"), "{text}");
}

/// UDP ASSOCIATE at the near relay, and a server of datagrams that the far one reaches.
#[test]
fn datagrams_go_through_a_tunnel() {
    let [_far, near] = pair(["100 Mbit/s", "100 Mbit/s"], ["", ""]).map(|home| home.serve());
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = server.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut buffer = [0; 70_000];
        while let Ok((length, from)) = server.recv_from(&mut buffer) {
            let answer: Vec<u8> = buffer[..length].iter().rev().copied().collect();
            server.send_to(&answer, from).unwrap();
        }
    });
    wait_for("the tunnel", || tunnel_is_up(&near));
    let mut control = TcpStream::connect(near.address).unwrap();
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
            let came = eventually("the answer", || {
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
    wait_for("the refusal", || near.status()["udp"]["refused"].as_u64() > Some(0));
    let flows = || near.status()["tunnels"][0]["flows"].as_u64();
    assert_eq!(flows(), Some(2));
    drop(control);
    wait_for("the end of the flows", || flows() == Some(0));
}

/// A relay that was let in is no client on the other's loopback: what is private there stays closed.
#[test]
fn private_destinations_are_closed_to_relays_unless_a_rule_opens_them() {
    let [far, near] = pair(["100 Mbit/s", "100 Mbit/s"], ["", ""]);
    let config = fs::read_to_string(far.config()).unwrap();
    let config = config.replace("allow_destinations = [\"127.0.0.0/8\"]", "");
    far.configure(&config);
    let [far, near] = [far, near].map(|home| home.serve());
    let port = server(b"inside".to_vec());
    let ask = |near: &Daemon| {
        let mut stream = TcpStream::connect(near.address).unwrap();
        write!(stream, "GET http://127.0.0.1:{port}/ HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    wait_for("the tunnel", || tunnel_is_up(&near));
    let refused = ask(&near);
    assert!(refused.contains(" 502 ") && refused.contains("peer \"far\""), "{refused}");
    let rule = "[[rule]]\npeers = [\"near\"]\naction = \"allow\"\nallow_destinations = [\"127.0.0.0/8\"]\n";
    far.reload(&(config + rule));
    assert!(ask(&near).ends_with("inside"));
}
