//! A bounded number of places. A newcomer takes one from those that have not logged in.

use ekiden_linux::host::sync::locked;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

/// The connections, and which of them gives way. Times are numbers that grow with each event.
#[derive(Debug)]
struct Seats {
    most: usize,
    next: u64,
    /// By number, the oldest first.
    held: BTreeMap<u64, Seat>,
}

#[derive(Debug)]
struct Seat {
    network: IpAddr,
    /// It has sent a request with the right to call.
    is_authorised: bool,
    /// When it fell silent; `None` while it is answered.
    silent: Option<u64>,
}

/// A seat that is taken, and which one had to give way for it.
#[derive(Debug, PartialEq, Eq)]
struct Taken {
    number: u64,
    instead_of: Option<u64>,
}

impl Seats {
    const fn new(most: usize) -> Self {
        Self { most, next: 0, held: BTreeMap::new() }
    }

    const fn tick(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// A seat for a newcomer; `None` while authorised requests of others are answered in all.
    fn on_newcomer(&mut self, from: IpAddr) -> Option<Taken> {
        let network = network(from);
        let mut instead_of = None;
        if self.held.len() >= self.most {
            let number = self.stranger(network).or_else(|| self.silent_longest())?;
            self.held.remove(&number);
            instead_of = Some(number);
        }
        let number = self.tick();
        let seat = Seat { network, is_authorised: false, silent: Some(number) };
        self.held.insert(number, seat);
        Some(Taken { number, instead_of })
    }

    /// The oldest connection that has not logged in, of the networks that have the most of them with
    /// the newcomer counted. It may be in the middle of a request: one that is sent slowly is, too.
    fn stranger(&self, newcomer: IpAddr) -> Option<u64> {
        let mut counts = BTreeMap::from([(newcomer, 1_usize)]);
        let strangers = || self.held.iter().filter(|(_, seat)| !seat.is_authorised);
        for (_, seat) in strangers() {
            *counts.entry(seat.network).or_default() += 1;
        }
        let of = |seat: &Seat| counts.get(&seat.network).copied();
        let most = strangers().filter_map(|(_, seat)| of(seat)).max()?;
        strangers().find(|(_, seat)| of(seat) == Some(most)).map(|(number, _)| *number)
    }

    /// Where all have logged in: the one that was silent longest.
    fn silent_longest(&self) -> Option<u64> {
        let silent = |(number, seat): (&u64, &Seat)| Some((seat.silent?, *number));
        self.held.iter().filter_map(silent).min().map(|(_, number)| number)
    }

    fn on_request(&mut self, number: u64) {
        if let Some(seat) = self.held.get_mut(&number) {
            seat.silent = None;
        }
    }

    fn on_answer(&mut self, number: u64) {
        let now = self.tick();
        if let Some(seat) = self.held.get_mut(&number) {
            seat.silent = Some(now);
        }
    }

    fn on_authorised(&mut self, number: u64) {
        if let Some(seat) = self.held.get_mut(&number) {
            seat.is_authorised = true;
        }
    }

    fn on_end(&mut self, number: u64) {
        self.held.remove(&number);
    }
}

/// What one host can take addresses from: an IPv6 /64, an IPv4 address.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.into(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << 64)).into(),
    }
}

#[derive(Debug)]
pub(super) struct Places {
    state: Mutex<State>,
    /// One was given back, or fell silent.
    freed: Notify,
}

#[derive(Debug)]
struct State {
    seats: Seats,
    /// How each learns that it lost its place.
    lost: BTreeMap<u64, Arc<Notify>>,
}

/// A place; given back when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    state: PlaceState,
    lost: Arc<Notify>,
}

/// What a connection tells of itself.
#[derive(Debug, Clone)]
pub(crate) struct PlaceState {
    places: Arc<Places>,
    number: u64,
}

/// A request is being answered for as long as this lives.
#[derive(Debug)]
pub(super) struct Answering(PlaceState);

impl Places {
    pub(super) fn new(most: usize) -> Self {
        let state = State { seats: Seats::new(most), lost: BTreeMap::new() };
        Self { state: Mutex::new(state), freed: Notify::new() }
    }

    /// Waits only while authorised requests are answered in all.
    pub(super) async fn take(places: &Arc<Self>, from: IpAddr) -> Place {
        loop {
            let freed = places.freed.notified();
            if let Some(place) = Self::try_take(places, from) {
                return place;
            }
            freed.await;
        }
    }

    fn try_take(places: &Arc<Self>, from: IpAddr) -> Option<Place> {
        let mut state = locked(&places.state);
        let Taken { number, instead_of } = state.seats.on_newcomer(from)?;
        if let Some(lost) = instead_of.and_then(|number| state.lost.remove(&number)) {
            lost.notify_one();
        }
        let lost = Arc::new(Notify::new());
        state.lost.insert(number, Arc::clone(&lost));
        Some(Place { state: PlaceState { places: Arc::clone(places), number }, lost })
    }
}

