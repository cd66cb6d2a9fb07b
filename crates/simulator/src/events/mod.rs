//! What is still to happen, in the order in which it will.

#[cfg(test)]
mod tests;
mod wheel;

use ekiden_model::units::Time;
use wheel::Wheel;

/// Events by time, ties by the order of pushing, so equal runs are equal everywhere.
///
/// ```text
/// while let Some((now, event)) = events.pop() {
///     … events.push(now + delay, another) …
/// }
/// ```
/// Nothing is cancelled: a moved timer is pushed again when it fires early, an unwanted one fires
/// into nothing.
///
/// A hierarchical timing wheel (Varghese and Lauck 1987) with the next events sorted beside it.
/// Amortised O(1), but pushing into the 33 µs being popped costs time linear in their events (0.5
/// µs at 4,096). It allocates only above the most events ever, about 24 bytes each, and a fifth of
/// a mebibyte. `E` takes at most 8 bytes: a packed number or a small enum.
#[derive(Debug, Clone)]
pub struct Events<E> {
    now: Time,
    len: usize,
    sequence: u64,
    /// Due up to the end of the wheel's current tick, latest first, so that the next is popped off.
    front: Vec<Entry<E>>,
    wheel: Wheel<E>,
}

/// An event in its place: 24 bytes.
#[derive(Debug, Clone, Copy)]
struct Entry<E> {
    /// In nanoseconds.
    at: u64,
    sequence: u64,
    event: E,
}

impl<E> Entry<E> {
    /// Compared as one number, which takes no branch.
    fn rank(&self) -> u128 {
        (u128::from(self.at) << 64) | u128::from(self.sequence)
    }
}

impl<E: Copy> Events<E> {
    /// No events yet, at `now`.
    pub fn new(now: Time) -> Self {
        const { assert!(size_of::<E>() <= 8, "an event is a number or a small enum") };
        Self { now, len: 0, sequence: 0, front: Vec::new(), wheel: Wheel::new(now.as_nanos()) }
    }

    /// Pushes `event` at `at`, after all pushed for that time before. A past time counts as now,
    /// and panics in debug builds.
    pub fn push(&mut self, at: Time, event: E) {
        debug_assert!(at >= self.now, "an event for {at} is pushed at {}", self.now);
        let at = at.max(self.now).as_nanos();
        let entry = Entry { at, sequence: self.sequence, event };
        self.sequence += 1;
        self.len += 1;
        if self.wheel.reaches(at) {
            self.wheel.place(entry);
        } else {
            // no other has a higher number, so time alone says where it stands
            let place = self.front.partition_point(|other| other.at > at);
            self.front.insert(place, entry);
            self.wheel.take_back(&mut self.front);
        }
    }

    /// Takes the next event, with its time, which is `now` from here on; `None` when there is none.
    pub fn pop(&mut self) -> Option<(Time, E)> {
        self.pop_by(Time::NEVER)
    }

    /// Takes the next event if it comes by `until`, that moment included.
    pub fn pop_by(&mut self, until: Time) -> Option<(Time, E)> {
        if self.front.is_empty() {
            self.wheel.advance(&mut self.front);
        }
        let entry = self.front.pop_if(|entry| entry.at <= until.as_nanos())?;
        self.len -= 1;
        self.now = Time::from_nanos(entry.at);
        Some((self.now, entry.event))
    }

    /// Says that it is `now` already; nothing that is still to come is due before.
    pub fn advance_to(&mut self, now: Time) {
        self.now = self.now.max(now);
    }

    /// How many are still to come.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether none is.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The time of the last event popped; before the first, the time given to `new`.
    pub const fn now(&self) -> Time {
        self.now
    }
}
