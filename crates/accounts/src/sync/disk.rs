//! What is kept on this machine's disk. No thread that serves others waits for it.

use super::{AccountSync, SyncError};
use crate::directory::{Directory, SavedDirectory};
use crate::locked;
use crate::store::StoreError;
use ekiden_linux::host::state_files;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Interval, MissedTickBehavior};

/// Interval of writing the journal. Usage arrives five times a second, so a killed process loses at most a second, also
/// where the machine lets it write 0.3 s late.
const WRITE: Duration = Duration::from_millis(500);

/// Time for the disk at the end, for usage and for grants each.
const AT_END: Duration = Duration::from_secs(10);

/// What the disk does at the end, or that it hangs.
pub(super) async fn at_end(work: impl Future<Output = io::Result<()>>) -> io::Result<()> {
    let late = || format!("the disk did not take it within {} s", AT_END.as_secs());
    match tokio::time::timeout(AT_END, work).await {
        Ok(done) => done,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, late())),
    }
}

/// Runs what waits for the disk on a thread that may.
pub(super) async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other).flatten()
}

fn ticks() -> Interval {
    let mut tick = tokio::time::interval(WRITE);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tick
}

/// Why the disk lacks something since the last time: usage; grants, or a journal written anew.
#[derive(Debug, Default)]
pub(super) struct Unwritten([Option<String>; 2]);

impl Unwritten {
    const SAID: [&str; 2] = [
        "cannot write usage; keeping it in memory",
        "cannot write grants, or the usage journal anew; trying again",
    ];

    /// The first reason.
    pub(super) fn why(&self) -> Option<String> {
        self.0.iter().flatten().next().cloned()
    }

    fn on_written(&mut self, nth: usize, written: io::Result<()>) {
        let failed = written.err().map(|error| error.to_string());
        let before = std::mem::replace(&mut self.0[nth], failed);
        if let (None, Some(error)) = (before, &self.0[nth]) {
            tracing::error!(%error, "{}", Self::SAID[nth]);
        }
    }
}

impl AccountSync {
    /// Writes usage, whatever the disk takes for the rest.
    pub(super) async fn write(&self) {
        let mut tick = ticks();
        loop {
            tick.tick().await;
            let written = self.write_down().await;
            locked(&self.unwritten).on_written(0, written);
        }
    }

    /// Writes what is replaced as a whole: a journal that is long or gets another identity, and grants.
    pub(super) async fn replace(&self) {
        let mut tick = ticks();
        loop {
            tick.tick().await;
            let parted = self.part_from_copy().await;
            let written = parted.and(self.shorten().await).and(self.write_grants().await);
            locked(&self.unwritten).on_written(1, written);
        }
    }

    /// Writes what the journal's file lacks. Where this is dropped, a write that has begun goes on, and keeps its turn.
    pub(super) async fn write_down(&self) -> io::Result<()> {
        let turn = Arc::clone(&self.turn).lock_owned().await;
        let journal = Arc::clone(&self.journal);
        on_disk(move || {
            // whoever has the next turn may be the last to hold the journal
            let (_turn, journal) = (turn, journal);
            let writing = locked(&journal).unwritten();
            let Some(writing) = writing else { return Ok(()) };
            writing.write()?;
            locked(&journal).on_written(&writing);
            Ok(())
        })
        .await
    }

    /// The same, if the disk takes it at once. One that does not keeps nothing else waiting; the next write says so.
    pub(super) async fn write_in_time(&self) {
        let _tried = tokio::time::timeout(WRITE, self.write_down()).await;
    }

    /// The same, and waits until the disk has it.
    pub(super) async fn write_at_end(&self) -> io::Result<()> {
        self.write_down().await?;
        let file = locked(&self.journal).file();
        on_disk(move || file.sync_all()).await
    }

    /// Writes a long journal anew. The old one goes on until the new one only has to be put in its place.
    async fn shorten(&self) -> io::Result<()> {
        let (directory, now) = (self.directory(), self.now().as_second());
        let is_known = |account| directory.get(account).is_some();
        let contents = locked(&self.journal).shorten(now, is_known);
        let Some(contents) = contents else { return Ok(()) };
        let successor = on_disk(move || contents.write()).await?;
        let turn = Arc::clone(&self.turn).lock_owned().await;
        let journal = Arc::clone(&self.journal);
        on_disk(move || {
            let replacement = {
                let journal = locked(&journal);
                if !successor.is_of(&journal) {
                    return Ok(());
                }
                journal.replacement(successor)
            };
            let placed = replacement.place()?;
            let rest = locked(&journal).go_on_in(placed);
            drop((journal, turn));
            rest.sync()
        })
        .await
    }

    fn kept_path(&self) -> PathBuf {
        self.folder.join("accounts.json")
    }

    /// For a start without the database.
    pub(super) async fn keep(&self, directory: Arc<Directory>) -> io::Result<()> {
        let path = self.kept_path();
        let keep = move || {
            let text = serde_json::to_vec(&directory.to_keep())?;
            state_files::replace(&path, &text).map(drop)
        };
        on_disk(keep).await
    }

    /// The accounts of before. The log says why they cannot be used.
    pub(super) fn read_kept(&self) -> Option<Directory> {
        read_saved(&self.kept_path()).unwrap_or_else(|why| {
            tracing::error!("{why}");
            None
        })
    }
}

