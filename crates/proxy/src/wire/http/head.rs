//! Request and response heads, read strictly.

use crate::wire::http::BadMessage;

/// HTTP/1.0 or HTTP/1.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    Http11,
}

/// One header field: name as written, value without the white space around it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// A token (RFC 9110 §5.6.2).
    pub name: String,
    /// Any bytes except control characters.
    pub value: Vec<u8>,
}

/// What the allocator takes for a field beside its bytes: two pieces, and its place in the list, which may be twice as
/// long as needed.
const FIELD: usize = 2 * size_of::<Field>() + 2 * 16;

impl Field {
    /// Bytes of memory that a field of this name and value takes.
    pub(crate) const fn memory_of(name: &str, value: &[u8]) -> usize {
        name.len() + value.len() + FIELD
    }
}

/// Bytes of memory that fields take.
pub(super) fn memory(fields: &[Field]) -> usize {
    fields.iter().map(|field| Field::memory_of(&field.name, &field.value)).sum()
}

/// A request's head.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // the names say it
pub struct Request {
    pub method: String,
    pub target: String,
    pub version: Version,
    pub fields: Vec<Field>,
}

impl Request {
    /// Bytes of memory that it takes.
    pub fn memory(&self) -> usize {
        self.method.len() + self.target.len() + memory(&self.fields)
    }
}

/// A response's head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The status, 100…599.
    pub status: u16,
    /// The reason phrase, perhaps empty.
    pub reason: Vec<u8>,
    /// The sender's version.
    pub version: Version,
    /// Its fields, in order.
    pub fields: Vec<Field>,
}

impl Response {
    /// Bytes of memory that it takes.
    pub fn memory(&self) -> usize {
        self.reason.len() + memory(&self.fields)
    }

    /// Whether another response follows (RFC 9110 §15.2); 101 ends HTTP on the connection.
    pub fn is_interim(&self) -> bool {
        (100..200).contains(&self.status) && self.status != 101
    }
}

/// The limits on a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes, with the empty line.
    pub bytes: usize,
    /// Header fields.
    pub fields: usize,
}

/// Methods are case-sensitive (RFC 9110 §9.1), but some programs read `head` as HEAD, whose answer has no body.
const METHODS: [&str; 9] =
    ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];

/// Bytes of a method. It stays with its request in logs and traces, and with a tunnel that the request becomes; the
/// longest that IANA lists has 17.
pub const LONGEST_METHOD: usize = 64;

const LONG_METHOD: BadMessage =
    BadMessage { status: 501, what: "the method is longer than 64 bytes" };
const TOO_LARGE: BadMessage =
    BadMessage { status: 431, what: "the head is larger than this relay accepts" };
const TOO_MANY: BadMessage =
    BadMessage { status: 431, what: "the head has more fields than this relay accepts" };

/// How far a growing head has been searched for its end, so that no byte is searched twice: a client
/// that sends one byte at a time would otherwise cost the square of its head.
#[derive(Debug, Default)]
pub struct HeadSearch {
    at: usize,
    /// Where the line at `at` begins.
    line: usize,
    /// How many lines are before that.
    lines: usize,
}

/// Where a head is that has come whole, and what it will take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WholeHead {
    /// An empty line before it.
    skip: usize,
    end: usize,
    /// Bytes of memory that it takes at most, once it is read.
    pub memory: usize,
}

impl WholeHead {
    /// The request, and its length in `bytes`, which are those it was found in.
    pub fn request(self, bytes: &[u8], limits: Limits) -> Result<(Request, usize), BadMessage> {
        Ok((parse_request(&bytes[self.skip..self.end], limits)?, self.end))
    }

    /// The response, and its length in `bytes`, which are those it was found in.
    pub fn response(self, bytes: &[u8], limits: Limits) -> Result<(Response, usize), BadMessage> {
        Ok((parse_response(&bytes[self.skip..self.end], limits)?, self.end))
    }
}

impl HeadSearch {
    /// Like [`read_request`], of a buffer that only grew since the last call.
    pub fn request(
        &mut self,
        bytes: &[u8],
        limits: Limits,
    ) -> Result<Option<(Request, usize)>, BadMessage> {
        self.whole_request(bytes, limits)?.map(|whole| whole.request(bytes, limits)).transpose()
    }

