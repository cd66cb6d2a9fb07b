//! From a captured packet to the fields of its TCP header.

use super::ClassifyError;
use super::container::Packet;
use etherparse::{EtherType, LaxIpPayloadSlice, LaxNetSlice, LaxSlicedPacket, TransportSlice};
use std::net::SocketAddr;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    pub(super) sequence: u32,
    pub(super) syn: bool,
    pub(super) ack: bool,
    /// Bytes of payload that were sent, whether or not the capture kept them.
    pub(super) payload: u64,
}

/// Link type, length and place of the Ethernet type of headers that etherparse lacks: LINKTYPE_LINUX_SLL and
/// _SLL2.
const COOKED: [(u32, usize, usize); 2] = [(113, 16, 14), (276, 20, 0)];

/// The segment in a packet; `None` of another protocol, a later fragment, or a TCP header that was cut.
pub(super) fn segment(packet: &Packet<'_>) -> Result<Option<Segment>, ClassifyError> {
    let Some(sliced) = slice(packet)? else { return Ok(None) };
    let (Some(net), Some(TransportSlice::Tcp(tcp))) = (&sliced.net, &sliced.transport) else {
        return Ok(None);
    };
    let (from, to, declared, payload) = match net {
        LaxNetSlice::Ipv4(ip) => {
            let header = ip.header();
            let extensions = ip.extensions().auth.map_or(0, |auth| auth.slice().len());
            let heads = header.slice().len() + extensions;
            let declared = usize::from(header.total_len()).saturating_sub(heads);
            (header.source_addr().into(), header.destination_addr().into(), declared, ip.payload())
        }
        LaxNetSlice::Ipv6(ip) => {
            let header = ip.header();
            let extensions = ip.extensions().slice().len();
            let declared = usize::from(header.payload_length()).saturating_sub(extensions);
            (header.source_addr().into(), header.destination_addr().into(), declared, ip.payload())
        }
        LaxNetSlice::Arp(_) => return Ok(None),
    };
    let payload = sent(packet, declared, payload).saturating_sub(tcp.header_len() as u64);
    Ok(Some(Segment {
        from: SocketAddr::new(from, tcp.source_port()),
        to: SocketAddr::new(to, tcp.destination_port()),
        sequence: tcp.sequence_number(),
        syn: tcp.syn(),
        ack: tcp.ack(),
        payload,
    }))
}

/// Bytes sent behind the IP headers: what IP says, unless the packet is too long for that field or left it to
/// the device.
fn sent(packet: &Packet<'_>, declared: usize, kept: &LaxIpPayloadSlice<'_>) -> u64 {
    if declared > 0 {
        return declared as u64;
    }
    let cut = u64::from(packet.length).saturating_sub(packet.bytes.len() as u64);
    kept.payload.len() as u64 + cut
}

/// The headers, as far as they can be read.
fn slice<'a>(packet: &Packet<'a>) -> Result<Option<LaxSlicedPacket<'a>>, ClassifyError> {
    let bytes = packet.bytes;
    if let Some((_, length, field)) = COOKED.iter().find(|(link, ..)| *link == packet.link) {
        let (Some(kind), Some(rest)) = (bytes.get(*field..*field + 2), bytes.get(*length..)) else {
            return Ok(None);
        };
        let kind = kind.iter().fold(0, |kind, byte| kind << 8 | u16::from(*byte));
        return Ok(Some(LaxSlicedPacket::from_ether_type(EtherType(kind), rest)));
    }
    match packet.link {
        1 => Ok(LaxSlicedPacket::from_ethernet(bytes).ok()),
        // raw IP by its number, by those it has within some systems, and by family
        101 | 12 | 14 | 228 | 229 => Ok(LaxSlicedPacket::from_ip(bytes).ok()),
        other => Err(ClassifyError::LinkType(other)),
    }
}
