//! Request streams that programs have framed differently: well-formed messages with tricks in their framing, and
//! some of their bytes changed.

use super::corpus::{
    BETWEEN, BYTES, CHUNK_ENDS, CODINGS, FIELDS, HOSTS, LAST, LENGTHS, LINE_ENDS, METHODS, SIZES,
    SPACES, TARGETS, VERSIONS,
};
use ekiden_model::rng::Rng;

/// A case: the bytes for every program, and the tricks in them.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) number: u64,
    pub(super) bytes: Vec<u8>,
    pub(super) tricks: Vec<&'static str>,
}

/// The host of every request. No program resolves it: each has one origin.
pub(super) const HOST: &str = "o.test";

pub(super) fn pick<T: Copy>(rng: &mut Rng, list: &[T]) -> T {
    list[rng.below(list.len() as u64) as usize]
}

/// A message to which tricks are done.
struct Message {
    method: String,
    spaces: [String; 2],
    target: String,
    version: String,
    host: String,
    fields: Vec<String>,
    /// The line whose end is another one, and that end.
    line_end: Option<(usize, &'static str)>,
    body: Vec<u8>,
}

impl Message {
    fn new(rng: &mut Rng, case: u64, nth: u64) -> Self {
        let mut message = Self {
            method: pick(rng, &["GET", "POST", "POST", "PUT"]).to_owned(),
            spaces: [" ".to_owned(), " ".to_owned()],
            target: format!("http://{HOST}/{case}/{nth}"),
            version: "HTTP/1.1".to_owned(),
            host: format!("Host: {HOST}"),
            fields: Vec::new(),
            line_end: None,
            body: Vec::new(),
        };
        match rng.below(4) {
            0 => {}
            1 => {
                message.body = content(rng, case, nth);
                message.fields.push(format!("Content-Length: {}", message.body.len()));
            }
            _ => {
                message.body = chunks(&content(rng, case, nth), "{x}", "\r\n", "0\r\n\r\n");
                message.fields.push("Transfer-Encoding: chunked".to_owned());
            }
        }
        message
    }

    fn framing(&mut self, text: &str, replace: bool) {
        let n = self.body.len();
        let text = text.replace("{n}", &n.to_string());
        let text = text.replace("{s}", &n.saturating_sub(1).to_string());
        let text = text.replace("{l}", &(n + 7).to_string());
        if replace {
            self.fields.clear();
        }
        self.fields.push(text);
    }

    /// Does one trick, and says which.
    fn trick(&mut self, rng: &mut Rng, case: u64, nth: u64) -> &'static str {
        match rng.below(13) {
            0 => {
                self.body = content(rng, case, nth);
                self.framing(pick(rng, LENGTHS), true);
                "length"
            }
            1 => {
                // a whole body in chunks, and a length that ends it elsewhere
                self.body = chunks(&content(rng, case, nth), "{x}", "\r\n", "0\r\n\r\n");
                self.framing(pick(rng, CODINGS), true);
                "coding"
            }
            2 => {
                self.body = chunks(&content(rng, case, nth), "{x}", "\r\n", "0\r\n\r\n");
                self.framing(pick(rng, CODINGS), true);
                self.framing(pick(rng, LENGTHS), false);
                self.fields.rotate_left(rng.below(2) as usize);
                "length and coding"
            }
            3 => {
                let content = content(rng, case, nth);
                self.body = chunks(&content, pick(rng, SIZES), "\r\n", "0\r\n\r\n");
                self.framing("Transfer-Encoding: chunked", true);
                "chunk size"
            }
            4 => {
                let content = content(rng, case, nth);
                self.body = chunks(&content, "{x}", pick(rng, CHUNK_ENDS), "0\r\n\r\n");
                self.framing("Transfer-Encoding: chunked", true);
                "chunk end"
            }
            5 => {
                let content = content(rng, case, nth);
                self.body = chunks(&content, "{x}", "\r\n", pick(rng, LAST));
                self.framing("Transfer-Encoding: chunked", true);
                "last chunk"
            }
            6 => {
                self.line_end = Some((rng.below(5) as usize, pick(rng, LINE_ENDS)));
                "line end"
            }
            7 => {
                self.version = pick(rng, VERSIONS).to_owned();
                "version"
            }
            8 => {
                self.method = pick(rng, METHODS).to_owned();
                "method"
            }
            9 => {
                self.spaces[rng.below(2) as usize] = pick(rng, SPACES).to_owned();
                "space"
            }
            10 => {
                let path = format!("{case}/{nth}");
                self.target = pick(rng, TARGETS).replace("{h}", HOST).replace("{p}", &path);
                "target"
            }
            11 => {
                self.host = pick(rng, HOSTS).replace("{h}", HOST);
                "host"
            }
            _ => {
                self.fields.push(pick(rng, FIELDS).to_owned());
                "field"
            }
        }
    }

