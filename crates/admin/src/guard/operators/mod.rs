//! Operators: people with a name and a password of their own, beside the token. A file of the state folder has them, and
//! each call reads it, so that a change counts at once, also where another file or link takes its place.
//!
//! While the file cannot be used, those known before stay.

mod known;

pub(crate) use known::KnownOperators;

use crate::problem::Problem;
use axum::http::StatusCode;
use ekiden_accounts::{
    Account, AccountId, Attributes, BadPassword, Credential, Device, Directory, LoginAttempts,
    LoginVerdict, hash, is_hash,
};
use ekiden_linux::host::state_files;
use ekiden_tunnel::trust;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs;
use std::io::{self, ErrorKind, Read as _};
use std::net::IpAddr;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

const FILE: &str = "operators.json";
/// Operators of a relay.
const MOST: usize = 64;
/// Bytes of the file.
const LONGEST: u64 = 64 << 10;

/// What an operator may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// All that the token may.
    Full,
    /// Look, and change nothing.
    Viewer,
}

impl Role {
    /// Its name.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Viewer => "viewer",
        }
    }
}

/// An operator.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operator {
    /// The name: letters, digits, `-` and `_`.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// Argon2id, in the PHC string format.
    hash: String,
}

impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operator").field("name", &self.name).field("role", &self.role).finish()
    }
}

impl Operator {
    /// Stands for name, role and password: a session of others has ended.
    pub(crate) fn stamp(&self) -> String {
        let all = format!("{}\n{}\n{}", self.name, self.role.word(), self.hash);
        let hash = trust::hash(all.as_bytes());
        let short: String = hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        format!("operator {} {short}", self.name)
    }
}

/// Why an operator is not there, or cannot be kept.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum OperatorError {
    #[error("{0}")]
    Name(String),
    #[error("{0}")]
    Password(#[from] BadPassword),
    #[error("there is an operator \"{0}\" already; `ekiden operator remove` removes it")]
    Taken(String),
    #[error("there is no operator \"{0}\"; `ekiden operator list` lists all")]
    None(String),
    #[error("a relay has at most {MOST} operators")]
    Full,
    #[error("other users can read or change {path}; `chmod 600 {path}` closes it", path = .0.display())]
    Open(PathBuf),
    #[error("{path} is no list of operators: {1}", path = .0.display())]
    Content(PathBuf, String),
    #[error("{} is missing, and had operators in it", .0.display())]
    Missing(PathBuf),
    #[error("{path} cannot be used: {1}", path = .0.display())]
    System(PathBuf, io::Error),
}

/// What to try where the file of operators cannot be used.
pub const REMEDY: &str = "restore the file, or remove it and add operators again with `ekiden operator add`; until then \
     those known before stay, and the token works";

/// The operators of a state folder.
#[derive(Debug, Clone)]
pub struct Operators(PathBuf);

impl Operators {
    /// Those of this folder.
    pub fn in_folder(folder: &Path) -> Self {
        Self(folder.join(FILE))
    }

    /// All, by name; none where there is no file. Errors: it cannot be read, or by others, too, or is not whole.
    pub fn read(&self) -> Result<Vec<Operator>, OperatorError> {
        Ok(self.find()?.unwrap_or_default())
    }

    /// The same, and `None` where there is no file.
    fn find(&self) -> Result<Option<Vec<Operator>>, OperatorError> {
        let failed = |error: io::Error| OperatorError::System(self.0.clone(), error);
        let content = |why: String| OperatorError::Content(self.0.clone(), why);
        // a pipe in its place would be waited for
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let file = match fs::File::options().read(true).custom_flags(flags).open(&self.0) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound && !self.0.is_symlink() => {
                return Ok(None);
            }
            Err(error) => return Err(failed(error)),
        };
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(content("it is not a file".to_owned()));
        }
        if metadata.permissions().mode() & 0o077 != 0 {
            return Err(OperatorError::Open(self.0.clone()));
        }
        if metadata.len() > LONGEST {
            return Err(content(format!("it is larger than {} KiB", LONGEST / 1024)));
        }
        let mut text = String::new();
        file.take(LONGEST).read_to_string(&mut text).map_err(failed)?;
        read(&text).map(Some).map_err(content)
    }

    /// Adds one. Errors: the name is taken or none, the password too short.
    pub fn add(&self, name: &str, role: Role, password: &str) -> Result<(), OperatorError> {
        ekiden_config::name(name).map_err(OperatorError::Name)?;
        let mut all = self.read()?;
        if all.iter().any(|one| one.name == name) {
            return Err(OperatorError::Taken(name.to_owned()));
        }
        if all.len() >= MOST {
            return Err(OperatorError::Full);
        }
        all.push(Operator { name: name.to_owned(), role, hash: hash(password)? });
        all.sort_by(|a, b| a.name.cmp(&b.name));
        self.write(&all)
    }

    /// Removes one, whose sessions end. Errors: there is none of this name.
    pub fn remove(&self, name: &str) -> Result<(), OperatorError> {
        let mut all = self.read()?;
        let before = all.len();
        all.retain(|one| one.name != name);
        match all.len() == before {
            true => Err(OperatorError::None(name.to_owned())),
            false => self.write(&all),
        }
    }

    fn write(&self, all: &[Operator]) -> Result<(), OperatorError> {
        let failed = |error: io::Error| OperatorError::System(self.0.clone(), error);
        let text = serde_json::to_vec_pretty(all).map_err(|error| failed(error.into()))?;
        self.0.parent().map_or(Ok(()), state_files::make_folder).map_err(failed)?;
        state_files::replace(&self.0, &text).map(drop).map_err(failed)
    }
}