/// The accounts in a file; `None` where there is none. Errors: in words; a file that cannot be understood was moved aside.
fn read_saved(path: &Path) -> Result<Option<Directory>, String> {
    let shown = path.display();
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("cannot read the saved accounts in {shown}: {error}")),
    };
    let why = match serde_json::from_slice::<SavedDirectory>(&text) {
        Ok(saved) => return Ok(Some(saved.into())),
        Err(why) => why,
    };
    let aside = path.with_extension("json.broken");
    let moved = match fs::rename(path, &aside) {
        Ok(()) => format!("moved them to {}", aside.display()),
        Err(error) => format!("cannot move them to {}: {error}", aside.display()),
    };
    Err(format!(
        "the saved accounts in {shown} cannot be used: {why}; {moved}. If another version of ekiden wrote them, move them \
         back and start that one; otherwise start again when the database answers, which writes them anew"
    ))
}

/// Forgets the file's: the next start takes the journal's identity.
pub(super) fn forget_id(folder: &Path) -> io::Result<()> {
    match fs::remove_file(folder.join("relay.id")) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// By what the database knows this relay, whatever it is called: the same over restarts. Where the file is missing, it is
/// the journal's identity: grants are then found again by what counts against them.
pub(super) fn own_id(folder: &Path, journal: &str) -> Result<String, SyncError> {
    let path = folder.join("relay.id");
    let failed = |error| StoreError::Folder { path: path.clone(), error };
    match fs::read_to_string(&path) {
        Ok(id) if !id.trim().is_empty() => return Ok(id.trim().to_owned()),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error).into()),
    }
    state_files::replace(&path, format!("{journal}\n").as_bytes()).map_err(failed)?;
    Ok(journal.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::AccountId;
    use crate::journal::Journal;

    #[tokio::test]
    async fn a_disk_that_hangs_does_not_hold_up_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let sync = AccountSync::open(folder.path(), None, "r").await.unwrap();
        sync.used(AccountId(1), 1, 0);
        // as while a write does not end
        let _turn = Arc::clone(&sync.turn).lock_owned().await;
        tokio::time::pause();
        let closed = tokio::time::timeout(Duration::from_secs(600), sync.close()).await;
        assert!(closed.is_ok());
    }

    #[test]
    fn saved_accounts_that_are_not_understood_are_put_aside_with_their_place() {
        let folder = tempfile::tempdir().unwrap();
        let [path, aside] =
            ["accounts.json", "accounts.json.broken"].map(|name| folder.path().join(name));
        assert!(read_saved(&path).unwrap().is_none());
        let saved = |devices: &str, limits: &str| {
            let account =
                format!(r#""id":1,"name":"h","devices":[{devices}],"attributes":{limits}"#);
            format!("{{\"version\":3,\n\"accounts\":[{{{account}}}]}}")
        };
        let phone = r#"{"name":"d","credential":{"peer":"ship"}}"#;
        fs::write(&path, saved(phone, r#"{"quota":"1 GB/month","of_later":null}"#)).unwrap();
        let read = read_saved(&path).unwrap().unwrap();
        assert_eq!((read.version(), read.len()), (3, 1));
        let password =
            r#"{"name":"d","credential":{"password":{"user":"a","hash":"h","until":1}}}"#;
        for (text, why) in [
            (saved("", r#"{"of_later":5}"#), "this version knows no limit \"of_later\""),
            (saved("", r#"{"weight":"much"}"#), "invalid type: string \"much\""),
            (saved(r#"{"name":"d"}"#, "{}"), "missing field `credential`"),
            (saved(password, "{}"), "unknown field `until`"),
            (saved("", "{}").replace("\"id\"", "\"of\":1,\"id\""), "unknown field `of`"),
            (saved("", "{}").replace("]}", ""), "EOF while parsing"),
        ] {
            fs::write(&path, &text).unwrap();
            let said = read_saved(&path).unwrap_err();
            for part in [why, "at line 2 column ", "accounts.json cannot", "accounts.json.broken"] {
                assert!(said.contains(part), "{part}: {said}");
            }
            assert_eq!(fs::read_to_string(&aside).unwrap(), text);
            assert!(!path.exists());
        }
    }

    #[tokio::test]
    async fn usage_is_written_while_a_long_journal_is_written_anew() {
        const LONG: u64 = 300_000;
        let folder = tempfile::tempdir().unwrap();
        let sync = Arc::new(AccountSync::open(folder.path(), None, "r").await.unwrap());
        let length = || fs::metadata(folder.path().join("usage.journal")).unwrap().len();
        let mut down = 0;
        while length() < LONG {
            down += 1;
            sync.used(AccountId(1), 1, 0);
            sync.write_down().await.unwrap();
        }
        let shortening = Arc::clone(&sync);
        let shortening = tokio::spawn(async move { shortening.shorten().await });
        // it comes to where it waits for the disk, and the only thread of this runtime goes on
        tokio::task::yield_now().await;
        sync.used(AccountId(1), 10, 3);
        sync.write_down().await.unwrap();
        shortening.await.unwrap().unwrap();
        assert!(length() < 1_000, "{}", length());
        sync.used(AccountId(1), 100, 0);
        sync.write_down().await.unwrap();
        drop(sync);
        let totals = Journal::open(folder.path()).unwrap().unsettled();
        let used = totals.iter().fold((0, 0), |(down, up), t| (down + t.down, up + t.up));
        assert_eq!(used, (down + 110, 3));
    }
}
