//! Bodies: pumped where only the length matters, and parsed and written anew where they are chunked.

use super::outcome::Broken;
use super::plan::head_limits;
use crate::cache::PassingResponse;
use crate::policy::quota::Meter;
use crate::resources::HeldMemory;
use crate::session::Session;
use crate::transfer::buffered::{BufferedStream, write_all};
use crate::transfer::end::End;
use crate::transfer::pump::{MovedBytes, Pump, PumpError};
use crate::wire::http::BadMessage;
use crate::wire::http::body::Body;
use crate::wire::http::chunked::{Chunked, Output};
use crate::wire::http::head::Version;
use ekiden_linux::host::clock;
use ekiden_model::resources::quota::Direction;
use std::future::poll_fn;
use std::io;

pub(super) enum UploadError {
    Client(io::Error),
    Origin,
    /// The server closed a reused connection.
    Stale,
    Malformed(BadMessage),
}

pub(super) async fn upload(
    session: &Session,
    client: &mut BufferedStream,
    to: &End,
    body: Body,
) -> Result<(), UploadError> {
    match body {
        Body::None | Body::Length(0) | Body::UntilClose => Ok(()),
        Body::Length(n) => {
            let early = client.take_first(n);
            let left = n - early.len() as u64;
            let pump = Pump::new(
                client.stream.clone(),
                to.clone(),
                early,
                Some(left),
                Meter::new(session.share().as_ref(), Direction::Up),
                session.transfer(),
            );
            move_all(session, pump, true, None).await.map_err(|broken| match broken {
                PumpError::Source(error) => UploadError::Client(error),
                PumpError::Sink(_) => UploadError::Origin,
            })
        }
        Body::Chunked => {
            let mut chunked = Chunked::new(Output::Chunks, head_limits(session));
            let (mut framed, mut trailers) = (Framed::default(), TrailerMemory::default());
            // what came with the head counts with that
            let mut room = None;
            while !chunked.is_done() {
                if client.bytes().is_empty() {
                    let read = part(session, client, &mut room).await;
                    if read.map_err(UploadError::Client)? == 0 {
                        return Err(UploadError::Client(io::ErrorKind::UnexpectedEof.into()));
                    }
                }
                let (before, mut out) = (chunked.bytes(), Vec::new());
                let used =
                    chunked.read(client.bytes(), &mut out).map_err(UploadError::Malformed)?;
                client.consume(used);
                let trailing = trailers.count(session, chunked.memory());
                trailing.await.map_err(UploadError::Malformed)?;
                let payload = chunked.bytes() - before;
                let bytes = framed.on_part(used, out.len());
                session.pass(Direction::Up, bytes).await.map_err(UploadError::Client)?;
                write_all(to, &out).await.map_err(|_| UploadError::Origin)?;
                session.registration.moved(clock::now(), payload, 0, 0);
            }
            Ok(())
        }
    }
}

/// What of a parsed body counts: it as it was read, or as it was written, whichever is longer. A part that is not
/// written yet, such as half a trailer, is once written later.
#[derive(Debug, Default)]
struct Framed {
    read: u64,
    written: u64,
}

impl Framed {
    /// Bytes that count for the next part.
    fn on_part(&mut self, read: usize, written: usize) -> usize {
        let before = self.read.max(self.written);
        self.read += read as u64;
        self.written += written as u64;
        // at most the larger of both
        (self.read.max(self.written) - before) as usize
    }
}

/// The memory of trailers that are not whole.
#[derive(Debug, Default)]
struct TrailerMemory(Option<HeldMemory>);

impl TrailerMemory {
    async fn count(&mut self, session: &Session, bytes: usize) -> Result<(), BadMessage> {
        let counted = match &mut self.0 {
            _ if bytes == 0 => return Ok(()),
            Some(held) => held.resize(bytes).await,
            none => {
                *none = session.permit.hold(bytes).await;
                none.is_some()
            }
        };
        let what = "no memory is left for the trailers of a body";
        counted.then_some(()).ok_or(BadMessage { status: 503, what })
    }
}

/// Bytes of a parsed body per read; they and their copy are in memory until they are sent.
const AT_ONCE: usize = 16 * 1024;
/// The same where no memory is free to count them.
const FEW: usize = 4 * 1024;

/// Reads the next part of a body, and counts it until the one after it. While nothing comes, nothing counts.
async fn part(
    session: &Session,
    from: &mut BufferedStream,
    room: &mut Option<HeldMemory>,
) -> io::Result<usize> {
    *room = None;
    from.stream.readable().await?;
    *room = session.permit.hold_if_free(2 * AT_ONCE);
    from.fill(if room.is_some() { AT_ONCE } else { FEW }).await
}

