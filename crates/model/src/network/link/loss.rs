//! Packet loss after sending.

use super::Packet;
use crate::rng::Rng;
use crate::units::{Bytes, Share, Span, Time};
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// The unit of one decision of the loss process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossUnit {
    /// Each packet on the wire; a super-packet is lost when any of its n segments would be.
    Packet,
    /// Each packet offered, however many segments: an emulator before segmentation offload cuts.
    SuperPacket,
    /// Each train: packets of one flow at most `gap` apart, up to `most` bytes, share one decision.
    /// For a driver that sees packets where the study's emulator saw super-packets (Linux 2.6.32:
    /// GSO, up to 65,535 bytes).
    ///
    /// Bias: a real super-packet holds at most a third of the congestion window, which a link
    /// cannot see; two super-packets sent at once may share a train. Offered times count, so a slow
    /// link pulls no train apart. Beyond 64 flows trains cut each other short.
    Train {
        /// Bytes of IP packets in one train at most; the study's: 65,535.
        most: Bytes,
        /// Largest gap within a train: below the sender's time between bursts, above that between
        /// packets (1,500 bytes at 100 Mbit/s: 120 µs).
        gap: Span,
    },
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

/// Two states, each with its loss; each decision may change the state (Gilbert 1960, Elliott 1963).
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

impl From<Share> for Loss {
    /// Single packets, independently.
    fn from(share: Share) -> Self {
        if share == Share::NONE { Self::None } else { Self::Independent(share, LossUnit::Packet) }
    }
}

impl Loss {
    /// The same process, its decisions falling on `unit`; listed packets are always packets.
    pub fn per(self, unit: LossUnit) -> Self {
        match self {
            Self::Independent(share, _) => Self::Independent(share, unit),
            Self::GilbertElliott(chain, _) => Self::GilbertElliott(chain, unit),
            Self::None | Self::Listed(_) => self,
        }
    }

    /// The unit of its decisions; packets where it makes none.
    pub const fn unit(&self) -> LossUnit {
        match self {
            Self::Independent(_, unit) | Self::GilbertElliott(_, unit) => *unit,
            Self::None | Self::Listed(_) => LossUnit::Packet,
        }
    }
}

/// Trains that are kept apart.
const TRAINS: usize = 64;

#[derive(Debug, Clone, Copy)]
struct Train {
    flow: u64,
    bytes: u64,
    last: Time,
    lost: bool,
}

#[derive(Debug, Clone)]
pub(super) struct LossState {
    kind: Loss,
    rng: Rng,
    bad: bool,
    seen: u64,
    /// By flow; empty unless decisions fall on trains.
    trains: Vec<Option<Train>>,
}

impl LossState {
    pub(super) fn new(kind: Loss, rng: Rng) -> Self {
        let trains = trains(&kind);
        Self { kind, rng, bad: false, seen: 0, trains }
    }

    /// Another process from now on, in its first state.
    pub(super) fn change(&mut self, kind: Loss) {
        self.trains = trains(&kind);
        self.kind = kind;
        self.bad = false;
        self.seen = 0;
    }

    /// Whether this packet, offered when it was, is lost.
    pub(super) fn takes(&mut self, packet: &Packet, offered: Time) -> bool {
        let nth = self.seen;
        self.seen += 1;
        let draws = match self.kind.unit() {
            LossUnit::Packet => packet.segments.max(1),
            LossUnit::SuperPacket => 1,
            LossUnit::Train { most, gap } => return self.train(packet, offered, most, gap),
        };
        match &self.kind {
            Loss::Listed(list) => list.contains(&nth),
            // every unit draws, lost or not, so that the sequence does not depend on the outcome
            _ => (0..draws).fold(false, |lost, _| self.draw() | lost),
        }
    }

