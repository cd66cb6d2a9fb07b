//! A request for a document and its answer on a blocking socket: as little HTTP/1.1 as that needs.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// No head is longer.
const LONGEST_HEAD: usize = 16 << 10;
/// A read takes at most so much.
const PIECE: usize = 64 << 10;
/// A time-out of zero is none.
const LEAST: Duration = Duration::from_millis(1);

/// The head of a request or of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head(String);

impl Head {
    /// Its first line.
    pub fn first(&self) -> &str {
        self.0.lines().next().unwrap_or_default()
    }

    /// A field's value; `name` in lower case.
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.0.lines().skip(1).filter_map(|line| line.split_once(':'));
        fields.find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    /// Whether a field has this value.
    pub fn says(&self, name: &str, value: &str) -> bool {
        self.field(name).is_some_and(|other| other.eq_ignore_ascii_case(value))
    }

    /// Bytes of the body, where the field says so.
    pub fn content_length(&self) -> Option<u64> {
        self.field("content-length")?.parse().ok()
    }

    /// The length of the document that `GET …/LENGTH` asks for; `None` of any other request.
    pub fn asked_length(&self) -> Option<u64> {
        let target = self.first().strip_prefix("GET ")?.split(' ').next()?;
        target.rsplit('/').next()?.parse().ok()
    }

    /// An answer's status, 0 where there is none.
    pub fn status(&self) -> u16 {
        self.first().split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0)
    }
}

