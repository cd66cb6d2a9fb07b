//! Requests to reload the configuration: from the API to the daemon, one at a time.

use tokio::sync::{mpsc, oneshot};

/// The result of a reload: warnings, or the errors because of which the old configuration stays.
pub type Outcome = Result<Vec<String>, Vec<String>>;

/// Asks the daemon to reload its configuration.
#[derive(Debug, Clone)]
pub struct Reloads(mpsc::Sender<ReloadReply>);

/// Returns the outcome to the caller.
#[derive(Debug)]
pub struct ReloadReply(oneshot::Sender<Outcome>);

impl Reloads {
    /// The sender for callers and the receiver for the daemon.
    pub fn new() -> (Self, mpsc::Receiver<ReloadReply>) {
        // one at a time: further callers wait
        let (ask, asked) = mpsc::channel(1);
        (Self(ask), asked)
    }

    /// Asks for a reload and waits for its outcome.
    pub async fn ask(&self) -> Outcome {
        let stopping = || Err(vec!["the daemon is starting or stopping".to_owned()]);
        let (answer, done) = oneshot::channel();
        if self.0.send(ReloadReply(answer)).await.is_err() {
            return stopping();
        }
        done.await.unwrap_or_else(|_| stopping())
    }
}

impl ReloadReply {
    /// Sends the outcome.
    pub fn give(self, outcome: Outcome) {
        // the caller may be gone
        let _gone = self.0.send(outcome);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn returns_the_outcome_and_reports_a_daemon_that_is_gone() {
        let (reloads, mut asked) = Reloads::new();
        let daemon = tokio::spawn(async move {
            asked.recv().await.unwrap().give(Ok(vec!["a warning".to_owned()]));
        });
        assert_eq!(reloads.ask().await, Ok(vec!["a warning".to_owned()]));
        daemon.await.unwrap();
        assert!(reloads.ask().await.unwrap_err()[0].contains("stopping"));
    }
}
