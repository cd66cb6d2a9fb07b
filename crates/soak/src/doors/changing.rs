//! Requests for objects that change: plain ones, ones that want validation, and ones by who has a copy.

use super::forward::{HEAD, Kept};
use super::{Clients, book, domain};
use crate::exchange::{Failure, patiently};
use crate::laws::{Door, Leg, judge_copy};
use crate::ledger::Live;
use crate::origin::{CHANGING, Service, Version, compare, port};
use ekiden_model::rng::Rng;
use http_body_util::{BodyExt as _, Empty};
use hyper::StatusCode;
use hyper::header::{CACHE_CONTROL, ETAG, HeaderName, HeaderValue, IF_NONE_MATCH};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::time::sleep;

/// Requests a second of each client at most.
const A_SECOND: u32 = 5;

/// How a client asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asks {
    Plainly,
    /// With `no-cache`: the origin is to confirm the answer.
    Validated,
    /// With the tag of the copy that the client has.
    Unless(Version),
}

impl Asks {
    fn draw(rng: &mut Rng, known: Option<Version>) -> Self {
        match (rng.below(4), known) {
            (0, _) => Self::Validated,
            (1, Some(version)) => Self::Unless(version),
            _ => Self::Plainly,
        }
    }

    fn field(self) -> Option<(HeaderName, HeaderValue)> {
        match self {
            Self::Plainly => None,
            Self::Validated => Some((CACHE_CONTROL, HeaderValue::from_static("no-cache"))),
            // digits, a hyphen and quotes are a value
            Self::Unless(version) => {
                Some((IF_NONE_MATCH, HeaderValue::from_str(&version.tag()).ok()?))
            }
        }
    }
}

pub(super) async fn objects(clients: &Clients, leg: Leg, mut rng: Rng) {
    let door = Door::Changing;
    let mut kept = Kept::new(clients, door);
    let mut known = [None; CHANGING as usize];
    while !clients.is_over() {
        kept.renew(&mut rng);
        let object = rng.below(CHANGING);
        let asks = Asks::draw(&mut rng, known[object as usize]);
        let name = format!("changing.{}", leg.domain(object));
        let live = clients.ledger.begin(domain(&name));
        // what the relay sends of its own
        let own = AtomicU64::new(0);
        let result = ask(&mut kept, clients, &name, (object, asks), (&live, &own)).await;
        let own = match own.load(Relaxed) {
            // perhaps so where no head came
            0 if result.is_err() && !live.opened() => HEAD + Version::LARGEST,
            own => own,
        };
        clients.ledger.down(door).on_sent(own);
        if result.is_err() {
            kept.drop_connection();
        }
        let (bytes, result) = match result {
            Ok((version, bytes)) => {
                known[object as usize] = Some(version);
                (bytes, Ok(()))
            }
            Err(failure) => (0, Err(failure)),
        };
        book(clients, (door, leg), &live, bytes, result).await;
        sleep(Duration::from_secs(1) / A_SECOND).await;
    }
}

/// The version that came, and the length of its body.
async fn ask(
    kept: &mut Kept<'_>,
    clients: &Clients,
    name: &str,
    (object, asks): (u64, Asks),
    (live, own): (&Live, &AtomicU64),
) -> Result<(Version, u64), Failure> {
    let (ledger, door) = (&clients.ledger, Door::Changing);
    let to = (name, port(Service::Http, door));
    let path = format!("/changing/{object}");
    let asked = ledger.now();
    let asking = kept.ask_with("GET", to, &path, Empty::new().boxed(), asks.field());
    let response = patiently("an object", asking).await?;
    let came = ledger.now();
    let field = |name: HeaderName| response.headers().get(name)?.to_str().ok();
    let version = field(ETAG).and_then(Version::of_tag);
    let version = version.ok_or_else(|| Failure::Wrong("an object without its tag".to_owned()))?;
    let status = field(HeaderName::from_static("cache-status")).unwrap_or_default();
    let (is_hit, unchanged) =
        (status.contains("hit"), response.status() == StatusCode::NOT_MODIFIED);
    let (pattern, length) = version.body();
    let length = if unchanged { 0 } else { length };
    // a copy that a server confirmed is the relay's, too
    if is_hit || status.contains("=304") {
        own.store(HEAD + length, Relaxed);
    }
    judge_copy(version, object, (asked, came), asks == Asks::Validated).map_err(Failure::Wrong)?;
    ledger.on_count(match (is_hit, unchanged) {
        (true, true) => "changing objects: copies that the cache confirmed",
        (true, false) => "changing objects: copies of the cache",
        (false, true) => "changing objects: copies that the server confirmed",
        (false, false) => "changing objects: answers of the server",
    });
    if unchanged {
        live.on_moved();
        return match asks {
            Asks::Unless(known) if known == version => Ok((version, 0)),
            _ => Err(Failure::Wrong(format!("a 304 for {} to {asks:?}", version.tag()))),
        };
    }
    let side = ledger.down(door);
    compare(response.into_body(), pattern, length, side, || live.on_moved()).await?;
    Ok((version, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_with_a_copy_say_its_tag_and_others_do_not() {
        let (mut rng, known) = (Rng::new(1), Version { object: 1, number: 2 });
        let with: Vec<Asks> = (0..200).map(|_| Asks::draw(&mut rng, Some(known))).collect();
        for asks in [Asks::Plainly, Asks::Validated, Asks::Unless(known)] {
            assert!(with.contains(&asks), "{asks:?}");
        }
        assert!((0..200).all(|_| !matches!(Asks::draw(&mut rng, None), Asks::Unless(_))));
        let (name, value) = Asks::Unless(known).field().unwrap();
        assert_eq!((name, value.as_bytes()), (IF_NONE_MATCH, &b"\"1-2\""[..]));
    }
}
