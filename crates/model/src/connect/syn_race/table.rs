//! A table of destinations with a fixed size.

use crate::units::Time;
use alloc::vec::Vec;
use core::net::IpAddr;

/// A destination: an IPv4 /24 or an IPv6 /48, whose addresses share the path (algorithms/asymmetric
/// D.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix(u64);

impl Prefix {
    /// The prefix of an address; an IPv4 address written as IPv6 is IPv4.
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(v4) => Self(u64::from(v4.to_bits() >> 8)),
            IpAddr::V6(v6) => Self((1 << 48) | (v6.to_bits() >> 80) as u64),
        }
    }

    /// Mixed well enough that neighbouring prefixes do not share a row (the finaliser of splitmix64).
    const fn mixed(self) -> u64 {
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }
}

/// Entries in a row; a prefix has its place in one row, so every operation looks at so many at most.
pub const WAYS: usize = 8;

#[derive(Debug, Clone)]
struct Slot<V> {
    prefix: Prefix,
    touched: Time,
    value: V,
}

/// Values by prefix. A full row evicts its least recently used entry. Memory is taken as it fills.
#[derive(Debug, Clone)]
pub struct Table<V> {
    rows: Vec<Vec<Slot<V>>>,
}

impl<V> Table<V> {
    /// An empty table for at least `entries`, rounded up to a power of two, at least one row.
    pub fn new(entries: usize) -> Self {
        let rows = entries.div_ceil(WAYS).max(1).next_power_of_two();
        Self { rows: (0..rows).map(|_| Vec::new()).collect() }
    }

    /// The most that are ever remembered.
    pub const fn capacity(&self) -> usize {
        self.rows.len() * WAYS
    }

    /// How many are. Counts them all: for people, not for every packet.
    pub fn len(&self) -> usize {
        self.rows.iter().map(Vec::len).sum()
    }

    /// Whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.rows.iter().all(Vec::is_empty)
    }

    /// Everything remembered, in no order that means anything.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.rows.iter().flatten().map(|slot| &slot.value)
    }

    /// The entry of a prefix.
    pub fn get(&self, prefix: Prefix) -> Option<&V> {
        let row = &self.rows[self.row(prefix)];
        row.iter().find(|slot| slot.prefix == prefix).map(|slot| &slot.value)
    }

    /// A prefix's entry at `now`; `make` creates it, in a full row for the oldest that `may_leave`.
    pub fn touch(
        &mut self,
        now: Time,
        prefix: Prefix,
        may_leave: impl FnOnce(&V) -> bool,
        make: impl FnOnce() -> V,
    ) -> Option<&mut V> {
        let row = self.row(prefix);
        let row = &mut self.rows[row];
        let at = match row.iter().position(|slot| slot.prefix == prefix) {
            Some(at) => at,
            None => {
                let slot = Slot { prefix, touched: now, value: make() };
                if row.len() < WAYS {
                    row.push(slot);
                    row.len() - 1
                } else {
                    let ages = row.iter().enumerate();
                    let (at, oldest) = ages.min_by_key(|(_, slot)| slot.touched)?;
                    if !may_leave(&oldest.value) {
                        return None;
                    }
                    row[at] = slot;
                    at
                }
            }
        };
        let slot = &mut row[at];
        slot.touched = slot.touched.max(now);
        Some(&mut slot.value)
    }

    const fn row(&self, prefix: Prefix) -> usize {
        // the number of rows is a power of two
        prefix.mixed() as usize & (self.rows.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        Prefix::of(text.parse().unwrap())
    }

    #[test]
    fn neighbours_are_one_destination() {
        assert_eq!(prefix("192.0.2.1"), prefix("192.0.2.254"));
        assert_ne!(prefix("192.0.2.1"), prefix("192.0.3.1"));
        assert_eq!(prefix("192.0.2.1"), prefix("::ffff:192.0.2.9"));
        assert_eq!(prefix("2001:db8:7::1"), prefix("2001:db8:7:9::1"));
        assert_ne!(prefix("2001:db8:7::1"), prefix("2001:db8:8::1"));
        assert_ne!(prefix("::1"), prefix("0.0.0.1"));
    }

    #[test]
    fn full_row_evicts_its_oldest_if_permitted() {
        let mut table = Table::new(1);
        assert_eq!(table.capacity(), WAYS);
        let at = |n: u64| (Time::from_nanos(n), Prefix(n));
        for n in 0..WAYS as u64 {
            let (now, prefix) = at(n);
            assert!(table.touch(now, prefix, |_| false, || n).is_some());
        }
        // the first is touched again, so the second is the oldest
        assert_eq!(table.touch(Time::from_nanos(50), Prefix(0), |_| false, || 99), Some(&mut 0));
        let (now, prefix) = at(60);
        assert_eq!(table.touch(now, prefix, |oldest| *oldest != 1, || 60), None);
        assert!(table.touch(now, prefix, |oldest| *oldest == 1, || 60).is_some());
        assert_eq!((table.get(Prefix(1)), table.get(Prefix(0))), (None, Some(&0)));
        assert_eq!(table.len(), WAYS);
    }
}
