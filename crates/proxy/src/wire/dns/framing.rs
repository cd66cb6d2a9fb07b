//! Messages on a stream, each behind its length (RFC 1035 §4.2.2).

use super::HEADER;
use bytes::BufMut;
use bytes::buf::Limit;

/// Bytes that are read at a time.
const AT_ONCE: usize = 4_096;

/// A message behind its length. `None`: it has too many bytes.
pub fn framed(message: &[u8]) -> Option<Vec<u8>> {
    let length = u16::try_from(message.len()).ok()?;
    let mut framed = length.to_be_bytes().to_vec();
    framed.extend_from_slice(message);
    Some(framed)
}

/// A message is shorter than a header: what follows is not to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooShort;

/// What has arrived of a stream.
#[derive(Debug, Default)]
pub struct Messages {
    bytes: Vec<u8>,
    /// Where the next message begins.
    at: usize,
}

impl Messages {
    /// Room for some bytes that arrive.
    pub fn room(&mut self) -> Limit<&mut Vec<u8>> {
        // once for all messages that were taken
        self.bytes.drain(..self.at);
        self.at = 0;
        self.bytes.reserve(AT_ONCE);
        (&mut self.bytes).limit(AT_ONCE)
    }

    /// Bytes of what has arrived and was not taken.
    pub const fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// The first message, if it is there as a whole.
    pub fn take(&mut self) -> Result<Option<Vec<u8>>, TooShort> {
        let left = &self.bytes[self.at..];
        let &[high, low, ref rest @ ..] = left else { return Ok(None) };
        let length = usize::from(u16::from_be_bytes([high, low]));
        if length < HEADER {
            return Err(TooShort);
        }
        let message = rest.get(..length).map(<[u8]>::to_vec);
        if message.is_some() {
            self.at += 2 + length;
        }
        Ok(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_cut_out_of_a_stream_however_it_comes() {
        let messages = [vec![1; 12], vec![2; 300], vec![4; 20]];
        let stream: Vec<u8> = messages.iter().flat_map(|one| framed(one).unwrap()).collect();
        for at_once in [1, 7, 400] {
            let (mut received, mut taken) = (Messages::default(), Vec::new());
            for bytes in stream.chunks(at_once) {
                received.room().put_slice(bytes);
                while let Some(message) = received.take().unwrap() {
                    taken.push(message);
                }
            }
            assert_eq!(taken, messages);
            assert_eq!(received.left(), 0);
            received.room();
            assert!(received.bytes.is_empty());
        }
        assert!(framed(&vec![0; 70_000]).is_none());
    }

    #[test]
    fn a_message_without_a_header_is_refused() {
        let mut received = Messages::default();
        received.room().put_slice(&framed(&[1; 11]).unwrap());
        assert_eq!((received.take(), received.take()), (Err(TooShort), Err(TooShort)));
        assert_eq!(received.left(), 13);
    }
}