/// The operators of a file's text, or why it is not whole.
fn read(text: &str) -> Result<Vec<Operator>, String> {
    if text.trim().is_empty() {
        return Err("it is empty; a list of none is `[]`".to_owned());
    }
    let all: Vec<Operator> = serde_json::from_str(text).map_err(|error| match error.is_eof() {
        true => format!("it is cut off: {error}"),
        false => error.to_string(),
    })?;
    for (index, one) in all.iter().enumerate() {
        ekiden_config::name(&one.name)?;
        if all[..index].iter().any(|before| before.name == one.name) {
            return Err(format!("it has \"{}\" twice", one.name));
        }
        if !is_hash(&one.hash) {
            return Err(format!("the password of \"{}\" has no valid hash", one.name));
        }
    }
    Ok(all)
}

/// Checks operators' passwords as those of accounts are: one at a time, from a bounded queue, with waits for those who
/// guess.
#[derive(Debug)]
pub(crate) struct OperatorLogins {
    known: Option<KnownOperators>,
    /// Begun with the first log-in.
    attempts: OnceLock<Result<LoginAttempts, String>>,
}

impl OperatorLogins {
    /// Those of this folder, as its file has them now. The log has why that cannot be used.
    pub(crate) fn new(folder: Option<&Path>) -> Self {
        let known = folder.map(|folder| KnownOperators::read(Operators::in_folder(folder)));
        Self { known, attempts: OnceLock::new() }
    }

    /// All who are one now, for which it waits for the disk. Errors: why the file cannot be used, where nobody is known
    /// from before.
    pub(crate) fn all(&self) -> Result<Vec<Operator>, String> {
        self.known.as_ref().map_or_else(|| Ok(Vec::new()), KnownOperators::all)
    }

    /// Reads the file again, for which it waits for the disk. Errors: why it cannot be used.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.known.as_ref().map_or(Ok(()), KnownOperators::check)
    }

    /// The operator of this name and password, of [`all`](Self::all).
    pub(crate) async fn verify(
        &self,
        all: Result<Vec<Operator>, String>,
        (name, password): (&str, &str),
        from: IpAddr,
    ) -> Result<Operator, Problem> {
        let attempts = self.attempts.get_or_init(LoginAttempts::new).as_ref();
        let attempts = attempts.map_err(|why| Problem::unavailable("log-in", why.clone()))?;
        let all = all.map_err(|_| {
            let why = "the file of operators cannot be used; the relay's log says why";
            Problem::unavailable("operators", why).hint("log in with the token")
        })?;
        let account = |(id, one): (usize, &Operator)| {
            let (user, hash) = (one.name.clone(), one.hash.clone());
            let device =
                Device { name: user.clone(), credential: Credential::Password { user, hash } };
            let id = AccountId(i64::try_from(id).unwrap_or(i64::MAX));
            let (name, devices) = (one.name.clone(), vec![device]);
            Account { id, name, devices, attributes: Attributes::default() }
        };
        let directory = Directory::new(0, all.iter().enumerate().map(account).collect());
        let wait = |status, why: String| Err(Problem::new(status, "guesses", why));
        match attempts.verify_login(&directory, name, password, from).await {
            // not by its number: another like it, who asked before the list changed, may have got the verdict
            LoginVerdict::Known(_) => {
                all.into_iter().find(|one| one.name == name).ok_or_else(wrong)
            }
            LoginVerdict::Wrong | LoginVerdict::WrongAgain => Err(wrong()),
            LoginVerdict::Wait(span) => {
                let seconds = span.as_secs().max(1);
                let why = format!("too many wrong passwords; try again in {seconds} s");
                wait(StatusCode::TOO_MANY_REQUESTS, why)
            }
            LoginVerdict::Busy => {
                let why = "too many log in at once; try again in a second".to_owned();
                wait(StatusCode::SERVICE_UNAVAILABLE, why)
            }
        }
    }
}

