//! Bodies on their way through: pumped where only their length counts, read and written anew where
//! they are chunked.

use super::BadMessage;
use super::body::Body;
use super::chunked::{Chunked, Output};
use super::forward::head_limits;
use super::head::Version;
use crate::incoming::{Incoming, write_all};
use crate::pump::{Broken, Moved, Pump};
use crate::session::Session;
use ekiden_linux::clock;
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
                    match client.fill(CHUNKED_AT_ONCE).await {
                        Ok(0) => return Err(Sending::Client(io::ErrorKind::UnexpectedEof.into())),
                        Ok(_) => {}
                        Err(error) => return Err(Sending::Client(error)),
                    }
                }
                let before = chunked.bytes();
                let used = chunked.read(client.bytes(), &mut out).map_err(Sending::Malformed)?;
                client.consume(used);
                write_all(to, &out).await.map_err(|_| Sending::Origin)?;
                out.clear();
                session.registered.moved(clock::now(), chunked.bytes() - before, 0, 0);
            }
            Ok(())
        }
    }
}

/// Bytes of a chunked body read at a time; they and their copy are in memory while they are moved.
const CHUNKED_AT_ONCE: usize = 16 * 1024;

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
    let pump = Pump::new(from, to, early, left, Arc::clone(&session.world.means));
    move_all(session, pump, false).await.map_err(|broken| match broken {
        Broken::Source(error) => format!("the server's connection broke in the response: {error}"),
        Broken::Sink(error) => format!("the client's connection broke: {error}"),
    })
}

/// The response's body, in chunks.
pub(super) async fn chunks_down(
    session: &Session,
    origin: &mut Incoming,
    version: Version,
) -> Result<(), String> {
    let output = if version == Version::Http10 { Output::Plain } else { Output::Chunks };
    let mut chunked = Chunked::new(output, head_limits(session));
    let mut out = Vec::new();
    while !chunked.is_done() {
        if origin.bytes().is_empty() {
            match origin.fill(CHUNKED_AT_ONCE).await {
                Ok(0) => {
                    return Err(
                        "the server closed the connection within a chunked response".to_owned()
                    );
                }
                Ok(_) => {}
                Err(error) => {
                    return Err(format!("the server's connection broke in the response: {error}"));
                }
            }
        }
        let before = chunked.bytes();
        let used = chunked
            .read(origin.bytes(), &mut out)
            .map_err(|bad| format!("the server's response is malformed: {bad}"))?;
        origin.consume(used);
        write_all(&session.client, &out)
            .await
            .map_err(|error| format!("the client's connection broke: {error}"))?;
        out.clear();
        session.registered.moved(clock::now(), 0, chunked.bytes() - before, 0);
    }
    Ok(())
}
