//! Who changed what by the API or by a command, who logged in and out, and who was refused: JSON lines in three files of
//! bounded size. So neither refusals nor those who may only look can push changes out.

mod file;
mod queue;
mod refusals;

use crate::AT_END;
use ekiden_config::printable;
use ekiden_linux::host::sync::locked;
use ekiden_linux::host::{clock, state_files};
use ekiden_model::units::Time;
use file::AuditFile;
use jiff::Timestamp;
use queue::{Line, Queue, Written};
use refusals::Refusals;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// A file is put aside at this size: some 20,000 lines.
const LARGEST: u64 = 4 << 20;
/// The most bytes that are read from a file's end, and the most lines of them that are returned.
const READ: u64 = 256 << 10;
const NEWEST: usize = 500;
/// Letters of a method and of a path: the sender chooses them.
const LONGEST: usize = 200;

/// One of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    Changes,
    Sessions,
    Refused,
}

impl Kind {
    const fn file(self) -> &'static str {
        match self {
            Self::Changes => "audit-changes.jsonl",
            Self::Sessions => "audit-sessions.jsonl",
            Self::Refused => "audit-refused.jsonl",
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Entry<'a> {
    /// When, RFC 3339.
    time: String,
    /// From where; null for a command.
    address: Option<IpAddr>,
    /// The operator, or who ran the command.
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a str>,
    /// The HTTP method, or the command.
    method: &'a str,
    /// The path, or the command's object.
    path: &'a str,
    /// Part of the hash of the token that was right; null without.
    token: Option<&'a str>,
    /// The HTTP status; null for a command.
    status: Option<u16>,
    /// `changed`, `failed`, `refused`, or `unknown` where no answer came.
    outcome: &'static str,
    /// What was changed, or why not.
    what: &'a str,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Call<'a> {
    pub(super) address: IpAddr,
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    pub(super) token: Option<&'a str>,
    /// The operator.
    pub(super) user: Option<&'a str>,
    pub(super) status: u16,
    pub(super) what: &'a str,
}

#[derive(Debug)]
pub(super) struct Audit {
    folder: PathBuf,
    queue: Queue,
    refusals: Mutex<Refusals>,
}

impl Audit {
    /// In a folder, which is made if missing.
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        state_files::make_folder(folder)?;
        let open = |kind: Kind| AuditFile::open(folder.join(kind.file()), LARGEST);
        let mut changes = open(Kind::Changes)?;
        let mut sessions = open(Kind::Sessions)?;
        let mut refused = open(Kind::Refused)?;
        Self::start(folder, move |line: &Line| {
            let file = match line.to {
                Kind::Changes => &mut changes,
                Kind::Sessions => &mut sessions,
                Kind::Refused => &mut refused,
            };
            file.write(line.text.as_bytes())
        })
    }

    /// One whose lines are handed to `write`.
    fn start(
        folder: &Path,
        write: impl FnMut(&Line) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Self> {
        let queue = Queue::start(write)?;
        let refusals = Mutex::new(Refusals::new(clock::now()));
        Ok(Self { folder: folder.to_owned(), queue, refusals })
    }

    /// Where a file is.
    pub(super) fn path(&self, kind: Kind) -> PathBuf {
        self.folder.join(kind.file())
    }

    /// A call that meant to change something, whatever came of it.
    pub(super) fn changed(&self, call: &Call<'_>) -> Written {
        let outcome = if call.status < 400 { "changed" } else { "failed" };
        self.put(Kind::Changes, call, outcome)
    }

    /// A call that meant to change something, and may have done so.
    pub(super) fn unknown(&self, call: &Call<'_>) -> Written {
        self.put(Kind::Changes, call, "unknown")
    }

    /// A call that opened a session of the dashboard or ended one.
    pub(super) fn session(&self, call: &Call<'_>) -> Written {
        self.put(Kind::Sessions, call, "changed")
    }

    /// A call that was not let in. Of very many, most are counted alone. None with status 503 waits for its line: it
    /// may have waited for the same disk.
    pub(super) fn refused(&self, call: &Call<'_>) -> Written {
        self.refused_at(clock::now(), call)
    }

    fn refused_at(&self, now: Time, call: &Call<'_>) -> Written {
        let has_room = self.queue.has_room_for_refused();
        let has_line = locked(&self.refusals).on_refused(now, call.address, has_room);
        let written = has_line.then(|| self.put(Kind::Refused, call, "refused"));
        written.filter(|_| call.status != 503).unwrap_or_else(Written::at_once)
    }

    /// Writes down how many refused calls have no line, a minute after the first of them. To be called every second.
    pub(super) fn count_refused(&self) {
        self.count_refused_at(clock::now());
    }

    fn count_refused_at(&self, now: Time) {
        if !self.queue.has_room_for_refused() {
            return;
        }
        let Some(more) = locked(&self.refusals).take_left_out(now) else { return };
        let what = format!("and {more} more");
        let entry = Entry {
            time: Timestamp::now().to_string(),
            address: None,
            user: None,
            method: "",
            path: "",
            token: None,
            status: None,
            outcome: "refused",
            what: &what,
        };
        let _nobody_waits = self.put_entry(Kind::Refused, &entry);
    }

    /// Writes what waits, and takes nothing more: the relay's log has later calls. A disk that hangs is given up.
    pub(super) async fn end(&self) {
        if tokio::time::timeout(AT_END, self.queue.end()).await.is_err() {
            let seconds = AT_END.as_secs();
            tracing::error!(
                "the disk did not take the last lines of the audit log within {seconds} s"
            );
        }
    }

    fn put(&self, to: Kind, call: &Call<'_>, outcome: &'static str) -> Written {
        let Call { address, method, path, token, user, status, what } = *call;
        let entry = Entry {
            time: Timestamp::now().to_string(),
            address: Some(address),
            user,
            method: cut(method),
            path: cut(path),
            token,
            status: Some(status),
            outcome,
            what,
        };
        self.put_entry(to, &entry)
    }

    fn put_entry(&self, to: Kind, entry: &Entry<'_>) -> Written {
        // text and numbers are always JSON
        let text = entry.line().unwrap_or_default().into();
        self.queue.push(Line { to, text })
    }
}

/// The newest lines of a file, the newest first: 500 at most, of the last 256 KiB. Errors: it cannot be read.
pub(super) fn newest(path: &Path) -> io::Result<Vec<serde_json::Value>> {
    let mut file = File::open(path)?;
    let from = file.metadata()?.len().saturating_sub(READ);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(READ).read_to_end(&mut bytes)?;
    let lines = bytes.rsplit(|byte| *byte == b'\n');
    // the first may be cut, and is then no JSON
    Ok(lines.filter_map(|line| serde_json::from_slice(line).ok()).take(NEWEST).collect())
}

/// A value as it stands among others in a line's `what`: in quotes, as JSON has them, where it is empty or has a
/// comma, a quote, a backslash, a space or a control character, which could end it early.
pub fn quoted(text: &str) -> Cow<'_, str> {
    let ends_it =
        |c: char| c.is_whitespace() || c.is_control() || [',', '"', '\'', '\\'].contains(&c);
    match text.is_empty() || text.contains(ends_it) {
        true => Cow::Owned(printable(&serde_json::Value::from(text).to_string())),
        false => Cow::Borrowed(text),
    }
}

/// A command that changed something, or failed to.
#[derive(Debug, Clone, Copy)]
pub struct ChangeByCommand<'a> {
    /// Who ran it.
    pub user: &'a str,
    /// The command, as `ekiden account add`.
    pub command: &'a str,
    /// The account or peer.
    pub object: &'a str,
    /// What was changed, or why not. Never a secret.
    pub result: Result<&'a str, &'a str>,
}

/// Adds it to the changes in `folder`, where a daemon may write too. Errors: the folder cannot be made,
/// or the file not be written.
pub fn record_command(folder: &Path, change: &ChangeByCommand<'_>) -> io::Result<()> {
    let ChangeByCommand { user, command, object, result } = *change;
    let (outcome, what) = match result {
        Ok(what) => ("changed", what),
        Err(why) => ("failed", why),
    };
    let entry = Entry {
        time: Timestamp::now().to_string(),
        address: None,
        user: Some(user),
        method: command,
        path: cut(object),
        token: None,
        status: None,
        outcome,
        what,
    };
    state_files::make_folder(folder)?;
    AuditFile::open(folder.join(Kind::Changes.file()), LARGEST)?.write(entry.line()?.as_bytes())
}

fn cut(text: &str) -> &str {
    text.char_indices().nth(LONGEST).map_or(text, |(end, _)| &text[..end])
}

impl Entry<'_> {
    fn line(&self) -> io::Result<String> {
        let mut line = serde_json::to_string(self)?;
        line.push('\n');
        Ok(line)
    }
}

#[cfg(test)]
mod tests;
