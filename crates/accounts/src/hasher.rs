//! The thread that verifies passwords. It rests after each for as long as that took, and runs at
//! low priority: guessing must not slow down other clients.

use crate::password;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Instant;
use tokio::sync::oneshot;

/// Of the 19 steps of `nice`: under full load this leaves a tenth of a core, so that a first log-in
/// takes some 0.2 s.
const BEHIND: i32 = 10;

#[derive(Debug)]
struct Job<T> {
    password: String,
    stored: String,
    answer: oneshot::Sender<bool>,
    /// Held until it is done, whoever asked may have gone.
    turn: T,
}

/// The thread's post box; it ends with it.
#[derive(Debug)]
pub(crate) struct PasswordHasher<T>(Sender<Job<T>>);

impl<T: Send + 'static> PasswordHasher<T> {
    pub(crate) fn begin() -> std::io::Result<Self> {
        let (sender, jobs) = channel();
        thread::Builder::new().name("passwords".to_owned()).spawn(move || work(&jobs))?;
        Ok(Self(sender))
    }

    /// Whether this password was hashed as `stored`: 20 to 40 ms after its turn, which ends with
    /// `turn`.
    pub(crate) async fn matches(&self, password: &str, stored: &str, turn: T) -> bool {
        let (answer, answered) = oneshot::channel();
        let (password, stored) = (password.to_owned(), stored.to_owned());
        // a thread that is gone knows nobody
        self.0.send(Job { password, stored, answer, turn }).is_ok()
            && answered.await.unwrap_or(false)
    }
}

fn work<T>(jobs: &Receiver<Job<T>>) {
    // of this thread alone (setpriority(2)); where that is refused it is as urgent as the others
    let _ = rustix::process::setpriority_process(None, BEHIND);
    for Job { password, stored, answer, turn } in jobs {
        let begun = Instant::now();
        let right = password::matches(&password, &stored);
        drop(turn);
        // whoever asked may have gone
        let _ = answer.send(right);
        thread::sleep(begun.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn verifies_passwords_at_low_priority() {
        let hashing = PasswordHasher::begin().unwrap();
        let stored = password::hash("right password").unwrap();
        assert!(hashing.matches("right password", &stored, ()).await);
        assert!(!hashing.matches("wrong password", &stored, ()).await);
        let own = |thread: &std::fs::DirEntry| {
            let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            let (name, rest) = stat.rsplit_once(") ")?;
            let nice = rest.split(' ').nth(16)?.parse::<i32>().ok()?;
            name.ends_with("(passwords").then_some(nice)
        };
        let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        assert!(threads.filter_map(|thread| own(&thread)).any(|nice| nice >= BEHIND));
    }
}
