//! Panics, each of which is a fault of this program: work on which everybody depends begins anew.
//!
//! What such work shares with others is behind mutexes that outlive a panic ([`locked`](super::sync::locked)). Builds
//! with `panic = "abort"` end instead.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;
use std::thread;
use std::time::Duration;

/// Before work begins anew: a panic that comes again and again fills neither the log nor a processor.
const PAUSE: Duration = Duration::from_secs(1);

/// Does some work. What it borrows may be half changed after a panic. Errors: the panic, in words.
pub async fn caught<T>(work: impl Future<Output = T>) -> Result<T, String> {
    let mut work = pin!(work);
    poll_fn(|context| {
        match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
            Ok(polled) => polled.map(Ok),
            // it is not polled again
            Err(panic) => Poll::Ready(Err(said(panic.as_ref()))),
        }
    })
    .await
}

/// Runs a task until it ends by itself, and begins it anew a second after each panic: one on which everybody depends
/// must not be missing until the next start.
pub async fn restarted<F>(what: &'static str, mut begin: impl FnMut() -> F)
where
    F: Future<Output = ()>,
{
    loop {
        // not in a task of its own, which would go on for a moment where this one is aborted
        let ended = caught(Box::pin(begin())).await;
        let Err(why) = ended else { return };
        tell(what, &why);
        tokio::time::sleep(PAUSE).await;
    }
}

/// The same for what has a thread of its own. What `run` borrows outlives its panics.
pub fn restarted_on_thread(what: &'static str, mut run: impl FnMut()) {
    while let Err(panic) = catch_unwind(AssertUnwindSafe(&mut run)) {
        tell(what, &said(panic.as_ref()));
        thread::sleep(PAUSE);
    }
}

fn tell(what: &str, why: &str) {
    // the log may be what panics
    let _told = catch_unwind(|| {
        tracing::error!(task = what, why, "a task has ended before its time, and begins anew");
    });
}

fn said(panic: &(dyn Any + Send)) -> String {
    format!("a panic, which is a fault of this program: {}", message(panic))
}

/// What a panic says of itself.
pub fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no reason given")
}

#[cfg(test)]
mod tests {
    use super::super::sync::locked;
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};

    #[tokio::test]
    async fn a_panic_after_a_pause_is_an_error_and_other_work_has_its_result() {
        assert_eq!(caught(async { 7 }).await, Ok(7));
        let far = Duration::from_secs(u64::MAX);
        let panicking = caught(async {
            tokio::task::yield_now().await;
            std::time::SystemTime::now() + far
        });
        let why = panicking.await.unwrap_err();
        assert!(why.contains("a fault of this program") && why.contains("overflow"), "{why}");
    }

    #[tokio::test]
    async fn a_task_that_panics_begins_anew_and_one_that_ends_does_not() {
        let begun = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&begun);
        restarted("a test", move || {
            let nth = counted.fetch_add(1, Ordering::Relaxed);
            async move { assert!(nth > 0, "a test asked for it") }
        })
        .await;
        assert_eq!(begun.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn a_task_ends_with_the_one_that_begins_it_anew() {
        let held = Arc::new(());
        let holds = Arc::clone(&held);
        let task = tokio::spawn(restarted("a test", move || {
            let holds = Arc::clone(&holds);
            async move {
                std::future::pending::<()>().await;
                drop(holds);
            }
        }));
        while Arc::strong_count(&held) < 3 {
            tokio::task::yield_now().await;
        }
        task.abort();
        while Arc::strong_count(&held) > 1 {
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn a_thread_that_panics_begins_anew_with_the_mutex_that_it_held() {
        let shared = Mutex::new(0);
        restarted_on_thread("a test", || {
            let mut begun = locked(&shared);
            *begun += 1;
            assert!(*begun > 1, "a test asked for it");
        });
        assert!(shared.is_poisoned());
        assert_eq!(*locked(&shared), 2);
    }
}
