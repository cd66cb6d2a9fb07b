//! Sessions of the operator's page: who logged in, with the token or as an operator, until when, and how often one may guess.
//!
//! A session has two secrets, and each request needs both. The cookie is out of reach of scripts (`HttpOnly`) and of
//! other sites (`SameSite=Strict`), but a browser sends it to every port of this host. The key stands in a field that
//! only the page itself can send, and other sites cannot forge; by itself it opens nothing.

use ekiden_linux::host::sync::locked;
use ekiden_tunnel::trust::{NoRandomness, hash, random};
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use subtle::ConstantTimeEq as _;

/// Sessions that one opener has at once: a token is shared by a few people, each with a few browsers. Another ends its own
/// that was used longest ago. Openers are the token and the operators, 64 at most.
const OWN: usize = 8;
/// A session ends so long after its begin,
const LIFE: Duration = Duration::from_secs(12 * 3600);
/// or after its last use.
const SILENT: Duration = Duration::from_secs(3600);
/// Wrong tokens that an address may show at once; one more each [`REFILL`].
const GUESSES: u32 = 8;
const REFILL: Duration = Duration::from_secs(8);
/// Addresses that are remembered for their wrong tokens; the oldest makes room.
const ADDRESSES: usize = 256;

/// What a browser is given at log-in.
#[derive(Debug)]
pub(crate) struct Secrets {
    pub(crate) cookie: String,
    pub(crate) key: String,
}

/// All sessions.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    open: Vec<Session>,
    guesses: Vec<Guesses>,
}

/// Secrets are kept as hashes.
#[derive(Debug)]
struct Session {
    cookie: [u8; 32],
    key: [u8; 32],
    /// Stands for who opened it, and by what right; that without this right ends it.
    opener: String,
    begun: Instant,
    used: Instant,
}

#[derive(Debug)]
struct Guesses {
    address: IpAddr,
    left: u32,
    since: Instant,
}

impl Sessions {
    /// Opens a session for whom `opener` stands, one of those who `may` call now.
    pub(crate) fn open(
        &self,
        opener: &str,
        may: impl Fn(&str) -> bool,
        now: Instant,
    ) -> Result<Secrets, NoRandomness> {
        let (cookie, key) = (secret()?, secret()?);
        let mut state = locked(&self.state);
        state.keep_open(may, now);
        state.make_room(opener);
        let [of_cookie, of_key] = [&cookie, &key].map(|text| hash(text.as_bytes()));
        let opener = opener.to_owned();
        state.open.push(Session { cookie: of_cookie, key: of_key, opener, begun: now, used: now });
        Ok(Secrets { cookie, key })
    }

    /// Who opened the session that has this key and one of these cookies, of those who `may` call now. It was used then.
    pub(crate) fn opener<'a>(
        &self,
        (cookies, key): (impl Iterator<Item = &'a str>, &str),
        may: impl Fn(&str) -> bool,
        now: Instant,
    ) -> Option<String> {
        let key = hash(key.as_bytes());
        let cookies: Vec<[u8; 32]> = cookies.map(|cookie| hash(cookie.as_bytes())).collect();
        let mut state = locked(&self.state);
        state.keep_open(may, now);
        let found = state.open.iter_mut().find(|session| {
            let brought = cookies.iter().any(|cookie| bool::from(session.cookie.ct_eq(cookie)));
            bool::from(session.key.ct_eq(&key)) && brought
        });
        found.map(|session| {
            session.used = now;
            session.opener.clone()
        })
    }

    /// Ends the session of a cookie, if there is one: whether there was.
    pub(crate) fn close(&self, cookie: &str) -> bool {
        let cookie = hash(cookie.as_bytes());
        let mut state = locked(&self.state);
        let before = state.open.len();
        state.open.retain(|session| session.cookie != cookie);
        state.open.len() < before
    }

