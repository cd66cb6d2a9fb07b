//! Bodies on their way through: pumped where only their length counts, read and written anew where
//! they are chunked.

use super::BadMessage;
use super::body::Body;
use super::chunked::{Chunked, Output};
use super::forward::head_limits;
use super::head::Version;
use crate::cache::Copy;
use crate::households::Meter;
use crate::incoming::{Incoming, write_all};
use crate::pump::{Broken, Moved, Pump};
use crate::session::Session;
use ekiden_linux::clock;
use ekiden_model::quota::Direction;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use tokio::net::TcpStream;

/// Why a request did not get through.
pub(super) enum Sending {
    Client(io::Error),
    Origin,
    /// A kept connection was closed when it was to be used again.
    Stale,
    Malformed(BadMessage),
}

/// Sends the request's body.
pub(super) async fn upload(
    session: &Session,
    client: &mut Incoming,
    to: &Arc<TcpStream>,
    body: Body,
) -> Result<(), Sending> {
    match body {
        Body::None | Body::Length(0) | Body::UntilClose => Ok(()),
        Body::Length(n) => {
            let early = client.take_first(n);
            let left = n - early.len() as u64;
            let pump = Pump::new(
                Arc::clone(&client.stream),
                Arc::clone(to),
                early,
                Some(left),
                Meter::new(session.share().as_ref(), Direction::Up),
                Arc::clone(&session.world.means),
            );
            move_all(session, pump, true).await.map_err(|broken| match broken {
                Broken::Source(error) => Sending::Client(error),
                Broken::Sink(_) => Sending::Origin,
            })
        }
        Body::Chunked => {
            let mut chunked = Chunked::new(Output::Chunks, head_limits(session));
            let mut out = Vec::new();
            while !chunked.is_done() {
                if client.bytes().is_empty() {
                    match client.fill(AT_ONCE).await {
                        Ok(0) => return Err(Sending::Client(io::ErrorKind::UnexpectedEof.into())),
                        Ok(_) => {}
                        Err(error) => return Err(Sending::Client(error)),
                    }
                }
                let before = chunked.bytes();
                let used = chunked.read(client.bytes(), &mut out).map_err(Sending::Malformed)?;
                client.consume(used);
                let payload = chunked.bytes() - before;
                session.pass(Direction::Up, payload as usize).await.map_err(Sending::Client)?;
                write_all(to, &out).await.map_err(|_| Sending::Origin)?;
                out.clear();
                session.registered.moved(clock::now(), payload, 0, 0);
            }
            Ok(())
        }
    }
}

/// Bytes of a body read at a time where they are looked at; they and their copy are in memory while they are moved.
const AT_ONCE: usize = 16 * 1024;

/// Moves all of a pump's bytes, counting them.
async fn move_all(session: &Session, mut pump: Pump, up: bool) -> Result<(), Broken> {
    poll_fn(|cx| {
        let mut moved = Moved::default();
        let result = pump.poll(cx, &mut moved);
        if moved.bytes > 0 {
            let (to_origin, to_client) = if up { (moved.bytes, 0) } else { (0, moved.bytes) };
            session.registered.moved(clock::now(), to_origin, to_client, moved.spliced);
        }
        result
    })
    .await
}

/// The response's body, of `length` or up to the end of the connection.
pub(super) async fn pump_down(
    session: &Session,
    origin: &mut Incoming,
    length: Option<u64>,
) -> Result<(), String> {
    let early = match length {
        Some(n) => origin.take_first(n),
        None => origin.take(),
    };
    let left = length.map(|n| n - early.len() as u64);
    let (from, to) = (Arc::clone(&origin.stream), Arc::clone(&session.client));
    let meter = Meter::new(session.share().as_ref(), Direction::Down);
    let pump = Pump::new(from, to, early, left, meter, Arc::clone(&session.world.means));
    move_all(session, pump, false).await.map_err(|broken| match broken {
        Broken::Source(error) if error.kind() == io::ErrorKind::QuotaExceeded => error.to_string(),
        Broken::Source(error) => format!("the server's connection broke in the response: {error}"),
        Broken::Sink(error) => format!("the client's connection broke: {error}"),
    })
}

/// The response's body of `length`, which is kept beside.
pub(super) async fn copied_down(
    session: &Session,
    origin: &mut Incoming,
    length: u64,
    copy: &mut Copy,
) -> Result<(), String> {
    let mut left = length;
    while left > 0 {
        if origin.bytes().is_empty() {
            more(origin).await?;
        }
        let bytes = origin.take_first(left);
        left -= bytes.len() as u64;
        down(session, &bytes, bytes.len()).await?;
        copy.push(&session.world.means, &bytes);
    }
    Ok(())
}

/// Waits for more of a response's body.
async fn more(origin: &mut Incoming) -> Result<(), String> {
    match origin.fill(AT_ONCE).await {
        Ok(0) => Err("the server closed the connection within the response".to_owned()),
        Ok(_) => Ok(()),
        Err(error) => Err(format!("the server's connection broke in the response: {error}")),
    }
}

/// Sends bytes to the client, of which so many are payload, when they may go.
async fn down(session: &Session, bytes: &[u8], payload: usize) -> Result<(), String> {
    session.pass(Direction::Down, payload).await.map_err(|error| error.to_string())?;
    write_all(&session.client, bytes)
        .await
        .map_err(|error| format!("the client's connection broke: {error}"))?;
    session.registered.moved(clock::now(), 0, payload as u64, 0);
    Ok(())
}

/// The response's body, in chunks; the plain bytes are kept beside.
pub(super) async fn chunks_down(
    session: &Session,
    origin: &mut Incoming,
    version: Version,
    mut copy: Option<&mut Copy>,
) -> Result<(), String> {
    let mut plain = Chunked::new(Output::Plain, head_limits(session));
    let output = if version == Version::Http10 { Output::Plain } else { Output::Chunks };
    let mut chunked = Chunked::new(output, head_limits(session));
    let mut out = Vec::new();
    while !chunked.is_done() {
        if origin.bytes().is_empty() {
            more(origin).await?;
        }
        let before = chunked.bytes();
        let used = chunked
            .read(origin.bytes(), &mut out)
            .map_err(|bad| format!("the server's response is malformed: {bad}"))?;
        if let Some(copy) = &mut copy {
            let mut bytes = Vec::new();
            plain.read(&origin.bytes()[..used], &mut bytes).map_err(|bad| bad.to_string())?;
            copy.push(&session.world.means, &bytes);
        }
        origin.consume(used);
        down(session, &out, (chunked.bytes() - before) as usize).await?;
        out.clear();
    }
    Ok(())
}
