//! The bytes of a speed test: at most so many, for at most so long, each within the account's limits.

use crate::error::{Failure, FailureKind};
use crate::session::{Session, within};
use crate::transfer::buffered::{BufferedStream, write_all};
use crate::wire::http::body::{self, Body};
use crate::wire::http::head::Request;
use ekiden_linux::host::clock;
use ekiden_model::resources::quota::Direction;
use ekiden_model::units::Span;
use std::io;
use std::time::{Duration, Instant};

/// Bytes of one part in one direction.
const MOST: u64 = 16 << 20;
/// The relay sends for this long.
const SENDING: Duration = Duration::from_secs(4);
/// An upload may take this long: its size is the browser's choice, by what it measured before.
const RECEIVING: Span = Span::from_secs(20);
/// Without a byte for so long it ends, because others wait for its place. A few retransmissions over a satellite take less.
const SILENT: Span = Span::from_secs(5);
/// Seconds that the far end of a tunnel counts.
const COUNTED: u16 = 1;
const AT_ONCE: usize = 16 * 1024;
/// Not in the connection's memory.
static ZEROS: [u8; AT_ONCE] = [0; AT_ONCE];

fn broke(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::QuotaExceeded => Failure::new(FailureKind::Denied, error.to_string()),
        _ => Failure::new(FailureKind::Closed, format!("the client's connection broke: {error}")),
    }
}

/// Sends bytes to the device, which counts them until the connection ends.
pub(super) async fn down(session: &Session) -> Result<(), Failure> {
    let relay = &session.config.settings.name;
    let head = format!(
        "HTTP/1.1 200 OK\r\nVia: 1.1 {relay}\r\nContent-Type: application/octet-stream\r\nCache-Control: no-store\r\n\
         X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    );
    session.answer(head.as_bytes()).await.map_err(|error| broke(&error))?;
    let sending = async {
        let mut left = MOST;
        while left > 0 {
            session.pass(Direction::Down, AT_ONCE).await?;
            write_all(&session.client, &ZEROS).await?;
            session.registration.moved(clock::now(), 0, AT_ONCE as u64, 0);
            left = left.saturating_sub(AT_ONCE as u64);
        }
        Ok::<_, io::Error>(())
    };
    // the end of the time is the end of the answer
    let sent = tokio::time::timeout(SENDING, sending).await.unwrap_or(Ok(()));
    sent.map_err(|error| broke(&error))
}

/// Receives the request's body. Returns its rate, bits per second, from its first byte to its last.
pub(super) async fn up(
    session: &Session,
    request: &Request,
    incoming: &mut BufferedStream,
) -> Result<u64, Failure> {
    let length = match body::of_request(request) {
        Ok(Body::Length(length @ 1..=MOST)) => length,
        _ => {
            let text = format!("a speed test sends 1 to {MOST} bytes, of a length that it says");
            return Err(Failure::new(FailureKind::Malformed(413), text));
        }
    };
    let receiving = async {
        let (mut begun, mut left, mut counted) = (None, length, 0);
        while left > 0 {
            wait_for_bytes(incoming).await?;
            let came = incoming.take_first(left).len() as u64;
            session.pass(Direction::Up, came as usize).await?;
            session.registration.moved(clock::now(), came, 0, 0);
            left -= came;
            // what came with the first has no time
            match begun {
                None => begun = Some(Instant::now()),
                Some(_) => counted += came,
            }
        }
        let took = begun.map_or(Duration::ZERO, |begun| begun.elapsed());
        Ok((counted as f64 * 8.0 / took.as_secs_f64().max(0.001)) as u64)
    };
    within(RECEIVING, receiving).await.map_err(|error| broke(&error))
}

/// Waits until there are bytes to take. Fails at the stream's end, and after a time without a byte.
async fn wait_for_bytes(incoming: &mut BufferedStream) -> io::Result<()> {
    if incoming.bytes().is_empty() && within(SILENT, incoming.fill(AT_ONCE)).await? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(())
}

/// Measures the tunnel to a peer: bits per second from it and to it.
pub(super) async fn through(session: &Session, peer: &str) -> Result<[u64; 2], Failure> {
    let shared = &session.config.shared;
    let (share, limit) = (session.share(), (COUNTED, MOST));
    let measure = async |up| {
        let tunnels = shared.tunnels_to(peer)?;
        tunnels.measure(peer, limit, up, share.as_deref()).await
    };
    Ok([measure(false).await?, measure(true).await?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer::end::End;
    use tokio::net::{TcpListener, TcpStream};

    #[tokio::test(start_paused = true)]
    async fn an_upload_that_falls_silent_ends_long_before_its_time_is_over() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let device = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        let mut incoming = BufferedStream::new(End::from(accepted), b"x".to_vec());
        wait_for_bytes(&mut incoming).await.unwrap();
        incoming.take();
        let begun = tokio::time::Instant::now();
        let silent = wait_for_bytes(&mut incoming).await.unwrap_err();
        assert_eq!(silent.kind(), io::ErrorKind::TimedOut);
        assert!(begun.elapsed() < Duration::from(RECEIVING) / 2);
        drop(device);
        let ended = wait_for_bytes(&mut incoming).await.unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::UnexpectedEof);
    }
}