    /// Takes one guess of this address; fails where none is left, with how long to wait.
    pub(crate) fn guess(&self, address: IpAddr, now: Instant) -> Result<(), Duration> {
        let mut state = locked(&self.state);
        if !state.guesses.iter().any(|known| known.address == address) {
            if state.guesses.len() >= ADDRESSES {
                state.guesses.remove(0);
            }
            state.guesses.push(Guesses { address, left: GUESSES, since: now });
        }
        if let Some(known) = state.guesses.iter_mut().find(|known| known.address == address) {
            known.refill(now);
            match known.left {
                0 => return Err(REFILL.saturating_sub(now.duration_since(known.since))),
                _ => known.left -= 1,
            }
        }
        Ok(())
    }
}

impl State {
    /// Ends sessions whose time is over. A rotated token ends what the old one opened, and a removed operator's end.
    fn keep_open(&mut self, may: impl Fn(&str) -> bool, now: Instant) {
        self.open.retain(|session| session.lasts(now) && may(&session.opener));
    }

    /// Sessions of one opener.
    fn held_by(&self, opener: &str) -> usize {
        self.open.iter().filter(|session| session.opener == opener).count()
    }

    /// Makes room for another session of `opener`: the own one ends that was used longest ago.
    fn make_room(&mut self, opener: &str) {
        if self.held_by(opener) < OWN {
            return;
        }
        let own = self.open.iter().enumerate().filter(|(_, session)| session.opener == opener);
        let oldest = own.min_by_key(|(_, session)| session.used).map(|(at, _)| at);
        oldest.map(|at| self.open.remove(at));
    }
}

impl Session {
    fn lasts(&self, now: Instant) -> bool {
        now.duration_since(self.begun) < LIFE && now.duration_since(self.used) < SILENT
    }
}

impl Guesses {
    fn refill(&mut self, now: Instant) {
        let more = now.duration_since(self.since).as_secs() / REFILL.as_secs();
        if let Ok(more) = u32::try_from(more) {
            self.left = self.left.saturating_add(more).min(GUESSES);
            self.since += REFILL * more;
        } else {
            (self.left, self.since) = (GUESSES, now);
        }
    }
}

