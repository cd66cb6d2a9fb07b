//! Finding and opening the configuration and the password files it names.

use super::problem::{Problem, Severity, by_place};
use super::{LONGEST, Origin, Overrides, Reading, Secret, SecretOf, read_with};
use crate::problem::place::Source;
use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// A configuration and where it came from.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The file; `None` when there is none and the defaults hold.
    pub file: Option<PathBuf>,
    /// The file's text; empty where it cannot be read.
    pub text: String,
    /// What reading it came to.
    pub reading: Reading,
}

impl Loaded {
    /// Adds a problem at a key such as `tls.certificate`; about the whole file where that does not set the key.
    pub fn add(
        &mut self,
        severity: Severity,
        key: &str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        let file = self.file.as_ref().map(|file| file.display().to_string());
        // one value may stand for a list of one
        let origins = &self.reading.origins;
        let origin = origins.get(key).or_else(|| origins.get(key.rsplit_once('[')?.0));
        let place = match origin {
            Some(Origin::Line(line) | Origin::Inherited(line) | Origin::Both(line, _)) => {
                let lines = self.text.split_inclusive('\n');
                let start: usize = lines.take(line - 1).map(str::len).sum();
                let whole = self.text[start..].lines().next().unwrap_or_default();
                // the value, where it stands behind its key
                let skipped = whole.find('=').map_or(0, |equals| equals + 1);
                let value = &whole[skipped..];
                let from = start + skipped + value.len() - value.trim_start().len();
                let source = Source::new(file.as_deref().unwrap_or_default(), &self.text);
                Some(source.place(&(from..from + value.trim().len())))
            }
            Some(Origin::Flag(_)) | None => None,
        };
        let (message, hint) = (message.into(), hint.into());
        self.reading.problems.push(Problem { severity, file, place, message, hint });
        self.reading.problems.sort_by_key(by_place);
    }
}

/// The configuration used when none is named, the first that is there of `$XDG_CONFIG_HOME/ekiden/config.toml`,
/// `~/.config/ekiden/config.toml` (unless that variable is set) and `/etc/ekiden/config.toml`; for root the last
/// comes before the home's. `None` when there is none.
pub fn find() -> Option<PathBuf> {
    let absolute =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let root = rustix::process::geteuid().is_root();
    places(absolute("XDG_CONFIG_HOME"), absolute("HOME"), root).into_iter().find(|p| p.exists())
}

/// Where [`find`] looks. Root's commands are about the machine's service: `sudo` may keep the home of another user.
fn places(config: Option<PathBuf>, home: Option<PathBuf>, root: bool) -> Vec<PathBuf> {
    let system = PathBuf::from("/etc/ekiden/config.toml");
    let file = |folder: PathBuf| folder.join("ekiden/config.toml");
    match (config.map(file), home.map(|home| file(home.join(".config")))) {
        (Some(config), _) => vec![config, system],
        (None, Some(home)) if root => vec![system, home],
        (None, Some(home)) => vec![home, system],
        (None, None) => vec![system],
    }
}

/// Reads the named file, or the one [`find`] finds, with the password files it names. Whatever goes
/// wrong is a problem in the reading.
pub fn load(named: Option<&Path>, overrides: &Overrides) -> Loaded {
    let Some(file) = named.map(Path::to_owned).or_else(find) else {
        let reading = read_with("", "no file", overrides);
        return Loaded { file: None, text: String::new(), reading };
    };
    let name = file.display().to_string();
    let (text, readable) = match read_limited(&file) {
        Ok(read) => read,
        Err(error) => {
            let mut reading = read_with("", &name, overrides);
            let hint = match error.kind() {
                io::ErrorKind::NotFound => {
                    "ekiden config example > config.toml writes one to begin with"
                }
                io::ErrorKind::PermissionDenied => "it must be readable by the user ekiden runs as",
                io::ErrorKind::InvalidData => {
                    "save it as UTF-8; of Latin-1, `iconv -f LATIN1 -t UTF-8` makes that"
                }
                _ => "",
            };
            let why = format!("the configuration cannot be read: {error}");
            reading.problems = vec![problem(&name, Severity::Error, why, hint)];
            return Loaded { file: Some(file), text: String::new(), reading };
        }
    };
    let mut reading = read_with(&text, &name, overrides);
    if text.trim().is_empty() {
        reading.problems.push(problem(
            &name,
            Severity::Error,
            "the configuration is empty, as after an interrupted save",
            "write at least a comment into it to mean the defaults, or remove the file",
        ));
    }
    if reading.holds_password && readable {
        reading.problems.push(problem(
            &name,
            Severity::Warning,
            "a password stands in this file, and every user of this machine can read it",
            format!("chmod 600 {name}, or move the password into a password_file"),
        ));
    }
    read_passwords(&mut reading, &name);
    let mut loaded = Loaded { file: Some(file), text, reading };
    judge_key(&mut loaded);
    loaded
}

