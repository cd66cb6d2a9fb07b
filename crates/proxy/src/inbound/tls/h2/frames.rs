//! What of a stream of HTTP/2 frames is no content (RFC 9113 §4.1): their heads, padding, and all that only serves the
//! connection. Heads and bodies count where they are HTTP/1.1, but for trailers of requests, which nothing takes.

const HEAD: usize = 9;
/// What a client begins with (RFC 9113 §3.4).
const PREFACE: usize = 24;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITY: u8 = 0x20;

/// What a frame is, as far as others ask (RFC 9113 §6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A part of a body, of this stream.
    Body(u32),
    /// The fields of a head or a trailer begin, after five bytes of priority or at once.
    Fields {
        stream: u32,
        trailer: bool,
        priority: bool,
        whole: bool,
    },
    /// They go on.
    Continued {
        stream: u32,
        trailer: bool,
        whole: bool,
    },
    /// What concerns all streams: SETTINGS, but no acknowledgement, and GOAWAY.
    Settings,
    /// A PING that asks for an answer.
    Ping,
    Other,
}

/// What happens on the way of the frames.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event<'a> {
    /// What comes now is a frame of this kind.
    Began(Kind),
    /// A part of what a body or fields consist of, without padding.
    Came(Kind, &'a [u8]),
    /// All of a frame has come.
    Ended(Kind),
}

/// Follows the frames of one direction.
#[derive(Debug)]
pub(super) struct Frames {
    head: [u8; HEAD],
    have: usize,
    kind: Kind,
    /// The first byte of the payload says how long the padding is.
    padded: bool,
    /// Bytes of a body or of fields that follow, and then others.
    content: usize,
    others: usize,
    /// The last stream that a request opened, where the direction is a client's.
    opened: Option<u32>,
    /// The head that continues is a trailer.
    trailer: bool,
}

impl Frames {
    /// From a client, with its preface.
    pub(super) const fn of_client() -> Self {
        Self { have: HEAD, others: PREFACE, opened: Some(0), ..Self::of_server() }
    }

    pub(super) const fn of_server() -> Self {
        Self {
            head: [0; HEAD],
            have: 0,
            kind: Kind::Other,
            padded: false,
            content: 0,
            others: 0,
            opened: None,
            trailer: false,
        }
    }

    /// The next bytes. Returns how many of them are no content, and tells what they are.
    pub(super) fn read(&mut self, mut bytes: &[u8], mut tell: impl FnMut(Event<'_>)) -> usize {
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
                    tell(Event::Began(self.kind));
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
                framing += if self.is_content() { 0 } else { used };
                tell(Event::Came(self.kind, &bytes[..used]));
            } else {
                used = bytes.len().min(self.others);
                self.others -= used;
                framing += used;
            }
            bytes = &bytes[used..];
            if self.have == HEAD && self.content == 0 && self.others == 0 {
                self.have = 0;
                tell(Event::Ended(self.kind));
            }
        }
        framing
    }

    /// A trailer is none: nothing takes it.
    const fn is_content(&self) -> bool {
        match self.kind {
            Kind::Body(_) => true,
            Kind::Fields { trailer, .. } | Kind::Continued { trailer, .. } => !trailer,
            Kind::Settings | Kind::Ping | Kind::Other => false,
        }
    }

    fn on_head(&mut self) {
        let [a, b, c, kind, flags, d, e, f, g] = self.head;
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        let stream = u32::from_be_bytes([d & 0x7f, e, f, g]);
        if kind == HEADERS
            && let Some(opened) = &mut self.opened
        {
            self.trailer = stream <= *opened;
            *opened = stream.max(*opened);
        }
        let (trailer, whole) = (self.trailer, flags & END_HEADERS != 0);
        self.kind = match kind {
            DATA => Kind::Body(stream),
            HEADERS => Kind::Fields { stream, trailer, priority: flags & PRIORITY != 0, whole },
            CONTINUATION => Kind::Continued { stream, trailer, whole },
            SETTINGS if flags & ACK == 0 => Kind::Settings,
            GOAWAY => Kind::Settings,
            PING if flags & ACK == 0 => Kind::Ping,
            _ => Kind::Other,
        };
        let has_content = matches!(kind, DATA | HEADERS | CONTINUATION);
        self.padded = has_content && kind != CONTINUATION && flags & PADDED != 0;
        (self.content, self.others) = if has_content { (length, 0) } else { (0, length) };
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
            let (mut trailer, mut ended) = (0, vec![]);
            let mut tell = |event: Event<'_>| match event {
                Event::Came(Kind::Body(_), bytes) => bodies += bytes.len(),
                Event::Came(kind, bytes) => match kind {
                    Kind::Fields { trailer: true, .. } | Kind::Continued { trailer: true, .. } => {
                        trailer += bytes.len();
                    }
                    Kind::Fields { stream, .. } | Kind::Continued { stream, .. } => {
                        heads[stream as usize] += bytes.len();
                    }
                    _ => {}
                },
                Event::Began(_) => {}
                Event::Ended(kind) => ended.push(kind),
            };
            let framing: usize = all.chunks(part).map(|bytes| frames.read(bytes, &mut tell)).sum();
            assert_eq!(framing, all.len() - content, "in parts of {part}");
            assert_eq!((heads, bodies), ([0, 70, 0, 3, 0, 3], 2), "in parts of {part}");
            assert_eq!((trailer, ended.len()), (30, 11), "in parts of {part}");
            assert_eq!(ended[3], Kind::Continued { stream: 1, trailer: false, whole: true });
        }
    }

    #[test]
    fn settings_and_pings_are_told_from_their_acknowledgements() {
        let began = |kind, flags| {
            let mut began = None;
            let told = |event: Event<'_>| {
                if let Event::Began(kind) = event {
                    began = Some(kind);
                }
            };
            Frames::of_server().read(&frame(kind, flags, 0, &[0; 8]), told);
            began
        };
        assert_eq!([began(SETTINGS, 0), began(GOAWAY, 0)], [Some(Kind::Settings); 2]);
        assert_eq!(began(PING, 0), Some(Kind::Ping));
        assert_eq!([began(SETTINGS, ACK), began(PING, ACK)], [Some(Kind::Other); 2]);
    }

    #[test]
    fn each_head_of_an_answer_is_content() {
        let mut frames = Frames::of_server();
        let all = [frame(HEADERS, 4, 3, &[1; 20]), frame(HEADERS, 4, 1, &[1; 20])].concat();
        assert_eq!(frames.read(&all, |_| {}), 2 * HEAD);
    }
}
