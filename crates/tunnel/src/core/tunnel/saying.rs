//! What is said of flows: on their streams, and once more a little later as a datagram.

use super::super::config::STREAMS;
use super::super::flow::{End, Flow};
use super::{Copy, Tunnel};
use crate::frame::Frame;
use bytes::{Bytes, BytesMut};
use ekiden_model::scheduler;
use ekiden_model::units::{Span, Time};

/// The quickest repair by the peer's acknowledgement is quicker than a copy on paths shorter than this.
const COPY_FROM: Span = Span::from_millis(40);
/// δ, by how much a copy follows: a sixteenth of the round trip, so that two copies and their answers'
/// two stay well below a second round trip, and further apart than a burst of losses where that is
/// possible (ALGORITHMS E.2: up to 19 packets, 57 ms at 4 Mbit/s).
const COPY_AFTER: (Span, Span) = (Span::from_millis(5), Span::from_millis(40));
/// Where more is lost than this a second copy follows, as long after the first. At 5 % one of 400 pairs is
/// lost, and each holds up the keystrokes of a round trip after it.
pub(super) const COPY_AGAIN: f64 = 0.005;

/// Frames on a stream, each a packet's worth; what follows is said on another. quinn-proto puts a stream in order
/// before it can be read, and ends the connection where it has 1,024 pieces that wait for others.
const MOST_SAID: u32 = 256;
/// What is copied has a stream to itself as long as no more of them than this are under way: on one with others a
/// lost keystroke would hold up those of a round trip after it, each of which would come by its copy alone.
const OF_THEIR_OWN: usize = STREAMS as usize / 2;

impl Tunnel {
    /// Says what cannot be left out.
    pub(super) fn tell(&mut self, now: Time, id: u64, nth: usize, frames: &[Frame], copy: bool) {
        if self.flows.contains_key(&id) && !self.say(now, id, nth, frames, copy) {
            self.fail("the peer permits no stream for what is to be said".to_owned());
        }
    }

    /// Says something about a flow on a lane, or on the other where that is not possible; whether it was said.
    pub(super) fn say(
        &mut self,
        now: Time,
        id: u64,
        nth: usize,
        frames: &[Frame],
        copy: bool,
    ) -> bool {
        let Some(flow) = self.flows.get_mut(&id) else { return false };
        let mut said = false;
        let header = flow.header(id);
        let mut bytes = BytesMut::new();
        for nth in [nth, 1 - nth] {
            let Some(lane) = self.lanes[nth].as_mut().filter(|lane| lane.connected) else {
                continue;
            };
            let stream = match flow.sending.streams[nth] {
                Some(stream) => stream,
                None => {
                    let Some(stream) = lane.open() else { continue };
                    flow.sending.streams[nth] = Some(stream);
                    flow.sending.said[nth] = 0;
                    header.write(&mut bytes);
                    stream
                }
            };
            frames.iter().for_each(|frame| frame.write(&mut bytes));
            lane.write(stream, bytes);
            said = true;
            flow.sending.said[nth] += frames.len() as u32;
            let own = copy && lane.streams_under_way() < OF_THEIR_OWN;
            if own || flow.sending.said[nth] >= MOST_SAID {
                lane.finish(stream);
                flow.sending.streams[nth] = None;
            }
            break;
        }
        if copy && said {
            let mut bytes = header.to_bytes();
            frames.iter().for_each(|frame| frame.write(&mut bytes));
            self.copy(now, bytes.freeze());
        }
        said
    }

    /// The last thing said of a flow in this direction.
    pub(super) fn write_last(&mut self, now: Time, id: u64, frame: &Frame) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        flow.sending.clear();
        self.scheduler.close(flow.turns);
        self.turns.remove(&flow.turns);
        // nothing is told to the closed handle again: `ended` keeps bytes out
        if std::mem::replace(&mut flow.sending.ended, true) {
            // after a half-close its streams are over
            flow.sending.streams = [None; 2];
        }
        let nth =
            usize::from(flow.sending.streams[0].is_none() && flow.sending.streams[1].is_some());
        self.tell(now, id, nth, std::slice::from_ref(frame), false);
        self.finish_streams(id);
    }

    pub(super) fn finish_streams(&mut self, id: u64) {
        let Some(flow) = self.flows.get(&id) else { return };
        for (lane, stream) in self.lanes.iter_mut().zip(flow.sending.streams) {
            if let (Some(lane), Some(stream)) = (lane, stream) {
                lane.finish(stream);
            }
        }
    }

    pub(super) fn end_if_all_sent(&mut self, now: Time, id: u64) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        let sending = &mut flow.sending;
        if sending.ended || sending.queued > 0 {
            return;
        }
        let Some(end) = sending.end.clone() else { return };
        sending.ended = true;
        let offset = sending.sent;
        let nth = usize::from(sending.streams[0].is_none() && sending.streams[1].is_some());
        let (frame, reset) = match end {
            End::Fin => (Frame::Fin(offset), false),
            End::Reset(reason, words) => (Frame::Reset { offset, reason, words }, true),
        };
        let interactive = flow.lane == scheduler::Lane::Interactive;
        self.tell(now, id, nth, &[frame], interactive);
        self.finish_streams(id);
        if reset {
            self.give_up(id);
        } else if self.flows.get(&id).is_some_and(Flow::is_over) {
            self.remove(id);
        }
    }

    fn copy(&mut self, now: Time, bytes: Bytes) {
        let Some(rtt) = self.rtt().filter(|rtt| *rtt >= COPY_FROM) else { return };
        let after = Span::from_nanos(rtt.as_nanos() / 16).clamp(COPY_AFTER.0, COPY_AFTER.1);
        let again = self.lately > COPY_AGAIN;
        for (queue, nth) in self.copies.iter_mut().zip(1..=1 + u64::from(again)) {
            let due = now + after.saturating_mul(nth);
            // in order, though the round trip changes
            let due = queue.back().map_or(due, |last: &Copy| last.due.max(due));
            queue.push_back(Copy { due, bytes: bytes.clone() });
        }
    }

    pub(super) fn send_due_copies(&mut self, now: Time) {
        for queue in &mut self.copies {
            while let Some(copy) = queue.pop_front_if(|copy| copy.due <= now) {
                let Some(lane) = self.lanes[0].as_mut().filter(|lane| lane.connected) else {
                    continue;
                };
                let length = copy.bytes.len() as u64;
                if lane.send_datagram(copy.bytes) {
                    self.counts.copies += 1;
                    self.counts.copied += length;
                }
            }
        }
    }
}
