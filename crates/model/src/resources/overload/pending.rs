//! Places of connections that have not said yet who they are, by [`Sources`].
//!
//! ```text
//! wants_proof(source)              whether a newcomer has to show first that its address is its own
//! on_attempt(now, source, who)     its place, and who gives way for it
//! on_identified(now, id)           it is known who it is; so is its address from now on
//! on_closed(id)
//! is_known(now, source)            whether somebody was identified there lately
//! ```
//! One address has a quarter of the places at most; there, its own oldest gives way to its newcomers. Where all places
//! are taken, the oldest of the address that holds the most gives way to a newcomer whose address holds two fewer, or
//! none. Known addresses give way to known ones alone, and always begin. No deadline: the owner closes who is late.

use super::{PlaceId, Source, Sources, SourcesConfig};
use crate::units::Time;

/// An address may hold so many whatever the quarter: a relay tries four addresses with two connections each.
const FEWEST: u64 = 8;

/// Places of the pending, of whom each has a `T`.
#[derive(Debug, Clone)]
pub struct PendingPlaces<T> {
    sources: Sources<T>,
    places: u64,
    taken: u64,
}

/// A place, and who gave way for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Admitted<T> {
    /// Until it is closed or identified.
    pub place: PlaceId,
    /// Has no place any more, and is to be closed.
    pub gives_way: Option<T>,
}

impl<T> PendingPlaces<T> {
    /// So many places, and nobody in them.
    pub fn new(places: u64) -> Self {
        Self { sources: Sources::new(SourcesConfig::default()), places, taken: 0 }
    }

    /// Whether a newcomer of this address would take another's place, or half of the places are taken: then forged
    /// addresses must not.
    pub fn wants_proof(&self, source: Source) -> bool {
        self.taken >= self.places / 2 || self.sources.held(source) >= self.share()
    }

    /// Somebody came; `None` where there is no place.
    pub fn on_attempt(&mut self, now: Time, source: Source, who: T) -> Option<Admitted<T>> {
        let held = self.sources.held(source);
        let gives_way = if held >= self.share() {
            Some(self.sources.longest_silent(source)?)
        } else if self.taken < self.places {
            None
        } else if self.sources.is_known(now, source) {
            let stranger = self.sources.victim_beside(0, true);
            Some(stranger.or_else(|| self.sources.victim_beside(0, false))?)
        } else {
            Some(self.sources.victim_beside(held, true)?)
        };
        let gives_way = gives_way.and_then(|place| self.on_closed(place));
        self.taken += 1;
        let place = self.sources.on_admit(now, source, who);
        Some(Admitted { place, gives_way })
    }

    /// It is known who it is. Its place is free.
    pub fn on_identified(&mut self, now: Time, place: PlaceId) {
        self.sources.on_log_in(now, place);
        self.on_closed(place);
    }

    /// It is gone; `None` where it had gone before.
    pub fn on_closed(&mut self, place: PlaceId) -> Option<T> {
        let gone = self.sources.on_close(place)?;
        self.taken -= 1;
        Some(gone)
    }

    /// Whether somebody of this address was identified within a day.
    pub fn is_known(&self, now: Time, source: Source) -> bool {
        self.sources.is_known(now, source)
    }

    /// How many places are taken.
    pub const fn taken(&self) -> u64 {
        self.taken
    }

