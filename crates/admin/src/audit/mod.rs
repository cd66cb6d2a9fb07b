//! Who changed what by the API or by a command, who logged in and out, and who was refused: JSON lines in three files of
//! bounded size. So neither refusals nor those who may only look can push changes out.

mod refusals;

use ekiden_config::printable;
use ekiden_linux::host::sync::locked;
use ekiden_linux::host::{clock, state_files};
use ekiden_model::units::Time;
use ekiden_proxy::LogThrottle;
use jiff::Timestamp;
use refusals::Refusals;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// A file is put aside at this size: some 20,000 lines.
const LARGEST: u64 = 4 << 20;
/// Files put aside of each kind: 16 MiB with the one that is written.
const KEPT: u32 = 3;
const CHANGES: &str = "audit-changes.jsonl";
const SESSIONS: &str = "audit-sessions.jsonl";
const REFUSED: &str = "audit-refused.jsonl";
/// The most bytes that are read from a file's end, and the most lines of them that are returned.
const READ: u64 = 256 << 10;
const NEWEST: usize = 500;
/// Paths are cut here: the sender chooses them.
const LONGEST: usize = 200;

/// One of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    Changes,
    Sessions,
    Refused,
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
    path: String,
    /// Part of the hash of the token that was right; null without.
    token: Option<&'a str>,
    /// The HTTP status; null for a command.
    status: Option<u16>,
    /// `changed`, `failed` or `refused`.
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
    changes: Mutex<AuditFile>,
    sessions: Mutex<AuditFile>,
    refused: Mutex<AuditFile>,
    refusals: Mutex<Refusals>,
}

impl Audit {
    /// In a folder, which is made if missing.
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        state_files::make_folder(folder)?;
        Ok(Self {
            changes: Mutex::new(AuditFile::open(folder.join(CHANGES), LARGEST)?),
            sessions: Mutex::new(AuditFile::open(folder.join(SESSIONS), LARGEST)?),
            refused: Mutex::new(AuditFile::open(folder.join(REFUSED), LARGEST)?),
            refusals: Mutex::new(Refusals::new(clock::now())),
        })
    }

    /// Where a file is.
    pub(super) fn path(&self, kind: Kind) -> PathBuf {
        let file = match kind {
            Kind::Changes => &self.changes,
            Kind::Sessions => &self.sessions,
            Kind::Refused => &self.refused,
        };
        file.lock().unwrap_or_else(PoisonError::into_inner).path.clone()
    }

    /// A call that meant to change something, whatever came of it.
    pub(super) fn changed(&self, call: &Call<'_>) {
        let outcome = if call.status < 400 { "changed" } else { "failed" };
        write(&self.changes, call, outcome);
    }

    /// A call that opened a session of the dashboard or ended one.
    pub(super) fn session(&self, call: &Call<'_>) {
        write(&self.sessions, call, "changed");
    }

    /// A call that was not let in. Of very many, most are counted alone.
    pub(super) fn refused(&self, call: &Call<'_>) {
        self.refused_at(clock::now(), call);
    }

    fn refused_at(&self, now: Time, call: &Call<'_>) {
        if locked(&self.refusals).on_refused(now, call.address) {
            write(&self.refused, call, "refused");
        }
    }

    /// Writes down how many refused calls have no line, a minute after the first of them. To be called every second.
    pub(super) fn count_refused(&self) {
        self.count_refused_at(clock::now());
    }

    fn count_refused_at(&self, now: Time) {
        let Some(more) = locked(&self.refusals).take_left_out(now) else { return };
        let what = format!("and {more} more");
        let entry = Entry {
            time: Timestamp::now().to_string(),
            address: None,
            user: None,
            method: "",
            path: String::new(),
            token: None,
            status: None,
            outcome: "refused",
            what: &what,
        };
        write_entry(&self.refused, &entry);
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
        path: object.chars().take(LONGEST).collect(),
        token: None,
        status: None,
        outcome,
        what,
    };
    state_files::make_folder(folder)?;
    AuditFile::open(folder.join(CHANGES), LARGEST)?.write(&entry.line()?)
}