/// `early`: memory of bytes that the pump begins with, and how many they are.
async fn move_all(
    session: &Session,
    mut pump: Pump,
    up: bool,
    mut early: Option<(HeldMemory, u64)>,
) -> Result<(), PumpError> {
    poll_fn(|cx| {
        let mut moved = MovedBytes::default();
        let result = pump.poll(cx, &mut moved);
        if moved.bytes > 0 {
            early = early.take().and_then(|(held, left)| {
                let left = left.saturating_sub(moved.bytes);
                (left > 0).then_some((held, left))
            });
            let (to_origin, to_client) = if up { (moved.bytes, 0) } else { (0, moved.bytes) };
            session.registration.moved(clock::now(), to_origin, to_client, moved.spliced);
        }
        result
    })
    .await
}

pub(super) async fn pump_down(
    session: &Session,
    origin: &mut BufferedStream,
    length: Option<u64>,
    held: HeldMemory,
) -> Result<(), Broken> {
    let early = match length {
        Some(n) => origin.take_first(n),
        None => origin.take(),
    };
    let left = length.map(|n| n - early.len() as u64);
    let (from, to) = (origin.stream.clone(), session.client.clone());
    let meter = Meter::new(session.share().as_ref(), Direction::Down);
    let held = (!early.is_empty()).then_some((held, early.len() as u64));
    let pump = Pump::new(from, to, early, left, meter, session.transfer());
    move_all(session, pump, false, held).await.map_err(|broken| match broken {
        PumpError::Source(error) if error.kind() == io::ErrorKind::QuotaExceeded => {
            Broken::by_relay(error)
        }
        PumpError::Source(error) => server_broke(&error),
        PumpError::Sink(error) => Broken::by_client(error),
    })
}

/// Sends a body of `length` to the client, and copies it for the cache. `early`: memory of bytes that came already.
pub(super) async fn copied_down(
    session: &Session,
    origin: &mut BufferedStream,
    length: u64,
    copy: &mut PassingResponse<'_>,
    early: HeldMemory,
) -> Result<(), Broken> {
    let (mut left, mut room) = (length, Some(early));
    while left > 0 {
        if origin.bytes().is_empty() {
            more(session, origin, &mut room).await?;
        }
        let bytes = origin.take_first(left);
        left -= bytes.len() as u64;
        copy.push(&bytes);
        if left == 0 {
            copy.store();
        }
        down(session, &bytes, bytes.len(), bytes.len()).await?;
    }
    Ok(())
}

async fn more(
    session: &Session,
    origin: &mut BufferedStream,
    room: &mut Option<HeldMemory>,
) -> Result<(), Broken> {
    match part(session, origin, room).await {
        Ok(0) => {
            Err(Broken::by_destination("the server closed the connection within the response"))
        }
        Ok(_) => Ok(()),
        Err(error) => Err(server_broke(&error)),
    }
}

fn server_broke(error: &io::Error) -> Broken {
    Broken::by_destination(format!("the server's connection broke in the response: {error}"))
}

/// Sends bytes to the client when the account's limits allow as many as `count`.
async fn down(session: &Session, bytes: &[u8], count: usize, payload: usize) -> Result<(), Broken> {
    session.pass(Direction::Down, count).await.map_err(Broken::by_relay)?;
    write_all(&session.client, bytes).await.map_err(Broken::by_client)?;
    session.registration.moved(clock::now(), 0, payload as u64, 0);
    Ok(())
}

/// Sends a chunked body to the client, and copies the plain bytes for the cache. `early`: memory of bytes that came
/// already.
pub(super) async fn chunks_down(
    session: &Session,
    origin: &mut BufferedStream,
    version: Version,
    mut copy: Option<&mut PassingResponse<'_>>,
    early: HeldMemory,
) -> Result<(), Broken> {
    let mut plain = Chunked::new(Output::Plain, head_limits(session));
    let output = if version == Version::Http10 { Output::Plain } else { Output::Chunks };
    let mut chunked = Chunked::new(output, head_limits(session));
    let (mut framed, mut trailers) = (Framed::default(), TrailerMemory::default());
    let mut room = Some(early);
    while !chunked.is_done() {
        if origin.bytes().is_empty() {
            more(session, origin, &mut room).await?;
        }
        let (before, mut out) = (chunked.bytes(), Vec::new());
        let used = match chunked.read(origin.bytes(), &mut out) {
            Ok(used) => used,
            Err(bad) => {
                let read = origin.bytes().len();
                let passed = session.pass(Direction::Down, read).await;
                passed.map_err(Broken::by_relay)?;
                let why = format!("the server's response is malformed: {bad}");
                return Err(Broken::by_destination(why));
            }
        };
        if let Some(copy) = &mut copy {
            let mut bytes = Vec::new();
            plain
                .read(&origin.bytes()[..used], &mut bytes)
                .map_err(|bad| Broken::by_destination(bad.to_string()))?;
            copy.push(&bytes);
            if plain.is_done() {
                copy.store();
            }
        }
        origin.consume(used);
        let trailing = trailers.count(session, chunked.memory() + plain.memory());
        trailing.await.map_err(Broken::by_relay)?;
        let count = framed.on_part(used, out.len());
        down(session, &out, count, (chunked.bytes() - before) as usize).await?;
    }
    Ok(())
}
