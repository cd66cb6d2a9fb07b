//! Captures for wireshark: pcapng (draft-ietf-opsawg-pcapng), raw IP packets, nanosecond times.

use ekiden_model::units::Time;
use std::io::{self, Write};

/// LINKTYPE_RAW: packets begin with an IPv4 or IPv6 header.
const RAW_IP: u16 = 101;
/// Bytes of each packet that are kept by default: all.
const WHOLE: u32 = 262_144;

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const PACKET: u32 = 6;

const OPTION_END: u16 = 0;
const OPTION_COMMENT: u16 = 1;
const OPTION_NAME: u16 = 2;
const OPTION_APPLICATION: u16 = 4;
const OPTION_RESOLUTION: u16 = 9;

/// Writes one capture with any number of interfaces.
#[derive(Debug)]
pub struct Capture<W> {
    to: W,
    interfaces: u32,
}

impl<W: Write> Capture<W> {
    /// Begins a capture; `comment` in its head tells what produced it. Errors are the writer's.
    pub fn new(to: W, comment: &str) -> io::Result<Self> {
        let mut capture = Self { to, interfaces: 0 };
        let mut body = Vec::new();
        body.extend(0x1a2b_3c4d_u32.to_le_bytes());
        // version 1.0, length of the section not known
        body.extend([1, 0, 0, 0]);
        body.extend((-1_i64).to_le_bytes());
        option(&mut body, OPTION_COMMENT, comment.as_bytes());
        let application = concat!("ekiden ", env!("CARGO_PKG_VERSION")).as_bytes();
        option(&mut body, OPTION_APPLICATION, application);
        option(&mut body, OPTION_END, &[]);
        capture.block(SECTION, &body)?;
        Ok(capture)
    }

    /// Adds an interface and returns its number. Errors are the writer's.
    pub fn interface(&mut self, name: &str) -> io::Result<u32> {
        let mut body = Vec::new();
        body.extend(RAW_IP.to_le_bytes());
        body.extend([0, 0]);
        body.extend(WHOLE.to_le_bytes());
        option(&mut body, OPTION_NAME, name.as_bytes());
        // times count 10⁻⁹ s
        option(&mut body, OPTION_RESOLUTION, &[9]);
        option(&mut body, OPTION_END, &[]);
        self.block(INTERFACE, &body)?;
        self.interfaces += 1;
        Ok(self.interfaces - 1)
    }

    /// Writes a packet of real size `length`, of which `bytes` may be a part. Errors are the
    /// writer's.
    pub fn packet(
        &mut self,
        interface: u32,
        at: Time,
        bytes: &[u8],
        length: u32,
    ) -> io::Result<()> {
        self.packet_with(interface, at, bytes, length, "")
    }

    /// Writes a packet with a comment; an empty one is none. Errors are the writer's.
    pub fn packet_with(
        &mut self,
        interface: u32,
        at: Time,
        bytes: &[u8],
        length: u32,
        comment: &str,
    ) -> io::Result<()> {
        let time = at.as_nanos();
        let mut body = Vec::with_capacity(24 + bytes.len());
        body.extend(interface.to_le_bytes());
        body.extend(((time >> 32) as u32).to_le_bytes());
        body.extend((time as u32).to_le_bytes());
        body.extend((bytes.len() as u32).to_le_bytes());
        body.extend(length.to_le_bytes());
        body.extend(bytes);
        pad(&mut body);
        if !comment.is_empty() {
            option(&mut body, OPTION_COMMENT, comment.as_bytes());
            option(&mut body, OPTION_END, &[]);
        }
        self.block(PACKET, &body)
    }

    /// The writer, with everything written that was given.
    pub fn into_inner(self) -> W {
        self.to
    }

    fn block(&mut self, kind: u32, body: &[u8]) -> io::Result<()> {
        let length = (body.len() as u32 + 12).to_le_bytes();
        self.to.write_all(&kind.to_le_bytes())?;
        self.to.write_all(&length)?;
        self.to.write_all(body)?;
        self.to.write_all(&length)
    }
}

fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(u16::MAX.into())];
    body.extend(code.to_le_bytes());
    body.extend((value.len() as u16).to_le_bytes());
    body.extend(value);
    pad(body);
}

/// Up to a multiple of 4.
fn pad(body: &mut Vec<u8>) {
    body.resize(body.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use ekiden_model::units::Span;

    #[test]
    fn blocks_are_whole_and_say_their_length_at_both_ends() {
        let mut capture = Capture::new(Vec::new(), "the island study").unwrap();
        let up = capture.interface("up").unwrap();
        let down = capture.interface("down").unwrap();
        assert_eq!((up, down), (0, 1));
        let at = Time::ZERO + Span::from_secs(5);
        for n in 0..9_usize {
            capture.packet(down, at, &vec![0x45; n], 1500).unwrap();
        }
        let bytes = capture.into_inner();
        let mut rest = bytes.as_slice();
        let mut kinds = Vec::new();
        while !rest.is_empty() {
            let word = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().unwrap());
            let length = word(4) as usize;
            assert_eq!(length % 4, 0);
            assert_eq!(word(length - 4) as usize, length);
            kinds.push(word(0));
            rest = &rest[length..];
        }
        assert_eq!(kinds[..3], [SECTION, INTERFACE, INTERFACE]);
        assert_eq!(kinds[3..], [PACKET; 9]);
    }
}