impl Place {
    /// Returns when the place was taken away.
    pub(super) async fn lost(&self) {
        self.lost.notified().await;
    }

    pub(super) fn state(&self) -> PlaceState {
        self.state.clone()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let PlaceState { places, number } = &self.state;
        let mut state = locked(&places.state);
        state.seats.on_end(*number);
        state.lost.remove(number);
        drop(state);
        places.freed.notify_one();
    }
}

impl PlaceState {
    /// Marks the place as in use while a request is answered.
    pub(super) fn answer(&self) -> Answering {
        locked(&self.places.state).seats.on_request(self.number);
        Answering(self.clone())
    }

    /// A request was sent to the end of its head with the right to call: the place is kept from now
    /// on.
    pub(crate) fn on_authorised(&self) {
        locked(&self.places.state).seats.on_authorised(self.number);
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        let PlaceState { places, number } = &self.0;
        locked(&places.state).seats.on_answer(*number);
        places.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// Seats, all taken: how many from each address.
    fn full(from: &[(&str, usize)]) -> Seats {
        let mut seats = Seats::new(from.iter().map(|(_, count)| count).sum());
        for (address, count) in from {
            for _ in 0..*count {
                assert_eq!(seats.on_newcomer(ip(address)).unwrap().instead_of, None);
            }
        }
        seats
    }

    fn gives_way(seats: &mut Seats, newcomer: &str) -> Option<u64> {
        seats.on_newcomer(ip(newcomer)).unwrap().instead_of
    }

    #[test]
    fn the_oldest_that_has_not_logged_in_gives_way() {
        let mut seats = full(&[("192.0.2.1", 3)]);
        seats.on_authorised(1);
        // a request that is sent slowly keeps no place
        seats.on_request(2);
        assert_eq!(gives_way(&mut seats, "192.0.2.1"), Some(2));
        assert_eq!(gives_way(&mut seats, "192.0.2.1"), Some(3));
        assert!(seats.held.contains_key(&1));
    }

    #[test]
    fn the_address_with_most_connections_gives_way() {
        let mut seats = full(&[("192.0.2.9", 1), ("192.0.2.1", 3), ("2001:db8::1", 2)]);
        assert_eq!(gives_way(&mut seats, "192.0.2.7"), Some(2));
        // equal in number: the oldest of both
        assert_eq!(gives_way(&mut seats, "192.0.2.7"), Some(3));
        // one more of the /64 has the most, with the newcomer
        assert_eq!(gives_way(&mut seats, "2001:db8::2:1"), Some(5));
        assert!(seats.held.contains_key(&1));
    }

    #[test]
    fn connections_of_operators_do_not_count_as_their_share() {
        let mut seats = full(&[("192.0.2.1", 2), ("192.0.2.9", 2)]);
        seats.on_authorised(1);
        seats.on_authorised(2);
        assert_eq!(gives_way(&mut seats, "192.0.2.1"), Some(3));
    }

    #[test]
    fn among_operators_the_one_that_was_silent_longest_gives_way() {
        let mut seats = full(&[("192.0.2.1", 3)]);
        (1..=3).for_each(|number| seats.on_authorised(number));
        seats.on_request(1);
        seats.on_answer(1);
        seats.on_request(2);
        let fourth = seats.on_newcomer(ip("192.0.2.1")).unwrap();
        assert_eq!(fourth.instead_of, Some(3));
        seats.on_authorised(fourth.number);
        seats.on_request(fourth.number);
        seats.on_request(1);
        assert_eq!(seats.on_newcomer(ip("192.0.2.1")), None, "all are being answered");
        seats.on_answer(2);
        assert_eq!(gives_way(&mut seats, "192.0.2.1"), Some(2));
    }

    #[test]
    fn a_place_that_is_lost_is_told_and_one_that_ends_is_free() {
        use std::task::{Context, Poll, Waker};
        let places = Arc::new(Places::new(1));
        let first = Places::try_take(&places, ip("192.0.2.1")).unwrap();
        let second = Places::try_take(&places, ip("192.0.2.1")).unwrap();
        let is_lost = |place: &Place| {
            let lost = std::pin::pin!(place.lost());
            lost.poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
        };
        assert!(is_lost(&first) && !is_lost(&second));
        drop((first, second));
        let state = locked(&places.state);
        assert!(state.seats.held.is_empty() && state.lost.is_empty());
    }

    #[tokio::test]
    async fn a_place_that_is_given_back_wakes_a_newcomer_that_waits() {
        let places = Arc::new(Places::new(1));
        let first = Places::take(&places, ip("192.0.2.1")).await;
        first.state().on_authorised();
        let answering = first.state().answer();
        let waits = tokio::spawn({
            let places = Arc::clone(&places);
            async move { drop(Places::take(&places, ip("192.0.2.1")).await) }
        });
        tokio::task::yield_now().await;
        drop((first, answering));
        waits.await.unwrap();
    }
}
