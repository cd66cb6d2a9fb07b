//! A peer's stream on a lane: its bytes put in order, and the frames in them.
//!
//! QUIC hands bytes over in any order. In its own it would keep those behind a lost packet, where nobody counts them.

use super::{BadFrame, Frame, StreamOwner};
use crate::core::reassembly::Assembly;
use crate::frame;
use bytes::{Bytes, BytesMut};

/// Memory of a piece that waits for one before it, beside its bytes: here, and in QUIC's set of what has come.
const PIECE: u64 = 128;

#[derive(Debug)]
pub(super) struct Inbound {
    order: Assembly,
    /// The beginning of a frame.
    cut: BytesMut,
    pub(super) about: StreamOwner,
}

/// What streams hold.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct InboundBytes {
    /// Of incomplete frames.
    pub(super) incomplete: usize,
    /// Behind others that have not come.
    pub(super) behind: u64,
    /// Pieces of these.
    pub(super) pieces: usize,
}

impl InboundBytes {
    pub(super) fn add(&mut self, of: &Inbound) {
        self.incomplete += of.cut.len();
        self.behind += of.order.held();
        self.pieces += of.order.pieces();
    }

    pub(super) fn subtract(&mut self, of: &Inbound) {
        self.incomplete -= of.cut.len();
        self.behind -= of.order.held();
        self.pieces -= of.order.pieces();
    }

    pub(super) const fn memory(&self) -> u64 {
        self.incomplete as u64 + self.behind + PIECE * self.pieces as u64
    }
}

impl Inbound {
    pub(super) fn new() -> Self {
        let (order, cut) = (Assembly::default(), BytesMut::new());
        Self { order, cut, about: StreamOwner::Unknown }
    }

    /// Takes bytes of the stream, and hands on the frames that they complete. Those within a packet that came in order
    /// are part of it where it `shares`.
    pub(super) fn take(
        &mut self,
        offset: u64,
        mut bytes: Bytes,
        shares: bool,
        mut hear: impl FnMut(Frame),
    ) -> Result<(), BadFrame> {
        if !self.order.pass(offset, bytes.len() as u64) {
            self.order.insert(offset, bytes);
            while let Some(bytes) = self.order.take() {
                self.cut.extend_from_slice(&bytes);
                self.read(&mut hear)?;
            }
            return Ok(());
        }
        // senders put each frame into one packet
        if shares && self.cut.is_empty() {
            while let Some(frame) = frame::read_shared(&mut bytes)? {
                hear(frame);
            }
        }
        self.cut.extend_from_slice(&bytes);
        self.read(&mut hear)
    }

    fn read(&mut self, hear: &mut impl FnMut(Frame)) -> Result<(), BadFrame> {
        let mut complete = false;
        while let Some(frame) = frame::read(&mut self.cut)? {
            hear(frame);
            complete = true;
        }
        // a rest keeps the memory of all before it
        if self.cut.is_empty() {
            self.cut = BytesMut::new();
        } else if complete {
            self.cut = BytesMut::from(&self.cut[..]);
        }
        Ok(())
    }

    /// The stream is over; an incomplete frame is useless.
    pub(super) fn end(&mut self) {
        (self.order, self.cut) = (Assembly::default(), BytesMut::new());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Bytes in any order, of which some come twice: the frames come out in order, and nothing is left.
        #[test]
        fn frames_come_in_order(
            lengths in prop::collection::vec(1_usize..3_000, 1..8),
            cuts in prop::collection::vec((1_usize..2_000, any::<u32>()), 1..40),
            shares: bool,
        ) {
            let mut bytes = BytesMut::new();
            let frames: Vec<Frame> =
                lengths.iter().map(|length| Frame::Packet(vec![7; *length].into())).collect();
            frames.iter().for_each(|frame| frame.write(&mut bytes));
            let bytes = bytes.freeze();
            let (mut pieces, mut from) = (Vec::new(), 0);
            for (length, place) in cuts.iter().cycle() {
                let to = bytes.len().min(from + length);
                pieces.push((*place, from, to));
                from = to;
                if from == bytes.len() {
                    break;
                }
            }
            pieces.extend(pieces.clone().iter().take(2).map(|(place, from, to)| (place / 2, *from, *to)));
            pieces.sort_unstable();
            let (mut inbound, mut sum, mut heard) =
                (Inbound::new(), InboundBytes::default(), Vec::new());
            for (_, from, to) in pieces {
                sum.subtract(&inbound);
                let piece = bytes.slice(from..to);
                inbound.take(from as u64, piece, shares, |frame| heard.push(frame)).unwrap();
                sum.add(&inbound);
                prop_assert!(sum.incomplete as u64 + sum.behind <= bytes.len() as u64);
            }
            prop_assert_eq!(heard, frames);
            prop_assert_eq!(sum.memory(), 0);
        }
    }
}
