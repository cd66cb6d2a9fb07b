//! An origin that records each request as it arrives, read strictly by RFC 9112 and by code of its own: what Ekiden
//! writes is not judged by what Ekiden reads.

use super::responses::Script;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Of every answer here; no program answers so by itself.
pub(super) const MARK: &str = "X-Origin: yes";
/// No connection is silent for so long within a case.
const SILENCE: Duration = Duration::from_secs(90);

/// A request as it arrived.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Received {
    pub(super) method: String,
    /// Without scheme and authority.
    pub(super) path: String,
    pub(super) host: String,
    pub(super) body: Vec<u8>,
    /// The whole body arrived.
    pub(super) whole: bool,
    /// Why the message is malformed.
    pub(super) malformed: Option<String>,
}

/// What arrived since the log was last taken; later bytes of earlier requests are dropped.
#[derive(Debug, Default)]
struct Log {
    taken: u64,
    received: Vec<Received>,
    /// The answer to the first request of a case.
    script: Option<Script>,
}

#[derive(Debug, Clone)]
pub(super) struct Recorder {
    pub(super) address: SocketAddr,
    log: Arc<Mutex<Log>>,
}

impl Recorder {
    pub(super) fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let recorder = Self { address: listener.local_addr()?, log: Arc::default() };
        let log = Arc::clone(&recorder.log);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let log = Arc::clone(&log);
                thread::spawn(move || Connection { stream, buffer: Vec::new(), log }.serve());
            }
        });
        Ok(recorder)
    }

    pub(super) fn take(&self) -> Vec<Received> {
        let mut log = lock(&self.log);
        log.taken += 1;
        std::mem::take(&mut log.received)
    }

    pub(super) fn set_script(&self, script: Option<&Script>) {
        lock(&self.log).script = script.cloned();
    }

    pub(super) fn seen(&self) -> usize {
        lock(&self.log).received.len()
    }
}

fn lock(log: &Mutex<Log>) -> MutexGuard<'_, Log> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    log: Arc<Mutex<Log>>,
}

enum Stop {
    /// The connection ended, or broke.
    Ended,
    Malformed(&'static str),
}

impl From<io::Error> for Stop {
    fn from(_: io::Error) -> Self {
        Self::Ended
    }
}

/// A place in the log.
struct Place {
    taken: u64,
    at: usize,
}

impl Connection {
    fn serve(mut self) {
        let _ = self.stream.set_nodelay(true);
        let _ = self.stream.set_read_timeout(Some(SILENCE));
        while self.request().is_ok() {}
    }