fn wrong() -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, "operator", "wrong name or password")
        .hint("`ekiden operator list` on the relay's machine lists who is one")
}

/// Whoever reads the file of operators waits until the sender is dropped, and for a minute at most.
#[cfg(test)]
pub(crate) fn hang(shared: &std::sync::Arc<crate::Shared>) -> std::sync::mpsc::Sender<()> {
    use std::sync::mpsc::channel;
    let ((go, goes_on), (begun, begins)) = (channel(), channel());
    let of = std::sync::Arc::clone(shared);
    std::thread::spawn(move || {
        if let Some(known) = &of.operators.known {
            known.hang(|| {
                begun.send(()).unwrap();
                let _late = goes_on.recv_timeout(std::time::Duration::from_secs(60));
            });
        }
    });
    begins.recv().unwrap();
    go
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::task::Poll;

    #[test]
    fn operators_are_kept_closed_to_others_and_found_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let operators = Operators::in_folder(&dir.path().join("state"));
        assert_eq!(operators.read().unwrap(), []);
        operators.add("mika", Role::Viewer, "a long password").unwrap();
        operators.add("aiko", Role::Full, "another password").unwrap();
        let names = |all: &[Operator]| all.iter().map(|one| one.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&operators.read().unwrap()), ["aiko", "mika"]);
        let text = fs::read_to_string(&operators.0).unwrap();
        assert!(!text.contains("a long password") && text.contains("$argon2id$"), "{text}");
        assert!(!format!("{:?}", operators.read().unwrap()).contains("argon2"));
        for (name, password, words) in [
            ("mika", "a long password", "already"),
            ("a b", "a long password", "invalid name"),
            ("new", "short", "8 to 255"),
        ] {
            let error = operators.add(name, Role::Full, password).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        operators.remove("mika").unwrap();
        assert!(matches!(operators.remove("mika"), Err(OperatorError::None(_))));
        fs::set_permissions(&operators.0, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(operators.read(), Err(OperatorError::Open(_))));
    }

    #[tokio::test]
    async fn an_operator_who_logs_in_while_the_list_changes_gets_the_own_name() {
        let dir = tempfile::tempdir().unwrap();
        let operators = Operators::in_folder(dir.path());
        let mika = Operator {
            name: "mika".to_owned(),
            role: Role::Viewer,
            hash: hash("a long password").unwrap(),
        };
        let aiko = Operator { name: "aiko".to_owned(), role: Role::Full, hash: mika.hash.clone() };
        operators.write(std::slice::from_ref(&mika)).unwrap();
        let logins = OperatorLogins::new(Some(dir.path()));
        let log_in = || {
            logins.verify(logins.all(), ("mika", "a long password"), IpAddr::from([192, 0, 2, 1]))
        };
        // the password waits, and is looked at meanwhile
        let mut first = std::pin::pin!(log_in());
        let early = poll_fn(|context| Poll::Ready(first.as_mut().poll(context))).await;
        // aiko is the first of the list now, as mika was
        operators.write(&[aiko, mika]).unwrap();
        let second = log_in().await.unwrap();
        let first = match early {
            Poll::Ready(first) => first,
            Poll::Pending => first.await,
        };
        assert_eq!([first.unwrap().name, second.name], ["mika", "mika"]);
    }

    #[tokio::test]
    async fn a_password_is_checked_and_guesses_wait() {
        let dir = tempfile::tempdir().unwrap();
        let operators = Operators::in_folder(dir.path());
        operators.add("mika", Role::Viewer, "a long password").unwrap();
        let logins = OperatorLogins::new(Some(dir.path()));
        let from = IpAddr::from([192, 0, 2, 1]);
        let log_in = async |name: &str, password: &str| {
            logins.verify(logins.all(), (name, password), from).await
        };
        let found = log_in("mika", "a long password").await.unwrap();
        assert_eq!((found.name.as_str(), found.role), ("mika", Role::Viewer));
        let stamp = found.stamp();
        assert_eq!(log_in("aiko", "a long password").await.unwrap_err().status, 401);
        let mut status = 401;
        for n in 0..40 {
            status = log_in("mika", &format!("guess {n}")).await.unwrap_err().status;
            if status == 429 {
                break;
            }
        }
        assert_eq!(status, 429);
        operators.remove("mika").unwrap();
        operators.add("mika", Role::Full, "a long password").unwrap();
        assert_ne!(operators.read().unwrap()[0].stamp(), stamp);
    }
}
