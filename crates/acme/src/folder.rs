//! The folder of one authority: the account there, and the certificate with its key. Each file is
//! replaced whole, and only its owner can read it.

use ekiden_linux::host::state_files;
use ekiden_proxy::settings::Acme;
use instant_acme::AccountCredentials;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::PathBuf;

#[derive(Debug, Clone)]
pub(crate) struct Folder(PathBuf);

/// The PEM file with key and certificate that these settings lead to; `None` without a state folder.
pub fn certificate_file(settings: &Acme) -> Option<PathBuf> {
    Some(path(settings)?.join(CERTIFICATE))
}

const CERTIFICATE: &str = "certificate.pem";
const ACCOUNT: &str = "account.json";
const UNFINISHED: &str = "unfinished.json";
const KEY: &str = "key.pem";

/// An account, and the mail addresses that the authority has for it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct KeptAccount {
    pub(crate) contact: Vec<String>,
    account: serde_json::Value,
}

impl KeptAccount {
    pub(crate) fn new(
        credentials: &AccountCredentials,
        contact: &[String],
    ) -> Result<Self, String> {
        let account = serde_json::to_value(credentials).map_err(|error| error.to_string())?;
        Ok(Self { contact: contact.to_vec(), account })
    }

    pub(crate) fn credentials(&self) -> Result<AccountCredentials, serde_json::Error> {
        AccountCredentials::deserialize(&self.account)
    }
}

/// An order that was begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Unfinished {
    /// Seconds since 1970.
    pub(crate) begun_at: u64,
    /// Seconds that the authority told to wait.
    pub(crate) wait: u64,
    /// Stands for the settings: with others an order may succeed at once.
    pub(crate) settings: String,
}

/// One folder for each directory: accounts and certificates of one authority mean nothing to another.
fn path(settings: &Acme) -> Option<PathBuf> {
    let hash = digest(&SHA256, settings.directory.as_bytes());
    let short = hash.as_ref().iter().take(4).fold(String::new(), |mut text, byte| {
        // writing to a text does not fail
        let _ = write!(text, "{byte:02x}");
        text
    });
    let host = settings.directory.split("://").nth(1).unwrap_or_default();
    let host = host.split(['/', ':']).next().unwrap_or_default();
    let host: String =
        host.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-')).collect();
    Some(settings.state.as_ref()?.join("acme").join(format!("{host}-{short}")))
}

impl Folder {
    /// Makes the folder where it is not there, as the user's who owns the state; fails in words.
    pub(crate) fn open(settings: &Acme) -> Result<Self, String> {
        let path = path(settings).ok_or("no home directory; set `state` in [acme]")?;
        state_files::make_folder(&path).map_err(|error| {
            format!(
                "the folder {} cannot be made: {error}; ekiden's user must be able to write there, or set `state` in [acme]",
                path.display()
            )
        })?;
        Ok(Self(path))
    }

    /// The PEM text of key and certificate, if it is there.
    pub(crate) fn certificate(&self) -> io::Result<Option<Vec<u8>>> {
        there(fs::read(self.0.join(CERTIFICATE)))
    }

    /// The key of the certificate that is being ordered.
    pub(crate) fn keep_key(&self, key: &str) -> Result<(), String> {
        self.write(KEY, key.as_bytes())
    }

    /// Keeps key and certificate, which are [`together`].
    pub(crate) fn keep_certificate(&self, both: &str) -> Result<(), String> {
        self.write(CERTIFICATE, both.as_bytes())
    }

    /// The account of this authority, if there is one; fails in words.
    pub(crate) fn account(&self) -> Result<Option<KeptAccount>, String> {
        let path = self.0.join(ACCOUNT);
        let wrong = |why: String| format!("{} {why}; remove it for a new account", path.display());
        let Some(text) =
            there(fs::read(&path)).map_err(|error| wrong(format!("cannot be read: {error}")))?
        else {
            return Ok(None);
        };
        let read = serde_json::from_slice::<KeptAccount>(&text).ok();
        // the library reads it again, and would say only then that it is of no use
        let fine = |kept: &KeptAccount| kept.credentials().is_ok();
        match read.filter(fine) {
            Some(kept) => Ok(Some(kept)),
            None => Err(wrong("is no account".to_owned())),
        }
    }

    pub(crate) fn keep_account(&self, account: &KeptAccount) -> Result<(), String> {
        let text = serde_json::to_vec(account).map_err(|error| error.to_string())?;
        self.write(ACCOUNT, &text)
    }

