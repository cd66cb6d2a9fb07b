//! What is still to happen, in the order in which it will.

#[cfg(test)]
mod tests;
mod wheel;

use ekiden_model::units::Time;
use wheel::Wheel;

/// Events by time, and those of one time by the order in which they were pushed. That order is the
/// whole tie-break: it depends on nothing but the calls made, so equal runs are equal everywhere.
///
/// ```text
/// while let Some((now, event)) = events.pop() {
///     … events.push(now + delay, another) …
/// }
/// ```
/// Nothing is ever cancelled: a timer that moved is pushed again when it fires early, and one that is
/// no longer wanted fires into nothing.
///
/// A hierarchical timing wheel (Varghese and Lauck 1987) with what is next to come sorted beside it.
/// Both operations are amortised O(1), but pushing into the 33 µs that are being popped costs
/// time linear in what these still hold (half a microsecond when these are 4,096 events). It allocates
/// only when there are more events than ever before, and keeps at most that room, about 24 bytes an
/// event, and a fifth of a mebibyte.
///
/// `E` takes at most 8 bytes: a packed number or a small enum, with indices to what is larger.
#[derive(Debug, Clone)]
pub struct Events<E> {
    now: Time,
    len: usize,
    /// The number of the next event to be pushed.
    sequence: u64,
    /// What is due up to the end of the wheel's current tick, latest first, so that the next is popped
    /// off its end.
    front: Vec<Entry<E>>,
    /// What is due later.
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
    #[must_use]
    pub fn new(now: Time) -> Self {
        const { assert!(size_of::<E>() <= 8, "an event is a number or a small enum") };
        Self { now, len: 0, sequence: 0, front: Vec::new(), wheel: Wheel::new(now.as_nanos()) }
    }

    /// Has `event` come at `at`, after all that were pushed for that time before. A time that is past
    /// is a mistake of the caller's: it counts as now, and is refused aloud in debug builds.
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

    /// How many are still to come.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether none is.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The time of the last event popped; before the first, what `new` was told.
    #[must_use]
    pub const fn now(&self) -> Time {
        self.now
    }
}
