//! Chunked bodies (RFC 9112 §7.1), read strictly and written anew: extensions are dropped, trailers
//! forwarded, ambiguous framing refused.

use super::fields;
use super::head::{Field, Limits, is_token, memory};
use crate::wire::http::BadMessage;

/// The output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// In chunks, with the trailers.
    Chunks,
    /// The bytes alone, for HTTP/1.0 clients.
    Plain,
}

/// Fields that are not allowed as trailers (RFC 9110 §6.5.1): framing, routing, credentials.
const NOT_IN_TRAILERS: [&str; 13] = [
    "transfer-encoding",
    "content-length",
    "host",
    "via",
    "connection",
    "keep-alive",
    "proxy-authorization",
    "proxy-authenticate",
    "authorization",
    "set-cookie",
    "trailer",
    "te",
    "upgrade",
];
/// Limit on a chunk's size line with extensions, which could waste the relay's time.
const LONGEST_SIZE_LINE: usize = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Size,
    /// Within a chunk; this many bytes are left.
    Data(u64),
    DataEnd,
    /// After the last chunk, in the trailers.
    Trailers,
    Done,
}

/// A parser of a chunked body.
#[derive(Debug, Clone)]
pub struct Chunked {
    state: State,
    output: Output,
    limits: Limits,
    line: Vec<u8>,
    /// The trailers so far that are to be written, and the number and size of all.
    trailers: Vec<Field>,
    trailer_count: usize,
    trailer_bytes: usize,
    /// Data bytes so far.
    bytes: u64,
}

impl Chunked {
    /// A parser at the beginning of a body. The trailers count against `limits`.
    pub const fn new(output: Output, limits: Limits) -> Self {
        Self {
            state: State::Size,
            output,
            limits,
            line: Vec::new(),
            trailers: Vec::new(),
            trailer_count: 0,
            trailer_bytes: 0,
            bytes: 0,
        }
    }

    /// Whether the end was read.
    pub const fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Bytes of memory that trailers take until their end is read.
    pub fn memory(&self) -> usize {
        match self.state {
            State::Trailers => self.line.capacity() + memory(&self.trailers),
            _ => 0,
        }
    }

    /// Data bytes so far, without the framing.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reads from `input`, and appends the output to `to`; how many bytes of `input` belong to the
    /// body: all, unless it ended. Fails on framing that does not strictly follow RFC 9112.
    pub fn read(&mut self, input: &[u8], to: &mut Vec<u8>) -> Result<usize, BadMessage> {
        let mut at = 0;
        while at < input.len() && self.state != State::Done {
            at += match self.state {
                State::Size => self.read_size(&input[at..], to)?,
                State::Data(left) => self.read_data(&input[at..], left, to),
                State::DataEnd => self.read_data_end(&input[at..])?,
                State::Trailers => self.read_trailers(&input[at..], to)?,
                State::Done => 0,
            };
        }
        Ok(at)
    }

    /// Takes a line's bytes up to its CRLF; `Some` when the line is complete.
    fn take_line(&mut self, input: &[u8], limit: usize) -> Result<(usize, bool), BadMessage> {
        let end = input.iter().position(|b| *b == b'\n');
        let taken = end.map_or(input.len(), |end| end + 1);
        if self.line.len() + taken > limit {
            return Err(BadMessage::bad("a line of the chunked body is too long"));
        }
        // only new bytes are checked, with the byte before them
        let from = self.line.len().saturating_sub(1);
        self.line.extend(&input[..taken]);
        let fresh = &self.line[from..];
        if self.line == b"\n" || fresh.windows(2).any(|w| w[0] != b'\r' && w[1] == b'\n') {
            return Err(BadMessage::bad("a line of the chunked body ends with a bare LF"));
        }
        if fresh.windows(2).any(|w| w[0] == b'\r' && w[1] != b'\n') || fresh.contains(&0) {
            return Err(BadMessage::bad("a line of the chunked body contains a CR or NUL"));
        }
        Ok((taken, end.is_some()))
    }