/// Reads a head, from `rest` first; leaves there what follows it. `None` at the end of the stream before a
/// first byte. Errors: the socket's; [`ErrorKind::UnexpectedEof`] within a head; [`ErrorKind::InvalidData`] of
/// a head that is too long or no text.
pub fn read_head(stream: &mut TcpStream, rest: &mut Vec<u8>) -> io::Result<Option<Head>> {
    let mut piece = [0; 4 << 10];
    loop {
        if let Some(at) = rest.windows(4).position(|four| four == b"\r\n\r\n") {
            let behind = rest.split_off(at + 4);
            let head = String::from_utf8(std::mem::replace(rest, behind));
            return Ok(Some(Head(head.map_err(|_| ErrorKind::InvalidData)?)));
        }
        if rest.len() > LONGEST_HEAD {
            return Err(ErrorKind::InvalidData.into());
        }
        match stream.read(&mut piece) {
            Ok(0) if rest.is_empty() => return Ok(None),
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(n) => rest.extend_from_slice(piece.get(..n).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// A request of a proxy for a document of `length` bytes.
pub(super) fn request(server: SocketAddr, length: u64) -> String {
    format!("GET http://{server}/{length} HTTP/1.1\r\nHost: {server}\r\n\r\n")
}

/// What came of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fetched {
    /// The document came whole; `keeps`: its connection may be asked again.
    Whole {
        /// Whether the connection stays open.
        keeps: bool,
    },
    /// The answer was another than 200, and its body was not read.
    Refused(u16),
    /// The connection closed before an answer; a reused one may have closed while the request was on its way
    /// (RFC 9112 §9.3.1).
    Closed,
    /// Time was over.
    Late,
}

/// Asks the proxy on `stream` for a document and reads it until `end` at the latest, adding bytes to `counted`.
/// Errors: the connection broke within the answer, or the answer is none that a server of documents gives.
pub fn fetch(
    stream: &mut TcpStream,
    (server, length): (SocketAddr, u64),
    end: Instant,
    counted: &AtomicU64,
) -> io::Result<Fetched> {
    if !arm(stream, end)? {
        return Ok(Fetched::Late);
    }
    if let Err(error) = stream.write_all(request(server, length).as_bytes()) {
        return if ended(&error) { Ok(Fetched::Closed) } else { late(error) };
    }
    let mut rest = Vec::new();
    let head = match read_head(stream, &mut rest) {
        Ok(Some(head)) => head,
        Ok(None) => return Ok(Fetched::Closed),
        Err(error) if rest.is_empty() && ended(&error) => return Ok(Fetched::Closed),
        Err(error) => return late(error),
    };
    if head.status() != 200 {
        return Ok(Fetched::Refused(head.status()));
    }
    let announced = head.content_length();
    if announced != Some(length) {
        let what = format!("{length} bytes asked for, but the answer announces {announced:?}");
        return Err(io::Error::new(ErrorKind::InvalidData, what));
    }
    let keeps = !head.says("connection", "close") && !head.says("proxy-connection", "close");
    let first = rest.len() as u64;
    counted.fetch_add(first, Ordering::Relaxed);
    let mut left = length.saturating_sub(first);
    let mut piece = vec![0; PIECE.min(left as usize)];
    while left > 0 {
        if !arm(stream, end)? {
            return Ok(Fetched::Late);
        }
        let wanted = (piece.len() as u64).min(left) as usize;
        match stream.read(piece.get_mut(..wanted).unwrap_or_default()) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(n) => {
                counted.fetch_add(n as u64, Ordering::Relaxed);
                left -= n as u64;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return late(error),
        }
    }
    Ok(Fetched::Whole { keeps })
}

/// Nothing on the socket waits beyond `end`; false when that has come.
fn arm(stream: &TcpStream, end: Instant) -> io::Result<bool> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Ok(false);
    }
    let left = Some(left.max(LEAST));
    stream.set_read_timeout(left)?;
    stream.set_write_timeout(left)?;
    Ok(true)
}

fn ended(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}

/// A time-out is no error.
fn late(error: io::Error) -> io::Result<Fetched> {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Ok(Fetched::Late),
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::documents::Documents;
    use crate::load::servers::serve;
    use std::net::Ipv4Addr;

    fn fetched(
        stream: &mut TcpStream,
        server: SocketAddr,
        length: u64,
    ) -> (io::Result<Fetched>, u64) {
        let counted = AtomicU64::new(0);
        let end = Instant::now() + Duration::from_secs(20);
        let fetched = fetch(stream, (server, length), end, &counted);
        (fetched, counted.into_inner())
    }

    /// Answers any head with these bytes and ends.
    fn answering(bytes: &'static [u8]) -> SocketAddr {
        let server = serve(move |mut stream| {
            let _asked = read_head(&mut stream, &mut Vec::new());
            stream.write_all(bytes).is_ok()
        });
        server.unwrap().address
    }

    #[test]
    fn documents_are_as_long_as_asked_on_one_connection() {
        let address = crate::peers::ports::free_on(Ipv4Addr::LOCALHOST).unwrap();
        let servers = Documents::serve(&[address]).unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        // no proxy stands between: the server takes a path, and is asked for one
        for length in [1_u64, 70_000, 0, 5_000_000] {
            write!(stream, "GET /{length} HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            let mut rest = Vec::new();
            let head = read_head(&mut stream, &mut rest).unwrap().unwrap();
            assert_eq!(head.status(), 200);
            assert_eq!(head.field("content-length"), Some(length.to_string().as_str()));
            let mut body = vec![0; length as usize - rest.len()];
            stream.read_exact(&mut body).unwrap();
        }
        write!(stream, "GET /x HTTP/1.1\r\nConnection: close\r\n\r\n").unwrap();
        let mut all = String::new();
        stream.read_to_string(&mut all).unwrap();
        assert!(all.starts_with("HTTP/1.1 404"), "{all}");
        // none is left when it is dropped
        let mut another = TcpStream::connect(address).unwrap();
        drop(servers);
        assert!(matches!(another.read(&mut [0]), Ok(0) | Err(_)));
        assert!(TcpStream::connect(address).is_err());
    }

    #[test]
    fn reports_the_outcome_of_a_request() {
        let far = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        for (answer, expected) in [
            (&b""[..], Fetched::Closed),
            (b"HTTP/1.1 503 Busy\r\n\r\n", Fetched::Refused(503)),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", Fetched::Whole { keeps: true }),
            (
                b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc",
                Fetched::Whole { keeps: false },
            ),
        ] {
            let mut stream = TcpStream::connect(answering(answer)).unwrap();
            let (report, counted) = fetched(&mut stream, far, 3);
            assert_eq!(report.unwrap(), expected);
            assert_eq!(counted, if matches!(expected, Fetched::Whole { .. }) { 3 } else { 0 });
        }
    }

    #[test]
    fn counts_the_bytes_of_a_broken_answer() {
        let far = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let part = answering(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc");
        let (report, counted) = fetched(&mut TcpStream::connect(part).unwrap(), far, 9);
        assert_eq!((report.unwrap_err().kind(), counted), (ErrorKind::UnexpectedEof, 3));
        let other = answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab");
        let (report, _) = fetched(&mut TcpStream::connect(other).unwrap(), far, 9);
        assert!(report.unwrap_err().to_string().contains("9 bytes asked for"));
    }

    #[test]
    fn ends_when_time_is_over() {
        let silent = serve(|mut stream| io::copy(&mut stream, &mut io::sink())).unwrap();
        let mut stream = TcpStream::connect(silent.address).unwrap();
        let end = Instant::now() + Duration::from_millis(50);
        let report = fetch(&mut stream, (silent.address, 1), end, &AtomicU64::new(0));
        assert_eq!(report.unwrap(), Fetched::Late);
        let report = fetch(&mut stream, (silent.address, 1), Instant::now(), &AtomicU64::new(0));
        assert_eq!(report.unwrap(), Fetched::Late);
    }
}
