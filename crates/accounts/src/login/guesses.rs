//! Wrong guesses, by address, by user and by both.

use super::backoff::{Backoff, BackoffLimits};
use super::verdicts::Digest;
use ekiden_model::units::{Span, Time};
use std::net::{IpAddr, Ipv6Addr};

/// Guessing one user's password from one address: beyond a few typing mistakes it is at most one in five minutes.
const BY_BOTH: BackoffLimits = BackoffLimits {
    free: 5,
    first: Span::from_secs(1),
    most: Span::from_secs(300),
    forget: Span::from_secs(900),
    remembered: 16_384,
};
/// Guessing one user's password from anywhere. The longest wait is short: the user may have to wait
/// too.
const BY_USER: BackoffLimits = BackoffLimits { free: 10, most: Span::from_secs(60), ..BY_BOTH };
/// Users guessed at from one address, each counted once: a village behind it may have as many
/// devices with an old password, and none stops its neighbours. Loopback is no address of a guesser: all who come through a
/// web server on this machine have it.
const BY_ADDRESS: BackoffLimits = BackoffLimits { free: 30, ..BY_BOTH };

/// Against whom a wrong guess is held.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GuessKeys {
    pub(crate) address: IpAddr,
    /// The name, with the password that it has now.
    pub(crate) user: Digest,
    /// The same at this address.
    pub(crate) both: Digest,
}

#[derive(Debug)]
pub(crate) struct Guesses {
    addresses: Backoff<IpAddr>,
    users: Backoff<Digest>,
    both: Backoff<Digest>,
}

impl Guesses {
    pub(crate) const fn new() -> Self {
        Self {
            addresses: Backoff::new(BY_ADDRESS),
            users: Backoff::new(BY_USER),
            both: Backoff::new(BY_BOTH),
        }
    }

    /// How long an attempt has still to wait.
    pub(crate) fn wait(&self, now: Time, who: &GuessKeys) -> Span {
        let by_address = match who.address.is_loopback() {
            true => Span::ZERO,
            false => self.addresses.wait(now, &who.address),
        };
        by_address.max(self.users.wait(now, &who.user)).max(self.both.wait(now, &who.both))
    }

    /// Whether wrong guesses of this address are remembered.
    pub(crate) fn has_guessed(&self, now: Time, address: &IpAddr) -> bool {
        self.addresses.has_failed(now, address)
    }

    /// A guess was wrong.
    pub(crate) fn on_wrong(&mut self, now: Time, who: &GuessKeys) {
        if self.both.on_failure(now, &who.both) == 1 {
            self.addresses.on_failure(now, &who.address);
        }
        self.users.on_failure(now, &who.user);
    }
}

/// Whom an address stands for: of IPv6 a customer has a /64 at least (RFC 6177).
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(v4) => IpAddr::V4(v4),
        IpAddr::V6(v6) if v6.is_loopback() => IpAddr::V6(v6),
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_waits_are_those_that_the_book_has() {
        let waits = |limits: BackoffLimits, wrong: u32| {
            let mut backoff = Backoff::new(limits);
            for _ in 0..wrong {
                backoff.on_failure(Time::ZERO, &'a');
            }
            backoff.wait(Time::ZERO, &'a').as_secs()
        };
        // the table of operate/accounts.md
        assert_eq!([5, 6, 7, 14, 15].map(|wrong| waits(BY_BOTH, wrong)), [0, 1, 2, 256, 300]);
        assert_eq!([10, 11, 12, 16, 17].map(|wrong| waits(BY_USER, wrong)), [0, 1, 2, 32, 60]);
        assert_eq!([30, 31, 32, 39, 40].map(|wrong| waits(BY_ADDRESS, wrong)), [0, 1, 2, 256, 300]);
    }

    #[test]
    fn a_user_guessed_at_from_everywhere_waits_a_minute_at_most() {
        let (mut guesses, now) = (Guesses::new(), Time::ZERO);
        let who = |n: u8| GuessKeys {
            address: IpAddr::from([100, 64, n, 1]),
            user: [1; 32],
            both: [n; 32],
        };
        for address in 0..40 {
            guesses.on_wrong(now, &who(address));
        }
        assert_eq!(guesses.wait(now, &who(99)), Span::from_secs(60));
    }

    #[test]
    fn guessing_many_users_backs_off_the_address() {
        let (mut guesses, now) = (Guesses::new(), Time::ZERO);
        let waits = |user: u8| {
            let address = IpAddr::from([100, 64, 0, 1]);
            let who = GuessKeys { address, user: [user; 32], both: [user; 32] };
            let wait = guesses.wait(now, &who);
            guesses.on_wrong(now, &who);
            wait > Span::ZERO
        };
        assert_eq!((0..40).position(waits), Some(31));
    }

    #[test]
    fn a_guesser_behind_a_web_server_of_this_machine_keeps_out_nobody_else() {
        for address in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
            let (mut guesses, now) = (Guesses::new(), Time::ZERO);
            let address = network(address.parse().unwrap());
            let who = |user: u8| GuessKeys { address, user: [user; 32], both: [user; 32] };
            for user in 0..100 {
                guesses.on_wrong(now, &who(user));
            }
            assert_eq!(guesses.wait(now, &who(200)), Span::ZERO, "{address}");
            for _ in 0..6 {
                guesses.on_wrong(now, &who(7));
            }
            // one user is guessed at no faster than from elsewhere
            assert!(guesses.wait(now, &who(7)) > Span::ZERO);
            assert_eq!(guesses.wait(now, &who(8)), Span::ZERO);
        }
    }

    #[test]
    fn ipv6_addresses_count_by_their_64_prefix() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(network(ip("2001:db8::1")), network(ip("2001:db8::2:3")));
        assert_ne!(network(ip("2001:db8:0:1::1")), network(ip("2001:db8::1")));
        assert_eq!(network(ip("::ffff:192.0.2.1")), ip("192.0.2.1"));
    }
}
