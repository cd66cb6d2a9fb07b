//! Evidence from single acknowledgements: a longer path, or a growing queue.

use super::{EpochPurpose, FEW, PACKET, RateHold, seconds};
use crate::units::{Span, Time};

/// A round trip that grows by more than this between packets is another path. It is a tunnel's
/// acknowledgement delay: packets sent together may be covered by two acknowledgements …
const JUMP: Span = Span::from_millis(20);
/// … and a packet's time on the line (of 1,500 bytes: larger ones are not for thin lines).
const PACKETS: f64 = 2.0;
/// Arrivals are counted over a sixth of a round trip: over less one late acknowledgement misleads.
const SHARE: u64 = 6;

/// So many say as much where they take so long: a line in a deep fade gives no more.
const SLOW: (u64, Span) = (3, Span::from_secs(1));

/// A round trip that grows at once, and again within a few packets.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Climb {
    /// The path's round trip before the first jump, once there was one.
    from: Option<Span>,
    /// Packets since the last jump.
    packets: u64,
}

/// Packets in a row that waited for longer than is tolerated.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LateArrivals {
    packets: u64,
    /// When the first of them was sent and when it arrived, and the bytes of those after it.
    sent: Time,
    since: Time,
    bytes: u64,
}

impl RateHold {
    /// A queue grows packet by packet. A round trip that grows at once is another path, or a line
    /// that stood still; the latter's queue drains while half the rate is sent, which shows.
    pub(super) fn on_round_trip(&mut self, now: Time, rtt: Span) {
        let sent = Time::from_nanos(now.as_nanos().saturating_sub(rtt.as_nanos()));
        let Some((before, last)) = self.last.filter(|(before, _)| *before < sent) else {
            self.last = self.last.or(Some((sent, rtt)));
            return;
        };
        self.last = Some((sent, rtt));
        let apart = sent.since(before);
        let jump = rtt.as_nanos().saturating_sub(last.as_nanos());
        // a line of a tenth of the send rate lets it grow by nine times that
        let line = self.line.unwrap_or_else(|| self.allotted()).max(self.least()).max(1.0);
        let takes = Span::from_nanos((PACKETS * PACKET / line * 1e9) as u64);
        let grown = (apart.saturating_mul(9) + JUMP + takes).as_nanos();
        self.climb.packets = self.climb.packets.saturating_add(1);
        if jump > grown
            && apart < JUMP.saturating_mul(5)
            && let Some(base) = self.base
        {
            if self.climbs(base) {
                return;
            }
            self.base = Some(base + Span::from_nanos(jump));
            self.late = LateArrivals::default();
            self.jumped = Span::from_nanos(jump);
            self.begin(now, EpochPurpose::Doubt);
            if let Some(reaction) = &mut self.reaction {
                reaction.shows += Span::from_nanos(jump);
            }
        }
    }

    /// Whether a jump follows another one: a longer path keeps its length, while the queue of a line
    /// of less than a tenth of the send rate grows by a jump with each packet.
    fn climbs(&mut self, base: Span) -> bool {
        let follows = self.climb.from.is_some() && self.climb.packets < FEW;
        let from = self.climb.from.filter(|_| follows).unwrap_or(base);
        self.climb = Climb { from: Some(from), packets: 0 };
        if follows {
            self.base = Some(from.min(base));
        }
        follows
    }

    /// Enough queued packets in a row show the line's rate before their epoch ends.
    pub(super) fn on_late(&mut self, now: Time, bytes: u64, rtt: Span, holding: bool) {
        let Some(base) = self.base else { return };
        if !holding
            || self.reaction.is_some()
            || rtt <= base + self.tolerated()
            || self.is_contended()
        {
            self.late = LateArrivals::default();
            return;
        }
        let sent = Time::from_nanos(now.as_nanos().saturating_sub(rtt.as_nanos()));
        if self.late.packets == 0 {
            self.late = LateArrivals { packets: 1, sent, since: now, bytes: 0 };
            return;
        }
        self.late.packets += 1;
        self.late.bytes += bytes;
        let span = now.since(self.late.since);
        // as was_pressed: over the last round trip as much was sent as is in flight
        let under_way = self.in_flight as f64 * 8.0 / seconds(rtt);
        let rate = self.rate().as_bits_per_second() as f64;
        let pressed = under_way > 0.5 * rate || 2 * self.in_flight > self.in_flight_cap().as_u64();
        let enough = JUMP.max(Span::from_nanos(base.as_nanos() / SHARE));
        let many = self.late.packets > FEW || self.late.packets > SLOW.0 && span >= SLOW.1;
        if many && span >= enough && pressed {
            let bits = self.late.bytes as f64 * 8.0;
            let arrives = bits / seconds(span);
            let sent = bits / seconds(sent.since(self.late.sent)).max(1e-9);
            if self.is_filled() || tells(arrives, sent, rate) {
                self.queue = Span::from_nanos(rtt.as_nanos() - base.as_nanos());
                self.react(now, base, arrives, self.loss);
            }
        }
    }

    /// The in-flight cap is reached and limits sending.
    pub(super) fn is_filled(&self) -> bool {
        10 * self.in_flight > 9 * self.in_flight_cap().as_u64()
    }
}

/// Whether the arrival rate, bit/s, measures the line: packets were sent faster, or as fast as
/// permitted.
pub(super) fn tells(arrives: f64, sent: f64, rate: f64) -> bool {
    sent > 0.8 * rate || arrives < 0.9 * sent
}
