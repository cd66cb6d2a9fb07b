//! Frames without end that end an HTTP/2 connection within TLS.
use crate::common::wire::Relay;
use crate::shares::preface;
use crate::tls::{Client, Shown};
use std::io::Read as _;

const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const ACK: u8 = 1;
/// HEADERS that are all of a request.
const WHOLE: u8 = 5;
const ENHANCE_YOUR_CALM: u32 = 11;

/// A frame (RFC 9113 §4.1).
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// What a client asks last that wants to go on.
const LAST: &[u8; 8] = b"the last";

/// Sends these frames, and reads until the relay ends the connection: by which error. `None`: it answers the last ping.
fn ends(client: &mut Client, frames: &[u8]) -> Option<u32> {
    client.send([&preface()[..], frames].concat());
    loop {
        let mut head = [0; 9];
        client.0.read_exact(&mut head).unwrap();
        let [a, b, c, kind, flags, ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        client.0.read_exact(&mut payload).unwrap();
        match kind {
            GOAWAY => {
                let code = u32::from_be_bytes(payload[4..8].try_into().unwrap());
                if code != 0 {
                    return Some(code);
                }
            }
            PING if flags == ACK && payload == LAST => return None,
            _ => {}
        }
    }
}

fn raw(shown: &Shown, relay: &Relay) -> Client {
    shown.within(std::net::TcpStream::connect(relay.address).unwrap(), b"h2")
}

/// A client that does not care for GOAWAY.
#[test]
fn requests_for_the_relay_itself_without_end_are_cut() {
    let shown = Shown::new();
    let relay = shown.relay();
    let text = |text: &str| [&[text.len() as u8][..], text.as_bytes()].concat();
    let fields =
        [(":method", "GET"), (":scheme", "https"), (":authority", "localhost"), (":path", "/")];
    let head = |method: &str| {
        let field = |(name, value): (&str, &str)| {
            let value = if name == ":method" { method } else { value };
            // no table keeps it (RFC 7541 §6.2.2)
            [vec![0], text(name), text(value)].concat()
        };
        fields.into_iter().flat_map(field).collect::<Vec<u8>>()
    };
    // a page, and what no session reads
    for method in ["GET", &"M".repeat(65)] {
        let one = |nth: u32| frame(HEADERS, WHOLE, 1 + 2 * nth, &head(method));
        let requests: Vec<u8> = (0..100).flat_map(one).collect();
        let code = ends(&mut raw(&shown, &relay), &requests);
        assert_eq!(code, Some(ENHANCE_YOUR_CALM), "{method}");
    }
    relay.settles();
}

#[test]
fn settings_and_pings_without_end_end_the_connection() {
    let shown = Shown::new();
    let relay = shown.relay();
    let last = frame(PING, 0, 0, LAST);
    // windows of streams that change (RFC 9113 §6.5.2)
    let settings = |nth: u32| frame(SETTINGS, 0, 0, &[&[0, 4][..], &nth.to_be_bytes()].concat());
    let ping = |nth: u32| frame(PING, 0, 0, &[nth.to_be_bytes(); 2].concat());
    let many =
        |count: u32, one: &dyn Fn(u32) -> Vec<u8>| (0..count).flat_map(one).collect::<Vec<u8>>();
    for (few, too_many) in
        [(many(10, &settings), many(200, &settings)), (many(10, &ping), many(500, &ping))]
    {
        assert_eq!(ends(&mut raw(&shown, &relay), &[&few[..], &last].concat()), None);
        let code = ends(&mut raw(&shown, &relay), &too_many);
        assert_eq!(code, Some(ENHANCE_YOUR_CALM));
    }
    relay.settles();
}
