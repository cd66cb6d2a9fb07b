//! What travels in heads, interim responses and trailers counts as bodies do: an account that is cut
//! got its quota and no byte more.

use crate::accounts_limits::{of, quota, relay, until_gone};
use crate::common::wire::Relay;
use ekiden_proxy::settings::ExceededAction;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};

const QUOTA: u64 = 1_000_003;

/// More than one head may have, less than all.
const HEAD: usize = 30_000;

/// An origin in league with the client: answers each request with the same bytes.
fn colluding(answer: String) -> SocketAddr {
    let (listener, at) = crate::common::listener();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, answer) = (stream.unwrap(), answer.clone());
            std::thread::spawn(move || {
                crate::common::read_head(&mut stream);
                // the relay may close before all of it is sent
                let _ = stream.write_all(answer.as_bytes());
                let _ = stream.shutdown(Shutdown::Write);
                let _ = stream.read(&mut [0]);
            });
        }
    });
    at
}

/// Repeats the request on new connections until the relay refuses it; the bytes of all answers.
fn until_cut(relay: &Relay, request: &str) -> u64 {
    let mut received = 0;
    for _ in 0..200 {
        let mut client = TcpStream::connect(relay.address).unwrap();
        client.write_all(request.as_bytes()).unwrap();
        let mut start = [0; 13];
        match client.read_exact(&mut start) {
            Ok(()) if start.starts_with(b"HTTP/1.1 403 ") => return received,
            Ok(()) => received += 13 + until_gone(&mut client) as u64,
            // cut within the head
            Err(_) => {}
        }
        drop(client);
        relay.settles();
    }
    panic!("{received} bytes, and the account still has some: {:?}", of(relay));
}

fn get(to: SocketAddr, fields: &str) -> String {
    format!("GET http://{to}/ HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n{fields}\r\n")
}

#[test]
fn a_quota_ends_to_the_byte_in_heads_interim_responses_and_trailers() {
    let filler = format!("X: {}\r\n", "x".repeat(HEAD));
    let end = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (what, answer) in [
        ("large interim responses", format!("HTTP/1.1 103 E\r\n{filler}\r\n").repeat(9) + end),
        ("small interim responses", "HTTP/1.1 103 E\r\n\r\n".repeat(10_000) + end),
        ("final heads", format!("HTTP/1.1 200 OK\r\n{filler}Content-Length: 0\r\n\r\n")),
        ("trailers", format!("{chunked}0\r\n{filler}\r\n")),
        ("chunk extensions", {
            let chunks = format!("1;{}\r\nx\r\n", "x".repeat(100)).repeat(300);
            format!("{chunked}{chunks}0\r\n\r\n")
        }),
        ("malformed chunks", format!("{chunked}1;{filler}")),
        ("answers that are no HTTP", format!("HTTP/1.1 200 OK\r\n{filler}: x\r\n\r\n")),
    ] {
        let relay = relay(quota(QUOTA, ExceededAction::Cut));
        let request = get(colluding(answer), "");
        let received = until_cut(&relay, &request);
        let (down, up) = of(&relay);
        assert_eq!(down + up, QUOTA, "{what}");
        // the relay's own words, a refusal in place of the final response, are not counted
        let most = down + if what == "answers that are no HTTP" { down / 50 } else { 1_000 };
        assert!(received <= most, "{what}: {received} received, {down} counted");
    }
}

#[test]
fn a_quota_ends_to_the_byte_in_request_heads() {
    let relay = relay(quota(QUOTA, ExceededAction::Cut));
    let to = colluding("HTTP/1.1 204 No Content\r\n\r\n".to_owned());
    until_cut(&relay, &get(to, &format!("X: {}\r\n", "x".repeat(HEAD))));
    let (down, up) = of(&relay);
    assert_eq!(down + up, QUOTA);
    assert!(up > QUOTA * 9 / 10, "{up} up");
}
