//! What each packet that arrives says by itself: that the path has become longer, or that a queue grows.

use super::{FEW, PACKET, Purpose, RateHold, seconds};
use crate::units::{Span, Time};

/// A round trip that grows by more than this from one packet to the next is another path. It is as long as a tunnel's
/// acknowledgement is held back: of two packets that leave together the first may be the last that one tells of …
const JUMP: Span = Span::from_millis(20);
/// … and the other the first that waits for the next, and a packet's time on the line later (of 1,500 bytes: larger
/// ones are not for thin lines).
const PACKETS: f64 = 2.0;
/// What arrives is counted over such a share of a round trip: a sixth. Less is told wrong by a single late one.
const SHARE: u64 = 6;
/// Packets in a row that waited for longer than is tolerated.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Late {
    packets: u64,
    /// When the first of them was sent and when it arrived, and the bytes of those after it.
    sent: Time,
    since: Time,
    bytes: u64,
}

impl RateHold {
    /// A queue grows packet by packet; a round trip that grows from one packet to the next is another path, or a
    /// line that stood still. Where it was that, what has gathered drains while half is sent, and the shorter
    /// round trip shows.
    pub(super) fn on_round_trip(&mut self, now: Time, rtt: Span) {
        let sent = Time::from_nanos(now.as_nanos().saturating_sub(rtt.as_nanos()));
        let Some((before, last)) = self.last.filter(|(before, _)| *before < sent) else {
            self.last = self.last.or(Some((sent, rtt)));
            return;
        };
        self.last = Some((sent, rtt));
        let apart = sent.since(before);
        let jump = rtt.as_nanos().saturating_sub(last.as_nanos());
        // a line of a tenth of what is sent lets it grow by nine times that
        let floor = self.config.floor.as_bits_per_second() as f64;
        let line = self.line.unwrap_or_else(|| self.allotted()).max(floor).max(1.0);
        let takes = Span::from_nanos((PACKETS * PACKET / line * 1e9) as u64);
        let grown = (apart.saturating_mul(9) + JUMP + takes).as_nanos();
        if jump > grown
            && apart < JUMP.saturating_mul(5)
            && let Some(base) = self.base
        {
            self.base = Some(base + Span::from_nanos(jump));
            self.late = Late::default();
            self.jumped = Span::from_nanos(jump);
            self.begin(now, Purpose::Doubt);
            if let Some(reaction) = &mut self.reaction {
                reaction.shows += Span::from_nanos(jump);
            }
        }
    }

    /// Enough packets in a row that wait say how fast the line is without waiting for the rest of their epoch.
    pub(super) fn on_late(&mut self, now: Time, bytes: u64, rtt: Span, holding: bool) {
        let Some(base) = self.base else { return };
        if !holding
            || self.reaction.is_some()
            || rtt <= base + self.tolerated()
            || self.is_contended()
        {
            self.late = Late::default();
            return;
        }
        let sent = Time::from_nanos(now.as_nanos().saturating_sub(rtt.as_nanos()));
        if self.late.packets == 0 {
            self.late = Late { packets: 1, sent, since: now, bytes: 0 };
            return;
        }
        self.late.packets += 1;
        self.late.bytes += bytes;
        let span = now.since(self.late.since);
        // as was_pressed: over the last round trip as much was sent as is under way
        let under_way = self.in_flight as f64 * 8.0 / seconds(rtt);
        let rate = self.rate().as_bits_per_second() as f64;
        let pressed = under_way > 0.5 * rate || 2 * self.in_flight > self.in_flight_cap().as_u64();
        let enough = JUMP.max(Span::from_nanos(base.as_nanos() / SHARE));
        if self.late.packets > FEW && span >= enough && pressed {
            let bits = self.late.bytes as f64 * 8.0;
            let arrives = bits / seconds(span);
            let sent = bits / seconds(sent.since(self.late.sent)).max(1e-9);
            if self.is_filled() || tells(arrives, sent, rate) {
                self.queue = Span::from_nanos(rtt.as_nanos() - base.as_nanos());
                self.react(now, base, arrives, self.loss);
            }
        }
    }

    /// As much is under way as may be: it is that which limits what is sent.
    pub(super) fn is_filled(&self) -> bool {
        10 * self.in_flight > 9 * self.in_flight_cap().as_u64()
    }
}

/// Whether what arrives, in bits a second, says how fast the line is: it was sent faster, or as fast as may be.
/// Otherwise it is what there was to send, and came late for another reason: by acknowledgements that were held back.
pub(super) fn tells(arrives: f64, sent: f64, rate: f64) -> bool {
    sent > 0.8 * rate || arrives < 0.9 * sent
}
