//! What a hostile origin answers: well-formed responses with tricks in their framing, and what a client reads of them
//! behind each program.

use super::corpus::{CHUNK_ENDS, CODINGS, LAST, LENGTHS, LINE_ENDS, SIZES};
use super::recorder::Received;
use super::tricks::{Case, HOST, chunks, edit, pick};
use ekiden_model::rng::Rng;

/// What an origin sends to the case's first request.
#[derive(Debug, Clone)]
pub(super) struct Script {
    pub(super) bytes: Vec<u8>,
    /// The connection ends with them.
    pub(super) closes: bool,
}

const STATUS_LINES: &[&str] = &[
    "HTTP/1.0 200 OK",
    "HTTP/1.1 200",
    "HTTP/1.1 200 ",
    "HTTP/1.1  200 OK",
    "HTTP/1.1 204 No Content",
    "HTTP/1.1 304 Not Modified",
    "HTTP/1.1 404 Not Found",
    "HTTP/1.1 101 Switching Protocols",
    "HTTP/1.1 100 Continue",
    "HTTP/1.1 103 Early Hints",
    "HTTP/1.1 199 -",
    "HTTP/1.1 099 -",
    "HTTP/1.1 600 -",
    "HTTP/1.1 20 OK",
    "HTTP/1.1 2000 OK",
    "HTTP/1.1 +200 OK",
    "HTTP/1.1 2x0 OK",
    "HTTP/2 200 OK",
    "HTTP/1.2 200 OK",
    "HTTP/0.9 200 OK",
    "http/1.1 200 OK",
    "ICY 200 OK",
    "HTTP/1.1 200 OK\u{e9}",
    "HTTP/1.1\t200\tOK",
    " HTTP/1.1 200 OK",
    "HTTP/1.1 205 Reset Content",
    "HTTP/1.1 206 Partial Content",
    "200 OK",
    "",
];
const FIELDS: &[&str] = &[
    "Connection: close",
    "Connection: keep-alive",
    "Upgrade: websocket",
    "Set-Cookie: a=b",
    "X",
    ": y",
    "X : y",
    "X: \0",
    "X: y\r\n z",
    "Trailer: Content-Length",
    "Content-Encoding: gzip",
    "Connection: Content-Length",
    "Connection: Transfer-Encoding",
    "Location: http://o.test/",
    "X: \u{e9}",
    "Content-Type: multipart/byteranges; boundary=x",
    "Vary: *",
    "Via: 1.1 x",
    "X(: y",
];
/// Before the response, and behind it.
const AROUND: &[&str] = &[
    "HTTP/1.1 100 Continue\r\n\r\n",
    "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n",
    "HTTP/1.1 100 Continue\r\nContent-Length: 5\r\n\r\n",
    "\r\n",
    "\n",
    " ",
    "HTTP/1.1 101 -\r\n\r\n",
    "x\r\n",
    "HTTP/1.1 200 OK\r\nX-Origin: second\r\nContent-Length: 6\r\n\r\nsecond",
    "0\r\n\r\n",
];

