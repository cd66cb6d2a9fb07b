//! Faults as they happen: the machines' by hand, the network's by their schedule, each with the time until all is well.

use crate::books::kills::{BEFORE, Kills, Looks};
use crate::faults::{Fault, Kind};
use crate::laws::{DOORS, Door, Window};
use crate::ledger::Ledger;
use crate::origin::{AlertReceiver, Names};
use crate::relays::{Relays, tunnel_is_up};
use ekiden_testkit::{Home, Postgres, wait_for};
use rustix::process::Signal;
use std::fs;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// After the last sign of a fault, what it broke may still be noticed.
const AFTER: Duration = Duration::from_secs(2);
/// A transfer that cannot resolve its name or connect is told so within this.
const REFUSED: Duration = Duration::from_secs(12);

/// What has happened so far.
#[derive(Debug, Default)]
pub(crate) struct Happened {
    windows: Mutex<Vec<Window>>,
    /// When the near relay was killed, and when it was started again.
    kills: Mutex<Vec<(Duration, Duration)>>,
    /// What these cost.
    books: Mutex<Kills>,
    /// Whether a lane goes on.
    stop: AtomicBool,
}

impl Happened {
    /// All faults that are over.
    pub(crate) fn windows(&self) -> Vec<Window> {
        self.windows.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Kills of the near relay.
    pub(crate) fn kills(&self) -> Vec<(Duration, Duration)> {
        self.kills.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What each kill cost.
    pub(crate) fn books(&self) -> MutexGuard<'_, Kills> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn on_window(&self, kind: Kind, from: Duration, to: Duration) {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        windows.push(Window { kind, from, to });
    }

    fn on_kill(&self, from: Duration, to: Duration) {
        self.kills.lock().unwrap_or_else(PoisonError::into_inner).push((from, to));
    }

    /// No further fault begins.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    /// Whether the run is over, or a fault could not be made.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }

    /// Waits until this time of the run; false where the run has been stopped.
    fn wait_until(&self, begun: Instant, at: Duration) -> bool {
        while let Some(left) = (begun + at).checked_duration_since(Instant::now()) {
            if self.is_stopped() {
                return false;
            }
            sleep(left.min(Duration::from_millis(50)));
        }
        !self.is_stopped()
    }
}

/// A lane that panics stops the run.
struct StopOnPanic<'a>(&'a Happened);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop();
        }
    }
}

/// The network's lane. Links follow their schedule by themselves.
pub(crate) fn network(
    faults: &[Fault],
    (begun, ledger): (Instant, &Ledger),
    (names, alerts): (&Names, &AlertReceiver),
    near: &Arc<Home>,
    happened: &Happened,
) {
    let _guard = StopOnPanic(happened);
    for fault in faults.iter().filter(|fault| fault.kind.is_network()) {
        if !happened.wait_until(begun, fault.at) {
            return;
        }
        names.set_dead(fault.kind == Kind::NamesDead);
        alerts.set_away(fault.kind == Kind::AlertsAway);
        // one that has begun is ended; a link's ends by itself, and a server's lasts as long however late it began
        let end = match fault.kind.link() {
            Some(_) => begun + fault.end(),
            None => Instant::now() + fault.lasts,
        };
        sleep(end.saturating_duration_since(Instant::now()));
        names.set_dead(false);
        alerts.set_away(false);
        if let Kind::Outage(_) = fault.kind {
            wait_for("the tunnel after an outage", || tunnel_is_up(near));
        }
        let after = match fault.kind {
            Kind::Outage(_) => REFUSED,
            _ => AFTER,
        };
        happened.on_window(fault.kind, fault.at, ledger.now().max(fault.end()) + after);
    }
}

/// The machines' lane. Errors: a relay that ended by itself, or a fault that cannot be made.
pub(crate) fn machines(
    faults: &[Fault],
    (begun, ledger): (Instant, &Ledger),
    relays: &mut Relays,
    database: &mut Postgres,
    happened: &Happened,
) -> io::Result<()> {
    let _guard = StopOnPanic(happened);
    for fault in faults.iter().filter(|fault| !fault.kind.is_network()) {
        if !happened.wait_until(begun, fault.at) {
            return Ok(());
        }
        if let Some(why) = relays.near.ended().or_else(|| relays.far.ended()) {
            happened.stop();
            return Err(io::Error::other(why));
        }
        match apply(fault, relays, database, happened, ledger) {
            Ok(from) => happened.on_window(fault.kind, from, ledger.now() + AFTER),
            Err(error) => {
                happened.stop();
                return Err(error);
            }
        }
    }
    Ok(())
}

/// Returns when it began.
fn apply(
    fault: &Fault,
    relays: &mut Relays,
    database: &mut Postgres,
    happened: &Happened,
    ledger: &Ledger,
) -> io::Result<Duration> {
    let from = ledger.now();
    match fault.kind {
        Kind::KillNear => return kill_near(fault, relays, happened, ledger),
        Kind::KillFar => {
            relays.far.kill();
            sleep(fault.lasts);
            relays.far.start()?;
            wait_for("the tunnel after a kill", || tunnel_is_up(&relays.near.home));
        }
        Kind::FreezeNear | Kind::FreezeFar => {
            let relay = if fault.kind == Kind::FreezeNear { &relays.near } else { &relays.far };
            relay.signal(Signal::STOP);
            sleep(fault.lasts);
            relay.signal(Signal::CONT);
        }
        Kind::DiskFull => {
            let filler = relays.fill_disk()?;
            sleep(fault.lasts);
            fs::remove_file(filler)?;
        }
        Kind::DatabaseAway => {
            database.stop();
            sleep(fault.lasts);
            database.start();
        }
        Kind::Reload => relays.reload(),
        Kind::Cut(_) | Kind::Outage(_) | Kind::Lossy(_) | Kind::NamesDead | Kind::AlertsAway => {}
    }
    Ok(from)
}

/// Kills it and starts it again, and looks at its books before, between and after; returns when it was killed.
fn kill_near(
    fault: &Fault,
    relays: &mut Relays,
    happened: &Happened,
    ledger: &Ledger,
) -> io::Result<Duration> {
    let earlier = relays.counted()?;
    let looked = ledger.now();
    sleep(BEFORE);
    let last = relays.counted()?;
    let at = ledger.now();
    relays.near.kill();
    let left = relays.journaled()?;
    sleep(fault.lasts);
    happened.on_kill(at, ledger.now());
    relays.near.start()?;
    wait_for("the tunnel after a kill", || tunnel_is_up(&relays.near.home));
    let found = relays.journaled()?;
    let (counted, between) = (relays.counted()?, at.saturating_sub(looked));
    let looks = Looks { at, between, earlier, last, left, found, counted };
    happened.books().on_kill(&DOORS.map(Door::name), looks);
    Ok(at)
}