/// Warns of a key of `[tls]` that everybody may read. One that cannot be read is told by whoever needs it.
fn judge_key(loaded: &mut Loaded) {
    let Some(key) = loaded.reading.draft.tls.key.clone() else { return };
    if std::fs::metadata(&key).is_ok_and(|data| is_for_everybody(&data)) {
        let path = key.display();
        loaded.add(
            Severity::Warning,
            "tls.key",
            format!("every user of this machine can read {path}, and pose as this relay"),
            format!("chmod 600 {path}; its owner is the user ekiden runs as"),
        );
    }
}

/// Whether all users may read a file.
fn is_for_everybody(data: &Metadata) -> bool {
    data.permissions().mode() & 0o004 != 0
}

/// A problem of a whole file.
fn problem(
    file: &str,
    severity: Severity,
    message: impl Into<String>,
    hint: impl Into<String>,
) -> Problem {
    Problem { file: Some(file.to_owned()), ..Problem::general(severity, message, hint) }
}

fn read_passwords(reading: &mut Reading, name: &str) {
    for entry in std::mem::take(&mut reading.password_files) {
        let path = entry.path.display().to_string();
        let problem = |severity, message: String, hint: &str| Problem {
            place: entry.place.clone(),
            ..problem(name, severity, message, hint)
        };
        let (text, readable) = match read_limited(&entry.path) {
            Ok(read) => read,
            Err(error) => {
                let why = match &entry.of {
                    SecretOf::Upstream(name) => format!("the password of upstream `{name}`"),
                    SecretOf::MailServer => "the password for `mail_server`".to_owned(),
                    SecretOf::Webhook => "the authorization for `webhook`".to_owned(),
                    SecretOf::Collector => "the authorization for `endpoint`".to_owned(),
                };
                let why = format!("{why} cannot be read: {error}");
                let hint = "a file with one line, readable by the user ekiden runs as";
                reading.problems.push(problem(Severity::Error, why, hint));
                continue;
            }
        };
        if readable {
            reading.problems.push(problem(
                Severity::Warning,
                format!("every user of this machine can read {path}"),
                &format!("chmod 600 {path}"),
            ));
        }
        let password = text.lines().next().unwrap_or("").to_owned();
        // a token that authorizes may be long
        let token = matches!(entry.of, SecretOf::Webhook | SecretOf::Collector);
        let longest = if token { 4096 } else { 255 };
        if password.is_empty() || password.len() > longest || password.chars().any(char::is_control)
        {
            reading.problems.push(problem(
                Severity::Error,
                format!("the first line of {path} is no password"),
                &format!("1 to {longest} bytes without control characters"),
            ));
            continue;
        }
        match &entry.of {
            SecretOf::Webhook => reading.alert_secrets.authorization = Some(password),
            SecretOf::Collector => reading.collector_secret = Some(Secret(password)),
            SecretOf::MailServer => reading.alert_secrets.mail_password = Some(password),
            SecretOf::Upstream(name) => {
                let upstream = reading.settings.upstreams.get_mut(name);
                if let Some(credentials) = upstream.and_then(|of| of.credentials.as_mut()) {
                    credentials.password = password;
                }
            }
        }
    }
}