    fn write(&self, to: &mut Vec<u8>) {
        let [first, second] = &self.spaces;
        let line = format!("{}{first}{}{second}{}", self.method, self.target, self.version);
        let fields = self.fields.iter().map(String::as_str);
        let lines = [line.as_str(), self.host.as_str()].into_iter().chain(fields).chain([""]);
        for (number, line) in lines.enumerate() {
            to.extend(line.as_bytes());
            let end = self.line_end.filter(|(at, _)| *at == number).map_or("\r\n", |(_, end)| end);
            to.extend(end.as_bytes());
        }
        to.extend(&self.body);
    }
}

/// What a body holds: bytes, or another request, which shows who took the body to end before it.
fn content(rng: &mut Rng, case: u64, nth: u64) -> Vec<u8> {
    match rng.below(3) {
        0 => b"hello".to_vec(),
        1 => format!("GET http://{HOST}/{case}/{nth}/inner HTTP/1.1\r\nHost: {HOST}\r\n\r\n")
            .into_bytes(),
        _ => format!(
            "0\r\n\r\nGET http://{HOST}/{case}/{nth}/inner HTTP/1.1\r\nHost: {HOST}\r\n\r\n"
        )
        .into_bytes(),
    }
}

/// In one or two chunks.
pub(super) fn chunks(content: &[u8], size: &str, end: &str, last: &str) -> Vec<u8> {
    let mut body = Vec::new();
    let (first, second) = content.split_at(content.len() / 2);
    for chunk in [first, second].into_iter().filter(|chunk| !chunk.is_empty()) {
        body.extend(size.replace("{x}", &format!("{:x}", chunk.len())).as_bytes());
        body.extend(b"\r\n");
        body.extend(chunk);
        body.extend(end.as_bytes());
    }
    body.extend(last.as_bytes());
    body
}

/// Changes some bytes of the stream.
pub(super) fn edit(rng: &mut Rng, bytes: &mut Vec<u8>) {
    for _ in 0..=rng.below(3) {
        let at = rng.below(bytes.len() as u64 + 1) as usize;
        let until = (at + 1 + rng.below(4) as usize).min(bytes.len());
        match rng.below(5) {
            0 => drop(bytes.drain(at..until)),
            1 => drop(bytes.splice(at..at, pick(rng, BYTES).iter().copied())),
            2 => drop(bytes.splice(at..until, pick(rng, BYTES).iter().copied())),
            3 => {
                let from = rng.below(bytes.len() as u64) as usize;
                let copy = bytes[from..(from + 24).min(bytes.len())].to_vec();
                drop(bytes.splice(at..at, copy));
            }
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << rng.below(8);
                }
            }
        }
    }
}

/// The case of that number: the same for the same seed on every machine.
pub(super) fn case(seed: u64, number: u64) -> Case {
    let mut rng = Rng::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number);
    let (mut bytes, mut tricks) = (Vec::new(), Vec::new());
    let messages = 1 + rng.below(3);
    let tricked = rng.below(messages);
    for nth in 0..messages {
        let mut message = Message::new(&mut rng, number, nth);
        if nth == tricked {
            for _ in 0..=rng.below(4) / 3 {
                tricks.push(message.trick(&mut rng, number, nth));
            }
        }
        message.write(&mut bytes);
        if rng.below(12) == 0 {
            bytes.extend(pick(&mut rng, BETWEEN).as_bytes());
            tricks.push("between");
        }
    }
    if rng.below(3) == 0 {
        edit(&mut rng, &mut bytes);
        tricks.push("edit");
    }
    // CONNECT has no framing to compare
    let method = bytes.windows(8).position(|word| word.eq_ignore_ascii_case(b"connect "));
    if let Some(at) = method {
        bytes[at] = b'k';
    }
    // whose end is not seen took more, or waits
    let last = format!(
        "GET http://{HOST}/{number}/last HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n"
    );
    bytes.extend(last.as_bytes());
    Case { number, bytes, tricks }
}