    /// The same before it is read, so that its memory can count first.
    pub fn whole_request(
        &mut self,
        bytes: &[u8],
        limits: Limits,
    ) -> Result<Option<WholeHead>, BadMessage> {
        // the first half of an empty line
        if bytes == b"\r" {
            return Ok(None);
        }
        let skip = leading_empty_line(bytes);
        check_start(&bytes[skip..])?;
        Ok(self.end(&bytes[skip..], limits)?.map(|end| self.whole(skip, end, limits)))
    }

    /// Like [`read_response`], of a buffer that only grew since the last call.
    pub fn response(
        &mut self,
        bytes: &[u8],
        limits: Limits,
    ) -> Result<Option<(Response, usize)>, BadMessage> {
        self.whole_response(bytes, limits)?.map(|whole| whole.response(bytes, limits)).transpose()
    }

    /// The same before it is read, so that its memory can count first.
    pub fn whole_response(
        &mut self,
        bytes: &[u8],
        limits: Limits,
    ) -> Result<Option<WholeHead>, BadMessage> {
        // what cannot become a response is not waited for
        if bytes.iter().zip(b"HTTP/").any(|(byte, wanted)| byte != wanted) {
            return Err(BadMessage::bad("the status line does not begin with HTTP/"));
        }
        Ok(self.end(bytes, limits)?.map(|end| self.whole(0, end, limits)))
    }

    /// A head with more fields than the limit will not be read.
    fn whole(&self, skip: usize, end: usize, limits: Limits) -> WholeHead {
        let memory = end + self.lines.min(limits.fields) * FIELD;
        WholeHead { skip, end: skip + end, memory }
    }

    /// The length of the head with its empty line; `None` while more bytes are needed. Errors: too
    /// large, a bare CR or LF, a NUL, a folded line, or what else another program might take for its
    /// end.
    fn end(&mut self, bytes: &[u8], limits: Limits) -> Result<Option<usize>, BadMessage> {
        self.check_folding(bytes)?;
        while let Some(step) = bytes[self.at..].iter().position(|b| matches!(b, b'\n' | b'\r' | 0))
        {
            self.at += step;
            match bytes[self.at] {
                0 => return Err(BadMessage::bad("the head contains a NUL byte")),
                b'\n' => {
                    return Err(BadMessage::bad("a line ends with a bare LF; lines end with CRLF"));
                }
                _ => {}
            }
            match bytes.get(self.at + 1) {
                None => return more(bytes, limits),
                Some(b'\n') => {}
                Some(_) => return Err(BadMessage::bad("the head contains a CR without LF")),
            }
            let end = self.at + 2;
            if self.at == self.line {
                return if end > limits.bytes { Err(TOO_LARGE) } else { Ok(Some(end)) };
            }
            (self.at, self.line) = (end, end);
            self.lines += 1;
            self.check_folding(bytes)?;
        }
        self.at = bytes.len();
        more(bytes, limits)
    }

    fn check_folding(&self, bytes: &[u8]) -> Result<(), BadMessage> {
        let begins_line = self.at == self.line && self.line > 0;
        if begins_line && matches!(bytes.get(self.at), Some(b' ' | b'\t')) {
            return Err(BadMessage::bad(
                "a field is folded over two lines, which is obsolete and unsafe",
            ));
        }
        Ok(())
    }
}

/// Whether a head without an end may grow.
const fn more(bytes: &[u8], limits: Limits) -> Result<Option<usize>, BadMessage> {
    if bytes.len() >= limits.bytes { Err(TOO_LARGE) } else { Ok(None) }
}

/// The length of an empty line before a request, which is skipped (RFC 9112 §2.2).
pub fn leading_empty_line(bytes: &[u8]) -> usize {
    if bytes.starts_with(b"\r\n") { 2 } else { 0 }
}

/// Reads a request's head and its length, strictly by RFC 9112; `None` while more bytes are needed.
pub fn read_request(bytes: &[u8], limits: Limits) -> Result<Option<(Request, usize)>, BadMessage> {
    HeadSearch::default().request(bytes, limits)
}

fn parse_request(head: &[u8], limits: Limits) -> Result<Request, BadMessage> {
    let mut storage = vec![httparse::EMPTY_HEADER; limits.fields];
    let mut parsed = httparse::Request::new(&mut storage);
    match parsed.parse(head) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => {
            return Err(BadMessage::bad("the request line is incomplete"));
        }
        Err(error) => return Err(explain(error)),
    }
    let (Some(method), Some(target), Some(version)) = (parsed.method, parsed.path, parsed.version)
    else {
        return Err(BadMessage::bad("the request line is incomplete"));
    };
    one_space_each(head, method.len(), target.len())?;
    if method.len() > LONGEST_METHOD {
        return Err(LONG_METHOD);
    }
    if METHODS.iter().any(|known| *known != method && known.eq_ignore_ascii_case(method)) {
        return Err(BadMessage::bad(
            "the method is a known one in other letters; write it in capitals",
        ));
    }
    Ok(Request {
        method: method.to_owned(),
        target: target.to_owned(),
        version: version_of(version),
        fields: fields_of(parsed.headers)?,
    })
}