    fn read_size(&mut self, input: &[u8], to: &mut Vec<u8>) -> Result<usize, BadMessage> {
        let (taken, complete) = self.take_line(input, LONGEST_SIZE_LINE)?;
        if complete {
            let size = parse_size(&self.line[..self.line.len() - 2])?;
            self.line = Vec::new();
            self.state = if size == 0 { State::Trailers } else { State::Data(size) };
            if self.output == Output::Chunks {
                to.extend(format!("{size:x}\r\n").as_bytes());
            }
        }
        Ok(taken)
    }

    fn read_data(&mut self, input: &[u8], left: u64, to: &mut Vec<u8>) -> usize {
        let taken = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
        to.extend(&input[..taken]);
        self.bytes += taken as u64;
        let left = left - taken as u64;
        self.state = if left == 0 { State::DataEnd } else { State::Data(left) };
        if left == 0 && self.output == Output::Chunks {
            to.extend(b"\r\n");
        }
        taken
    }

    fn read_data_end(&mut self, input: &[u8]) -> Result<usize, BadMessage> {
        let (taken, complete) = self
            .take_line(input, 2)
            .map_err(|_| BadMessage::bad("a chunk is longer than its size"))?;
        if !b"\r\n".starts_with(&self.line) {
            return Err(BadMessage::bad("a chunk is longer than its size"));
        }
        if complete {
            self.line.clear();
            self.state = State::Size;
        }
        Ok(taken)
    }

    fn read_trailers(&mut self, input: &[u8], to: &mut Vec<u8>) -> Result<usize, BadMessage> {
        let room = self.limits.bytes.saturating_sub(self.trailer_bytes);
        let (taken, complete) = self.take_line(input, room)?;
        if !complete {
            return Ok(taken);
        }
        let line = std::mem::take(&mut self.line);
        self.trailer_bytes += line.len();
        match &line[..line.len() - 2] {
            [] => {
                if self.output == Output::Chunks {
                    fields::write(to, &self.trailers);
                    to.extend(b"\r\n");
                }
                self.trailers = Vec::new();
                self.state = State::Done;
            }
            field => {
                let field = parse_trailer(field)?;
                if self.trailer_count >= self.limits.fields {
                    return Err(BadMessage::bad("there are too many trailers"));
                }
                self.trailer_count += 1;
                if self.output == Output::Chunks && may_be_trailer(&field) {
                    self.trailers.push(field);
                }
            }
        }
        Ok(taken)
    }
}

fn parse_size(line: &[u8]) -> Result<u64, BadMessage> {
    let digits = line.iter().take_while(|b| b.is_ascii_hexdigit()).count();
    let (size, rest) = line.split_at(digits);
    // 15 digits: larger sizes cannot occur, except with leading zeros
    if size.is_empty() || size.len() > 15 {
        return Err(BadMessage::bad("a chunk's size is not a hexadecimal number"));
    }
    // white space is allowed before an extension's semicolon only (RFC 9112 §7.1.1)
    let blank = rest.iter().take_while(|b| matches!(b, b' ' | b'\t')).count();
    match &rest[blank..] {
        [] if rest.is_empty() => {}
        [b';', extension @ ..] if extension_is_clean(extension) => {}
        _ => {
            return Err(BadMessage::bad(
                "a chunk's size is followed by something that is no extension",
            ));
        }
    }
    let text = std::str::from_utf8(size).unwrap_or_default();
    u64::from_str_radix(text, 16)
        .map_err(|_| BadMessage::bad("a chunk's size is not a hexadecimal number"))
}

fn extension_is_clean(extension: &[u8]) -> bool {
    extension.iter().all(|b| *b == b'\t' || (*b >= 0x20 && *b != 0x7f))
}

fn parse_trailer(line: &[u8]) -> Result<Field, BadMessage> {
    let colon = line.iter().position(|b| *b == b':');
    let (name, value) = line.split_at(colon.unwrap_or(0));
    let clean = |b: &u8| *b == b'\t' || (*b >= 0x20 && *b != 0x7f);
    if name.is_empty() || !name.iter().copied().all(is_token) || !value.iter().all(clean) {
        return Err(BadMessage::bad("a trailer is not a field"));
    }
    let name = String::from_utf8_lossy(name).into_owned();
    Ok(Field { name, value: value[1..].trim_ascii().to_vec() })
}

