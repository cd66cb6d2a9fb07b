//! A hundred streams of one HTTP/2 connection within TLS beside each other.
use crate::common::wire::{Origin, PATIENCE, Relay, field, ok};
use crate::tls::{Shown, asked, http2, http2_with};
use ekiden_model::units::{Bytes, Span};
use ekiden_testkit::wait_for;
use std::io::{Read as _, Write as _};

/// What one destination sends to each stream; less than the client's window for its connection.
const EACH: usize = 200_000;
/// What the stream is sent whose client takes nothing at first.
const SLOW: usize = 3_000_000;
const STREAMS: usize = 100;

fn byte(at: usize) -> u8 {
    (at % 251) as u8
}

type Tunnel = (http::Response<h2::RecvStream>, h2::SendStream<bytes::Bytes>, std::net::TcpStream);

/// A stream of CONNECT: the answer, the way up, and the server's end.
async fn tunnel(client: &mut h2::client::SendRequest<bytes::Bytes>, origin: &Origin) -> Tunnel {
    let mut request = asked("CONNECT", origin.name.clone());
    *request.version_mut() = http::Version::HTTP_2;
    std::future::poll_fn(|cx| client.poll_ready(cx)).await.unwrap();
    let (response, up) = client.send_request(request, false).unwrap();
    let response = response.await.unwrap();
    (response, up, tokio::task::block_in_place(|| origin.accept()).stream)
}

