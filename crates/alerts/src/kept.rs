//! The alerts that stand, in a file: a restart tells nobody again, and tells when they are over.

use crate::kind::AlertKind;
use ekiden_linux::host::state_files;
use ekiden_model::alerts::{Firing, Key};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

const FILE: &str = "alerts.json";

/// The most that is read back: 16 MiB is 100,000 alerts.
const LONGEST: u64 = 16 << 20;

#[derive(Debug, Serialize, Deserialize)]
struct KeptAlert {
    alert: String,
    subject: String,
    since: u64,
    text: String,
}

/// The file of a state folder.
#[derive(Debug, Clone)]
pub(crate) struct Kept(Option<PathBuf>);

impl Kept {
    pub(crate) fn new(folder: Option<&Path>) -> Self {
        Self(folder.map(|folder| folder.join(FILE)))
    }

    /// What stood when the program ended. What cannot be read did not stand.
    pub(crate) fn read(&self) -> Vec<Firing<AlertKind>> {
        let Some(path) = &self.0 else { return Vec::new() };
        let short = fs::metadata(path).is_ok_and(|data| data.len() <= LONGEST);
        let text = if short { fs::read(path).unwrap_or_default() } else { Vec::new() };
        let kept: Vec<KeptAlert> = serde_json::from_slice(&text).unwrap_or_default();
        let firing = |kept: KeptAlert| {
            let key = Key { alert: AlertKind::of(&kept.alert)?, subject: kept.subject };
            Some(Firing { key, since: kept.since, text: kept.text })
        };
        kept.into_iter().filter_map(firing).collect()
    }

    /// Keeps what stands now. Errors: in words.
    pub(crate) fn write(&self, standing: &[Firing<AlertKind>]) -> Result<(), String> {
        let Some(path) = &self.0 else { return Ok(()) };
        let kept = |firing: &Firing<AlertKind>| KeptAlert {
            alert: firing.key.alert.word().to_owned(),
            subject: firing.key.subject.clone(),
            since: firing.since,
            text: firing.text.clone(),
        };
        let kept: Vec<KeptAlert> = standing.iter().map(kept).collect();
        let text = serde_json::to_vec(&kept).map_err(|error| error.to_string())?;
        let folder = path.parent().unwrap_or(Path::new("/"));
        let written = state_files::make_folder(folder);
        let written = written.and_then(|()| state_files::replace(path, &text));
        written.map(drop).map_err(|error| format!("{}: {error}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standing_alerts_are_read_back_and_nonsense_is_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        let kept = Kept::new(Some(&state));
        assert_eq!(kept.read(), []);
        let firing = Firing {
            key: Key { subject: "ship".to_owned(), alert: AlertKind::LineDown },
            since: 7,
            text: "no tunnel".to_owned(),
        };
        kept.write(std::slice::from_ref(&firing)).unwrap();
        let one = std::slice::from_ref(&firing);
        assert_eq!(Kept::new(Some(&state)).read(), one);
        let line = r#"{"alert":"line-down","subject":"ship","since":7,"text":"no tunnel"}"#;
        fs::write(state.join(FILE), format!("[{line},{}]", line.replace("line-down", "x")))
            .unwrap();
        assert_eq!(kept.read(), one, "an alert of another version");
        fs::write(state.join(FILE), "[{").unwrap();
        assert_eq!(kept.read(), []);
        // a file in the folder's place
        let taken = folder.path().join("taken");
        fs::write(&taken, "").unwrap();
        assert!(Kept::new(Some(&taken)).write(one).unwrap_err().contains("taken"));
        assert_eq!(Kept::new(None).write(&[]), Ok(()));
    }
}