/// The text of a file, and whether all users may read it. At most
/// [`LONGEST`] bytes are accepted.
fn read_limited(path: &Path) -> io::Result<(String, bool)> {
    let file = File::open(path)?;
    let data = file.metadata()?;
    if data.is_dir() {
        return Err(io::Error::other("it is a directory"));
    }
    let mut bytes = Vec::new();
    file.take(LONGEST as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > LONGEST {
        return Err(io::Error::other("it is longer than 1 MiB"));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let line = 1 + error.as_bytes()[..error.utf8_error().valid_up_to()]
            .iter()
            .filter(|b| **b == b'\n')
            .count();
        io::Error::new(io::ErrorKind::InvalidData, format!("it is not UTF-8 (line {line})"))
    })?;
    Ok((text, is_for_everybody(&data)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn root_reads_the_configuration_of_the_machine_first() {
        let text = |paths: Vec<PathBuf>| {
            let text = paths.iter().map(|path| path.display().to_string());
            text.collect::<Vec<_>>()
        };
        let (named, home) = (Some(PathBuf::from("/x")), Some(PathBuf::from("/home/anna")));
        let (machine, own) = ("/etc/ekiden/config.toml", "/home/anna/.config/ekiden/config.toml");
        assert_eq!(text(places(None, home.clone(), false)), [own, machine]);
        assert_eq!(text(places(None, home.clone(), true)), [machine, own]);
        for root in [false, true] {
            let places = text(places(named.clone(), home.clone(), root));
            assert_eq!(places, ["/x/ekiden/config.toml", machine]);
        }
        assert_eq!(text(places(None, None, false)), [machine]);
    }

    fn with_mode(path: &Path, text: &str, mode: u32) {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn passwords_come_from_their_files() {
        let dir = tempfile::tempdir().unwrap();
        let (config, secret) = (dir.path().join("c.toml"), dir.path().join("p"));
        with_mode(&secret, "geheim\n", 0o600);
        let text = format!(
            "[upstream.far]\nurl = \"http://u@h:1\"\npassword_file = \"{}\"\n[[route]]\nthrough = [\"far\"]\n",
            secret.display()
        );
        with_mode(&config, &text, 0o644);
        let reading = load(Some(&config), &Overrides::default()).reading;
        assert_eq!(reading.problems, []);
        let credentials = reading.settings.upstreams["far"].credentials.clone();
        assert_eq!(credentials.map(|c| c.password), Some("geheim".to_owned()));

        with_mode(&secret, "geheim\n", 0o644);
        let reading = load(Some(&config), &Overrides::default()).reading;
        assert!(reading.is_usable() && reading.problems.len() == 1);
        fs::remove_file(&secret).unwrap();
        assert!(!load(Some(&config), &Overrides::default()).reading.is_usable());
    }

    #[test]
    fn secrets_of_alerts_come_from_their_files() {
        let dir = tempfile::tempdir().unwrap();
        let [config, token, password] = ["c", "t", "p"].map(|name| dir.path().join(name));
        with_mode(&token, "Bearer abc\n", 0o600);
        with_mode(&password, "geheim\n", 0o600);
        let text = format!(
            "[alerts]\nwebhook = \"https://h/\"\nwebhook_authorization_file = \"{}\"\nmail_to = \"a@b\"\nmail_server = \"smtps://a@h\"\nmail_password_file = \"{}\"\n",
            token.display(),
            password.display()
        );
        with_mode(&config, &text, 0o644);
        let reading = load(Some(&config), &Overrides::default()).reading;
        assert_eq!(reading.problems, []);
        let secrets = &reading.alert_secrets;
        assert_eq!(secrets.authorization.as_deref(), Some("Bearer abc"));
        assert_eq!(secrets.mail_password.as_deref(), Some("geheim"));
        assert!(!format!("{secrets:?}").contains("geheim"));
        fs::remove_file(&password).unwrap();
        let reading = load(Some(&config), &Overrides::default()).reading;
        let problem = reading.problems.first().unwrap();
        assert!(problem.line().contains("the password for `mail_server` cannot be read"));
    }

    #[test]
    fn a_password_everybody_can_read_is_warned_of() {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("c.toml");
        let text =
            "[upstream.far]\nurl = \"http://u:geheim@h:1\"\n[[route]]\nthrough = [\"far\"]\n";
        with_mode(&config, text, 0o644);
        let problems = load(Some(&config), &Overrides::default()).reading.problems;
        assert_eq!(problems.len(), 1);
        assert!(!format!("{problems:?}").contains("geheim"));
        with_mode(&config, text, 0o600);
        assert_eq!(load(Some(&config), &Overrides::default()).reading.problems, []);
    }

    #[test]
    fn a_key_of_tls_that_everybody_can_read_is_warned_of() {
        let dir = tempfile::tempdir().unwrap();
        let [config, key] = ["c.toml", "key.pem"].map(|name| dir.path().join(name));
        let text = format!("[tls]\ncertificate = \"/c.pem\"\nkey = \"{}\"\n", key.display());
        with_mode(&config, &text, 0o644);
        let problems = || load(Some(&config), &Overrides::default()).reading.problems;
        assert_eq!(problems(), [], "none is there");
        for mode in [0o644, 0o604] {
            with_mode(&key, "a key", mode);
            let found = problems();
            let [one] = &found[..] else { panic!("{found:?}") };
            assert!(!one.is_error() && one.place.as_ref().is_some_and(|at| at.line == 3));
            let line = one.line();
            assert!(line.contains("can read") && line.contains("chmod 600"), "{line}");
        }
        for mode in [0o600, 0o640] {
            with_mode(&key, "a key", mode);
            assert_eq!(problems(), [], "{mode:o}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_is_a_problem() {
        let dir = tempfile::tempdir().unwrap();
        for path in [dir.path().join("none.toml"), dir.path().to_owned()] {
            assert!(!load(Some(&path), &Overrides::default()).reading.is_usable());
        }
        let path = dir.path().join("latin1.toml");
        fs::write(&path, b"# caf\xe9\n").unwrap();
        let problems = load(Some(&path), &Overrides::default()).reading.problems;
        let line = problems.first().unwrap().line();
        assert!(line.contains("not UTF-8 (line 1)") && line.contains("iconv"), "{line}");
    }
}
