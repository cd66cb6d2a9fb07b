//! Passwords as argon2id hashes.

use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{self, PasswordHasher as _, PasswordVerifier as _};
use argon2::{Algorithm, Argon2, Params, Version};
use ring::rand::{SecureRandom as _, SystemRandom};

/// Memory of one hash in KiB: 19 MiB (OWASP Password Storage Cheat Sheet, Argon2id, m = 19456).
const MEMORY: u32 = 19 * 1024;
/// Passes over it (the same, t = 2).
const PASSES: u32 = 2;
/// Lanes (the same, p = 1): one core is all that checking may take.
const LANES: u32 = 1;

/// Fewer bytes are guessed (NIST SP 800-63B §5.1.1.2: at least 8).
const SHORTEST: usize = 8;
/// RFC 1929 §2: its length is one byte.
const LONGEST: usize = 255;

/// Why a password was refused, or could not be hashed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum BadPassword {
    #[error("a password has 8 to 255 bytes, and this one {0}")]
    Length(usize),
    /// Control characters, which no client sends alike.
    #[error("a password has no control characters")]
    Control,
    /// The system gave no random bytes, or no memory.
    #[error("the password cannot be hashed: {0}")]
    System(String),
}

fn argon2() -> Result<Argon2<'static>, BadPassword> {
    let params = Params::new(MEMORY, PASSES, LANES, None);
    let params = params.map_err(|error| BadPassword::System(error.to_string()))?;
    Ok(Argon2::new(Algorithm::Argon2id, Version::V0x13, params))
}

/// Whether a new password may be had. Errors: its length, or that it has control characters.
pub fn check_password(password: &str) -> Result<(), BadPassword> {
    if !(SHORTEST..=LONGEST).contains(&password.len()) {
        return Err(BadPassword::Length(password.len()));
    }
    if password.chars().any(char::is_control) {
        return Err(BadPassword::Control);
    }
    Ok(())
}

/// The hash of a new password, in the PHC string format with its own salt; some 20 ms of one core.
pub fn hash(password: &str) -> Result<String, BadPassword> {
    check_password(password)?;
    let mut salt = [0; 16];
    let random = SystemRandom::new().fill(&mut salt);
    random.map_err(|_| BadPassword::System("the system gives no random bytes".to_owned()))?;
    let hashed: password_hash::Result<PasswordHash> =
        argon2()?.hash_password_with_salt(password.as_bytes(), &salt);
    hashed.map(|hash| hash.to_string()).map_err(|error| BadPassword::System(error.to_string()))
}

/// Whether a password is the one that was hashed. Takes as long as [`hash`], whatever the answer.
pub fn matches(password: &str, hash: &str) -> bool {
    let Ok(hash) = PasswordHash::new(hash) else { return false };
    argon2().is_ok_and(|argon2| argon2.verify_password(password.as_bytes(), &hash).is_ok())
}

/// Whether a stored text is a hash of a password that [`matches()`] can compare with.
pub fn is_hash(text: &str) -> bool {
    PasswordHash::new(text).is_ok_and(|hash| {
        Algorithm::new(hash.algorithm.as_str()).is_ok()
            && hash.salt.is_some()
            && hash.hash.is_some()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_password_itself_matches() {
        let stored = hash("correct horse").unwrap();
        assert!(stored.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{stored}");
        assert!(matches("correct horse", &stored));
        assert!(!matches("correct horsf", &stored));
        assert!(!matches("correct horse", "no hash"));
        assert!(is_hash(&stored));
        for broken in ["", "no hash", "$argon2id$v=19$m=19456,t=2,p=1$c2FsdHNhbHQ", &stored[1..]] {
            assert!(!is_hash(broken), "{broken}");
        }
        // of an older version of the library
        let old = "$argon2id$v=19$m=19456,t=2,p=1$q4I14XWyQRyfGivI/pptkA$499imbK/6oLNazOixExjarlzYR+f+Y00k0wcgiz8fFc";
        assert!(matches("correct horse", old) && !matches("correct horsf", old));
        // each has its own salt
        assert_ne!(hash("correct horse").unwrap(), stored);
    }

    #[test]
    fn refuses_passwords_that_cannot_be_sent() {
        assert_eq!(hash("short"), Err(BadPassword::Length(5)));
        assert_eq!(hash(&"x".repeat(256)), Err(BadPassword::Length(256)));
        assert_eq!(hash("with\nnewline"), Err(BadPassword::Control));
    }
}
