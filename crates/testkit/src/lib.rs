//! What integration tests of several crates share: waiting for a state, a daemon in a folder of its own, certificates, a database.
#![allow(clippy::unwrap_used)] // a test that cannot go on panics

mod certificate;
mod daemon;
pub mod forbidden;
mod home;
pub mod names;
mod postgres;

use std::time::{Duration, Instant};

pub use certificate::{Authority, Certificate};
pub use daemon::Daemon;
pub use home::Home;
pub use postgres::Postgres;

/// The longest that a test waits for anything: no measurement, a bound on a test that hangs.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Asks again and again until there is an answer, with pauses of 1 to 20 ms. Panics after [`PATIENCE`] without
/// one, with `what` was waited for.
#[track_caller]
pub fn eventually<T>(what: &str, ask: impl FnMut() -> Option<T>) -> T {
    eventually_or(|| format!("waited {PATIENCE:?} for {what}"), ask)
}

/// Waits until `happened` is true, like [`eventually`].
#[track_caller]
pub fn wait_for(what: &str, mut happened: impl FnMut() -> bool) {
    eventually(what, || happened().then_some(()));
}

/// Like [`eventually`], where `why` describes the state that did not change.
#[track_caller]
pub fn eventually_or<T>(why: impl Fn() -> String, mut ask: impl FnMut() -> Option<T>) -> T {
    let (end, mut pause) = (Instant::now() + PATIENCE, Duration::from_millis(1));
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < end, "{}", why());
        std::thread::sleep(pause);
        pause = Duration::from_millis(20).min(pause * 2);
    }
}
