//! UDP through HTTP (RFC 9298) at each door: by `Upgrade` in the clear and within TLS, and by an extended CONNECT of
//! HTTP/2.
use crate::accounts_limits::{of, quota, relay as relay_with_limits};
use crate::common::wait_until;
use crate::common::wire::{PATIENCE, Relay, Wire, field};
use crate::tls::{Shown, http2};
use bytes::{Bytes, BytesMut};
use ekiden_model::units::Span;
use ekiden_proxy::observe::status::UdpStatus;
use ekiden_proxy::settings::{AccessLog, ExceededAction};
use ekiden_proxy::wire::http::capsule::{CapsuleReader, UdpPayload, write_head};
use ekiden_proxy::wire::http::reply::udp_connected;
use h2::client::SendRequest;
use h2::{Reason, RecvStream, SendStream};
use std::io::Write as _;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;
use tokio::task::block_in_place;

/// A server for datagrams on loopback.
pub(crate) fn server() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

pub(crate) fn path(to: SocketAddr) -> String {
    format!("/.well-known/masque/udp/{}/{}/", to.ip(), to.port())
}

/// A request by HTTP/1.1, with further fields, each with its CRLF.
pub(crate) fn upgrade(to: SocketAddr, fields: &str) -> String {
    let path = path(to);
    format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: connect-udp\r\nCapsule-Protocol: ?1\r\n{fields}\r\n"
    )
}

pub(crate) fn capsule(payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_head(&mut bytes, payload.len());
    bytes.extend(payload);
    bytes
}

/// The payload of the next capsule; `more` reads as many bytes as it is asked for.
fn received(mut more: impl FnMut(usize) -> Vec<u8>) -> Vec<u8> {
    let mut reader = CapsuleReader::default();
    loop {
        let bytes = more(1);
        if let Some(UdpPayload::Whole(payload)) = reader.read(&mut &bytes[..], |_| true).unwrap() {
            return payload.to_vec();
        }
    }
}

/// Receives a datagram, compares, and sends another back.
fn exchange(server: &UdpSocket, expected: &[u8], answer: &[u8]) -> SocketAddr {
    let mut buffer = vec![0; 65_536];
    let (n, from) = server.recv_from(&mut buffer).unwrap();
    assert!(buffer[..n] == *expected, "{n} bytes of {}", expected.len());
    server.send_to(answer, from).unwrap();
    from
}

fn opened(relay: &Relay, to: SocketAddr) -> Wire {
    let mut client = relay.client();
    client.send(upgrade(to, ""));
    let head = client.head();
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    client
}

fn udp(relay: &Relay) -> UdpStatus {
    relay.status().udp
}

/// Asks by HTTP/2, and returns the answer's status and both directions.
pub(crate) async fn extended(
    client: &mut SendRequest<Bytes>,
    path: String,
) -> (u16, RecvStream, SendStream<Bytes>) {
    let uri = format!("https://localhost{path}");
    let mut request = crate::tls::asked("CONNECT", uri);
    *request.version_mut() = http::Version::HTTP_2;
    request.headers_mut().insert("capsule-protocol", "?1".try_into().unwrap());
    request.extensions_mut().insert(h2::ext::Protocol::from_static("connect-udp"));
    let (response, up) = client.send_request(request, false).unwrap();
    let response = response.await.unwrap();
    let (status, capsules) =
        (response.status().as_u16(), response.headers().get("capsule-protocol"));
    assert_eq!(capsules.is_some(), status == 200, "{response:?}");
    (status, response.into_body(), up)
}

/// The payload of the next capsule on a stream; `rest`: what was read already.
async fn next(down: &mut RecvStream, rest: &mut BytesMut) -> Vec<u8> {
    loop {
        let mut reader = CapsuleReader::default();
        let mut input = &rest[..];
        if let Some(UdpPayload::Whole(payload)) = reader.read(&mut input, |_| true).unwrap() {
            let (payload, used) = (payload.to_vec(), rest.len() - input.len());
            let _ = rest.split_to(used);
            return payload;
        }
        let data = down.data().await.unwrap().unwrap();
        down.flow_control().release_capacity(data.len()).unwrap();
        rest.extend_from_slice(&data);
    }
}

