//! The operators who are known: those of the file, or those it had when it could be used last.

use super::{Operator, OperatorError, Operators, REMEDY};
use ekiden_linux::host::sync::locked;
use ekiden_proxy::LogThrottle;
use std::sync::Mutex;

/// See the module.
#[derive(Debug)]
pub(crate) struct KnownOperators {
    file: Operators,
    state: Mutex<State>,
    throttle: LogThrottle,
}

#[derive(Debug, Default)]
struct State {
    operators: Vec<Operator>,
    /// Why the file cannot be used.
    trouble: Option<String>,
    /// What the log has of it.
    logged: Option<String>,
}

impl KnownOperators {
    /// Those of a file. One that cannot be used is logged as an error: nobody is an operator then.
    pub(crate) fn read(file: Operators) -> Self {
        let mut state = State::default();
        state.on_read(&file);
        if let Some(why) = &state.trouble {
            tracing::error!("no operator can log in: {why}; {REMEDY}");
        }
        state.logged.clone_from(&state.trouble);
        Self { file, state: Mutex::new(state), throttle: LogThrottle::new() }
    }

    /// All who are one now. Errors: why the file cannot be used, where nobody is known from before.
    pub(crate) fn all(&self) -> Result<Vec<Operator>, String> {
        let checked = self.check();
        let operators = locked(&self.state).operators.clone();
        match checked {
            Err(why) if operators.is_empty() => Err(why),
            _ => Ok(operators),
        }
    }

    /// Reads the file again. Errors: why it cannot be used.
    pub(crate) fn check(&self) -> Result<(), String> {
        // read with the lock held: an older look does not take a newer one's place
        let mut state = locked(&self.state);
        state.on_read(&self.file);
        if state.trouble != state.logged && self.throttle.is_due() {
            let count = state.operators.len();
            match &state.trouble {
                Some(why) if count == 0 => {
                    tracing::error!("no operator can log in: {why}; {REMEDY}");
                }
                Some(why) => {
                    tracing::warn!("operators stay as known before, {count}: {why}; {REMEDY}")
                }
                None => {
                    tracing::info!("the file of operators can be used again: {count} operators")
                }
            }
            state.logged = state.trouble.clone();
        }
        state.trouble.clone().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
impl KnownOperators {
    /// Whoever reads the file waits until `disk` returns.
    pub(crate) fn hang(&self, disk: impl FnOnce()) {
        let _reads = locked(&self.state);
        disk();
    }
}

impl State {
    fn on_read(&mut self, file: &Operators) {
        self.trouble = match file.find() {
            Ok(Some(operators)) => {
                self.operators = operators;
                None
            }
            // a relay without operators has none of its own
            Ok(None) if self.operators.is_empty() => None,
            Ok(None) => Some(OperatorError::Missing(file.0.clone()).to_string()),
            Err(error) => Some(error.to_string()),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::super::Role;
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::Path;

    /// A folder with one operator, `mika`.
    fn folder() -> (tempfile::TempDir, Operators) {
        let folder = tempfile::tempdir().unwrap();
        let operators = Operators::in_folder(folder.path());
        operators.add("mika", Role::Viewer, "a long password").unwrap();
        (folder, operators)
    }

    fn names(known: &KnownOperators) -> Vec<String> {
        known.all().unwrap_or_default().into_iter().map(|one| one.name).collect()
    }

    fn write(path: &Path, text: &str) {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    }

    #[test]
    fn a_file_that_cannot_be_used_keeps_the_operators_known_before() {
        let (_folder, operators) = folder();
        let path = operators.0.clone();
        let whole = fs::read_to_string(&path).unwrap();
        let known = KnownOperators::read(operators);
        let end = whole.rmatch_indices('\n').nth(1).unwrap().0;
        let hash = whole.replace("$argon2id$", "$card$");
        let twice = format!("[{0},{0}]", whole.trim_matches(['[', ']', '\n']));
        for (text, words) in [
            ("", "is empty"),
            (" \n", "is empty"),
            (&whole[..end], "cut off"),
            (&whole[..10], "cut off"),
            ("{}", "invalid type"),
            (hash.as_str(), "\"mika\" has no valid hash"),
            (twice.as_str(), "\"mika\" twice"),
            (&" ".repeat(70_000), "larger than 64 KiB"),
        ] {
            write(&path, text);
            assert_eq!(names(&known), ["mika"], "{words}");
            let why = known.check().unwrap_err();
            assert!(why.contains(words) && why.contains("operators.json"), "{why}");
        }
        write(&path, &whole);
        assert_eq!(known.check(), Ok(()));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(names(&known), ["mika"]);
        assert!(known.check().unwrap_err().contains("chmod 600"));
        fs::remove_file(&path).unwrap();
        assert_eq!(names(&known), ["mika"]);
        assert!(known.check().unwrap_err().contains("is missing"));
        fs::create_dir(&path).unwrap();
        assert_eq!(names(&known), ["mika"]);
        assert!(known.check().unwrap_err().contains("not a file"));
        fs::remove_dir(&path).unwrap();
        // a list of none is whole, and nobody is an operator any more
        write(&path, "[]");
        assert_eq!((names(&known), known.check()), (Vec::new(), Ok(())));
        fs::remove_file(&path).unwrap();
        assert_eq!(known.check(), Ok(()));
    }

    #[test]
    fn a_file_or_link_in_its_place_is_noticed() {
        let (folder, operators) = folder();
        let path = operators.0.clone();
        let known = KnownOperators::read(operators.clone());
        // `ekiden operator add` renames a new file into place
        operators.add("aiko", Role::Full, "another password").unwrap();
        assert_eq!(names(&known), ["aiko", "mika"]);
        let other = folder.path().join("other");
        fs::create_dir(&other).unwrap();
        let others = Operators::in_folder(&other);
        others.add("ken", Role::Full, "another password").unwrap();
        fs::remove_file(&path).unwrap();
        symlink(&others.0, &path).unwrap();
        assert_eq!(names(&known), ["ken"]);
        others.add("yui", Role::Full, "another password").unwrap();
        assert_eq!(names(&known), ["ken", "yui"]);
        // a link to nothing is no file that was never there
        fs::remove_file(&others.0).unwrap();
        assert_eq!(names(&known), ["ken", "yui"]);
        let again = KnownOperators::read(operators);
        assert!(again.check().unwrap_err().contains("No such file"));
    }

    #[test]
    fn a_file_that_could_never_be_used_makes_nobody_an_operator() {
        let (_folder, operators) = folder();
        let whole = fs::read_to_string(&operators.0).unwrap();
        write(&operators.0, "[");
        let known = KnownOperators::read(operators.clone());
        assert!(names(&known).is_empty() && known.check().is_err());
        write(&operators.0, &whole);
        assert_eq!(names(&known), ["mika"]);
    }
}
