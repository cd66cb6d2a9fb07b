//! What gets lost after it was sent.

use super::Packet;
use crate::rng::Rng;
use crate::units::Share;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;

/// What one decision of the loss process falls on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossUnit {
    /// Each packet on the wire. A super-packet of n segments is lost when any of its segments would be
    /// (a driver that can split it should do so before offering it).
    Packet,
    /// Each packet offered, however many segments it stands for: as an emulator does that drops what
    /// its host's segmentation offload has not cut yet.
    SuperPacket,
}

/// A loss process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loss {
    /// None.
    None,
    /// Each with the same probability, independently.
    Independent(Share, LossUnit),
    /// In bursts.
    GilbertElliott(GilbertElliott, LossUnit),
    /// The packets offered with these numbers, counted from 0 in the order they leave.
    Listed(Arc<BTreeSet<u64>>),
}

/// Two states, each with its own loss; the state may change before each decision (Gilbert 1960,
/// Elliott 1963).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GilbertElliott {
    /// Probability of going from good to bad.
    pub to_bad: Share,
    /// Probability of going from bad to good; its inverse is the mean length of a bad spell.
    pub to_good: Share,
    /// Loss in the good state.
    pub good_loss: Share,
    /// Loss in the bad state.
    pub bad_loss: Share,
}

#[derive(Debug, Clone)]
pub(super) struct LossState {
    kind: Loss,
    rng: Rng,
    bad: bool,
    /// Packets decided on.
    seen: u64,
}

impl LossState {
    pub(super) const fn new(kind: Loss, rng: Rng) -> Self {
        Self { kind, rng, bad: false, seen: 0 }
    }

    pub(super) fn change(&mut self, kind: Loss) {
        self.kind = kind;
        self.bad = false;
        self.seen = 0;
    }

    /// Whether this packet is lost.
    pub(super) fn takes(&mut self, packet: &Packet) -> bool {
        let nth = self.seen;
        self.seen += 1;
        let units = |unit| match unit {
            LossUnit::Packet => packet.segments.max(1),
            LossUnit::SuperPacket => 1,
        };
        let rng = &mut self.rng;
        match &self.kind {
            Loss::None => false,
            // every unit draws, lost or not, so that the sequence does not depend on the outcome
            Loss::Independent(share, unit) => {
                (0..units(*unit)).fold(false, |lost, _| happens(rng, *share) | lost)
            }
            Loss::GilbertElliott(chain, unit) => {
                let mut lost = false;
                for _ in 0..units(*unit) {
                    let turn = if self.bad { chain.to_good } else { chain.to_bad };
                    self.bad ^= happens(rng, turn);
                    lost |= happens(rng, if self.bad { chain.bad_loss } else { chain.good_loss });
                }
                lost
            }
            Loss::Listed(list) => list.contains(&nth),
        }
    }
}

fn happens(rng: &mut Rng, share: Share) -> bool {
    rng.below(Share::ALL.as_parts_per_billion()) < share.as_parts_per_billion()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn packet(segments: u16) -> Packet {
        Packet { id: 0, bytes: 1500, class: 0, flow: 0, segments, ecn_capable: false }
    }

    fn losses(kind: Loss, n: usize) -> Vec<bool> {
        let mut state = LossState::new(kind, Rng::new(1));
        (0..n).map(|_| state.takes(&packet(1))).collect()
    }

    #[test]
    fn independent_loss_is_what_was_asked_within_five_sigma() {
        for percent in [1, 5, 50] {
            let share = Share::from_percent(percent).unwrap();
            let lost = losses(Loss::Independent(share, LossUnit::Packet), 100_000);
            let lost = lost.into_iter().filter(|lost| *lost).count() as f64;
            let p = percent as f64 / 100.0;
            let sigma = (100_000.0 * p * (1.0 - p)).sqrt();
            assert!((lost - 100_000.0 * p).abs() < 5.0 * sigma, "{percent} %: {lost}");
        }
    }

    #[test]
    fn gilbert_elliott_loses_in_bursts_of_the_mean_length_asked() {
        let chain = GilbertElliott {
            to_bad: Share::from_percent(1).unwrap(),
            to_good: Share::from_percent(10).unwrap(),
            good_loss: Share::NONE,
            bad_loss: Share::ALL,
        };
        let lost = losses(Loss::GilbertElliott(chain, LossUnit::Packet), 200_000);
        let total = lost.iter().filter(|lost| **lost).count();
        let bursts = lost.windows(2).filter(|pair| !pair[0] && pair[1]).count();
        let mean = total as f64 / bursts as f64;
        // stationary share 1/11, mean burst 10
        assert!((8.5..11.5).contains(&mean), "mean burst {mean}");
        assert!((15_000..21_500).contains(&total), "{total} lost");
    }

    #[test]
    fn listed_packets_are_lost_and_no_others() {
        let list: BTreeSet<u64> = [0, 3].into();
        let lost = losses(Loss::Listed(Arc::new(list)), 5);
        assert_eq!(lost, [true, false, false, true, false]);
    }

    #[test]
    fn a_super_packet_is_one_decision_or_many() {
        let share = Share::from_percent(1).unwrap();
        let count = |unit| {
            let mut state = LossState::new(Loss::Independent(share, unit), Rng::new(2));
            (0..20_000).filter(|_| state.takes(&packet(44))).count()
        };
        // 1 − 0.99^44 = 35.7 %
        assert!((6_800..7_500).contains(&count(LossUnit::Packet)), "{}", count(LossUnit::Packet));
        assert!((140..260).contains(&count(LossUnit::SuperPacket)));
    }
}
