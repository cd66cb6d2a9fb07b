//! Datagrams over TLS on TCP, where UDP is blocked (docs/book/src/design/protocol.md, "Over TCP").
//!
//! Each goes with its length, from core to core. All above stays the same: lanes, frames, rates, trust. QUIC sees delay
//! in place of TCP's losses.

use crate::driver::carrier::CarrierEnd;
use bytes::{Bytes, BytesMut};
use std::io;
use std::time::Duration;
use tokio::io::{
    AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, ReadHalf, WriteHalf,
};
use tokio::sync::mpsc;

/// The carrier's name in ALPN (RFC 7301).
pub(crate) const ALPN: &[u8] = b"ekiden-tcp/1";
/// Silence after which the connection is dead. Tunnels send something every two seconds.
pub(crate) const SILENCE: Duration = Duration::from_secs(10);
/// Datagrams that wait are written together up to so many bytes: a record of TLS.
const TOGETHER: usize = 16_384;

/// Copies until the connection ends, breaks, is silent for too long or brings too much; returns the reason.
pub(crate) async fn carry<S: AsyncRead + AsyncWrite>(
    stream: S,
    end: &mut CarrierEnd,
    silence: Duration,
) -> io::Error {
    let CarrierEnd { inlet, outgoing } = end;
    let (reader, writer) = tokio::io::split(stream);
    let ended = tokio::select! {
        ended = unpack(reader, |datagram| inlet.deliver(datagram), silence) => ended,
        ended = pack(writer, outgoing) => ended,
    };
    ended.err().unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

async fn unpack<S: AsyncRead>(
    reader: ReadHalf<S>,
    mut deliver: impl FnMut(BytesMut) -> io::Result<()>,
    silence: Duration,
) -> io::Result<()> {
    let mut reader = BufReader::with_capacity(TOGETHER, reader);
    loop {
        let datagram = tokio::time::timeout(silence, async {
            let length = usize::from(reader.read_u16().await?);
            let mut datagram = BytesMut::zeroed(length);
            reader.read_exact(&mut datagram).await.map(|_| datagram)
        });
        deliver(datagram.await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??)?;
    }
}

/// From the core to the connection. While that is full, datagrams wait in the queue, which is short and so shows early
/// that the path is full.
async fn pack<S: AsyncWrite>(
    mut writer: WriteHalf<S>,
    outgoing: &mut mpsc::Receiver<Bytes>,
) -> io::Result<()> {
    let mut packed = Vec::with_capacity(2 * TOGETHER);
    while let Some(first) = outgoing.recv().await {
        packed.clear();
        let mut next = Some(first);
        while let Some(datagram) = next {
            // a datagram of QUIC is never longer
            let told = u16::try_from(datagram.len()).unwrap_or(u16::MAX);
            packed.extend_from_slice(&told.to_be_bytes());
            packed.extend_from_slice(&datagram);
            next = if packed.len() < TOGETHER { outgoing.try_recv().ok() } else { None };
        }
        writer.write_all(&packed).await?;
        writer.flush().await?;
    }
    Err(io::ErrorKind::BrokenPipe.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection's end that is carried to and from a pair of queues.
    fn carried(
        stream: tokio::io::DuplexStream,
        silence: Duration,
    ) -> (mpsc::Sender<Bytes>, mpsc::Receiver<BytesMut>, tokio::task::JoinHandle<io::Error>) {
        let (sender, mut outgoing) = mpsc::channel(10);
        let (delivered, incoming) = mpsc::channel(10);
        let task = tokio::spawn(async move {
            let (reader, writer) = tokio::io::split(stream);
            let deliver = |datagram| delivered.try_send(datagram).map_err(io::Error::other);
            let ended = tokio::select! {
                ended = unpack(reader, deliver, silence) => ended,
                ended = pack(writer, &mut outgoing) => ended,
            };
            ended.unwrap_err()
        });
        (sender, incoming, task)
    }

    #[tokio::test]
    async fn datagrams_come_out_as_they_went_in() {
        let (one, other) = tokio::io::duplex(1_000);
        let (near, mut from_far, _one) = carried(one, SILENCE);
        let (far, mut from_near, _other) = carried(other, SILENCE);
        for length in [1, 1_200, 0, 1_452, 60_000] {
            let sent: Bytes = (0..length).map(|n| (n * 7) as u8).collect();
            near.send(sent.clone()).await.unwrap();
            assert_eq!(from_near.recv().await.unwrap(), sent);
            far.send(sent.clone()).await.unwrap();
            assert_eq!(from_far.recv().await.unwrap(), sent);
        }
    }

    #[tokio::test]
    async fn silence_and_an_end_are_told() {
        let (one, other) = tokio::io::duplex(1_000);
        drop(other);
        let (_sender, _incoming, ended) = carried(one, SILENCE);
        assert_eq!(ended.await.unwrap().kind(), io::ErrorKind::UnexpectedEof);
        let (one, _other) = tokio::io::duplex(1_000);
        let (_sender, _incoming, ended) = carried(one, Duration::from_millis(10));
        assert_eq!(ended.await.unwrap().kind(), io::ErrorKind::TimedOut);
    }
}
