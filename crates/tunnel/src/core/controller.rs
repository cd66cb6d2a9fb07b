//! What quinn-proto tells a congestion controller, kept for the tunnel's own: it is never asked to block.
//!
//! Its window has no end, so that nothing of ours ever waits inside the library, and above 2³² its own
//! pacer rests. Which packets were lost it does not say, only when the last of them was sent. But a packet
//! is lost when a later one has come and enough besides (RFC 9002 §6.1), so with it all earlier ones are
//! that nothing was heard of.

use ekiden_model::rate_hold::Told;
use quinn_proto::RttEstimator;
use quinn_proto::congestion::{Controller, ControllerFactory};
use std::any::Any;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What became of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Happened {
    /// The one sent then arrived.
    Arrived(Instant),
    /// All sent up to then that nothing was heard of are lost.
    Lost(Instant),
}

/// Listens to one connection, whatever paths it takes.
#[derive(Debug, Clone, Default)]
pub(super) struct Ear(Arc<Mutex<Vec<Happened>>>);

impl Ear {
    fn hear(&self, happened: Happened) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(happened);
    }
}

impl Controller for Ear {
    fn on_ack(&mut self, _: Instant, sent: Instant, _: u64, _: bool, _: &RttEstimator) {
        self.hear(Happened::Arrived(sent));
    }

    fn on_congestion_event(&mut self, _: Instant, sent: Instant, _: bool, lost_bytes: u64) {
        if lost_bytes > 0 {
            self.hear(Happened::Lost(sent));
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

impl ControllerFactory for Ear {
    fn build(self: Arc<Self>, _: Instant, _: u16) -> Box<dyn Controller> {
        Box::new(Self::clone(&self))
    }
}

/// A packet that left.
#[derive(Debug, Clone, Copy)]
struct Sent {
    at: Instant,
    told: Told,
    /// Its fate is known.
    known: bool,
}

/// What became of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It arrived, and was sent then; `None` where its acknowledgement was not seen.
    Arrived(Told, Option<Instant>),
    /// It did not.
    Lost(Told),
}

/// Packets of one connection that are under way, in the order in which they left.
#[derive(Debug, Default)]
pub(super) struct UnderWay {
    ear: Ear,
    sent: VecDeque<Sent>,
}

impl UnderWay {
    pub(super) fn new(ear: Ear) -> Self {
        Self { ear, sent: VecDeque::new() }
    }

    /// A packet that will be acknowledged left; `at` is later than that of the one before.
    pub(super) fn on_sent(&mut self, at: Instant, told: Told) {
        self.sent.push_back(Sent { at, told, known: false });
    }

    /// What has become known since last asked. A packet nothing is heard of for `patience` though later
    /// ones were is taken for arrived: while a path is being validated, acknowledgements are not told.
    pub(super) fn fates(&mut self, now: Instant, patience: Duration) -> Vec<Fate> {
        let heard = std::mem::take(&mut *self.ear.0.lock().unwrap_or_else(PoisonError::into_inner));
        let mut fates = Vec::with_capacity(heard.len());
        let any = !heard.is_empty();
        for happened in heard {
            match happened {
                Happened::Arrived(at) => {
                    if let Ok(nth) = self.sent.binary_search_by_key(&at, |sent| sent.at)
                        && let Some(sent) = self.sent.get_mut(nth).filter(|sent| !sent.known)
                    {
                        sent.known = true;
                        fates.push(Fate::Arrived(sent.told, Some(at)));
                    }
                }
                Happened::Lost(until) => {
                    for sent in self.sent.iter_mut().take_while(|sent| sent.at <= until) {
                        if !std::mem::replace(&mut sent.known, true) {
                            fates.push(Fate::Lost(sent.told));
                        }
                    }
                }
            }
        }
        if any {
            for sent in self.sent.iter_mut().take_while(|sent| sent.at + patience < now) {
                if !std::mem::replace(&mut sent.known, true) {
                    fates.push(Fate::Arrived(sent.told, None));
                }
            }
        }
        while self.sent.pop_front_if(|sent| sent.known).is_some() {}
        fates
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ekiden_model::units::Bytes;

    #[test]
    fn the_fate_of_each_packet_is_told_once() {
        let ear = Ear::default();
        let mut way = UnderWay::new(ear.clone());
        let origin = Instant::now();
        let at = |ms| origin + Duration::from_millis(ms);
        let told = |epoch| Told { epoch, bytes: Bytes::new(1200) };
        (0..6).for_each(|n| way.on_sent(at(n), told(n)));
        let patience = Duration::from_secs(1);
        ear.hear(Happened::Arrived(at(1)));
        ear.hear(Happened::Arrived(at(3)));
        ear.hear(Happened::Lost(at(2)));
        // of the handshake, before anything was counted
        ear.hear(Happened::Arrived(at(77)));
        let fates = way.fates(at(10), patience);
        let arrived = |n| Fate::Arrived(told(n), Some(at(n)));
        assert_eq!(fates, [arrived(1), arrived(3), Fate::Lost(told(0)), Fate::Lost(told(2))]);
        assert!(way.fates(at(2000), patience).is_empty(), "silence says nothing");
        ear.hear(Happened::Arrived(at(5)));
        assert_eq!(way.fates(at(2000), patience), [arrived(5), Fate::Arrived(told(4), None)]);
        assert!(way.sent.is_empty());
    }
}
