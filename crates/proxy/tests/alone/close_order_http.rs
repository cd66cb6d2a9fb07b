//! Every order in which a forwarded HTTP exchange can end.
//!
//! A relay of HTTP ends messages and not only connections, so the wire is no oracle for all of it: what
//! is complete must arrive complete, and what is cut must never look complete.
use crate::common::ends::{End, read_to_end};
use crate::common::{
    LONG, Row, connect, descriptors, listener, patient, pattern, read_head, reset_on_close,
    settings, wait_until,
};
use ekiden_proxy::settings::{CopyMode, UpstreamProtocol};
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::LazyLock;

static BODY: LazyLock<Vec<u8>> = LazyLock::new(|| pattern(5, 300_000));

/// How a response tells its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    Length,
    Chunks,
    Close,
}

const FRAMINGS: [Framing; 3] = [Framing::Length, Framing::Chunks, Framing::Close];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Case {
    /// GET, then the client's half-close; the response comes after it.
    ClientHalfBeforeResponse(Framing),
    /// The same while the response is coming.
    ClientHalfInResponse(Framing),
    ClientRstInResponse(Framing),
    ClientFinInUpload,
    ClientRstInUpload,
    ClientFinAfter,
    ClientRstAfter,
    ServerFinBeforeResponse,
    ServerRstBeforeResponse,
    ServerFinInResponse(Framing),
    ServerRstInResponse(Framing),
    /// The response, then `shutdown(WR)` while the request's body is still coming.
    ServerHalfInUpload,
    ServerFinAfter,
    ServerRstAfter,
}
use Case::*;

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for with in [
        ClientHalfBeforeResponse,
        ClientHalfInResponse,
        ClientRstInResponse,
        ServerFinInResponse,
        ServerRstInResponse,
    ] {
        cases.extend(FRAMINGS.map(with));
    }
    cases.extend([
        ClientFinInUpload,
        ClientRstInUpload,
        ClientFinAfter,
        ClientRstAfter,
        ServerFinBeforeResponse,
        ServerRstBeforeResponse,
        ServerHalfInUpload,
        ServerFinAfter,
        ServerRstAfter,
    ]);
    cases
}

fn get(stream: &mut TcpStream, to: SocketAddr) {
    write!(stream, "GET http://{to}/ HTTP/1.1\r\nHost: {to}\r\n\r\n").unwrap();
}

fn post(stream: &mut TcpStream, to: SocketAddr) {
    let length = BODY.len();
    write!(stream, "POST http://{to}/ HTTP/1.1\r\nHost: {to}\r\nContent-Length: {length}\r\n\r\n")
        .unwrap();
}

