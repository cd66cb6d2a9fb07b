//! What the relay reads and has no use for counts, too: bodies of requests that it refuses, heads that no session reads,
//! capsules that it skips.

use super::carrier::Carrier;
use crate::accounts_limits::{of, quota, relay_with};
use crate::common::wire::Relay;
use crate::common::{connect, wait_until};
use crate::connect_udp::{capsule, server, upgrade};
use crate::tls::{Shown, asked, http2};
use ekiden_proxy::settings::ExceededAction;
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use tokio::task::JoinHandle;

/// More than a pipe of HTTP/2 holds, less than the first window of a connection.
const BODY: usize = 60_000;
/// What may count besides: heads, and frames.
const AROUND: u64 = 1_500;

/// Waits until the account has used up about so many bytes upwards.
fn until_counted(relay: &Relay, bytes: u64) {
    let is_it = || (bytes..bytes + AROUND).contains(&of(relay).1);
    wait_until(is_it, || format!("{:?}, and {bytes} came", of(relay)));
}

fn relay(shown: &Shown) -> Relay {
    relay_with(quota(1 << 40, ExceededAction::Cut), |settings| shown.settings(settings))
}

fn refused() -> String {
    format!(
        "TRACE http://127.0.0.1:9/ HTTP/1.1\r\nHost: 127.0.0.1:9\r\nContent-Length: {BODY}\r\n\r\n"
    )
}

#[test]
fn a_body_counts_whose_request_was_refused() {
    let relay = relay(&Shown::new());
    for at_once in [true, false] {
        let before = of(&relay).1;
        let mut client = connect(relay.address);
        let (head, body) = (refused(), "b".repeat(BODY));
        let mut answer = [0; 12];
        if at_once {
            client.write_all((head + &body).as_bytes()).unwrap();
            client.read_exact(&mut answer).unwrap();
        } else {
            client.write_all(head.as_bytes()).unwrap();
            client.read_exact(&mut answer).unwrap();
            client.write_all(body.as_bytes()).unwrap();
        }
        assert_eq!(&answer, b"HTTP/1.1 405");
        client.shutdown(Shutdown::Write).unwrap();
        until_counted(&relay, before + BODY as u64);
    }
}

/// Ends a connection, and waits until about as much is used upwards as it carried below TLS.
async fn until_all_counted(relay: Relay, carrier: Carrier, driving: JoinHandle<()>) {
    driving.abort();
    let _ = driving.await;
    let (sent, _) = tokio::task::spawn_blocking(|| carrier.moved()).await.unwrap();
    tokio::task::block_in_place(move || {
        let counted = || of(&relay).1 + AROUND >= sent && of(&relay).1 <= sent + AROUND;
        wait_until(counted, || format!("{:?}, and {sent} came", of(&relay)));
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_body_of_http_2_counts_whose_request_was_refused() {
    let shown = Shown::new();
    let mut relay = tokio::task::block_in_place(|| relay(&shown));
    let carrier = Carrier::before(&mut relay);
    let (mut client, driving) = http2(&shown, &relay).await;
    let mut request = asked("TRACE", "http://127.0.0.1:9/".to_owned());
    request.headers_mut().insert("content-length", BODY.into());
    let (response, mut up) = client.send_request(request, false).unwrap();
    // it may be cut
    let _ = up.send_data(vec![b'b'; BODY].into(), true);
    assert_eq!(response.await.unwrap().status(), 405);
    drop(client);
    until_all_counted(relay, carrier, driving).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_head_of_http_2_counts_that_no_session_reads() {
    let shown = Shown::new();
    let mut relay = tokio::task::block_in_place(|| relay(&shown));
    let carrier = Carrier::before(&mut relay);
    let (mut client, driving) = http2(&shown, &relay).await;
    // a connection ends after 32
    for nth in 0..30 {
        // a protocol that the relay does not speak
        let mut request = asked("CONNECT", format!("https://127.0.0.1:9/{nth}"));
        request.extensions_mut().insert(h2::ext::Protocol::from_static("websocket"));
        // no two alike, or the second would be a byte (RFC 7541 §2.3.2)
        request.headers_mut().insert("x", format!("{nth}{}", "~".repeat(1_000)).parse().unwrap());
        let (response, _) = client.send_request(request, true).unwrap();
        assert_eq!(response.await.unwrap().status(), 501);
    }
    // the account that pays is known with a request that is read
    let (response, _) =
        client.send_request(asked("TRACE", "http://127.0.0.1:9/".into()), true).unwrap();
    assert_eq!(response.await.unwrap().status(), 405);
    drop(client);
    until_all_counted(relay, carrier, driving).await;
}

#[test]
fn capsules_count_that_are_skipped() {
    let (relay, to) = (relay(&Shown::new()), server());
    let mut client = relay.client();
    let opening = upgrade(to.local_addr().unwrap(), "");
    client.send(&opening);
    client.head();
    // of a type that is not known, 16,000 bytes
    let unknown = [&[0x17, 0x7e, 0x80][..], &[7; 0x3e80]].concat();
    let all = [&unknown[..], &capsule(b"one"), &unknown].concat();
    client.send(&all);
    until_counted(&relay, (opening.len() + all.len()) as u64);
    assert_eq!(of(&relay).1, (opening.len() + all.len()) as u64);
}

#[test]
fn bytes_count_behind_a_request_by_socks_that_was_refused() {
    let relay = relay(&Shown::new());
    // to a port where nobody listens
    let requests = [
        &b"\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x09"[..],
        b"\x04\x01\x00\x09\x00\x00\x00\x01\x00127.0.0.1\x00",
    ];
    for request in requests {
        let all = [request, &[7; 400]].concat();
        let whole = of(&relay).1 + all.len() as u64;
        let mut client = connect(relay.address);
        client.write_all(&all).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        wait_until(|| of(&relay).1 == whole, || format!("{:?}, and {whole} came", of(&relay)));
    }
}

#[test]
fn bytes_on_the_connection_of_a_socks_association_count_and_end_it() {
    let relay = relay(&Shown::new());
    let mut client = connect(relay.address);
    client.write_all(&[5, 1, 0, 5, 3, 0, 1, 0, 0, 0, 0, 0, 0]).unwrap();
    client.read_exact(&mut [0; 12]).unwrap();
    let most = 64 << 10;
    client.write_all(&vec![7; most]).unwrap();
    until_counted(&relay, most as u64);
    assert_eq!(relay.status().udp.associations, 1);
    client.write_all(&[7]).unwrap();
    assert_eq!(client.read(&mut [0]).unwrap_or(0), 0);
    wait_until(|| relay.status().udp.associations == 0, || format!("{:?}", relay.status().udp));
}
