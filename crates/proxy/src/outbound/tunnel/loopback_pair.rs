//! Pairs of connected TCP sockets on loopback. Unix socket pairs carry bytes, too, but cannot reset.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Mutex;

#[derive(Debug)]
pub(crate) struct LoopbackPairs {
    listener: Mutex<TcpListener>,
    address: SocketAddr,
}

/// Other programs' connections to the port are closed; after this many in a row, `pair` fails.
const UNCLAIMED: usize = 100;

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
        // a loopback connection is established before it is accepted
        let outside = TcpStream::connect(self.address).await?;
        let ours = outside.local_addr()?;
        for _ in 0..UNCLAIMED {
            let (inside, from) = listener.accept().await?;
            if from == ours {
                inside.set_nodelay(true)?;
                outside.set_nodelay(true)?;
                return Ok((outside, inside));
            }
        }
        Err(io::Error::other("another program keeps connecting to the port"))
    }
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
}