    /// Notes that an order is begun, or has failed.
    pub(crate) fn note(&self, unfinished: &Unfinished) -> Result<(), String> {
        let text = serde_json::to_vec(unfinished).map_err(|error| error.to_string())?;
        self.write(UNFINISHED, &text)
    }

    /// The order that was begun and has not succeeded, if there is one.
    pub(crate) fn unfinished(&self) -> Option<Unfinished> {
        serde_json::from_slice(&fs::read(self.0.join(UNFINISHED)).ok()?).ok()
    }

    /// An order has succeeded.
    pub(crate) fn finish(&self) {
        self.remove(UNFINISHED);
        self.remove(KEY);
    }

    /// Forgets an account that the authority does not know any more.
    pub(crate) fn forget_account(&self) {
        self.remove(ACCOUNT);
    }

    fn remove(&self, name: &str) {
        let path = self.0.join(name);
        if let Err(error) = there(fs::remove_file(&path)) {
            tracing::warn!("{} cannot be removed: {error}", path.display());
        }
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), String> {
        let path = self.0.join(name);
        state_files::replace(&path, bytes)
            .map(drop)
            .map_err(|error| format!("{} cannot be written: {error}", path.display()))
    }
}

/// Key and certificate as one PEM text, so that both change at once.
pub(crate) fn together(key: &str, chain: &str) -> String {
    format!("{}\n{}", key.trim_end(), chain.trim_start())
}

fn there<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
    use std::path::Path;

    #[test]
    fn root_leaves_the_folder_to_the_user_of_the_state() {
        let state = tempfile::tempdir().unwrap();
        let user = 4711;
        if chown(state.path(), Some(user), Some(user)).is_err() {
            assert!(std::env::var_os("CI").is_none(), "this test needs root");
            return println!("SKIPPED: only root can give files away");
        }
        let settings = Acme { state: Some(state.path().to_owned()), ..Acme::default() };
        let folder = Folder::open(&settings).unwrap();
        folder.keep_key("key").unwrap();
        folder.keep_certificate("key and chain").unwrap();
        let certificate = certificate_file(&settings).unwrap();
        for path in [&certificate, &certificate.with_file_name(KEY)] {
            for path in path.ancestors().take_while(|path| *path != state.path()) {
                assert_eq!(fs::metadata(path).unwrap().uid(), user, "{}", path.display());
            }
        }
        folder.finish();
        assert!(!certificate.with_file_name(KEY).exists());
    }

    #[test]
    fn each_authority_has_its_folder_and_only_the_owner_reads_it() {
        let state = tempfile::tempdir().unwrap();
        let settings = |directory: &str| Acme {
            directory: directory.to_owned(),
            state: Some(state.path().to_owned()),
            ..Acme::default()
        };
        let one = settings("https://ca.example:14000/dir");
        let files = [
            &one,
            &settings("https://ca.example:14000/other"),
            &settings("https://other.example/dir"),
        ]
        .map(|settings| certificate_file(settings).unwrap());
        assert!(files[0] != files[1] && files[1] != files[2] && files[0] != files[2]);
        assert!(files[0].starts_with(state.path().join("acme")));
        assert_eq!(certificate_file(&Acme::default()), None);

        let folder = Folder::open(&one).unwrap();
        assert!(folder.certificate().unwrap().is_none() && folder.account().unwrap().is_none());
        for text in ["first", "second"] {
            folder.keep_certificate(&together("key\n", text)).unwrap();
            let kept = folder.certificate().unwrap().unwrap();
            assert_eq!(String::from_utf8(kept).unwrap(), format!("key\n{text}"));
        }
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&files[0]), 0o600);
        assert_eq!(mode(files[0].parent().unwrap()), 0o700);
        for text in ["{}", "{\"contact\":[],\"account\":{}}", "half a f"] {
            fs::write(files[0].with_file_name(ACCOUNT), text).unwrap();
            let error = folder.account().err().unwrap();
            assert!(error.contains("remove it for a new account"), "{error}");
        }
        let begun = Unfinished { begun_at: 7, wait: 0, settings: "these".to_owned() };
        assert_eq!(folder.unfinished(), None);
        folder.note(&begun).unwrap();
        assert_eq!(folder.unfinished(), Some(begun));
        folder.finish();
        folder.finish();
        assert_eq!(folder.unfinished(), None);
    }
}
