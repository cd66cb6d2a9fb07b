//! Peers that are late, leave, or talk nonsense: who is told what, and that nothing is left behind.
use crate::common::wire::{Origin, PATIENCE, Relay, Wire, get, ok, request};
use ekiden_model::units::{Bytes, Span};
use ekiden_proxy::settings::AccessLog;
use rustix::fs::{CWD, Mode, mkfifoat};
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::time::Duration;

/// A client whose request has reached the origin, and the connection that it came by.
fn asked(relay: &Relay, origin: &Origin) -> (Wire, Wire) {
    let mut client = relay.client();
    client.send(get(origin, "/", ""));
    let mut server = origin.accept();
    server.head();
    (client, server)
}

#[test]
fn answers_502_to_garbage_from_the_server() {
    for garbage in [
        "SSH-2.0-OpenSSH_9.2\r\n\r\n",
        "ICY 200 OK\r\n\r\n",
        "HTTP/2.0 200 OK\r\n\r\n",
        "HTTP/1.1 OK\r\n\r\n",
        "HTTP/1.1 99 Low\r\n\r\n",
        "HTTP/1.1 600 High\r\n\r\n",
        "HTTP/1.1 200 OK\nContent-Length: 0\n\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n\r\na",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX : a\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\0b\r\n\r\n",
        "HTTP/1.1 200 OK\r\nConnection: Content-Length\r\nContent-Length: 1\r\n\r\na",
        "\r\nHTTP/1.1 200 OK\r\n\r\n",
    ] {
        let (relay, origin) = (Relay::new(), Origin::new());
        let mut client = relay.client();
        client.send(get(&origin, "/", ""));
        let mut server = origin.accept();
        server.head();
        server.send(garbage);
        let answer = client.until_end();
        assert!(answer.starts_with("HTTP/1.1 502 "), "{garbage:?}: {answer}");
        assert!(answer.contains("answer"), "{garbage:?}: {answer}");
        drop(client);
        server.is_gone();
        relay.settles();
    }
}

#[test]
fn stops_reading_endless_heads() {
    let (relay, origin) = (Relay::new(), Origin::new());
    let (mut client, mut server) = asked(&relay, &origin);
    server.send("HTTP/1.1 200 OK\r\nX: ".to_owned() + &"a".repeat(70_000));
    assert!(client.until_end().starts_with("HTTP/1.1 502 "));
}

#[test]
fn answers_502_when_the_server_closes_without_an_answer() {
    for (said, reset) in [("", false), ("", true), ("HTTP/1.1 200 OK\r\nContent-", false)] {
        let (relay, origin) = (Relay::new(), Origin::new());
        let mut client = relay.client();
        client.send(get(&origin, "/", ""));
        let mut server = origin.accept();
        server.head();
        server.send(said);
        if reset {
            server.reset()
        } else {
            drop(server)
        }
        let answer = client.until_end();
        assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains("closed"), "{answer}");
    }
}

#[test]
fn answers_502_when_nothing_listens() {
    let relay = Relay::new();
    let gone = Origin::new();
    let ask = get(&gone, "/", "");
    drop(gone);
    let mut client = relay.client();
    client.send(ask);
    assert!(client.until_end().starts_with("HTTP/1.1 502 "));
    drop(client);
    relay.settles();
}

#[test]
fn does_not_wait_for_a_client_that_leaves_the_queue() {
    for body in [None, Some("Content-Length: 10\r\n"), Some("Transfer-Encoding: chunked\r\n")] {
        let (relay, origin) = (Relay::new(), Origin::new());
        let mut client = relay.client();
        client.send(match body {
            None => get(&origin, "/", ""),
            Some(fields) => request("POST", &origin, "/", fields) + "3\r\n",
        });
        let mut server = origin.accept();
        server.head();
        client.reset();
        let (_, how) = server.rest();
        assert!(how.is_ok() || how.is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionReset));
        relay.settles();
    }
}

#[test]
fn does_not_wait_for_a_client_that_leaves_in_the_response() {
    let (relay, origin) = (Relay::new(), Origin::new());
    let (mut client, mut server) = asked(&relay, &origin);
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\nbegin");
    client.head();
    client.reset();
    let (_, how) = server.rest();
    drop(how);
    relay.settles();
}