    fn train(&mut self, packet: &Packet, offered: Time, most: Bytes, gap: Span) -> bool {
        let bytes = u64::from(packet.bytes);
        let at = packet.flow as usize % TRAINS;
        let running = self.trains[at].filter(|train| {
            train.flow == packet.flow
                && offered.since(train.last) <= gap
                && train.bytes.saturating_add(bytes) <= most.as_u64()
        });
        let train = match running {
            Some(train) => Train { bytes: train.bytes + bytes, last: offered, ..train },
            None => Train { flow: packet.flow, bytes, last: offered, lost: self.draw() },
        };
        self.trains[at] = Some(train);
        train.lost
    }

    fn draw(&mut self) -> bool {
        let rng = &mut self.rng;
        match &self.kind {
            Loss::None | Loss::Listed(_) => false,
            Loss::Independent(share, _) => happens(rng, *share),
            Loss::GilbertElliott(chain, _) => {
                let turn = if self.bad { chain.to_good } else { chain.to_bad };
                self.bad ^= happens(rng, turn);
                happens(rng, if self.bad { chain.bad_loss } else { chain.good_loss })
            }
        }
    }
}

fn trains(kind: &Loss) -> Vec<Option<Train>> {
    match kind.unit() {
        LossUnit::Train { .. } => alloc::vec![None; TRAINS],
        LossUnit::Packet | LossUnit::SuperPacket => Vec::new(),
    }
}

fn happens(rng: &mut Rng, share: Share) -> bool {
    rng.below(Share::ALL.as_parts_per_billion()) < share.as_parts_per_billion()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(segments: u16) -> Packet {
        Packet { segments, ..Packet::new(0, 1500) }
    }

    fn losses(kind: Loss, n: usize) -> Vec<bool> {
        let mut state = LossState::new(kind, Rng::new(1));
        (0..n).map(|_| state.takes(&packet(1), Time::ZERO)).collect()
    }

    #[test]
    fn independent_loss_is_within_five_sigma() {
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
            (0..20_000).filter(|_| state.takes(&packet(44), Time::ZERO)).count()
        };
        // 1 − 0.99^44 = 35.7 %
        assert!((6_800..7_500).contains(&count(LossUnit::Packet)), "{}", count(LossUnit::Packet));
        assert!((140..260).contains(&count(LossUnit::SuperPacket)));
    }

    /// Losses of `n` packets, each `gap` µs after the one before, of `flows` flows in turn.
    fn in_trains(n: u64, gap: u64, flows: u64) -> Vec<bool> {
        let unit = LossUnit::Train { most: Bytes::new(65_535), gap: Span::from_micros(50) };
        let share = Share::from_percent(10).unwrap();
        let mut state = LossState::new(Loss::Independent(share, unit), Rng::new(3));
        (0..n)
            .map(|id| {
                let packet = Packet { flow: id % flows, ..packet(1) };
                state.takes(&packet, Time::from_nanos(id * gap * 1_000))
            })
            .collect()
    }

    #[test]
    fn loses_whole_trains_at_the_given_rate() {
        // 43 packets of 1,500 bytes fit into 65,535; 10 % of 5,000 trains, five sigma
        let lost = in_trains(43 * 5_000, 10, 1);
        let trains: Vec<_> = lost.chunks(43).collect();
        assert!(trains.iter().all(|train| train.iter().all(|lost| *lost == train[0])));
        let events = trains.iter().filter(|train| train[0]).count();
        assert!((394..=606).contains(&events), "{events}");
    }

    #[test]
    fn gap_ends_a_train_but_other_flows_do_not() {
        // 51 µs between: each packet decides for itself, a tenth of 20,000 within five sigma
        let alone = in_trains(20_000, 51, 1).into_iter().filter(|lost| *lost).count();
        assert!((1_788..=2_212).contains(&alone), "{alone}");
        // two flows in turn, 20 µs between packets of the same: trains of 43 each
        let lost = in_trains(43 * 2 * 500, 10, 2);
        assert!(
            lost.chunks(86).all(|pair| {
                pair.chunks(2).all(|both| both[0] == pair[0] && both[1] == pair[1])
            })
        );
    }
}