    fn request(&mut self) -> Result<(), Stop> {
        let head = match self.head() {
            Ok(head) => head,
            Err(Stop::Malformed(why)) => {
                let malformed = format!("{why}: {}", self.buffer.escape_ascii());
                self.push(Received { malformed: Some(malformed), ..Received::default() });
                return Err(Stop::Ended);
            }
            Err(Stop::Ended) => return Err(Stop::Ended),
        };
        let Head { received, body, continues, head_only } = head;
        let first = received.path.ends_with("/0");
        let place = self.push(received);
        if continues {
            self.stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        match self.body(&place, body) {
            Err(Stop::Malformed(why)) => {
                let words = format!("{why}: {}", self.buffer.escape_ascii());
                self.change(&place, |received| received.malformed = Some(words));
                return Err(Stop::Ended);
            }
            ended => ended?,
        }
        self.change(&place, |received| received.whole = true);
        let script = lock(&self.log).script.clone();
        if let Some(script) = script.filter(|_| first) {
            self.stream.write_all(&script.bytes)?;
            return if script.closes { Err(Stop::Ended) } else { Ok(()) };
        }
        let body = if head_only { "" } else { "ok" };
        let answer = format!("HTTP/1.1 200 OK\r\n{MARK}\r\nContent-Length: 2\r\n\r\n{body}");
        Ok(self.stream.write_all(answer.as_bytes())?)
    }

    fn push(&self, received: Received) -> Place {
        let mut log = lock(&self.log);
        log.received.push(received);
        Place { taken: log.taken, at: log.received.len() - 1 }
    }

    fn change(&self, place: &Place, change: impl FnOnce(&mut Received)) {
        let mut log = lock(&self.log);
        if log.taken == place.taken
            && let Some(received) = log.received.get_mut(place.at)
        {
            change(received);
        }
    }

    fn fill(&mut self) -> Result<(), Stop> {
        let mut bytes = [0; 16 * 1024];
        match self.stream.read(&mut bytes)? {
            0 => Err(Stop::Ended),
            n => {
                self.buffer.extend(&bytes[..n]);
                Ok(())
            }
        }
    }

    /// A line without its CRLF.
    fn line(&mut self) -> Result<Vec<u8>, Stop> {
        let mut at = 0;
        loop {
            if let Some(step) =
                self.buffer[at..].iter().position(|b| matches!(b, b'\r' | b'\n' | 0))
            {
                at += step;
                match (self.buffer[at], self.buffer.get(at + 1)) {
                    (b'\r', Some(b'\n')) => {
                        let line = self.buffer[..at].to_vec();
                        self.buffer.drain(..at + 2);
                        return Ok(line);
                    }
                    (b'\r', None) => {}
                    (b'\r', _) => return Err(Stop::Malformed("a CR without LF")),
                    (b'\n', _) => return Err(Stop::Malformed("a bare LF")),
                    _ => return Err(Stop::Malformed("a NUL")),
                }
            } else {
                at = self.buffer.len();
            }
            self.fill()?;
        }
    }

    fn head(&mut self) -> Result<Head, Stop> {
        let line = self.line()?;
        let line = String::from_utf8_lossy(&line).into_owned();
        let parts: Vec<&str> = line.split(' ').collect();
        let &[method, target, "HTTP/1.1" | "HTTP/1.0"] = parts.as_slice() else {
            return Err(Stop::Malformed("a request line that is not three parts"));
        };
        if method.is_empty() || !method.bytes().all(is_token) || target.is_empty() {
            return Err(Stop::Malformed("a method that is not a token, or no target"));
        }
        let path = match target.split_once("://") {
            Some((scheme, rest)) if !scheme.contains('/') => {
                rest.find(['/', '?']).map_or("", |at| &rest[at..])
            }
            _ => target,
        };
        let mut received =
            Received { method: method.to_owned(), path: path.to_owned(), ..Received::default() };
        let (mut lengths, mut codings, mut continues) = (Vec::new(), Vec::new(), false);
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            let colon = line.iter().position(|b| *b == b':');
            let Some((name, value)) = colon.map(|at| (&line[..at], &line[at + 1..])) else {
                return Err(Stop::Malformed("a field without a colon"));
            };
            if name.is_empty() || !name.iter().copied().all(is_token) {
                return Err(Stop::Malformed("a field whose name is not a token"));
            }
            let value = String::from_utf8_lossy(value).trim_matches([' ', '\t']).to_owned();
            match name.to_ascii_lowercase().as_slice() {
                b"content-length" => lengths.push(value),
                b"transfer-encoding" => codings.push(value.to_ascii_lowercase()),
                b"host" => received.host = value.to_ascii_lowercase(),
                b"expect" => continues = true,
                _ => {}
            }
        }
        let body = match (lengths.as_slice(), codings.as_slice()) {
            ([], []) => Body::Length(0),
            ([length], []) if !length.is_empty() && length.bytes().all(|b| b.is_ascii_digit()) => {
                length
                    .parse()
                    .map(Body::Length)
                    .map_err(|_| Stop::Malformed("a length beyond 64 bits"))?
            }
            ([], [coding]) if coding == "chunked" => Body::Chunked,
            _ => return Err(Stop::Malformed("a body with two ends, or none")),
        };
        let head_only = received.method == "HEAD";
        Ok(Head { received, body, continues, head_only })
    }

    fn body(&mut self, place: &Place, body: Body) -> Result<(), Stop> {
        match body {
            Body::Length(n) => self.take(place, n)?,
            Body::Chunked => loop {
                let line = self.line()?;
                let digits = line.split(|b| *b == b';').next().unwrap_or_default();
                let digits = String::from_utf8_lossy(digits);
                if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
                    return Err(Stop::Malformed("a chunk without a size"));
                }
                let size = u64::from_str_radix(&digits, 16);
                match size.map_err(|_| Stop::Malformed("a chunk beyond 64 bits"))? {
                    0 => break,
                    size => self.take(place, size)?,
                }
                if !self.line()?.is_empty() {
                    return Err(Stop::Malformed("a chunk that is longer than its size"));
                }
            },
        }
        if matches!(body, Body::Chunked) {
            while !self.line()?.is_empty() {}
        }
        Ok(())
    }

    fn take(&mut self, place: &Place, mut left: u64) -> Result<(), Stop> {
        while left > 0 {
            if self.buffer.is_empty() {
                self.fill()?;
            }
            let here = self.buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let bytes: Vec<u8> = self.buffer.drain(..here).collect();
            left -= here as u64;
            self.change(place, |received| received.body.extend(&bytes));
        }
        Ok(())
    }
}

struct Head {
    received: Received,
    body: Body,
    /// It asks for 100 (Continue).
    continues: bool,
    head_only: bool,
}

#[derive(Clone, Copy)]
enum Body {
    Length(u64),
    Chunked,
}

/// RFC 9110 §5.6.2.
fn is_token(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b)
}
