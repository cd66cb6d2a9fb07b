//! The token of the API: 256 random bits in a file that only its owner may read. Each call reads
//! it, so that a new one counts at once.

use ekiden_linux::host::state_files;
use ekiden_tunnel::trust::{NoRandomness, hash, random};
use std::fmt;
use std::fs;
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use subtle::ConstantTimeEq as _;

/// What a token begins with, so that it is known for one wherever it turns up.
const PREFIX: &str = "ekiden_";
/// Letters of a token without [`PREFIX`].
const LETTERS: usize = 64;

/// The secret. Its `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Token").field(&self.id()).finish()
    }
}

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum TokenError {
    #[error("there is no token at {}; `ekiden serve` makes one, and `ekiden token rotate`", .0.display())]
    None(PathBuf),
    #[error(
        "other users can read the token in {}, so it is none; `ekiden token rotate` makes another",
        .0.display()
    )]
    Open(PathBuf),
    #[error("{} holds no token; `ekiden token rotate` makes one", .0.display())]
    Content(PathBuf),
    #[error("the token in {path} cannot be used: {1}", path = .0.display())]
    System(PathBuf, io::Error),
    #[error("{0}")]
    Random(NoRandomness),
}

impl Token {
    /// Reads one from a file, for which it waits for the disk.
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let failed = |error: io::Error| match error.kind() {
            ErrorKind::NotFound => TokenError::None(path.to_owned()),
            _ => TokenError::System(path.to_owned(), error),
        };
        let file = fs::File::open(path).map_err(failed)?;
        if file.metadata().map_err(failed)?.permissions().mode() & 0o077 != 0 {
            return Err(TokenError::Open(path.to_owned()));
        }
        let mut text = String::new();
        file.take(1024).read_to_string(&mut text).map_err(failed)?;
        let text = text.trim();
        let letters = text.strip_prefix(PREFIX).unwrap_or_default();
        if letters.len() == LETTERS && letters.bytes().all(|b| b.is_ascii_hexdigit()) {
            Ok(Self(text.to_owned()))
        } else {
            Err(TokenError::Content(path.to_owned()))
        }
    }

    /// Makes a new one, in the place of any other.
    pub fn make(path: &Path) -> Result<Self, TokenError> {
        let bytes: [u8; LETTERS / 2] = random().map_err(TokenError::Random)?;
        let letters: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let token = Self(format!("{PREFIX}{letters}"));
        let failed = |error| TokenError::System(path.to_owned(), error);
        // a running daemon reads the old or the new one, also where root makes it for its user
        let written = || {
            if let Some(folder) = path.parent() {
                state_files::make_folder(folder)?;
            }
            state_files::replace(path, format!("{}\n", token.0).as_bytes())
        };
        written().map_err(failed)?;
        Ok(token)
    }

    /// Reads the one in a file, which is made if missing.
    pub fn read_or_make(path: &Path) -> Result<Self, TokenError> {
        match Self::read(path) {
            Err(TokenError::None(_)) => Self::make(path),
            other => other,
        }
    }

    /// Whether this is it; takes as long for any that are wrong.
    pub fn is(&self, said: &str) -> bool {
        // of hashes, so that not even the length is told
        hash(self.0.as_bytes()).ct_eq(&hash(said.as_bytes())).into()
    }

    /// By what it is named in logs: part of its hash, which nobody can turn back.
    pub fn id(&self) -> String {
        hash(self.0.as_bytes()).iter().take(4).map(|byte| format!("{byte:02x}")).collect()
    }

    /// The secret itself, to be handed to whoever asks on this machine.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_made_once_read_again_and_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state/management.token");
        assert!(matches!(Token::read(&path), Err(TokenError::None(_))));
        let token = Token::read_or_make(&path).unwrap();
        assert_eq!(Token::read_or_make(&path).unwrap(), token);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let new = Token::make(&path).unwrap();
        assert!(new.is(new.reveal()) && !new.is(token.reveal()) && !new.is(""));
        assert_ne!(new.id(), token.id());
        assert!(!format!("{new:?}").contains(new.reveal()));
    }

    #[test]
    fn refuses_a_token_file_readable_by_others() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t");
        Token::make(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let error = Token::read(&path).unwrap_err().to_string();
        assert!(error.contains("other users can read"), "{error}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "secret\n").unwrap();
        assert!(matches!(Token::read(&path), Err(TokenError::Content(_))));
    }
}
