//! Pairs of connected TCP sockets on loopback. A pair of Unix sockets would do for bytes, but knows no RST.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Mutex;

/// Makes pairs, one at a time.
#[derive(Debug)]
pub(crate) struct Plug {
    listener: Mutex<TcpListener>,
    address: SocketAddr,
}

/// Strangers that connect to the port are closed; after so many in a row something is wrong.
const STRANGERS: usize = 100;

impl Plug {
    /// Listens on a port of loopback that the kernel chooses.
    pub(crate) fn new() -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
        let listener = socket.listen(64)?;
        let address = listener.local_addr()?;
        Ok(Self { listener: Mutex::new(listener), address })
    }

    /// Two ends of one connection.
    pub(crate) async fn pair(&self) -> io::Result<(TcpStream, TcpStream)> {
        let listener = self.listener.lock().await;
        // on loopback it stands before it is accepted
        let outside = TcpStream::connect(self.address).await?;
        let ours = outside.local_addr()?;
        for _ in 0..STRANGERS {
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
    async fn a_stranger_is_not_taken_for_the_other_end() {
        let plug = Plug::new().unwrap();
        let _stranger = TcpStream::connect(plug.address).await.unwrap();
        let (mut outside, mut inside) = plug.pair().await.unwrap();
        outside.write_all(b"hello").await.unwrap();
        let mut read = [0; 5];
        inside.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"hello");
    }
}
