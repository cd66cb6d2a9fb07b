//! Proportional rate reduction with the slow-start reduction bound (RFC 6937).

/// One recovery. All in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Prr {
    threshold: u64,
    outstanding: u64,
    delivered: u64,
    sent: u64,
    room: u64,
    mss: u64,
}

impl Prr {
    /// Recovery begins with so much outstanding, and is to end at `threshold`.
    pub(super) fn new(threshold: u64, outstanding: u64, mss: u64) -> Self {
        Self { threshold, outstanding: outstanding.max(1), delivered: 0, sent: 0, room: 0, mss }
    }

    /// An acknowledgement says that so much has arrived; `pipe` is in flight.
    pub(super) fn on_ack(&mut self, delivered: u64, pipe: u64) {
        self.delivered += delivered;
        self.room = if pipe > self.threshold {
            let share = u128::from(self.delivered) * u128::from(self.threshold);
            let share = share.div_ceil(self.outstanding.into());
            u64::try_from(share).unwrap_or(u64::MAX).saturating_sub(self.sent)
        } else {
            let behind = self.delivered.saturating_sub(self.sent);
            (self.threshold - pipe).min(behind.max(delivered) + self.mss)
        };
        // the first segment is always retransmitted immediately (RFC 6937 §3)
        if self.sent == 0 {
            self.room = self.room.max(self.mss);
        }
    }

    pub(super) const fn room(&self) -> u64 {
        self.room
    }

    pub(super) const fn on_sent(&mut self, bytes: u64) {
        self.sent += bytes;
        self.room = self.room.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6937 §4's first example: of 20 segments the first is lost; every second of 19 duplicates
    /// lets one go.
    #[test]
    fn one_segment_for_two_that_arrived() {
        let mut prr = Prr::new(10, 20, 1);
        let mut pipe = 20_u64;
        let mut sent = std::vec::Vec::new();
        for _ in 0..19 {
            pipe -= 1;
            prr.on_ack(1, pipe);
            let now = prr.room();
            prr.on_sent(now);
            pipe += now;
            sent.push(now);
        }
        assert_eq!(sent.iter().sum::<u64>(), 9);
        assert_eq!(pipe, 10);
        assert!(sent.windows(2).all(|pair| pair[0] + pair[1] <= 2), "{sent:?}");
    }

    /// … and its second: 15 of 20 lost. No burst, and back at the threshold in the end.
    #[test]
    fn after_heavy_loss_as_in_slow_start() {
        let mut prr = Prr::new(10, 20, 1);
        let mut pipe = 5_u64;
        for _ in 0..30 {
            if pipe == 0 {
                break;
            }
            pipe -= 1;
            prr.on_ack(1, pipe);
            let now = prr.room();
            assert!(now <= 2, "{now}");
            prr.on_sent(now);
            pipe += now;
        }
        assert!((9..=10).contains(&pipe), "{pipe}");
    }
}
