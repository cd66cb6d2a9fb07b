//! Faults as they happen: the machines' by hand, the network's by their schedule, each with the time until all is well.

use crate::books::kills::{BEFORE, Kills, Looks};
use crate::faults::{Fault, Kind, Link};
use crate::laws::{AFTER, DOORS, Door, Window};
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

/// A transfer that cannot resolve its name or connect is told so within this.
const REFUSED: Duration = Duration::from_secs(12);
/// Time for a look at what a relay has counted.
const LOOK: Duration = Duration::from_millis(200);
/// Once both relays and their link are there, the tunnel is up within this. Between attempts are 0.5 s, and twice as long
/// each time that it did not last for 10 s: faults that follow each other make that 4 s. An attempt is given up after 7 s.
const RECOVERS: Duration = Duration::from_secs(20);

/// What has happened so far.
#[derive(Debug, Default)]
pub(crate) struct Happened {
    windows: Mutex<Vec<Window>>,
    /// When the near relay was killed, and when it was started again.
    kills: Mutex<Vec<(Duration, Duration)>>,
    /// What these cost.
    books: Mutex<Kills>,
    /// When a relay was last started again or went on.
    ready: Mutex<Duration>,
    /// Recoveries that took too long, each in a sentence.
    slow: Mutex<Vec<String>>,
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

    /// Recoveries that took too long, each in a sentence.
    pub(crate) fn slow(&self) -> Vec<String> {
        self.slow.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn on_window(&self, kind: Kind, from: Duration, over: Duration) {
        let after = if matches!(kind, Kind::Outage(_)) { REFUSED } else { AFTER };
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        windows.push(Window { kind, from, over, to: over + after });
    }

    /// A relay lives and runs.
    fn on_ready(&self, now: Duration) {
        *self.ready.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }

    /// The tunnel is up now, after this fault. The link was there from a time on.
    fn on_tunnel(&self, kind: Kind, link: Duration, now: Duration) {
        let ready = *self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(why) = slowly(kind, ready.max(link), now) {
            self.slow.lock().unwrap_or_else(PoisonError::into_inner).push(why);
        }
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

/// A sentence, where a tunnel that could be up since a time is up only now.
fn slowly(kind: Kind, since: Duration, now: Duration) -> Option<String> {
    let took = now.saturating_sub(since);
    (took > RECOVERS).then(|| {
        let kind = kind.name();
        format!("after a fault ({kind}) at {now:.1?} the tunnel was up {took:.1?} after it could")
    })
}

/// Since when the link of the tunnel carries all, as far as it is planned.
fn carries_since(faults: &[Fault], now: Duration) -> Duration {
    let of_link = faults.iter().filter(|fault| fault.kind.link() == Some(Link::Tunnel));
    of_link.filter(|fault| fault.at <= now).map(Fault::end).max().unwrap_or_default()
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
            happened.on_tunnel(fault.kind, fault.end(), ledger.now());
        }
        happened.on_window(fault.kind, fault.at, ledger.now().max(fault.end()));
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
        match apply((fault, faults), relays, database, happened, ledger) {
            Ok(from) => happened.on_window(fault.kind, from, ledger.now()),
            Err(error) => {
                happened.stop();
                return Err(error);
            }
        }
    }
    Ok(())
}

/// Makes one of these faults; returns when it began.
fn apply(
    (fault, faults): (&Fault, &[Fault]),
    relays: &mut Relays,
    database: &mut Postgres,
    happened: &Happened,
    ledger: &Ledger,
) -> io::Result<Duration> {
    let from = ledger.now();
    match fault.kind {
        Kind::KillNear => return kill_near((fault, faults), relays, happened, ledger),
        Kind::KillFar => {
            relays.far.kill();
            sleep(fault.lasts);
            relays.far.start()?;
            await_tunnel((fault, faults), relays, happened, ledger);
        }
        Kind::FreezeNear | Kind::FreezeFar => {
            let relay = if fault.kind == Kind::FreezeNear { &relays.near } else { &relays.far };
            relay.signal(Signal::STOP);
            sleep(fault.lasts);
            relay.signal(Signal::CONT);
            happened.on_ready(ledger.now());
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

/// Waits for the tunnel of a relay that lives again.
fn await_tunnel(
    (fault, faults): (&Fault, &[Fault]),
    relays: &Relays,
    happened: &Happened,
    ledger: &Ledger,
) {
    happened.on_ready(ledger.now());
    wait_for("the tunnel after a kill", || tunnel_is_up(&relays.near.home));
    let now = ledger.now();
    happened.on_tunnel(fault.kind, carries_since(faults, now), now);
}

/// Kills it and starts it again, and looks at its books before, between and after; returns when it was killed.
fn kill_near(
    (fault, faults): (&Fault, &[Fault]),
    relays: &mut Relays,
    happened: &Happened,
    ledger: &Ledger,
) -> io::Result<Duration> {
    let earlier = relays.counted()?;
    let looked = ledger.now();
    // a look takes time on a busy machine, which is not the relay's
    sleep(BEFORE.saturating_sub(LOOK));
    let last = relays.counted()?;
    sleep((looked + BEFORE).saturating_sub(ledger.now()));
    let at = ledger.now();
    relays.near.kill();
    let left = relays.journaled()?;
    sleep(fault.lasts);
    happened.on_kill(at, ledger.now());
    relays.near.start()?;
    await_tunnel((fault, faults), relays, happened, ledger);
    let found = relays.journaled()?;
    let (counted, between) = (relays.counted()?, at.saturating_sub(looked));
    let looks = Looks { at, between, earlier, last, left, found, counted };
    happened.books().on_kill(&DOORS.map(Door::name), looks);
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn second(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn outage(link: Link, at: u64) -> Fault {
        Fault { at: second(at), lasts: second(10), kind: Kind::Outage(link), permille: 0 }
    }

    #[test]
    fn a_tunnel_is_late_from_when_all_was_there() {
        let happened = Happened::default();
        happened.on_ready(second(100));
        happened.on_tunnel(Kind::KillFar, second(0), second(120));
        happened.on_tunnel(Kind::KillFar, second(110), second(130));
        assert_eq!(happened.slow(), Vec::<String>::new());
        happened.on_tunnel(Kind::KillFar, second(110), second(131));
        assert_eq!(happened.slow().len(), 1);
    }

    #[test]
    fn a_link_is_there_when_the_last_fault_of_its_own_is_over() {
        let faults = [outage(Link::Tunnel, 5), outage(Link::Direct, 40), outage(Link::Tunnel, 60)];
        assert_eq!(carries_since(&faults, second(4)), second(0));
        assert_eq!(carries_since(&faults, second(50)), second(15));
        assert_eq!(carries_since(&faults, second(61)), second(70));
    }

    #[test]
    fn outages_are_noticed_longer_by_what_is_not_open() {
        let happened = Happened::default();
        happened.on_window(Kind::Outage(Link::Far), second(1), second(9));
        happened.on_window(Kind::KillFar, second(1), second(9));
        let until: Vec<Duration> = happened.windows().iter().map(|window| window.to).collect();
        assert_eq!(until, [second(9) + REFUSED, second(9) + AFTER]);
    }
}
