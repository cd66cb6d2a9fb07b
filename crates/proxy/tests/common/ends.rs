//! The two ends of a connection, of which one ends it in a certain way at a certain time.

use super::{LONG, patient, pattern, reset_on_close};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::LazyLock;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// `close` when all is sent and read.
    Fin,
    /// `shutdown(WR)`, then reading on.
    Half,
    /// `close` that resets.
    Rst,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Nothing was sent by either end.
    Before,
    /// Both have sent, and have more to send.
    During,
    /// Everything was sent and read.
    After,
}

pub const HOWS: [How; 3] = [How::Fin, How::Half, How::Rst];
pub const WHENS: [When; 3] = [When::Before, When::During, When::After];

/// How a stream ended for its reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Eof,
    Reset,
    Other(ErrorKind),
}

/// What one end saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndReport {
    pub bytes: Vec<u8>,
    /// `None` for an end that closed without reading on.
    pub end: Option<End>,
    /// Whether writing after the other's end came to an error; `None` when it was not tried.
    pub refused: Option<bool>,
}

/// What the end that ends sends, and what the other one sends.
pub static FROM_ENDER: LazyLock<Vec<u8>> = LazyLock::new(|| pattern(1, 300_000));
pub static FROM_OTHER: LazyLock<Vec<u8>> = LazyLock::new(|| pattern(2, 400_000));
/// Said after the ender's half-close when everything else was said before.
pub static LAST_WORDS: LazyLock<Vec<u8>> = LazyLock::new(|| pattern(3, 50_000));

fn ender_half() -> (&'static [u8], &'static [u8]) {
    FROM_ENDER.split_at(FROM_ENDER.len() / 2)
}

fn other_half() -> (&'static [u8], &'static [u8]) {
    FROM_OTHER.split_at(FROM_OTHER.len() / 2)
}

/// Bytes that fit every socket buffer, so that writing them never waits for a reader.
const UNREAD: usize = 10_000;

/// How the ends tell each other that they have come to the same point.
pub struct Settled {
    tell: Sender<()>,
    hear: Receiver<()>,
}

impl Settled {
    pub fn pair() -> (Self, Self) {
        let ((tell, heard), (tell_back, hear)) = (channel(), channel());
        (Self { tell, hear }, Self { tell: tell_back, hear: heard })
    }

    fn meet(&self) {
        self.tell.send(()).unwrap();
        self.hear.recv_timeout(LONG).unwrap();
    }
}

/// The end that ends the connection.
pub fn ender(stream: TcpStream, how: How, when: When, settled: &Settled) -> EndReport {
    let mut stream = patient(stream);
    let mut bytes = Vec::new();
    match when {
        // a reset at once might be told as "cannot connect", which is as true
        When::Before if how == How::Rst => settled.meet(),
        When::Before => {}
        When::During => {
            let (first, second) = ender_half();
            bytes = exchange(&stream, first, other_half().0.len());
            settled.meet();
            stream.write_all(second).unwrap();
        }
        When::After => {
            bytes = exchange(&stream, &FROM_ENDER, FROM_OTHER.len());
            settled.meet();
        }
    }
    match how {
        How::Fin => EndReport { bytes, end: None, refused: None },
        How::Rst => {
            reset_on_close(&stream);
            EndReport { bytes, end: None, refused: None }
        }
        How::Half => {
            stream.shutdown(Shutdown::Write).unwrap();
            let end = read_to_end(&mut stream, &mut bytes);
            EndReport { bytes, end: Some(end), refused: None }
        }
    }
}

/// The end to which it happens.
pub fn other(stream: TcpStream, how: How, when: When, settled: &Settled) -> EndReport {
    let mut stream = patient(stream);
    let mut bytes = Vec::new();
    let mut rest: &[u8] = &[];
    match when {
        When::Before if how == How::Rst => settled.meet(),
        When::Before => rest = &FROM_OTHER,
        When::During => {
            let (first, second) = other_half();
            bytes = exchange(&stream, first, ender_half().0.len());
            if how == How::Rst {
                stream.write_all(&second[..UNREAD]).unwrap();
            }
            rest = second;
            settled.meet();
        }
        When::After => {
            bytes = exchange(&stream, &FROM_OTHER, FROM_ENDER.len());
            rest = &LAST_WORDS;
            settled.meet();
        }
    }
    match how {
        How::Rst => {
            let end = read_to_end(&mut stream, &mut bytes);
            EndReport { bytes, end: Some(end), refused: None }
        }
        How::Fin => {
            let end = read_to_end(&mut stream, &mut bytes);
            let refused = write_until_refused(&mut stream);
            EndReport { bytes, end: Some(end), refused: Some(refused) }
        }
        How::Half if when == When::During => {
            // still sending while the end of the other direction comes
            let end = std::thread::scope(|scope| {
                scope.spawn(|| (&stream).write_all(rest).unwrap());
                read_to_end(&mut &stream, &mut bytes)
            });
            EndReport { bytes, end: Some(end), refused: None }
        }
        How::Half => {
            let end = read_to_end(&mut stream, &mut bytes);
            stream.write_all(rest).unwrap();
            EndReport { bytes, end: Some(end), refused: None }
        }
    }
}

/// Sends and reads at the same time.
fn exchange(stream: &TcpStream, send: &[u8], expect: usize) -> Vec<u8> {
    std::thread::scope(|scope| {
        let mut writer = stream;
        scope.spawn(move || writer.write_all(send).unwrap());
        let mut bytes = vec![0; expect];
        let mut reader = stream;
        reader.read_exact(&mut bytes).unwrap();
        bytes
    })
}

pub fn read_to_end(stream: &mut impl Read, bytes: &mut Vec<u8>) -> End {
    match stream.read_to_end(bytes) {
        Ok(_) => End::Eof,
        Err(error) if is_reset(&error) => End::Reset,
        Err(error) => End::Other(error.kind()),
    }
}

fn is_reset(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}

/// Whether the other end's being gone comes to be known by writing.
fn write_until_refused(stream: &mut TcpStream) -> bool {
    let end = Instant::now() + LONG;
    while Instant::now() < end {
        if let Err(error) = stream.write_all(&[0; 4096]) {
            return is_reset(&error);
        }
    }
    false
}