#[test]
fn notices_a_client_that_leaves_while_the_server_does_not_read() {
    let (relay, origin) = (Relay::new(), Origin::new());
    let mut client = relay.client();
    client.send(request("POST", &origin, "/", "Transfer-Encoding: chunked\r\n"));
    let mut server = origin.accept();
    server.head();
    client.stream.set_nonblocking(true).unwrap();
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(65_536));
    // until every buffer on the way is full
    let mut at = 0;
    let mut refusals = 0;
    while refusals < 50 {
        use std::io::Write;
        match client.stream.write(&chunk.as_bytes()[at..]) {
            Ok(n) => {
                at = (at + n) % chunk.len();
                refusals = 0;
            }
            Err(_) => {
                refusals += 1;
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }
    client.reset();
    relay.settles();
}

#[test]
fn an_access_log_that_nobody_reads_holds_up_no_request() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pipe");
    mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
    // as one end alone it waits for the other
    let end = File::options().read(true).write(true).open(&path).unwrap();
    let relay = Relay::with(|settings| settings.access_log = AccessLog::File(path.clone()));
    // dropped first, or a relay that waits for it never ends
    let pipe = end;
    let origin = Origin::new();
    let target = format!("/{}", "x".repeat(4096));
    // 160 KiB, of which a pipe takes 64
    let (mut client, mut server) = asked(&relay, &origin);
    for _ in 0..40 {
        server.send(ok("1"));
        client.until("\r\n\r\n1");
        client.send(get(&origin, &target, ""));
        server.head();
    }
    server.send(ok("2"));
    client.until("\r\n\r\n2");
    drop((client, server));
    relay.settles();
    let pending = relay.server.as_ref().unwrap().handle().pending_lines();
    assert!(!pending.wait(Duration::ZERO), "it is full");
    let (mut client, mut server) = asked(&relay, &origin);
    server.send(ok("3"));
    client.until("\r\n\r\n3");
    assert_eq!(relay.status().totals.requests, 42);
    let reading = std::thread::spawn(move || BufReader::new(pipe).lines().take(42).count());
    drop((client, server));
    relay.settles();
    assert!(pending.wait(PATIENCE));
    assert_eq!(reading.join().unwrap(), 42);
}

#[test]
fn the_access_log_says_which_end_cut_a_transfer_and_a_client_that_leaves_is_no_failure() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("access.log");
    let relay = Relay::with(|settings| settings.access_log = AccessLog::File(path.clone()));
    let origin = Origin::new();
    let half = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello";
    let last = |cut_by: Option<&str>, failed| {
        relay.settles();
        let text = relay.logged(&path);
        let line = text.lines().last().unwrap();
        match cut_by {
            Some(end) => assert!(line.contains(&format!("\"cut_by\":\"{end}\"")), "{line}"),
            None => assert!(!line.contains("cut_by"), "{line}"),
        }
        assert_eq!(relay.status().totals.failed, failed, "{line}");
    };
    // the client leaves
    let (mut client, mut server) = asked(&relay, &origin);
    server.send(half);
    client.head();
    client.reset();
    server.is_gone();
    last(Some("client"), 0);
    // the server closes within its answer
    let (mut client, mut server) = asked(&relay, &origin);
    server.send(half);
    drop(server);
    client.head();
    client.until_reset();
    last(Some("destination"), 1);
    // the answer is whole
    let (mut client, mut server) = asked(&relay, &origin);
    server.send(half.to_owned() + "world");
    client.head();
    assert_eq!(client.exactly(10), b"helloworld");
    drop(client);
    last(None, 1);
    // tunnels: both end, and one is reset
    for reset in [false, true] {
        let mut client = relay.client();
        client.send(format!("CONNECT {} HTTP/1.1\r\nHost: {}\r\n\r\n", origin.name, origin.name));
        let mut server = origin.accept();
        client.head();
        server.send("x");
        client.exactly(1);
        if reset {
            server.reset();
            client.until_reset();
        } else {
            drop(server);
            client.is_gone();
        }
        drop(client);
        last(reset.then_some("destination"), 1);
    }
}

#[test]
fn a_request_and_a_tunnel_that_are_cut_off_have_their_lines() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("access.log");
    let relay = Relay::with(|settings| settings.access_log = AccessLog::File(path.clone()));
    let origin = Origin::new();
    let (mut asking, _server) = asked(&relay, &origin);
    let mut client = relay.client();
    client.send(format!("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n", origin.name));
    let mut server = origin.accept();
    client.head();
    client.send("four");
    server.exactly(4);
    relay.server.as_ref().unwrap().handle().cut();
    for cut in [&mut asking, &mut client, &mut server] {
        cut.until_reset();
    }
    relay.settles();
    let text = relay.logged(&path);
    assert_eq!(text.lines().count(), 2, "{text}");
    for line in text.lines() {
        assert!(line.contains("\"cut_by\":\"relay\",\"result\":\"cut off\""), "{line}");
    }
    assert!(text.contains("\"bytes_up\":4,"), "{text}");
}