/// The streams of client and origin of that number.
pub(super) fn case(seed: u64, number: u64) -> (Case, Script) {
    let mut rng = Rng::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number ^ 1 << 63);
    let rng = &mut rng;
    let method = if rng.below(6) == 0 { "HEAD" } else { "GET" };
    let (mut tricks, mut bytes) = (Vec::new(), Vec::new());
    let content: &[u8] = pick(
        rng,
        &[
            &b"hello"[..],
            b"",
            b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\ninside",
            b"0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\ninside",
        ],
    );
    let mut status = "HTTP/1.1 200 OK";
    let (mut fields, mut body) = match rng.below(3) {
        0 => (Vec::new(), content.to_vec()),
        1 => (vec![format!("Content-Length: {}", content.len())], content.to_vec()),
        _ => (
            vec!["Transfer-Encoding: chunked".to_owned()],
            chunks(content, "{x}", "\r\n", "0\r\n\r\n"),
        ),
    };
    let lengths = |text: &str, n: usize| {
        let text =
            text.replace("{n}", &n.to_string()).replace("{s}", &n.saturating_sub(1).to_string());
        text.replace("{l}", &(n + 7).to_string())
    };
    let mut line_end = None;
    for _ in 0..=rng.below(4) / 3 {
        tricks.push(match rng.below(9) {
            0 => {
                (fields, body) =
                    (vec![lengths(pick(rng, LENGTHS), content.len())], content.to_vec());
                "length"
            }
            1 => {
                body = chunks(content, "{x}", "\r\n", "0\r\n\r\n");
                fields = vec![lengths(pick(rng, CODINGS), body.len())];
                "coding"
            }
            2 => {
                body = chunks(content, "{x}", "\r\n", "0\r\n\r\n");
                fields = vec![
                    lengths(pick(rng, LENGTHS), body.len()),
                    lengths(pick(rng, CODINGS), body.len()),
                ];
                "length and coding"
            }
            3 => {
                let (size, end, last) = (pick(rng, SIZES), pick(rng, CHUNK_ENDS), pick(rng, LAST));
                body = match rng.below(3) {
                    0 => chunks(content, size, "\r\n", "0\r\n\r\n"),
                    1 => chunks(content, "{x}", end, "0\r\n\r\n"),
                    _ => chunks(content, "{x}", "\r\n", last),
                };
                fields = vec!["Transfer-Encoding: chunked".to_owned()];
                "chunks"
            }
            4 => {
                line_end = Some((rng.below(5) as usize, pick(rng, LINE_ENDS)));
                "line end"
            }
            5 => {
                status = pick(rng, STATUS_LINES);
                "status line"
            }
            6 => {
                fields.push(pick(rng, FIELDS).to_owned());
                "field"
            }
            7 => {
                bytes.extend(pick(rng, AROUND).as_bytes());
                "before"
            }
            _ => {
                body.extend(pick(rng, AROUND).as_bytes());
                "behind"
            }
        });
    }
    let lines =
        [status, "X-Origin: yes"].into_iter().chain(fields.iter().map(String::as_str)).chain([""]);
    for (number, line) in lines.enumerate() {
        bytes.extend(line.as_bytes());
        bytes.extend(
            line_end.filter(|(at, _)| *at == number).map_or("\r\n", |(_, end)| end).as_bytes(),
        );
    }
    bytes.extend(&body);
    if rng.below(4) == 0 {
        edit(rng, &mut bytes);
        tricks.push("edit");
    }
    let closes = rng.below(4) != 0;
    let request = |method: &str, path: &str, more: &str| {
        format!("{method} http://{HOST}/{number}/{path} HTTP/1.1\r\nHost: {HOST}\r\n{more}\r\n")
    };
    let asked = request(method, "0", "") + &request("GET", "last", "Connection: close\r\n");
    (Case { number, bytes: asked.into_bytes(), tricks }, Script { bytes, closes })
}

/// The responses of the origin in what a client received, by a strict reading; `ended` with the connection. A
/// program's own errors are none of them.
pub(super) fn read(mut bytes: &[u8], ended: bool, head_first: bool) -> Vec<Received> {
    let mut all = Vec::new();
    let mut head_only = head_first;
    while let Some(at) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
        let head = String::from_utf8_lossy(&bytes[..at]).into_owned();
        bytes = &bytes[at + 4..];
        let status = head.get(9..12).unwrap_or_default().to_owned();
        if status.starts_with('1') && status != "101" {
            continue;
        }
        let field = |name: &str| {
            let fields = head.split("\r\n").skip(1).filter_map(|line| line.split_once(':'));
            let mut values = fields
                .filter(|(n, _)| n.eq_ignore_ascii_case(name))
                .map(|(_, value)| value.trim().to_owned());
            values.next()
        };
        let none = std::mem::take(&mut head_only) || matches!(&*status, "204" | "304");
        let (body, whole) = match (field("transfer-encoding"), field("content-length")) {
            _ if none => (Vec::new(), true),
            (Some(_), _) => chunked(&mut bytes),
            (None, Some(length)) => {
                let length = length.parse().unwrap_or(usize::MAX);
                let (body, rest) = bytes.split_at(length.min(bytes.len()));
                bytes = rest;
                (body.to_vec(), body.len() == length)
            }
            (None, None) => (std::mem::take(&mut bytes).to_vec(), ended),
        };
        let own = matches!(&*status, "400" | "502" | "503" | "504") && field("x-origin").is_none();
        // what follows a refusal says nothing of the script
        if own {
            break;
        }
        let host = field("x-origin").unwrap_or_default();
        // what stood behind or within the first response answers the second request
        let poisoned = !all.is_empty() && (host == "second" || body == b"inside");
        let malformed = poisoned.then(|| "the answer to another request".to_owned());
        all.push(Received { method: status, host, body, whole, malformed, ..Received::default() });
    }
    all
}

fn chunked(bytes: &mut &[u8]) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    loop {
        let Some(at) = bytes.windows(2).position(|w| w == b"\r\n") else { return (body, false) };
        let size = std::str::from_utf8(&bytes[..at])
            .ok()
            .and_then(|text| usize::from_str_radix(text, 16).ok());
        *bytes = &bytes[at + 2..];
        let Some(size) = size else { return (body, false) };
        if size == 0 {
            break;
        }
        if bytes.len() < size + 2 {
            body.extend(*bytes);
            *bytes = &[];
            return (body, false);
        }
        body.extend(&bytes[..size]);
        *bytes = &bytes[size + 2..];
    }
    // trailers
    while let Some(at) = bytes.windows(2).position(|w| w == b"\r\n") {
        *bytes = &bytes[at + 2..];
        if at == 0 {
            return (body, true);
        }
    }
    (body, false)
}