/// Rejects TLS and binary data by their first byte, before the end of a line.
fn check_start(bytes: &[u8]) -> Result<(), BadMessage> {
    match bytes.first() {
        Some(0x16) => Err(BadMessage::bad(
            "this looks like TLS, but the relay's port speaks plain HTTP and SOCKS",
        )),
        Some(first) if !is_token(*first) => {
            Err(BadMessage::bad("this is neither an HTTP request nor SOCKS4a nor SOCKS5"))
        }
        _ => Ok(()),
    }
}

/// `METHOD SP target SP version`, with exactly one space at each place.
fn one_space_each(head: &[u8], method: usize, target: usize) -> Result<(), BadMessage> {
    let version = method + target + 2;
    let spaced = head.get(method) == Some(&b' ')
        && head.get(version - 1) == Some(&b' ')
        && head.get(version..version + 5) == Some(b"HTTP/");
    if spaced {
        Ok(())
    } else {
        Err(BadMessage::bad("the request line's parts are not separated by one space each"))
    }
}

/// Reads a response's head and its length, strictly by RFC 9112; `None` while more bytes are
/// needed.
pub fn read_response(
    bytes: &[u8],
    limits: Limits,
) -> Result<Option<(Response, usize)>, BadMessage> {
    HeadSearch::default().response(bytes, limits)
}

fn parse_response(head: &[u8], limits: Limits) -> Result<Response, BadMessage> {
    let mut storage = vec![httparse::EMPTY_HEADER; limits.fields];
    let mut parsed = httparse::Response::new(&mut storage);
    match parsed.parse(head) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => {
            return Err(BadMessage::bad("the status line is incomplete"));
        }
        Err(error) => return Err(explain(error)),
    }
    let (Some(status), Some(version)) = (parsed.code, parsed.version) else {
        return Err(BadMessage::bad("the status line is incomplete"));
    };
    if !(100..=599).contains(&status) {
        return Err(BadMessage::bad("the status is not from 100 to 599"));
    }
    Ok(Response {
        status,
        reason: parsed.reason.unwrap_or_default().into(),
        version: version_of(version),
        fields: fields_of(parsed.headers)?,
    })
}

fn version_of(minor: u8) -> Version {
    if minor == 0 { Version::Http10 } else { Version::Http11 }
}

fn fields_of(headers: &[httparse::Header<'_>]) -> Result<Vec<Field>, BadMessage> {
    headers
        .iter()
        .map(|header| {
            if header.value.iter().any(|b| (*b < 0x20 && *b != b'\t') || *b == 0x7f) {
                return Err(BadMessage::bad("a field's value contains a control character"));
            }
            Ok(Field { name: header.name.to_owned(), value: header.value.trim_ascii().to_vec() })
        })
        .collect()
}

fn explain(error: httparse::Error) -> BadMessage {
    use httparse::Error;
    match error {
        Error::HeaderName => {
            BadMessage::bad("a field's name is not a token, or there is space before its colon")
        }
        Error::HeaderValue => {
            BadMessage::bad("a field's value contains a byte that is not allowed")
        }
        Error::NewLine => BadMessage::bad("a line does not end with CRLF"),
        Error::Status => BadMessage::bad("the status is not three digits"),
        Error::Token => BadMessage::bad("the method or target contains a byte that is not allowed"),
        Error::TooManyHeaders => TOO_MANY,
        Error::Version => {
            BadMessage { status: 505, what: "the version is neither HTTP/1.0 nor HTTP/1.1" }
        }
    }
}

/// Whether a byte is allowed in a token (RFC 9110 §5.6.2).
pub const fn is_token(b: u8) -> bool {
    b.is_ascii_alphanumeric()
        || matches!(b, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~')
}

impl Version {
    /// The version in `Via`: `1.0` or `1.1`.
    pub const fn number(self) -> &'static str {
        match self {
            Self::Http10 => "1.0",
            Self::Http11 => "1.1",
        }
    }
}

#[cfg(test)]
mod tests;
