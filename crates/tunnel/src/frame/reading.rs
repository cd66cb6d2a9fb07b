//! Parses frames from any bytes a peer may send.

use super::number::get;
use super::{
    BadFrame, Carries, Frame, Hello, Host, LONGEST, MOST, OPTIONAL, Open, Opening, Target, WORDS,
    kind,
};
use crate::frame::reason::Reason;
use bytes::{Buf, Bytes, BytesMut};
use ekiden_model::control::repair::Window;
use ekiden_model::control::repair::packets::{HEAD, MOST_PACKETS, PacketRepair, Part};
use ekiden_model::units::Rate;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Takes the first frame off `bytes`; `None` while it is incomplete. The frame keeps memory of its own, and none of what
/// came with it. After [`BadFrame`] the tunnel cannot continue: the peer is at fault.
pub fn read(bytes: &mut BytesMut) -> Result<Option<Frame>, BadFrame> {
    let Some((kind, head, length)) = first(bytes)? else { return Ok(None) };
    bytes.advance(head);
    let body = Bytes::copy_from_slice(&bytes[..length]);
    bytes.advance(length);
    decode(kind, body).map(Some)
}

/// As [`read`], without a copy: the frame's bytes are part of `bytes`, and keep all its memory.
pub fn read_shared(bytes: &mut Bytes) -> Result<Option<Frame>, BadFrame> {
    let Some((kind, head, length)) = first(bytes)? else { return Ok(None) };
    bytes.advance(head);
    decode(kind, bytes.split_to(length)).map(Some)
}

/// Reads all frames of a datagram, which are part of it. Fails as [`read`] does; a cut frame is an error, too.
pub fn read_all(mut datagram: Bytes) -> Result<Vec<Frame>, BadFrame> {
    let mut frames = Vec::new();
    while let Some(frame) = read_shared(&mut datagram)? {
        frames.push(frame);
    }
    if datagram.is_empty() { Ok(frames) } else { Err(BadFrame::Length(0)) }
}

/// Type, length of the head and of the body of the first frame; `None` while it is incomplete.
fn first(bytes: &[u8]) -> Result<Option<(u64, usize, usize)>, BadFrame> {
    let mut peek = bytes;
    let (Some(kind), Some(length)) = (get(&mut peek), get(&mut peek)) else { return Ok(None) };
    if length > LONGEST as u64 {
        return Err(BadFrame::TooLong(length));
    }
    // at most LONGEST
    let length = length as usize;
    Ok((peek.len() >= length).then_some((kind, bytes.len() - peek.len(), length)))
}

