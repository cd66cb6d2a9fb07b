//! A span of sending at one rate, and the outcomes of its packets.

use super::seconds;
use crate::units::{Bytes, Span, Time};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EpochPurpose {
    Hold,
    /// To see whether the line gives more.
    Train,
    /// As much less as the train was more.
    Rest,
    /// Half of it, to see whether a round trip that has grown is a queue.
    Doubt,
}

#[derive(Debug, Clone)]
pub(super) struct Epoch {
    pub(super) begun: Time,
    pub(super) ends: Time,
    pub(super) purpose: EpochPurpose,
    pub(super) rate: f64,
    /// Bits of a train beyond what the estimate would have let out.
    pub(super) excess: f64,
    last_sent: Time,
    sent: [u64; 2],
    acked: [u64; 2],
    lost: [u64; 2],
    pub(super) bursts: u64,
    pub(super) shortest: Option<Span>,
    /// When the first acknowledgement came and how much it was for; when the last one came.
    first_acked: Option<(Time, u64)>,
    last_acked: Time,
    whole_acks: WholeAcks,
}

/// Arrivals by acknowledgement: for several packets together, of which the last has just come.
/// Those of an epoch's last acknowledgement may have waited for packets of the next.
#[derive(Debug, Clone, Copy, Default)]
struct WholeAcks {
    /// Acknowledgements so far.
    count: u64,
    /// When the first, the last but one and the last came.
    times: [Time; 3],
    /// Bytes after the first, without those of the last; and of the last.
    bytes: [u64; 2],
}

impl WholeAcks {
    fn on_acked(&mut self, now: Time, bytes: u64) {
        if self.count > 0 && self.times[2] == now {
            self.bytes[1] += if self.count > 1 { bytes } else { 0 };
            return;
        }
        if self.count == 0 {
            self.times = [now; 3];
        } else {
            self.bytes = [self.bytes[0] + self.bytes[1], bytes];
            self.times = [self.times[0], self.times[2], now];
        }
        self.count += 1;
    }

    /// Bits a second from the first to the last but one, if there are three, with the bits of a lost
    /// packet between them.
    fn rate(&self, lost: f64) -> Option<f64> {
        let span = seconds(self.times[1].since(self.times[0]));
        (self.count > 2 && span > 0.0).then(|| (self.bytes[0] as f64 * 8.0 + lost) / span)
    }
}

impl Epoch {
    pub(super) const fn new(begun: Time, ends: Time, purpose: EpochPurpose, rate: f64) -> Self {
        Self {
            begun,
            ends,
            purpose,
            rate,
            excess: 0.0,
            last_sent: begun,
            sent: [0; 2],
            acked: [0; 2],
            lost: [0; 2],
            bursts: 0,
            shortest: None,
            first_acked: None,
            last_acked: begun,
            whole_acks: WholeAcks { count: 0, times: [begun; 3], bytes: [0; 2] },
        }
    }

    pub(super) fn on_sent(&mut self, now: Time, bytes: Bytes) {
        add(&mut self.sent, bytes);
        self.last_sent = now;
    }

    pub(super) fn on_acked(&mut self, now: Time, bytes: Bytes, rtt: Option<Span>) {
        add(&mut self.acked, bytes);
        self.shortest = self.shortest.into_iter().chain(rtt).min();
        self.first_acked.get_or_insert((now, bytes.as_u64()));
        self.last_acked = now;
        self.whole_acks.on_acked(now, bytes.as_u64());
    }

    /// `again` after another lost one.
    pub(super) fn on_lost(&mut self, bytes: Bytes, again: bool) {
        add(&mut self.lost, bytes);
        self.bursts += u64::from(!again);
    }

    pub(super) const fn is_known(&self) -> bool {
        self.acked[0] + self.lost[0] >= self.sent[0]
    }

    pub(super) const fn packets(&self) -> u64 {
        self.sent[0]
    }

    /// Whether it was sent at its rate, and not less for lack of data or of in-flight room.
    pub(super) fn is_full(&self) -> bool {
        self.sent_rate() > 0.8 * self.rate
    }

    pub(super) fn sent_rate(&self) -> f64 {
        self.sent[1] as f64 * 8.0 / seconds(self.ends.since(self.begun)).max(1e-9)
    }

    pub(super) const fn lost(&self) -> u64 {
        self.lost[0]
    }

    pub(super) fn loss(&self) -> f64 {
        self.lost[0] as f64 / self.sent[0].max(1) as f64
    }

    /// Bits a second at which its acknowledgements came, from the first to the last.
    pub(super) fn arrival_rate(&self) -> f64 {
        let Some((first, bytes)) = self.first_acked else { return 0.0 };
        let span = seconds(self.last_acked.since(first));
        if span > 0.0 { (self.acked[1] - bytes) as f64 * 8.0 / span } else { f64::INFINITY }
    }

    /// The same by acknowledgements that waited for no packet of another epoch, and with the one
    /// packet that chance may lose of a few.
    pub(super) fn train_rate(&self) -> f64 {
        let lost = self.lost[1] as f64 * 8.0 / self.lost[0].max(1) as f64;
        self.whole_acks.rate(lost).unwrap_or_else(|| self.arrival_rate())
    }
}

fn add(count: &mut [u64; 2], bytes: Bytes) {
    count[0] += 1;
    count[1] += bytes.as_u64();
}
