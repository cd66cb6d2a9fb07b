//! Work of which little is done at a time, however many ask for it.

use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio::task::JoinError;

/// Turns at some work. What has begun keeps its turn to its end, also where whoever asked for it is gone.
#[derive(Debug)]
pub(crate) struct Turns(Arc<Semaphore>);

impl Turns {
    /// So many at once.
    pub(crate) fn new(most: usize) -> Self {
        Self(Arc::new(Semaphore::new(most)))
    }

    /// Does work that may take long on a thread that does not relay. Errors: it panicked.
    pub(crate) async fn spawn_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        // nobody closes it, so this is a turn
        let turn = Arc::clone(&self.0).acquire_owned().await;
        let working = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            work()
        });
        working.await
    }

    /// Does the work in a task of its own. Errors: it panicked.
    pub(crate) async fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, JoinError> {
        // nobody closes it, so this is a turn
        let turn = Arc::clone(&self.0).acquire_owned().await;
        let working = tokio::spawn(async move {
            let _turn = turn;
            work.await
        });
        working.await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use tokio::sync::Notify;

    /// Asks, and gives up before there is an answer.
    async fn give_up(asking: impl Future) {
        let mut asking = Box::pin(asking);
        for _ in 0..3 {
            let polled = std::future::poll_fn(|context| {
                std::task::Poll::Ready(asking.as_mut().poll(context).is_pending())
            });
            assert!(polled.await);
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn work_that_is_given_up_keeps_its_turn() {
        let (turns, begun) = (Turns::new(1), Arc::new(AtomicUsize::new(0)));
        let go = Arc::new(Notify::new());
        for _ in 0..20 {
            let (begun, go) = (Arc::clone(&begun), Arc::clone(&go));
            give_up(turns.spawn(async move {
                begun.fetch_add(1, SeqCst);
                go.notified().await;
            }))
            .await;
        }
        assert_eq!(begun.load(SeqCst), 1);
        go.notify_one();
        assert_eq!(turns.spawn(async { 7 }).await.unwrap(), 7);
        assert_eq!(begun.load(SeqCst), 1);
    }

    #[tokio::test]
    async fn work_of_threads_that_is_given_up_keeps_its_turn() {
        let (turns, begun) = (Turns::new(4), Arc::new(AtomicUsize::new(0)));
        let (go, waits) = std::sync::mpsc::channel::<()>();
        let waits = Arc::new(std::sync::Mutex::new(waits));
        for _ in 0..20 {
            let (begun, waits) = (Arc::clone(&begun), Arc::clone(&waits));
            give_up(turns.spawn_blocking(move || {
                begun.fetch_add(1, SeqCst);
                let _ = waits.lock().map(|waits| waits.recv());
            }))
            .await;
        }
        drop(go);
        assert_eq!(turns.spawn_blocking(|| 7).await.unwrap(), 7);
        assert!(begun.load(SeqCst) <= 4, "{begun:?}");
    }
}
