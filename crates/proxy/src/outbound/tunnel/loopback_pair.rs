//! Pairs of connected TCP sockets on loopback. Unix socket pairs carry bytes, too, but cannot reset.

use ekiden_tunnel::trust::random;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Mutex;

#[derive(Debug)]
pub(crate) struct LoopbackPairs {
    listener: Mutex<TcpListener>,
    address: SocketAddr,
}

/// Other programs' connections to the port are closed; after this many in a row, `pair` fails.
const UNCLAIMED: usize = 100;
/// Where the kernel drops the last packet of a handshake, one end is connected and the other never accepted.
const PATIENCE: Duration = Duration::from_secs(2);
const TRIES: usize = 3;
/// A connection that stands can be accepted at once, behind those before it.
const ARRIVING: Duration = Duration::from_millis(5);
/// What was said at one end is at the other at once.
const HEARD: Duration = Duration::from_millis(200);

impl LoopbackPairs {
    /// Listens on a loopback port that the kernel chooses.
    pub(crate) fn new() -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
        let listener = socket.listen(64)?;
        let address = listener.local_addr()?;
        Ok(Self { listener: Mutex::new(listener), address })
    }

    /// Makes two ends of one connection.
    pub(crate) async fn pair(&self) -> io::Result<(TcpStream, TcpStream)> {
        let listener = self.listener.lock().await;
        for _ in 0..TRIES {
            let made = tokio::time::timeout(PATIENCE, self.connect(&listener)).await;
            if let Ok(made) = made {
                return made;
            }
        }
        Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "this relay's own connections on loopback do not arrive; does a firewall drop them?",
        ))
    }

    async fn connect(&self, listener: &TcpListener) -> io::Result<(TcpStream, TcpStream)> {
        let connecting = TcpStream::connect(self.address);
        tokio::pin!(connecting);
        let mut accepted = Vec::new();
        let outside = loop {
            tokio::select! {
                connected = &mut connecting => break connected?,
                // others' connections may fill the queue
                one = listener.accept(), if accepted.len() < UNCLAIMED => accepted.push(one?),
            }
        };
        let ours = outside.local_addr()?;
        while !accepted.iter().any(|(_, from)| *from == ours) && accepted.len() < UNCLAIMED {
            match tokio::time::timeout(ARRIVING, listener.accept()).await {
                Ok(one) => accepted.push(one?),
                Err(_) => break,
            }
        }
        let inside = match accepted.iter().position(|(_, from)| *from == ours) {
            Some(nth) => accepted.swap_remove(nth).0,
            None => other_end(&outside, listener, accepted).await?,
        };
        inside.set_nodelay(true)?;
        outside.set_nodelay(true)?;
        Ok((outside, inside))
    }
}

/// The connection at which comes out what is said at the other end: a firewall that masquerades on loopback gives
/// connections other addresses. All that arrived are heard at once, so that silent ones cost no more time than one.
async fn other_end(
    outside: &TcpStream,
    listener: &TcpListener,
    accepted: Vec<(TcpStream, SocketAddr)>,
) -> io::Result<TcpStream> {
    let word: [u8; 32] = random().map_err(io::Error::other)?;
    outside.writable().await?;
    if outside.try_write(&word)? != word.len() {
        return Err(io::Error::other("a new connection on loopback takes no bytes"));
    }
    let mut candidates: Vec<_> = accepted.into_iter().map(|(one, _)| (one, Vec::new())).collect();
    let end = Instant::now() + HEARD;
    while Instant::now() < end {
        for nth in (0..candidates.len()).rev() {
            let (one, heard): &mut (TcpStream, Vec<u8>) = &mut candidates[nth];
            let mut room = [0; 32];
            match one.try_read(&mut room[heard.len()..]) {
                Ok(length @ 1..) => heard.extend(&room[heard.len()..][..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(0) | Err(_) => {
                    candidates.swap_remove(nth);
                    continue;
                }
            }
            if *heard == word {
                return Ok(candidates.swap_remove(nth).0);
            }
            if !word.starts_with(heard) {
                candidates.swap_remove(nth);
            }
        }
        // what was late
        if let Ok(one) = tokio::time::timeout(ARRIVING, listener.accept()).await {
            candidates.push((one?.0, Vec::new()));
        }
    }
    Err(io::Error::other("another program keeps connecting to the port"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn ignores_other_connections_to_the_loopback_port() {
        let pairs = LoopbackPairs::new().unwrap();
        let _other = TcpStream::connect(pairs.address).await.unwrap();
        let (mut outside, mut inside) = pairs.pair().await.unwrap();
        outside.write_all(b"hello").await.unwrap();
        let mut read = [0; 5];
        inside.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"hello");
    }

    #[tokio::test]
    async fn a_queue_that_others_filled_is_emptied() {
        let pairs = LoopbackPairs::new().unwrap();
        let mut others = Vec::new();
        let connect = || TcpStream::connect(pairs.address);
        // until the kernel takes no more, which it shows by silence
        while let Ok(other) = tokio::time::timeout(PATIENCE / 4, connect()).await {
            others.push(other.unwrap());
            assert!(others.len() < 2 * UNCLAIMED);
        }
        // they stay, and say nothing
        let made = tokio::time::timeout(2 * PATIENCE, pairs.pair()).await;
        made.expect("it waits for ever").unwrap();
        drop(others);
    }

    /// As where a firewall masquerades: the connection comes from another address than it was made from.
    #[tokio::test]
    async fn an_end_is_known_by_what_is_said_where_its_address_is_rewritten() {
        let mut pairs = LoopbackPairs::new().unwrap();
        let (other, rewriting) =
            (pairs.address, TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap());
        pairs.address = rewriting.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut one, _) = rewriting.accept().await.unwrap();
            let mut other = TcpStream::connect(other).await.unwrap();
            tokio::io::copy_bidirectional(&mut one, &mut other).await
        });
        let (mut outside, mut inside) = pairs.pair().await.unwrap();
        outside.write_all(b"hello").await.unwrap();
        let mut read = [0; 5];
        inside.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"hello");
    }
}
