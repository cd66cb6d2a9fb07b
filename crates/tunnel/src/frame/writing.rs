//! Frames into bytes.

use super::number::{length, put};
use super::{Frame, Hello, Host, Opening, WORDS, kind};
use crate::frame::reason::Reason;
use bytes::{BufMut, BytesMut};
use ekiden_model::control::repair::Window;
use std::net::IpAddr;

impl Frame {
    /// Writes it.
    pub fn write(&self, into: &mut BytesMut) {
        let mut body = BytesMut::new();
        let kind = match self {
            Self::Hello(hello) => {
                let Hello {
                    version,
                    lane,
                    session,
                    receive,
                    window,
                    total,
                    secret,
                    repairs,
                    coded,
                } = hello;
                let receive = receive.as_bits_per_second();
                let fields = [*version, (*lane).into(), *session, receive, *window, *total];
                numbers(&mut body, kind::HELLO, &fields);
                put_text(&mut body, secret);
                put(&mut body, (*repairs).into());
                put(&mut body, (*coded).into());
                kind::HELLO
            }
            Self::Open(open) => {
                put(&mut body, open.flow);
                let Opening { account, hops, target, dscp, carries } = &open.opening;
                put_text(&mut body, account);
                body.put_u8(*hops);
                match &target.host {
                    Host::Address(IpAddr::V4(address)) => {
                        body.put_u8(4);
                        body.put_slice(&address.octets());
                    }
                    Host::Address(IpAddr::V6(address)) => {
                        body.put_u8(6);
                        body.put_slice(&address.octets());
                    }
                    Host::Name(name) => {
                        body.put_u8(3);
                        put_text(&mut body, name.as_bytes());
                    }
                }
                body.put_u16(target.port);
                put(&mut body, dscp.map_or(0, |dscp| u64::from(dscp & 63) + 1));
                put(&mut body, *carries as u64);
                kind::OPEN
            }
            Self::Attach(flow) => numbers(&mut body, kind::ATTACH, &[*flow]),
            Self::Data { offset, bytes } => {
                // without copying the bytes twice
                put(into, kind::DATA);
                put(into, (length(*offset) + bytes.len()) as u64);
                put(into, *offset);
                into.put_slice(bytes);
                return;
            }
            Self::Packet(bytes) => {
                put(into, kind::PACKET);
                put(into, bytes.len() as u64);
                into.put_slice(bytes);
                return;
            }
            Self::Numbered { number, back, part, packet } => {
                put(into, kind::NUMBERED);
                put(into, (length(*number) + 2 + packet.len()) as u64);
                put(into, *number);
                into.put_u8(*back);
                into.put_u8(part.bits());
                into.put_slice(packet);
                return;
            }
            Self::PacketRepair(repair) => {
                put(&mut body, repair.first);
                body.put_u8(repair.count);
                body.put_u8(repair.nth);
                body.put_slice(&repair.symbol);
                kind::PACKET_REPAIR
            }
            Self::Fin(offset) => numbers(&mut body, kind::FIN, &[*offset]),
            Self::Reset { offset, reason, words } => {
                put(&mut body, *offset);
                put_reason(&mut body, *reason, words);
                kind::RESET
            }
            Self::Opened => kind::OPENED,
            Self::Refused { reason, words } => {
                put_reason(&mut body, *reason, words);
                kind::REFUSED
            }
            Self::Repair { window, symbol } => {
                let Window { base, size, first, length, nth } = *window;
                numbers(&mut body, kind::REPAIR, &[base, size.into(), first, length]);
                body.put_u8(nth);
                body.put_slice(symbol);
                kind::REPAIR
            }
            Self::Credit { flow, limit } => numbers(&mut body, kind::CREDIT, &[*flow, *limit]),
            Self::Total(limit) => numbers(&mut body, kind::TOTAL, &[*limit]),
            Self::Unknown(kind) => *kind,
        };
        put(into, kind);
        put(into, body.len() as u64);
        into.put_slice(&body);
    }

    /// About how many bytes it is when written: the most of those that carry bytes of a flow.
    pub(crate) fn length(&self) -> usize {
        let payload = match self {
            Self::Data { bytes, .. } | Self::Packet(bytes) => bytes.len(),
            _ => 0,
        };
        payload + 16
    }

    /// It alone, written.
    pub fn to_bytes(&self) -> BytesMut {
        let mut bytes = BytesMut::new();
        self.write(&mut bytes);
        bytes
    }
}

/// Appends a frame of this many bytes, 2 or more but not 66, that every reader skips.
pub(crate) fn pad(into: &mut BytesMut, bytes: usize) {
    put(into, kind::PADDING);
    // a length beyond 63 takes two bytes itself: there is no frame of 66
    let zeros = bytes.saturating_sub(2).min(bytes.saturating_sub(3).max(63));
    put(into, zeros as u64);
    into.put_bytes(0, zeros);
}

/// Overhead of DATA: type, length of two bytes (four beyond 16 KiB, which no packet has), offset.
pub fn data_overhead(offset: u64) -> usize {
    1 + 2 + length(offset)
}

/// Writes the numbers of a frame's body, and returns its type.
fn numbers(body: &mut BytesMut, kind: u64, numbers: &[u64]) -> u64 {
    numbers.iter().for_each(|number| put(body, *number));
    kind
}

fn put_text(into: &mut BytesMut, bytes: &[u8]) {
    put(into, bytes.len() as u64);
    into.put_slice(bytes);
}

fn put_reason(into: &mut BytesMut, reason: Reason, words: &str) {
    put(into, reason.code());
    put_text(into, &words.as_bytes()[..words.floor_char_boundary(WORDS)]);
}