/// Reads to the end of the stream, and compares.
async fn read(body: &mut h2::RecvStream, length: usize) {
    let mut at = 0;
    while let Some(data) = body.data().await {
        let data = data.unwrap();
        body.flow_control().release_capacity(data.len()).unwrap();
        assert!(data.iter().zip(at..).all(|(got, at)| *got == byte(at)), "other bytes at {at}");
        at += data.len();
    }
    assert_eq!(at, length);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_stream_that_nobody_reads_stalls_no_other() {
    let (shown, origin) = (Shown::new(), Origin::new());
    let relay = tokio::task::block_in_place(|| shown.relay());
    // as browsers do: much for the connection, less for each stream
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(1 << 20).initial_connection_window_size(16 << 20);
    let (mut client, driving) = http2_with(&shown, &relay, &builder).await;
    let mut tunnels = Vec::new();
    for nth in 0..STREAMS {
        let (response, up, mut server) = tunnel(&mut client, &origin).await;
        assert_eq!(response.status(), 200);
        // the first one is not read until all others are over
        let length = if nth == 0 { SLOW } else { EACH };
        std::thread::spawn(move || {
            let bytes: Vec<u8> = (0..length).map(byte).collect();
            server.write_all(&bytes).unwrap();
            server.shutdown(std::net::Shutdown::Write).unwrap();
            assert_eq!(server.read(&mut [0]).unwrap(), 0);
        });
        tunnels.push((response, up));
    }
    let (mut slow, mut slow_up) = tunnels.remove(0);
    for (response, up) in &mut tunnels {
        read(response.body_mut(), EACH).await;
        up.send_data(bytes::Bytes::new(), true).unwrap();
    }
    read(slow.body_mut(), SLOW).await;
    slow_up.send_data(bytes::Bytes::new(), true).unwrap();
    driving.abort();
    tokio::task::block_in_place(|| {
        relay.settles();
        drop(relay);
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_window_of_a_byte_moves_on() {
    const LENGTH: usize = 3_000;
    let (shown, origin) = (Shown::new(), Origin::new());
    let relay = tokio::task::block_in_place(|| shown.relay());
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(1);
    let (mut client, driving) = http2_with(&shown, &relay, &builder).await;
    let (mut response, mut up, mut server) = tunnel(&mut client, &origin).await;
    std::thread::spawn(move || {
        let bytes: Vec<u8> = (0..LENGTH).map(byte).collect();
        server.write_all(&bytes).unwrap();
        server.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(server.read(&mut [0]).unwrap(), 0);
    });
    read(response.body_mut(), LENGTH).await;
    up.send_data(bytes::Bytes::new(), true).unwrap();
    driving.abort();
    tokio::task::block_in_place(|| {
        relay.settles();
        drop(relay);
    });
}

/// A server that takes no connection, because its queue is full.
struct Full {
    listener: std::net::TcpListener,
    _waiting: [socket2::Socket; 2],
}

impl Full {
    fn new() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        socket2::SockRef::from(&listener).listen(0).unwrap();
        let address = listener.local_addr().unwrap();
        let _waiting = [(); 2].map(|()| {
            let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
            let socket = socket.unwrap();
            socket.set_nonblocking(true).unwrap();
            let _ = socket.connect(&address.into());
            socket
        });
        Self { listener, _waiting }
    }

    /// A CONNECT to it.
    fn asked(&self) -> http::Request<()> {
        let mut request = asked("CONNECT", self.listener.local_addr().unwrap().to_string());
        *request.version_mut() = http::Version::HTTP_2;
        request
    }

    /// A relay that takes ten minutes to find out.
    fn relay(shown: &Shown) -> Relay {
        tokio::task::block_in_place(|| {
            Relay::with(|settings| {
                shown.settings(settings);
                settings.legs.get_mut("direct").unwrap().connect_timeout = Span::from_secs(600);
            })
        })
    }
}

fn is_connecting(relay: &Relay) -> bool {
    relay.status().connections.iter().any(|one| one.state == "connecting")
}

/// Too many of them end the connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn openings_for_streams_that_were_reset_end() {
    let (full, shown) = (Full::new(), Shown::new());
    let relay = Full::relay(&shown);
    let (mut client, driving) = http2_with(&shown, &relay, &h2::client::Builder::new()).await;
    let mut resets = 0;
    while std::future::poll_fn(|cx| client.poll_ready(cx)).await.is_ok() {
        let Ok((response, mut up)) = client.send_request(full.asked(), false) else { break };
        let begins = || is_connecting(&relay) || driving.is_finished();
        tokio::task::block_in_place(|| wait_for("the relay connects", begins));
        up.send_reset(h2::Reason::CANCEL);
        drop(response);
        tokio::task::block_in_place(|| wait_for("it connects no more", || !is_connecting(&relay)));
        resets += 1;
        assert!(resets <= 200, "the connection goes on");
    }
    assert!(resets >= 100, "{resets}");
    driving.abort();
    tokio::task::block_in_place(|| {
        relay.settles();
        drop(relay);
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_answer_before_the_end_of_an_upload_arrives() {
    let (shown, origin) = (Shown::new(), Origin::new());
    let relay = tokio::task::block_in_place(|| shown.relay());
    let (mut client, driving) = http2_with(&shown, &relay, &h2::client::Builder::new()).await;
    let request = asked("POST", format!("http://{}/", origin.name));
    let (response, mut up) = client.send_request(request, false).unwrap();
    up.send_data(vec![1; 16 << 20].into(), false).unwrap();
    tokio::task::block_in_place(|| {
        let mut server = origin.accept();
        server.head();
        server.send("HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig");
    });
    let mut response = response.await.unwrap();
    assert_eq!(response.status(), 413);
    let body = response.body_mut().data().await.unwrap().unwrap();
    assert_eq!(body, "big");
    driving.abort();
    tokio::task::block_in_place(|| drop(relay));
}

/// The next interim answer.
async fn interim(response: &mut h2::client::ResponseFuture) -> http::Response<()> {
    let next = std::future::poll_fn(|cx| response.poll_informational(cx));
    tokio::time::timeout(PATIENCE, next).await.unwrap().unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn interim_answers_are_passed_on_by_http_2() {
    const HINTS: usize = 300;
    let (shown, origin) = (Shown::new(), Origin::new());
    let relay = tokio::task::block_in_place(|| shown.relay());
    let (mut client, driving) = http2_with(&shown, &relay, &h2::client::Builder::new()).await;
    let mut request = asked("POST", format!("http://{}/", origin.name));
    request.headers_mut().insert("expect", "100-continue".parse().unwrap());
    request.headers_mut().insert("content-length", 4_u32.into());
    let (mut response, mut up) = client.send_request(request, false).unwrap();
    let mut server = tokio::task::block_in_place(|| {
        let mut server = origin.accept();
        assert_eq!(field(&server.head(), "expect"), Some("100-continue"));
        server.send("HTTP/1.1 100 Continue\r\n\r\n");
        server
    });
    assert_eq!(interim(&mut response).await.status(), 100);
    up.send_data("body".into(), true).unwrap();
    tokio::task::block_in_place(|| {
        assert_eq!(server.exactly(4), b"body");
        let hint = |nth: usize| format!("HTTP/1.1 103 Early Hints\r\nLink: </{nth}>\r\n\r\n");
        server.send((0..HINTS).map(hint).collect::<String>() + &ok("done"));
    });
    for nth in 0..HINTS {
        let hint = interim(&mut response).await;
        assert_eq!(hint.status(), 103);
        assert_eq!(hint.headers()["link"], format!("</{nth}>"));
    }
    let mut response = response.await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.body_mut().data().await.unwrap().unwrap(), "done");
    driving.abort();
    tokio::task::block_in_place(|| drop(relay));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_upload_that_nobody_takes_stalls_no_other() {
    let (shown, [stuck, other]) = (Shown::new(), [Origin::new(), Origin::new()]);
    let relay = tokio::task::block_in_place(|| shown.relay());
    let (mut client, driving) = http2_with(&shown, &relay, &h2::client::Builder::new()).await;
    let (_down, mut up, _server) = tunnel(&mut client, &stuck).await;
    // more than the kernel's buffers take
    up.send_data(vec![1; 64 << 20].into(), false).unwrap();
    let moved = || relay.status().connections.iter().map(|one| one.bytes_up).sum::<u64>();
    let mut before = u64::MAX;
    while before != moved() {
        before = moved();
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    }
    let (_other_down, mut up, mut server) = tunnel(&mut client, &other).await;
    up.send_data(vec![2; 500_000].into(), false).unwrap();
    let mut bytes = vec![0; 500_000];
    tokio::task::block_in_place(|| server.read_exact(&mut bytes).unwrap());
    assert!(bytes == vec![2; 500_000]);
    driving.abort();
    tokio::task::block_in_place(|| drop(relay));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn answers_that_the_client_does_not_take_count_as_memory() {
    let (shown, origin) = (Shown::new(), Origin::new());
    let relay = tokio::task::block_in_place(|| shown.relay());
    let mut builder = h2::client::Builder::new();
    let (mut client, driving) = http2_with(&shown, &relay, builder.initial_window_size(0)).await;
    let sessions = || {
        let status = tokio::task::block_in_place(|| relay.status());
        status.budgets.iter().find(|budget| budget.name == "sessions").unwrap().used
    };
    let mut tunnels = Vec::new();
    for _ in 0..8 {
        tunnels.push(tunnel(&mut client, &origin).await);
    }
    // heads of answers are given back just after they are sent
    let mut before = sessions();
    for _ in 0..20 {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        before = before.min(sessions());
    }
    for (_, _, server) in &mut tunnels {
        server.write_all(&[b'a'; 100_000]).unwrap();
    }
    tokio::task::block_in_place(|| {
        // what is read of a pipe at a time
        wait_for("what waits counts", || sessions() >= before + 8 * 32 * 1024);
    });
    driving.abort();
    drop((tunnels, client));
    tokio::task::block_in_place(|| wait_for("it is given back", || sessions() == 0));
    tokio::task::block_in_place(|| drop(relay));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn answers_need_no_more_memory_while_half_of_it_is_used() {
    let (shown, origin) = (Shown::new(), Origin::new());
    let relay = tokio::task::block_in_place(|| {
        Relay::with(|settings| {
            shown.settings(settings);
            settings.budgets.sessions = Bytes::mib(2);
        })
    });
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(16 << 10).initial_connection_window_size(1 << 20);
    let (mut client, driving) = http2_with(&shown, &relay, &builder).await;
    let sessions = || {
        let status = tokio::task::block_in_place(|| relay.status());
        let budget = status.budgets.iter().find(|budget| budget.name == "sessions").unwrap();
        (budget.used, budget.peak)
    };
    let mut tunnels = Vec::new();
    for _ in 0..12 {
        tunnels.push(tunnel(&mut client, &origin).await);
    }
    let (used, peak) = sessions();
    assert!(used > 1 << 20, "{used} bytes");
    for (_, _, server) in &mut tunnels {
        let bytes: Vec<u8> = (0..EACH).map(byte).collect();
        let mut server = server.try_clone().unwrap();
        std::thread::spawn(move || {
            server.write_all(&bytes).unwrap();
            server.shutdown(std::net::Shutdown::Write).unwrap();
        });
    }
    for (response, _, _) in &mut tunnels {
        read(response.body_mut(), EACH).await;
    }
    assert_eq!(sessions().1, peak);
    driving.abort();
    drop((tunnels, client));
    tokio::task::block_in_place(|| wait_for("it is given back", || sessions().0 == 0));
    tokio::task::block_in_place(|| drop(relay));
}

/// The relay's own page.
fn own() -> http::Request<()> {
    asked("GET", "https://localhost/".to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn streams_that_find_no_memory_are_told_when_to_try_again() {
    let shown = Shown::new();
    let relay = tokio::task::block_in_place(|| {
        Relay::with(|settings| {
            shown.settings(settings);
            // TLS and a head take 128, a window and a stream 144 more
            settings.budgets.sessions = Bytes::kib(240);
        })
    });
    let (mut client, driving) = http2(&shown, &relay).await;
    let response = client.send_request(own(), true).unwrap().0.await.unwrap();
    assert_eq!(response.status(), 503);
    assert_eq!(response.headers()["retry-after"], "1");
    driving.abort();
    tokio::task::block_in_place(|| drop(relay));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn pages_of_the_relay_itself_end_a_connection_and_no_tunnel_in_it() {
    let (shown, origin) = (Shown::new(), Origin::new());
    let relay = tokio::task::block_in_place(|| shown.relay());
    let (mut client, driving) = http2(&shown, &relay).await;
    let (mut opened, mut up, mut server) = tunnel(&mut client, &origin).await;
    // requests that are forwarded meanwhile let it go on
    for _ in 0..3 {
        for _ in 0..20 {
            let (page, _) = client.send_request(own(), true).unwrap();
            assert_eq!(page.await.unwrap().status(), 200);
        }
        let request = asked("GET", format!("http://{}/", origin.name));
        let (response, _) = client.send_request(request, true).unwrap();
        tokio::task::block_in_place(|| {
            let mut server = origin.accept();
            server.head();
            server.send("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\n1");
        });
        assert_eq!(response.await.unwrap().status(), 200);
    }
    let mut pages = 0;
    while std::future::poll_fn(|cx| client.poll_ready(cx)).await.is_ok() {
        let Ok((page, _)) = client.send_request(own(), true) else { break };
        let Ok(page) = page.await else { break };
        assert_eq!(page.status(), 200);
        pages += 1;
        assert!(pages < 64, "the connection goes on");
    }
    assert!(pages >= 32, "{pages}");
    // what was under way ends as it would
    up.send_data("up".into(), true).unwrap();
    tokio::task::block_in_place(|| {
        let mut sent = Vec::new();
        server.read_to_end(&mut sent).unwrap();
        assert_eq!(sent, b"up");
        server.write_all(&(0..EACH).map(byte).collect::<Vec<u8>>()).unwrap();
        drop(server);
    });
    read(opened.body_mut(), EACH).await;
    driving.await.unwrap();
    tokio::task::block_in_place(|| {
        relay.settles();
        drop(relay);
    });
}