#[test]
fn answers_408_to_a_late_head() {
    let relay = Relay::with(|settings| settings.timeouts.request_head = Span::from_millis(50));
    let mut client = relay.client();
    client.send("GET http://exa");
    let answer = client.until_end();
    assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("did not arrive"), "{answer}");
    drop(client);
    for (begin, said) in [(&[5_u8][..], &[5_u8, 0xff][..]), (&[4, 1], &[0, 91, 0, 0, 0, 0, 0, 0])] {
        let mut client = relay.client();
        client.send(begin);
        assert_eq!(client.rest().0, said);
    }
    relay.settles();
}

#[test]
fn closes_a_silent_client() {
    let relay = Relay::with(|settings| settings.timeouts.first_byte = Span::from_millis(50));
    relay.client().is_gone();
    relay.settles();
}

#[test]
fn closes_a_kept_client_that_sends_no_request() {
    let relay = Relay::with(|settings| settings.timeouts.keep_alive = Span::from_millis(50));
    let origin = Origin::new();
    let (mut client, mut server) = asked(&relay, &origin);
    server.send(ok("x"));
    client.head();
    client.exactly(1);
    client.is_gone();
    server.is_gone();
    relay.settles();
}

#[test]
fn answers_504_to_a_late_answer() {
    let relay = Relay::with(|settings| settings.timeouts.response = Span::from_millis(50));
    let origin = Origin::new();
    let (mut client, mut server) = asked(&relay, &origin);
    let answer = client.until_end();
    assert!(answer.starts_with("HTTP/1.1 504 ") && answer.contains("did not answer"), "{answer}");
    server.is_gone();
}

#[test]
fn a_body_may_take_longer_than_the_time_for_an_answer() {
    let relay = Relay::with(|settings| settings.timeouts.response = Span::from_millis(1_000));
    let origin = Origin::new();
    let (mut client, mut server) = asked(&relay, &origin);
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello");
    client.head();
    std::thread::sleep(Duration::from_millis(1_500));
    server.send("world");
    assert_eq!(client.exactly(10), b"helloworld");
}

#[test]
fn silence_is_504_before_the_answer_and_a_reset_after() {
    let relay = Relay::with(|settings| {
        for leg in settings.legs.values_mut() {
            leg.idle_timeout = Span::from_millis(300);
        }
    });
    let origin = Origin::new();
    let (mut client, mut server) = asked(&relay, &origin);
    let answer = client.until_end();
    assert!(answer.starts_with("HTTP/1.1 504 ") && answer.contains("silent"), "{answer}");
    server.is_gone();
    let (mut client, mut server) = asked(&relay, &origin);
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello");
    client.head();
    assert_eq!(client.until_reset(), "hello");
    relay.settles();
}

/// Interim answers without end: the time for an answer is counted to the final one.
#[test]
fn interim_answers_do_not_put_off_the_deadline() {
    use std::io::Write;
    let relay = Relay::with(|settings| settings.timeouts.response = Span::from_millis(200));
    let origin = Origin::new();
    let (mut client, mut server) = asked(&relay, &origin);
    let talking = std::thread::spawn(move || {
        while server.stream.write_all(b"HTTP/1.1 102 Processing\r\n\r\n").is_ok() {
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    let answers = client.until_end();
    assert!(answers.contains("HTTP/1.1 504 "), "{answers}");
    drop(client);
    talking.join().unwrap();
    relay.settles();
}

#[test]
fn a_server_that_does_not_read_the_head_times_out() {
    let relay = Relay::with(|settings| {
        settings.budgets.head = Bytes::mib(4);
        let direct = settings.legs.entry("direct".to_owned()).or_default();
        direct.socket.send_buffer = Some(Bytes::kib(8));
    });
    let origin = Origin::new();
    let mut client = relay.client();
    // more than both ends' buffers take
    let large = format!("X: {}\r\n", "a".repeat(3 << 20));
    client.send(get(&origin, "/", &large));
    let _server = origin.accept();
    client.reset();
    relay.settles();
}
