//! Signals: SIGHUP reloads, SIGTERM and SIGINT stop.

use ekiden_admin::reload::ReloadReply;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

/// A request to the daemon.
pub(crate) enum Request {
    /// Reload; the API also waits for an answer.
    Reload(Option<ReloadReply>),
    Stop,
}

/// The signals that the daemon handles.
pub(crate) struct Signals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// The next request.
    pub(crate) async fn reload_or_stop(
        &mut self,
        asked: &mut mpsc::Receiver<ReloadReply>,
    ) -> Request {
        tokio::select! {
            _ = self.hangup.recv() => Request::Reload(None),
            Some(answer) = asked.recv() => Request::Reload(Some(answer)),
            _ = self.terminate.recv() => Request::Stop,
            _ = self.interrupt.recv() => Request::Stop,
        }
    }

    /// Waits for a signal to stop.
    pub(crate) async fn stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
