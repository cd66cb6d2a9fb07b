//! The connection to a server that questions share. A task of its own opens it, which no question's end ends: after an
//! outage an opening may take longer than a question may wait.

use super::connection::Connection;
use super::late;
use ekiden_linux::host::sync::locked;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

/// An opening may take so long.
const OPENING: Duration = Duration::from_secs(10);
/// From the beginning of an opening that failed to the next one. Questions wait for that.
const PAUSE: Duration = Duration::from_secs(1);

/// `None`: the opening is under way.
type Opened = Option<Result<Connection, Arc<io::Error>>>;

#[derive(Debug, Default)]
pub(crate) struct KeptConnection(Mutex<Option<Opening>>);

#[derive(Debug)]
struct Opening {
    begun: Instant,
    opened: watch::Receiver<Opened>,
}

/// How the last opening ended.
enum Last {
    /// It is of use: the connection is open, or on its way.
    Stands,
    Failed,
    /// The connection was open once.
    Closed,
}

impl Opening {
    fn last(&self) -> Last {
        // in this order: a task that has ended says nothing more
        let ended = self.opened.has_changed().is_err();
        match &*self.opened.borrow() {
            Some(Ok(connection)) if connection.is_open() => Last::Stands,
            Some(Ok(_)) => Last::Closed,
            Some(Err(_)) => Last::Failed,
            // without a result where it panicked
            None if ended => Last::Failed,
            None => Last::Stands,
        }
    }
}

impl KeptConnection {
    /// The connection, and whether it was opened while this waited. Where none is open or on its way, `open` makes one.
    /// Errors: those of `open`, or it took too long.
    pub(super) async fn get<F>(&self, open: impl FnOnce() -> F) -> io::Result<(Connection, bool)>
    where
        F: Future<Output = io::Result<Connection>> + Send + 'static,
    {
        let mut opened = self.opening(open);
        let fresh = opened.borrow().is_none();
        let ended = opened.wait_for(Option::is_some).await;
        match ended.as_deref() {
            Ok(Some(Ok(connection))) => Ok((connection.clone(), fresh)),
            Ok(Some(Err(error))) => Err(io::Error::new(error.kind(), error.to_string())),
            Ok(None) | Err(_) => Err(io::Error::other("the connection was not opened")),
        }
    }

    /// The result of the last opening, or of one that begins.
    fn opening<F>(&self, open: impl FnOnce() -> F) -> watch::Receiver<Opened>
    where
        F: Future<Output = io::Result<Connection>> + Send + 'static,
    {
        let mut kept = locked(&self.0);
        let now = Instant::now();
        let begun = match &*kept {
            Some(opening) => match opening.last() {
                Last::Stands => return opening.opened.clone(),
                Last::Failed => now.max(opening.begun + PAUSE),
                Last::Closed => now,
            },
            None => now,
        };
        let opening = open();
        let (sender, opened) = watch::channel(None);
        tokio::spawn(async move {
            sleep_until(begun).await;
            let made = timeout(OPENING, opening).await.unwrap_or_else(|_| Err(late()));
            sender.send_replace(Some(made.map_err(Arc::new)));
        });
        *kept = Some(Opening { begun, opened: opened.clone() });
        opened
    }
}

#[cfg(test)]
mod tests {
    use super::super::pipe::Pipe;
    use super::*;
    use crate::wire::dns::Form;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    use tokio::io::{DuplexStream, duplex};
    use tokio::time::sleep;

    fn connection() -> (Connection, DuplexStream) {
        let (ours, theirs) = duplex(64);
        (Connection::Pipe(Pipe::new(ours, Form::PLAIN)), theirs)
    }

    #[tokio::test(start_paused = true)]
    async fn an_opening_outlives_the_questions_that_wait_for_it() {
        let (kept, opened) = (KeptConnection::default(), AtomicU32::new(0));
        let (made, _server) = connection();
        let open = || {
            opened.fetch_add(1, Relaxed);
            let made = made.clone();
            async {
                sleep(Duration::from_secs(3)).await;
                Ok(made)
            }
        };
        for _ in 0..14 {
            let given_up = timeout(Duration::from_millis(200), kept.get(open)).await;
            assert!(given_up.is_err());
        }
        let (_, fresh) = timeout(Duration::from_secs(1), kept.get(open)).await.unwrap().unwrap();
        assert!(fresh);
        let (_, fresh) = kept.get(open).await.unwrap();
        assert_eq!((fresh, opened.load(Relaxed)), (false, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn an_opening_that_failed_is_repeated_after_a_pause() {
        let (kept, opened) = (KeptConnection::default(), AtomicU32::new(0));
        let open = || {
            opened.fetch_add(1, Relaxed);
            async { Err(io::ErrorKind::ConnectionRefused.into()) }
        };
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(10) {
            let error = kept.get(open).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        }
        assert_eq!(opened.load(Relaxed), 11);
    }

    #[tokio::test(start_paused = true)]
    async fn an_opening_that_hangs_ends_and_the_next_one_may_succeed() {
        let kept = KeptConnection::default();
        let begun = Instant::now();
        let error = kept.get(std::future::pending).await.unwrap_err();
        assert_eq!((error.kind(), begun.elapsed()), (io::ErrorKind::TimedOut, OPENING));
        // a connection that was open and closed is opened again at once
        for _ in 0..3 {
            let (made, server) = connection();
            kept.get(|| async { Ok(made) }).await.unwrap();
            drop(server);
            sleep(Duration::from_millis(1)).await;
        }
        assert!(begun.elapsed() < OPENING + Duration::from_millis(10));
    }
}
