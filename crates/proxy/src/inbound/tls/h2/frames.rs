//! What of a stream of HTTP/2 frames is no content (RFC 9113 §4.1): their heads, padding, and all that only serves the
//! connection. Heads and bodies count where they are HTTP/1.1, but for trailers of requests, which nothing takes.

use crate::inbound::tls::h2::untaken::Content;

const HEAD: usize = 9;
/// What a client begins with (RFC 9113 §3.4).
const PREFACE: usize = 24;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const PADDED: u8 = 8;

/// Follows the frames of one direction.
#[derive(Debug, Default)]
pub(super) struct Frames {
    head: [u8; HEAD],
    have: usize,
    /// The first byte of the payload says how long the padding is.
    padded: bool,
    /// Bytes of content that follow, and then others.
    content: usize,
    others: usize,
    /// The last stream that a request opened, where the direction is a client's.
    opened: Option<u32>,
    /// The head that continues is a trailer.
    trailer: bool,
}

impl Frames {
    /// From a client, with its preface.
    pub(super) fn of_client() -> Self {
        Self { have: HEAD, others: PREFACE, opened: Some(0), ..Self::default() }
    }

    /// The next bytes. Returns how many of them are no content, and tells of each part of the others.
    pub(super) fn read(&mut self, mut bytes: &[u8], mut tell: impl FnMut(Content, usize)) -> usize {
        let mut framing = 0;
        while let Some(first) = bytes.first() {
            let used;
            if self.have < HEAD {
                used = bytes.len().min(HEAD - self.have);
                self.head[self.have..self.have + used].copy_from_slice(&bytes[..used]);
                self.have += used;
                framing += used;
                if self.have == HEAD {
                    self.on_head();
                }
            } else if self.padded && self.content > 0 {
                used = 1;
                framing += 1;
                self.padded = false;
                self.content -= 1;
                self.others = self.content.min(usize::from(*first));
                self.content -= self.others;
            } else if self.content > 0 {
                used = bytes.len().min(self.content);
                self.content -= used;
                tell(self.kind(), used);
            } else {
                used = bytes.len().min(self.others);
                self.others -= used;
                framing += used;
            }
            bytes = &bytes[used..];
            if self.have == HEAD && self.content == 0 && self.others == 0 {
                self.have = 0;
            }
        }
        framing
    }

    fn stream(&self) -> u32 {
        let [.., d, e, f, g] = self.head;
        u32::from_be_bytes([d & 0x7f, e, f, g])
    }

    /// Of the frame that is read.
    fn kind(&self) -> Content {
        if self.head[3] == DATA { Content::Body } else { Content::Head(self.stream()) }
    }

    fn on_head(&mut self) {
        let [a, b, c, kind, flags, ..] = self.head;
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        let stream = self.stream();
        if kind == HEADERS
            && let Some(opened) = &mut self.opened
        {
            self.trailer = stream <= *opened;
            *opened = stream.max(*opened);
        }
        let is_content = match kind {
            DATA => true,
            HEADERS | CONTINUATION => !self.trailer,
            _ => false,
        };
        self.padded = is_content && kind != CONTINUATION && flags & PADDED != 0;
        (self.content, self.others) = if is_content { (length, 0) } else { (0, length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0, 0, payload.len() as u8, kind, flags, 0, 0, 0, stream];
        bytes.extend(payload);
        bytes
    }

    #[test]
    fn all_but_heads_and_bodies_is_framing_however_it_comes() {
        let all = [
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
            frame(4, 0, 0, &[1; 18]),
            frame(HEADERS, 0, 1, &[2; 40]),
            frame(CONTINUATION, 4, 1, &[2; 30]),
            frame(HEADERS, 0xc, 3, &[4, 2, 2, 2, 0, 0, 0, 0]),
            frame(DATA, PADDED, 1, &[2, 2, 2, 0, 0]),
            frame(DATA, 0, 3, &[]),
            frame(HEADERS, 1, 1, &[9; 25]),
            frame(CONTINUATION, 4, 1, &[9; 5]),
            frame(6, 0, 0, &[7; 8]),
            frame(HEADERS, 5, 5, &[2; 3]),
        ]
        .concat();
        let content = 40 + 30 + 3 + 2 + 3;
        for part in 1..all.len() {
            let mut frames = Frames::of_client();
            let (mut heads, mut bodies) = ([0; 6], 0);
            let mut tell = |content, bytes| match content {
                Content::Head(stream) => heads[stream as usize] += bytes,
                Content::Body => bodies += bytes,
            };
            let framing: usize = all.chunks(part).map(|bytes| frames.read(bytes, &mut tell)).sum();
            assert_eq!(framing, all.len() - content, "in parts of {part}");
            assert_eq!((heads, bodies), ([0, 70, 0, 3, 0, 3], 2), "in parts of {part}");
        }
    }

    #[test]
    fn each_head_of_an_answer_is_content() {
        let mut frames = Frames::default();
        let all = [frame(HEADERS, 4, 3, &[1; 20]), frame(HEADERS, 4, 1, &[1; 20])].concat();
        assert_eq!(frames.read(&all, |_, _| {}), 2 * HEAD);
    }
}
