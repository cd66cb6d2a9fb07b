//! Records the acknowledgements and losses that quinn-proto reports to a congestion controller.
//!
//! The window is unbounded, so nothing waits inside the library; above 2³² quinn-proto's pacer is
//! off too. quinn-proto reports when the last lost packet was sent, not which ones were lost: by
//! RFC 9002 §6.1 all earlier unacknowledged packets are lost with it.

use ekiden_model::control::rate_hold::SentBytes;
use quinn_proto::congestion::{Controller, ControllerFactory};
use quinn_proto::{FrameStats, RttEstimator};
use std::any::Any;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AckEvent {
    /// The one sent then arrived.
    Arrived(Instant),
    /// All unacknowledged packets sent up to then are lost.
    Lost(Instant),
}

/// Records one connection's events, whatever paths it takes.
#[derive(Debug, Clone, Default)]
pub(super) struct AckTap(Arc<Mutex<Vec<AckEvent>>>);

impl AckTap {
    fn record(&self, happened: AckEvent) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(happened);
    }
}

impl Controller for AckTap {
    fn on_ack(&mut self, _: Instant, sent: Instant, _: u64, _: bool, _: &RttEstimator) {
        self.record(AckEvent::Arrived(sent));
    }

    fn on_congestion_event(&mut self, _: Instant, sent: Instant, _: bool, lost_bytes: u64) {
        if lost_bytes > 0 {
            self.record(AckEvent::Lost(sent));
        }
    }

    fn on_mtu_update(&mut self, _: u16) {}

    fn window(&self) -> u64 {
        1 << 62
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        1 << 62
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl ControllerFactory for AckTap {
    fn build(self: Arc<Self>, _: Instant, _: u16) -> Box<dyn Controller> {
        Box::new(Self::clone(&self))
    }
}

#[derive(Debug, Clone, Copy)]
struct SentPacket {
    at: Instant,
    told: SentBytes,
    /// Its outcome is known.
    known: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PacketOutcome {
    /// With its send time; `None` where its acknowledgement was not seen.
    Arrived(SentBytes, Option<Instant>),
    Lost(SentBytes),
}

/// A connection's packets in flight, in the order of sending.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    ear: AckTap,
    sent: VecDeque<SentPacket>,
}

impl InFlight {
    pub(super) fn new(ear: AckTap) -> Self {
        Self { ear, sent: VecDeque::new() }
    }

    /// A packet that will be acknowledged left; `at` is later than that of the one before.
    pub(super) fn on_sent(&mut self, at: Instant, told: SentBytes) {
        self.sent.push_back(SentPacket { at, told, known: false });
    }

    /// Packets that are remembered.
    pub(super) fn count(&self) -> usize {
        self.sent.len()
    }

    /// When the last packet was sent, unless all outcomes are known.
    pub(super) fn last_sent(&self) -> Option<Instant> {
        self.sent.back().map(|sent| sent.at)
    }

    /// Outcomes since the last call. An unacknowledged packet counts as arrived `patience` after
    /// later ones were: quinn-proto reports no acknowledgements while it validates a path.
    pub(super) fn outcomes(&mut self, now: Instant, patience: Duration) -> Vec<PacketOutcome> {
        let heard = std::mem::take(&mut *self.ear.0.lock().unwrap_or_else(PoisonError::into_inner));
        let mut fates = Vec::with_capacity(heard.len());
        let any = !heard.is_empty();
        for happened in heard {
            match happened {
                AckEvent::Arrived(at) => {
                    if let Ok(nth) = self.sent.binary_search_by_key(&at, |sent| sent.at)
                        && let Some(sent) = self.sent.get_mut(nth).filter(|sent| !sent.known)
                    {
                        sent.known = true;
                        fates.push(PacketOutcome::Arrived(sent.told, Some(at)));
                    }
                }
                AckEvent::Lost(until) => {
                    for sent in self.sent.iter_mut().take_while(|sent| sent.at <= until) {
                        if !std::mem::replace(&mut sent.known, true) {
                            fates.push(PacketOutcome::Lost(sent.told));
                        }
                    }
                }
            }
        }
        if any {
            for sent in self.sent.iter_mut().take_while(|sent| sent.at + patience < now) {
                if !std::mem::replace(&mut sent.known, true) {
                    fates.push(PacketOutcome::Arrived(sent.told, None));
                }
            }
        }
        while self.sent.pop_front_if(|sent| sent.known).is_some() {}
        fates
    }
}

/// Frames sent that want an acknowledgement: everything but acknowledgements and closing (RFC 9000 §13.2.1).
pub(super) const fn eliciting(sent: &FrameStats) -> u64 {
    sent.ack_frequency
        + sent.crypto
        + sent.data_blocked
        + sent.datagram
        + sent.handshake_done as u64
        + sent.immediate_ack
        + sent.max_data
        + sent.max_stream_data
        + sent.max_streams_bidi
        + sent.max_streams_uni
        + sent.new_connection_id
        + sent.new_token
        + sent.path_challenge
        + sent.path_response
        + sent.ping
        + sent.reset_stream
        + sent.retire_connection_id
        + sent.stream_data_blocked
        + sent.streams_blocked_bidi
        + sent.streams_blocked_uni
        + sent.stop_sending
        + sent.stream
}

#[cfg(test)]
mod tests {
    use super::*;
    use ekiden_model::units::Bytes;

    #[test]
    fn the_fate_of_each_packet_is_told_once() {
        let ear = AckTap::default();
        let mut way = InFlight::new(ear.clone());
        let origin = Instant::now();
        let at = |ms| origin + Duration::from_millis(ms);
        let told = |epoch| SentBytes { epoch, bytes: Bytes::new(1200) };
        (0..6).for_each(|n| way.on_sent(at(n), told(n)));
        let patience = Duration::from_secs(1);
        ear.record(AckEvent::Arrived(at(1)));
        ear.record(AckEvent::Arrived(at(3)));
        ear.record(AckEvent::Lost(at(2)));
        // of the handshake, before anything was counted
        ear.record(AckEvent::Arrived(at(77)));
        let fates = way.outcomes(at(10), patience);
        let arrived = |n| PacketOutcome::Arrived(told(n), Some(at(n)));
        assert_eq!(
            fates,
            [arrived(1), arrived(3), PacketOutcome::Lost(told(0)), PacketOutcome::Lost(told(2))]
        );
        assert!(way.outcomes(at(2000), patience).is_empty(), "silence says nothing");
        ear.record(AckEvent::Arrived(at(5)));
        assert_eq!(
            way.outcomes(at(2000), patience),
            [arrived(5), PacketOutcome::Arrived(told(4), None)]
        );
        assert!(way.sent.is_empty());
    }
}