fn may_be_trailer(field: &Field) -> bool {
    !NOT_IN_TRAILERS.iter().any(|no| field.name.eq_ignore_ascii_case(no))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: Limits = Limits { bytes: 1000, fields: 10 };

    fn through(
        input: &[u8],
        output: Output,
        step: usize,
    ) -> Result<(Vec<u8>, usize, bool), BadMessage> {
        let mut body = Chunked::new(output, LIMITS);
        let mut to = Vec::new();
        let mut used = 0;
        for piece in input.chunks(step) {
            used += body.read(piece, &mut to)?;
        }
        Ok((to, used, body.is_done()))
    }

    #[test]
    fn passes_chunks_and_trailers_and_drops_extensions() {
        let input = b"4;name=value\r\nWiki\r\n5\r\npedia\r\n0\r\nDigest: x\r\nContent-Length: 9\r\n\r\nGET /";
        for step in 1..input.len() {
            let (to, used, done) = through(input, Output::Chunks, step).unwrap();
            assert_eq!(to, b"4\r\nWiki\r\n5\r\npedia\r\n0\r\nDigest: x\r\n\r\n", "step {step}");
            assert_eq!((used, done), (input.len() - 5, true));
        }
        assert_eq!(through(input, Output::Plain, 7).unwrap().0, b"Wikipedia");
    }

    #[test]
    fn refuses_what_others_frame_differently() {
        for bad in [
            &b"4\nWiki\r\n0\r\n\r\n"[..],
            b"4\r\nWiki\n0\r\n\r\n",
            b"4\r\nWikiX\r\n0\r\n\r\n",
            b"4\r\nWiki0\r\n\r\n",
            b"+4\r\nWiki\r\n",
            b"0x4\r\nWiki\r\n",
            b" 4\r\nWiki\r\n",
            b"4 \r\nWiki\r\n",
            b"\r\n",
            b"-1\r\n",
            b"fffffffffffffffff\r\n",
            b"4;a\rb\r\nWiki\r\n",
            b"4;a\0b\r\nWiki\r\n",
            b"0\r\nno colon\r\n\r\n",
            b"0\r\nBad Name: x\r\n\r\n",
            b"0\r\n folded: x\r\n\r\n",
            b"0\r\nA: x\ny\r\n\r\n",
        ] {
            for step in [1, bad.len()] {
                assert!(
                    through(bad, Output::Chunks, step).is_err(),
                    "{:?}",
                    String::from_utf8_lossy(bad)
                );
            }
        }
        let long_extension = [b"4;", &vec![b'x'; 2000][..]].concat();
        assert!(through(&long_extension, Output::Chunks, 100).is_err());
        let endless_trailers = [b"0\r\n", &b"A: b\r\n".repeat(300)[..]].concat();
        assert!(through(&endless_trailers, Output::Chunks, 100).is_err());
    }

    proptest! {
        #[test]
        fn chunking_preserves_every_body(
            chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..50), 0..10),
            step in 1_usize..40,
        ) {
            let mut input = Vec::new();
            for chunk in &chunks {
                input.extend(format!("{:X}\r\n", chunk.len()).bytes());
                input.extend(chunk);
                input.extend(b"\r\n");
            }
            input.extend(b"0\r\n\r\nnext");
            let (plain, used, done) = through(&input, Output::Plain, step).unwrap();
            prop_assert_eq!(plain, chunks.concat());
            prop_assert!(done && used == input.len() - 4);
            let (again, ..) = through(&input, Output::Chunks, step).unwrap();
            prop_assert_eq!(through(&again, Output::Plain, 1).unwrap().0, chunks.concat());
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), step in 1_usize..20) {
            let _ = through(&bytes, Output::Chunks, step);
        }
    }
}
