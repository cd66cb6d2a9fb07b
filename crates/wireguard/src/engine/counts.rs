//! What became of datagrams and packets.

/// What became of datagrams and packets, since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Bytes of packets from peers.
    pub received: u64,
    /// Bytes of packets to them.
    pub sent: u64,
    /// Handshakes that were answered or completed.
    pub handshakes: u64,
    /// Messages of handshakes whose sources had to prove their address first.
    pub cookies: u64,
    /// Messages of handshakes beyond the limit of their source, or of all.
    pub limited: u64,
    /// Handshakes of keys that no peer has, or of one that is barred.
    pub unknown: u64,
    /// Datagrams that nobody sent who knows a key: malformed, replayed, of a session that is over.
    pub invalid: u64,
    /// Empty packets of peers, by which they keep their way open.
    pub keepalives: u64,
    /// Packets from another address than their peer's own.
    pub forged: u64,
    /// Packets of peers, or of the kernel, whose heads cannot be read: cut, too many, out of order, a way of its own.
    pub unreadable: u64,
    /// Packets that the gate refused.
    pub refused: u64,
    /// Packets for a peer that is not there, and those that the door was not open for.
    pub undelivered: u64,
}