    const fn share(&self) -> u64 {
        let quarter = self.places / 4;
        if quarter > FEWEST { quarter } else { FEWEST }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;

    const PLACES: u64 = 40;

    fn filled(by: impl IntoIterator<Item = u32>) -> PendingPlaces<u32> {
        let mut pending = PendingPlaces::new(PLACES);
        for source in by {
            pending.on_attempt(at(0), Source::V4(source), source);
        }
        pending
    }

    #[test]
    fn one_address_has_a_quarter_and_its_own_oldest_gives_way() {
        let mut pending = filled([7; 9]);
        let last = pending.on_attempt(at(0), Source::V4(7), 99).unwrap();
        assert_eq!((pending.taken(), last.gives_way), (10, None));
        assert!(pending.wants_proof(Source::V4(7)) && !pending.wants_proof(Source::V4(8)));
        let next = pending.on_attempt(at(0), Source::V4(7), 100).unwrap();
        assert_eq!((pending.taken(), next.gives_way), (10, Some(7)));
        assert_eq!(pending.on_closed(last.place), Some(99));
    }

    #[test]
    fn the_largest_gives_way_where_all_places_are_taken() {
        let mut pending = filled((0..PLACES as u32).map(|nth| nth % 4));
        assert_eq!(pending.taken(), PLACES);
        for _ in 0..2 {
            let admitted = pending.on_attempt(at(0), Source::V4(9), 9).unwrap();
            assert!(admitted.gives_way.unwrap() < 4);
        }
        assert_eq!(pending.taken(), PLACES);
    }

    #[test]
    fn a_known_address_always_begins_and_gives_way_to_no_stranger() {
        let mut pending = filled([]);
        let first = pending.on_attempt(at(0), Source::V4(9), 9).unwrap();
        pending.on_identified(at(0), first.place);
        assert_eq!(pending.taken(), 0);
        for nth in 0..PLACES as u32 {
            // no two of one address
            pending.on_attempt(at(1), Source::V4(100 + nth), 100 + nth);
        }
        for _ in 0..8 {
            let admitted = pending.on_attempt(at(2), Source::V4(9), 9).unwrap();
            assert!(admitted.gives_way.unwrap() >= 100);
        }
        for nth in 0..1_000 {
            let admitted = pending.on_attempt(at(3), Source::V4(1_000 + nth), 100).unwrap();
            assert_ne!(admitted.gives_way, Some(9));
        }
    }

    proptest! {
        /// Whatever comes: no more than the places and each address's share; an address without a place gets one unless
        /// known ones hold them all; and nobody gives way to an address that holds as many but one.
        #[test]
        fn places_are_shared(steps in proptest::collection::vec((0_u32..12, 0_u8..8, any::<usize>()), 1..300)) {
            let mut pending = PendingPlaces::new(PLACES);
            let mut there: Vec<(u32, PlaceId)> = Vec::new();
            let mut known = BTreeSet::new();
            let mut seen = 0_u32;
            for (who, kind, chosen) in steps {
                // a few addresses come more often
                let who = if kind % 2 == 0 { who % 3 } else { who };
                if kind >= 6 && !there.is_empty() {
                    let (who, place) = there.swap_remove(chosen % there.len());
                    if kind == 6 {
                        prop_assert!(pending.on_closed(place).is_some());
                    } else {
                        pending.on_identified(at(0), place);
                        known.insert(who);
                    }
                    continue;
                }
                let held = |there: &[(u32, PlaceId)], who| there.iter().filter(|row| row.0 == who).count() as u64;
                let before = held(&there, who);
                seen += 1;
                let admitted = pending.on_attempt(at(0), Source::V4(who), seen);
                let strangers = there.iter().any(|row| !known.contains(&row.0));
                let must = before == 0 && strangers || known.contains(&who) || before >= PLACES / 4;
                prop_assert!(admitted.is_some() || !must);
                let Some(admitted) = admitted else { continue };
                if admitted.gives_way.is_some() {
                    let gone: Vec<usize> = (0..there.len())
                        .filter(|nth| pending.sources.get(there[*nth].1).is_none())
                        .collect();
                    prop_assert_eq!(gone.len(), 1);
                    let of = there[gone[0]].0;
                    let even = before == 0 || held(&there, of) >= before + 2;
                    prop_assert!(of == who || even || known.contains(&who));
                    prop_assert!(known.contains(&who) || !known.contains(&of));
                    there.remove(gone[0]);
                }
                there.push((who, admitted.place));
                prop_assert!(held(&there, who) <= PLACES / 4);
                prop_assert!(there.len() as u64 <= PLACES && pending.taken() == there.len() as u64);
            }
        }
    }
}