/// The response's head, and the first half of its body.
fn respond_half(stream: &mut TcpStream, framing: Framing) {
    let length = BODY.len();
    match framing {
        Framing::Length => write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n"),
        Framing::Chunks => {
            write!(stream, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{length:x}\r\n")
        }
        Framing::Close => write!(stream, "HTTP/1.1 200 OK\r\n\r\n"),
    }
    .unwrap();
    stream.write_all(&BODY[..length / 2]).unwrap();
}

/// The other half and the end.
fn respond_rest(stream: &mut TcpStream, framing: Framing) {
    stream.write_all(&BODY[BODY.len() / 2..]).unwrap();
    if framing == Framing::Chunks {
        stream.write_all(b"\r\n0\r\n\r\n").unwrap();
    }
}

/// Without the framing of its one chunk, if it has that.
fn unframed(framing: Framing, mut got: Vec<u8>) -> Vec<u8> {
    if framing == Framing::Chunks {
        let line = format!("{:x}\r\n", BODY.len()).into_bytes();
        assert!(got.starts_with(&line));
        got.drain(..line.len());
        if got.ends_with(b"\r\n0\r\n\r\n") {
            got.truncate(got.len() - 7);
        }
    }
    got
}

/// Reads half of the response's body: so much has surely arrived.
fn read_half(stream: &mut TcpStream, framing: Framing) -> Vec<u8> {
    assert!(read_head(stream).starts_with("HTTP/1.1 200"));
    let line = if framing == Framing::Chunks { format!("{:x}\r\n", BODY.len()).len() } else { 0 };
    let mut got = vec![0; BODY.len() / 2 + line];
    stream.read_exact(&mut got).unwrap();
    got
}

/// Plays one case, asserts what must hold, and says what was seen.
fn play(case: Case, front: SocketAddr) -> String {
    let (listener, address) = listener();
    let mut client = connect(front);
    let accept = || patient(listener.accept().unwrap().0);
    let mut rest = Vec::new();
    match case {
        ClientHalfBeforeResponse(framing) => {
            get(&mut client, address);
            let mut server = accept();
            read_head(&mut server);
            client.shutdown(Shutdown::Write).unwrap();
            respond_half(&mut server, framing);
            respond_rest(&mut server, framing);
            drop(server);
            let mut got = read_half(&mut client, framing);
            assert_eq!(read_to_end(&mut client, &mut got), End::Eof);
            assert!(unframed(framing, got) == *BODY, "other bytes");
            "the whole response".to_owned()
        }
        ClientHalfInResponse(framing) => {
            get(&mut client, address);
            let mut server = accept();
            read_head(&mut server);
            respond_half(&mut server, framing);
            let mut got = read_half(&mut client, framing);
            client.shutdown(Shutdown::Write).unwrap();
            respond_rest(&mut server, framing);
            drop(server);
            assert_eq!(read_to_end(&mut client, &mut got), End::Eof);
            assert!(unframed(framing, got) == *BODY, "other bytes");
            "the whole response".to_owned()
        }
        ClientRstInResponse(framing) => {
            get(&mut client, address);
            let mut server = accept();
            read_head(&mut server);
            respond_half(&mut server, framing);
            read_half(&mut client, framing);
            reset_on_close(&client);
            drop(client);
            assert_eq!(read_to_end(&mut server, &mut rest), End::Reset);
            "server: Reset".to_owned()
        }
        ClientFinInUpload | ClientRstInUpload => {
            post(&mut client, address);
            let half = BODY.len() / 2;
            client.write_all(&BODY[..half]).unwrap();
            let mut server = accept();
            read_head(&mut server);
            let mut got = vec![0; half];
            server.read_exact(&mut got).unwrap();
            assert!(got == BODY[..half], "other bytes");
            if case == ClientRstInUpload {
                reset_on_close(&client);
            }
            drop(client);
            let end = read_to_end(&mut server, &mut rest);
            assert!(rest.is_empty(), "bytes that nobody sent");
            format!("server: half of the request, {end:?}")
        }
        ClientFinAfter | ClientRstAfter => {
            get(&mut client, address);
            let mut server = accept();
            read_head(&mut server);
            respond_half(&mut server, Framing::Length);
            respond_rest(&mut server, Framing::Length);
            let mut got = read_half(&mut client, Framing::Length);
            let mut second = vec![0; BODY.len() - got.len()];
            client.read_exact(&mut second).unwrap();
            got.extend(second);
            assert!(got == *BODY, "other bytes");
            if case == ClientRstAfter {
                reset_on_close(&client);
            }
            drop(client);
            assert_eq!(read_to_end(&mut server, &mut rest), End::Eof);
            "server: Eof".to_owned()
        }
        ServerFinBeforeResponse | ServerRstBeforeResponse => {
            get(&mut client, address);
            let mut server = accept();
            read_head(&mut server);
            if case == ServerRstBeforeResponse {
                reset_on_close(&server);
            }
            drop(server);
            // a complete answer, after which the connection may be kept
            let head = read_head(&mut client);
            let status = head.split(' ').nth(1).unwrap();
            format!("client: {status}")
        }
        ServerFinInResponse(framing) | ServerRstInResponse(framing) => {
            get(&mut client, address);
            let mut server = accept();
            read_head(&mut server);
            respond_half(&mut server, framing);
            let mut got = read_half(&mut client, framing);
            if case == ServerRstInResponse(framing) {
                reset_on_close(&server);
            }
            drop(server);
            let end = read_to_end(&mut client, &mut got);
            // the end of the connection is the end of this response, and a reset is not
            let clean = case == ServerFinInResponse(Framing::Close);
            assert_eq!(end, if clean { End::Eof } else { End::Reset }, "{case:?}");
            assert!(unframed(framing, got) == BODY[..BODY.len() / 2], "other bytes");
            format!("client: half of the response, {end:?}")
        }
        ServerHalfInUpload => {
            post(&mut client, address);
            client.write_all(&BODY[..BODY.len() / 2]).unwrap();
            let mut server = accept();
            read_head(&mut server);
            respond_half(&mut server, Framing::Close);
            respond_rest(&mut server, Framing::Close);
            server.shutdown(Shutdown::Write).unwrap();
            let mut got = read_half(&mut client, Framing::Close);
            assert_eq!(read_to_end(&mut client, &mut got), End::Eof);
            assert!(got == *BODY, "other bytes");
            drop(client);
            "the whole response".to_owned()
        }
        ServerFinAfter | ServerRstAfter => {
            for nth in 0..2 {
                get(&mut client, address);
                let mut server = accept();
                read_head(&mut server);
                respond_half(&mut server, Framing::Length);
                respond_rest(&mut server, Framing::Length);
                let mut got = read_half(&mut client, Framing::Length);
                let mut second = vec![0; BODY.len() - got.len()];
                client.read_exact(&mut second).unwrap();
                got.extend(second);
                assert!(got == *BODY, "other bytes in response {nth}");
                if case == ServerRstAfter {
                    reset_on_close(&server);
                }
            }
            "client: goes on with another request".to_owned()
        }
    }
}

#[test]
fn complete_bodies_arrive_and_cut_ones_never_look_complete() {
    let _alone = crate::alone();
    drop(Row::single(settings(CopyMode::Auto)));
    let mut columns: Vec<(String, Vec<Result<String, ()>>)> = Vec::new();
    for (name, movement) in [("splice", CopyMode::Splice), ("copy", CopyMode::Copy)] {
        for (n, protocol) in [
            (1, UpstreamProtocol::Http),
            (3, UpstreamProtocol::Http),
            (3, UpstreamProtocol::Socks5),
            (3, UpstreamProtocol::Https),
        ] {
            let before = descriptors();
            let mut settings = settings(movement);
            // a connection that is kept ends soon, so that its end can be waited for
            settings.pool.idle = ekiden_model::units::Span::from_millis(50);
            let row = Row::start(n, protocol, &settings);
            let front = row.front();
            let cell = |case| std::panic::catch_unwind(|| play(case, front)).map_err(drop);
            let seen = cases().into_iter().map(cell).collect();
            row.wait_until_empty();
            drop(row);
            wait_until(|| descriptors() <= before, || format!("descriptors left after {LONG:?}"));
            columns.push((format!("{name}, {n} by {protocol:?}"), seen));
        }
    }
    let mut table =
        String::from("The first relay alone is said; the others, where they differ.\n\n");
    for (nth, case) in cases().into_iter().enumerate() {
        let first = columns[0].1[nth].as_deref().unwrap_or("FAILED");
        write!(table, "{:<36}| {first}", format!("{case:?}")).unwrap();
        for (name, seen) in &columns[1..] {
            let seen = seen[nth].as_deref().unwrap_or("FAILED");
            if seen != first {
                write!(table, " | {name}: {seen}").unwrap();
            }
        }
        table.push('\n');
    }
    println!("{table}{} cells", cases().len() * columns.len());
    assert!(!table.contains("FAILED"), "{table}");
    insta::assert_snapshot!(table);
}
