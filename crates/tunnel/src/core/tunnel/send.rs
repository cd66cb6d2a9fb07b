//! Frames about flows, on their streams.

use super::super::config::STREAMS;
use super::super::flow::{End, Flow};
use super::Tunnel;
use crate::frame::Frame;
use bytes::BytesMut;
use ekiden_model::control::scheduler;
use ekiden_model::units::Time;

/// Frames on one stream, a packet's worth each, before another stream is used: quinn-proto closes
/// the connection at 1,024 pieces that wait for others.
const MOST_SAID: u32 = 256;
/// While no more than this are in flight, data that is copied or repaired gets a stream of its own: on a
/// shared one a lost packet would delay those of a round trip after it.
const OF_THEIR_OWN: usize = STREAMS as usize / 2;

impl Tunnel {
    pub(super) fn tell(&mut self, now: Time, id: u64, nth: usize, frames: &[Frame], copy: bool) {
        if self.flows.contains_key(&id) && !self.say(now, id, nth, frames, copy) {
            self.fail("the peer permits no control stream".to_owned());
        }
    }

    /// Sends frames about a flow on a lane, or on the other where that fails; whether it worked.
    pub(super) fn say(
        &mut self,
        now: Time,
        id: u64,
        nth: usize,
        frames: &[Frame],
        copy: bool,
    ) -> bool {
        let repairs = self.repairs_losses();
        // a peer that is not known yet permits few streams
        let known = self.greeting.is_some();
        let Some(flow) = self.flows.get_mut(&id) else { return false };
        let (mut said, mut alone) = (false, None);
        let header = flow.header(id);
        let mut bytes =
            BytesMut::with_capacity(frames.iter().map(Frame::length).sum::<usize>() + 16);
        for nth in [nth, 1 - nth] {
            let Some(lane) = self.lanes[nth].as_mut().filter(|lane| lane.connected) else {
                continue;
            };
            let own = known && (copy || repairs) && lane.streams_in_flight() < OF_THEIR_OWN;
            // a receiver keeps the first data of a stream for decoding, and no more
            if own
                && matches!(frames, [Frame::Data { .. }])
                && flow.sending.said[nth] > 0
                && let Some(shared) = flow.sending.streams[nth].take()
            {
                lane.finish(shared);
            }
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
            alone = own.then_some((nth, stream));
            if own || flow.sending.said[nth] >= MOST_SAID {
                lane.finish(stream);
                flow.sending.streams[nth] = None;
            }
            break;
        }
        // on a path that is too short, or beyond their part of the rate, there is no copy
        let copied = copy && said && self.copy_of(now, id, frames);
        if let ([Frame::Data { offset, bytes }], Some(on)) = (frames, alone)
            && let Some(flow) = self.flows.get_mut(&id)
        {
            self.repairs.on_sent(now, (id, flow), on, (*offset, bytes), copied);
        }
        said
    }

    /// Schedules a copy of frames about a flow; whether there is one.
    fn copy_of(&mut self, now: Time, id: u64, frames: &[Frame]) -> bool {
        let Some(flow) = self.flows.get(&id) else { return false };
        let mut bytes = flow.header(id).to_bytes();
        frames.iter().for_each(|frame| frame.write(&mut bytes));
        let data = match frames {
            [Frame::Data { offset, .. }] => Some((id, *offset)),
            _ => None,
        };
        self.copy(now, bytes.freeze(), data)
    }

    /// The last frame about a flow in this direction.
    pub(super) fn write_last(&mut self, now: Time, id: u64, frame: &Frame) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        flow.sending.clear();
        self.memory.on_queue(flow);
        self.scheduler.close(flow.turns);
        self.turns.remove(&flow.turns);
        // nothing is scheduled for the closed handle again: `ended` keeps bytes out
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
        let copied = flow.lane == scheduler::Lane::Interactive || self.repairs_losses();
        self.tell(now, id, nth, &[frame], copied);
        self.finish_streams(id);
        if reset {
            self.give_up(id);
        } else if self.flows.get(&id).is_some_and(Flow::is_over) {
            self.remove(id);
        }
    }
}
