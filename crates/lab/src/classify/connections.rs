//! The connections of a capture, and the new data of their servers.

use super::headers::Segment;
use super::{Found, Options};
use ekiden_model::network::workload::flows::Flows;
use ekiden_model::units::Time;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// The address of the side whose data counts, with or without a port; or a port at any address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerAddress {
    address: Option<IpAddr>,
    port: Option<u16>,
}

impl FromStr for ServerAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(address) = text.parse() {
            return Ok(Self { address: Some(address), port: None });
        }
        if let Some(port) = text.strip_prefix(':').and_then(|port| port.parse().ok()) {
            return Ok(Self { address: None, port: Some(port) });
        }
        let whole: SocketAddr = text
            .parse()
            .map_err(|_| "write it like 192.0.2.1, 192.0.2.1:3389, [2001:db8::1]:3389 or :3389")?;
        Ok(Self { address: Some(whole.ip()), port: Some(whole.port()) })
    }
}

impl ServerAddress {
    fn is(&self, other: SocketAddr) -> bool {
        self.address.is_none_or(|address| address == other.ip())
            && self.port.is_none_or(|port| port == other.port())
    }
}

/// Above this a packet is no packet of Ethernet's: a device was to cut it.
const LARGEST_PAYLOAD: u64 = 1_500;

/// All of them, in the order of their addresses, so that equal captures give equal output.
pub(super) struct Connections {
    options: Options,
    open: BTreeMap<[SocketAddr; 2], Connection>,
    found: Found,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Server {
    Is(SocketAddr),
    /// Neither has the address that was named.
    Another,
    /// No handshake was seen, the ports are equal, and no address was named.
    Undecided,
}

struct Connection {
    server: Server,
    /// The sequence numbers of its SYN and of its SYN-ACK, as far as they were seen.
    syn: Option<u32>,
    syn_ack: Option<u32>,
    /// The sequence number behind the server's newest byte.
    next: Option<u32>,
    flows: Flows,
}

impl Connections {
    pub(super) fn new(options: Options) -> Self {
        Self { options, open: BTreeMap::new(), found: Found::default() }
    }

    pub(super) fn on_segment(&mut self, at: Time, segment: &Segment) {
        let mut key = [segment.from, segment.to];
        key.sort_unstable();
        let options = self.options;
        let fresh = || Connection::new(&options, segment);
        let connection = self.open.entry(key).or_insert_with(fresh);
        if segment.syn && !connection.is_of(segment) {
            let before = std::mem::replace(connection, fresh());
            connection.is_of(segment);
            before.count(&mut self.found);
        }
        if segment.payload == 0 {
            return;
        }
        if connection.server != Server::Is(segment.from) {
            self.found.not_counted.get_or_insert(segment.from);
            return;
        }
        let new = connection.on_data(segment);
        if new == 0 {
            self.found.repeated += 1;
        } else {
            self.found.uncut += u64::from(new > LARGEST_PAYLOAD);
            connection.flows.on_packet(at, new);
        }
    }

    /// The capture has ended: puts what was found into `found`.
    pub(super) fn finish(self, found: &mut Found) {
        let Found { packets, tcp, .. } = *found;
        *found = Found { packets, tcp, ..self.found };
        for connection in self.open.into_values() {
            connection.count(found);
        }
    }
}

impl Connection {
    fn new(options: &Options, segment: &Segment) -> Self {
        let server = server(options.server, segment);
        let flows = Flows::new(options.threshold);
        Self { server, syn: None, syn_ack: None, next: None, flows }
    }

    /// Whether a SYN or SYN-ACK belongs to this connection, or to a new one of the same addresses.
    fn is_of(&mut self, segment: &Segment) -> bool {
        let seen = if segment.ack { &mut self.syn_ack } else { &mut self.syn };
        match *seen {
            Some(sequence) => sequence == segment.sequence,
            None if self.next.is_some() => false,
            None => {
                *seen = Some(segment.sequence);
                true
            }
        }
    }

    /// How many of the segment's bytes are new.
    fn on_data(&mut self, segment: &Segment) -> u64 {
        // data in a SYN (RFC 7413) begins behind its own number
        let begin = segment.sequence.wrapping_add(segment.syn.into());
        let end = begin.wrapping_add(segment.payload as u32);
        let new = match self.next {
            None => segment.payload,
            // numbers wrap around: less than half the circle ahead is ahead
            Some(next) => match end.wrapping_sub(next) {
                ahead @ 1..=0x7fff_ffff => segment.payload.min(ahead.into()),
                _ => 0,
            },
        };
        if new > 0 {
            self.next = Some(end);
        }
        new
    }

    fn count(mut self, found: &mut Found) {
        match self.server {
            Server::Another => found.others += 1,
            Server::Undecided => found.undecided += 1,
            Server::Is(_) => {
                self.flows.finish();
                found.connections += u64::from(self.flows.summary().flows() > 0);
                found.summary.merge(self.flows.summary());
            }
        }
    }
}

/// The server: by the address given, else by the handshake, else the side with the lower port.
fn server(named: Option<ServerAddress>, segment: &Segment) -> Server {
    let Segment { from, to, .. } = *segment;
    if let Some(named) = named {
        match (named.is(from), named.is(to)) {
            (true, false) => return Server::Is(from),
            (false, true) => return Server::Is(to),
            (false, false) => return Server::Another,
            // both ends on one machine: by handshake and port, as without it
            (true, true) => {}
        }
    }
    match (segment.syn, segment.ack) {
        (true, true) => Server::Is(from),
        (true, false) => Server::Is(to),
        _ if from.port() < to.port() => Server::Is(from),
        _ if to.port() < from.port() => Server::Is(to),
        _ => Server::Undecided,
    }
}
