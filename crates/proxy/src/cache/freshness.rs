//! How long a response is fresh: as `http-cache-semantics` computes it, but never for long by a guess.

use http::header::{CACHE_CONTROL, HeaderValue};
use http::{request, response};
use http_cache_semantics::{CacheOptions, CachePolicy};
use std::time::{Duration, SystemTime};

/// A shared cache; `immutable` does not override `Expires`.
const OPTIONS: CacheOptions = CacheOptions {
    shared: true,
    cache_heuristic: 0.1,
    immutable_min_time_to_live: Duration::ZERO,
    ignore_cargo_cult: false,
};

/// A response is fresh for as long at most, from its arrival on, if that is guessed from its last change
/// (RFC 9111 §4.2.2).
const LONGEST_GUESS: Duration = Duration::from_secs(24 * 60 * 60);

/// The policy of a response that arrived at this time. It holds its limit, so that one read from the disk has it, too.
pub(super) fn policy(
    request: &request::Parts,
    response: &response::Parts,
    arrived: SystemTime,
) -> Option<CachePolicy> {
    let policy = CachePolicy::new_options(request, response, arrived, OPTIONS);
    if policy.time_to_live(arrived) <= LONGEST_GUESS {
        return Some(policy);
    }
    let told = CacheOptions { cache_heuristic: 0.0, ..OPTIONS };
    let told = CachePolicy::new_options(request, response, arrived, told);
    if told.time_to_live(arrived) > Duration::ZERO {
        return Some(policy);
    }
    let longest = (policy.age(arrived) + LONGEST_GUESS).as_secs();
    let directives = response.headers.get(CACHE_CONTROL).map_or(&b""[..], HeaderValue::as_bytes);
    // in front, because the first one counts, also before one without a number
    let value = [format!("max-age={longest}, ").as_bytes(), directives].concat();
    let mut response = response.clone();
    response.headers.insert(CACHE_CONTROL, HeaderValue::from_bytes(&value).ok()?);
    Some(CachePolicy::new_options(request, &response, arrived, OPTIONS))
}
