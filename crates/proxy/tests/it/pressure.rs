//! What happens when an end does not read, does not speak, or when a budget is spent.
use crate::common::ends::{End, read_to_end};
use crate::common::{
    LONG, Row, TunnelProtocol, budgets, leg, listener, patient, pattern, read_head, reset_on_close,
    settings, wait_until,
};
use ekiden_model::units::Bytes;
use ekiden_proxy::settings::{CopyMode, Settings};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::LazyLock;
use std::time::Duration;

const BOTH: [CopyMode; 2] = [CopyMode::Splice, CopyMode::Copy];
/// Silence after which a writer is taken to be blocked: wrong, it would only block a little less.
const BLOCKED: Duration = Duration::from_millis(300);

/// Both ends of a tunnel.
fn tunnel(front: SocketAddr, listener: &TcpListener) -> (TcpStream, TcpStream) {
    let client = TunnelProtocol::Connect.open(front, listener.local_addr().unwrap());
    (client, patient(listener.accept().unwrap().0))
}

/// Writes the flood until it is all taken or nobody takes more; how many were taken.
fn fill(stream: &mut TcpStream) -> usize {
    stream.set_write_timeout(Some(BLOCKED)).unwrap();
    let mut taken = 0;
    while taken < FLOOD.len() {
        match stream.write(&FLOOD[taken..]) {
            Ok(n) => taken += n,
            // refused: what the other end has got tells the rest
            Err(_) => break,
        }
    }
    stream.set_write_timeout(Some(LONG)).unwrap();
    taken
}

/// More than all the buffers on the way hold.
static FLOOD: LazyLock<Vec<u8>> = LazyLock::new(|| pattern(7, 40 << 20));

fn row(movement: CopyMode, change: impl FnOnce(&mut Settings)) -> Row {
    let mut settings = settings(movement);
    change(&mut settings);
    Row::single(settings)
}

/// The state of the only connection.
fn state(row: &Row) -> String {
    let status = row.front_server().status();
    status.connections.first().map_or_else(String::new, |connection| connection.state.clone())
}

#[test]
fn waits_for_a_stopped_reader_in_little_memory() {
    for movement in BOTH {
        let row = row(movement, |_| {});
        let (listener, _) = listener();
        let (mut client, mut server) = tunnel(row.front(), &listener);
        let taken = fill(&mut client);
        assert!(taken < FLOOD.len(), "nothing held the writer back");
        assert!(row.budget("memory").used <= 64 << 10, "{:?}", row.budget("memory"));
        assert!(row.budget("pipes").used <= 1, "{:?}", row.budget("pipes"));
        let got = std::thread::scope(|scope| {
            scope.spawn(|| {
                client.write_all(&FLOOD[taken..]).unwrap();
                client.shutdown(Shutdown::Write).unwrap();
            });
            let mut got = Vec::new();
            assert_eq!(read_to_end(&mut server, &mut got), End::Eof);
            got
        });
        assert!(got == *FLOOD, "{movement:?}: other bytes");
        drop(server);
        row.wait_until_empty();
    }
}

