//! Datagrams that came, given to their connections.

use super::*;

/// Bytes of the shortest datagram that may begin a connection (RFC 9000 §14.1).
const LEAST_INITIAL: usize = 1_200;

impl Endpoint {
    /// A datagram came. An Initial of an unknown address waits until [`Endpoint::on_deadline`], or is dropped where
    /// there are too many (`docs/book/src/design/protocol.md`).
    pub fn receive(&mut self, now: Time, way: impl Into<Way>, datagram: BytesMut) {
        self.receive_all(now, [(way.into(), datagram)]);
    }

    /// Several came: what they brought is looked at once for each connection, which costs less.
    pub fn receive_all(&mut self, now: Time, datagrams: impl IntoIterator<Item = (Way, BytesMut)>) {
        for (way, datagram) in datagrams {
            self.take(now, way, datagram);
        }
        self.settle_touched(now);
    }

    fn take(&mut self, now: Time, way: Way, datagram: BytesMut) {
        if !self.listens || !is_initial(&datagram) {
            return self.handle(now, way, datagram);
        }
        let known = self.is_known(way.peer);
        // QUIC drops it as well, but too late: it would have used up the rates of others. Of a known address the rest of
        // the datagram may be for its connection
        if !known && datagram.len() < LEAST_INITIAL {
            return;
        }
        if !locked(&self.address.initials).on_initial(now, way.source(), known) {
            return;
        }
        if known {
            self.handle(now, way, datagram);
        } else if self.strangers.len() < STRANGERS {
            self.strangers.push_back((way, datagram));
        }
    }

    pub(super) fn settle_touched(&mut self, now: Time) {
        while let Some(handle) = self.touched.pop() {
            self.settle(now, handle);
        }
    }

    /// Gives a datagram to its connection, which is to be settled afterwards.
    pub(super) fn handle(&mut self, now: Time, way: Way, datagram: BytesMut) {
        let clock = self.instant(now);
        let length = datagram.len();
        let mut reply = Vec::new();
        match self.quinn.handle(clock, way.peer, way.here, None, datagram, &mut reply) {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if let Some(lane) = self.lane(handle) {
                    lane.receive(event, length);
                }
                if !self.touched.contains(&handle) {
                    self.touched.push(handle);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => self.meet(now, incoming, way),
            Some(DatagramEvent::Response(transmit)) => {
                self.reply(way, reply, transmit.size);
            }
            None => {}
        }
    }

    /// Answers a datagram of no connection, or drops the answer where many wait: they go before all tunnels' packets, and
    /// a server may limit them (RFC 9000 §5.2.2).
    pub(super) fn reply(&mut self, way: Way, mut bytes: Vec<u8>, length: usize) {
        if self.replies.len() < REPLIES {
            bytes.truncate(length);
            self.replies.push_back((way, bytes));
        }
    }
}