fn decode(kind: u64, mut body: Bytes) -> Result<Frame, BadFrame> {
    let (cut, bad) = (BadFrame::Length(kind), BadFrame::Value(kind));
    let number = |body: &mut Bytes| get(body).ok_or(cut);
    let frame = match kind {
        kind::HELLO => {
            let version = number(&mut body)?;
            let lane = u8::try_from(number(&mut body)?).ok().filter(|lane| *lane < 2).ok_or(bad)?;
            let session = number(&mut body)?;
            let receive = Rate::from_bits_per_second(number(&mut body)?);
            let (window, total) = (number(&mut body)?, number(&mut body)?);
            let secret = text(&mut body, 64, cut, bad)?;
            // appended later; later versions may append more
            let mut appended =
                || -> Result<bool, BadFrame> { Ok(!body.is_empty() && number(&mut body)? != 0) };
            let (repairs, coded) = (appended()?, appended()?);
            body.clear();
            Frame::Hello(Hello {
                version,
                lane,
                session,
                receive,
                window,
                total,
                secret,
                repairs,
                coded,
            })
        }
        kind::OPEN => {
            let flow = number(&mut body)?;
            let account = text(&mut body, WORDS, cut, bad)?;
            let hops = body.try_get_u8().map_err(|_| cut)?;
            let target = target(&mut body, cut, bad)?;
            // fields appended later, each with a default
            let mut added = || if body.is_empty() { Ok(0) } else { number(&mut body) };
            let dscp = match added()? {
                0 => None,
                marked @ 1..=64 => Some(marked as u8 - 1),
                _ => return Err(bad),
            };
            let carries = match added()? {
                0 => Carries::Stream,
                1 => Carries::Packets,
                2 => Carries::Coded,
                _ => return Err(bad),
            };
            body.clear();
            Frame::Open(Open { flow, opening: Opening { account, hops, target, dscp, carries } })
        }
        kind::ATTACH => Frame::Attach(number(&mut body)?),
        kind::DATA => {
            let offset = number(&mut body)?;
            let bytes = body.split_to(body.len());
            if bytes.is_empty()
                || offset.checked_add(bytes.len() as u64).is_none_or(|end| end > MOST)
            {
                return Err(bad);
            }
            Frame::Data { offset, bytes }
        }
        kind::FIN => Frame::Fin(number(&mut body)?),
        kind::RESET => {
            let offset = number(&mut body)?;
            let (reason, words) = reason(&mut body, cut, bad)?;
            Frame::Reset { offset, reason, words }
        }
        kind::OPENED => Frame::Opened,
        kind::REFUSED => {
            let (reason, words) = reason(&mut body, cut, bad)?;
            Frame::Refused { reason, words }
        }
        kind::CREDIT => Frame::Credit { flow: number(&mut body)?, limit: number(&mut body)? },
        kind::TOTAL => Frame::Total(number(&mut body)?),
        kind::PACKET => Frame::Packet(body.split_to(body.len())),
        kind::NUMBERED => {
            let number = number(&mut body)?;
            let back = body.try_get_u8().map_err(|_| cut)?;
            let part = body.try_get_u8().map_err(|_| cut)?;
            if u64::from(back) >= MOST_PACKETS || part > 3 {
                return Err(bad);
            }
            let part = Part::from_bits(part);
            Frame::Numbered { number, back, part, packet: body.split_to(body.len()) }
        }
        kind::PACKET_REPAIR => {
            let first = number(&mut body)?;
            let count = body.try_get_u8().map_err(|_| cut)?;
            let nth = body.try_get_u8().map_err(|_| cut)?;
            if count == 0 || u64::from(count) > MOST_PACKETS || body.len() < HEAD {
                return Err(bad);
            }
            let symbol = body.split_to(body.len());
            Frame::PacketRepair(PacketRepair { first, count, nth, symbol })
        }
        kind::REPAIR => {
            let (base, size) = (number(&mut body)?, number(&mut body)?);
            let (first, length) = (number(&mut body)?, number(&mut body)?);
            let nth = body.try_get_u8().map_err(|_| cut)?;
            let size = u32::try_from(size).map_err(|_| bad)?;
            let window = Window { base, size, first, length, nth }.checked().ok_or(bad)?;
            if body.len() != window.width() {
                return Err(cut);
            }
            Frame::Repair { window, symbol: body.split_to(body.len()) }
        }
        _ if kind >= OPTIONAL => {
            body.clear();
            Frame::Unknown(kind)
        }
        _ => return Err(BadFrame::UnknownKind(kind)),
    };
    if body.is_empty() { Ok(frame) } else { Err(cut) }
}

fn text(body: &mut Bytes, most: usize, cut: BadFrame, bad: BadFrame) -> Result<Bytes, BadFrame> {
    let length = get(body).ok_or(cut)?;
    let length = usize::try_from(length).ok().filter(|length| *length <= most).ok_or(bad)?;
    // a copy: it is kept for as long as a flow lasts, and a slice would keep all that came with it
    if body.len() < length { Err(cut) } else { Ok(Bytes::copy_from_slice(&body.split_to(length))) }
}

fn reason(body: &mut Bytes, cut: BadFrame, bad: BadFrame) -> Result<(Reason, String), BadFrame> {
    let reason = Reason::from_code(get(body).ok_or(cut)?);
    let words = text(body, WORDS, cut, bad)?;
    // shown to people and put into answers: nothing that breaks a line or a terminal
    let words = String::from_utf8_lossy(&words).chars().filter(|c| !c.is_control()).collect();
    Ok((reason, words))
}

fn target(body: &mut Bytes, cut: BadFrame, bad: BadFrame) -> Result<Target, BadFrame> {
    let host = match body.try_get_u8().map_err(|_| cut)? {
        4 => Host::Address(Ipv4Addr::from(body.try_get_u32().map_err(|_| cut)?).into()),
        6 => Host::Address(Ipv6Addr::from(body.try_get_u128().map_err(|_| cut)?).into()),
        3 => {
            let name = text(body, 255, cut, bad)?;
            let name = std::str::from_utf8(&name).map_err(|_| bad)?;
            if name.is_empty() {
                return Err(bad);
            }
            Host::Name(name.to_owned())
        }
        _ => return Err(bad),
    };
    match body.try_get_u16().map_err(|_| cut)? {
        0 => Err(bad),
        port => Ok(Target { host, port }),
    }
}
