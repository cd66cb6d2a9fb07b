//! A panic within a task, as an error. A library that panics at an authority's answer must not end the task.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

/// Does some work. What it borrows may be half changed after a panic. Errors: the panic, in words. Builds with
/// `panic = "abort"` end instead.
pub(crate) async fn caught<T>(work: impl Future<Output = T>) -> Result<T, String> {
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

fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("a panic, which is a fault of this program: {}", text.unwrap_or("no reason given"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_after_a_pause_is_an_error_and_other_work_has_its_result() {
        assert_eq!(caught(async { 7 }).await, Ok(7));
        let far = std::time::Duration::from_secs(u64::MAX);
        let panicking = caught(async {
            tokio::task::yield_now().await;
            std::time::SystemTime::now() + far
        });
        let why = panicking.await.unwrap_err();
        assert!(why.contains("a fault of this program") && why.contains("overflow"), "{why}");
    }
}
