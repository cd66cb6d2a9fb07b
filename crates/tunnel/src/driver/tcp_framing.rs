//! Datagrams over TLS on TCP, where UDP is blocked (docs/book/src/design/protocol.md, "Over TCP").
//!
//! Each goes with its length between the relay's UDP socket and one on loopback at each end. All
//! above stays the same: lanes, frames, rates, trust. QUIC sees delay in place of TCP's losses.

use std::io;
use std::time::Duration;
use tokio::io::{
    AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, ReadHalf, WriteHalf,
};
use tokio::net::UdpSocket;

/// The carrier's name in ALPN (RFC 7301).
pub(crate) const ALPN: &[u8] = b"ekiden-tcp/1";
/// Silence after which the connection is dead. Tunnels send something every two seconds.
pub(crate) const SILENCE: Duration = Duration::from_secs(10);
/// The largest datagram that a length of two bytes can describe.
const LARGEST: usize = 65_535;
/// Datagrams that wait are written together up to so many bytes: a record of TLS.
const TOGETHER: usize = 16_384;

/// Copies until the connection ends, breaks or is silent for too long; returns the reason.
pub(crate) async fn carry<S: AsyncRead + AsyncWrite>(
    stream: S,
    socket: &UdpSocket,
    silence: Duration,
) -> io::Error {
    let (reader, writer) = tokio::io::split(stream);
    let ended = tokio::select! {
        ended = unpack(reader, socket, silence) => ended,
        ended = pack(writer, socket) => ended,
    };
    ended.err().unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

async fn unpack<S: AsyncRead>(
    reader: ReadHalf<S>,
    socket: &UdpSocket,
    silence: Duration,
) -> io::Result<()> {
    let mut reader = BufReader::with_capacity(TOGETHER, reader);
    let mut datagram = vec![0; LARGEST];
    loop {
        let length = tokio::time::timeout(silence, async {
            let length = usize::from(reader.read_u16().await?);
            reader.read_exact(&mut datagram[..length]).await
        });
        let length = length.await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        // a datagram that is not accepted is lost, as on any link
        let _ = socket.send(&datagram[..length]).await;
    }
}

/// From the socket to the connection. While that is full, datagrams wait in the socket, whose short
/// queue shows early that the path is full.
async fn pack<S: AsyncWrite>(mut writer: WriteHalf<S>, socket: &UdpSocket) -> io::Result<()> {
    let mut datagram = vec![0; LARGEST];
    let mut packed = Vec::with_capacity(2 * TOGETHER);
    loop {
        socket.readable().await?;
        packed.clear();
        while packed.len() < TOGETHER {
            match socket.try_recv(&mut datagram) {
                Ok(length) => {
                    // a datagram of UDP is never longer
                    let told = u16::try_from(length).unwrap_or(u16::MAX);
                    packed.extend_from_slice(&told.to_be_bytes());
                    packed.extend_from_slice(&datagram[..length]);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // the receiver was gone when the one before was sent
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) => return Err(error),
            }
        }
        if !packed.is_empty() {
            writer.write_all(&packed).await?;
            writer.flush().await?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn sockets() -> (UdpSocket, UdpSocket) {
        let one = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let other = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        one.connect(other.local_addr().unwrap()).await.unwrap();
        other.connect(one.local_addr().unwrap()).await.unwrap();
        (one, other)
    }

    #[tokio::test]
    async fn datagrams_come_out_as_they_went_in() {
        let ((near, near_carrier), (far_carrier, far)) = (sockets().await, sockets().await);
        let (one, other) = tokio::io::duplex(1_000);
        tokio::spawn(async move { carry(one, &near_carrier, SILENCE).await });
        tokio::spawn(async move { carry(other, &far_carrier, SILENCE).await });
        let mut received = vec![0; LARGEST];
        for length in [1, 1_200, 0, 1_452, 60_000] {
            let sent: Vec<u8> = (0..length).map(|n| (n * 7) as u8).collect();
            near.send(&sent).await.unwrap();
            let n = far.recv(&mut received).await.unwrap();
            assert_eq!(received[..n], sent);
            far.send(&sent).await.unwrap();
            let n = near.recv(&mut received).await.unwrap();
            assert_eq!(received[..n], sent);
        }
    }

    #[tokio::test]
    async fn silence_and_an_end_are_told() {
        let (_near, carrier) = sockets().await;
        let (one, other) = tokio::io::duplex(1_000);
        drop(other);
        assert_eq!(carry(one, &carrier, SILENCE).await.kind(), io::ErrorKind::UnexpectedEof);
        let (one, _other) = tokio::io::duplex(1_000);
        let ended = carry(one, &carrier, Duration::from_millis(10)).await;
        assert_eq!(ended.kind(), io::ErrorKind::TimedOut);
    }
}