#[test]
fn datagrams_flow_by_upgrade_until_the_stream_ends() {
    let (relay, server) = (Relay::new(), server());
    let to = server.local_addr().unwrap();
    let mut client = relay.client();
    // the first datagram need not wait for the answer
    client.send([upgrade(to, "").into_bytes(), capsule(b"early")].concat());
    let head = client.head();
    assert!(head.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{head}");
    assert_eq!(field(&head, "upgrade"), Some("connect-udp"));
    assert_eq!(field(&head, "connection"), Some("Upgrade"));
    assert_eq!(field(&head, "capsule-protocol"), Some("?1"));
    exchange(&server, b"early", b"answer");
    assert_eq!(received(|n| client.exactly(n)), b"answer");
    // empty and large ones, and one in parts
    for payload in [vec![], vec![7; 40_000]] {
        let bytes = capsule(&payload);
        let (first, second) = bytes.split_at(bytes.len() / 2);
        client.send(first);
        std::thread::sleep(Duration::from_millis(20));
        client.send(second);
        exchange(&server, &payload, &payload);
        assert!(received(|n| client.exactly(n)) == payload);
    }
    wait_until(|| udp(&relay).datagrams_down == 3, || format!("{:?}", udp(&relay)));
    assert_eq!((udp(&relay).associations, udp(&relay).datagrams_up), (1, 3));
    let seen = relay.status().connections.remove(0);
    assert_eq!((seen.protocol.as_str(), seen.state.as_str()), ("udp", "relaying"));
    assert_eq!(seen.destination, Some(to.to_string()));
    assert_eq!((seen.bytes_up, seen.bytes_down), (40_005, 40_006));
    // who was not spoken to does not reach the client
    client.send(capsule(b"x"));
    let from = exchange(&server, b"x", b"y");
    assert_eq!(received(|n| client.exactly(n)), b"y");
    crate::connect_udp::server().send_to(b"stranger", from).unwrap();
    // the client's end is the end of the flow
    client.finish();
    assert_eq!(client.until_end(), "");
    wait_until(|| udp(&relay).associations == 0, || format!("{:?}", udp(&relay)));
    relay.settles();
    assert!(UdpSocket::bind(("127.0.0.1", from.port())).is_ok(), "its port is still open");
}

#[test]
fn flows_and_associations_that_are_cut_off_have_their_lines() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let relay = Relay::with(|settings| settings.access_log = AccessLog::File(path.clone()));
    let server = server();
    let mut client = opened(&relay, server.local_addr().unwrap());
    client.send(capsule(b"ask"));
    exchange(&server, b"ask", b"answer");
    assert_eq!(received(|n| client.exactly(n)), b"answer");
    // by SOCKS5, without a datagram
    let mut silent = relay.client();
    silent.send([5_u8, 1, 0, 5, 3, 0, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(silent.exactly(12)[..5], [5, 0, 5, 0, 0]);
    let all = || (udp(&relay).associations, udp(&relay).datagrams_down);
    let relaying = || relay.status().connections.iter().all(|one| one.state == "relaying");
    wait_until(|| all() == (2, 1) && relaying(), || format!("{:?}", relay.status()));
    relay.server.as_ref().unwrap().handle().cut();
    relay.settles();
    let text = relay.logged(&path);
    assert_eq!(text.matches("\"cut_by\":\"relay\"").count(), 2, "{text}");
    for result in ["cut off; 1 datagrams up, 1 down", "cut off; 0 datagrams up, 0 down"] {
        assert!(text.contains(result), "{text}");
    }
}

#[test]
fn datagrams_flow_by_upgrade_within_tls() {
    let (shown, server) = (Shown::new(), server());
    let relay = shown.relay();
    let to = server.local_addr().unwrap();
    // in both forms of the target
    for request in [upgrade(to, ""), upgrade(to, "").replace("GET /", "GET https://localhost/")] {
        let mut client = shown.client(&relay);
        client.send(request);
        let head = client.until("\r\n\r\n");
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        let payload = vec![3; 30_000];
        client.send(capsule(&payload));
        exchange(&server, &payload, &payload);
        let echoed = received(|n| {
            let mut bytes = vec![0; n];
            std::io::Read::read_exact(&mut client.0, &mut bytes).unwrap();
            bytes
        });
        assert!(echoed == payload);
        drop(client);
        relay.settles();
    }
    // another relay's
    let mut client = shown.client(&relay);
    client.send(upgrade(to, "").replace("GET /", "GET https://other.example/"));
    assert!(client.until("\r\n\r\n").starts_with("HTTP/1.1 421 "));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn datagrams_flow_by_http_2_until_the_stream_is_half_closed() {
    let (shown, server) = (Shown::new(), server());
    let relay = block_in_place(|| shown.relay());
    let (mut client, driving) = http2(&shown, &relay).await;
    let to = server.local_addr().unwrap();
    let (status, mut down, mut up) = extended(&mut client, path(to)).await;
    assert_eq!(status, 200);
    assert!(client.is_extended_connect_protocol_enabled());
    let mut rest = BytesMut::new();
    for payload in [&b"hello"[..], &[], &[5; 50_000]] {
        let capsule = capsule(payload);
        for part in capsule.chunks(capsule.len().div_ceil(3)) {
            up.reserve_capacity(part.len());
            up.send_data(Bytes::copy_from_slice(part), false).unwrap();
        }
        block_in_place(|| exchange(&server, payload, payload));
        assert!(next(&mut down, &mut rest).await == payload);
    }
    assert_eq!(relay.status().udp.associations, 1);
    // two beside each other on one connection
    let (_, mut other, mut other_up) = extended(&mut client, path(to)).await;
    other_up.send_data(capsule(b"other").into(), false).unwrap();
    block_in_place(|| exchange(&server, b"other", b"to the other"));
    assert_eq!(next(&mut other, &mut BytesMut::new()).await, b"to the other");
    up.send_data(Bytes::new(), true).unwrap();
    while let Some(data) = down.data().await {
        assert!(data.unwrap().is_empty());
    }
    assert!(rest.is_empty());
    block_in_place(|| {
        wait_until(|| udp(&relay).associations == 1, || format!("{:?}", udp(&relay)));
    });
    // an end of the relay's is one in order, too
    driving.abort();
    block_in_place(|| {
        relay.settles();
        drop(relay);
    });
}

#[test]
fn silence_ends_a_flow_in_order() {
    let server = server();
    let relay = Relay::with(|settings| settings.udp.idle = Span::from_millis(300));
    let mut client = opened(&relay, server.local_addr().unwrap());
    client.send(capsule(b"ask"));
    exchange(&server, b"ask", b"answer");
    assert_eq!(received(|n| client.exactly(n)), b"answer");
    // what is no datagram does not keep it
    client.send(b"\x17\x01x");
    assert_eq!(client.until_end(), "");
}

#[test]
fn malformed_requests_get_400() {
    let (relay, server) = (Relay::new(), server());
    let good = upgrade(server.local_addr().unwrap(), "");
    let with = |from: &str, to: &str| {
        assert!(good.contains(from), "{from}");
        good.replace(from, to)
    };
    for bad in [
        with("GET", "POST"),
        with("HTTP/1.1", "HTTP/1.0"),
        with("Host: localhost\r\n", ""),
        with("Host: localhost\r\n", "Host: localhost\r\nHost: localhost\r\n"),
        with("Connection: Upgrade\r\n", ""),
        with("Upgrade: connect-udp\r\n", ""),
        with("connect-udp\r\n", "websocket\r\n"),
        with("connect-udp\r\n", "connect-udp, websocket\r\n"),
        with("Capsule-", "Content-Length: 0\r\nCapsule-"),
        with("Capsule-", "Content-Type: text/plain\r\nCapsule-"),
        with("Capsule-", "Transfer-Encoding: chunked\r\nCapsule-"),
        with("127.0.0.1/", "/"),
        with("127.0.0.1/", "%zz/"),
        with("/ HTTP", "0000/ HTTP"),
        with("/ HTTP", "/more HTTP"),
    ] {
        let mut client = relay.client();
        client.send(&bad);
        let head = client.head();
        assert!(head.starts_with("HTTP/1.1 400 "), "{bad}: {head}");
        assert_eq!(
            field(&head, "proxy-status"),
            Some("relay-under-test; error=http_request_error")
        );
    }
    relay.settles();
    assert_eq!(udp(&relay).begun, 0);
}

#[test]
fn malformed_capsules_end_the_stream() {
    let (relay, server) = (Relay::new(), server());
    let to = server.local_addr().unwrap();
    // a payload of 65,528 bytes is refused by its head
    let too_long = b"\x00\x80\x00\xff\xf9\x00";
    let skipped = b"\x17\xff\xff\xff\xff\xff\xff\xff\xff";
    for bad in [&b"\x00\x00"[..], b"\x00\x01\x40", too_long, skipped] {
        let mut client = opened(&relay, to);
        client.send(capsule(b"before"));
        exchange(&server, b"before", b"answer");
        assert_eq!(received(|n| client.exactly(n)), b"answer");
        client.send(bad);
        assert_eq!(client.until_reset(), "");
    }
    // cut within a capsule
    let mut client = opened(&relay, to);
    client.send(&capsule(b"cut")[..4]);
    client.finish();
    assert_eq!(client.until_reset(), "");
    relay.settles();
    assert_eq!(udp(&relay).malformed, 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn malformed_capsules_reset_a_stream_of_http_2() {
    let (shown, server) = (Shown::new(), server());
    let relay = block_in_place(|| shown.relay());
    let (mut client, driving) = http2(&shown, &relay).await;
    let to = server.local_addr().unwrap();
    for (bytes, ends) in [(&b"\x00\x00"[..], false), (b"\x00\x05\x00cut", true)] {
        let (status, mut down, mut up) = extended(&mut client, path(to)).await;
        assert_eq!(status, 200);
        up.send_data(Bytes::from_static(bytes), ends).unwrap();
        let why = down.data().await.unwrap().unwrap_err();
        assert_eq!(why.reason(), Some(Reason::PROTOCOL_ERROR));
    }
    // what the path says wrongly, and what is not spoken here
    let (status, ..) = extended(&mut client, "/.well-known/masque/udp/a/0/".into()).await;
    assert_eq!(status, 400);
    let mut other = crate::tls::asked("CONNECT", format!("https://localhost{}", path(to)));
    other.extensions_mut().insert(h2::ext::Protocol::from_static("websocket"));
    let (response, _) = client.send_request(other, false).unwrap();
    assert_eq!(response.await.unwrap().status(), 501);
    driving.abort();
    block_in_place(|| {
        relay.settles();
        drop(relay);
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_offered_where_udp_is_off() {
    let (shown, server) = (Shown::new(), server());
    let to = server.local_addr().unwrap();
    let relay = block_in_place(|| {
        Relay::with(|settings| {
            shown.settings(settings);
            settings.udp.associations = 0;
        })
    });
    let (mut client, driving) = http2(&shown, &relay).await;
    let (plain, _) =
        client.send_request(crate::tls::asked("GET", "https://localhost/".into()), true).unwrap();
    // the settings came before the answer
    plain.await.unwrap();
    assert!(!client.is_extended_connect_protocol_enabled());
    block_in_place(|| {
        let mut client = relay.client();
        client.send(upgrade(to, ""));
        let head = client.head();
        // as any other path that there is not
        assert!(head.starts_with("HTTP/1.1 4"), "{head}");
        driving.abort();
        drop(client);
        relay.settles();
        drop(relay);
    });
}

#[test]
fn flows_count_as_associations() {
    let server = server();
    let to = server.local_addr().unwrap();
    let relay = Relay::with(|settings| settings.udp.associations = 1);
    let first = opened(&relay, to);
    let mut second = relay.client();
    second.send(upgrade(to, ""));
    let head = second.head();
    assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
    drop(first);
    wait_until(|| udp(&relay).associations == 0, || format!("{:?}", udp(&relay)));
    opened(&relay, to);
}

/// Sends to a client until datagrams are lost; `from`: the relay's socket.
fn flood(relay: &Relay, server: &UdpSocket, from: SocketAddr) {
    let mut sent = 1_u32;
    while udp(relay).undelivered < 20 {
        let payload = [&sent.to_be_bytes()[..], &[9; 20_000]].concat();
        server.send_to(&payload, from).unwrap();
        sent += 1;
        if sent.is_multiple_of(8) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(sent < 100_000, "{:?}", udp(relay));
    }
}

fn memory(relay: &Relay) -> u64 {
    relay.status().budgets.into_iter().find(|budget| budget.name == "memory").unwrap().used
}

/// What waits for one client at most.
const BACKLOG: u64 = 136 * 1024;

/// Whether these payloads of a flood came in their order.
fn in_order(last: &mut Option<u32>, payload: &[u8]) {
    let nth = u32::from_be_bytes(payload[..4].try_into().unwrap());
    assert!(payload.len() == 20_004 && payload[4..].iter().all(|byte| *byte == 9));
    assert!(last.is_none_or(|last| last < nth), "{nth} after {last:?}");
    *last = Some(nth);
}

#[test]
fn a_client_that_reads_nothing_loses_datagrams_and_keeps_the_stream() {
    let (relay, server) = (Relay::new(), server());
    let mut client = opened(&relay, server.local_addr().unwrap());
    client.send(capsule(b"ask"));
    let from = exchange(&server, b"ask", &[&[0; 4][..], &[9; 20_000]].concat());
    flood(&relay, &server, from);
    let used = memory(&relay);
    assert!(used > 0 && used <= BACKLOG, "{used}");
    // it reads again: whole datagrams, and then the next one
    client.send(capsule(b"again"));
    exchange(&server, b"again", b"lost, or not");
    let (down, mut last) = (udp(&relay).datagrams_down, None);
    for _ in 0..down - 1 {
        in_order(&mut last, &received(|n| client.exactly(n)));
    }
    client.send(capsule(b"once more"));
    exchange(&server, b"once more", b"last");
    loop {
        match received(|n| client.exactly(n)) {
            payload if payload == b"last" => break,
            payload if payload == b"lost, or not" => {}
            payload => in_order(&mut last, &payload),
        }
    }
    wait_until(|| memory(&relay) == 0, || format!("{}", memory(&relay)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_client_of_http_2_that_reads_nothing_loses_datagrams_and_keeps_the_stream() {
    let (shown, server) = (Shown::new(), server());
    let relay = block_in_place(|| shown.relay());
    let (mut client, driving) = http2(&shown, &relay).await;
    let (_, mut down, mut up) = extended(&mut client, path(server.local_addr().unwrap())).await;
    up.send_data(capsule(b"ask").into(), false).unwrap();
    let first = [&[0; 4][..], &[9; 20_000]].concat();
    block_in_place(|| {
        let from = exchange(&server, b"ask", &first);
        flood(&relay, &server, from);
        let used = memory(&relay);
        assert!(used > 0 && used <= BACKLOG, "{used}");
    });
    let (mut rest, mut last) = (BytesMut::new(), None);
    for _ in 0..5 {
        in_order(&mut last, &next(&mut down, &mut rest).await);
    }
    // all that waited
    let silence = Duration::from_millis(500);
    while let Ok(payload) = tokio::time::timeout(silence, next(&mut down, &mut rest)).await {
        in_order(&mut last, &payload);
    }
    assert_eq!(memory(&relay), 0);
    up.send_data(capsule(b"again").into(), false).unwrap();
    block_in_place(|| exchange(&server, b"again", b"last"));
    assert_eq!(next(&mut down, &mut rest).await, b"last");
    driving.abort();
    block_in_place(|| {
        relay.settles();
        drop(relay);
    });
}

#[test]
fn a_quota_ends_to_the_byte() {
    let server = server();
    let to = server.local_addr().unwrap();
    let (mut up, mut down) = (upgrade(to, "").len() as u64, udp_connected().len() as u64);
    // each with the head of its capsule
    let each = capsule(&[1; 1_000]).len() as u64;
    let all = up + down + 20 * each + 1_200;
    let relay = relay_with_limits(quota(all, ExceededAction::Cut));
    let mut client = opened(&relay, to);
    for _ in 0..10 {
        client.send(capsule(&[1; 1_000]));
        exchange(&server, &[1; 1_000], &[2; 1_000]);
        assert_eq!(received(|n| client.exactly(n)).len(), 1_000);
    }
    (up, down) = (up + 10 * each, down + 10 * each);
    wait_until(|| of(&relay) == (down, up), || format!("{:?}", of(&relay)));
    // one that is too large for the rest does not pass, and uses it up
    client.send(capsule(&[1; 1_201]));
    up += 1_200;
    // the relay may have closed it already
    let _ = client.stream.write_all(&capsule(b"x"));
    client.is_gone();
    assert_eq!((down, up), of(&relay));
    assert_eq!(down + up, all);
}
