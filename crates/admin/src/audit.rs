//! Who changed what by the API, and who was refused: JSON lines in two files of bounded size, so
//! that refusals cannot push changes out.

use ekiden_linux::host::state_files;
use jiff::Timestamp;
use serde::Serialize;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// A file is put aside at this size: some 20,000 lines.
const LARGEST: u64 = 4 << 20;
/// Files put aside of each kind: 16 MiB with the one that is written.
const KEPT: u32 = 3;
/// Paths are cut here: the sender chooses them.
const LONGEST: usize = 200;

#[derive(Debug, Serialize)]
pub(super) struct Entry<'a> {
    /// When, RFC 3339.
    time: String,
    /// From where.
    address: IpAddr,
    method: &'a str,
    path: String,
    /// Part of the hash of the token that was right; null without.
    token: Option<&'a str>,
    status: u16,
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
    pub(super) status: u16,
    pub(super) what: &'a str,
}

#[derive(Debug)]
pub(super) struct Audit {
    changes: Mutex<AuditFile>,
    refused: Mutex<AuditFile>,
}

impl Audit {
    /// In a folder, which is made if missing.
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        state_files::make_folder(folder)?;
        Ok(Self {
            changes: Mutex::new(AuditFile::open(folder.join("audit-changes.jsonl"), LARGEST)?),
            refused: Mutex::new(AuditFile::open(folder.join("audit-refused.jsonl"), LARGEST)?),
        })
    }

    /// A call that meant to change something, whatever came of it.
    pub(super) fn changed(&self, call: &Call<'_>) {
        let outcome = if call.status < 400 { "changed" } else { "failed" };
        write(&self.changes, call, outcome);
    }

    /// A call that was not let in.
    pub(super) fn refused(&self, call: &Call<'_>) {
        write(&self.refused, call, "refused");
    }
}

fn write(to: &Mutex<AuditFile>, call: &Call<'_>, outcome: &'static str) {
    let Call { address, method, path, token, status, what } = *call;
    let path = path.chars().take(LONGEST).collect();
    let time = Timestamp::now().to_string();
    let entry = Entry { time, address, method, path, token, status, outcome, what };
    let written = serde_json::to_vec(&entry).map_err(io::Error::from).and_then(|mut line| {
        line.push(b'\n');
        to.lock().unwrap_or_else(PoisonError::into_inner).write(&line)
    });
    if let Err(error) = written {
        // who cannot write may still have to switch an account off
        tracing::error!(%error, "the audit log cannot be written; on record here: {method} {}, {status}", entry.path);
    }
}

#[derive(Debug)]
struct AuditFile {
    path: PathBuf,
    file: File,
    length: u64,
    largest: u64,
}

impl AuditFile {
    fn open(path: PathBuf, largest: u64) -> io::Result<Self> {
        let file = state_files::append(&path)?;
        let length = file.metadata()?.len();
        Ok(Self { path, file, length, largest })
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        if self.length > 0 && self.length + line.len() as u64 > self.largest {
            let old = |n: u32| PathBuf::from(format!("{}.{n}", self.path.display()));
            for n in (1..KEPT).rev() {
                match fs::rename(old(n), old(n + 1)) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
            fs::rename(&self.path, old(1))?;
            (self.file, self.length) = (state_files::append(&self.path)?, 0);
        }
        // one write, so that lines stay whole
        self.file.write_all(line)?;
        self.length += line.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt as _;

    #[test]
    fn lines_say_who_and_what_and_are_private() {
        let dir = tempfile::tempdir().unwrap();
        let audit = Audit::open(dir.path()).unwrap();
        let call = Call {
            address: [127, 0, 0, 1].into(),
            method: "DELETE",
            path: "/api/v1/accounts/tanaka",
            token: Some("0a1b2c3d"),
            status: 204,
            what: "removed \"tanaka\"",
        };
        audit.changed(&call);
        audit.refused(&Call { token: None, status: 401, what: "no \"token\"\n", ..call });
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