#[test]
fn a_body_waits_for_a_stopped_reader_in_little_memory() {
    for movement in BOTH {
        let row = row(movement, |_| {});
        let (listener, to) = listener();
        let mut client = patient(TcpStream::connect(row.front()).unwrap());
        write!(client, "GET http://{to}/ HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n\r\n")
            .unwrap();
        let mut server = patient(listener.accept().unwrap().0);
        read_head(&mut server);
        write!(server, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", FLOOD.len()).unwrap();
        let taken = fill(&mut server);
        assert!(taken < FLOOD.len(), "nothing held the writer back");
        assert!(row.budget("memory").used <= 256 << 10, "{:?}", row.budget("memory"));
        let got = std::thread::scope(|scope| {
            scope.spawn(|| server.write_all(&FLOOD[taken..]).unwrap());
            read_head(&mut client);
            let mut got = Vec::new();
            assert_eq!(read_to_end(&mut client, &mut got), End::Eof);
            got
        });
        assert!(got == *FLOOD, "{movement:?}: other bytes");
        drop((client, server));
        row.wait_until_empty();
    }
}

/// The relay cannot read on, and so is not told by reading.
#[test]
fn a_reset_is_noticed_while_the_other_end_is_blocked() {
    for movement in BOTH {
        for client_breaks in [true, false] {
            let row = row(movement, |_| {});
            let (listener, _) = listener();
            let (client, server) = tunnel(row.front(), &listener);
            let (mut breaks, mut other) =
                if client_breaks { (client, server) } else { (server, client) };
            let taken = fill(&mut breaks);
            reset_on_close(&breaks);
            drop(breaks);
            wait_until(|| state(&row) == "closing", || format!("it is \"{}\"", state(&row)));
            let mut got = Vec::new();
            assert_eq!(read_to_end(&mut other, &mut got), End::Reset);
            assert!(FLOOD[..taken].starts_with(&got) && !got.is_empty(), "not a prefix");
            row.wait_until_empty();
        }
    }
}

#[test]
fn notices_a_reset_after_a_half_close_without_traffic() {
    for movement in BOTH {
        for client_breaks in [true, false] {
            let row = row(movement, |_| {});
            let (listener, _) = listener();
            let (client, server) = tunnel(row.front(), &listener);
            let (breaks, mut other) =
                if client_breaks { (client, server) } else { (server, client) };
            breaks.shutdown(Shutdown::Write).unwrap();
            assert_eq!(read_to_end(&mut other, &mut Vec::new()), End::Eof);
            wait_until(|| state(&row) == "half-closed", || format!("it is \"{}\"", state(&row)));
            reset_on_close(&breaks);
            drop(breaks);
            row.wait_until_empty();
            let broken = || other.take_error().unwrap();
            let mut error = None;
            wait_until(
                || {
                    error = error.take().or_else(broken);
                    error.is_some()
                },
                || "the reset did not come through".to_owned(),
            );
        }
    }
}

/// The relay may be told of it before it has told the client that the tunnel is there.
#[test]
fn a_server_that_resets_at_once_is_a_refusal_or_a_reset() {
    let row = row(CopyMode::Auto, |_| {});
    for _ in 0..100 {
        let (listener, address) = listener();
        let mut client = crate::common::connect(row.front());
        write!(client, "CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
        let server = listener.accept().unwrap().0;
        reset_on_close(&server);
        drop(server);
        let mut got = Vec::new();
        let end = read_to_end(&mut client, &mut got);
        let got = String::from_utf8(got).unwrap();
        match end {
            End::Reset => assert!(got.starts_with("HTTP/1.1 200"), "{got}"),
            End::Eof => assert!(got.starts_with("HTTP/1.1 502"), "{got}"),
            End::Other(kind) => panic!("{kind}: {got}"),
        }
    }
    row.wait_until_empty();
}

#[test]
fn silence_ends_a_tunnel_for_both() {
    let brief = Duration::from_millis(400);
    for half_closed in [false, true] {
        let row = row(CopyMode::Auto, |settings| {
            let (idle, half) = if half_closed { (LONG * 9, brief) } else { (brief, LONG * 9) };
            settings.legs.insert("direct".to_owned(), leg(idle, half));
        });
        let (listener, _) = listener();
        let (mut client, mut server) = tunnel(row.front(), &listener);
        client.write_all(b"last").unwrap();
        if half_closed {
            client.shutdown(Shutdown::Write).unwrap();
        }
        let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
        assert_eq!(read_to_end(&mut server, &mut to_server), End::Eof);
        assert_eq!(read_to_end(&mut client, &mut to_client), End::Eof);
        assert_eq!((&to_server[..], &to_client[..]), (&b"last"[..], &b""[..]));
        row.wait_until_empty();
    }
}

/// An end of stream would say that what was not delivered was never sent.
#[test]
fn silence_with_bytes_undelivered_ends_in_a_reset() {
    for movement in BOTH {
        LazyLock::force(&FLOOD);
        let row = row(movement, |settings| {
            let leg = leg(Duration::from_secs(1), Duration::from_secs(1));
            settings.legs.insert("direct".to_owned(), leg);
        });
        let (listener, _) = listener();
        let (mut client, mut server) = tunnel(row.front(), &listener);
        let taken = fill(&mut client);
        row.wait_until_empty();
        let mut got = Vec::new();
        assert_eq!(read_to_end(&mut server, &mut got), End::Reset);
        assert!(FLOOD[..taken].starts_with(&got), "not a prefix");
        assert!(client.write_all(b"more").is_err());
    }
}

/// Tunnels whose servers do not read hold all there is; others must not wait for them.
fn others_go_on(row: &Row, stalled: usize) {
    let (listener, _) = listener();
    let mut stuck: Vec<_> = (0..stalled).map(|_| tunnel(row.front(), &listener)).collect();
    let mut taken = Vec::new();
    for (client, _) in &mut stuck {
        taken.push(fill(client));
    }
    let (client, server) = tunnel(row.front(), &listener);
    let part = &FLOOD[..4 << 20];
    std::thread::scope(|scope| {
        for stream in [&client, &server] {
            let mut stream = stream;
            scope.spawn(move || {
                stream.write_all(part).unwrap();
                stream.shutdown(Shutdown::Write).unwrap();
            });
        }
        for stream in [&client, &server] {
            let mut stream = stream;
            scope.spawn(move || {
                let mut got = Vec::new();
                assert_eq!(read_to_end(&mut stream, &mut got), End::Eof);
                assert!(got == part, "other bytes");
            });
        }
    });
    for ((client, mut server), taken) in stuck.into_iter().zip(taken) {
        client.shutdown(Shutdown::Write).unwrap();
        let mut got = vec![0; taken];
        server.read_exact(&mut got).unwrap();
        assert!(got == FLOOD[..taken], "other bytes");
        assert_eq!(server.read(&mut [0]).unwrap(), 0);
    }
    drop((client, server));
    row.wait_until_empty();
}

#[test]
fn spent_memory_stops_no_connection() {
    let limit = 128 << 10;
    let row = row(CopyMode::Copy, |settings| {
        settings.budgets = budgets(|b| b.memory = Bytes::new(limit));
    });
    others_go_on(&row, 6);
    let memory = row.budget("memory");
    assert!(memory.peak <= limit && memory.peak > 0, "{memory:?}");
}

#[test]
fn copies_when_pipes_are_spent() {
    for pipes in [0, 1] {
        let row = row(CopyMode::Splice, |settings| {
            settings.budgets = budgets(|b| b.pipes = pipes);
        });
        others_go_on(&row, 3);
        assert!(row.budget("pipes").peak <= u64::from(pipes));
    }
}

#[test]
fn connections_beyond_the_budget_wait_until_one_ends() {
    let row = row(CopyMode::Auto, |settings| {
        settings.budgets = budgets(|b| b.connections = 2);
    });
    let (listener, address) = listener();
    let first = tunnel(row.front(), &listener);
    let _second = tunnel(row.front(), &listener);
    let front = row.front();
    let mut waiting = crate::common::connect(front);
    write!(waiting, "CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
    waiting.set_read_timeout(Some(BLOCKED)).unwrap();
    assert_eq!(waiting.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(row.front_server().status().connections.len(), 2);
    drop(first);
    waiting.set_read_timeout(Some(LONG)).unwrap();
    let server = listener.accept().unwrap().0;
    assert!(read_head(&mut waiting).starts_with("HTTP/1.1 200"));
    assert_eq!(row.budget("connections").peak, 2);
    drop((waiting, server));
}

#[test]
fn a_stop_resets_cut_connections() {
    let mut row = row(CopyMode::Auto, |_| {});
    let (listener, _) = listener();
    let (mut client, mut server) = tunnel(row.front(), &listener);
    client.write_all(b"half a").unwrap();
    let mut got = [0; 6];
    server.read_exact(&mut got).unwrap();
    let stopped = row.stop_front(Duration::from_millis(50));
    assert_eq!((stopped.finished, stopped.cut), (0, 1));
    assert_eq!(read_to_end(&mut server, &mut Vec::new()), End::Reset);
    assert_eq!(read_to_end(&mut client, &mut Vec::new()), End::Reset);
}
