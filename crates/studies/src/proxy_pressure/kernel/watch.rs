//! A proxy that is looked at each second while it runs, from outside and by its own word.

use super::sockets;
use ekiden_testbed::peers::Peer;
use ekiden_testbed::peers::control::Control;
use ekiden_testbed::peers::ekiden;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

const APART: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct WatchFigures {
    /// TCP sockets in use on the proxy's machine, the most at any look.
    pub(super) most_sockets: u64,
    /// The proxy's own figures, if it has any.
    pub(super) own: Option<EkidenFigures>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct EkidenFigures {
    /// Looks that were answered.
    pub(super) looks: u64,
    /// Places taken, the most at any look.
    pub(super) most_places: u64,
    /// Bytes of buffers given out, as the kernel counts, the most at any look.
    pub(super) most_granted: u64,
    /// Of the refused, those in whose moment an idle connection was held.
    pub(super) refused_beside_idle: u64,
    /// Idle connections held, of all kinds, mean over all looks.
    pub(super) mean_idle: f64,
    /// Closed to make room.
    pub(super) evicted: u64,
    /// Newcomers that waited.
    pub(super) waited: u64,
    /// Newcomers that were refused.
    pub(super) refused: u64,
    /// Pooled connections used again.
    pub(super) reused: u64,
}

impl EkidenFigures {
    fn add(&mut self, status: &Value) {
        let number = |path: &str| status.pointer(path).and_then(Value::as_u64).unwrap_or(0);
        let level = |name: &str| {
            let levels = status.pointer("/pressure/levels").and_then(Value::as_array);
            let found = levels.into_iter().flatten().find(|level| level["resource"] == name);
            found.and_then(|level| level["used"].as_u64()).unwrap_or(0)
        };
        let evicted = status.pointer("/pressure/evicted").and_then(Value::as_array);
        let idle = number("/idle/clients") + number("/idle/tunnels") + number("/idle/pooled");
        self.refused = number("/pressure/refused");
        self.refused_beside_idle = number("/pressure/refused_beside_idle");
        self.mean_idle =
            (self.mean_idle * self.looks as f64 + idle as f64) / (self.looks + 1) as f64;
        self.looks += 1;
        self.most_places = self.most_places.max(level("connections"));
        self.most_granted = self.most_granted.max(number("/buffers/granted"));
        self.evicted = evicted.into_iter().flatten().filter_map(|one| one["count"].as_u64()).sum();
        self.waited = number("/pressure/waited");
        self.reused = number("/idle/reused");
    }
}

#[derive(Debug)]
pub(super) struct Watch {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<WatchFigures>>,
}

impl Watch {
    /// Starts to watch a peer; `asked` if it is an ekiden with a control socket.
    pub(super) fn begin(peer: &Peer, asked: bool) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let control = asked.then(|| ekiden::control(peer));
        let process = peer.processes().first().copied().unwrap_or_default();
        let thread = thread::spawn(move || look(process, control.as_ref(), &stopped));
        Self { stop, thread: Some(thread) }
    }

    pub(super) fn end(mut self) -> WatchFigures {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn look(process: u32, control: Option<&Control>, stop: &AtomicBool) -> WatchFigures {
    let mut seen =
        WatchFigures { own: control.map(|_| EkidenFigures::default()), ..WatchFigures::default() };
    loop {
        let last = stop.load(Ordering::Relaxed);
        seen.most_sockets = seen.most_sockets.max(sockets::in_use(process).unwrap_or(0));
        if let Some((own, control)) = seen.own.as_mut().zip(control)
            && let Ok(status) = control.status()
        {
            own.add(&status);
        }
        if last {
            return seen;
        }
        thread::sleep(APART);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn status(idle: u64, refused: u64, used: u64) -> Value {
        json!({
            "buffers": { "granted": 10 * used },
            "idle": { "clients": idle, "tunnels": 0, "pooled": 0, "reused": 7 },
            "pressure": {
                "levels": [{ "resource": "connections", "used": used }],
                "evicted": [{ "resource": "connections", "count": 3 }, { "resource": "memory", "count": 1 }],
                "waited": 5, "refused": refused, "refused_beside_idle": refused / 3
            }
        })
    }

    #[test]
    fn collects_the_output_of_a_program() {
        let mut own = EkidenFigures::default();
        for (idle, refused, used) in [(2, 0, 200), (0, 1, 150), (4, 2, 100), (6, 3, 90), (8, 3, 80)]
        {
            own.add(&status(idle, refused, used));
        }
        assert_eq!(own.refused_beside_idle, 1);
        assert_eq!((own.looks, own.refused, own.most_places), (5, 3, 200));
        assert_eq!((own.evicted, own.waited, own.reused, own.most_granted), (4, 5, 7, 2_000));
        assert!((own.mean_idle - 4.0).abs() < 1e-9);
    }
}
