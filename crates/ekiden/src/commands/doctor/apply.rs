//! `--apply`: writes the settings that findings name, and nothing else.

use super::{Finding, Severity};
use crate::print::count;
use ekiden_linux::host::sysctl;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

/// Where settings are kept over a restart of the machine.
pub(super) const KEPT_IN: &str = "/etc/sysctl.d/90-ekiden.conf";

/// What became of one setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Change {
    /// Its dotted name; of a route or the file that keeps settings, what it is.
    pub name: String,
    /// What it was.
    pub before: Option<String>,
    /// What was asked for.
    pub asked: String,
    /// What it is now.
    pub after: Option<String>,
    /// Why it could not be changed.
    pub refused: Option<String>,
}

/// Writes every setting of the findings that are not fine, each read back. `privileged`: this process
/// has CAP_NET_ADMIN, so that a refusal is the namespace's.
pub(super) fn apply(findings: &[Finding], privileged: bool) -> Vec<Change> {
    findings
        .iter()
        .filter(|finding| finding.severity > Severity::Ok)
        .flat_map(|finding| &finding.settings)
        .map(|setting| {
            let before = sysctl::read(&setting.name);
            let written = sysctl::write(&setting.name, &setting.value);
            let after = sysctl::read(&setting.name);
            let refused = match written {
                Err(error) => Some(reason(&error, privileged)),
                Ok(()) if after.as_deref() == Some(setting.value.as_str()) => None,
                // lists come back in an order of the kernel's own
                Ok(()) if sorted(after.as_deref()) == sorted(Some(&setting.value)) => None,
                Ok(()) => Some("the kernel made another value of it".into()),
            };
            let (name, asked) = (setting.name.clone(), setting.value.clone());
            Change { name, before, asked, after, refused }
        })
        .collect()
}

fn sorted(value: Option<&str>) -> Vec<&str> {
    let mut words: Vec<_> = value.unwrap_or_default().split_whitespace().collect();
    words.sort_unstable();
    words
}

fn reason(error: &io::Error, privileged: bool) -> String {
    match error.kind() {
        // a namespace sees some settings of the whole machine, and may not write them
        io::ErrorKind::PermissionDenied if privileged => {
            "read-only in this network namespace; run it on the machine itself".into()
        }
        io::ErrorKind::PermissionDenied => "not permitted; run `sudo ekiden doctor --apply`".into(),
        io::ErrorKind::NotFound => {
            "this setting is not in this namespace; run it on the machine itself".into()
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "/proc/sys is read-only here, as in a container; run it on the machine itself".into()
        }
        _ => error.to_string(),
    }
}

/// Contents of a file for [`KEPT_IN`]: what it `has`, and what was changed. Routes are no settings.
pub(super) fn kept(has: &str, changes: &[Change]) -> String {
    let mut text = String::from("# Written for ekiden; read at start by sysctl --system.\n");
    let settings = || changes.iter().filter(|change| is_setting(change));
    let name = |line: &str| line.split_once('=').map(|(name, _)| name.trim().to_owned());
    let stays =
        |line: &&str| name(line).is_some_and(|name| !settings().any(|change| change.name == name));
    for line in has.lines().filter(stays) {
        // writing to a String does not fail
        let _ = writeln!(text, "{line}");
    }
    for change in settings() {
        let _ = writeln!(text, "{} = {}", change.name, change.asked);
    }
    text
}

pub(super) fn is_setting(change: &Change) -> bool {
    !change.name.contains(' ')
}

/// Keeps what was changed over a restart of the machine; what was kept before stays. Returns what became of the file.
pub(super) fn persist(changes: &[Change]) -> Change {
    let granted: Vec<Change> =
        changes.iter().filter(|change| change.refused.is_none()).cloned().collect();
    let write = || -> io::Result<String> {
        let before = match fs::read_to_string(KEPT_IN) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            read => read?,
        };
        let text = kept(&before, &granted);
        let folder = Path::new(KEPT_IN).parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(folder)?;
        // a start of the machine meanwhile finds the one or the other
        let new = format!("{KEPT_IN}.new");
        fs::write(&new, &text)?;
        fs::rename(&new, KEPT_IN)?;
        Ok(count(text.lines().skip(1).count() as u64, "setting"))
    };
    let done = write();
    Change {
        name: KEPT_IN.to_owned(),
        before: None,
        asked: "kept at every start".to_owned(),
        after: done.as_ref().ok().cloned(),
        refused: done.err().map(|error| reason(&error, false)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(name: &str, asked: &str) -> Change {
        let (name, asked) = (name.to_owned(), asked.to_owned());
        Change { name, before: None, after: Some(asked.clone()), asked, refused: None }
    }

    #[test]
    fn persisted_settings_stay_unless_set_again() {
        let route = change("rto_min of \"default via 100.64.0.2 dev d\"", "500ms");
        let first = kept("", &[change("a.b", "1"), route, change("c.d", "2 3")]);
        assert_eq!(
            first,
            "# Written for ekiden; read at start by sysctl --system.\na.b = 1\nc.d = 2 3\n"
        );
        let second = kept(&first, &[change("a.b", "7")]);
        assert!(second.ends_with("\nc.d = 2 3\na.b = 7\n"), "{second}");
        assert_eq!(second.matches('#').count(), 1);
    }
}
