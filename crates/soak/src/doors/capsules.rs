//! UDP over HTTP/1.1 (RFC 9298): datagrams in capsules of a stream (RFC 9297).

use super::raw::answered;
use super::{Clients, credentials};
use crate::exchange::{Failure, patiently};
use crate::laws::Door;
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// The largest value of a capsule that is read.
const LARGEST: u64 = 65_536;

trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// A stream of capsules to the relay and from it.
pub(super) struct Capsules {
    stream: Box<dyn Duplex>,
    came: Vec<u8>,
}

impl Capsules {
    /// Asks for a name and port, in the clear or within TLS.
    pub(super) async fn open(
        clients: &Clients,
        door: Door,
        (name, port): &(String, u16),
        clear: bool,
    ) -> io::Result<Self> {
        let mut stream: Box<dyn Duplex> = if clear {
            Box::new(clients.counted(clients.connect().await?, door))
        } else {
            Box::new(clients.secure(b"http/1.1", door).await?)
        };
        let head = format!(
            "GET /.well-known/masque/udp/{name}/{port}/ HTTP/1.1\r\nHost: relay.test\r\nConnection: Upgrade\r\n\
             Upgrade: connect-udp\r\nCapsule-Protocol: ?1\r\nProxy-Authorization: {}\r\n\r\n",
            credentials(door)
        );
        let what = "the request for UDP";
        patiently(what, stream.write_all(head.as_bytes())).await?;
        patiently(what, stream.flush()).await?;
        answered(&mut stream, what, "HTTP/1.1 101 ").await?;
        Ok(Self { stream, came: Vec::new() })
    }

    pub(super) async fn send(&mut self, datagram: &[u8]) -> Result<(), Failure> {
        patiently("a capsule", self.stream.write_all(&capsule(datagram))).await?;
        Ok(patiently("a capsule", self.stream.flush()).await?)
    }

    /// The next datagram. What a dropped call has read is kept.
    pub(super) async fn receive(&mut self) -> Result<Vec<u8>, Failure> {
        loop {
            if let Some(datagram) = take(&mut self.came)? {
                return Ok(datagram);
            }
            if self.stream.read_buf(&mut self.came).await? == 0 {
                return Err(Failure::Ended("the stream of capsules ended".to_owned()));
            }
        }
    }
}

/// A DATAGRAM capsule: type 0, the length, the context 0 (RFC 9297 section 3.5, RFC 9298 section 5).
fn capsule(datagram: &[u8]) -> Vec<u8> {
    // of two bytes; a datagram is no longer than a packet
    let length = 0x4000 | (datagram.len() as u16 + 1);
    [&[0], &length.to_be_bytes()[..], &[0], datagram].concat()
}

/// Takes the next whole datagram from the front. Capsules of other types and contexts are skipped.
fn take(came: &mut Vec<u8>) -> Result<Option<Vec<u8>>, Failure> {
    loop {
        let Some((kind, begins)) = integer(came) else { return Ok(None) };
        let Some((length, more)) = came.get(begins..).and_then(integer) else { return Ok(None) };
        if length > LARGEST {
            return Err(Failure::Wrong(format!("a capsule of {length} bytes")));
        }
        let begins = begins + more;
        let ends = begins + length as usize;
        let Some(value) = came.get(begins..ends) else { return Ok(None) };
        let datagram = match (kind, value) {
            (0, [0, datagram @ ..]) => Some(datagram.to_vec()),
            _ => None,
        };
        came.drain(..ends);
        if datagram.is_some() {
            return Ok(datagram);
        }
    }
}

/// An integer of QUIC (RFC 9000 section 16), and its length.
fn integer(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    let length = 1 << (first >> 6);
    let number = bytes.get(..length)?.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    Some((number & (u64::MAX >> (66 - 8 * length)), length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_come_out_whole_however_they_arrive() {
        let unknown = [0x3f, 2, 9, 9];
        let sent = [&capsule(b"one")[..], &unknown, &capsule(b""), &capsule(&[7; 1_200])].concat();
        for step in [1, 2, 5, 2_000] {
            let (mut came, mut datagrams) = (Vec::new(), Vec::new());
            for part in sent.chunks(step) {
                came.extend_from_slice(part);
                while let Some(datagram) = take(&mut came).unwrap() {
                    datagrams.push(datagram);
                }
            }
            assert_eq!(datagrams, [b"one".to_vec(), Vec::new(), vec![7; 1_200]]);
            assert!(came.is_empty());
        }
    }

    #[test]
    fn integers_of_every_length() {
        // RFC 9000 appendix A.1
        assert_eq!(integer(&[0x25]), Some((37, 1)));
        assert_eq!(integer(&[0x7b, 0xbd]), Some((15_293, 2)));
        assert_eq!(integer(&[0x9d, 0x7f, 0x3e, 0x7d]), Some((494_878_333, 4)));
        let eight = [0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c];
        assert_eq!(integer(&eight), Some((151_288_809_941_952_652, 8)));
        assert_eq!(integer(&[0x40]), None);
    }
}
