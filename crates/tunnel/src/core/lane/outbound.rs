//! This side's streams on a lane: bytes that wait for QUIC, and those that it keeps until they are acknowledged.

use super::Lane;
use bytes::BytesMut;
use quinn_proto::{Dir, StreamId};

impl Lane {
    pub(in crate::core) fn open(&mut self) -> Option<StreamId> {
        let id = self.quinn.streams().open(Dir::Uni)?;
        self.ours.insert(id);
        Some(id)
    }

    /// Streams of ours of which the peer has not acknowledged everything.
    pub(in crate::core) fn streams_in_flight(&mut self) -> usize {
        self.quinn.streams().send_streams()
    }

    pub(in crate::core) fn write(&mut self, id: StreamId, bytes: BytesMut) {
        self.busy = true;
        let mut bytes = bytes.freeze();
        if !self.outbound.contains_key(&id) {
            let mut stream = self.quinn.send_stream(id);
            while !bytes.is_empty() {
                // it takes from them what it can
                match stream.write_chunks(std::slice::from_mut(&mut bytes)) {
                    Ok(_) => {}
                    // it says when there is room
                    Err(quinn_proto::WriteError::Blocked) => break,
                    // the peer does not want it
                    Err(_) => return,
                }
            }
        }
        if !bytes.is_empty() {
            self.waiting += bytes.len();
            self.outbound.entry(id).or_default().0.extend_from_slice(&bytes);
        }
    }

    pub(in crate::core) fn finish(&mut self, id: StreamId) {
        self.busy = true;
        match self.outbound.get_mut(&id) {
            Some((_, finish)) => *finish = true,
            None => self.end(id),
        }
    }

    fn end(&mut self, id: StreamId) {
        // fails where the peer has stopped the stream: then it was reset
        let _ = self.quinn.send_stream(id).finish();
    }

    /// The peer wants no more of a stream. RFC 9000 §3.5 has it reset; until then QUIC would keep it.
    pub(super) fn on_stopped(&mut self, id: StreamId) {
        self.busy = true;
        if let Some((waiting, _)) = self.outbound.remove(&id) {
            self.waiting -= waiting.len();
        }
        // fails where it is over already
        let _ = self.quinn.send_stream(id).reset(0_u32.into());
        self.on_finished(id);
    }

    pub(super) fn flush(&mut self, id: StreamId) {
        let Some((waiting, finish)) = self.outbound.get_mut(&id) else { return };
        self.busy = true;
        let mut stream = self.quinn.send_stream(id);
        while !waiting.is_empty() {
            let gone = match stream.write(waiting) {
                Ok(written) => written,
                // the peer's window is full, which credit should prevent: continue when quinn has
                // room
                Err(quinn_proto::WriteError::Blocked) => return,
                // the peer does not want it
                Err(_) => waiting.len(),
            };
            drop(waiting.split_to(gone));
            self.waiting -= gone;
        }
        if *finish {
            self.end(id);
        }
        self.outbound.remove(&id);
    }

    /// Streams of ours that were acknowledged, or that the peer stopped, since the last call.
    pub(in crate::core) fn finished(&mut self) -> Vec<StreamId> {
        std::mem::take(&mut self.finished)
    }

    pub(super) fn on_finished(&mut self, id: StreamId) {
        self.ours.remove(&id);
        self.finished.push(id);
    }

    /// Has QUIC keep nothing of what was sent: else it would until the connection is drained, for as long as the peer
    /// likes. Nothing is sent of that, because the connection is closed.
    pub(super) fn discard_streams(&mut self) {
        for id in std::mem::take(&mut self.ours) {
            // fails where it is over
            let _ = self.quinn.send_stream(id).reset(0_u32.into());
        }
    }

    /// Wants no more of any stream that came.
    #[cfg(test)]
    pub(in crate::core) fn stop_streams(&mut self) {
        for id in self.inbound.keys() {
            let _ = self.quinn.recv_stream(*id).stop(0_u32.into());
        }
        self.busy = true;
    }
}