impl Entry<'_> {
    fn line(&self) -> io::Result<Vec<u8>> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        Ok(line)
    }
}

fn write(to: &Mutex<AuditFile>, call: &Call<'_>, outcome: &'static str) {
    let Call { address, method, path, token, user, status, what } = *call;
    let entry = Entry {
        time: Timestamp::now().to_string(),
        address: Some(address),
        user,
        method,
        path: path.chars().take(LONGEST).collect(),
        token,
        status: Some(status),
        outcome,
        what,
    };
    write_entry(to, &entry);
}

fn write_entry(to: &Mutex<AuditFile>, entry: &Entry<'_>) {
    let mut file = to.lock().unwrap_or_else(PoisonError::into_inner);
    // a stranger may be refused without end; of changes each is on record
    static SAID: LogThrottle = LogThrottle::new();
    if let Err(error) = entry.line().and_then(|line| file.write(&line))
        && (entry.outcome != "refused" || SAID.is_due())
    {
        // who cannot write may still have to switch an account off
        let Entry { method, path, .. } = entry;
        let status = entry.status.unwrap_or_default();
        tracing::error!(%error, "the audit log cannot be written; on record here: {method} {path}, {status}");
    }
}

#[derive(Debug)]
struct AuditFile {
    path: PathBuf,
    file: File,
    largest: u64,
}