/// 256 random bits.
fn secret() -> Result<String, NoRandomness> {
    let bytes: [u8; 32] = random()?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn open(sessions: &Sessions, opener: &str, now: Instant) -> Secrets {
        sessions.open(opener, |_| true, now).unwrap()
    }

    #[test]
    fn both_secrets_are_needed_and_a_rotated_token_ends_them() {
        let (sessions, now) = (Sessions::default(), Instant::now());
        let one = open(&sessions, "t", now);
        let two = open(&sessions, "t", now);
        assert!(one.cookie != two.cookie && one.cookie.len() == 64);
        let admits = |cookie: &str, key: &str, token: &str| {
            let opener =
                sessions.opener(([cookie].into_iter(), key), |opener| opener == token, now);
            assert!(opener.as_deref().is_none_or(|opener| opener == token));
            opener.is_some()
        };
        assert!(admits(&one.cookie, &one.key, "t") && admits(&two.cookie, &two.key, "t"));
        assert!(!admits(&one.cookie, &two.key, "t") && !admits(&one.cookie, "", "t"));
        assert!(!admits("", &one.key, "t"));
        assert!(sessions.close(&two.cookie) && !sessions.close(&two.cookie));
        assert!(!admits(&two.cookie, &two.key, "t") && admits(&one.cookie, &one.key, "t"));
        assert!(!admits(&one.cookie, &one.key, "new") && !admits(&one.cookie, &one.key, "t"));
    }

    fn is_open(sessions: &Sessions, secrets: &Secrets, now: Instant) -> bool {
        let cookie = [secrets.cookie.as_str()].into_iter();
        sessions.opener((cookie, &secrets.key), |_| true, now).is_some()
    }

    #[test]
    fn sessions_end_by_time_and_are_few() {
        let (sessions, begun) = (Sessions::default(), Instant::now());
        let one = open(&sessions, "t", begun);
        let at = |seconds| begun + Duration::from_secs(seconds);
        assert!((1..13).all(|n| is_open(&sessions, &one, at(n * 3_300))));
        assert!(!is_open(&sessions, &one, at(12 * 3_600)));
        let one = open(&sessions, "t", at(50_000));
        assert!(!is_open(&sessions, &one, at(53_600)));
        // the token and all operators have as many as they may, and another one ends the own oldest
        let opener = |n: u64| format!("opener {}", n / OWN as u64);
        let all = (0..65 * OWN as u64).map(|n| open(&sessions, &opener(n), at(60_000 + n)));
        let all: Vec<Secrets> = all.collect();
        let more = open(&sessions, "opener 7", at(60_600));
        let ended =
            |(n, one): (usize, &Secrets)| (!is_open(&sessions, one, at(61_000))).then_some(n);
        assert_eq!(all.iter().enumerate().filter_map(ended).collect::<Vec<_>>(), [7 * OWN]);
        assert!(is_open(&sessions, &more, at(61_000)));
        // of those who may not call any more, none is kept
        sessions.open("opener 7", |opener| opener == "opener 7", at(61_001)).unwrap();
        assert_eq!(locked(&sessions.state).open.len(), OWN);
    }

    #[test]
    fn log_ins_of_one_opener_end_its_own_sessions_alone() {
        let (sessions, begun) = (Sessions::default(), Instant::now());
        let at = |seconds| begun + Duration::from_secs(seconds);
        let token = open(&sessions, "token", at(0));
        let first = open(&sessions, "viewer", at(1));
        let more = (0..32).map(|n| open(&sessions, "viewer", at(2 + n)));
        let more: Vec<Secrets> = more.collect();
        assert!(is_open(&sessions, &token, at(100)) && !is_open(&sessions, &first, at(100)));
        assert!(is_open(&sessions, more.last().unwrap(), at(100)));
        assert_eq!(locked(&sessions.state).held_by("viewer"), OWN);
        // several together end none of others
        for opener in ["a", "b", "c", "d", "e"] {
            (0..OWN as u64).for_each(|n| drop(open(&sessions, opener, at(200 + n))));
        }
        assert_eq!(locked(&sessions.state).open.len(), 1 + 6 * OWN);
        assert!(is_open(&sessions, &token, at(300)));
    }

    #[test]
    fn planted_cookies_beside_the_right_one_shut_nobody_out() {
        let (sessions, now) = (Sessions::default(), Instant::now());
        let [own, other] = ["own", "other"].map(|opener| open(&sessions, opener, now));
        let planted = ["", "x", other.cookie.as_str()];
        let cookies = || planted.into_iter().chain([own.cookie.as_str()]);
        let opener = |key: &str| sessions.opener((cookies(), key), |_| true, now);
        assert_eq!(opener(&own.key).as_deref(), Some("own"));
        assert_eq!(opener(&other.key).as_deref(), Some("other"), "whose key it is");
        assert_eq!(opener("x"), None);
        let without = sessions.opener((planted.into_iter(), &own.key), |_| true, now);
        assert_eq!(without, None);
    }

    #[test]
    fn guesses_are_limited_by_address() {
        let (sessions, now) = (Sessions::default(), Instant::now());
        for _ in 0..GUESSES {
            assert_eq!(sessions.guess(A, now), Ok(()));
        }
        assert_eq!(sessions.guess(A, now), Err(REFILL));
        assert_eq!(sessions.guess([192, 0, 2, 1].into(), now), Ok(()));
        let later = now + REFILL;
        assert_eq!(sessions.guess(A, later), Ok(()));
        assert!(sessions.guess(A, later).is_err());
        for n in 0..1_000_u32 {
            sessions.guess(std::net::Ipv4Addr::from(n).into(), now).unwrap();
        }
        assert_eq!(locked(&sessions.state).guesses.len(), ADDRESSES);
        assert_eq!(sessions.guess(A, now + REFILL * 100), Ok(()));
    }
}
