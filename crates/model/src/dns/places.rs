//! Places that askers share by the rule of [`Shares`]. So a new one always has a place.

use super::asker::Asker;
use super::shares::Shares;

/// The places that are taken. `H` tells a holder that its place gave way.
#[derive(Debug)]
pub struct Places<H> {
    /// Of all but this relay.
    most: usize,
    /// Of this relay.
    own: usize,
    taken: Shares<H>,
}

impl<H> Places<H> {
    /// At most `most` places, and `own` for this relay itself; at least one of each.
    pub const fn new(most: usize, own: usize) -> Self {
        Self {
            most: if most == 0 { 1 } else { most },
            own: if own == 0 { 1 } else { own },
            taken: Shares::new(),
        }
    }

    /// Takes a place: its number, and the holder whose place gave way to it.
    pub fn take(&mut self, asker: &Asker, holder: H) -> (u64, Option<H>) {
        let most = if *asker == Asker::Relay { self.own } else { self.most };
        let has_room = self.taken.counted(asker) < most;
        let gone = if has_room { None } else { self.taken.give_way(asker) };
        (self.taken.add(asker, holder), gone.map(|(.., holder)| holder))
    }

    /// Gives a place back; `None`: it gave way before.
    pub fn give(&mut self, asker: &Asker, number: u64) -> Option<H> {
        self.taken.remove(asker, number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;

    fn asker(nth: usize) -> Asker {
        match nth {
            0 => Asker::Relay,
            1 => Asker::Account(1),
            2 => Asker::Peer("ship".into()),
            _ => Asker::at([192, 0, 2, nth as u8].into()),
        }
    }

    proptest! {
        #[test]
        fn the_oldest_place_of_whoever_has_the_most_gives_way(
            most in 1_usize..12,
            own in 1_usize..5,
            steps in proptest::collection::vec((0_usize..7, any::<bool>(), any::<usize>()), 1..200),
        ) {
            let mut places = Places::new(most, own);
            // whose, its holder, and its number; the oldest first
            let mut taken: Vec<(usize, usize, u64)> = Vec::new();
            for (step, (who, takes, which)) in steps.into_iter().enumerate() {
                if !takes {
                    if !taken.is_empty() {
                        let (whose, holder, number) = taken.remove(which % taken.len());
                        prop_assert_eq!(places.give(&asker(whose), number), Some((whose, holder)));
                        prop_assert_eq!(places.give(&asker(whose), number), None);
                    }
                    continue;
                }
                let held: Vec<usize> =
                    (0..7).map(|nth| taken.iter().filter(|one| one.0 == nth).count()).collect();
                let full = if who == 0 { held[0] == own } else { taken.len() - held[0] == most };
                let (number, gone) = places.take(&asker(who), (who, step));
                prop_assert_eq!(gone.is_some(), full, "not without need, and never more");
                if let Some((victim, holder)) = gone {
                    let oldest = taken.iter().position(|one| one.0 == victim).unwrap();
                    let (_, its_holder, lost) = taken.remove(oldest);
                    prop_assert_eq!(holder, its_holder, "the oldest of its asker");
                    prop_assert_eq!(places.give(&asker(victim), lost), None);
                    prop_assert_eq!(victim == 0, who == 0, "the relay's own are apart");
                    let largest = held[1..].iter().max().copied().unwrap_or_default();
                    let fair = victim == who && held[who] + 1 >= largest
                        || victim != who && held[victim] == largest
                            && (held[who] == 0 || largest > held[who] + 1);
                    prop_assert!(victim == 0 || fair, "{victim} of {held:?} for {who}");
                }
                taken.push((who, step, number));
                let own_now = taken.iter().filter(|one| one.0 == 0).count();
                prop_assert!(own_now <= own && taken.len() - own_now <= most);
            }
            for (whose, _, number) in taken {
                prop_assert!(places.give(&asker(whose), number).is_some());
            }
            places.taken.check([]);
        }
    }
}