impl AuditFile {
    fn open(path: PathBuf, largest: u64) -> io::Result<Self> {
        let file = state_files::append(&path)?;
        Ok(Self { path, file, largest })
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        let mut seen = self.file.metadata()?;
        if fs::metadata(&self.path).ok().map(|at| at.ino()) != Some(seen.ino()) {
            // another process has put it aside
            self.file = state_files::append(&self.path)?;
            seen = self.file.metadata()?;
        }
        let length = seen.len();
        if length > 0 && length + line.len() as u64 > self.largest {
            let old = |n: u32| PathBuf::from(format!("{}.{n}", self.path.display()));
            for n in (1..KEPT).rev() {
                match fs::rename(old(n), old(n + 1)) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
            fs::rename(&self.path, old(1))?;
            self.file = state_files::append(&self.path)?;
        }
        // one write, so that lines stay whole
        self.file.write_all(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ekiden_model::units::Span;

    #[test]
    fn lines_say_who_and_what_and_are_private() {
        let dir = tempfile::tempdir().unwrap();
        let audit = Audit::open(dir.path()).unwrap();
        let call = Call {
            user: None,
            address: [127, 0, 0, 1].into(),
            method: "DELETE",
            path: "/api/v1/accounts/tanaka",
            token: Some("0a1b2c3d"),
            status: 204,
            what: "removed \"tanaka\"",
        };
        audit.changed(&call);
        audit.session(&Call { status: 200, what: "logged in", ..call });
        audit.refused(&Call { token: None, status: 401, what: "no \"token\"\n", ..call });
        let sessions = fs::read_to_string(audit.path(Kind::Sessions)).unwrap();
        assert!(sessions.ends_with("\"what\":\"logged in\"}\n"), "{sessions}");
        let path = dir.path().join("audit-changes.jsonl");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let line = fs::read_to_string(path).unwrap();
        let (time, rest) = line.split_once(",\"address\"").unwrap();
        assert!(time.starts_with("{\"time\":\"20"), "{time}");
        insta::assert_snapshot!(rest, @r##":"127.0.0.1","method":"DELETE","path":"/api/v1/accounts/tanaka","token":"0a1b2c3d","status":204,"outcome":"changed","what":"removed \"tanaka\""}"##);
        let refused = fs::read_to_string(dir.path().join("audit-refused.jsonl")).unwrap();
        assert_eq!(refused.lines().count(), 1);
        assert!(refused.contains("\"outcome\":\"refused\""), "{refused}");
    }

    #[test]
    fn refused_calls_without_end_have_few_lines_and_a_count() {
        let dir = tempfile::tempdir().unwrap();
        let audit = Audit::open(dir.path()).unwrap();
        let address = IpAddr::from([192, 0, 2, 1]);
        let (method, path, what) = ("GET", "/api/v1/accounts", "wrong token");
        let call = Call { address, method, path, token: None, user: None, status: 401, what };
        let now = clock::now();
        (0..10_000).for_each(|_| audit.refused_at(now, &call));
        audit.count_refused_at(now);
        audit.count_refused_at(now + Span::from_secs(60));
        let lines = newest(&audit.path(Kind::Refused)).unwrap();
        assert_eq!(lines.len(), 21);
        assert_eq!(lines[0]["what"], "and 9980 more");
        // calls that are let in are all on record
        (0..100).for_each(|_| audit.changed(&call));
        assert_eq!(newest(&audit.path(Kind::Changes)).unwrap().len(), 100);
    }

    #[test]
    fn the_newest_lines_are_read_first_and_are_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.jsonl");
        let line = |n: usize| format!("{{\"n\":{n},\"pad\":\"{}\"}}\n", "x".repeat(900));
        fs::write(&path, (0..2_000).map(line).collect::<String>()).unwrap();
        let lines = newest(&path).unwrap();
        assert!((280..NEWEST).contains(&lines.len()), "{}", lines.len());
        assert_eq!((&lines[0]["n"], &lines[1]["n"]), (&1_999.into(), &1_998.into()));
        fs::write(&path, (0..2_000).map(|n| format!("{{\"n\":{n}}}\n")).collect::<String>())
            .unwrap();
        assert_eq!(newest(&path).unwrap().len(), NEWEST);
    }

    #[test]
    fn a_value_cannot_pass_for_two() {
        for (value, noted) in [
            ("tanaka@example", "tanaka@example"),
            ("2027-03-31", "2027-03-31"),
            (
                "mon-fri 06:00-22:00; sat,sun 08:00-24:00",
                "\"mon-fri 06:00-22:00; sat,sun 08:00-24:00\"",
            ),
            ("a, disabled true", "\"a, disabled true\""),
            ("a\", disabled true", r#""a\", disabled true""#),
            ("it's", "\"it's\""),
            (r"a\", r#""a\\""#),
            ("a\nb", r#""a\nb""#),
            ("a\u{85}b", "\"a·b\""),
            ("", "\"\""),
        ] {
            assert_eq!(quoted(value), noted);
        }
    }

    #[test]
    fn commands_are_recorded_beside_calls() {
        let dir = tempfile::tempdir().unwrap();
        let (user, command, object) = ("uid 0", "ekiden account remove", "tanaka");
        let result = Ok("--config a.toml");
        record_command(dir.path(), &ChangeByCommand { user, command, object, result }).unwrap();
        let line = fs::read_to_string(dir.path().join(CHANGES)).unwrap();
        let (_, rest) = line.split_once(",\"address\"").unwrap();
        insta::assert_snapshot!(rest, @r##":null,"user":"uid 0","method":"ekiden account remove","path":"tanaka","token":null,"status":null,"outcome":"changed","what":"--config a.toml"}"##);
    }

    #[test]
    fn two_writers_put_a_file_aside_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let mut both = [(); 2].map(|()| AuditFile::open(path.clone(), 10).unwrap());
        both[0].write(b"line 0\n").unwrap();
        both[1].write(b"line 1\n").unwrap();
        both[0].write(b"2\n").unwrap();
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!(read("a"), "line 1\n2\n");
        assert_eq!(read("a.1"), "line 0\n");
    }

    #[test]
    fn files_are_put_aside_and_the_oldest_goes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let mut written = AuditFile::open(path.clone(), 10).unwrap();
        for n in 0..6 {
            written.write(format!("line {n}\n").as_bytes()).unwrap();
        }
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!(
            [read("a"), read("a.1"), read("a.2"), read("a.3")].concat(),
            "line 5\nline 4\nline 3\nline 2\n"
        );
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 4);
        // what was there before counts
        let mut again = AuditFile::open(path, 10).unwrap();
        again.write(b"line 6\n").unwrap();
        assert_eq!((read("a"), read("a.1")), ("line 6\n".into(), "line 5\n".into()));
    }
}
